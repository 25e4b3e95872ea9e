//! What to do when a connection cannot be accepted.

use std::io;
use std::time::{Duration, Instant};

use super::throttle::Throttle;

/// How long to wait when the system has no more sockets to give.
const PAUSE: Duration = Duration::from_millis(50);

/// The failures of one listener's accepts.
#[derive(Debug, Default)]
pub struct AcceptFailures {
    warnings: Throttle,
}

impl AcceptFailures {
    /// Waits if waiting can help, and warns now and then. No failure ends a listener: descriptors and memory come back.
    pub async fn wait(&self, error: &io::Error) {
        // The client went away before it was accepted: the next one may be there already.
        let of_one =
            [io::ErrorKind::ConnectionAborted, io::ErrorKind::ConnectionReset, io::ErrorKind::Interrupted];
        if of_one.contains(&error.kind()) {
            return;
        }
        if let Some(unsaid) = self.warnings.pass(Instant::now()) {
            tracing::warn!(%error, unsaid, "cannot accept connections, retrying");
        }
        tokio::time::sleep(PAUSE).await;
    }
}
