//! Going elsewhere in a partition: by a handler's wish, or because the hub began anew.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};

use partita_core::model::{Position, SequenceNumber};
use partita_core::processor::{Checkpoint, Operation};
use partita_core::store::{MemoryStore, Resume};

use crate::support::{Behaviour, Fault, Step, TestStore, What, World, ms, nothing, partition, secs};

fn at(sequence: i64) -> Position {
    Position::at_sequence(SequenceNumber(sequence))
}

/// Seeks in the call that brings an event, once.
fn seeking(when: i64, position: Position) -> Behaviour {
    let done = Arc::new(AtomicBool::new(false));
    Arc::new(move |step, cx| {
        if let Step::Events(events) = &step
            && events.iter().any(|event| event.sequence_number().0 == when)
            && !done.swap(true, Ordering::Relaxed)
        {
            cx.seek(position.clone());
        }
        Box::pin(async { Ok(()) })
    })
}

#[tokio::test(start_paused = true)]
async fn a_seek_goes_back_and_forward() {
    for store in [MemoryStore::new(), MemoryStore::single_record()] {
        let world = World::on(store, 1);
        world.fill(100);
        let _a = world.join_with("a", |b| b, seeking(99, at(50))).await;
        world
            .journal
            .until("the end, again", |e| e.iter().filter(|e| e.handled().contains(&99)).count() == 2)
            .await;
        assert_eq!(world.journal.handled(&partition(0)), (0..100).chain(50..100).collect::<Vec<_>>());
        world.checkpointed(99).await;
    }
    let world = World::new(1);
    world.fill(100);
    let _a = world.join_with("a", |b| b, seeking(9, at(90))).await;
    world.checkpointed(99).await;
    assert_eq!(world.journal.handled(&partition(0)), (0..10).chain(90..100).collect::<Vec<_>>());
}

#[tokio::test(start_paused = true)]
async fn a_seek_from_outside_a_call_is_done_at_once() {
    let world = World::new(1);
    world.fill(10);
    let behave: Behaviour = Arc::new(|step, cx| {
        if matches!(step, Step::Open) {
            tokio::spawn(async move {
                tokio::time::sleep(ms(5_500)).await;
                cx.seek(at(5));
            });
        }
        Box::pin(async { Ok(()) })
    });
    let _a = world.join_with("a", |b| b, behave).await;
    world.handled().await;
    let start = tokio::time::Instant::now();
    tokio::time::sleep(secs(6)).await;
    assert_eq!(world.journal.handled(&partition(0)), (0..10).chain(5..10).collect::<Vec<_>>());
    let again = world.journal.entries().last().unwrap().at;
    assert!(again - start < ms(5_550), "{:?}", again - start);
}

#[tokio::test(start_paused = true)]
async fn a_seek_survives_a_change_of_owner() {
    for store in [MemoryStore::new(), MemoryStore::single_record()] {
        let world = World::on(store, 1);
        world.fill(100);
        // The seek is asked for in a call that ends only because the processor shuts down.
        let behave: Behaviour = Arc::new(|step, cx| {
            Box::pin(async move {
                if let Step::Events(events) = step
                    && events.iter().any(|event| event.sequence_number().0 == 99)
                {
                    cx.stopped().await;
                    cx.seek(at(30));
                }
                Ok(())
            })
        });
        let a = world.join_with("a", |b| b, behave).await;
        world
            .journal
            .until("the last batch", |e| {
                e.iter().any(|e| matches!(&e.what, What::Began(n) if n.contains(&99)))
            })
            .await;
        a.shutdown().await;
        assert_eq!(world.checkpoint_record(&partition(0)).await.unwrap().resume, Some(Resume::At(at(30))));
        let _b = world.join("b").await;
        world.checkpointed(99).await;
        assert_eq!(world.journal.handled_by("b", &partition(0)), (30..100).collect::<Vec<_>>());
    }
}

#[tokio::test(start_paused = true)]
async fn after_a_seek_back_a_call_that_fails_loses_nothing() {
    let world = World::new(1);
    world.fill(20);
    let calls = Arc::new(AtomicUsize::new(0));
    let behave: Behaviour = Arc::new(move |step, cx| {
        let call = match &step {
            Step::Events(_) => calls.fetch_add(1, Ordering::Relaxed),
            _ => usize::MAX,
        };
        Box::pin(async move {
            if let Step::Events(events) = step {
                match call {
                    // All of it declared handled, and then back to the start.
                    1 => {
                        cx.checkpoint(&events[9]).await?;
                        cx.seek(at(0));
                    }
                    2 => return Err("once".into()),
                    _ => {}
                }
            }
            Ok(())
        })
    });
    let _a = world.join_with("a", |b| b, behave).await;
    world
        .journal
        .until("the end, again", |e| e.iter().filter(|e| e.handled().contains(&19)).count() == 2)
        .await;
    assert_eq!(world.journal.handled(&partition(0)), (0..20).chain(0..20).collect::<Vec<_>>());
}

#[tokio::test(start_paused = true)]
async fn after_a_seek_back_a_checkpoint_is_durable_only_when_it_is_written() {
    let world = World::new(1);
    let way: Arc<OnceLock<TestStore>> = Arc::default();
    let held = Arc::clone(&way);
    let behave: Behaviour = Arc::new(move |step, cx| {
        let way = Arc::clone(&held);
        Box::pin(async move {
            if let Step::Events(events) = step {
                let last = &events[events.len() - 1];
                cx.checkpoint(last).await?;
                if last.sequence_number().0 == 19
                    && let Some(way) = way.get()
                    && way.checkpoints_written().len() == 2
                {
                    way.set(Fault::NoCheckpoints);
                    cx.seek(at(0));
                }
            }
            Ok(())
        })
    });
    let a = world.join_with("a", |b| b.checkpoint(Checkpoint::Manual), behave).await;
    a.owns(1).await;
    way.set(a.store.clone()).ok().unwrap();
    world.fill(20);
    let again =
        |e: &[crate::support::Entry]| e.iter().filter(|e| e.what == What::Began((0..10).collect())).count();
    world.journal.until("back at the start", |e| again(e) == 2).await;
    tokio::time::sleep(secs(5)).await;
    assert_eq!(world.journal.handled(&partition(0)), (0..20).collect::<Vec<_>>(), "it still waits");
    a.store.set(Fault::None);
    world
        .journal
        .until("the end, again", |e| e.iter().filter(|e| e.handled().contains(&19)).count() == 2)
        .await;
    assert_eq!(world.checkpoint(&partition(0)).await, Some(19));
}

#[tokio::test(start_paused = true)]
async fn a_hub_that_was_reset_is_read_from_its_start() {
    // While nobody reads it.
    let world = World::new(1);
    world.fill(50);
    let a = world.join("a").await;
    world.checkpointed(49).await;
    a.shutdown().await;
    world.hub.reset();
    world.fill(80);
    world.journal.clear();
    let b = world.join("b").await;
    world.handled().await;
    world.assert_once_each();
    assert!(world.errors.of(Operation::OpenReader)[0].error.to_string().contains("the hub was reset"));
    world.checkpointed(79).await;
    // While it is read, and with so many new events that the old place exists again.
    world.hub.reset();
    world.fill(300);
    world.journal.clear();
    world.handled().await;
    world.checkpointed(299).await;
    let stream = world.checkpoint_record(&partition(0)).await.unwrap().stream;
    assert_eq!(stream, world.hub.description().stream);
    tokio::time::sleep(ms(100)).await;
    b.shutdown().await;
}

#[tokio::test(start_paused = true)]
async fn a_seek_past_the_end_waits_for_the_event_and_repeats_nothing() {
    let world = World::new(1);
    world.fill(10);
    let _a = world.join_with("a", |b| b, seeking(9, at(20))).await;
    world.handled().await;
    tokio::time::sleep(secs(5)).await;
    world.fill(15);
    world.checkpointed(24).await;
    assert_eq!(world.journal.handled(&partition(0)), (0..10).chain(20..25).collect::<Vec<_>>());
}

#[tokio::test(start_paused = true)]
async fn latest_means_when_the_first_owner_attached_whoever_comes_after() {
    let world = World::new(1);
    world.fill(10);
    let a = world.join_with("a", |b| b.initial_position(Position::Latest), nothing()).await;
    a.owns(1).await;
    tokio::time::sleep(secs(2)).await;
    a.shutdown().await;
    // Nobody reads while these arrive.
    world.fill(5);
    let _b = world.join_with("b", |b| b.initial_position(Position::Latest), nothing()).await;
    world.checkpointed(14).await;
    assert_eq!(world.journal.handled(&partition(0)), (10..15).collect::<Vec<_>>());
}
