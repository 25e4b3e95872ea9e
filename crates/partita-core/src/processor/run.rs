//! A processor from start to shutdown in one call.

use std::future::Future;
use std::pin::pin;
use std::sync::Arc;

use super::{Builder, Processor, ShutdownError, StartError, Status};
use crate::options::ConfigError;
use crate::pump::Factory;

/// Why [`Builder::run_until`] or [`Processor::run_until`] failed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RunError {
    /// The options do not fit together.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// It did not start.
    #[error(transparent)]
    Start(#[from] StartError),
    /// It ended before it was asked to.
    #[error("the processor ended by itself: {}; start it again", .0.failures.join("; "))]
    Ended(ShutdownError),
    /// It did not shut down in good order.
    #[error(transparent)]
    Shutdown(#[from] ShutdownError),
}

impl<F> Builder<F> {
    /// Builds and starts a processor, runs it until `stop` completes, and shuts it down; see
    /// [`Processor::run_until`].
    #[allow(private_bounds)] // The three kinds of handler are all there are.
    pub async fn run_until(self, stop: impl Future<Output = ()>) -> Result<Arc<Status>, RunError>
    where
        F: Factory,
    {
        self.build()?.run_until(stop).await
    }
}

impl Processor {
    /// Starts, runs until `stop` completes, and shuts down. Returns the last status, or the first error; also
    /// returns, with the error, if the processor ends by itself. `stop` is polled once the group was joined:
    /// before that, a signal ends the process as it does without [`shutdown_signal`](super::shutdown_signal).
    /// Dropping the future is like dropping the [handle](super::ProcessorHandle).
    pub async fn run_until(self, stop: impl Future<Output = ()>) -> Result<Arc<Status>, RunError> {
        let stop = pin!(stop);
        let running = self.start().await?;
        tokio::select! {
            biased;
            () = stop => {}
            ended = running.ended() => return Err(RunError::Ended(ended)),
        }
        let status = running.watch();
        running.shutdown().await?;
        Ok(status.borrow().clone())
    }
}
