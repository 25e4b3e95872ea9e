//! One reader: batches from the hub, events to the processor.

use std::collections::VecDeque;
use std::future::poll_fn;
use std::iter::Skip;

use futures_util::future::BoxFuture;
use partita_amqp::event;
use partita_core::model::{Event, LastEnqueued, Offset, SequenceNumber, Timestamp};
use partita_core::source::{PartitionReader, SourceError};
use tokio::task::{JoinHandle, spawn_blocking};

use super::error;
use crate::broker::{HubReadError, HubReader};
use crate::log::{ReadError, StoredBatch};

/// One read takes at most this, whatever the prefetch: less waits behind it.
const READ_BYTES_MAX: usize = 1 << 20;
const READ_BYTES_MIN: usize = 16 << 10;

/// The hub's reader, what it has read, and how that went.
type Read = (HubReader, Vec<StoredBatch>, Result<(), HubReadError>);

/// Where the hub's reader is.
enum Place {
    Here(HubReader),
    /// On a blocking thread, reading the disk. A read that was dropped meanwhile is taken up by the next.
    Away(JoinHandle<Read>),
    /// It failed before.
    Gone,
}

pub(super) struct Reader {
    place: Place,
    partition: u32,
    /// What was read and not yet taken, in memory of its own.
    batches: VecDeque<StoredBatch>,
    /// How many events of the first batch were taken.
    taken: usize,
    /// Events before this time are passed over; time never falls, so only until the first one that is not.
    not_before: Option<i64>,
    bytes_max: usize,
    last_enqueued: Option<LastEnqueued>,
}

impl Reader {
    pub(super) fn new(reader: HubReader, prefetch_bytes: usize, not_before: Option<i64>) -> Self {
        let partition = reader.partition();
        let last_enqueued = reader.hub().last_enqueued(partition);
        Self {
            place: Place::Here(reader),
            partition,
            batches: VecDeque::new(),
            taken: 0,
            not_before,
            bytes_max: prefetch_bytes.clamp(READ_BYTES_MIN, READ_BYTES_MAX),
            last_enqueued,
        }
    }

    async fn next_events(&mut self, events_max: usize, out: &mut Vec<Event>) -> Result<(), SourceError> {
        // A long log is always ready; without this a reader could keep its thread to itself.
        tokio::task::coop::consume_budget().await;
        if events_max == 0 {
            return Ok(());
        }
        loop {
            let result = self.fill().await;
            if let Err(error) = result {
                self.place = Place::Gone;
                return Err(error::of_read(error));
            }
            // From here on nothing awaits, so that a dropped read has taken nothing.
            if self.take(events_max, out)? > 0 {
                return Ok(());
            }
        }
    }

    /// Waits until there are batches to take from.
    async fn fill(&mut self) -> Result<(), HubReadError> {
        loop {
            match &mut self.place {
                Place::Gone => return Err(ReadError::Closed.into()),
                Place::Here(reader) => {
                    reader.check()?;
                    if !self.batches.is_empty() {
                        return Ok(());
                    }
                    poll_fn(|cx| reader.poll_ready(cx)).await;
                    let mut found = Vec::new();
                    if reader.read_cached(self.bytes_max, &mut found)? {
                        self.keep(&found);
                    } else {
                        self.read_disk()?;
                    }
                }
                Place::Away(reading) => {
                    let Ok(read) = reading.await else {
                        // The runtime is shutting down.
                        return Err(ReadError::Closed.into());
                    };
                    self.take_back(read)?;
                }
            }
        }
    }

    /// Sends the hub's reader to a blocking thread, or reads here if the hub works without threads.
    fn read_disk(&mut self) -> Result<(), HubReadError> {
        let bytes_max = self.bytes_max;
        if let Place::Here(mut reader) = std::mem::replace(&mut self.place, Place::Gone) {
            let here = reader.hub().log().is_single_threaded();
            let read = move || {
                let mut found = Vec::new();
                let result = reader.read(bytes_max, &mut found);
                (reader, found, result)
            };
            if here {
                return self.take_back(read());
            }
            self.place = Place::Away(spawn_blocking(read));
        }
        Ok(())
    }

    /// Takes the hub's reader back, with what it has read.
    fn take_back(&mut self, (reader, found, result): Read) -> Result<(), HubReadError> {
        self.place = Place::Here(reader);
        self.keep(&found);
        match result {
            Err(HubReadError::Log(gone @ ReadError::Gone { first, .. })) => {
                self.skip_to(first, &gone);
                Ok(())
            }
            other => other,
        }
    }

    fn keep(&mut self, found: &[StoredBatch]) {
        // A batch shares its memory with all that was committed or read with it; kept like that, one event that
        // waits could hold megabytes.
        self.batches.extend(found.iter().map(StoredBatch::detached));
        if let Place::Here(reader) = &self.place {
            self.last_enqueued = reader.hub().last_enqueued(self.partition);
        }
    }

    /// Retention overtook the reader.
    fn skip_to(&mut self, first: u64, gone: &ReadError) {
        if let Place::Here(reader) = &mut self.place {
            tracing::warn!(hub = %reader.hub().name(), %gone, "reader goes on at the oldest event");
            reader.seek(first);
        }
    }

    /// Appends up to `events_max` events; tells how many.
    fn take(&mut self, events_max: usize, out: &mut Vec<Event>) -> Result<usize, SourceError> {
        let before = out.len();
        while let Some(batch) = self.batches.front() {
            let room = events_max - (out.len() - before);
            let late = self.not_before.is_some_and(|time| batch.time_ms() < time);
            if !late {
                self.not_before = None;
                let events: Skip<_> = batch.events().skip(self.taken);
                for stored in events.take(room) {
                    let content = event::decode(&batch.share(&stored));
                    let content = match content {
                        Ok(content) => content,
                        // What comes before it is delivered first.
                        Err(_) if out.len() > before => return Ok(out.len() - before),
                        Err(error) => return Err(error::not_a_message(stored.seq, error)),
                    };
                    out.push(content.at(
                        SequenceNumber(stored.seq.cast_signed()),
                        Offset::number(stored.offset),
                        Timestamp(stored.time_ms),
                    ));
                    self.taken += 1;
                }
                if self.taken < batch.len() {
                    break;
                }
            }
            self.taken = 0;
            self.batches.pop_front();
        }
        Ok(out.len() - before)
    }
}

impl PartitionReader for Reader {
    fn read<'a>(
        &'a mut self,
        events_max: usize,
        out: &'a mut Vec<Event>,
    ) -> BoxFuture<'a, Result<(), SourceError>> {
        Box::pin(self.next_events(events_max, out))
    }

    fn last_enqueued(&self) -> Option<LastEnqueued> {
        self.last_enqueued.clone()
    }
}
