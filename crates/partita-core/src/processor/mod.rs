//! The processor: one instance of a group, from builder to shutdown.

mod builder;
mod entry;
mod error;
mod handle;
mod run;
mod run_loop;
#[cfg(feature = "signal")]
mod signal;
mod status;
mod status_board;

pub use builder::{Builder, NoHandler, Processor};
pub use error::{ShutdownError, StartError};
pub use handle::ProcessorHandle;
pub use run::RunError;
#[cfg(feature = "signal")]
pub use signal::shutdown_signal;
pub use status::{Here, InstanceStatus, PartitionStatus, Status};

pub use crate::balance::{Pace, Policy};
pub use crate::coordination::Phase;
pub use crate::model::{RevokeReason, StopReason};
pub use crate::options::{ChangedPast, Checkpoint, ConfigError, FailurePolicy, Options};
pub use crate::report::{BatchHandled, EventsMissed, FailedEvents, Hooks, Moved, Operation, ProcessorError};
pub use crate::runtime::{Runtime, TokioRuntime};
pub use crate::timing::{Timing, TimingError};
