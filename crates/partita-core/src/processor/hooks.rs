//! Where metrics attach: the engine calls, an implementation counts. Every method has an empty default.

use std::time::Duration;

use crate::model::{Epoch, PartitionId, SequenceNumber};
use crate::processor::{Moved, ProcessorError};

/// A call of a handler that ended.
#[derive(Clone, Copy, Debug)]
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

/// Called where things happen. Calls must be quick and must not block: some are made by the coordination.
pub trait Hooks: Send + Sync + 'static {
    /// A batch was handled.
    fn batch_handled(&self, batch: BatchHandled<'_>) {
        let _ = batch;
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

/// Counts nothing.
#[derive(Clone, Copy, Debug)]
pub(crate) struct NoHooks;

impl Hooks for NoHooks {}
