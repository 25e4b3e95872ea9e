//! Reads one partition.

use futures_util::future::BoxFuture;
use partita_amqp::event::{last_enqueued, received};
use partita_core::model::{Event, LastEnqueued, PartitionId, Position, SequenceNumber};
use partita_core::source::{Gap, GapCause, PartitionReader, SourceError};

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
    /// Where it was to start, until the first event shows where it did.
    from: Option<Position>,
    gap: Option<Gap>,
}

/// What lies between where a reader was to start and the first event that it got. A hub does not say that it starts later.
fn gap(from: Position, first: SequenceNumber) -> Option<Gap> {
    let Position::Sequence { sequence, inclusive } = &from else { return None };
    let next = sequence.0.saturating_add(i64::from(!inclusive));
    (first.0 > next.max(0)).then_some(Gap { from, next: first, cause: GapCause::Retention })
}

impl Reader {
    pub(super) fn new(
        link: ReaderEnd,
        partition: PartitionId,
        from: Position,
        last_enqueued: Option<LastEnqueued>,
    ) -> Self {
        let batch = Batch::new().into_iter();
        Self { link, partition, batch, last_enqueued, last: None, from: Some(from), gap: None }
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
            if let Some(from) = self.from.take() {
                self.gap = gap(from, event.sequence_number());
            }
            // Numbers have no holes, unless the hub passed over events: overtaken by retention, or lost and given up.
            if let Some(last) = self.last.filter(|last| event.sequence_number().0 > last.0.saturating_add(1))
            {
                let next = event.sequence_number();
                self.gap = Some(Gap { from: Position::after_sequence(last), next, cause: GapCause::Unknown });
            }
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

    fn take_gap(&mut self) -> Option<Gap> {
        self.gap.take()
    }

    fn last_enqueued(&self) -> Option<LastEnqueued> {
        self.last_enqueued.clone()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reader_that_starts_later_than_asked_has_a_gap() {
        let (seven, nine) = (SequenceNumber(7), SequenceNumber(9));
        let after = Position::after_sequence(seven);
        assert_eq!(
            gap(after.clone(), nine),
            Some(Gap { from: after.clone(), next: nine, cause: GapCause::Retention })
        );
        assert_eq!(gap(after, SequenceNumber(8)), None);
        assert_eq!(gap(Position::at_sequence(seven), seven), None);
        assert!(gap(Position::at_sequence(seven), SequenceNumber(8)).is_some());
        assert_eq!(gap(Position::Earliest, nine), None);
    }
}
