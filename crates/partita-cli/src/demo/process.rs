//! A process as far as one can be had inside another: a processor's own threads, which can be stopped dead.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use futures_util::future::BoxFuture;
use partita::model::Tick;
use partita::processor::{Runtime, TokioRuntime};
use tokio::runtime::{Builder, Handle, Runtime as Threads};

/// How long a thread may take to notice that it is dead: the rest of one poll.
const LAST_POLL_MAX: Duration = Duration::from_secs(5);

/// The threads of one processor. Dropping it lets them end by themselves.
#[derive(Debug)]
pub(crate) struct Process {
    /// For handlers and for the coordination; none once they were shut down.
    threads: Option<[Threads; 2]>,
    alive: Arc<AtomicBool>,
    seed: u64,
}

impl Process {
    pub(crate) fn new(name: &str, seed: u64) -> std::io::Result<Self> {
        let threads = |part| {
            let name = format!("{name}-{part}");
            Builder::new_multi_thread().worker_threads(1).thread_name(name).enable_time().build()
        };
        let threads = Some([threads("handlers")?, threads("coordination")?]);
        Ok(Self { threads, alive: Arc::new(AtomicBool::new(true)), seed })
    }

    /// What a processor needs to run on these threads.
    pub(crate) fn runtime(&self) -> ProcessRuntime {
        let [handlers, coordination] = self.threads.as_ref().expect("shut down by methods that consume it");
        let _inside = handlers.enter();
        ProcessRuntime {
            clock: TokioRuntime::current(),
            handlers: handlers.handle().clone(),
            coordination: coordination.handle().clone(),
            alive: Arc::clone(&self.alive),
            seed: self.seed,
        }
    }

    /// Stops everything dead: no task of the processor is polled again, so nothing is drained, released or said.
    /// Blocks until the threads are gone.
    pub(crate) fn kill(mut self) {
        self.alive.store(false, Ordering::SeqCst);
        for threads in self.threads.take().into_iter().flatten() {
            threads.shutdown_timeout(LAST_POLL_MAX);
        }
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // Waiting for them would block, which an asynchronous caller must not.
        for threads in self.threads.take().into_iter().flatten() {
            threads.shutdown_background();
        }
    }
}

/// Runs a processor's tasks on its process.
#[derive(Debug)]
pub(crate) struct ProcessRuntime {
    clock: TokioRuntime,
    handlers: Handle,
    coordination: Handle,
    alive: Arc<AtomicBool>,
    seed: u64,
}

impl ProcessRuntime {
    fn mortal(&self, task: BoxFuture<'static, ()>) -> Mortal {
        Mortal { task, alive: Arc::clone(&self.alive) }
    }
}

impl Runtime for ProcessRuntime {
    fn now(&self) -> Tick {
        self.clock.now()
    }

    fn seed(&self) -> u64 {
        self.seed
    }

    fn spawn(&self, task: BoxFuture<'static, ()>) {
        self.handlers.spawn(self.mortal(task));
    }

    fn spawn_coordination(&self, task: BoxFuture<'static, ()>) -> std::io::Result<()> {
        self.coordination.spawn(self.mortal(task));
        Ok(())
    }
}

/// A task that does nothing more once its process is dead. Without this, tasks that are dropped one after the other
/// would see each other go, and the last ones could still tell the group.
struct Mortal {
    task: BoxFuture<'static, ()>,
    alive: Arc<AtomicBool>,
}

impl Future for Mortal {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        if self.alive.load(Ordering::SeqCst) { self.task.as_mut().poll(cx) } else { Poll::Ready(()) }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicU64;

    use super::*;

    #[test]
    fn nothing_runs_after_a_kill() {
        let process = Process::new("victim", 1).unwrap();
        let runtime = process.runtime();
        let polls = Arc::new(AtomicU64::new(0));
        let busy = |polls: Arc<AtomicU64>| -> BoxFuture<'static, ()> {
            Box::pin(async move {
                loop {
                    polls.fetch_add(1, Ordering::SeqCst);
                    tokio::time::sleep(Duration::from_millis(1)).await;
                }
            })
        };
        runtime.spawn(busy(Arc::clone(&polls)));
        runtime.spawn_coordination(busy(Arc::clone(&polls))).unwrap();
        std::thread::sleep(Duration::from_millis(50));
        process.kill();
        let at_death = polls.load(Ordering::SeqCst);
        runtime.spawn(busy(Arc::clone(&polls)));
        std::thread::sleep(Duration::from_millis(50));
        assert!(at_death > 2, "it ran before: {at_death}");
        assert_eq!(polls.load(Ordering::SeqCst), at_death);
    }

    /// Says when it goes, as a pump does.
    struct LastWord(tokio::sync::mpsc::Sender<()>);

    impl Drop for LastWord {
        fn drop(&mut self) {
            self.0.try_send(()).unwrap();
        }
    }

    #[test]
    fn a_task_that_sees_another_one_go_does_nothing_about_it() {
        let process = Process::new("victim", 1).unwrap();
        let runtime = process.runtime();
        let (sender, mut receiver) = tokio::sync::mpsc::channel(1);
        let last_word = LastWord(sender);
        runtime.spawn(Box::pin(async move {
            let _last_word = last_word;
            std::future::pending().await
        }));
        let heard = Arc::new(AtomicU64::new(0));
        let hears = Arc::clone(&heard);
        let listening = async move {
            while receiver.recv().await.is_some() {
                hears.fetch_add(1, Ordering::SeqCst);
            }
            hears.fetch_add(1, Ordering::SeqCst);
        };
        runtime.spawn_coordination(Box::pin(listening)).unwrap();
        std::thread::sleep(Duration::from_millis(20));
        process.kill();
        assert_eq!(heard.load(Ordering::SeqCst), 0);
    }
}
