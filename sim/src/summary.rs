//! What many worlds came to.

use std::collections::BTreeMap;
use std::fmt::{self, Write as _};
use std::time::Duration;

use crate::counts::Counts;
use crate::theme::Theme;
use crate::world::Report;

/// Longer gaps count as this long.
const GAP_MS_MAX: usize = 60_000;

/// Times in whole milliseconds, counted.
#[derive(Clone, PartialEq, Debug, Default)]
#[cfg_attr(feature = "cli", derive(serde::Serialize, serde::Deserialize))]
struct Gaps {
    by_ms: Vec<u64>,
    count: u64,
}

impl Gaps {
    fn add(&mut self, gap: Duration) {
        let ms = (gap.as_millis() as usize).min(GAP_MS_MAX);
        if self.by_ms.len() <= ms {
            self.by_ms.resize(ms + 1, 0);
        }
        self.by_ms[ms] += 1;
        self.count += 1;
    }

    fn merge(&mut self, other: &Self) {
        if self.by_ms.len() < other.by_ms.len() {
            self.by_ms.resize(other.by_ms.len(), 0);
        }
        self.by_ms.iter_mut().zip(&other.by_ms).for_each(|(count, more)| *count += more);
        self.count += other.count;
    }

    /// The least time that so many in a hundred do not exceed, in milliseconds.
    fn percentile(&self, percent: u64) -> usize {
        let wanted = (self.count * percent).div_ceil(100);
        let mut seen = 0;
        let position = self.by_ms.iter().position(|count| {
            seen += count;
            seen >= wanted
        });
        position.unwrap_or_default()
    }
}

/// What many worlds came to.
#[derive(Clone, PartialEq, Debug, Default)]
#[cfg_attr(feature = "cli", derive(serde::Serialize, serde::Deserialize))]
pub struct Summary {
    /// How many worlds were run.
    pub seeds: u64,
    /// What happened in them.
    pub counts: Counts,
    /// Simulated time.
    pub simulated: Duration,
    /// How long it took.
    pub took: Duration,
    /// Seeds that failed, and why, sorted.
    pub failures: Vec<(u64, String)>,
    /// How many worlds of each kind there were.
    pub themes: BTreeMap<Theme, u64>,
    /// Worlds whose membership did not settle, so that nobody could tell how many moves balance takes.
    pub moves_uncounted: u64,
    handoff_gaps: Gaps,
    failover_gaps: Gaps,
    /// Duplicates and hand-offs of worlds in which all moves are planned.
    planned: (u64, u64),
}

impl Summary {
    /// Adds a run.
    pub fn add(&mut self, report: &Report) {
        self.seeds += 1;
        self.counts.add(&report.counts);
        self.simulated += report.simulated;
        self.moves_uncounted += u64::from(!report.moves_counted);
        self.failures.extend(report.failure().map(|failure| (report.seed, failure)));
        if let Some(theme) = report.theme {
            *self.themes.entry(theme).or_default() += 1;
            if theme == Theme::Planned {
                self.planned.0 += report.counts.duplicates;
                self.planned.1 += report.counts.handoffs;
            }
        }
        // Where nothing else delays them.
        match report.theme {
            Some(Theme::Planned) => report.handoff_gaps.iter().for_each(|gap| self.handoff_gaps.add(*gap)),
            Some(Theme::Crashes) => report.failover_gaps.iter().for_each(|gap| self.failover_gaps.add(*gap)),
            _ => {}
        }
    }

    /// Adds what other worlds came to, which were run after these.
    pub fn merge(&mut self, other: Self) {
        self.seeds += other.seeds;
        self.counts.add(&other.counts);
        self.simulated += other.simulated;
        self.took += other.took;
        self.moves_uncounted += other.moves_uncounted;
        self.failures.extend(other.failures);
        self.failures.sort();
        other.themes.into_iter().for_each(|(theme, count)| *self.themes.entry(theme).or_default() += count);
        self.handoff_gaps.merge(&other.handoff_gaps);
        self.failover_gaps.merge(&other.failover_gaps);
        self.planned.0 += other.planned.0;
        self.planned.1 += other.planned.1;
    }

    /// What never happened: a simulation in which a fault never happens proves nothing about it.
    pub fn never_happened(&self) -> Vec<&'static str> {
        self.counts.entries().into_iter().filter(|(_, count)| *count == 0).map(|(name, _)| name).collect()
    }

    /// Seeds per second.
    pub fn seeds_per_second(&self) -> f64 {
        self.seeds as f64 / self.took.as_secs_f64().max(0.001)
    }

    /// The figures as a table in Markdown.
    pub fn markdown(&self) -> String {
        let mut out = String::from("| what | figure |\n| --- | ---: |\n");
        for (name, figure) in self.figures() {
            // A string takes it all.
            let _ = writeln!(out, "| {name} | {figure} |");
        }
        out
    }

    fn figures(&self) -> Vec<(String, String)> {
        let per_thousand = |(duplicates, handoffs): (u64, u64)| {
            format!("{:.1}", duplicates as f64 * 1_000.0 / handoffs.max(1) as f64)
        };
        let gap = |gaps: &Gaps| format!("{} ms / {} ms", gaps.percentile(50), gaps.percentile(99));
        let all = (self.counts.duplicates, self.counts.handoffs);
        let mut figures = vec![
            ("seeds".to_owned(), grouped(self.seeds)),
            ("failed".to_owned(), grouped(self.failures.len() as u64)),
            ("simulated hours".to_owned(), format!("{:.1}", self.simulated.as_secs_f64() / 3_600.0)),
            ("seeds per second".to_owned(), format!("{:.0}", self.seeds_per_second())),
            ("worlds in which needless moves could not be counted".to_owned(), grouped(self.moves_uncounted)),
            (
                "events handled again per 1,000 hand-offs, planned moves only".to_owned(),
                per_thousand(self.planned),
            ),
            (
                "events handled again per 1,000 hand-offs, all worlds with all their faults".to_owned(),
                per_thousand(all),
            ),
            ("hand-off, nobody reads: p50 / p99, planned moves only".to_owned(), gap(&self.handoff_gaps)),
            ("owner lost, nobody reads: p50 / p99, crashes only".to_owned(), gap(&self.failover_gaps)),
        ];
        let counts = self.counts.entries().into_iter();
        figures.extend(counts.map(|(name, count)| (name.to_owned(), grouped(count))));
        figures
    }
}

impl fmt::Display for Summary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let figures = self.figures();
        let width = figures.iter().map(|(name, _)| name.len()).max().unwrap_or_default();
        for (name, figure) in figures {
            writeln!(f, "{name:<width$}  {figure:>16}")?;
        }
        let themes = self.themes.iter().map(|(theme, count)| format!("{} {count}", theme.name()));
        writeln!(f, "worlds: {}", themes.collect::<Vec<_>>().join(", "))
    }
}

/// With commas between thousands.
fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let mut out = String::new();
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            out.push(',');
        }
        out.push(digit);
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::world::World;

    #[test]
    fn percentiles_are_the_least_time_that_enough_do_not_exceed() {
        let mut gaps = Gaps::default();
        (1..=100).for_each(|ms| gaps.add(Duration::from_millis(ms)));
        assert_eq!((gaps.percentile(50), gaps.percentile(99)), (50, 99));
    }

    #[test]
    fn runs_added_up_are_one_run() {
        let (mut parts, whole) = (Summary::default(), run(0, 12));
        parts.merge(run(0, 5));
        parts.merge(run(5, 7));
        assert_eq!(parts, whole);
        assert!(whole.handoff_gaps.count > 0 && whole.failover_gaps.count > 0, "nothing was compared");
    }

    fn run(first: u64, count: u64) -> Summary {
        let world =
            |seed: u64| World::of(if seed.is_multiple_of(2) { Theme::Planned } else { Theme::Crashes }, seed);
        Summary { took: Duration::ZERO, ..crate::run_all(first, count, None, world, |_| {}) }
    }

    #[test]
    fn thousands_are_grouped() {
        assert_eq!([0, 999, 1_000, 1_234_567].map(grouped), ["0", "999", "1,000", "1,234,567"]);
    }
}
