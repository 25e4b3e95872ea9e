//! The handle of a running processor.

use std::future::Future;
use std::sync::Arc;

use tokio::sync::{mpsc, watch};

use super::{ShutdownError, Status};
use crate::pump::Standing;

/// Asks the run loop for something.
#[derive(Debug)]
pub(crate) enum Request {
    Stop,
}

/// A running processor. Dropping it stops delivery at once and never blocks; what was owned is then drained and
/// released in the background. [`shutdown`](Self::shutdown) waits for that and tells how it went.
#[derive(Debug)]
#[must_use = "dropping the handle stops the processor: keep it, and call shutdown() in the end"]
pub struct ProcessorHandle {
    requests: mpsc::Sender<Request>,
    status: watch::Receiver<Arc<Status>>,
    ended: watch::Receiver<Option<Vec<String>>>,
    standing: Arc<Standing>,
    shutting_down: bool,
}

impl ProcessorHandle {
    pub(crate) fn new(
        requests: mpsc::Sender<Request>,
        status: watch::Receiver<Arc<Status>>,
        ended: watch::Receiver<Option<Vec<String>>>,
        standing: Arc<Standing>,
    ) -> Self {
        Self { requests, status, ended, standing, shutting_down: false }
    }

    /// What is known of the group now.
    pub fn status(&self) -> Arc<Status> {
        self.status.borrow().clone()
    }

    /// What is known of the group, as it changes.
    pub fn watch(&self) -> watch::Receiver<Arc<Status>> {
        self.status.clone()
    }

    /// Waits until the status satisfies a condition. Ends with the last status if the processor ends first.
    pub async fn wait_for(&self, mut condition: impl FnMut(&Status) -> bool) -> Arc<Status> {
        let mut status = self.watch();
        match status.wait_for(|status| condition(status)).await {
            Ok(status) => status.clone(),
            Err(_) => self.status(),
        }
    }

    /// Lets running calls end, checkpoints, releases all partitions and leaves the group; tells what of it failed.
    /// Begins at the call; the future waits for the end.
    pub fn shutdown(mut self) -> impl Future<Output = Result<(), ShutdownError>> + Send {
        self.shutting_down = true;
        // If the queue is full, a stop is already in it; a loop that has ended needs none.
        let _ = self.requests.try_send(Request::Stop);
        async move {
            let ended = self.ended().await;
            if ended.failures.is_empty() { Ok(()) } else { Err(ended) }
        }
    }

    /// Waits for the end, and tells what failed.
    pub(super) async fn ended(&self) -> ShutdownError {
        let mut ended = self.ended.clone();
        let failures = match ended.wait_for(Option::is_some).await {
            Ok(failures) => failures.clone().unwrap_or_default(),
            Err(_) => vec!["the coordination ended unexpectedly".to_owned()],
        };
        ShutdownError { failures }
    }
}

impl Drop for ProcessorHandle {
    fn drop(&mut self) {
        if !self.shutting_down {
            self.standing.abandon();
            // If the queue is full, a stop is already in it.
            let _ = self.requests.try_send(Request::Stop);
        }
    }
}
