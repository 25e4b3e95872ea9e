//! Instances that come and go without end, and those beside them that stay.

use std::sync::Arc;

use partita_core::handler::{Context, Handler, HandlerResult, RevokedContext};
use partita_core::model::{Event, Incarnation, InstanceId, PartitionId, Timestamp};
use partita_core::processor::{RevokeReason, Timing};
use partita_core::store::{CheckpointStore, InstanceRecord, InstanceState, InstanceWrite, MoveReason};
use tokio::time::{Instant, sleep};

use crate::support::{Fault, World, ms, secs, soon};

/// Every 300 ms another instance registers and is never heard of again.
fn crash_loop(world: &World) -> tokio::task::JoinHandle<()> {
    let (store, scope) = (world.store.clone(), world.scope());
    tokio::spawn(async move {
        for life in 0.. {
            // Before and after the others by name, which is the order of the plan.
            let name = format!("{}-crashes", if life % 2 == 0 { "0" } else { "z" });
            let record = InstanceRecord {
                incarnation: Incarnation::new(InstanceId::new(name), life),
                host: Arc::from("there"),
                started: Timestamp(0),
                stopping: false,
                ttl: Timing::FAST.ttl(),
                declines: Vec::new(),
                state: InstanceState::Live,
                beat: 0,
                details: Default::default(),
            };
            store.write_instance(&scope, InstanceWrite::Register(record)).await.unwrap();
            sleep(ms(300)).await;
        }
    })
}

#[tokio::test(start_paused = true)]
async fn a_crash_loop_does_not_keep_a_newcomer_from_its_share_for_longer_than_three_cycles() {
    let world = World::new(8);
    let a = world.join("a").await;
    a.owns(8).await;
    let crashing = crash_loop(&world);
    sleep(secs(7)).await;
    let joined = Instant::now();
    let b = world.join("b").await;
    b.owns(4).await;
    let took = joined.elapsed();
    assert!(took < 3 * Timing::FAST.cycle(), "{took:?}");
    sleep(secs(10)).await;
    assert_eq!(world.moves_for(MoveReason::HandedOff).await.len(), 4, "no needless moves");
    assert_eq!((a.status().owned().count(), b.status().owned().count()), (4, 4));
    crashing.abort();
}

#[tokio::test(start_paused = true)]
async fn a_crash_loop_does_not_keep_free_partitions_from_those_who_stay() {
    let world = World::new(8);
    let (a, b, c) = (world.join("a").await, world.join("b").await, world.join("c").await);
    for (instance, share) in [(&a, 3), (&b, 3), (&c, 2)] {
        soon("its share", async {
            while instance.status().owned().count() != share {
                sleep(ms(10)).await;
            }
        })
        .await;
    }
    let crashing = crash_loop(&world);
    sleep(secs(7)).await;
    // One leaves in good order, and one is lost.
    c.shutdown().await;
    let left = Instant::now();
    a.owns(4).await;
    assert!(left.elapsed() < Timing::FAST.cycle(), "{:?}", left.elapsed());
    b.machine.crash();
    let lost = Instant::now();
    a.owns(8).await;
    assert!(lost.elapsed() < Timing::FAST.ttl() + Timing::FAST.cycle(), "{:?}", lost.elapsed());
    crashing.abort();
}

#[tokio::test(start_paused = true)]
async fn instances_that_start_shortly_after_one_another_cause_one_round_of_moves() {
    let world = World::new(12);
    let a = world.join("a").await;
    a.owns(12).await;
    let mut fleet = vec![a];
    for name in ["b", "c", "d"] {
        fleet.push(world.join(name).await);
        sleep(ms(200)).await;
    }
    for instance in &fleet {
        instance.owns(3).await;
    }
    assert_eq!(world.moves_for(MoveReason::HandedOff).await.len(), 9);
}

#[tokio::test(start_paused = true)]
async fn a_newcomer_has_its_share_within_a_cycle() {
    let world = World::new(8);
    let a = world.join("a").await;
    a.owns(8).await;
    let joined = Instant::now();
    let b = world.join("b").await;
    b.owns(4).await;
    assert!(joined.elapsed() < Timing::FAST.cycle(), "{:?}", joined.elapsed());
}

/// Takes its time when it hears that a partition was lost.
struct SlowToLose;

impl Handler for SlowToLose {
    async fn events(&mut self, _: &[Event], _: &Context) -> HandlerResult {
        Ok(())
    }

    async fn revoked(&mut self, _: RevokeReason, _: &RevokedContext) {
        sleep(secs(9)).await;
    }
}

#[tokio::test(start_paused = true)]
async fn an_instance_that_was_declared_dead_joins_again_before_its_handlers_have_ended() {
    let world = World::new(4);
    let (builder, ready) = world.prepare("a");
    let processor = builder.handler(|_: &PartitionId| SlowToLose).build().unwrap();
    let a = ready.started(processor.start().await.unwrap());
    a.owns(4).await;
    let b = world.join("b").await;
    b.owns(2).await;
    let former = a.status().instance.clone();
    a.store.set(Fault::Down);
    b.owns(4).await;
    a.store.set(Fault::None);
    let back = Instant::now();
    a.until("a new life", |status| status.instance != former).await;
    // The two that its handlers are still busy with stay with the other; it gets the others.
    a.owns(2).await;
    assert!(back.elapsed() < secs(4), "{:?}", back.elapsed());
    world.fill(10);
    b.owns(2).await;
}
