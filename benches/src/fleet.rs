//! A group of processors on machines that can crash, and what can be asked of it.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use partita::model::Scope;
use partita::processor::{Builder, NoHandler, Processor, ProcessorHandle};
use partita::{CheckpointStore, InstanceId, MemoryHub};
use tokio::time::Instant;

use crate::world::{Clock, LedgerStore, Machine, is_balanced};

/// How long a group may take to come to rest before the benchmark gives up.
const PATIENCE: Duration = Duration::from_secs(120);

/// Adds a handler to a builder and starts it: what tells one benchmark's fleet from another's.
pub(crate) trait Start {
    async fn start(&self, id: &InstanceId, builder: Builder<NoHandler>) -> ProcessorHandle;
}

pub(crate) struct Fleet<S> {
    pub(crate) hub: MemoryHub,
    pub(crate) store: LedgerStore,
    scope: Scope,
    clock: Clock,
    start: S,
    running: BTreeMap<InstanceId, (Machine, ProcessorHandle)>,
    started: u64,
}

impl<S: Start> Fleet<S> {
    pub(crate) fn new(hub: MemoryHub, clock: Clock, start: S) -> Self {
        let scope = crate::world::scope(&hub);
        Self { hub, store: LedgerStore::new(), scope, clock, start, running: BTreeMap::new(), started: 0 }
    }

    /// Makes every call of the store take this long.
    pub(crate) fn calls_take(mut self, time: Duration) -> Self {
        self.store = self.store.calls_take(time);
        self
    }

    /// Starts another instance.
    pub(crate) async fn join(&mut self) -> InstanceId {
        self.started += 1;
        let id = InstanceId::new(format!("i{:04}", self.started));
        let machine = Machine::new(self.clock, self.started);
        let store: Arc<dyn CheckpointStore> = Arc::new(self.store.clone());
        let builder = Processor::builder_dyn(Arc::new(self.hub.source()), store)
            .instance_id(id.clone())
            .runtime(machine.clone());
        let handle = self.start.start(&id, builder).await;
        self.running.insert(id.clone(), (machine, handle));
        id
    }

    /// Shuts an instance down in good order.
    pub(crate) async fn leave(&mut self, id: &InstanceId) {
        let (_, handle) = self.running.remove(id).expect("an instance that runs");
        handle.shutdown().await.expect("a shutdown in good order");
    }

    pub(crate) fn crash(&mut self, id: &InstanceId) {
        let (machine, handle) = self.running.remove(id).expect("an instance that runs");
        machine.crash();
        drop(handle);
    }

    pub(crate) fn ids(&self) -> Vec<InstanceId> {
        self.running.keys().cloned().collect()
    }

    pub(crate) fn partitions(&self) -> usize {
        self.hub.description().partitions.len()
    }

    /// The partitions of an instance.
    pub(crate) async fn owned_by(&self, id: &InstanceId) -> Vec<partita::PartitionId> {
        let view = self.store.look(&self.scope).await;
        let owned = view.ownerships.into_iter().filter(|o| o.owner.as_ref().is_some_and(|i| i.id() == id));
        owned.map(|ownership| ownership.partition).collect()
    }

    /// Waits until the group is balanced; tells whether it came to that.
    pub(crate) async fn until_balanced(&self) -> bool {
        let (ids, partitions) = (self.ids(), self.partitions());
        let start = Instant::now();
        while !is_balanced(&self.store.look(&self.scope).await, partitions, &ids) {
            if start.elapsed() > PATIENCE {
                return false;
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        true
    }
}
