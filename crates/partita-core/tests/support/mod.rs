//! A small world for tests of whole processors: a hub, a store and instances on machines that can crash, all on
//! Tokio's paused clock, so that waiting for a ttl takes no time.

#![allow(dead_code, unreachable_pub, unused_imports)] // Every test file uses its own part.

mod machine;
mod probe;
mod source;
mod store;

use std::future::Future;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use partita_core::model::{
    ConsumerGroup, Event, HubName, InstanceId, Namespace, PartitionId, Scope, SequenceNumber,
};
use partita_core::processor::{
    Builder, NoHandler, Operation, Processor, ProcessorError, ProcessorHandle, Status,
};
use partita_core::source::MemoryHub;
use partita_core::store::{CheckpointRecord, CheckpointStore, MemoryStore, MoveReason, MoveRecord, Resume};

pub use machine::Machine;
pub use probe::{Behaviour, Entry, Journal, Probe, Step, What, nothing, taking};
pub use source::TestSource;
pub use store::{Fault, TestStore};

pub const HUB: &str = "hub";

/// Longer than anything that is waited for, by the clock of the test.
const PATIENCE: Duration = Duration::from_secs(300);

pub fn ms(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

pub fn secs(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

pub fn partition(number: u32) -> PartitionId {
    PartitionId::from(number)
}

/// Awaits something that has to happen.
pub async fn soon<T>(what: &str, something: impl Future<Output = T>) -> T {
    match tokio::time::timeout(PATIENCE, something).await {
        Ok(value) => value,
        Err(_) => panic!("did not happen: {what}"),
    }
}

/// Errors that `on_error` was told.
#[derive(Clone, Default)]
pub struct Errors(Arc<Mutex<Vec<ProcessorError>>>);

impl Errors {
    pub fn all(&self) -> Vec<ProcessorError> {
        self.0.lock().unwrap().clone()
    }

    pub fn of(&self, operation: Operation) -> Vec<ProcessorError> {
        self.all().into_iter().filter(|error| error.operation == operation).collect()
    }

    pub fn listener(&self) -> impl Fn(ProcessorError) + Send + Sync + 'static {
        let errors = Arc::clone(&self.0);
        move |error| errors.lock().unwrap().push(error)
    }
}

pub struct World {
    pub hub: MemoryHub,
    pub store: MemoryStore,
    pub journal: Journal,
    pub errors: Errors,
    seeds: Mutex<u64>,
}

impl World {
    pub fn new(partitions: u32) -> Self {
        Self::on(MemoryStore::new(), partitions)
    }

    pub fn on(store: MemoryStore, partitions: u32) -> Self {
        Self {
            hub: MemoryHub::new(HUB, partitions),
            store,
            journal: Journal::default(),
            errors: Errors::default(),
            seeds: Mutex::new(7),
        }
    }

    pub fn scope(&self) -> Scope {
        Scope {
            namespace: Namespace::new(MemoryHub::NAMESPACE),
            hub: HubName::new(HUB),
            group: ConsumerGroup::default(),
        }
    }

    /// Appends this many events to every partition.
    pub fn fill(&self, events: usize) {
        for partition in self.hub.description().partitions {
            self.fill_one(&partition, events);
        }
    }

    pub fn fill_one(&self, partition: &PartitionId, events: usize) {
        self.hub.append_all(partition, (0..events).map(|_| Event::builder("event")));
    }

    /// What a processor of this world is built from; complete it with [`Ready::started`].
    pub fn prepare(&self, name: &str) -> (Builder<NoHandler>, Ready) {
        let seed = {
            let mut seeds = self.seeds.lock().unwrap();
            *seeds += 1;
            *seeds
        };
        let machine = Machine::new(seed);
        let store = TestStore::new(self.store.clone());
        let source = TestSource::new(self.hub.source());
        let builder = Processor::builder(source.clone(), store.clone())
            .instance_id(name)
            .runtime(machine.clone())
            .on_error(self.errors.listener());
        (builder, Ready { name: InstanceId::new(name), machine, store, source })
    }

    /// Starts an instance whose handler writes everything down.
    pub async fn join(&self, name: &str) -> Instance {
        self.join_with(name, |builder| builder, nothing()).await
    }

    pub async fn join_with(
        &self,
        name: &str,
        tune: impl FnOnce(Builder<NoHandler>) -> Builder<NoHandler>,
        behave: probe::Behaviour,
    ) -> Instance {
        let (builder, ready) = self.prepare(name);
        let (journal, who) = (self.journal.clone(), InstanceId::new(name));
        let processor = tune(builder)
            .handler(move |_: &PartitionId| Probe::new(journal.clone(), who.clone(), Arc::clone(&behave)))
            .build()
            .unwrap();
        ready.started(soon("the start", processor.start()).await.unwrap())
    }

    pub async fn moves(&self) -> Vec<MoveRecord> {
        self.store.moves(&self.scope()).await.unwrap()
    }

    pub async fn moves_for(&self, reason: MoveReason) -> Vec<MoveRecord> {
        self.moves().await.into_iter().filter(|moved| moved.reason == reason).collect()
    }

    pub async fn checkpoint_record(&self, partition: &PartitionId) -> Option<CheckpointRecord> {
        let records = self.store.checkpoints(&self.scope()).await.unwrap();
        records.into_iter().find(|record| record.partition == *partition)
    }

    /// The sequence number that the next owner starts after.
    pub async fn checkpoint(&self, partition: &PartitionId) -> Option<i64> {
        match self.checkpoint_record(partition).await?.resume? {
            Resume::After(last) => Some(last.sequence.0),
            Resume::At(_) => None,
        }
    }

    /// Waits until the checkpoints of all partitions are at this event or past it.
    pub async fn checkpointed(&self, last: i64) {
        let partitions = self.hub.description().partitions;
        soon("the checkpoints", async {
            for partition in &partitions {
                while self.checkpoint(partition).await.is_none_or(|at| at < last) {
                    tokio::time::sleep(ms(20)).await;
                }
            }
        })
        .await;
    }

    /// Waits until every event of the hub was handled at least once.
    pub async fn handled(&self) {
        let hub = self.hub.clone();
        self.journal
            .until("all events were handled", move |entries| {
                hub.description().partitions.iter().all(|partition| {
                    let seen = probe::handled_of(entries, partition);
                    let all = hub.events(partition, SequenceNumber(0), usize::MAX);
                    all.iter().all(|event| seen.contains(&event.sequence_number().0))
                })
            })
            .await;
    }

    /// Checks that every event was handled exactly once and in order.
    pub fn assert_once_each(&self) {
        for partition in self.hub.description().partitions {
            let all: Vec<i64> = (0..i64::try_from(self.hub.len(&partition)).unwrap()).collect();
            assert_eq!(self.journal.handled(&partition), all, "partition {partition}");
        }
        self.journal.assert_no_overlap();
    }
}

/// The parts of an instance that is not started yet.
pub struct Ready {
    pub name: InstanceId,
    pub machine: Machine,
    pub store: TestStore,
    pub source: TestSource,
}

impl Ready {
    pub fn started(self, handle: ProcessorHandle) -> Instance {
        let Self { name, machine, store, source } = self;
        Instance { name, handle, machine, store, source }
    }
}

/// A running processor and the machine that it is on.
pub struct Instance {
    pub name: InstanceId,
    pub handle: ProcessorHandle,
    pub machine: Machine,
    pub store: TestStore,
    pub source: TestSource,
}

impl Instance {
    pub fn status(&self) -> Arc<Status> {
        self.handle.status()
    }

    pub async fn until(&self, what: &str, condition: impl FnMut(&Status) -> bool) -> Arc<Status> {
        soon(what, self.handle.wait_for(condition)).await
    }

    /// Waits until it owns and reads this many partitions, no hand-off is on, and all partitions have an owner.
    pub async fn owns(&self, partitions: usize) -> Arc<Status> {
        self.until(&format!("{} owns {partitions}", self.name), |status| {
            let settled = status.partitions.iter().all(|p| p.owner.is_some() && p.next.is_none());
            let reads = status.owned().filter(|p| p.here.is_some()).count();
            !status.partitions.is_empty()
                && settled
                && reads == partitions
                && status.owned().count() == partitions
        })
        .await
    }

    pub fn owned(&self) -> Vec<PartitionId> {
        self.status().owned().map(|p| p.partition.clone()).collect()
    }

    pub async fn shutdown(self) {
        soon("the shutdown", self.handle.shutdown()).await.unwrap();
    }
}
