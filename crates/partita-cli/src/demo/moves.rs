//! Every change of owner, in order. The store forgets old moves; this asks it after every write, so none is missed.
//! Also when each new owner opened its partition.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use futures_util::future::BoxFuture;
use partita::model::{Incarnation, Scope};
use partita::store::{
    CheckpointOutcome, CheckpointRecord, CheckpointWrite, GroupView, InstanceOutcome, InstanceWrite,
    MoveReason, MoveRecord, OwnershipOutcome, OwnershipWrite, StoreProperties, StoreResult,
};
use partita::{CheckpointStore, Epoch, Hooks, InstanceId, PartitionId, Timestamp};

use super::journal::Journal;
use super::ledger::number_of;

/// One change of owner.
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct Move {
    pub(crate) partition: usize,
    pub(crate) from: Option<InstanceId>,
    pub(crate) to: Option<InstanceId>,
    pub(crate) epoch: Epoch,
    pub(crate) reason: MoveReason,
    /// When, from the beginning of the run.
    pub(crate) at: Duration,
    /// When the new owner began to read, by the wall clock, if it did.
    pub(crate) opened: Option<Timestamp>,
}

/// All moves so far. Clones are the same log.
#[derive(Clone, Debug)]
pub(crate) struct MoveLog(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    start: Instant,
    journal: Option<Arc<Journal>>,
    /// Those of former runs.
    former: Vec<Move>,
    entries: Mutex<Entries>,
}

#[derive(Debug, Default)]
struct Entries {
    moves: Vec<Move>,
    known: BTreeSet<(usize, Epoch)>,
    opened: BTreeMap<(usize, Epoch), Timestamp>,
}

impl MoveLog {
    /// A log of this run's moves. `recorded` is what the store knows from before.
    pub(crate) fn new(
        start: Instant,
        former: Vec<Move>,
        recorded: &[MoveRecord],
        journal: Option<Arc<Journal>>,
    ) -> Self {
        let mut entries = Entries::default();
        let mut former = former;
        entries.known.extend(former.iter().map(|moved| (moved.partition, moved.epoch)));
        for record in recorded {
            let moved = moved(record, Duration::ZERO);
            // The last moves of a demo that was killed.
            if entries.known.insert((moved.partition, moved.epoch)) {
                if let Some(journal) = &journal {
                    journal.moved(&moved);
                }
                former.push(moved);
            }
        }
        Self(Arc::new(Shared { start, journal, former, entries: Mutex::new(entries) }))
    }

    /// The moves of former runs, as far as anyone remembers.
    pub(crate) fn former(&self) -> &[Move] {
        &self.0.former
    }

    /// The moves after the first `seen`.
    pub(crate) fn since(&self, seen: usize) -> Vec<Move> {
        let entries = self.entries();
        let mut moves = entries.moves.get(seen..).unwrap_or_default().to_vec();
        for moved in &mut moves {
            moved.opened = entries.opened.get(&(moved.partition, moved.epoch)).copied();
        }
        moves
    }

    fn entries(&self) -> MutexGuard<'_, Entries> {
        self.0.entries.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds what is new in the store's own log.
    fn merge(&self, recorded: &[MoveRecord]) {
        let at = self.0.start.elapsed();
        let mut entries = self.entries();
        let Entries { moves, known, .. } = &mut *entries;
        let is_new = |record: &&MoveRecord| !known.contains(&(number_of(&record.partition), record.epoch));
        let new = recorded.iter().rev().take_while(is_new).count();
        for record in &recorded[recorded.len() - new..] {
            let moved = moved(record, at);
            known.insert((moved.partition, moved.epoch));
            if let Some(journal) = &self.0.journal {
                journal.moved(&moved);
            }
            moves.push(moved);
        }
    }
}

fn moved(record: &MoveRecord, at: Duration) -> Move {
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

impl Hooks for MoveLog {
    fn opened(&self, partition: &PartitionId, epoch: Epoch) {
        self.entries().opened.insert((number_of(partition), epoch), Timestamp::now());
    }
}

/// A store that keeps a log of all moves.
#[derive(Clone)]
pub(crate) struct LoggedStore {
    pub(crate) inner: Arc<dyn CheckpointStore>,
    pub(crate) log: MoveLog,
}

impl CheckpointStore for LoggedStore {
    fn properties(&self) -> StoreProperties {
        self.inner.properties()
    }

    fn write_instance<'a>(
        &'a self,
        scope: &'a Scope,
        write: InstanceWrite,
    ) -> BoxFuture<'a, StoreResult<InstanceOutcome>> {
        self.inner.write_instance(scope, write)
    }

    fn write_ownership<'a>(
        &'a self,
        scope: &'a Scope,
        write: OwnershipWrite,
    ) -> BoxFuture<'a, StoreResult<OwnershipOutcome>> {
        Box::pin(async move {
            let outcome = self.inner.write_ownership(scope, write).await?;
            if matches!(outcome, OwnershipOutcome::Applied { .. }) {
                self.log.merge(&self.inner.moves(scope).await?);
            }
            Ok(outcome)
        })
    }

    fn write_checkpoint<'a>(
        &'a self,
        scope: &'a Scope,
        write: CheckpointWrite,
    ) -> BoxFuture<'a, StoreResult<CheckpointOutcome>> {
        self.inner.write_checkpoint(scope, write)
    }

    fn view<'a>(&'a self, scope: &'a Scope) -> BoxFuture<'a, StoreResult<GroupView>> {
        self.inner.view(scope)
    }

    fn checkpoints<'a>(&'a self, scope: &'a Scope) -> BoxFuture<'a, StoreResult<Vec<CheckpointRecord>>> {
        self.inner.checkpoints(scope)
    }

    fn moves<'a>(&'a self, scope: &'a Scope) -> BoxFuture<'a, StoreResult<Vec<MoveRecord>>> {
        self.inner.moves(scope)
    }

    fn changed<'a>(&'a self, scope: &'a Scope, me: &'a Incarnation, cursor: u64) -> BoxFuture<'a, ()> {
        self.inner.changed(scope, me, cursor)
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
    fn a_log_that_forgets_is_kept_whole() {
        let log = MoveLog::new(Instant::now(), Vec::new(), &[], None);
        let all: Vec<MoveRecord> = (0..1_000).map(|n| record(n % 16, u64::from(n / 16) + 1)).collect();
        // Asked after every one or two moves, and once late with an old answer.
        for end in [1, 3, 2].into_iter().chain(4..=all.len()) {
            log.merge(&all[end.saturating_sub(256)..end]);
        }
        let kept: Vec<(usize, Epoch)> = log.since(0).iter().map(|m| (m.partition, m.epoch)).collect();
        let expected: Vec<(usize, Epoch)> = all.iter().map(|r| (number_of(&r.partition), r.epoch)).collect();
        assert_eq!(kept, expected);
        assert_eq!(log.since(999).len(), 1);
        assert!(log.since(2_000).is_empty());
    }

    #[test]
    fn moves_of_former_runs_are_none_of_this_one() {
        let known = vec![moved(&record(0, 1), Duration::ZERO)];
        let log = MoveLog::new(Instant::now(), known, &[record(0, 1), record(1, 1)], None);
        log.merge(&[record(0, 1), record(1, 1), record(1, 2)]);
        assert_eq!(log.former().len(), 2);
        let new: Vec<_> = log.since(0).iter().map(|m| (m.partition, m.epoch.0)).collect();
        assert_eq!(new, [(1, 2)]);
    }
}
