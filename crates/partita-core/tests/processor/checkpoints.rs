//! Checkpoints: durable or told why not, coalesced, never past what was not handled.

use std::sync::{Arc, Mutex};

use partita_core::handler::CheckpointError;
use partita_core::model::Event;
use partita_core::processor::Checkpoint;
use partita_core::store::{CheckpointStore, CheckpointWrite, MemoryStore, Op};

use crate::support::{Behaviour, Fault, Step, What, World, ms, nothing, partition, secs, soon};

/// Keeps what a test wants to look at.
type Kept<T> = Arc<Mutex<Vec<T>>>;

/// Checkpoints the last event of every batch, and keeps what came of it.
fn checkpointing(outcomes: Kept<Result<(), CheckpointError>>) -> Behaviour {
    Arc::new(move |step, cx| {
        let outcomes = Arc::clone(&outcomes);
        Box::pin(async move {
            if let Step::Events(events) = step {
                let outcome = cx.checkpoint(&events[events.len() - 1]).await;
                outcomes.lock().unwrap().push(outcome);
            }
            Ok(())
        })
    })
}

#[tokio::test(start_paused = true)]
async fn a_checkpoint_resolves_when_it_is_durable() {
    for store in [MemoryStore::new(), MemoryStore::single_record()] {
        let world = World::on(store, 1);
        let outcomes = Kept::default();
        let a =
            world.join_with("a", |b| b.checkpoint(Checkpoint::Manual), checkpointing(outcomes.clone())).await;
        a.owns(1).await;
        a.store.set(Fault::NoCheckpoints);
        world.fill(5);
        world.journal.sees(&partition(0), What::Began((0..5).collect())).await;
        tokio::time::sleep(secs(20)).await;
        assert_eq!(outcomes.lock().unwrap().len(), 0, "not durable, so not resolved");
        a.store.set(Fault::None);
        world.journal.sees(&partition(0), What::Handled((0..5).collect())).await;
        assert_eq!(world.checkpoint(&partition(0)).await, Some(4));
        assert_eq!(*outcomes.lock().unwrap(), [Ok(())]);
    }
}

#[tokio::test(start_paused = true)]
async fn a_checkpoint_that_is_lost_resolves_with_the_reason() {
    let world = World::new(1);
    let outcomes = Kept::default();
    let kept = outcomes.clone();
    let behave: Behaviour = Arc::new(move |step, cx| {
        let kept = Arc::clone(&kept);
        Box::pin(async move {
            if let Step::Events(events) = step {
                let durable = cx.checkpoint(&events[0]);
                tokio::spawn(async move {
                    let outcome = durable.await;
                    kept.lock().unwrap().push(outcome);
                });
            }
            Ok(())
        })
    });
    let a = world.join_with("a", |b| b, behave).await;
    a.owns(1).await;
    // Another owner has sealed the record.
    let by = partita_core::model::Incarnation::new("other".into(), 1);
    let seal = CheckpointWrite::Seal {
        partition: partition(0),
        epoch: partita_core::model::Epoch(9),
        op: Op { by, number: 1 },
    };
    world.store.write_checkpoint(&world.scope(), seal).await.unwrap();
    world.fill(1);
    soon("the reason", async {
        while outcomes.lock().unwrap().is_empty() {
            tokio::time::sleep(ms(10)).await;
        }
    })
    .await;
    assert_eq!(outcomes.lock().unwrap()[0], Err(CheckpointError::OwnershipLost));
    // The partition comes back at a higher epoch, and the event is handled again.
    world.checkpointed(0).await;
    assert!(world.checkpoint_record(&partition(0)).await.unwrap().epoch.0 > 9);
}

#[tokio::test(start_paused = true)]
async fn checkpoints_are_coalesced() {
    let world = World::new(1);
    world.fill(1_000);
    let (builder, ready) = world.prepare("a");
    let processor = builder
        .checkpoint(Checkpoint::Manual)
        .on_event(|event, cx| async move {
            drop(cx.checkpoint(&event));
            if event.sequence_number().0 % 10 == 9 {
                tokio::time::sleep(ms(1)).await;
            }
            Ok(())
        })
        .build()
        .unwrap();
    // Every write takes 50 ms.
    ready.store.set(Fault::Slow(ms(50)));
    let a = ready.started(processor.start().await.unwrap());
    world.checkpointed(999).await;
    let written = a.store.checkpoints_written().len();
    assert!((2..20).contains(&written), "{written} writes for 1000 checkpoints");
}

#[tokio::test(start_paused = true)]
async fn slow_single_events_are_checkpointed_before_their_batch_is_through() {
    let world = World::new(1);
    world.fill(10);
    let (builder, ready) = world.prepare("a");
    let slow = async |_, _| {
        tokio::time::sleep(secs(2)).await;
        Ok(())
    };
    let processor = builder.on_event(slow).build().unwrap();
    let _a = ready.started(processor.start().await.unwrap());
    // The third event is still being handled; what is more than a checkpoint interval old is durable.
    tokio::time::sleep(ms(5_500)).await;
    assert!(world.checkpoint(&partition(0)).await >= Some(0));
}

#[tokio::test(start_paused = true)]
async fn checkpoints_asked_for_in_any_order_all_resolve_and_none_falls() {
    let world = World::new(1);
    let outcomes = Kept::default();
    let kept = outcomes.clone();
    let behave: Behaviour = Arc::new(move |step, cx| {
        let kept = Arc::clone(&kept);
        Box::pin(async move {
            if let Step::Events(events) = step {
                let order = [3, 9, 1, 5];
                let all = order.map(|n| cx.checkpoint(&events[n]));
                for durable in all {
                    let outcome = durable.await;
                    kept.lock().unwrap().push(outcome);
                }
            }
            Ok(())
        })
    });
    let a = world.join_with("a", |b| b.checkpoint(Checkpoint::Manual), behave).await;
    a.owns(1).await;
    // So slow that they wait for one another.
    a.store.set(Fault::Slow(ms(50)));
    world.fill(10);
    world.journal.sees(&partition(0), What::Handled((0..10).collect())).await;
    assert_eq!(*outcomes.lock().unwrap(), [Ok(()); 4]);
    assert_eq!(world.checkpoint(&partition(0)).await, Some(9));
    a.shutdown().await;
    assert_eq!(world.checkpoint(&partition(0)).await, Some(9));
}

#[tokio::test(start_paused = true)]
async fn a_burst_of_checkpoints_that_nobody_waits_for_is_durable_to_the_last() {
    const EVENTS: i64 = 5_000;
    for in_stopping in [false, true] {
        let world = World::new(1);
        world.fill(EVENTS as usize);
        let given: Kept<Event> = Kept::default();
        let behave: Behaviour = Arc::new(move |step, cx| {
            let given = Arc::clone(&given);
            Box::pin(async move {
                match step {
                    Step::Events(events) if in_stopping => given.lock().unwrap().extend_from_slice(&events),
                    Step::Events(events) => events.iter().for_each(|event| drop(cx.checkpoint(event))),
                    Step::Stopping(_) => {
                        given.lock().unwrap().iter().for_each(|event| drop(cx.checkpoint(event)))
                    }
                    Step::Open => {}
                }
                Ok(())
            })
        });
        let a = world
            .join_with(
                "a",
                |b| {
                    b.checkpoint(Checkpoint::Manual)
                        .batch_size(EVENTS as usize)
                        .prefetch_events(EVENTS as usize)
                },
                behave,
            )
            .await;
        world.handled().await;
        a.shutdown().await;
        assert_eq!(world.checkpoint(&partition(0)).await, Some(EVENTS - 1), "in stopping: {in_stopping}");
    }
}

#[tokio::test(start_paused = true)]
async fn manual_checkpoints_are_the_handlers_alone() {
    let world = World::new(1);
    world.fill(50);
    let at_twenty: Behaviour = Arc::new(|step, cx| {
        Box::pin(async move {
            if let Step::Events(events) = step
                && let Some(event) = events.iter().find(|event| event.sequence_number().0 == 20)
            {
                cx.checkpoint(event).await?;
            }
            Ok(())
        })
    });
    let a = world.join_with("a", |b| b.checkpoint(Checkpoint::Manual), at_twenty).await;
    world.handled().await;
    tokio::time::sleep(secs(30)).await;
    assert_eq!(world.checkpoint(&partition(0)).await, Some(20));
    a.shutdown().await;
    assert_eq!(world.checkpoint(&partition(0)).await, Some(20));
    let _b = world.join("b").await;
    world.checkpointed(49).await;
    assert_eq!(world.journal.handled_by("b", &partition(0)), (21..50).collect::<Vec<_>>());
}

#[tokio::test(start_paused = true)]
async fn an_event_that_was_not_delivered_here_cannot_be_checkpointed() {
    let world = World::new(2);
    world.fill_one(&partition(1), 500);
    let foreign: Arc<Mutex<Option<Event>>> = Arc::default();
    let outcomes = Kept::default();
    let kept = outcomes.clone();
    let behave: Behaviour = Arc::new(move |step, cx| {
        let (foreign, kept) = (Arc::clone(&foreign), Arc::clone(&kept));
        Box::pin(async move {
            let Step::Events(events) = step else { return Ok(()) };
            if *cx.partition() == partition(1) {
                *foreign.lock().unwrap() = events.last().cloned();
            } else {
                let event = foreign.lock().unwrap().clone().unwrap();
                let outcome = cx.checkpoint(&event).await;
                kept.lock().unwrap().push(outcome);
                std::future::pending::<()>().await;
            }
            Ok(())
        })
    });
    let _a = world.join_with("a", |b| b, behave).await;
    world.journal.until("all of the other", |e| e.iter().any(|e| e.handled().contains(&499))).await;
    world.fill_one(&partition(0), 100);
    world.journal.sees(&partition(0), What::Began((0..10).collect())).await;
    tokio::time::sleep(secs(3)).await;
    assert_eq!(*outcomes.lock().unwrap(), [Err(CheckpointError::NotDelivered)]);
    assert_eq!(world.checkpoint(&partition(0)).await, None);
}

#[tokio::test(start_paused = true)]
async fn what_was_handled_before_a_failing_event_is_checkpointed_during_the_pause() {
    let world = World::new(1);
    world.fill(10);
    let (builder, ready) = world.prepare("a");
    let processor = builder
        .on_failure(partita_core::processor::FailurePolicy::Retry { first: secs(60), longest: secs(60) })
        .on_event(|event, _| async move {
            if event.sequence_number().0 == 7 { Err("poison".into()) } else { Ok(()) }
        })
        .build()
        .unwrap();
    let a = ready.started(processor.start().await.unwrap());
    a.owns(1).await;
    tokio::time::sleep(secs(3)).await;
    assert_eq!(world.checkpoint(&partition(0)).await, Some(6));
}

#[tokio::test(start_paused = true)]
async fn checkpoints_by_time_and_by_count_are_written_when_due() {
    let world = World::new(1);
    let a = world.join_with("a", |b| b.checkpoint(Checkpoint::every(20)), nothing()).await;
    a.owns(1).await;
    world.fill(10);
    tokio::time::sleep(secs(60)).await;
    assert_eq!(world.checkpoint(&partition(0)).await, None, "nineteen are too few");
    world.fill(10);
    tokio::time::sleep(ms(100)).await;
    assert_eq!(world.checkpoint(&partition(0)).await, Some(19));
    a.shutdown().await;
    let b = world.join_with("b", |b| b.checkpoint(Checkpoint::after(secs(2))), nothing()).await;
    b.owns(1).await;
    world.fill(1);
    tokio::time::sleep(ms(1_900)).await;
    assert_eq!(world.checkpoint(&partition(0)).await, Some(19));
    tokio::time::sleep(ms(200)).await;
    assert_eq!(world.checkpoint(&partition(0)).await, Some(20));
}
