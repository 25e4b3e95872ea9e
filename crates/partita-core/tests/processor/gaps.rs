//! Events that the hub removes before they are read: each is told once, with its range, and counted.

use std::collections::BTreeSet;
use std::error::Error;
use std::ops::Range;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use partita_core::model::{PartitionId, SequenceNumber};
use partita_core::processor::{Builder, EventsMissed, Hooks, NoHandler, Operation};
use partita_core::source::{Gap, SourceError, SourceErrorKind};

use crate::support::{Behaviour, Fault, Instance, Step, What, World, ms, nothing, partition, taking};

/// Small batches and a small queue, so that retention can overtake.
fn small(builder: Builder<NoHandler>) -> Builder<NoHandler> {
    builder.batch_size(10).prefetch_events(20)
}

/// The ranges that `on_error` was told.
fn told(world: &World) -> Vec<Range<i64>> {
    let range = |error: &(dyn Error + 'static)| {
        let source = error.downcast_ref::<SourceError>()?;
        let range = source.source()?.downcast_ref::<Gap>()?.range();
        assert_eq!(source.kind(), SourceErrorKind::PositionGone);
        range
    };
    world.errors.of(Operation::Read).iter().filter_map(|told| range(&*told.error)).collect()
}

fn missed(instance: &Instance) -> u64 {
    instance.status().partitions.iter().filter_map(|p| p.here.as_ref()).map(|here| here.missed_events).sum()
}

#[derive(Clone, Default)]
struct Counter(Arc<AtomicU64>, Arc<Mutex<Vec<Range<i64>>>>);

impl Hooks for Counter {
    fn missed(&self, missed: EventsMissed<'_>) {
        assert_eq!(*missed.partition, partition(0));
        self.0.fetch_add(missed.events, Ordering::SeqCst);
        self.1.lock().unwrap().extend(missed.gap.range());
    }
}

/// Waits until this event was handled.
async fn handled(world: &World, number: i64) {
    let all = move |entries: &[crate::support::Entry]| entries.iter().any(|e| e.handled().contains(&number));
    world.journal.until(&format!("event {number}"), all).await;
}

#[tokio::test(start_paused = true)]
async fn a_slow_handler_is_told_every_gap_with_its_range_and_all_are_counted() {
    let world = World::new(1);
    let p: PartitionId = partition(0);
    world.fill(2_000);
    let counter = Counter::default();
    let hooks = counter.clone();
    let a = world.join_with("a", |b| small(b).hooks(hooks), taking(ms(100))).await;
    for before in [500, 1_000, 1_700] {
        handled(&world, before - 480).await;
        world.hub.trim(&p, SequenceNumber(before));
    }
    handled(&world, 1_999).await;
    let (told, read) = (told(&world), world.journal.handled(&p));
    assert_eq!(told.len(), 3, "{told:?}");
    let read_or_told: BTreeSet<i64> = read.iter().copied().chain(told.iter().cloned().flatten()).collect();
    assert!(read_or_told.into_iter().eq(0..2_000), "every event is read or told: {told:?}");
    let lost = 2_000 - read.len() as u64;
    a.until("the count", |_| missed(&a) == lost).await;
    assert_eq!(counter.0.load(Ordering::SeqCst), lost);
    assert_eq!(*counter.1.lock().unwrap(), told);
    let to_handler = world.journal.of(&p).into_iter();
    let words = |what: &What| matches!(what, What::Error(_, text) if text.contains("removed by retention"));
    assert_eq!(to_handler.filter(|entry| words(&entry.what)).count(), 3, "the handler is told, too");
    a.shutdown().await;
}

/// Does not end the first call, until it is cut off.
fn stuck_once() -> Behaviour {
    let began = Arc::new(AtomicBool::new(false));
    Arc::new(move |step, _| {
        let is_stuck = matches!(step, Step::Events(_)) && !began.swap(true, Ordering::SeqCst);
        Box::pin(async move {
            match is_stuck {
                true => std::future::pending().await,
                false => Ok(()),
            }
        })
    })
}

/// Loses its lease, and with it the call that is stuck and all that was read and not handled, and gets it back.
async fn lapse(world: &World, instance: &Instance, stuck: std::ops::Range<i64>) {
    instance.store.set(Fault::Down);
    world.journal.sees(&partition(0), What::Cut(stuck.collect())).await;
    instance.store.set(Fault::None);
}

#[tokio::test(start_paused = true)]
async fn events_that_were_read_and_not_handled_are_told_when_they_are_gone_at_the_next_reader() {
    let world = World::new(1);
    let p: PartitionId = partition(0);
    world.fill(1_000);
    // It starts at the earliest event, which has no number to compare with.
    let a = world.join_with("a", small, stuck_once()).await;
    world.journal.sees(&p, What::Began((0..10).collect())).await;
    world.hub.trim(&p, SequenceNumber(500));
    lapse(&world, &a, 0..10).await;
    handled(&world, 999).await;
    assert_eq!(world.journal.handled(&p), (500..1_000).collect::<Vec<_>>());
    assert_eq!(told(&world), [0..500]);
    a.until("the count", |_| missed(&a) == 500).await;
    a.shutdown().await;
}

#[tokio::test(start_paused = true)]
async fn a_gap_that_the_next_reader_finds_again_is_told_once() {
    let world = World::new(1);
    let p: PartitionId = partition(0);
    world.fill(30);
    let a = world.join_with("a", small, nothing()).await;
    handled(&world, 29).await;
    a.shutdown().await;
    world.fill(1_000);
    world.hub.trim(&p, SequenceNumber(500));
    let b = world.join_with("b", small, stuck_once()).await;
    world.journal.sees(&p, What::Began((500..510).collect())).await;
    lapse(&world, &b, 500..510).await;
    handled(&world, 1_029).await;
    assert_eq!(told(&world), [30..500]);
    b.until("the count", |_| missed(&b) == 470).await;
    b.shutdown().await;
}
