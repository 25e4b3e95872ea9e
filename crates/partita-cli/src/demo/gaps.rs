//! How long a partition stood still when its owner changed.

use std::time::Duration;

use partita::store::MoveReason;

use super::ledger::Span;
use super::moves::Move;

/// The gaps of all moves for one reason: from the end of the last call at a former owner to the beginning of the
/// first call at the new one. Only moves of a partition with an event waiting count: the new owner's first event was
/// in the hub when it opened the partition. Without one there was nothing to wait for.
pub(crate) fn gaps(moves: &[Move], spans: &[Vec<Span>], reason: MoveReason) -> Vec<Duration> {
    moves.iter().filter(|m| m.reason == reason).filter_map(|m| gap_of(m, &spans[m.partition])).collect()
}

/// The gap of one move, if one can be told.
pub(crate) fn gap_of(moved: &Move, spans: &[Span]) -> Option<Duration> {
    let after = spans.iter().filter(|span| span.epoch == moved.epoch).min_by_key(|span| span.begun)?;
    let before = spans.iter().filter(|span| span.epoch < moved.epoch).map(|span| span.ended).max()?;
    let waiting = moved.opened.is_some_and(|opened| after.enqueued <= opened);
    waiting.then(|| after.begun.saturating_sub(before))
}

/// The value that `percent` of the values do not exceed (nearest rank).
pub(crate) fn percentile(values: &[Duration], percent: u32) -> Option<Duration> {
    let mut sorted = values.to_vec();
    sorted.sort_unstable();
    let rank = (sorted.len() * percent as usize).div_ceil(100);
    sorted.get(rank.saturating_sub(1)).copied()
}

#[cfg(test)]
mod tests {
    use partita::Timestamp;

    use super::super::testing::{moved, span};
    use super::*;

    fn ms(ms: u64) -> Duration {
        Duration::from_millis(ms)
    }

    #[test]
    fn percentiles_are_values_that_occurred() {
        let values: Vec<Duration> = (1..=200).rev().map(ms).collect();
        assert_eq!(percentile(&values, 50), Some(ms(100)));
        assert_eq!(percentile(&values, 99), Some(ms(198)));
        assert_eq!(percentile(&values, 100), Some(ms(200)));
        assert_eq!(percentile(&[ms(7)], 99), Some(ms(7)));
        assert_eq!(percentile(&[], 50), None);
    }

    #[test]
    fn a_gap_reaches_from_the_last_call_before_to_the_first_call_after() {
        let mut before = span("a", 1, 0..=9);
        (before.begun, before.ended) = (ms(0), ms(100));
        let mut after = span("b", 3, 10..=19);
        (after.begun, after.ended) = (ms(130), ms(200));
        let mut again = after.clone();
        again.begun = ms(500);
        let spans = [vec![before, after, again]];
        // Epoch 2 handled nothing, so it has no gap.
        let moves = [moved(0, 2, MoveReason::HandedOff), moved(0, 3, MoveReason::HandedOff)];
        assert_eq!(gaps(&moves, &spans, MoveReason::HandedOff), [ms(30)]);
        assert!(gaps(&moves, &spans, MoveReason::TakenFromDead).is_empty());
    }

    #[test]
    fn a_move_without_an_event_waiting_has_no_gap() {
        let mut after = span("b", 2, 10..=19);
        after.enqueued = Timestamp(1);
        let spans = [vec![span("a", 1, 0..=9), after]];
        let mut late = moved(0, 2, MoveReason::HandedOff);
        assert!(gaps(&[late.clone()], &spans, MoveReason::HandedOff).is_empty());
        late.opened = Some(Timestamp(1));
        assert_eq!(gaps(&[late], &spans, MoveReason::HandedOff).len(), 1);
    }

    #[test]
    fn the_first_owner_of_a_partition_has_nobody_to_follow() {
        let spans = [vec![span("a", 1, 0..=9)]];
        assert!(gaps(&[moved(0, 1, MoveReason::HandedOff)], &spans, MoveReason::HandedOff).is_empty());
    }
}
