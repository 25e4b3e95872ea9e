//! Handlers and stores of one's own in the simulator.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures_util::future::BoxFuture;
use partita_core::handler::{Context, Handler, HandlerResult};
use partita_core::model::{Event, InstanceId, PartitionId, Scope};
use partita_core::processor::Checkpoint;
use partita_core::store::{
    CheckpointOutcome, CheckpointRecord, CheckpointStore, CheckpointWrite, GroupView, InstanceOutcome,
    InstanceWrite, MemoryStore, MoveRecord, OwnershipOutcome, OwnershipWrite, StoreProperties, StoreResult,
};
use partita_sim::{Produced, Simulation, Subject, Theme};

type Rows = Arc<Mutex<BTreeSet<String>>>;

/// Writes events to a set, before or after it asks for the checkpoint.
struct Recorder {
    rows: Rows,
    hasty: bool,
}

impl Handler for Recorder {
    async fn events(&mut self, events: &[Event], cx: &Context) -> HandlerResult {
        let Some(last) = events.last() else { return Ok(()) };
        if self.hasty {
            cx.checkpoint(last).await?;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
        self.rows.lock().unwrap().extend(events.iter().map(|event| event.text().unwrap().into_owned()));
        if !self.hasty {
            cx.checkpoint(last).await?;
        }
        Ok(())
    }
}

#[derive(Clone, Default)]
struct Recording {
    rows: Rows,
    hasty: bool,
    store: Option<Arc<dyn CheckpointStore>>,
}

impl Subject for Recording {
    type Handler = Recorder;

    fn handler(&self, _: &InstanceId, _: &PartitionId) -> Recorder {
        Recorder { rows: Arc::clone(&self.rows), hasty: self.hasty }
    }

    fn store(&self) -> Option<Arc<dyn CheckpointStore>> {
        self.store.clone()
    }

    fn checkpoint(&self) -> Checkpoint {
        Checkpoint::Manual
    }

    fn check(&self, produced: &[Produced]) -> Result<(), String> {
        let rows = self.rows.lock().unwrap();
        assert!(!produced.is_empty());
        match produced.iter().find(|event| !rows.contains(&event.body)) {
            Some(lost) => Err(format!("{:?} of partition {} is not recorded", lost.body, lost.partition)),
            None => Ok(()),
        }
    }
}

#[test]
fn a_sound_handler_passes_and_one_that_checkpoints_too_early_is_found() {
    let simulate = |hasty| Simulation::new(move || Recording { hasty, ..Recording::default() }).seeds(0..60);
    let summary = simulate(false).run().unwrap_or_else(|failure| panic!("{failure}"));
    assert_eq!(summary.seeds, 60);
    let failure = simulate(true).run().expect_err("the bug is there");
    assert!(failure.what.contains("is not recorded"), "{failure}");
    // Its seed alone shows it again, in the same way.
    let again = simulate(true).seeds(failure.seed..failure.seed + 1).run().expect_err("the same world");
    assert_eq!((again.what, again.trace), (failure.what, failure.trace));
}

/// A store that forgets to compare before it sets.
struct Careless(MemoryStore);

impl CheckpointStore for Careless {
    fn properties(&self) -> StoreProperties {
        self.0.properties()
    }

    fn write_instance<'a>(
        &'a self,
        scope: &'a Scope,
        write: InstanceWrite,
    ) -> BoxFuture<'a, StoreResult<InstanceOutcome>> {
        self.0.write_instance(scope, write)
    }

    fn write_ownership<'a>(
        &'a self,
        scope: &'a Scope,
        mut write: OwnershipWrite,
    ) -> BoxFuture<'a, StoreResult<OwnershipOutcome>> {
        Box::pin(async move {
            let view = self.0.view(scope).await?;
            let current = view.ownerships.into_iter().find(|known| known.partition == write.partition);
            write.expect = current.map(|known| known.version);
            self.0.write_ownership(scope, write).await
        })
    }

    fn write_checkpoint<'a>(
        &'a self,
        scope: &'a Scope,
        write: CheckpointWrite,
    ) -> BoxFuture<'a, StoreResult<CheckpointOutcome>> {
        self.0.write_checkpoint(scope, write)
    }

    fn view<'a>(&'a self, scope: &'a Scope) -> BoxFuture<'a, StoreResult<GroupView>> {
        self.0.view(scope)
    }

    fn checkpoints<'a>(&'a self, scope: &'a Scope) -> BoxFuture<'a, StoreResult<Vec<CheckpointRecord>>> {
        self.0.checkpoints(scope)
    }

    fn moves<'a>(&'a self, scope: &'a Scope) -> BoxFuture<'a, StoreResult<Vec<MoveRecord>>> {
        self.0.moves(scope)
    }
}

#[test]
fn a_store_that_does_not_compare_is_found() {
    let simulate = |careless| {
        let make = move || {
            let memory = MemoryStore::new();
            let store: Arc<dyn CheckpointStore> =
                if careless { Arc::new(Careless(memory)) } else { Arc::new(memory) };
            Recording { store: Some(store), ..Recording::default() }
        };
        Simulation::new(make).theme(Theme::Crashes).seeds(0..30)
    };
    simulate(false).run().unwrap_or_else(|failure| panic!("{failure}"));
    let failure = simulate(true).run().expect_err("two owners, sooner or later");
    assert!(failure.what.contains("partition"), "{failure}");
}
