//! Which events were handled more than once, and whose fault that was.

use std::collections::BTreeSet;

use partita::InstanceId;
use partita::store::MoveReason;

use super::ledger::Span;
use super::moves::Move;

/// Handlings beyond the first of each event.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Duplicates {
    /// After anything that is not a crash: there should be none.
    pub(crate) by_handoff: u64,
    /// After a crash: what the crashed owner had handled and not yet checkpointed.
    pub(crate) by_crash: u64,
}

/// Counts every handling of an event that had been handled before. It is due to a crash if one of the two owners crashed, or
/// stood still for too long, and lost the partition to the other by that: the one with the lower epoch, who may also be the later
/// one, with a call that was under way when it was frozen. Otherwise it is due to a hand-off.
pub(crate) fn attribute(spans: &[Vec<Span>], moves: &[Move], crashed: &BTreeSet<InstanceId>) -> Duplicates {
    let mut found = Duplicates::default();
    for (partition, spans) in spans.iter().enumerate() {
        // Who handled which range last, so far.
        let mut latest: Vec<(i64, i64, &Span)> = Vec::new();
        for span in spans {
            let mut kept = Vec::with_capacity(latest.len() + 2);
            for (first, last, earlier) in latest {
                let (from, to) = (first.max(span.first), last.min(span.last));
                if from > to {
                    kept.push((first, last, earlier));
                    continue;
                }
                let events = to.abs_diff(from) + 1;
                let [old, new] = if earlier.epoch < span.epoch { [earlier, span] } else { [span, earlier] };
                let lost_by_crash = old.epoch < new.epoch
                    && crashed.contains(&old.instance)
                    && was_taken_from_dead(partition, old, moves);
                *if lost_by_crash { &mut found.by_crash } else { &mut found.by_handoff } += events;
                kept.extend((first < from).then_some((first, from - 1, earlier)));
                kept.extend((to < last).then_some((to + 1, last, earlier)));
            }
            kept.push((span.first, span.last, span));
            latest = kept;
        }
    }
    found
}

/// Whether the ownership under which a span was handled ended by a burial.
fn was_taken_from_dead(partition: usize, span: &Span, moves: &[Move]) -> bool {
    moves
        .iter()
        .filter(|m| m.partition == partition && m.epoch > span.epoch)
        .min_by_key(|m| m.epoch)
        .is_some_and(|m| m.reason == MoveReason::TakenFromDead)
}

#[cfg(test)]
mod tests {
    use super::super::testing::{moved, span};
    use super::*;

    fn attributed(spans: Vec<Span>, moves: &[Move], crashed: &[&str]) -> (u64, u64) {
        let crashed = crashed.iter().map(InstanceId::new).collect();
        let found = attribute(&[spans], moves, &crashed);
        (found.by_handoff, found.by_crash)
    }

    #[test]
    fn nothing_twice_is_no_duplicate() {
        let spans = vec![span("a", 1, 0..=9), span("b", 2, 10..=19)];
        assert_eq!(attributed(spans, &[moved(0, 2, MoveReason::HandedOff)], &[]), (0, 0));
    }

    #[test]
    fn a_planted_duplicate_at_a_hand_off_is_found() {
        let spans = vec![span("a", 1, 0..=9), span("b", 2, 8..=19)];
        assert_eq!(attributed(spans, &[moved(0, 2, MoveReason::HandedOff)], &[]), (2, 0));
    }

    #[test]
    fn a_planted_duplicate_after_a_crash_is_the_crashs() {
        let spans = vec![span("a", 1, 0..=9), span("b", 2, 4..=19)];
        assert_eq!(attributed(spans, &[moved(0, 2, MoveReason::TakenFromDead)], &["a"]), (0, 6));
    }

    #[test]
    fn a_call_that_a_freeze_held_up_is_the_freezes_wherever_it_ends() {
        let spans = vec![span("a", 1, 0..=9), span("b", 2, 10..=19), span("a", 1, 10..=10)];
        assert_eq!(attributed(spans, &[moved(0, 2, MoveReason::TakenFromDead)], &["a"]), (0, 1));
    }

    #[test]
    fn a_later_crash_does_not_excuse_an_earlier_hand_off() {
        let spans = vec![span("a", 1, 0..=9), span("b", 2, 9..=19)];
        let moves = [moved(0, 2, MoveReason::HandedOff), moved(1, 5, MoveReason::TakenFromDead)];
        assert_eq!(attributed(spans, &moves, &["a"]), (1, 0));
    }

    #[test]
    fn one_that_was_buried_alive_did_not_crash() {
        let spans = vec![span("a", 1, 0..=9), span("b", 2, 9..=19)];
        assert_eq!(attributed(spans, &[moved(0, 2, MoveReason::TakenFromDead)], &[]), (1, 0));
    }

    #[test]
    fn each_repetition_counts_and_is_blamed_on_the_handling_just_before() {
        let spans = vec![span("a", 1, 0..=9), span("b", 2, 5..=9), span("c", 3, 7..=12)];
        let moves = [moved(0, 2, MoveReason::TakenFromDead), moved(0, 3, MoveReason::HandedOff)];
        assert_eq!(attributed(spans, &moves, &["a"]), (3, 5));
    }

    #[test]
    fn an_owner_that_repeats_itself_has_no_crash_to_blame() {
        let spans = vec![span("a", 1, 0..=9), span("a", 1, 3..=4)];
        assert_eq!(attributed(spans, &[moved(0, 2, MoveReason::TakenFromDead)], &["a"]), (2, 0));
    }
}
