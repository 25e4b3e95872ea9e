//! The hub in memory: for tests, demos and benchmarks, with faults to order.

mod log;
mod partition;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

use futures_util::future::BoxFuture;

use self::log::{CHUNK_EVENTS, Cursor};
use self::partition::{Attachment, Partition};
use super::{EventSource, Gap, HubDescription, PartitionReader, ReadRequest, SourceError, SourceErrorKind};
use crate::model::{
    Event, EventBuilder, HubName, LastEnqueued, Namespace, PartitionId, SequenceNumber, StreamId,
    StreamPosition, Timestamp,
};

/// A hub in memory. Clones are the same hub; [`MemoryHub::source`] is what a processor reads from.
///
/// It behaves as Event Hubs does: sequence numbers count from 0, an offset is the byte position in the partition,
/// times never go back, a position before the oldest event reads from the oldest (and the reader tells the gap), and a reader with an owner level
/// evicts those of an equal or lower one and those without.
///
/// Methods that take a partition panic if the hub has no such partition.
#[derive(Clone, Debug)]
pub struct MemoryHub(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    name: HubName,
    data: RwLock<Data>,
    reachable: AtomicBool,
}

#[derive(Debug)]
struct Data {
    stream: StreamId,
    partitions: BTreeMap<PartitionId, Arc<Partition>>,
}

impl MemoryHub {
    /// The namespace of all hubs in memory.
    pub const NAMESPACE: &'static str = "memory";

    /// An empty hub with partitions `0`, `1` and so on.
    pub fn new(name: impl Into<HubName>, partitions: u32) -> Self {
        let data = Data { stream: new_stream(), partitions: BTreeMap::new() };
        let hub = Self(Arc::new(Shared {
            name: name.into(),
            data: RwLock::new(data),
            reachable: AtomicBool::new(true),
        }));
        hub.add_partitions(partitions);
        hub
    }

    /// A source that reads this hub.
    pub fn source(&self) -> MemorySource {
        MemorySource { hub: self.clone() }
    }

    /// What the hub says about itself, reachable or not.
    pub fn description(&self) -> HubDescription {
        let data = self.data();
        HubDescription {
            namespace: Namespace::new(Self::NAMESPACE),
            hub: self.0.name.clone(),
            stream: Some(data.stream.clone()),
            partitions: data.partitions.keys().cloned().collect(),
        }
    }

    /// Adds `count` partitions to those there are.
    pub fn add_partitions(&self, count: u32) {
        let mut data = self.data_mut();
        let first = u32::try_from(data.partitions.len()).expect("partitions are counted by a u32");
        for number in first..first + count {
            data.partitions.insert(PartitionId::from(number), Arc::default());
        }
    }

    /// Appends an event and tells its place.
    pub fn append(&self, partition: &PartitionId, event: EventBuilder) -> StreamPosition {
        self.append_at(partition, event, Timestamp::now())
    }

    /// Appends an event as if it were this time, or the last event's if that is later.
    pub fn append_at(&self, partition: &PartitionId, event: EventBuilder, time: Timestamp) -> StreamPosition {
        let data = self.data();
        find(&data, partition).append([(event, time)]).expect("one event was appended")
    }

    /// Appends events in order and tells the last one's place, or none if there were none. Takes the partition's
    /// lock once for many of them.
    pub fn append_all(
        &self,
        partition: &PartitionId,
        events: impl IntoIterator<Item = EventBuilder>,
    ) -> Option<StreamPosition> {
        let mut events = events.into_iter();
        let mut last = None;
        loop {
            // Collected first: the caller's iterator must not run while the partition is locked.
            let chunk: Vec<EventBuilder> = events.by_ref().take(CHUNK_EVENTS).collect();
            if chunk.is_empty() {
                return last;
            }
            let now = Timestamp::now();
            last = find(&self.data(), partition).append(chunk.into_iter().map(|event| (event, now)));
        }
    }

    /// How many events the partition holds.
    pub fn len(&self, partition: &PartitionId) -> u64 {
        find(&self.data(), partition).len()
    }

    /// Up to `events_max` events from `from` on, or from the oldest one if that is later: for a recount.
    pub fn events(&self, partition: &PartitionId, from: SequenceNumber, events_max: usize) -> Vec<Event> {
        let data = self.data();
        let partition = find(&data, partition);
        let mut events = Vec::new();
        let mut cursor = Cursor::At(from.0);
        while events.len() < events_max
            && partition.copy(&mut cursor, events_max - events.len(), &mut events) > 0
        {}
        events
    }

    /// Takes away the events before `before`, as retention does.
    pub fn trim(&self, partition: &PartitionId, before: SequenceNumber) {
        find(&self.data(), partition).trim(before.0);
    }

    /// Empties the hub and begins a new life of it: another stream id, sequence numbers from 0, readers detached.
    pub fn reset(&self) {
        let mut data = self.data_mut();
        data.stream = new_stream();
        for partition in data.partitions.values() {
            partition.reset("the hub was reset");
        }
    }

    /// Makes the partition's readers fail at their next read, or now if they wait.
    pub fn fail_readers(&self, partition: &PartitionId, kind: SourceErrorKind, message: &str) {
        find(&self.data(), partition).end_readers(kind, message);
    }

    /// Cuts the hub off: readers are detached, and all calls fail with an error that says to try again, until it is
    /// reachable again. Appending goes on: producers sit elsewhere.
    pub fn set_reachable(&self, reachable: bool) {
        self.0.reachable.store(reachable, Ordering::SeqCst);
        if !reachable {
            for partition in self.data().partitions.values() {
                partition.end_readers(SourceErrorKind::Retriable, UNREACHABLE);
            }
        }
    }

    fn data(&self) -> RwLockReadGuard<'_, Data> {
        self.0.data.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn data_mut(&self) -> RwLockWriteGuard<'_, Data> {
        self.0.data.write().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Reads a [`MemoryHub`].
#[derive(Clone, Debug)]
pub struct MemorySource {
    hub: MemoryHub,
}

impl EventSource for MemorySource {
    fn describe(&self) -> BoxFuture<'_, Result<HubDescription, SourceError>> {
        Box::pin(async {
            if self.hub.0.reachable.load(Ordering::SeqCst) {
                Ok(self.hub.description())
            } else {
                Err(unreachable())
            }
        })
    }

    fn open(&self, request: ReadRequest) -> BoxFuture<'_, Result<Box<dyn PartitionReader>, SourceError>> {
        Box::pin(async move {
            let data = self.hub.data();
            let Some(partition) = data.partitions.get(&request.partition) else {
                let why = format!("no partition {:?} in hub {:?}", request.partition, self.hub.0.name);
                return Err(SourceError::new(SourceErrorKind::Fatal, why));
            };
            let attachment = partition.attach(&request, &self.hub.0.reachable)?;
            Ok(Box::new(MemoryReader { attachment }) as Box<dyn PartitionReader>)
        })
    }
}

struct MemoryReader {
    attachment: Attachment,
}

impl PartitionReader for MemoryReader {
    fn read<'a>(
        &'a mut self,
        events_max: usize,
        out: &'a mut Vec<Event>,
    ) -> BoxFuture<'a, Result<(), SourceError>> {
        Box::pin(self.attachment.read(events_max, out))
    }

    fn take_gap(&mut self) -> Option<Gap> {
        self.attachment.take_gap()
    }

    fn last_enqueued(&self) -> Option<LastEnqueued> {
        Some(self.attachment.last_enqueued())
    }
}

const UNREACHABLE: &str = "the hub is not reachable";

fn unreachable() -> SourceError {
    SourceError::new(SourceErrorKind::Retriable, UNREACHABLE)
}

fn new_stream() -> StreamId {
    StreamId::new(format!("{:032x}", fastrand::u128(..)))
}

fn find<'a>(data: &'a Data, partition: &PartitionId) -> &'a Partition {
    match data.partitions.get(partition) {
        Some(found) => found,
        None => panic!("the hub has no partition {partition:?}"),
    }
}
