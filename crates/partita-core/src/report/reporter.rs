//! Errors on their way to `on_error`: off the coordination's thread, bounded, never blocking who reports.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use tokio::sync::mpsc;

use super::{ErrorReport, FailedEvents, Hooks, Operation, ProcessorError};
use crate::model::{InstanceId, PartitionId};
use crate::runtime::Runtime;

/// How many errors may wait for a slow `on_error`; more are logged only.
const ERRORS_WAITING_MAX: usize = 256;

pub(crate) type OnError = Arc<dyn Fn(ProcessorError) + Send + Sync>;

/// Takes errors from everywhere in a processor.
#[derive(Clone)]
pub(crate) struct Reporter {
    instance: InstanceId,
    hooks: Arc<dyn Hooks>,
    queue: Option<mpsc::Sender<ProcessorError>>,
}

impl Reporter {
    pub(crate) fn start(
        instance: InstanceId,
        hooks: Arc<dyn Hooks>,
        on_error: Option<OnError>,
        runtime: &dyn Runtime,
    ) -> Self {
        let queue = on_error.map(|on_error| {
            let (queue, mut waiting) = mpsc::channel::<ProcessorError>(ERRORS_WAITING_MAX);
            runtime.spawn(Box::pin(async move {
                while let Some(error) = waiting.recv().await {
                    if catch_unwind(AssertUnwindSafe(|| on_error(error))).is_err() {
                        tracing::error!("on_error panicked");
                    }
                }
            }));
            queue
        });
        Self { instance, hooks, queue }
    }

    pub(crate) fn report(&self, report: ErrorReport) {
        let ErrorReport { partition, operation, error } = report;
        self.send(partition, operation, None, Arc::from(error));
    }

    pub(crate) fn send(
        &self,
        partition: Option<PartitionId>,
        operation: Operation,
        events: Option<FailedEvents>,
        error: Arc<dyn std::error::Error + Send + Sync>,
    ) {
        let error = ProcessorError { instance: self.instance.clone(), partition, operation, events, error };
        tracing::warn!(
            instance = self.instance.short(),
            partition = error.partition.as_ref().map(PartitionId::as_str),
            sequence = events.map(|events| events.first.0),
            attempt = events.map(|events| events.attempt),
            operation = %operation,
            error = %error.error,
            "handled an error"
        );
        self.hooks.error(&error);
        if let Some(queue) = &self.queue {
            // A listener that does not keep up misses errors; the log has them all.
            let _ = queue.try_send(error);
        }
    }
}
