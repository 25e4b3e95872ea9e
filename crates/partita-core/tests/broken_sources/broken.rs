//! A source in memory with one fault, each a mistake that a real source has made or could make.

use futures_util::future::BoxFuture;
use partita_core::model::{ConsumerGroup, Event, LastEnqueued, PartitionId, Position};
use partita_core::source::{
    EventSource, Gap, HubDescription, MemorySource, PartitionReader, ReadRequest, SourceError,
    SourceErrorKind,
};

#[derive(Clone, Copy, PartialEq, Debug)]
pub(crate) enum Fault {
    None,
    PartitionToldTwice,
    EventSkipped,
    EventRepeated,
    AlwaysInclusive,
    OnePartition,
    TimeIgnored,
    LimitIgnored,
    EndNotTold,
    PropertiesLost,
    EndIsTheLimit,
    GapNotTold,
    GapToldAtStartOnly,
    LastGapOnly,
    LatestIsEarliest,
    NeverWoken,
    DroppedReadLoses,
    LevelsIgnored,
    DropKeepsLevel,
    GroupIgnored,
}

pub(crate) struct Broken {
    pub(crate) inner: MemorySource,
    pub(crate) fault: Fault,
}

impl EventSource for Broken {
    fn describe(&self) -> BoxFuture<'_, Result<HubDescription, SourceError>> {
        Box::pin(async {
            let mut description = self.inner.describe().await?;
            if self.fault == Fault::PartitionToldTwice {
                description.partitions.push(PartitionId::from(0));
            }
            Ok(description)
        })
    }

    fn open(&self, mut request: ReadRequest) -> BoxFuture<'_, Result<Box<dyn PartitionReader>, SourceError>> {
        Box::pin(async move {
            match (self.fault, &mut request.from) {
                (
                    Fault::AlwaysInclusive,
                    Position::Sequence { inclusive, .. } | Position::Offset { inclusive, .. },
                ) => {
                    *inclusive = true;
                }
                (Fault::TimeIgnored, from @ Position::Time(_)) => *from = Position::Earliest,
                (Fault::LatestIsEarliest, from @ Position::Latest) => *from = Position::Earliest,
                (Fault::OnePartition, _) => request.partition = PartitionId::from(0),
                (Fault::LevelsIgnored, _) => request.owner_level = None,
                (Fault::GroupIgnored, _) => request.group = ConsumerGroup::default(),
                _ => {}
            }
            let opened = match self.inner.open(request.clone()).await {
                Err(error)
                    if self.fault == Fault::EndIsTheLimit
                        && error.kind() == SourceErrorKind::PositionGone =>
                {
                    self.inner.open(ReadRequest { from: Position::Latest, ..request }).await
                }
                opened => opened,
            };
            Ok(Box::new(BrokenReader { inner: opened?, fault: self.fault, events: 0 })
                as Box<dyn PartitionReader>)
        })
    }
}

struct BrokenReader {
    inner: Box<dyn PartitionReader>,
    fault: Fault,
    events: usize,
}

impl BrokenReader {
    async fn broken_read(&mut self, events_max: usize, out: &mut Vec<Event>) -> Result<(), SourceError> {
        let events_max = if self.fault == Fault::LimitIgnored { events_max + 1 } else { events_max };
        let before = out.len();
        match self.fault {
            Fault::NeverWoken => {
                let read = self.inner.read(events_max, out);
                // Looks once, and then waits for nothing.
                match futures_util::FutureExt::now_or_never(read) {
                    Some(answer) => answer?,
                    None => std::future::pending().await,
                }
            }
            Fault::DroppedReadLoses => {
                let mut taken = Vec::new();
                self.inner.read(events_max, &mut taken).await?;
                tokio::task::yield_now().await;
                out.extend(taken);
            }
            _ => self.inner.read(events_max, out).await?,
        }
        let crossed = (self.events..self.events + out.len() - before).contains(&777);
        self.events += out.len() - before;
        match self.fault {
            Fault::EventSkipped if crossed => drop(out.remove(before)),
            Fault::EventRepeated if crossed => out.push(out[out.len() - 1].clone()),
            Fault::PropertiesLost => {
                for event in &mut out[before..] {
                    let system = event.system().clone();
                    let bare = Event::builder(event.body().clone());
                    *event = bare.at(system.sequence_number, system.offset, system.enqueued_time);
                }
            }
            _ => {}
        }
        Ok(())
    }
}

impl PartitionReader for BrokenReader {
    fn read<'a>(
        &'a mut self,
        events_max: usize,
        out: &'a mut Vec<Event>,
    ) -> BoxFuture<'a, Result<(), SourceError>> {
        Box::pin(self.broken_read(events_max, out))
    }

    fn take_gap(&mut self) -> Option<Gap> {
        match self.fault {
            Fault::GapNotTold => None,
            Fault::GapToldAtStartOnly if self.events > 1 => None,
            Fault::LastGapOnly => std::iter::from_fn(|| self.inner.take_gap()).last(),
            _ => self.inner.take_gap(),
        }
    }

    fn last_enqueued(&self) -> Option<LastEnqueued> {
        if self.fault == Fault::EndNotTold { None } else { self.inner.last_enqueued() }
    }
}

impl Drop for BrokenReader {
    fn drop(&mut self) {
        if self.fault == Fault::DropKeepsLevel {
            std::mem::forget(std::mem::replace(&mut self.inner, Box::new(Gone)));
        }
    }
}

/// Stands where a reader was.
struct Gone;

impl PartitionReader for Gone {
    fn read<'a>(&'a mut self, _: usize, _: &'a mut Vec<Event>) -> BoxFuture<'a, Result<(), SourceError>> {
        Box::pin(std::future::pending())
    }
}
