//! The checkpoint store: three kinds of record, changed by compare-and-set, shared by all instances of a scope.
//!
//! A store is a small, dumb thing: it keeps records and answers whether a write was applied. What the writes mean is
//! the ownership protocol's business. Check a store of your own with the conformance suite in the testkit (feature
//! `testkit`).

mod error;
mod memory;
mod records;
pub mod rules;
mod writes;

use futures_util::future::BoxFuture;

pub use error::{Certainty, StoreError};
pub use memory::MemoryStore;
pub(crate) use records::reads_another;
pub use records::{
    CheckpointRecord, FAILING_ERROR_CHARS_MAX, FAILING_TOLD_MAX, FailingPartition, GroupView,
    InstanceDetails, InstanceRecord, InstanceSeen, InstanceState, MoveReason, MoveRecord, Op, Ownership,
    Resume, Version,
};
pub use writes::{
    Adoption, AtomicCheckpoint, CheckpointOutcome, CheckpointWrite, InstanceOutcome, InstanceWrite,
    OwnershipOutcome, OwnershipWrite,
};

pub use crate::model::BoxError;
use crate::model::{Incarnation, PartitionId, Scope, StreamId};
use crate::timing::Timing;

/// How many moves a store keeps per scope; older ones are forgotten.
pub const MOVES_KEPT_MAX: usize = 256;

/// A store's answer. The error says whether the write may have happened all the same.
pub type StoreResult<T> = Result<T, StoreError>;

/// What a store is capable of and what it costs.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct StoreProperties {
    /// Whether a write of an ownership and of its checkpoint can be one atomic step. Without it a new owner seals
    /// the checkpoint record in a call of its own.
    pub atomic: bool,
    /// The times that suit the store's latency and price; a processor may choose others.
    pub timing: Timing,
    /// The resolution of ages in [`GroupView`], added to the ttl before an instance may be buried.
    pub stamp_step: std::time::Duration,
    /// Whether [`CheckpointStore::changed`] ever completes. Without it the engine polls while it waits.
    pub notifies: bool,
}

/// Keeps the records of scopes. Every method may be called concurrently, and its future may be dropped at any time
/// (the write may then have happened).
///
/// Reads are linearizable with the writes of all instances: a view begun after a write was answered shows it.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not a checkpoint store",
    label = "not a `CheckpointStore`",
    note = "give `SqliteStore::open(\"checkpoints.db\")?` or, for tests, `MemoryStore::new()`",
    note = "for an `Arc<dyn CheckpointStore>` use `Processor::builder_dyn(source, store)`"
)]
pub trait CheckpointStore: Send + Sync + 'static {
    /// What this store is capable of.
    fn properties(&self) -> StoreProperties;

    /// Writes an instance record under the condition that the variant of `write` names.
    fn write_instance<'a>(
        &'a self,
        scope: &'a Scope,
        write: InstanceWrite,
    ) -> BoxFuture<'a, StoreResult<InstanceOutcome>>;

    /// Replaces an ownership record if it still has the version that `write` expects. With
    /// [`OwnershipWrite::checkpoint`] (only where [`StoreProperties::atomic`]) the checkpoint record changes in the
    /// same step, or neither changes. A store that is not atomic must answer such a write with
    /// [`StoreError::permanent`], which says that it had no effect ([`Certainty::NoEffect`]): never with half of it.
    /// A write that changes the owner appends to the log of moves, best effort.
    fn write_ownership<'a>(
        &'a self,
        scope: &'a Scope,
        write: OwnershipWrite,
    ) -> BoxFuture<'a, StoreResult<OwnershipOutcome>>;

    /// Writes a checkpoint record under the condition that the variant of `write` names.
    fn write_checkpoint<'a>(
        &'a self,
        scope: &'a Scope,
        write: CheckpointWrite,
    ) -> BoxFuture<'a, StoreResult<CheckpointOutcome>>;

    /// Reads all ownership records, then all instance records, with ages by the store's own clock.
    fn view<'a>(&'a self, scope: &'a Scope) -> BoxFuture<'a, StoreResult<GroupView>>;

    /// Reads all checkpoint records, sorted by partition.
    fn checkpoints<'a>(&'a self, scope: &'a Scope) -> BoxFuture<'a, StoreResult<Vec<CheckpointRecord>>>;

    /// The last moves, oldest first, at most [`MOVES_KEPT_MAX`].
    fn moves<'a>(&'a self, scope: &'a Scope) -> BoxFuture<'a, StoreResult<Vec<MoveRecord>>>;

    /// Makes all records of `from` those of `to`, in one step, under the conditions of [`rules::adoption`]: for a hub
    /// whose namespace is spelled in another way than it was. `stream` is the life of the hub that is read now, where
    /// the hub tells.
    ///
    /// A store that cannot do that in one step keeps this implementation: it fails without effect if there is
    /// something to move.
    fn adopt_scope<'a>(
        &'a self,
        from: &'a Scope,
        to: &'a Scope,
        stream: Option<&'a StreamId>,
    ) -> BoxFuture<'a, StoreResult<Adoption>> {
        Box::pin(async move {
            let (former, checkpoints) = (self.view(from).await?, self.checkpoints(from).await?);
            let (view, own) = (self.view(to).await?, self.checkpoints(to).await?);
            let to_is_empty = view.ownerships.is_empty() && view.instances.is_empty() && own.is_empty();
            rules::adoption(&former, &checkpoints, to_is_empty, stream).ok_or_else(|| {
                let why = format!(
                    "this store cannot move the records of {from} to {to}; use a fresh store, or go on with the former \
                     version of the program"
                );
                StoreError::permanent("adopt_scope", why)
            })
        })
    }

    /// Completes once something that may concern `me` has changed since the view whose
    /// [`cursor`](GroupView::cursor) is given: an ownership that names it or named it, the membership, or an
    /// ownership that became free. Heartbeats do not count. May complete too often, never too seldom.
    fn changed<'a>(&'a self, scope: &'a Scope, me: &'a Incarnation, cursor: u64) -> BoxFuture<'a, ()> {
        let _ = (scope, me, cursor);
        Box::pin(std::future::pending())
    }
}

#[allow(dead_code)]
fn is_usable_as_a_trait_object(_: &dyn CheckpointStore, _: &PartitionId) {}
