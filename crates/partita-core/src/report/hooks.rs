//! Where metrics attach: the engine calls, an implementation counts. Every method has an empty default.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::Duration;

use super::ProcessorError;
use crate::model::{Epoch, PartitionId, SequenceNumber};
use crate::source::Gap;
use crate::store::MoveRecord;

/// One change of owner.
pub type Moved = MoveRecord;

/// A call of a handler that ended.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct BatchHandled<'a> {
    /// The partition.
    pub partition: &'a PartitionId,
    /// How many events were handled.
    pub events: usize,
    /// How many bytes they held.
    pub bytes: usize,
    /// How long the handler took.
    pub took: Duration,
    /// The last event handled.
    pub last: SequenceNumber,
}

/// Events that the hub removed before they were read here.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct EventsMissed<'a> {
    /// The partition.
    pub partition: &'a PartitionId,
    /// How many, without those that were told before; 0 where the source does not know.
    pub events: u64,
    /// Which.
    pub gap: &'a Gap,
}

/// Called where things happen. Calls must be quick and must not block: some are made by the coordination.
pub trait Hooks: Send + Sync + 'static {
    /// A batch was handled.
    fn batch_handled(&self, batch: BatchHandled<'_>) {
        let _ = batch;
    }

    /// Events were missed: the hub removed them before they were read. Told to [`error`](Hooks::error), too.
    fn missed(&self, missed: EventsMissed<'_>) {
        let _ = missed;
    }

    /// A checkpoint is durable.
    fn checkpointed(&self, partition: &PartitionId, last: SequenceNumber) {
        let _ = (partition, last);
    }

    /// A pump was opened.
    fn opened(&self, partition: &PartitionId, epoch: Epoch) {
        let _ = (partition, epoch);
    }

    /// A pump has ended.
    fn closed(&self, partition: &PartitionId, epoch: Epoch) {
        let _ = (partition, epoch);
    }

    /// An owner changed, here or elsewhere in the group.
    fn moved(&self, moved: &Moved) {
        let _ = moved;
    }

    /// A store call ended.
    fn store_call(&self, operation: &'static str, took: Duration, ok: bool) {
        let _ = (operation, took, ok);
    }

    /// Something went wrong and was dealt with.
    fn error(&self, error: &ProcessorError) {
        let _ = error;
    }
}

/// Keeps a hook that panics from ending what calls it.
pub(crate) struct Guarded(pub(crate) Arc<dyn Hooks>);

impl Guarded {
    fn call(&self, hook: impl FnOnce(&dyn Hooks)) {
        if catch_unwind(AssertUnwindSafe(|| hook(&*self.0))).is_err() {
            tracing::error!("a hook panicked");
        }
    }
}

impl Hooks for Guarded {
    fn batch_handled(&self, batch: BatchHandled<'_>) {
        self.call(|hooks| hooks.batch_handled(batch));
    }

    fn missed(&self, missed: EventsMissed<'_>) {
        self.call(|hooks| hooks.missed(missed));
    }

    fn checkpointed(&self, partition: &PartitionId, last: SequenceNumber) {
        self.call(|hooks| hooks.checkpointed(partition, last));
    }

    fn opened(&self, partition: &PartitionId, epoch: Epoch) {
        self.call(|hooks| hooks.opened(partition, epoch));
    }

    fn closed(&self, partition: &PartitionId, epoch: Epoch) {
        self.call(|hooks| hooks.closed(partition, epoch));
    }

    fn moved(&self, moved: &Moved) {
        self.call(|hooks| hooks.moved(moved));
    }

    fn store_call(&self, operation: &'static str, took: Duration, ok: bool) {
        self.call(|hooks| hooks.store_call(operation, took, ok));
    }

    fn error(&self, error: &ProcessorError) {
        self.call(|hooks| hooks.error(error));
    }
}

/// Counts nothing.
#[derive(Clone, Copy, Debug)]
pub(crate) struct NoHooks;

impl Hooks for NoHooks {}
