//! A hub without a hub: every process generates the same events.

use futures_util::future::BoxFuture;
use partita_core::model::{
    Event, HubName, Namespace, Offset, PartitionId, Position, SequenceNumber, StreamId, Timestamp,
};
use partita_core::source::{
    EventSource, HubDescription, PartitionReader, ReadRequest, SourceError, SourceErrorKind,
};

/// Partitions of `events` events each, all there from the beginning.
#[derive(Clone, Copy)]
pub(crate) struct Clockwork {
    pub(crate) partitions: u32,
    pub(crate) events: i64,
}

impl Clockwork {
    pub(crate) fn description(self) -> HubDescription {
        HubDescription {
            namespace: Namespace::new("clockwork"),
            hub: HubName::new("hub"),
            stream: Some(StreamId::new("only")),
            partitions: (0..self.partitions).map(PartitionId::from).collect(),
        }
    }
}

impl EventSource for Clockwork {
    fn describe(&self) -> BoxFuture<'_, Result<HubDescription, SourceError>> {
        Box::pin(std::future::ready(Ok(self.description())))
    }

    fn open(&self, request: ReadRequest) -> BoxFuture<'_, Result<Box<dyn PartitionReader>, SourceError>> {
        let next = match request.from {
            Position::Earliest => Ok(0),
            Position::Sequence { sequence, inclusive } => Ok(sequence.0 + i64::from(!inclusive)),
            other => Err(SourceError::new(SourceErrorKind::Fatal, format!("no such position: {other}"))),
        };
        let reader = next.map(|next| Box::new(Reader { next, end: self.events }) as Box<dyn PartitionReader>);
        Box::pin(std::future::ready(reader))
    }
}

struct Reader {
    next: i64,
    end: i64,
}

impl PartitionReader for Reader {
    fn read<'a>(
        &'a mut self,
        events_max: usize,
        out: &'a mut Vec<Event>,
    ) -> BoxFuture<'a, Result<(), SourceError>> {
        if self.next >= self.end {
            return Box::pin(std::future::pending());
        }
        let upto = self.end.min(self.next + events_max as i64);
        out.extend((self.next..upto).map(|n| {
            Event::builder(format!("event {n}")).at(SequenceNumber(n), Offset::number(n as u64), Timestamp(n))
        }));
        self.next = upto;
        Box::pin(std::future::ready(Ok(())))
    }
}
