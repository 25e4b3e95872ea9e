//! One reader: batches from the hub, events to the processor.

use std::collections::VecDeque;
use std::future::poll_fn;
use std::iter::Skip;

use futures_util::future::BoxFuture;
use partita_core::model::{Event, LastEnqueued, Offset, SequenceNumber, Timestamp};
use partita_core::source::{Gap, PartitionReader, SourceError};
use partita_dialect::event;

use super::error;
use super::fetch::Fetch;
use crate::broker::{HubReadError, HubReader};
use crate::log::StoredBatch;

/// One read takes at most this, whatever the prefetch: less waits behind it.
const READ_BYTES_MAX: usize = 1 << 20;
const READ_BYTES_MIN: usize = 16 << 10;

pub(super) struct Reader {
    fetch: Fetch,
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
            fetch: Fetch::new(reader),
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
            self.fill().await.map_err(error::of_read)?;
            // From here on nothing awaits, so that a dropped read has taken nothing.
            if self.take(events_max, out)? > 0 {
                return Ok(());
            }
        }
    }

    /// Waits until there are batches to take from.
    async fn fill(&mut self) -> Result<(), HubReadError> {
        self.fetch.check()?;
        if !self.batches.is_empty() {
            return Ok(());
        }
        let mut found = Vec::new();
        poll_fn(|cx| self.fetch.poll(cx, self.bytes_max, &mut found)).await?;
        // A batch shares its memory with all that was committed or read with it; kept like that, one event that
        // waits could hold megabytes.
        self.batches.extend(found.iter().map(StoredBatch::detached));
        if let Some(reader) = self.fetch.reader() {
            self.last_enqueued = reader.hub().last_enqueued(self.partition);
        }
        Ok(())
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

    fn take_gap(&mut self) -> Option<Gap> {
        self.fetch.take_gap()
    }

    fn last_enqueued(&self) -> Option<LastEnqueued> {
        self.last_enqueued.clone()
    }
}
