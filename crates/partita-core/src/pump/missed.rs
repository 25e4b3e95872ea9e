//! Which missing events were told already. A reader that is replaced finds the gap again that its predecessor told.

use std::collections::VecDeque;
use std::ops::Range;

use crate::source::Gap;

/// How many ranges are remembered: those of the last gaps, before events that were not handled yet.
const RANGES_MAX: usize = 64;

/// Ranges of sequence numbers that were told to be missing; none overlaps another.
#[derive(Debug, Default)]
pub(super) struct Missed {
    told: VecDeque<Range<i64>>,
}

impl Missed {
    /// How many events of the gap were not told before; 0 if that is not known. `None` if all were told.
    pub(super) fn add(&mut self, gap: &Gap) -> Option<u64> {
        let Some(range) = gap.range() else { return Some(0) };
        let mut all = range.clone();
        let mut known = 0;
        self.told.retain(|told| {
            let overlap = length(&(told.start.max(range.start)..told.end.min(range.end)));
            known += overlap;
            if overlap > 0 {
                all = all.start.min(told.start)..all.end.max(told.end);
            }
            overlap == 0
        });
        if self.told.len() == RANGES_MAX {
            self.told.pop_front();
        }
        self.told.push_back(all);
        Some(length(&range) - known).filter(|news| *news > 0)
    }
}

fn length(range: &Range<i64>) -> u64 {
    u64::try_from(range.end.saturating_sub(range.start)).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::{Offset, Position, SequenceNumber};
    use crate::source::GapCause;

    fn gap(first: i64, next: i64) -> Gap {
        Gap {
            from: Position::at_sequence(SequenceNumber(first)),
            next: SequenceNumber(next),
            cause: GapCause::Retention,
        }
    }

    #[test]
    fn a_gap_that_is_found_again_is_told_once() {
        let mut missed = Missed::default();
        assert_eq!(missed.add(&gap(10, 20)), Some(10));
        assert_eq!(missed.add(&gap(30, 35)), Some(5));
        assert_eq!(missed.add(&gap(10, 20)), None);
        assert_eq!(missed.add(&gap(12, 15)), None);
    }

    #[test]
    fn what_grew_on_either_side_is_told_and_counted_once() {
        let mut missed = Missed::default();
        missed.add(&gap(200, 300));
        assert_eq!(missed.add(&gap(150, 300)), Some(50));
        assert_eq!(missed.add(&gap(150, 400)), Some(100));
        missed.add(&gap(500, 510));
        assert_eq!(missed.add(&gap(100, 600)), Some(50 + 100 + 90));
        assert_eq!(missed.add(&gap(100, 600)), None);
    }

    #[test]
    fn a_gap_without_a_range_is_told() {
        let from = Position::at_offset(Offset::number(7));
        assert_eq!(
            Missed::default().add(&Gap { from, next: SequenceNumber(9), cause: GapCause::Retention }),
            Some(0)
        );
    }

    #[test]
    fn ranges_are_bounded() {
        let mut missed = Missed::default();
        for at in 0..1_000 {
            assert_eq!(missed.add(&gap(at * 10, at * 10 + 5)), Some(5));
        }
        assert!(missed.told.len() <= RANGES_MAX);
    }
}
