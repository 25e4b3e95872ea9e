//! Stores, readers, hooks and runtimes that panic, hang or are gone: none of it ends a processor.

use std::io;
use std::time::Duration;

use futures_util::future::BoxFuture;
use partita_core::model::{Epoch, PartitionId, SequenceNumber, Tick};
use partita_core::processor::{
    BatchHandled, EventsMissed, Hooks, Moved, Operation, ProcessorError, Runtime, StartError,
};

use crate::support::{Fault, Machine, What, World, ms, nothing, partition, secs, soon, taking};

#[tokio::test(start_paused = true)]
async fn a_store_that_panics_costs_the_call_and_nothing_else() {
    let world = World::new(2);
    let a = world.join("a").await;
    a.owns(2).await;
    let moves = world.moves().await;
    a.store.set(Fault::Panics);
    world.fill(20);
    tokio::time::sleep(secs(2)).await;
    a.store.set(Fault::None);
    world.handled().await;
    world.assert_once_each();
    let told = world.errors.of(Operation::Heartbeat);
    assert!(told.iter().any(|error| error.to_string().contains("the store panicked")), "{told:?}");
    assert_eq!(world.moves().await, moves);
    a.shutdown().await;
}

#[tokio::test(start_paused = true)]
async fn a_reader_that_panics_is_replaced() {
    let world = World::new(1);
    let a = world.join("a").await;
    a.owns(1).await;
    a.source.panic_reads(3);
    world.fill(30);
    world.handled().await;
    world.assert_once_each();
    let told = world.errors.of(Operation::Read);
    assert!(told.iter().any(|error| error.to_string().contains("the reader panicked")), "{told:?}");
    a.shutdown().await;
}

/// Panics wherever it is called.
struct Panicking;

fn panic() {
    std::panic::resume_unwind(Box::new("the hook panics"));
}

impl Hooks for Panicking {
    fn batch_handled(&self, _: BatchHandled<'_>) {
        panic();
    }
    fn missed(&self, _: EventsMissed<'_>) {
        panic();
    }
    fn checkpointed(&self, _: &PartitionId, _: SequenceNumber) {
        panic();
    }
    fn opened(&self, _: &PartitionId, _: Epoch) {
        panic();
    }
    fn closed(&self, _: &PartitionId, _: Epoch) {
        panic();
    }
    fn moved(&self, _: &Moved) {
        panic();
    }
    fn store_call(&self, _: &'static str, _: Duration, _: bool) {
        panic();
    }
    fn error(&self, _: &ProcessorError) {
        panic();
    }
}

#[tokio::test(start_paused = true)]
async fn hooks_that_panic_cost_nothing() {
    let world = World::new(4);
    world.fill(20);
    let a = world.join_with("a", |builder| builder.hooks(Panicking), nothing()).await;
    a.owns(4).await;
    let b = world.join("b").await;
    b.owns(2).await;
    a.store.set(Fault::NoCheckpoints);
    tokio::time::sleep(secs(2)).await;
    a.store.set(Fault::None);
    world.fill(20);
    world.handled().await;
    world.assert_once_each();
    a.shutdown().await;
    b.owns(4).await;
}

#[tokio::test(start_paused = true)]
async fn a_hub_that_does_not_answer_prevents_the_start_after_half_a_minute() {
    let world = World::new(1);
    let (builder, ready) = world.prepare("a");
    ready.source.hang_describing();
    let processor = builder.on_event(|_, _| async { Ok(()) }).build().unwrap();
    let began = tokio::time::Instant::now();
    let error = soon("an answer", processor.start()).await.expect_err("it cannot start");
    assert!(matches!(error, StartError::Source(_)), "{error}");
    assert!(error.to_string().contains("not described within"), "{error}");
    assert!(began.elapsed() >= secs(30), "{:?}", began.elapsed());
}

#[tokio::test(start_paused = true)]
async fn a_store_whose_calls_take_seconds_prevents_the_start_and_the_error_names_timing() {
    let world = World::new(1);
    let (builder, ready) = world.prepare("a");
    ready.store.set(Fault::Slow(secs(3)));
    let processor = builder.on_event(|_, _| async { Ok(()) }).build().unwrap();
    let error = soon("an answer", processor.start()).await.expect_err("it cannot start");
    assert!(matches!(error, StartError::StoreTooSlow { deadline } if deadline == ms(400)), "{error}");
    assert!(error.to_string().contains("longer `timing`"), "{error}");
    // With times that suit the store it starts.
    let (builder, ready) = world.prepare("b");
    ready.store.set(Fault::Slow(secs(3)));
    let timing = partita_core::processor::Timing::new(secs(10), secs(50)).unwrap();
    let processor = builder.timing(timing).on_event(|_, _| async { Ok(()) }).build().unwrap();
    let b = ready.started(soon("the start", processor.start()).await.unwrap());
    b.owns(1).await;
}

#[tokio::test(start_paused = true)]
async fn a_hub_that_stops_answering_later_stops_nothing() {
    let world = World::new(2);
    let a = world.join_with("a", |builder| builder.discovery_interval(secs(1)), nothing()).await;
    a.owns(2).await;
    a.source.hang_describing();
    tokio::time::sleep(secs(40)).await;
    world.fill(20);
    world.handled().await;
    let told = world.errors.of(Operation::Describe);
    assert!(told.iter().any(|error| error.to_string().contains("not described within")), "{told:?}");
    a.shutdown().await;
}

#[tokio::test(start_paused = true)]
async fn a_call_that_is_cut_off_is_told_with_the_reason() {
    let world = World::new(1);
    let a = world.join_with("a", |builder| builder.drain_time(secs(1)), taking(secs(60))).await;
    a.owns(1).await;
    world.fill(1);
    world.journal.sees(&partition(0), What::Began(vec![0])).await;
    a.store.set(Fault::Down);
    world.journal.sees(&partition(0), What::Cut(vec![0])).await;
    a.store.set(Fault::None);
    let told = |why: &str| {
        world
            .errors
            .of(Operation::HandlerEvents)
            .iter()
            .filter(|error| error.to_string().contains(why))
            .count()
    };
    soon("the report of the lapse", async {
        while told("the lease ran out") == 0 {
            tokio::time::sleep(ms(10)).await;
        }
    })
    .await;
    // Delivered again; this time it is the shutdown that cannot wait for it.
    tokio::time::sleep(secs(5)).await;
    soon("the shutdown", a.handle.shutdown()).await.expect_err("a call was cut off");
    assert_eq!(told("did not end within the drain time"), 1);
}

/// A machine whose handlers' runtime is gone: whatever is spawned on it ends at once.
#[derive(Clone)]
struct Headless(Machine);

impl Runtime for Headless {
    fn now(&self) -> Tick {
        self.0.now()
    }

    fn seed(&self) -> u64 {
        self.0.seed()
    }

    fn spawn(&self, task: BoxFuture<'static, ()>) {
        drop(task);
    }

    fn spawn_coordination(&self, task: BoxFuture<'static, ()>) -> io::Result<()> {
        self.0.spawn_coordination(task)
    }
}

#[tokio::test(start_paused = true)]
async fn an_instance_whose_handlers_cannot_run_leaves_the_partitions_to_others() {
    let world = World::new(3);
    world.fill(20);
    let (builder, ready) = world.prepare("headless");
    let builder = builder.runtime(Headless(ready.machine.clone()));
    let processor = builder.on_event(|_, _| async { Ok(()) }).build().unwrap();
    let _headless = soon("the start", processor.start()).await.unwrap();
    let b = world.join("b").await;
    b.owns(3).await;
    world.handled().await;
    world.assert_once_each();
    // It goes on trying, but not hotly.
    let calls = ready.store.calls();
    tokio::time::sleep(secs(60)).await;
    assert!(ready.store.calls() - calls < 60 * 10, "{} calls in a minute", ready.store.calls() - calls);
}

/// More pumps are gone at once than reports fit into the queue.
#[tokio::test(start_paused = true)]
async fn pumps_that_are_gone_are_noticed_although_the_queue_of_reports_is_full() {
    let world = World::new(1_100);
    let (builder, ready) = world.prepare("headless");
    let builder = builder.runtime(Headless(ready.machine.clone()));
    let processor = builder.on_event(|_, _| async { Ok(()) }).build().unwrap();
    let _headless = soon("the start", processor.start()).await.unwrap();
    let b = world.join("b").await;
    b.owns(1_100).await;
}

#[tokio::test(start_paused = true)]
async fn a_burial_that_fails_is_tried_again_after_a_pause() {
    let world = World::new(4);
    let (a, b) = (world.join("a").await, world.join("b").await);
    a.owns(2).await;
    b.owns(2).await;
    a.store.set(Fault::NoBurials);
    b.machine.crash();
    tokio::time::sleep(secs(60)).await;
    let tried = a.store.burials_tried();
    assert!((10..150).contains(&tried), "{tried} times in a minute");
    a.store.set(Fault::None);
    a.owns(4).await;
}
