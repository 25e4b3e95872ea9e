//! The committer: one thread that takes all that waits, writes it as one group, and tells the producers. There is no
//! timer; what arrives while a write is under way makes up the next group.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

use super::core::lock;
use super::error::AppendError;
use super::writer::{Append, Placed, Writer};

/// Told what became of batches: once per commit and producer, on the committer's thread, so it must not block.
pub trait AckSink: Send + Sync {
    /// These batches are done, in the order in which they were appended.
    fn acked(&self, acks: &[Ack]);
}

/// What became of one batch.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Ack {
    /// What the producer gave with the batch.
    pub token: u64,
    /// Where it was put, durably as the settings say, or why it was not.
    pub outcome: Result<Placed, AppendError>,
}

pub(crate) struct Pending {
    pub(crate) append: Append,
    pub(crate) token: u64,
    pub(crate) sink: Arc<dyn AckSink>,
}

#[derive(Default)]
struct State {
    pending: VecDeque<Pending>,
    bytes: usize,
    /// The committer sleeps and must be woken.
    idle: bool,
    /// Tasks that wait for room.
    waiting: Vec<Waker>,
    closed: bool,
}

/// Batches that wait for the committer, bounded in bytes.
#[derive(Default)]
pub(crate) struct Queue {
    state: Mutex<State>,
    filled: Condvar,
    drained: Condvar,
}

impl Queue {
    /// Adds a batch, or says that there is no room.
    pub(crate) fn push(&self, batch: Pending, bytes_max: usize) -> Result<(), AppendError> {
        let mut state = lock(&self.state);
        if state.closed {
            return Err(AppendError::Closed);
        }
        if state.bytes > 0 && state.bytes + batch.append.disk_bytes() > bytes_max {
            return Err(AppendError::QueueFull);
        }
        state.bytes += batch.append.disk_bytes();
        state.pending.push_back(batch);
        if std::mem::take(&mut state.idle) {
            self.filled.notify_one();
        }
        Ok(())
    }

    /// Waits until there may be room.
    pub(crate) fn wait_for_room(&self, bytes: usize, bytes_max: usize) {
        let mut state = lock(&self.state);
        while !state.closed && state.bytes > 0 && state.bytes + bytes > bytes_max {
            state = self.drained.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// Ready when there may be room; until then the waker is kept.
    pub(crate) fn poll_room(&self, cx: &mut Context<'_>, bytes: usize, bytes_max: usize) -> Poll<()> {
        let mut state = lock(&self.state);
        if state.closed || state.bytes == 0 || state.bytes + bytes <= bytes_max {
            return Poll::Ready(());
        }
        if !state.waiting.iter().any(|waker| waker.will_wake(cx.waker())) {
            state.waiting.push(cx.waker().clone());
        }
        Poll::Pending
    }

    /// Takes no more batches; the committer ends when it has written those that wait.
    pub(crate) fn close(&self) {
        let waiting = {
            let mut state = lock(&self.state);
            state.closed = true;
            std::mem::take(&mut state.waiting)
        };
        self.filled.notify_all();
        self.drained.notify_all();
        waiting.into_iter().for_each(Waker::wake);
    }

    /// Takes what fits into one group.
    fn take(&self, writer: &Writer, out: &mut Vec<Pending>) {
        let mut state = lock(&self.state);
        let Some(first) = state.pending.front() else { return };
        let room = writer.room(first.append.disk_bytes());
        let mut bytes = 0;
        while let Some(next) = state.pending.front() {
            let size = next.append.disk_bytes();
            if bytes > 0 && bytes + size > room {
                break;
            }
            bytes += size;
            out.extend(state.pending.pop_front());
        }
        state.bytes -= bytes;
        let waiting = std::mem::take(&mut state.waiting);
        drop(state);
        self.drained.notify_all();
        waiting.into_iter().for_each(Waker::wake);
    }

    /// Sleeps until there is a batch, the time is over or the queue is closed. True if closed and empty.
    fn wait(&self, time_max: Option<Duration>) -> bool {
        let mut state = lock(&self.state);
        if state.pending.is_empty() && !state.closed {
            state.idle = true;
            state = match time_max {
                Some(time) => self.filled.wait_timeout(state, time).unwrap_or_else(PoisonError::into_inner).0,
                None => self.filled.wait(state).unwrap_or_else(PoisonError::into_inner),
            };
            state.idle = false;
        }
        state.closed && state.pending.is_empty()
    }
}

/// Runs until the queue is closed and empty. `committed` is called after each commit.
pub(crate) fn run(
    queue: &Queue,
    mut writer: Writer,
    mark_after: Duration,
    mut committed: impl FnMut(&Writer),
) {
    let mut group = Vec::new();
    let mut last_commit: Option<Instant> = None;
    loop {
        group.clear();
        queue.take(&writer, &mut group);
        if !group.is_empty() {
            commit(&mut writer, &mut group);
            committed(&writer);
            last_commit = Some(Instant::now());
            writer.sync_if_due();
            continue;
        }
        let idle = last_commit.map(|at| mark_after.saturating_sub(at.elapsed()));
        if idle.is_some_and(|left| left.is_zero()) {
            writer.mark();
            last_commit = None;
            continue;
        }
        let sync = writer.sync_if_due();
        if queue.wait(idle.into_iter().chain(sync).min()) {
            break;
        }
    }
    writer.mark();
}

/// Commits all that waits, on the calling thread.
pub(crate) fn drain(queue: &Queue, writer: &mut Writer) {
    let mut group = Vec::new();
    loop {
        group.clear();
        queue.take(writer, &mut group);
        if group.is_empty() {
            return;
        }
        commit(writer, &mut group);
    }
}

/// Commits a group and tells its producers, each once.
fn commit(writer: &mut Writer, group: &mut [Pending]) {
    // Stable: a producer's batches for one partition stay in order.
    group.sort_by_key(|pending| pending.append.partition);
    let outcomes = writer.commit(group.iter().map(|pending| pending.append.clone()).collect());

    let mut producers: Vec<(&Arc<dyn AckSink>, Vec<Ack>)> = Vec::new();
    let mut places: HashMap<*const (), usize> = HashMap::new();
    for (pending, outcome) in group.iter().zip(&outcomes) {
        let place = *places.entry(Arc::as_ptr(&pending.sink).cast()).or_insert_with(|| {
            producers.push((&pending.sink, Vec::new()));
            producers.len() - 1
        });
        producers[place].1.push(Ack { token: pending.token, outcome: outcome.clone() });
    }
    for (sink, acks) in producers {
        sink.acked(&acks);
    }
    writer.wake(outcomes.iter().flatten());
}
