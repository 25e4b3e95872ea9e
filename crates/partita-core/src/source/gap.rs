//! Events that a reader did not get, because the hub no longer has them.

use std::collections::VecDeque;
use std::fmt;
use std::ops::Range;

use crate::model::{Position, SequenceNumber};

/// How many gaps wait to be asked for; the last of more than these grows.
const GAPS_MAX: usize = 64;

/// Why events are gone.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[non_exhaustive]
pub enum GapCause {
    /// Retention removed them before they were read.
    Retention,
    /// The hub's log was damaged, and somebody accepted the loss.
    Damage,
    /// The hub does not say: one of the others.
    Unknown,
}

impl fmt::Display for GapCause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Retention => "removed by retention",
            Self::Damage => "lost to damage",
            Self::Unknown => "cause unknown",
        })
    }
}

/// Events that are gone before they were read.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Gap {
    /// What was to be read next.
    pub from: Position,
    /// The event with which reading goes on.
    pub next: SequenceNumber,
    /// Why they are gone.
    pub cause: GapCause,
}

impl Gap {
    /// The sequence numbers of the missing events: at most these, because a hub may have skipped more numbers after damage than it
    /// had given. None if the start is not known by its number.
    pub fn range(&self) -> Option<Range<i64>> {
        let Position::Sequence { sequence, inclusive } = &self.from else { return None };
        let first = sequence.0.saturating_add(i64::from(!inclusive));
        Some(first..self.next.0.max(first))
    }
}

impl fmt::Display for Gap {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.range() {
            Some(range) if range.end.saturating_sub(range.start) == 1 => write!(f, "event {}", range.start)?,
            Some(range) => write!(f, "events {} to {}", range.start, range.end.saturating_sub(1))?,
            None => write!(f, "events from {} on", self.from)?,
        }
        f.write_str(match self.cause {
            GapCause::Retention => ": removed by retention before they were read",
            GapCause::Damage => ": lost to damage, which was accepted",
            GapCause::Unknown => ": removed by retention before they were read, or lost to damage",
        })?;
        write!(f, "; reading goes on at event {}", self.next)
    }
}

impl std::error::Error for Gap {}

/// The gaps of a reader that nobody has asked for yet, oldest first. For sources to use.
///
/// At most 64 wait; further ones are added to the last, which then also covers what was read between them.
#[derive(Debug, Default)]
pub struct Gaps(VecDeque<Gap>);

impl Gaps {
    /// None yet.
    pub const fn new() -> Self {
        Self(VecDeque::new())
    }

    /// Adds a gap. One that begins where the last one ends is the same gap.
    pub fn push(&mut self, gap: Gap) {
        let is_full = self.0.len() >= GAPS_MAX;
        match self.0.back_mut() {
            Some(last)
                if is_full || (last.cause == gap.cause && gap.from == Position::at_sequence(last.next)) =>
            {
                last.next = gap.next;
            }
            _ => self.0.push_back(gap),
        }
    }

    /// The oldest one.
    pub fn take(&mut self) -> Option<Gap> {
        self.0.pop_front()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn gap(first: i64, next: i64) -> Gap {
        Gap {
            from: Position::at_sequence(SequenceNumber(first)),
            next: SequenceNumber(next),
            cause: GapCause::Retention,
        }
    }

    #[test]
    fn several_gaps_are_told_one_by_one_and_neighbours_as_one() {
        let mut gaps = Gaps::new();
        for (first, next) in [(0, 5), (5, 9), (20, 21)] {
            gaps.push(gap(first, next));
        }
        assert_eq!([gaps.take(), gaps.take(), gaps.take()], [Some(gap(0, 9)), Some(gap(20, 21)), None]);
    }

    #[test]
    fn more_gaps_than_are_kept_are_still_covered() {
        let mut gaps = Gaps::new();
        for at in 0..1_000 {
            gaps.push(gap(10 * at, 10 * at + 1));
        }
        let told: Vec<Gap> = std::iter::from_fn(|| gaps.take()).collect();
        assert_eq!(told.len(), GAPS_MAX);
        let covered =
            |at: i64| told.iter().any(|gap| gap.range().is_some_and(|range| range.contains(&(10 * at))));
        assert!((0..1_000).all(covered));
    }

    #[test]
    fn a_gap_tells_its_range() {
        let after = Gap {
            from: Position::after_sequence(SequenceNumber(199)),
            next: SequenceNumber(56_328),
            cause: GapCause::Retention,
        };
        assert_eq!(after.range(), Some(200..56_328));
        assert_eq!(
            after.to_string(),
            "events 200 to 56327: removed by retention before they were read; reading goes on at event 56328"
        );
        assert!(gap(7, 8).to_string().starts_with("event 7: removed"));
    }
}
