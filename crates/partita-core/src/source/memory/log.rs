//! The events of one partition, in chunks: full ones are shared with readers, which copy out of them without a lock.

use std::collections::VecDeque;
use std::sync::Arc;

use crate::model::{
    Event, EventBuilder, LastEnqueued, Offset, Position, SequenceNumber, StreamPosition, Timestamp,
};

/// Sequence numbers have no gaps, so chunk `n` holds exactly the events from `n * CHUNK_EVENTS`.
pub(super) const CHUNK_EVENTS: usize = 1_024;

/// Where a reader goes on.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Cursor {
    /// At a sequence number.
    At(i64),
    /// At the first event of this time or later, which is not there yet.
    NotBefore(Timestamp),
}

/// A run of events.
#[derive(Debug)]
pub(super) enum Run<'a> {
    /// In a full chunk, from an index.
    Shared(Arc<Vec<Event>>, usize),
    /// In the chunk that is still being written.
    Tail(&'a [Event]),
}

#[derive(Debug, Default)]
pub(super) struct Log {
    full: VecDeque<Arc<Vec<Event>>>,
    /// How many full chunks were trimmed away.
    chunks_gone: usize,
    tail: Vec<Event>,
    first: i64,
    /// The offset of the event before that one, which was trimmed away.
    gone_offset: Option<u64>,
    end: i64,
    end_offset: u64,
    enqueued_last: Timestamp,
}

impl Log {
    pub(super) fn append(&mut self, event: EventBuilder, now: Timestamp) -> StreamPosition {
        self.enqueued_last = self.enqueued_last.max(now);
        let event = event.at(SequenceNumber(self.end), Offset::number(self.end_offset), self.enqueued_last);
        // An empty event takes a byte, so that no two events share an offset.
        self.end_offset += (event.size() - size_of::<Event>()).max(1) as u64;
        self.end += 1;
        let position = event.position();
        if self.tail.capacity() == 0 {
            self.tail.reserve_exact(CHUNK_EVENTS);
        }
        self.tail.push(event);
        if self.tail.len() == CHUNK_EVENTS {
            self.full.push_back(Arc::new(std::mem::take(&mut self.tail)));
        }
        position
    }

    pub(super) fn len(&self) -> u64 {
        self.end.abs_diff(self.first)
    }

    /// Takes away the events before `sequence`.
    pub(super) fn trim(&mut self, sequence: i64) {
        let first = sequence.clamp(self.first, self.end);
        if first > self.first {
            self.gone_offset = self.event(first - 1).offset().as_number();
        }
        self.first = first;
        while self.full.front().is_some_and(|chunk| chunk[CHUNK_EVENTS - 1].sequence_number().0 < self.first)
        {
            self.full.pop_front();
            self.chunks_gone += 1;
        }
    }

    /// Finds the place that `position` names, or says why there is none.
    pub(super) fn locate(&self, position: &Position) -> Result<Cursor, String> {
        match position {
            Position::Earliest => Ok(Cursor::At(self.first)),
            Position::Latest => Ok(Cursor::At(self.end)),
            Position::Time(time) => Ok(Cursor::NotBefore(*time)),
            Position::Sequence { sequence, inclusive } => {
                let wanted = sequence.0.saturating_add(i64::from(!inclusive));
                if wanted > self.end {
                    return Err(format!(
                        "no sequence number {sequence} yet: the last one is {}",
                        self.end - 1
                    ));
                }
                Ok(Cursor::At(wanted))
            }
            Position::Offset { offset, inclusive } => {
                let bytes = offset.as_number().ok_or_else(|| format!("no offset {offset}: not a number"))?;
                if bytes.saturating_add(u64::from(!inclusive)) > self.end_offset {
                    return Err(format!("no offset {offset} yet: the partition ends at {}", self.end_offset));
                }
                Ok(Cursor::At(self.first_where(|event| {
                    event.offset().as_number().is_some_and(|at| at > bytes || (at == bytes && *inclusive))
                })))
            }
        }
    }

    /// The oldest event, if `position` is an offset of an event that was trimmed away.
    pub(super) fn trimmed_offset(&self, position: &Position) -> Option<SequenceNumber> {
        let Position::Offset { offset, inclusive } = position else { return None };
        let wanted = offset.as_number()?.saturating_add(u64::from(!inclusive));
        self.gone_offset.is_some_and(|gone| wanted <= gone).then_some(SequenceNumber(self.first))
    }

    /// The events at `cursor` that are together in memory; moves it to the first of them.
    pub(super) fn run(&self, cursor: &mut Cursor) -> Run<'_> {
        let from = match *cursor {
            // What was trimmed away is skipped, as after retention.
            Cursor::At(sequence) => sequence.max(self.first),
            Cursor::NotBefore(time) => self.first_where(|event| event.enqueued_time() >= time),
        };
        if from >= self.end {
            return Run::Tail(&[]);
        }
        *cursor = Cursor::At(from);
        let (chunk, index) = self.place(from);
        match self.full.get(chunk) {
            Some(events) => Run::Shared(Arc::clone(events), index),
            None => Run::Tail(&self.tail[index..]),
        }
    }

    /// The end of the partition.
    pub(super) fn last_enqueued(&self) -> LastEnqueued {
        let last = (self.first < self.end).then(|| self.event(self.end - 1));
        LastEnqueued {
            position: last.map(Event::position),
            enqueued_time: last.map(Event::enqueued_time),
            retrieved: Timestamp::now(),
        }
    }

    /// The first sequence number whose event passes `test`, which no event before it does; else the end.
    fn first_where(&self, test: impl Fn(&Event) -> bool) -> i64 {
        let (mut low, mut high) = (self.first, self.end);
        while low < high {
            let middle = low + (high - low) / 2;
            if test(self.event(middle)) {
                high = middle;
            } else {
                low = middle + 1;
            }
        }
        low
    }

    fn event(&self, sequence: i64) -> &Event {
        let (chunk, index) = self.place(sequence);
        &self.full.get(chunk).map_or(&self.tail, |events| &**events)[index]
    }

    fn place(&self, sequence: i64) -> (usize, usize) {
        let sequence = usize::try_from(sequence).expect("sequence numbers count from 0");
        (sequence / CHUNK_EVENTS - self.chunks_gone, sequence % CHUNK_EVENTS)
    }
}
