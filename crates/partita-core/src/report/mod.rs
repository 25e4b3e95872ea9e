//! What a processor tells whoever listens: errors that it dealt with, and what metrics count.

mod error;
mod hooks;
mod operation;
mod reporter;

pub(crate) use error::ErrorReport;
pub use error::{FailedEvents, ProcessorError};
pub use hooks::{BatchHandled, EventsMissed, Hooks, Moved};
pub(crate) use hooks::{Guarded, NoHooks};
pub use operation::Operation;
pub(crate) use reporter::{OnError, Reporter};
