//! Where connections run.

use std::future::Future;
use std::pin::Pin;
use std::sync::OnceLock;
use std::task::{Context, Poll, ready};
use std::thread::available_parallelism;

use tokio::runtime::{Builder, Runtime};
use tokio::task::JoinHandle;

use crate::eventhubs::EventHubsError;

/// The most threads that all connections of a process share, and how many cores each of them is worth: a connection only moves
/// bytes, and on a machine of few cores a second thread takes from the handlers what it adds (a tenth, on two cores).
const THREADS_MAX: usize = 4;
const CORES_PER_THREAD: usize = 4;

/// The runtime of all connections of this process. A connection is shared by all who use its client, so it must not end with
/// the runtime of whoever happened to need it first; nor should it be silent while a handler blocks its own.
static RUNTIME: OnceLock<Runtime> = OnceLock::new();

fn runtime() -> Result<&'static Runtime, EventHubsError> {
    if let Some(runtime) = RUNTIME.get() {
        return Ok(runtime);
    }
    let cores = available_parallelism().map_or(1, usize::from);
    let threads = (cores / CORES_PER_THREAD).clamp(1, THREADS_MAX);
    let made =
        Builder::new_multi_thread().worker_threads(threads).thread_name("partita-amqp").enable_all().build();
    let made =
        made.map_err(|error| EventHubsError::of_io("no thread could be started for connections", &error))?;
    // If another was faster, this one has nothing to do and ends, without waiting: this may be a task of a runtime.
    if let Err(late) = RUNTIME.set(made) {
        late.shutdown_background();
    }
    RUNTIME.get().ok_or_else(|| EventHubsError::retriable("the threads for connections ended"))
}

/// Runs something there. It is given up when this is dropped; what it has spawned by then goes on.
pub(super) fn run<T: Send + 'static>(
    task: impl Future<Output = T> + Send + 'static,
) -> Result<Running<T>, EventHubsError> {
    Ok(Running(runtime()?.spawn(task)))
}

/// Something that runs there.
#[derive(Debug)]
pub(super) struct Running<T>(JoinHandle<T>);

impl<T> Future for Running<T> {
    type Output = Result<T, EventHubsError>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let ended = ready!(Pin::new(&mut self.0).poll(cx));
        Poll::Ready(ended.map_err(|error| EventHubsError::retriable(format!("connecting failed: {error}"))))
    }
}

impl<T> Drop for Running<T> {
    fn drop(&mut self) {
        self.0.abort();
    }
}
