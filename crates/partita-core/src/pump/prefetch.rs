//! The reader and the queue in front of the handler, bounded in events and in bytes.

use std::collections::VecDeque;
use std::future::Future;
use std::panic::AssertUnwindSafe;

use futures_util::FutureExt;

use crate::model::{Event, LastEnqueued};
use crate::source::{Gap, PartitionReader, SourceError, SourceErrorKind};

pub(super) struct Prefetch {
    reader: Option<Box<dyn PartitionReader>>,
    queue: VecDeque<Event>,
    queue_bytes: usize,
    /// What was read while the queue was lent to the handler.
    arrived: Vec<Event>,
    /// Whether something was read since that was last asked.
    heard: bool,
    events_max: usize,
    bytes_max: usize,
    /// How large the largest event of the last read was; before the first, a guess that asks for a batch.
    event_bytes: usize,
}

impl Prefetch {
    pub(super) fn new(events_max: usize, bytes_max: usize, batch_size: usize) -> Self {
        Self {
            reader: None,
            queue: VecDeque::new(),
            queue_bytes: 0,
            arrived: Vec::new(),
            heard: false,
            events_max,
            bytes_max,
            event_bytes: (bytes_max / batch_size).max(1),
        }
    }

    /// How many events to ask for: a reader counts events only, so bytes are foretold by those of the last read.
    fn room(&self) -> usize {
        let events = self.events_max.saturating_sub(self.queue.len());
        match self.bytes_max.saturating_sub(self.queue_bytes) {
            0 => 0,
            bytes => events.min((bytes / self.event_bytes).max(1)),
        }
    }

    pub(super) fn attach(&mut self, reader: Box<dyn PartitionReader>) {
        self.reader = Some(reader);
    }

    pub(super) fn is_attached(&self) -> bool {
        self.reader.is_some()
    }

    /// Drops the reader and everything that was read and not handled.
    pub(super) fn detach(&mut self) {
        self.reader = None;
        self.queue.clear();
        self.queue_bytes = 0;
        self.arrived.clear();
    }

    /// The oldest gap not asked for yet: events that the reader had to pass over.
    pub(super) fn take_gap(&mut self) -> Option<Gap> {
        self.reader.as_mut()?.take_gap()
    }

    pub(super) fn last_enqueued(&self) -> Option<LastEnqueued> {
        self.reader.as_ref()?.last_enqueued()
    }

    /// Whether something was read since this was last asked.
    pub(super) fn has_heard(&mut self) -> bool {
        std::mem::take(&mut self.heard)
    }

    /// The next event.
    pub(super) fn first(&self) -> Option<&Event> {
        self.queue.front()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.queue.is_empty()
    }

    /// Whether it is time to read more, rather than to wait until the queue has run dry.
    pub(super) fn is_low(&self) -> bool {
        self.queue.len() * 2 <= self.events_max && self.queue_bytes * 2 <= self.bytes_max
    }

    /// The next events, without taking them, and a way to read on meanwhile.
    pub(super) fn batch(&mut self, size_max: usize) -> (&[Event], ReadAhead<'_>) {
        let room = self.room();
        // The queue is a ring: where it wraps, a batch would come out short.
        if self.queue.as_slices().0.len() < size_max.min(self.queue.len()) {
            self.queue.make_contiguous();
        }
        let (front, _) = self.queue.as_slices();
        let batch = &front[..front.len().min(size_max)];
        let reader = if room > 0 { self.reader.as_deref_mut() } else { None };
        (batch, ReadAhead { reader, arrived: &mut self.arrived, events_max: room })
    }

    /// Forgets the first events: they were handled. Tells how many bytes they held.
    pub(super) fn consume(&mut self, events: usize) -> usize {
        let bytes = self.queue.iter().take(events).map(Event::size).sum();
        self.queue.drain(..events);
        self.queue_bytes -= bytes;
        bytes
    }

    /// Waits for events and queues them. Dropping the future loses none.
    pub(super) async fn read(&mut self) -> Result<(), SourceError> {
        self.settle();
        let room = self.room();
        if room == 0 {
            return Ok(());
        }
        let Some(reader) = &mut self.reader else { return Ok(()) };
        let result = guarded(async { reader.read(room, &mut self.arrived).await }).await;
        self.settle();
        result
    }

    /// Queues what has arrived.
    pub(super) fn settle(&mut self) {
        if !self.arrived.is_empty() {
            self.heard = true;
            self.event_bytes = 0;
            for size in self.arrived.iter().map(Event::size) {
                self.queue_bytes += size;
                self.event_bytes = self.event_bytes.max(size);
            }
            self.queue.extend(self.arrived.drain(..));
        }
    }
}

/// A reader that panics has failed, and is replaced like one that says so.
async fn guarded(read: impl Future<Output = Result<(), SourceError>>) -> Result<(), SourceError> {
    AssertUnwindSafe(read)
        .catch_unwind()
        .await
        .unwrap_or_else(|_| Err(SourceError::new(SourceErrorKind::Retriable, "the reader panicked")))
}

/// Reads on while the handler has the queue.
pub(super) struct ReadAhead<'a> {
    reader: Option<&'a mut (dyn PartitionReader + 'static)>,
    arrived: &'a mut Vec<Event>,
    events_max: usize,
}

impl ReadAhead<'_> {
    /// Reads once; never completes if there is no room.
    pub(super) async fn read(self) -> Result<(), SourceError> {
        match self.reader {
            Some(reader) if self.arrived.is_empty() => {
                guarded(async { reader.read(self.events_max, self.arrived).await }).await
            }
            _ => std::future::pending().await,
        }
    }
}
