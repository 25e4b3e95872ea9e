//! Made-up ledgers and moves for the tests of what counts them.

use std::ops::RangeInclusive;
use std::time::Duration;

use partita::store::MoveReason;
use partita::{Epoch, InstanceId, Timestamp};

use super::ledger::Span;
use super::moves::Move;

pub(super) fn span(instance: &str, epoch: u64, events: RangeInclusive<i64>) -> Span {
    Span {
        run: 1,
        first: *events.start(),
        last: *events.end(),
        instance: InstanceId::new(instance),
        epoch: Epoch(epoch),
        enqueued: Timestamp(0),
        begun: Duration::ZERO,
        ended: Duration::ZERO,
    }
}

pub(super) fn moved(partition: usize, epoch: u64, reason: MoveReason) -> Move {
    Move {
        partition,
        from: None,
        to: None,
        epoch: Epoch(epoch),
        reason,
        at: Duration::ZERO,
        opened: Some(Timestamp(0)),
    }
}
