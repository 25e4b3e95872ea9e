//! Figures, each with what it is held against, as a table for people.

use std::fmt::Write;
use std::process::Command;

use partita::Timestamp;

/// How a value is written.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Unit {
    Nanoseconds,
    Milliseconds,
    Seconds,
    Cycles,
    Moves,
    PerSecond,
    MillionsPerSecond,
    GigabytesPerSecond,
    Megabytes,
    Kilobytes,
    Share,
    Times,
    Count,
}

impl Unit {
    fn show(self, value: f64) -> String {
        match self {
            Self::Nanoseconds if value.abs() < 10.0 => format!("{value:.1} ns"),
            Self::Nanoseconds => format!("{value:.0} ns"),
            Self::Milliseconds if value.abs() < 10.0 => format!("{value:.2} ms"),
            Self::Milliseconds => format!("{value:.1} ms"),
            Self::Seconds => format!("{value:.3} s"),
            Self::Cycles => format!("{value:.2} cycles"),
            Self::Moves => format!("{value:.0} moves"),
            Self::PerSecond => format!("{value:.2} /s"),
            Self::MillionsPerSecond => format!("{value:.2} M/s"),
            Self::GigabytesPerSecond => format!("{value:.1} GB/s"),
            Self::Megabytes => format!("{value:.1} MB"),
            Self::Kilobytes => format!("{value:.1} kB"),
            Self::Share => format!("{:.0} %", value * 100.0),
            Self::Times => format!("{value:.1} times"),
            Self::Count => format!("{value:.0}"),
        }
    }
}

/// What a value is held against.
#[derive(Clone, PartialEq, Debug)]
enum Against {
    Nothing,
    /// It may not be exceeded.
    Limit(f64),
    /// It must be reached.
    Floor(f64),
    /// Something of its kind, measured in the same run.
    Peer(f64, &'static str),
    /// It could not be measured here, and how it could.
    Missing(&'static str),
}

/// One measured value.
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct Figure {
    what: String,
    unit: Unit,
    value: f64,
    against: Against,
}

impl Figure {
    /// A value that stands for itself.
    pub(crate) fn plain(what: impl Into<String>, unit: Unit, value: f64) -> Self {
        Self { what: what.into(), unit, value, against: Against::Nothing }
    }

    /// A value that may not exceed a limit.
    pub(crate) fn limit(what: impl Into<String>, unit: Unit, value: f64, limit: f64) -> Self {
        Self { what: what.into(), unit, value, against: Against::Limit(limit) }
    }

    /// A value that must reach a limit.
    pub(crate) fn floor(what: impl Into<String>, unit: Unit, value: f64, floor: f64) -> Self {
        Self { what: what.into(), unit, value, against: Against::Floor(floor) }
    }

    /// A value beside another one.
    pub(crate) fn peer(
        what: impl Into<String>,
        unit: Unit,
        value: f64,
        peer: f64,
        name: &'static str,
    ) -> Self {
        Self { what: what.into(), unit, value, against: Against::Peer(peer, name) }
    }

    /// A value that cannot be measured on this machine, and what to do about it.
    pub(crate) fn missing(what: impl Into<String>, advice: &'static str) -> Self {
        Self { what: what.into(), unit: Unit::Count, value: f64::NAN, against: Against::Missing(advice) }
    }

    /// Whether the value breaks its limit. One that could not be measured does.
    fn is_over(&self) -> bool {
        match self.against {
            Against::Limit(limit) => self.value.is_nan() || self.value > limit,
            Against::Floor(floor) => self.value.is_nan() || self.value < floor,
            Against::Nothing | Against::Peer(..) | Against::Missing(_) => false,
        }
    }

    fn cells(&self) -> [String; 4] {
        let ratio = |other: f64| if other == 0.0 { "-".into() } else { format!("{:.2}", self.value / other) };
        let (against, ratio) = match self.against {
            Against::Nothing => ("-".into(), "-".into()),
            Against::Limit(limit) => {
                let verdict = if self.is_over() { ", MISSED" } else { "" };
                (format!("limit {}{verdict}", self.unit.show(limit)), ratio(limit))
            }
            Against::Floor(floor) => {
                let verdict = if self.is_over() { ", MISSED" } else { "" };
                (format!("at least {}{verdict}", self.unit.show(floor)), format!("{:.2}", floor / self.value))
            }
            Against::Peer(peer, name) => (format!("{name} {}", self.unit.show(peer)), ratio(peer)),
            Against::Missing(advice) => (format!("not here: {advice}"), "-".into()),
        };
        let value =
            if let Against::Missing(_) = self.against { "-".into() } else { self.unit.show(self.value) };
        [self.what.clone(), value, against, ratio]
    }
}

/// A benchmark's figures.
#[derive(Clone, Debug)]
pub(crate) struct Section {
    pub(crate) title: &'static str,
    /// How it was measured.
    pub(crate) how: String,
    pub(crate) figures: Vec<Figure>,
}

impl Section {
    /// The figures that break their limits.
    pub(crate) fn missed(&self) -> usize {
        self.figures.iter().filter(|figure| figure.is_over()).count()
    }

    /// For a terminal.
    pub(crate) fn text(&self) -> String {
        let rows: Vec<_> = self.figures.iter().map(Figure::cells).collect();
        let width = |column: usize| rows.iter().map(|row| row[column].chars().count()).max().unwrap_or(0);
        let (what, value, against) = (width(0), width(1), width(2));
        let mut text = format!("{}\n", self.title);
        for [a, b, c, d] in &rows {
            let _ = writeln!(text, "  {a:<what$}  {b:>value$}  {c:<against$}  {d:>6}");
        }
        text
    }

    fn markdown(&self) -> String {
        let mut text = format!("## {}\n\n{}\n\n", self.title, self.how);
        text.push_str("| figure | value | limit or peer | ratio |\n| --- | ---: | --- | ---: |\n");
        for [what, value, against, ratio] in self.figures.iter().map(Figure::cells) {
            let _ = writeln!(text, "| {what} | {value} | {against} | {ratio} |");
        }
        text
    }
}

/// The whole of benches/README.md.
pub(crate) fn document(sections: &[Section]) -> String {
    let now = Timestamp::now().to_string();
    let date = now.get(..10).unwrap_or(&now);
    let mut text = format!(
        "# Figures\n\nWritten by `cargo run --release -p partita-benches` on {date} at commit {}. Do not edit; run it again.\n\
         A ratio is the value divided by its limit or peer, or what must be reached divided by the value; a limit is missed above 1.00.\n",
        commit()
    );
    for section in sections {
        let _ = write!(text, "\n{}", section.markdown());
    }
    text
}

/// The commit that was measured, as git tells it.
fn commit() -> String {
    let git = |arguments: &[&str]| {
        let output = Command::new("git").args(arguments).output().ok()?;
        let text = String::from_utf8(output.stdout).ok()?;
        output.status.success().then(|| text.trim().to_owned())
    };
    let Some(commit) = git(&["rev-parse", "--short=12", "HEAD"]) else { return "unknown".to_owned() };
    // The page itself is rewritten by the run and does not count as a change.
    let changed = git(&["status", "--porcelain", "--", ":/", ":!/benches/README.md"]);
    if changed.is_some_and(|files| !files.is_empty()) { format!("{commit} with changes") } else { commit }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_limit_is_missed_above_it_and_by_what_could_not_be_measured() {
        let section = |value| Section {
            title: "t",
            how: "h".into(),
            figures: vec![Figure::limit("x", Unit::Nanoseconds, value, 250.0)],
        };
        assert_eq!(section(250.0).missed(), 0);
        assert_eq!(section(250.1).missed(), 1);
        assert_eq!(section(f64::NAN).missed(), 1);
        assert!(section(300.0).text().contains("limit 250 ns, MISSED"), "{}", section(300.0).text());
        let reached = |value| Figure::floor("x", Unit::Share, value, 0.6);
        assert_eq!([0.6, 0.59, f64::NAN].map(|value| reached(value).is_over()), [false, true, true]);
        assert_eq!(reached(0.3).cells()[2..], ["at least 60 %, MISSED", "2.00"]);
    }

    #[test]
    fn what_is_not_installed_is_said_and_is_no_limit_missed() {
        let figure = Figure::missing("x", "install it");
        assert!(!figure.is_over());
        assert_eq!(figure.cells()[1..], ["-", "not here: install it", "-"]);
    }

    #[test]
    fn the_document_has_a_row_per_figure_with_value_peer_and_ratio() {
        let figures = vec![
            Figure::peer("a", Unit::Milliseconds, 3.0, 1.5, "one wake"),
            Figure::plain("b", Unit::Count, 2.0),
        ];
        let text = document(&[Section { title: "t", how: "h".into(), figures }]);
        assert!(text.contains("| a | 3.00 ms | one wake 1.50 ms | 2.00 |"), "{text}");
        assert!(text.contains("| b | 2 | - | - |"), "{text}");
    }
}
