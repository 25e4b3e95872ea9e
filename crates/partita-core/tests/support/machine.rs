//! A machine that a processor runs on: its clock is Tokio's, and it can crash.

use std::io;
use std::sync::{Arc, Mutex};

use futures_util::future::BoxFuture;
use partita_core::model::Tick;
use partita_core::processor::Runtime;
use tokio::task::AbortHandle;
use tokio::time::Instant;

use super::secs;

#[derive(Clone)]
pub struct Machine {
    booted: Instant,
    seed: u64,
    tasks: Arc<Mutex<Vec<AbortHandle>>>,
}

impl Machine {
    pub fn new(seed: u64) -> Self {
        Self { booted: Instant::now(), seed, tasks: Arc::default() }
    }

    /// Ends everything that runs on it, in the middle of whatever it does.
    pub fn crash(&self) {
        for task in self.tasks.lock().unwrap().drain(..) {
            task.abort();
        }
    }
}

impl Runtime for Machine {
    fn now(&self) -> Tick {
        Tick(0) + secs(1_000) + self.booted.elapsed()
    }

    fn seed(&self) -> u64 {
        self.seed
    }

    fn spawn(&self, task: BoxFuture<'static, ()>) {
        self.tasks.lock().unwrap().push(tokio::spawn(task).abort_handle());
    }

    fn spawn_coordination(&self, task: BoxFuture<'static, ()>) -> io::Result<()> {
        self.spawn(task);
        Ok(())
    }
}
