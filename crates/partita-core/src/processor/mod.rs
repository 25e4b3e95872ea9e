//! The processor: one instance of a group, from builder to shutdown.

mod builder;
mod entry;
mod error;
mod handle;
mod hooks;
mod options;
mod reporter;
mod run;
mod run_loop;
mod runtime;
#[cfg(feature = "signal")]
mod signal;
mod status;
mod status_board;

pub use builder::{Builder, NoHandler, Processor};
pub use error::{ConfigError, FailedEvents, Operation, ProcessorError, ShutdownError, StartError};
pub use handle::ProcessorHandle;
pub use hooks::{BatchHandled, EventsMissed, Hooks};
pub use options::{Checkpoint, Options};
pub use run::RunError;
pub use runtime::{Runtime, TokioRuntime};
#[cfg(feature = "signal")]
pub use signal::shutdown_signal;
pub use status::{Here, InstanceStatus, Moved, PartitionStatus, Status};

pub use crate::balance::{Pace, Policy};
pub use crate::coordination::{Phase, RevokeReason, StopReason, Timing, TimingError};
pub use crate::pump::{ChangedPast, FailurePolicy};

pub(crate) use error::ErrorReport;
pub(crate) use reporter::Reporter;
