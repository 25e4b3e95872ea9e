//! A scope of its own for one check, and writes that are short to say.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use super::StoreHarness;
use crate::model::{
    ConsumerGroup, Epoch, HubName, Incarnation, InstanceId, Namespace, Offset, PartitionId, Scope,
    SequenceNumber, StreamId, StreamPosition, Timestamp,
};
use crate::store::{
    CheckpointOutcome, CheckpointRecord, CheckpointStore, CheckpointWrite, GroupView, InstanceOutcome,
    InstanceRecord, InstanceSeen, InstanceState, InstanceWrite, MoveReason, Op, Ownership, OwnershipOutcome,
    OwnershipWrite, Resume, StoreResult, Version,
};

pub(super) struct Group {
    pub(super) store: Arc<dyn CheckpointStore>,
    pub(super) scope: Scope,
    ops: AtomicU64,
}

impl Group {
    pub(super) async fn new(harness: &dyn StoreHarness) -> Self {
        Self::with_scope(harness, scope()).await
    }

    pub(super) async fn with_scope(harness: &dyn StoreHarness, scope: Scope) -> Self {
        Self { store: harness.open().await, scope, ops: AtomicU64::new(0) }
    }

    /// The same scope through another handle.
    pub(super) async fn reopen(&self, harness: &dyn StoreHarness) -> Self {
        let ops = AtomicU64::new(self.ops.load(Ordering::Relaxed) + 1_000_000);
        Self { store: harness.open().await, scope: self.scope.clone(), ops }
    }

    pub(super) fn op(&self, by: &Incarnation) -> Op {
        Op { by: by.clone(), number: self.ops.fetch_add(1, Ordering::Relaxed) }
    }

    pub(super) async fn instance(&self, write: InstanceWrite) -> InstanceOutcome {
        answer(self.store.write_instance(&self.scope, write).await)
    }

    pub(super) async fn register(&self, record: InstanceRecord) -> InstanceSeen {
        match self.instance(InstanceWrite::Register(record)).await {
            InstanceOutcome::Applied(seen) => seen,
            refused => panic!("a first registration was refused: {refused:?}"),
        }
    }

    pub(super) async fn join(&self, name: &str) -> InstanceSeen {
        self.register(record(&incarnation(name))).await
    }

    pub(super) async fn beat(&self, seen: &InstanceSeen) -> InstanceOutcome {
        let record = InstanceRecord { beat: seen.record.beat + 1, ..seen.record.clone() };
        self.instance(InstanceWrite::Beat { record, expect: seen.version.clone() }).await
    }

    pub(super) async fn leave(&self, seen: &InstanceSeen) -> InstanceSeen {
        let incarnation = seen.record.incarnation.clone();
        match self.instance(InstanceWrite::Leave { incarnation, expect: seen.version.clone() }).await {
            InstanceOutcome::Applied(seen) => seen,
            refused => panic!("leaving with the current version was refused: {refused:?}"),
        }
    }

    /// A write that makes `owner` the owner of `partition` at `epoch`.
    pub(super) fn take(
        &self,
        partition: &PartitionId,
        expect: Option<&Version>,
        owner: &Incarnation,
        epoch: u64,
    ) -> OwnershipWrite {
        OwnershipWrite {
            partition: partition.clone(),
            expect: expect.cloned(),
            owner: Some(owner.clone()),
            epoch: Epoch(epoch),
            next: None,
            reason: MoveReason::Claimed,
            op: self.op(owner),
            checkpoint: None,
        }
    }

    pub(super) async fn ownership(&self, write: OwnershipWrite) -> OwnershipOutcome {
        answer(self.store.write_ownership(&self.scope, write).await)
    }

    /// Writes what must be applied.
    pub(super) async fn owned(&self, write: OwnershipWrite) -> Ownership {
        match self.ownership(write).await {
            OwnershipOutcome::Applied { ownership, .. } => ownership,
            refused => panic!("a write with the current version was refused: {refused:?}"),
        }
    }

    pub(super) async fn checkpoint(&self, write: CheckpointWrite) -> CheckpointOutcome {
        answer(self.store.write_checkpoint(&self.scope, write).await)
    }

    pub(super) async fn seal(&self, partition: &PartitionId, epoch: u64) -> CheckpointOutcome {
        let op = self.op(&incarnation("sealer"));
        self.checkpoint(CheckpointWrite::Seal { partition: partition.clone(), epoch: Epoch(epoch), op }).await
    }

    pub(super) async fn advance(&self, partition: &PartitionId, epoch: u64, to: i64) -> CheckpointOutcome {
        self.advance_in(partition, epoch, to, Some("a-life")).await
    }

    pub(super) async fn advance_in(
        &self,
        partition: &PartitionId,
        epoch: u64,
        to: i64,
        stream: Option<&str>,
    ) -> CheckpointOutcome {
        self.checkpoint(CheckpointWrite::Advance {
            partition: partition.clone(),
            epoch: Epoch(epoch),
            last: position(to),
            stream: stream.map(StreamId::new),
            op: self.op(&incarnation("owner")),
        })
        .await
    }

    pub(super) async fn seek(
        &self,
        partition: &PartitionId,
        epoch: u64,
        resume: Resume,
    ) -> CheckpointOutcome {
        self.checkpoint(CheckpointWrite::Seek {
            partition: partition.clone(),
            epoch: Epoch(epoch),
            resume,
            stream: Some(StreamId::new("a-life")),
            op: self.op(&incarnation("seeker")),
        })
        .await
    }

    pub(super) async fn view(&self) -> GroupView {
        answer(self.store.view(&self.scope).await)
    }

    /// The instance record in a fresh view.
    pub(super) async fn seen(&self, who: &Incarnation) -> Option<InstanceSeen> {
        self.view().await.instances.into_iter().find(|seen| seen.record.incarnation == *who)
    }

    /// The ownership record in a fresh view.
    pub(super) async fn held(&self, partition: &PartitionId) -> Option<Ownership> {
        self.view().await.ownerships.into_iter().find(|held| held.partition == *partition)
    }

    /// The stored checkpoint record.
    pub(super) async fn stored(&self, partition: &PartitionId) -> Option<CheckpointRecord> {
        let all = answer(self.store.checkpoints(&self.scope).await);
        all.into_iter().find(|record| record.partition == *partition)
    }
}

#[track_caller]
pub(super) fn answer<T>(result: StoreResult<T>) -> T {
    result.unwrap_or_else(|error| panic!("the store gave no answer: {error}"))
}

/// The record of an applied write.
#[track_caller]
pub(super) fn applied(outcome: CheckpointOutcome) -> CheckpointRecord {
    match outcome {
        CheckpointOutcome::Applied(record) => record,
        refused => panic!("a write of the sealing epoch was refused: {refused:?}"),
    }
}

pub(super) fn scope() -> Scope {
    Scope {
        namespace: Namespace::new("conformance.example"),
        hub: HubName::new(format!("hub-{:016x}", fastrand::u64(..))),
        group: ConsumerGroup::default(),
    }
}

pub(super) fn incarnation(name: &str) -> Incarnation {
    Incarnation::new(InstanceId::new(name), fastrand::u128(..))
}

pub(super) fn record(incarnation: &Incarnation) -> InstanceRecord {
    InstanceRecord {
        incarnation: incarnation.clone(),
        host: Arc::from("machine"),
        started: Timestamp(1_700_000_000_123),
        stopping: false,
        ttl: std::time::Duration::from_secs(5),
        declines: Vec::new(),
        state: InstanceState::Live,
        beat: 0,
        details: Default::default(),
    }
}

pub(super) fn position(sequence: i64) -> StreamPosition {
    let offset = u64::try_from(sequence).map_or(0, |sequence| sequence * 10);
    StreamPosition::new(SequenceNumber(sequence), Offset::number(offset))
}

pub(super) fn after(sequence: i64) -> Option<Resume> {
    Some(Resume::After(position(sequence)))
}
