//! A simulated process: the tasks of one instance, which can be frozen, thawed and killed together, on a machine with a
//! clock of its own.

use std::cell::Cell;
use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use futures_util::future::BoxFuture;
use partita_core::model::{Tick, Timestamp};
use partita_core::processor::Runtime;
use tokio::task::AbortHandle;
use tokio::time::{Instant, Sleep, sleep_until};

use crate::extras::DRIFT_PPM_MAX;

/// 2026, about.
const WALL_START_MS: i64 = 1_790_000_000_000;

/// The fate of a process.
#[derive(Debug, Default)]
struct Fate {
    frozen: bool,
    dead: bool,
    /// By how much its wall clock has jumped.
    wall_skew_ms: i64,
    /// Of tasks that were polled while frozen.
    wakers: Vec<Waker>,
    tasks: Vec<AbortHandle>,
}

/// One process. Clones are the same one.
#[derive(Clone, Debug)]
pub(crate) struct Process {
    fate: Arc<Mutex<Fate>>,
    start: Instant,
    /// How long its machine was up when the world began.
    uptime: Duration,
    /// By how many millionths its clock runs fast.
    drift_ppm: i32,
    seed: u64,
}

impl Process {
    pub(crate) fn new(start: Instant, rng: &mut fastrand::Rng) -> Self {
        let uptime = Duration::from_secs(rng.u64(3_600..1_000_000));
        Self { fate: Arc::default(), start, uptime, drift_ppm: 0, seed: rng.u64(..) }
    }

    /// With a clock that runs fast or slow, as its seed has it.
    pub(crate) fn drifting(mut self) -> Self {
        self.drift_ppm = fastrand::Rng::with_seed(self.seed).i32(-DRIFT_PPM_MAX..=DRIFT_PPM_MAX);
        self
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

    /// Lets its wall clock jump.
    pub(crate) fn jump(&self, by_ms: i64) {
        self.fate().wall_skew_ms += by_ms;
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
        let inside = Inside { process: self.clone(), task: Box::pin(task), blocked: None };
        fate.tasks.retain(|task| !task.is_finished());
        fate.tasks.push(tokio::spawn(inside).abort_handle());
    }
}

impl Runtime for Process {
    fn now(&self) -> Tick {
        let elapsed = self.start.elapsed();
        let off = Duration::from_nanos(
            (elapsed.as_nanos() as u64 / 1_000_000) * u64::from(self.drift_ppm.unsigned_abs()),
        );
        let elapsed = if self.drift_ppm < 0 { elapsed - off } else { elapsed + off };
        Tick(0) + self.uptime + elapsed
    }

    fn wall(&self) -> Timestamp {
        Timestamp(WALL_START_MS + self.fate().wall_skew_ms + self.start.elapsed().as_millis() as i64)
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

thread_local! {
    /// Until when the task that is being polled holds its thread.
    static BLOCKS_UNTIL: Cell<Option<Instant>> = const { Cell::new(None) };
}

/// Holds the thread of the calling task: until then nothing else of the task goes on, and nothing cancels it. Other tasks
/// of the process do go on, as on threads of their own.
pub(crate) async fn block(time: Duration) {
    let mut asked = false;
    poll_fn(|_| {
        if std::mem::replace(&mut asked, true) {
            return Poll::Ready(());
        }
        BLOCKS_UNTIL.set(Some(Instant::now() + time));
        Poll::Pending
    })
    .await;
}

/// A task of a process: not polled while the process is frozen.
struct Inside {
    process: Process,
    task: BoxFuture<'static, ()>,
    /// While the task holds its thread.
    blocked: Option<Pin<Box<Sleep>>>,
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
        loop {
            if let Some(blocked) = &mut self.blocked {
                match blocked.as_mut().poll(cx) {
                    Poll::Pending => return Poll::Pending,
                    Poll::Ready(()) => self.blocked = None,
                }
            }
            let polled = self.task.as_mut().poll(cx);
            match BLOCKS_UNTIL.take() {
                Some(until) if polled.is_pending() => self.blocked = Some(Box::pin(sleep_until(until))),
                _ => return polled,
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_drifting_clock_is_off_by_no_more_than_the_protocol_allows_and_never_goes_back() {
        let mut rng = fastrand::Rng::with_seed(1);
        let mut off = Vec::new();
        for _ in 0..50 {
            let start = Instant::now();
            let process = Process::new(start, &mut rng).drifting();
            let (first, mut last) = (process.now(), process.now());
            for _ in 0..100 {
                tokio::time::advance(Duration::from_millis(997)).await;
                assert!(process.now() > last);
                last = process.now();
            }
            off.push(last.since(first).as_secs_f64() / start.elapsed().as_secs_f64() - 1.0);
        }
        assert!(off.iter().all(|off| off.abs() <= 0.000_501), "{off:?}");
        assert!(off.iter().any(|off| *off > 0.000_3) && off.iter().any(|off| *off < -0.000_3), "{off:?}");
    }
}
