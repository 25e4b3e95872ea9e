//! Every change of owner, in order, from the processors' books and, for the last write of one that was killed, from the store.

use std::collections::BTreeSet;
use std::time::Duration;

use partita::model::Incarnation;
use partita::store::{MoveReason, MoveRecord};
use partita::{Epoch, InstanceId, Timestamp};

use super::ledger::number_of;

/// One change of owner.
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct Move {
    pub(crate) partition: usize,
    pub(crate) from: Option<InstanceId>,
    pub(crate) to: Option<InstanceId>,
    pub(crate) epoch: Epoch,
    pub(crate) reason: MoveReason,
    /// When it was noticed, from the beginning of the run.
    pub(crate) at: Duration,
    /// When the new owner began to read, by the wall clock, if it did.
    pub(crate) opened: Option<Timestamp>,
}

/// What the store knows of a move.
pub(crate) fn moved(record: &MoveRecord, at: Duration) -> Move {
    let id = |incarnation: &Option<Incarnation>| incarnation.as_ref().map(|i| i.id().clone());
    Move {
        partition: number_of(&record.partition),
        from: id(&record.from),
        to: id(&record.to),
        epoch: record.epoch,
        reason: record.reason,
        at,
        opened: None,
    }
}

/// All moves so far.
#[derive(Clone, Debug, Default)]
pub(crate) struct MoveLog {
    /// Those of former runs, as far as anyone remembers.
    pub(crate) former: Vec<Move>,
    /// Those of this run.
    pub(crate) moves: Vec<Move>,
    known: BTreeSet<(usize, Epoch)>,
}

impl MoveLog {
    /// A log of this run's moves. `recorded` is what the store knows from before: the last moves of a demo that was killed may
    /// be in no book.
    pub(crate) fn new(former: Vec<Move>, recorded: &[MoveRecord]) -> Self {
        let mut log = Self::default();
        log.add(former);
        log.add(recorded.iter().map(|record| moved(record, Duration::ZERO)));
        log.former = std::mem::take(&mut log.moves);
        log
    }

    /// Adds those that are new; which ones.
    pub(crate) fn add(&mut self, moves: impl IntoIterator<Item = Move>) -> &[Move] {
        let before = self.moves.len();
        for moved in moves {
            if self.known.insert((moved.partition, moved.epoch)) {
                self.moves.push(moved);
            }
        }
        &self.moves[before..]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(partition: u32, epoch: u64) -> MoveRecord {
        MoveRecord {
            partition: partition.into(),
            from: None,
            to: Some(Incarnation::new(InstanceId::new("home-1"), 1)),
            epoch: Epoch(epoch),
            reason: MoveReason::Claimed,
            time: Timestamp(0),
        }
    }

    #[test]
    fn a_move_counts_once_however_often_it_is_told() {
        let mut log = MoveLog::default();
        let told = |records: &[MoveRecord]| {
            records.iter().map(|record| moved(record, Duration::ZERO)).collect::<Vec<_>>()
        };
        assert_eq!(log.add(told(&[record(0, 1), record(1, 1)])).len(), 2);
        assert_eq!(log.add(told(&[record(1, 1), record(0, 2), record(0, 1)])).len(), 1);
        let all: Vec<_> = log.moves.iter().map(|m| (m.partition, m.epoch.0)).collect();
        assert_eq!(all, [(0, 1), (1, 1), (0, 2)]);
    }

    #[test]
    fn moves_of_former_runs_are_none_of_this_one() {
        let known = vec![moved(&record(0, 1), Duration::ZERO)];
        let mut log = MoveLog::new(known, &[record(0, 1), record(1, 1)]);
        let new = [record(0, 1), record(1, 1), record(1, 2)].map(|record| moved(&record, Duration::ZERO));
        log.add(new);
        assert_eq!(log.former.len(), 2);
        let new: Vec<_> = log.moves.iter().map(|m| (m.partition, m.epoch.0)).collect();
        assert_eq!(new, [(1, 2)]);
    }
}
