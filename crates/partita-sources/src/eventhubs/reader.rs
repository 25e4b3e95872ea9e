//! Reads one partition.

use std::ops::Range;

use futures_util::future::BoxFuture;
use partita_core::model::{Event, LastEnqueued, PartitionId, Position, SequenceNumber};
use partita_core::source::{Gap, GapCause, Gaps, PartitionReader, SourceError};
use partita_dialect::event::{last_enqueued, received};

use super::EventHubsError;
use super::client::{Batch, ReaderEnd};

/// Decodes what the connection's task hands over: in the reader's own task, so that partitions decode in parallel.
#[derive(Debug)]
pub(super) struct Reader {
    link: ReaderEnd,
    partition: PartitionId,
    batch: std::vec::IntoIter<bytes::Bytes>,
    last_enqueued: Option<LastEnqueued>,
    place: ReadPosition,
}

/// Where the reader is in its partition, by the numbers of the events. A hub does not say that it passes over events that it
/// no longer has; the numbers do, because those of a partition follow one another. Partita's hub says so where a reader starts.
#[derive(Debug)]
struct ReadPosition {
    /// The number that is to come next. Not known before the first event where the start was no number, unless the hub says what
    /// it has lost there.
    next: Option<i64>,
    gaps: Gaps,
}

impl ReadPosition {
    /// `lost`: the numbers of the first events, if the hub said that they are lost.
    fn new(from: &Position, lost: Option<Range<i64>>) -> Self {
        let next = match from {
            // No event has a number below 0.
            Position::Sequence { sequence, inclusive } => {
                Some(sequence.0.saturating_add(i64::from(!inclusive)).max(0))
            }
            Position::Earliest | Position::Latest | Position::Offset { .. } | Position::Time(_) => None,
        };
        let mut place = Self { next, gaps: Gaps::new() };
        if let Some(lost) = lost {
            place.next = Some(next.unwrap_or(lost.start));
            place.jumped(SequenceNumber(lost.end));
            place.next = Some(lost.end);
        }
        place
    }

    /// Takes the number of the event that came.
    #[inline]
    fn came(&mut self, sequence: SequenceNumber) {
        if self.next != Some(sequence.0) {
            self.jumped(sequence);
        }
        self.next = Some(sequence.0.saturating_add(1));
    }

    #[cold]
    fn jumped(&mut self, sequence: SequenceNumber) {
        if let Some(next) = self.next.filter(|next| *next < sequence.0) {
            let from = Position::at_sequence(SequenceNumber(next));
            self.gaps.push(Gap { from, next: sequence, cause: GapCause::Unknown });
        }
    }
}

impl Reader {
    pub(super) fn new(
        link: ReaderEnd,
        partition: PartitionId,
        from: &Position,
        last_enqueued: Option<LastEnqueued>,
    ) -> Self {
        let (batch, place) = (Batch::new().into_iter(), ReadPosition::new(from, link.lost()));
        Self { link, partition, batch, last_enqueued, place }
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
                let which = match self.place.next {
                    Some(next) => format!("expected to be number {next}"),
                    None => "the first one read".to_owned(),
                };
                EventHubsError::fatal(format!(
                    "an event of partition {}, {which}, cannot be read: {error}",
                    self.partition
                ))
            })?;
            self.place.came(event.sequence_number());
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
        self.place.gaps.take()
    }

    fn last_enqueued(&self) -> Option<LastEnqueued> {
        self.last_enqueued.clone()
    }
}

#[cfg(test)]
mod tests {
    use partita_core::model::{Offset, Timestamp};

    use super::*;

    fn place(from: Position, numbers: &[i64]) -> Vec<std::ops::Range<i64>> {
        let mut place = ReadPosition::new(&from, None);
        numbers.iter().for_each(|number| place.came(SequenceNumber(*number)));
        std::iter::from_fn(|| place.gaps.take()).filter_map(|gap| gap.range()).collect()
    }

    #[test]
    fn a_reader_that_starts_later_than_asked_has_a_gap() {
        let seven = SequenceNumber(7);
        assert_eq!(place(Position::after_sequence(seven), &[9]), [8..9]);
        assert_eq!(place(Position::after_sequence(seven), &[8]), []);
        assert_eq!(place(Position::at_sequence(seven), &[7]), []);
        assert_eq!(place(Position::at_sequence(seven), &[8]), [7..8]);
        assert_eq!(place(Position::after_sequence(SequenceNumber(-2)), &[0]), []);
        assert_eq!(place(Position::Earliest, &[9]), []);
    }

    #[test]
    fn a_start_that_the_hub_says_to_be_lost_is_a_gap() {
        for from in
            [Position::Earliest, Position::at_offset(Offset::number(4_711)), Position::Time(Timestamp(5))]
        {
            let mut place = ReadPosition::new(&from, Some(3..9));
            assert_eq!(place.gaps.take().and_then(|gap| gap.range()), Some(3..9), "before any event comes");
            [9, 10].iter().for_each(|number| place.came(SequenceNumber(*number)));
            assert_eq!(place.gaps.take(), None, "once");
        }
        let mut place = ReadPosition::new(&Position::at_sequence(SequenceNumber(5)), Some(5..9));
        place.came(SequenceNumber(9));
        assert_eq!(place.gaps.take().and_then(|gap| gap.range()), Some(5..9));
        assert_eq!(place.gaps.take(), None);
    }

    #[test]
    fn every_gap_between_two_events_is_told_whatever_the_start() {
        for from in [
            Position::Earliest,
            Position::at_sequence(SequenceNumber(198)),
            Position::at_offset(Offset::number(4_711)),
            Position::Time(Timestamp(5)),
        ] {
            assert_eq!(place(from, &[198, 199, 56_328, 56_329, 56_331]), [200..56_328, 56_330..56_331]);
        }
    }
}
