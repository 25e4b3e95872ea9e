//! Reads one partition.

use futures_util::future::BoxFuture;
use partita_amqp::event::{last_enqueued, received};
use partita_core::model::{Event, LastEnqueued, PartitionId, SequenceNumber};
use partita_core::source::{PartitionReader, SourceError};

use super::EventHubsError;
use super::client::{Batch, ReaderEnd};

/// Decodes what the connection's task hands over: in the reader's own task, so that partitions decode in parallel.
#[derive(Debug)]
pub(super) struct Reader {
    link: ReaderEnd,
    partition: PartitionId,
    batch: std::vec::IntoIter<bytes::Bytes>,
    last_enqueued: Option<LastEnqueued>,
    last: Option<SequenceNumber>,
}

impl Reader {
    pub(super) fn new(link: ReaderEnd, partition: PartitionId, last_enqueued: Option<LastEnqueued>) -> Self {
        Self { link, partition, batch: Batch::new().into_iter(), last_enqueued, last: None }
    }

    /// Decodes up to `events_max` events of the batch at hand.
    fn take(&mut self, events_max: usize, out: &mut Vec<Event>) -> Result<(), EventHubsError> {
        let count = events_max.min(self.batch.len());
        if count == 0 {
            return Ok(());
        }
        out.reserve(count);
        let mut bytes = 0;
        for at in 0..count {
            let Some(payload) = self.batch.next() else { break };
            bytes += payload.len() as u64;
            // All of a batch say about the same; the last one knows best.
            if at + 1 == count
                && let Some(end) = last_enqueued(&payload)
            {
                self.last_enqueued = Some(end);
            }
            let event = received(&payload).map_err(|error| {
                let after =
                    self.last.map_or("the first one read".into(), |last| format!("the one after {last}"));
                EventHubsError::fatal(format!(
                    "an event of partition {}, {after}, cannot be read: {error}",
                    self.partition
                ))
            })?;
            self.last = Some(event.sequence_number());
            out.push(event);
        }
        self.link.taken(count as u64, bytes);
        Ok(())
    }
}

impl PartitionReader for Reader {
    fn read<'a>(
        &'a mut self,
        events_max: usize,
        out: &'a mut Vec<Event>,
    ) -> BoxFuture<'a, Result<(), SourceError>> {
        Box::pin(async move {
            if self.batch.len() == 0 {
                self.batch = self.link.next().await?.into_iter();
            }
            let end = out.len() + events_max;
            while out.len() < end {
                self.take(end - out.len(), out)?;
                if self.batch.len() == 0 {
                    match self.link.ready() {
                        Some(batch) => self.batch = batch.into_iter(),
                        None => break,
                    }
                }
            }
            Ok(())
        })
    }

    fn last_enqueued(&self) -> Option<LastEnqueued> {
        self.last_enqueued.clone()
    }
}
