//! A simulated process: the tasks of one instance, which can be frozen, thawed and killed together.

use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use futures_util::future::BoxFuture;
use partita_core::model::Tick;
use partita_core::processor::Runtime;
use tokio::task::AbortHandle;
use tokio::time::Instant;

/// The fate of a process.
#[derive(Debug, Default)]
struct Fate {
    frozen: bool,
    dead: bool,
    /// Of tasks that were polled while frozen.
    wakers: Vec<Waker>,
    tasks: Vec<AbortHandle>,
}

/// One process. Clones are the same one.
#[derive(Clone, Debug)]
pub(crate) struct Process {
    fate: Arc<Mutex<Fate>>,
    start: Instant,
    seed: u64,
}

impl Process {
    pub(crate) fn new(start: Instant, seed: u64) -> Self {
        Self { fate: Arc::default(), start, seed }
    }

    fn fate(&self) -> std::sync::MutexGuard<'_, Fate> {
        self.fate.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Stops the process between two instructions; its clock goes on.
    pub(crate) fn freeze(&self) {
        self.fate().frozen = true;
    }

    pub(crate) fn thaw(&self) {
        let wakers = {
            let mut fate = self.fate();
            fate.frozen = false;
            std::mem::take(&mut fate.wakers)
        };
        wakers.into_iter().for_each(Waker::wake);
    }

    /// Ends the process where it is, like `kill -9`.
    pub(crate) fn kill(&self) {
        let tasks = {
            let mut fate = self.fate();
            fate.dead = true;
            std::mem::take(&mut fate.tasks)
        };
        for task in tasks {
            task.abort();
        }
    }

    /// Runs something inside the process.
    pub(crate) fn run(&self, task: impl Future<Output = ()> + Send + 'static) {
        let mut fate = self.fate();
        if fate.dead {
            return;
        }
        let inside = Inside { process: self.clone(), task: Box::pin(task) };
        fate.tasks.retain(|task| !task.is_finished());
        fate.tasks.push(tokio::spawn(inside).abort_handle());
    }
}

impl Runtime for Process {
    fn now(&self) -> Tick {
        // A day ahead, so that no subtraction saturates.
        Tick(0) + Duration::from_secs(86_400) + self.start.elapsed()
    }

    fn seed(&self) -> u64 {
        self.seed
    }

    fn spawn(&self, task: BoxFuture<'static, ()>) {
        self.run(task);
    }

    fn spawn_coordination(&self, task: BoxFuture<'static, ()>) -> std::io::Result<()> {
        self.run(task);
        Ok(())
    }
}

/// A task of a process: not polled while the process is frozen.
struct Inside {
    process: Process,
    task: BoxFuture<'static, ()>,
}

impl Future for Inside {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        {
            let mut fate = self.process.fate();
            if fate.dead {
                return Poll::Ready(());
            }
            if fate.frozen {
                fate.wakers.push(cx.waker().clone());
                return Poll::Pending;
            }
        }
        self.task.as_mut().poll(cx)
    }
}
