//! What a reader shares with the connection's task: how much it took, and whether it is gone. Counters and no lock; the task
//! looks at them whenever it runs, and is woken when it matters.

use std::ops::Range;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use bytes::Bytes;
use tokio::sync::{Notify, mpsc};

use crate::eventhubs::EventHubsError;

/// Encoded events of one link, in order.
pub(crate) type Batch = Vec<Bytes>;

#[derive(Debug)]
pub(super) struct Window {
    taken_events: AtomicU64,
    taken_bytes: AtomicU64,
    gone: AtomicBool,
    /// Why no more events come.
    end: OnceLock<EventHubsError>,
    /// Wakes the connection's task.
    wake: Arc<Notify>,
}

impl Window {
    pub(super) fn new(wake: Arc<Notify>) -> Self {
        Self {
            taken_events: AtomicU64::new(0),
            taken_bytes: AtomicU64::new(0),
            gone: AtomicBool::new(false),
            end: OnceLock::new(),
            wake,
        }
    }

    /// How many events and bytes were taken in all.
    pub(super) fn taken(&self) -> (u64, u64) {
        (self.taken_events.load(Ordering::Relaxed), self.taken_bytes.load(Ordering::Relaxed))
    }

    pub(super) fn is_gone(&self) -> bool {
        self.gone.load(Ordering::Relaxed)
    }

    pub(super) fn end(&self, error: EventHubsError) {
        let _ = self.end.set(error);
    }
}

/// The reader's end of a link. Dropping it detaches the link.
#[derive(Debug)]
pub(crate) struct ReaderEnd {
    batches: mpsc::Receiver<Batch>,
    window: Arc<Window>,
    /// Half of the queue, in events and in bytes: so much is taken before the task is woken for it.
    half: (u64, u64),
    untold: (u64, u64),
    lost: Option<Range<i64>>,
}

impl ReaderEnd {
    pub(super) fn new(
        batches: mpsc::Receiver<Batch>,
        window: Arc<Window>,
        events_max: usize,
        bytes_max: usize,
    ) -> Self {
        let half = (events_max as u64 / 2, bytes_max as u64 / 2);
        Self { batches, window, half, untold: (0, 0), lost: None }
    }

    /// Notes that the hub has lost the events that the reader was to start with.
    pub(super) fn starts_lost(&mut self, lost: Range<i64>) {
        self.lost = Some(lost);
    }

    /// The numbers of the events that the reader was to start with, if the hub said that they are lost.
    pub(crate) fn lost(&self) -> Option<Range<i64>> {
        self.lost.clone()
    }

    /// The next events. Dropping the future loses none. After an error there is only that error.
    pub(crate) async fn next(&mut self) -> Result<Batch, EventHubsError> {
        if let Some(batch) = self.ready() {
            return Ok(batch);
        }
        // Before it waits, all that was taken must be known: there may be no credit left.
        if self.untold.0 > 0 {
            self.tell();
        }
        let batch = self.batches.recv().await;
        batch.ok_or_else(|| {
            let ended = || EventHubsError::retriable("the connection's task has ended");
            self.window.end.get().cloned().unwrap_or_else(ended)
        })
    }

    /// Events that are there already.
    pub(crate) fn ready(&mut self) -> Option<Batch> {
        self.batches.try_recv().ok()
    }

    /// Counts events as taken: there is room for as many.
    pub(crate) fn taken(&mut self, events: u64, bytes: u64) {
        self.window.taken_events.fetch_add(events, Ordering::Relaxed);
        self.window.taken_bytes.fetch_add(bytes, Ordering::Relaxed);
        self.untold.0 += events;
        self.untold.1 += bytes;
        if self.untold.0 >= self.half.0 || self.untold.1 >= self.half.1 {
            self.tell();
        }
    }

    fn tell(&mut self) {
        self.untold = (0, 0);
        self.window.wake.notify_one();
    }
}

impl Drop for ReaderEnd {
    fn drop(&mut self) {
        self.window.gone.store(true, Ordering::Relaxed);
        self.window.wake.notify_one();
    }
}
