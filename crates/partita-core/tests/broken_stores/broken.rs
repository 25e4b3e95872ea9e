//! A memory store with one fault, each a mistake that a real store has made or could make.

use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use futures_util::future::BoxFuture;
use partita_core::model::{ConsumerGroup, Epoch, Incarnation, PartitionId, Position, Scope, StreamId};
use partita_core::store::{
    Adoption, CheckpointOutcome, CheckpointRecord, CheckpointStore, CheckpointWrite, GroupView,
    InstanceOutcome, InstanceRecord, InstanceSeen, InstanceState, InstanceWrite, MemoryStore, MoveRecord, Op,
    Ownership, OwnershipOutcome, OwnershipWrite, Resume, StoreError, StoreProperties, StoreResult,
};

#[derive(Clone, Copy, PartialEq, Debug)]
pub(crate) enum Fault {
    None,
    InstanceVersionIgnored,
    OwnershipVersionIgnored,
    RegisterOverwrites,
    DeadRevived,
    AgeIgnored,
    AlwaysYoung,
    BeatOnlyCounts,
    FenceIgnored,
    SealForgetsPosition,
    SealBelowApplied,
    SealOnce,
    MonotoneMissing,
    StreamIgnored,
    RepeatRefused,
    SeekIgnored,
    LateCheckpointTaken,
    TwoStepTransfer,
    TransferWithoutCheckpoint,
    StaleView,
    MovesRepeated,
    GroupIgnored,
    GroupCaseKept,
    /// Every handle has records of its own; the harness sees to it.
    Forgetful,
    ViewUnsorted,
    NamesFolded,
    DroppedCallKeepsLock,
    NotificationLost,
    OnlyLaterChanges,
    WakesAlways,
    /// Says that it moved records, and leaves them.
    AdoptionPretended,
}

pub(crate) struct Broken {
    inner: MemoryStore,
    fault: Fault,
    busy: AtomicBool,
    view_before: Mutex<Option<GroupView>>,
}

impl Broken {
    pub(crate) fn new(fault: Fault) -> Self {
        Self { inner: MemoryStore::new(), fault, busy: AtomicBool::new(false), view_before: Mutex::new(None) }
    }

    fn scope(&self, scope: &Scope) -> Scope {
        let group = match self.fault {
            Fault::GroupIgnored => ConsumerGroup::default(),
            Fault::GroupCaseKept => ConsumerGroup::new(format!("{:?}", scope.group.as_str().as_bytes())),
            _ => return scope.clone(),
        };
        Scope { group, ..scope.clone() }
    }

    fn partition(&self, partition: PartitionId) -> PartitionId {
        match self.fault {
            Fault::NamesFolded => PartitionId::new(partition.as_str().to_lowercase()),
            _ => partition,
        }
    }

    async fn seen(&self, scope: &Scope, who: &Incarnation) -> Option<InstanceSeen> {
        let view = self.inner.view(scope).await.ok()?;
        view.instances.into_iter().find(|seen| seen.record.incarnation == *who)
    }

    async fn held(&self, scope: &Scope, partition: &PartitionId) -> Option<Ownership> {
        let view = self.inner.view(scope).await.ok()?;
        view.ownerships.into_iter().find(|held| held.partition == *partition)
    }

    async fn stored(&self, scope: &Scope, partition: &PartitionId) -> Option<CheckpointRecord> {
        let all = self.inner.checkpoints(scope).await.ok()?;
        all.into_iter().find(|record| record.partition == *partition)
    }

    async fn broken_instance(&self, scope: &Scope, write: InstanceWrite) -> StoreResult<InstanceOutcome> {
        let current = self.seen(scope, write.incarnation()).await;
        let write = match (self.fault, write, &current) {
            (Fault::InstanceVersionIgnored, InstanceWrite::Beat { record, .. }, Some(seen)) => {
                InstanceWrite::Beat { record, expect: seen.version.clone() }
            }
            (Fault::InstanceVersionIgnored, InstanceWrite::Bury { victim, age_min, .. }, Some(seen)) => {
                InstanceWrite::Bury { victim, age_min, expect: seen.version.clone() }
            }
            (Fault::RegisterOverwrites, InstanceWrite::Register(record), Some(seen)) => {
                InstanceWrite::Beat { record, expect: seen.version.clone() }
            }
            (Fault::AgeIgnored, InstanceWrite::Bury { victim, expect, .. }, _) => {
                InstanceWrite::Bury { victim, expect, age_min: Duration::ZERO }
            }
            (Fault::AlwaysYoung, InstanceWrite::Bury { victim, expect, age_min }, _) => {
                InstanceWrite::Bury { victim, expect, age_min: age_min * 1_000 }
            }
            (Fault::BeatOnlyCounts, InstanceWrite::Beat { record, expect }, Some(seen)) => {
                let record = InstanceRecord { beat: record.beat, ..seen.record.clone() };
                InstanceWrite::Beat { record, expect }
            }
            (_, write, _) => write,
        };
        let revives = matches!(write, InstanceWrite::Beat { .. } | InstanceWrite::Register(_));
        match self.inner.write_instance(scope, write).await? {
            InstanceOutcome::Refused(Some(seen)) if revives && self.fault == Fault::DeadRevived => {
                let record = InstanceRecord { state: InstanceState::Live, ..seen.record };
                Ok(InstanceOutcome::Applied(InstanceSeen { record, ..seen }))
            }
            outcome => Ok(outcome),
        }
    }

    async fn broken_ownership(
        &self,
        scope: &Scope,
        mut write: OwnershipWrite,
    ) -> StoreResult<OwnershipOutcome> {
        write.partition = self.partition(write.partition);
        match self.fault {
            Fault::OwnershipVersionIgnored => {
                write.expect = self.held(scope, &write.partition).await.map(|held| held.version);
            }
            Fault::TransferWithoutCheckpoint => write.checkpoint = None,
            Fault::TwoStepTransfer => {
                let Some(part) = write.checkpoint.take() else {
                    return self.inner.write_ownership(scope, write).await;
                };
                let (partition, op) = (write.partition.clone(), write.op.clone());
                let outcome = self.inner.write_ownership(scope, write).await?;
                if let Some((epoch, last, stream)) = part.last {
                    let (partition, op) = (partition.clone(), op.clone());
                    let advance = CheckpointWrite::Advance { partition, epoch, last, stream, op };
                    self.inner.write_checkpoint(scope, advance).await?;
                }
                let seal = CheckpointWrite::Seal { partition, epoch: part.seal, op };
                return match (outcome, self.inner.write_checkpoint(scope, seal).await?) {
                    (_, CheckpointOutcome::Fenced(by) | CheckpointOutcome::Behind(by)) => {
                        Ok(OwnershipOutcome::Fenced(by))
                    }
                    (OwnershipOutcome::Applied { ownership, .. }, CheckpointOutcome::Applied(record)) => {
                        Ok(OwnershipOutcome::Applied { ownership, checkpoint: Some(record) })
                    }
                    (refused, _) => Ok(refused),
                };
            }
            _ => {}
        }
        self.inner.write_ownership(scope, write).await
    }

    async fn broken_checkpoint(
        &self,
        scope: &Scope,
        write: CheckpointWrite,
    ) -> StoreResult<CheckpointOutcome> {
        let partition = self.partition(write.partition().clone());
        let current = self.stored(scope, &partition).await;
        let epoch_now = current.as_ref().map_or(Epoch::default(), |record| record.epoch);
        let fenced = |epoch: Epoch| if self.fault == Fault::FenceIgnored { epoch_now } else { epoch };
        let write = match write {
            CheckpointWrite::Seal { epoch, op, .. } => match (self.fault, current) {
                (Fault::SealBelowApplied, Some(record)) if epoch < record.epoch => {
                    return Ok(CheckpointOutcome::Applied(record));
                }
                (Fault::SealOnce, Some(record)) if epoch == record.epoch => {
                    return Ok(CheckpointOutcome::Fenced(record));
                }
                (Fault::SealForgetsPosition, Some(_)) => {
                    let seal = CheckpointWrite::Seal { partition: partition.clone(), epoch, op: op.clone() };
                    self.inner.write_checkpoint(scope, seal).await?;
                    let resume = Resume::At(Position::Earliest);
                    CheckpointWrite::Seek { partition, epoch, resume, stream: None, op }
                }
                _ => CheckpointWrite::Seal { partition, epoch, op },
            },
            CheckpointWrite::Advance { epoch, last, stream, op, .. } => {
                let resume = current.as_ref().and_then(|record| record.resume.clone());
                match (self.fault, current) {
                    (Fault::RepeatRefused, Some(record)) if resume == Some(Resume::After(last.clone())) => {
                        return Ok(CheckpointOutcome::Behind(record));
                    }
                    (Fault::MonotoneMissing, _) => {
                        let resume = Resume::After(last);
                        CheckpointWrite::Seek { partition, epoch, resume, stream, op }
                    }
                    (Fault::LateCheckpointTaken, _) => {
                        let op = Op { number: u64::MAX, ..op };
                        CheckpointWrite::Advance { partition, epoch, last, stream, op }
                    }
                    (Fault::StreamIgnored, Some(record)) => {
                        CheckpointWrite::Advance { partition, epoch, last, stream: record.stream, op }
                    }
                    _ => CheckpointWrite::Advance { partition, epoch: fenced(epoch), last, stream, op },
                }
            }
            CheckpointWrite::Seek { epoch, resume, stream, op, .. } => match (self.fault, current) {
                (Fault::SeekIgnored, Some(record)) => return Ok(CheckpointOutcome::Applied(record)),
                _ => CheckpointWrite::Seek { partition, epoch: fenced(epoch), resume, stream, op },
            },
        };
        self.inner.write_checkpoint(scope, write).await
    }

    /// Takes a lock that a dropped call never gives back.
    async fn lock(&self) -> StoreResult<()> {
        if self.fault == Fault::DroppedCallKeepsLock {
            if self.busy.swap(true, Ordering::SeqCst) {
                return Err(StoreError::no_effect("lock", "still locked by a call that was dropped"));
            }
            tokio::task::yield_now().await;
        }
        Ok(())
    }

    fn unlock(&self) {
        self.busy.store(false, Ordering::SeqCst);
    }
}

impl CheckpointStore for Broken {
    fn properties(&self) -> StoreProperties {
        self.inner.properties()
    }

    fn write_instance<'a>(
        &'a self,
        scope: &'a Scope,
        write: InstanceWrite,
    ) -> BoxFuture<'a, StoreResult<InstanceOutcome>> {
        Box::pin(async move {
            self.lock().await?;
            let outcome = self.broken_instance(&self.scope(scope), write).await;
            self.unlock();
            outcome
        })
    }

    fn write_ownership<'a>(
        &'a self,
        scope: &'a Scope,
        write: OwnershipWrite,
    ) -> BoxFuture<'a, StoreResult<OwnershipOutcome>> {
        Box::pin(async move { self.broken_ownership(&self.scope(scope), write).await })
    }

    fn write_checkpoint<'a>(
        &'a self,
        scope: &'a Scope,
        write: CheckpointWrite,
    ) -> BoxFuture<'a, StoreResult<CheckpointOutcome>> {
        Box::pin(async move { self.broken_checkpoint(&self.scope(scope), write).await })
    }

    fn view<'a>(&'a self, scope: &'a Scope) -> BoxFuture<'a, StoreResult<GroupView>> {
        Box::pin(async move {
            let mut view = self.inner.view(&self.scope(scope)).await?;
            match self.fault {
                Fault::ViewUnsorted => view.ownerships.reverse(),
                Fault::AlwaysYoung => view.instances.iter_mut().for_each(|seen| seen.age = Duration::ZERO),
                Fault::StaleView => {
                    let before = self.view_before.lock().unwrap().replace(view.clone());
                    view = before.unwrap_or(view);
                }
                _ => {}
            }
            Ok(view)
        })
    }

    fn checkpoints<'a>(&'a self, scope: &'a Scope) -> BoxFuture<'a, StoreResult<Vec<CheckpointRecord>>> {
        Box::pin(async move { self.inner.checkpoints(&self.scope(scope)).await })
    }

    fn moves<'a>(&'a self, scope: &'a Scope) -> BoxFuture<'a, StoreResult<Vec<MoveRecord>>> {
        Box::pin(async move {
            let mut moves = self.inner.moves(&self.scope(scope)).await?;
            if self.fault == Fault::MovesRepeated {
                moves.extend(moves.clone());
            }
            Ok(moves)
        })
    }

    fn adopt_scope<'a>(
        &'a self,
        from: &'a Scope,
        to: &'a Scope,
        stream: Option<&'a StreamId>,
    ) -> BoxFuture<'a, StoreResult<Adoption>> {
        Box::pin(async move {
            match self.fault {
                Fault::AdoptionPretended => Ok(Adoption::Moved),
                _ => self.inner.adopt_scope(&self.scope(from), &self.scope(to), stream).await,
            }
        })
    }

    fn changed<'a>(&'a self, scope: &'a Scope, me: &'a Incarnation, cursor: u64) -> BoxFuture<'a, ()> {
        Box::pin(async move {
            let scope = self.scope(scope);
            match self.fault {
                Fault::NotificationLost => std::future::pending().await,
                Fault::WakesAlways => {}
                Fault::OnlyLaterChanges => {
                    let cursor = self.inner.view(&scope).await.map_or(cursor, |view| view.cursor);
                    self.inner.changed(&scope, me, cursor).await;
                }
                _ => self.inner.changed(&scope, me, cursor).await,
            }
        })
    }
}
