//! One instance's way to the store, with faults to order.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures_util::future::BoxFuture;
use partita_core::model::{Incarnation, Scope};
use partita_core::store::{
    CheckpointOutcome, CheckpointRecord, CheckpointStore, CheckpointWrite, GroupView, InstanceOutcome,
    InstanceWrite, MemoryStore, MoveRecord, OwnershipOutcome, OwnershipWrite, StoreError, StoreProperties,
    StoreResult,
};

use super::ms;

/// What happens to calls.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub enum Fault {
    #[default]
    None,
    /// They fail at once, without effect.
    Down,
    /// They take this long to arrive.
    Slow(Duration),
    /// They have their effect, and the answer is lost.
    Lost,
    /// Only checkpoints fail.
    NoCheckpoints,
    /// Nobody can be declared dead.
    NoBurials,
    /// They panic.
    Panics,
}

#[derive(Clone)]
pub struct TestStore {
    inner: MemoryStore,
    state: Arc<Mutex<State>>,
}

#[derive(Default)]
struct State {
    fault: Fault,
    checkpoints: Vec<CheckpointWrite>,
    calls: usize,
    burials: usize,
    lose_registration: bool,
}

impl TestStore {
    pub fn new(inner: MemoryStore) -> Self {
        Self { inner, state: Arc::default() }
    }

    pub fn set(&self, fault: Fault) {
        self.state.lock().unwrap().fault = fault;
    }

    /// The checkpoints that were written, seals aside.
    pub fn checkpoints_written(&self) -> Vec<CheckpointWrite> {
        self.state.lock().unwrap().checkpoints.clone()
    }

    /// The next registration has its effect, and its answer is lost.
    pub fn lose_next_registration(&self) {
        self.state.lock().unwrap().lose_registration = true;
    }

    pub fn calls(&self) -> usize {
        self.state.lock().unwrap().calls
    }

    /// How often somebody was to be declared dead.
    pub fn burials_tried(&self) -> usize {
        self.state.lock().unwrap().burials
    }

    fn fault(&self) -> Fault {
        self.state.lock().unwrap().fault
    }

    async fn faulty<T>(
        &self,
        op: &'static str,
        call: impl Future<Output = StoreResult<T>>,
    ) -> StoreResult<T> {
        self.state.lock().unwrap().calls += 1;
        match self.fault() {
            Fault::None => call.await,
            Fault::Down => Err(StoreError::no_effect(op, "the store is down")),
            Fault::Slow(time) => {
                tokio::time::sleep(time).await;
                call.await
            }
            Fault::Lost => {
                call.await?;
                std::future::pending().await
            }
            Fault::NoCheckpoints if op == "write_checkpoint" => {
                Err(StoreError::no_effect(op, "no checkpoints for now"))
            }
            Fault::NoBurials if op == "bury" => Err(StoreError::no_effect(op, "no burials for now")),
            // As a panic, but without the message in the test's log.
            Fault::Panics => std::panic::resume_unwind(Box::new("the store panics")),
            Fault::NoCheckpoints | Fault::NoBurials => call.await,
        }
    }
}

impl CheckpointStore for TestStore {
    fn properties(&self) -> StoreProperties {
        self.inner.properties()
    }

    fn write_instance<'a>(
        &'a self,
        scope: &'a Scope,
        write: InstanceWrite,
    ) -> BoxFuture<'a, StoreResult<InstanceOutcome>> {
        let registers = matches!(write, InstanceWrite::Register(_));
        let buries = matches!(write, InstanceWrite::Bury { .. });
        self.state.lock().unwrap().burials += usize::from(buries);
        let op = if buries { "bury" } else { "write_instance" };
        Box::pin(self.faulty(op, async move {
            let outcome = self.inner.write_instance(scope, write).await;
            if registers && std::mem::take(&mut self.state.lock().unwrap().lose_registration) {
                return std::future::pending().await;
            }
            outcome
        }))
    }

    fn write_ownership<'a>(
        &'a self,
        scope: &'a Scope,
        write: OwnershipWrite,
    ) -> BoxFuture<'a, StoreResult<OwnershipOutcome>> {
        Box::pin(self.faulty("write_ownership", self.inner.write_ownership(scope, write)))
    }

    fn write_checkpoint<'a>(
        &'a self,
        scope: &'a Scope,
        write: CheckpointWrite,
    ) -> BoxFuture<'a, StoreResult<CheckpointOutcome>> {
        let is_seal = matches!(write, CheckpointWrite::Seal { .. });
        Box::pin(self.faulty("write_checkpoint", async move {
            if !is_seal {
                self.state.lock().unwrap().checkpoints.push(write.clone());
            }
            self.inner.write_checkpoint(scope, write).await
        }))
    }

    fn view<'a>(&'a self, scope: &'a Scope) -> BoxFuture<'a, StoreResult<GroupView>> {
        Box::pin(self.faulty("view", self.inner.view(scope)))
    }

    fn checkpoints<'a>(&'a self, scope: &'a Scope) -> BoxFuture<'a, StoreResult<Vec<CheckpointRecord>>> {
        Box::pin(self.faulty("checkpoints", self.inner.checkpoints(scope)))
    }

    fn moves<'a>(&'a self, scope: &'a Scope) -> BoxFuture<'a, StoreResult<Vec<MoveRecord>>> {
        Box::pin(self.faulty("moves", self.inner.moves(scope)))
    }

    fn changed<'a>(&'a self, scope: &'a Scope, me: &'a Incarnation, cursor: u64) -> BoxFuture<'a, ()> {
        Box::pin(async move {
            self.inner.changed(scope, me, cursor).await;
            while self.fault() != Fault::None {
                tokio::time::sleep(ms(100)).await;
            }
        })
    }
}
