//! The result: the JSON object for programs, a table and a verdict for people.

use std::io;
use std::time::Duration;

use partita::store::MoveReason;
use serde::Serialize;

use super::duplicates::Duplicates;
use super::gaps::{gaps, percentile};
use super::ledger::Span;
use super::moves::Move;
use super::recount::Recount;
use crate::output::{Out, Tone, counted, grouped};

/// What `--json` prints: these keys and no others.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub(crate) struct Report {
    pub(crate) produced: u64,
    pub(crate) processed: u64,
    pub(crate) lost: u64,
    pub(crate) duplicated_by_handoff: u64,
    pub(crate) duplicated_by_crash: u64,
    pub(crate) handoffs: usize,
    pub(crate) steals: usize,
    pub(crate) crashes: usize,
    pub(crate) handoff_gap_ms: Gap,
    pub(crate) failover_gap_ms: Gap,
    pub(crate) events_per_second: u64,
}

/// How long partitions stood still, over `n` moves; nothing is known of none.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub(crate) struct Gap {
    p50: Option<f64>,
    p99: Option<f64>,
    n: usize,
}

impl Gap {
    fn of(values: &[Duration]) -> Self {
        let ms = |percent| percentile(values, percent).map(|gap| rounded(gap.as_secs_f64() * 1_000.0));
        Self { p50: ms(50), p99: ms(99), n: values.len() }
    }
}

fn rounded(number: f64) -> f64 {
    (number * 1_000.0).round() / 1_000.0
}

impl Report {
    /// Counts of events are of all runs on the directory; `spans`, `moves` and `crashes` are those of this one.
    pub(crate) fn new(
        counts: Recount,
        duplicates: Duplicates,
        spans: &[Vec<Span>],
        moves: &[Move],
        crashes: usize,
    ) -> Self {
        let all = || spans.iter().flatten();
        let begun = all().map(|span| span.begun).min().unwrap_or_default();
        let ended = all().map(|span| span.ended).max().unwrap_or_default();
        let seconds = ended.saturating_sub(begun).as_secs_f64();
        let handled: u64 = all().map(|span| span.last.abs_diff(span.first) + 1).sum();
        Self {
            produced: counts.produced,
            processed: counts.processed,
            lost: counts.lost,
            duplicated_by_handoff: duplicates.by_handoff,
            duplicated_by_crash: duplicates.by_crash,
            handoffs: count(moves, MoveReason::HandedOff),
            steals: count(moves, MoveReason::Stolen),
            crashes,
            handoff_gap_ms: Gap::of(&gaps(moves, spans, MoveReason::HandedOff)),
            failover_gap_ms: Gap::of(&gaps(moves, spans, MoveReason::TakenFromDead)),
            events_per_second: (handled as f64 / seconds.max(0.001)).round() as u64,
        }
    }

    /// Whether the engine kept its promises; it cannot without an event.
    pub(crate) fn is_good(&self) -> bool {
        self.produced > 0 && self.lost == 0 && self.duplicated_by_handoff == 0
    }

    /// The verdict in words, a sentence a line.
    fn verdict(&self) -> Vec<String> {
        if self.produced == 0 {
            let advice = "choose a longer --for or a higher --rate";
            return vec![format!("Nothing was produced, so nothing was shown: {advice}.")];
        }
        let mut lines = match (self.lost, self.duplicated_by_handoff) {
            (0, 0) => vec!["Good: nothing was lost, and no planned move repeated an event.".to_owned()],
            (lost, twice) => [(lost, "lost"), (twice, "handled again without a crash")]
                .into_iter()
                .filter(|(events, _)| *events > 0)
                .map(|(events, what)| format!("BAD: {} {what}.", were(events)))
                .collect(),
        };
        if self.duplicated_by_crash > 0 {
            let again = were(self.duplicated_by_crash);
            lines.push(format!(
                "{again} handled again after a crash or a freeze: done, but not yet checkpointed."
            ));
        }
        lines
    }

    /// The table and the verdict.
    pub(crate) fn print(
        &self,
        former: Option<u64>,
        moves: &[Move],
        spans: &[Vec<Span>],
        freezes: usize,
        out: &mut Out,
    ) -> io::Result<()> {
        let heading = |text: &str, out: &mut Out| out.line(&out.paint(Tone::Strong, text));
        out.line("")?;
        let title = "Events, counted again from the source";
        match former {
            None => heading(title, out)?,
            Some(_) => heading(&format!("{title}, this run and those before it"), out)?,
        }
        for (name, events) in [
            ("produced", self.produced),
            ("processed", self.processed),
            ("lost", self.lost),
            ("handled again, planned moves", self.duplicated_by_handoff),
            ("handled again, after crashes", self.duplicated_by_crash),
            ("processed per second", self.events_per_second),
        ] {
            out.line(&format!("  {name:<30}{:>12}", grouped(events)))?;
            if let Some(before) = former.filter(|_| name == "produced") {
                let now = self.produced.saturating_sub(before);
                out.line(&format!("  {:<30}{:>12}", "  of these by this run", grouped(now)))?;
            }
        }
        out.line("")?;
        heading(&format!("{:<32}{:>12}{:>14}{:>14}", "Moves", "partitions", "gap p50", "gap p99"), out)?;
        for (name, reason) in [
            ("handed off", MoveReason::HandedOff),
            ("stolen", MoveReason::Stolen),
            ("released, claimed by another", MoveReason::Released),
            ("taken over from the dead", MoveReason::TakenFromDead),
        ] {
            let (number, gaps) = match reason {
                // A release has no new owner yet: the claims that follow one do.
                MoveReason::Released => {
                    let claims = claims_after_release(moves);
                    (claims.len(), gaps(&claims, spans, MoveReason::Claimed))
                }
                _ => (count(moves, reason), gaps(moves, spans, reason)),
            };
            let [p50, p99] = [50, 99].map(|percent| percentile(&gaps, percent).map_or("-".into(), in_words));
            out.line(&format!("  {name:<30}{:>12}{p50:>14}{p99:>14}", grouped(number as u64)))?;
        }
        out.line("")?;
        for (name, number) in [("processors killed", self.crashes), ("processors frozen", freezes)] {
            out.line(&format!("  {name:<30}{:>12}", grouped(number as u64)))?;
        }
        out.line("")?;
        let tone = if self.is_good() { Tone::Good } else { Tone::Bad };
        self.verdict().iter().try_for_each(|line| out.line(&out.paint(tone, line)))
    }
}

fn in_words(gap: Duration) -> String {
    match gap.as_secs_f64() {
        seconds if seconds >= 1.0 => format!("{seconds:.2} s"),
        seconds => format!("{:.1} ms", seconds * 1_000.0),
    }
}

/// The claims of partitions that their last owner had left free.
fn claims_after_release(moves: &[Move]) -> Vec<Move> {
    let was_released = |claim: &&Move| {
        let before = moves.iter().filter(|m| m.partition == claim.partition && m.epoch < claim.epoch);
        before.max_by_key(|m| m.epoch).is_some_and(|m| m.reason == MoveReason::Released)
    };
    moves.iter().filter(|m| m.reason == MoveReason::Claimed).filter(was_released).cloned().collect()
}

fn count(moves: &[Move], reason: MoveReason) -> usize {
    moves.iter().filter(|m| m.reason == reason).count()
}

fn were(events: u64) -> String {
    format!("{} {}", counted(events, "event"), if events == 1 { "was" } else { "were" })
}

#[cfg(test)]
mod tests {
    use partita::InstanceId;

    use super::super::duplicates;
    use super::super::testing::{moved, span};
    use super::*;

    fn report(counts: Recount, spans: Vec<Span>, crashed: &[&str]) -> Report {
        let moves = [moved(0, 2, MoveReason::HandedOff), moved(0, 3, MoveReason::TakenFromDead)];
        let ids = crashed.iter().map(InstanceId::new).collect();
        let spans = [spans];
        let duplicates = duplicates::attribute(&spans, &moves, &ids);
        Report::new(counts, duplicates, &spans, &moves, crashed.len())
    }

    #[test]
    fn json_has_exactly_the_documented_keys_in_order() {
        let json = serde_json::to_string(&report(Recount::default(), vec![], &[])).unwrap();
        assert_eq!(
            json,
            r#"{"produced":0,"processed":0,"lost":0,"duplicated_by_handoff":0,"duplicated_by_crash":0,"handoffs":1,"#
                .to_owned()
                + r#""steals":0,"crashes":0,"handoff_gap_ms":{"p50":null,"p99":null,"n":0},"#
                + r#""failover_gap_ms":{"p50":null,"p99":null,"n":0},"events_per_second":0}"#
        );
    }

    #[test]
    fn a_loss_and_a_repetition_without_a_crash_are_bad_and_one_after_a_crash_is_not() {
        let all = Recount { produced: 20, processed: 20, lost: 0, made_up: 0 };
        let after_crash = vec![span("b", 2, 0..=9), span("c", 3, 8..=19)];
        let good = report(all, after_crash.clone(), &["b"]);
        assert!(good.is_good());
        assert_eq!((good.duplicated_by_crash, good.verdict().len()), (2, 2));

        let repeated = report(all, after_crash, &[]);
        assert!(!repeated.is_good());
        assert_eq!(repeated.verdict(), ["BAD: 2 events were handled again without a crash."]);

        let lost = report(Recount { processed: 19, lost: 1, ..all }, vec![span("b", 2, 0..=18)], &[]);
        assert!(!lost.is_good());
        assert_eq!(lost.verdict(), ["BAD: 1 event was lost."]);
    }

    #[test]
    fn a_run_without_an_event_shows_nothing_and_is_not_good() {
        let empty = report(Recount::default(), vec![], &[]);
        assert!(!empty.is_good());
        assert_eq!(
            empty.verdict(),
            ["Nothing was produced, so nothing was shown: choose a longer --for or a higher --rate."]
        );
    }

    #[test]
    fn only_claims_of_what_was_released_count_as_such() {
        let moves = [
            moved(0, 1, MoveReason::Claimed),
            moved(0, 2, MoveReason::Released),
            moved(0, 3, MoveReason::Claimed),
            moved(1, 1, MoveReason::Claimed),
        ];
        let claims = claims_after_release(&moves);
        assert_eq!(claims.iter().map(|m| (m.partition, m.epoch.0)).collect::<Vec<_>>(), [(0, 3)]);
    }
}
