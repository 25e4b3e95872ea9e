//! An error that was dealt with, and whom it concerns.

use std::fmt;
use std::sync::Arc;

use super::Operation;
use crate::model::{BoxError, InstanceId, PartitionId, SequenceNumber};

/// An error on its way to those who listen.
#[derive(Debug)]
pub(crate) struct ErrorReport {
    pub(crate) partition: Option<PartitionId>,
    pub(crate) operation: Operation,
    pub(crate) error: BoxError,
}

/// The events that a call of the handler failed on.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[non_exhaustive]
pub struct FailedEvents {
    /// The first one that is not handled; for a handler of single events, the one that failed.
    pub first: SequenceNumber,
    /// The last one of the batch; for a handler of single events, the same.
    pub last: SequenceNumber,
    /// Which attempt at the first one it was, counted from 1.
    pub attempt: u32,
}

impl fmt::Display for FailedEvents {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.first == self.last {
            write!(f, "event {}", self.first)?;
        } else {
            write!(f, "events {} to {}", self.first, self.last)?;
        }
        write!(f, ", attempt {}", self.attempt)
    }
}

/// Something that went wrong and was dealt with: for information.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct ProcessorError {
    /// The instance where it happened.
    pub instance: InstanceId,
    /// The partition that it concerns, if it concerns one.
    pub partition: Option<PartitionId>,
    /// What was being done.
    pub operation: Operation,
    /// The events that it concerns, if a call of the handler failed. `partita event show` shows them.
    pub events: Option<FailedEvents>,
    /// What went wrong.
    pub error: Arc<dyn std::error::Error + Send + Sync + 'static>,
}

impl fmt::Display for ProcessorError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.instance.short())?;
        if let Some(partition) = &self.partition {
            write!(f, ", partition {partition}")?;
        }
        if let Some(events) = &self.events {
            write!(f, ", {events}")?;
        }
        write!(f, ": {}: {}", self.operation, self.error)
    }
}

impl std::error::Error for ProcessorError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        Some(&*self.error)
    }
}
