//! What can go wrong, who is told, and in which words.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use crate::coordination::TimingError;
use crate::model::{InstanceId, PartitionId, SequenceNumber};
use crate::source::SourceError;
use crate::store::{BoxError, StoreError};

/// What was being done when an error occurred.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[non_exhaustive]
#[allow(missing_docs)] // The variants are the operations' names.
pub enum Operation {
    Register,
    Heartbeat,
    View,
    Bury,
    Leave,
    Lease,
    Claim,
    Request,
    Transfer,
    Release,
    Seal,
    Checkpoint,
    Drain,
    Describe,
    OpenReader,
    Read,
    HandlerOpen,
    HandlerEvents,
    HandlerStopping,
    HandlerRevoked,
}

impl Operation {
    /// The operation in words.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Register => "joining the group",
            Self::Heartbeat => "renewing the lease",
            Self::View => "reading the group",
            Self::Bury => "declaring a silent instance dead",
            Self::Leave => "leaving the group",
            Self::Lease => "keeping the lease",
            Self::Claim => "claiming a partition",
            Self::Request => "asking for a hand-off",
            Self::Transfer => "handing a partition over",
            Self::Release => "releasing a partition",
            Self::Seal => "sealing a checkpoint",
            Self::Checkpoint => "writing a checkpoint",
            Self::Drain => "draining a partition",
            Self::Describe => "describing the hub",
            Self::OpenReader => "opening a reader",
            Self::Read => "reading events",
            Self::HandlerOpen => "opening the handler",
            Self::HandlerEvents => "handling events",
            Self::HandlerStopping => "stopping the handler",
            Self::HandlerRevoked => "revoking the handler",
        }
    }
}

impl fmt::Display for Operation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

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

/// Why a processor cannot be built as asked.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ConfigError {
    /// An option that must be positive is zero.
    #[error("{option} must be at least 1")]
    Zero {
        /// The option.
        option: &'static str,
    },
    /// A duration that must pass is zero.
    #[error("{option} must be longer than zero")]
    ZeroTime {
        /// The option.
        option: &'static str,
    },
    /// A batch that could never fill.
    #[error(
        "batch_size {batch_size} is more than prefetch_events {prefetch_events}: a batch could never fill; raise prefetch_events or lower batch_size"
    )]
    BatchOverPrefetch {
        /// The batch size asked for.
        batch_size: usize,
        /// The prefetch asked for.
        prefetch_events: usize,
    },
    /// Calls without events, for a handler that takes one event at a time.
    #[error("call_on_empty needs on_batch or a full handler: on_event has no event to pass")]
    EmptyCallOnEvent,
    /// Automatic checkpoints that never come.
    #[error(
        "checkpoints need a number of events or a time: use Checkpoint::every, Checkpoint::after or Checkpoint::Manual"
    )]
    NeverCheckpoints,
    /// A retry whose first pause is longer than its longest.
    #[error("the first retry pause {first:?} is longer than the longest {longest:?}")]
    RetryPauses {
        /// The first pause.
        first: Duration,
        /// The longest pause.
        longest: Duration,
    },
    /// A name that must not be empty.
    #[error("{option} must not be empty")]
    EmptyName {
        /// The option.
        option: &'static str,
    },
    /// Times that are not safe together.
    #[error(transparent)]
    Timing(#[from] TimingError),
}

/// What prevented a start. If the store did not answer, the group may see this instance until its ttl has passed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StartError {
    /// The hub could not be described.
    #[error("cannot start: {0}")]
    Source(#[from] SourceError),
    /// The instance could not join the group.
    #[error("cannot start: {0}")]
    Store(#[from] StoreError),
    /// The store did not answer in the time that `timing` gives its calls.
    #[error(
        "cannot start: the store did not answer within {deadline:?}; if it is reachable but slow, set a longer `timing`, which \
         gives each store call 0.4 cycles"
    )]
    StoreTooSlow {
        /// How long a store call may take with this timing.
        deadline: Duration,
    },
    /// There is nothing to read.
    #[error("cannot start: hub {0} has no partitions")]
    NoPartitions(String),
    /// The group's records are under a former name, and somebody uses them there.
    #[error(
        "cannot start: {instance} still runs as {former}, which is now called {scope}; stop all instances of the former version, then start again"
    )]
    FormerNameInUse {
        /// What the group is called now.
        scope: String,
        /// What it was called.
        former: String,
        /// Who uses it.
        instance: String,
    },
    /// Somebody reads another hub under the same name.
    #[error(
        "cannot start: {instance} on {host} reads another hub that is called {scope}, too; stop it, or give each hub a store or a consumer group of its own"
    )]
    OtherHub {
        /// What both are called.
        scope: String,
        /// Who reads the other one.
        instance: String,
        /// Where it runs.
        host: String,
    },
    /// The coordination ended before the group was joined.
    #[error("cannot start: {0}")]
    Ended(String),
}

/// What could not be done in good order during a shutdown. The partitions named are taken over by others after
/// the ttl.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ShutdownError {
    /// One sentence each.
    pub failures: Vec<String>,
}

impl fmt::Display for ShutdownError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "not shut down in good order: {}", self.failures.join("; "))
    }
}

impl std::error::Error for ShutdownError {}
