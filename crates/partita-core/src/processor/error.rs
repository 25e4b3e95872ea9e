//! What prevents a start, and what goes wrong in a shutdown.

use std::fmt;
use std::time::Duration;

use crate::source::SourceError;
use crate::store::StoreError;

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
        write!(f, "not shut down cleanly: {}", self.failures.join("; "))
    }
}

impl std::error::Error for ShutdownError {}
