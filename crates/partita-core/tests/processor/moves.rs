//! Partitions that change their owner.

use std::sync::Arc;

use partita_core::model::InstanceId;
use partita_core::processor::{Checkpoint, Operation, Processor};
use partita_core::processor::{StopReason, Timing};
use partita_core::source::MemoryHub;
use partita_core::store::{CheckpointStore, InstanceState, MemoryStore, MoveReason};

use crate::support::{Behaviour, Step, What, World, ms, nothing, partition, secs, soon, taking};

#[tokio::test(start_paused = true)]
async fn planned_moves_deliver_no_event_twice() {
    for store in [MemoryStore::new(), MemoryStore::single_record()] {
        let world = World::on(store, 8);
        let producer = async {
            for _ in 0..600 {
                world.fill(3);
                tokio::time::sleep(ms(100)).await;
            }
        };
        let operator = async {
            // Few checkpoints by themselves: what counts is the one of the hand-off.
            let join = async |name: String| {
                let tune = |b: partita_core::processor::Builder<_>| b.checkpoint(Checkpoint::every(100_000));
                world.join_with(&name, tune, taking(ms(40))).await
            };
            let mut fleet = vec![join("first".to_owned()).await];
            for round in 0..12 {
                tokio::time::sleep(secs(2)).await;
                fleet.push(join(format!("{round}")).await);
                tokio::time::sleep(ms(1_700 + 130 * round)).await;
                if round % 3 != 0 {
                    fleet.remove(0).shutdown().await;
                }
            }
            fleet
        };
        let ((), fleet) = tokio::join!(producer, operator);
        world.handled().await;
        world.assert_once_each();
        let moves = world.moves().await;
        let planned = moves.iter().filter(|m| m.reason == MoveReason::HandedOff).count();
        assert!(planned >= 20, "only {planned} hand-offs");
        assert!(
            moves.iter().all(|m| m.reason != MoveReason::TakenFromDead && m.reason != MoveReason::Stolen)
        );
        assert_eq!(fleet.len(), 5);
    }
}

#[tokio::test(start_paused = true)]
async fn a_dropped_handle_stops_delivery_and_releases() {
    let world = World::new(4);
    world.fill(1_000);
    let a = world.join_with("a", |b| b, taking(ms(300))).await;
    a.owns(4).await;
    world.journal.sees(&partition(0), What::Handled((0..10).collect())).await;
    let status = a.handle.watch();
    let began =
        |world: &World| world.journal.entries().iter().filter(|e| matches!(e.what, What::Began(_))).count();
    let (before, store) = (began(&world), a.store.clone());
    drop(a);
    soon("the end", async {
        while status.has_changed().is_ok() {
            tokio::time::sleep(ms(10)).await
        }
    })
    .await;
    assert_eq!(began(&world), before, "no call began after the drop");
    let view = world.store.view(&world.scope()).await.unwrap();
    assert!(view.ownerships.iter().all(|o| o.owner.is_none()));
    assert!(view.instances.iter().all(|i| i.record.state == InstanceState::Dead));
    let calls = store.calls();
    tokio::time::sleep(secs(60)).await;
    assert_eq!(store.calls(), calls, "nothing is left of it");
    let _b = world.join("b").await;
    world.handled().await;
    world.assert_once_each();
}

#[tokio::test(start_paused = true)]
async fn partitions_added_to_a_live_hub_are_picked_up() {
    let world = World::new(2);
    let (a, b) = (world.join("a").await, world.join("b").await);
    a.owns(1).await;
    b.owns(1).await;
    world.hub.add_partitions(4);
    world.fill(25);
    a.until("six partitions", |status| status.partitions.len() == 6).await;
    a.owns(3).await;
    b.until("six partitions", |status| status.partitions.len() == 6).await;
    b.owns(3).await;
    world.handled().await;
    world.assert_once_each();
}

#[tokio::test(start_paused = true)]
async fn a_call_that_outlasts_the_drain_time_is_cut_off_and_logged_as_a_steal() {
    let world = World::new(2);
    world.fill(10);
    let stuck: Behaviour = Arc::new(|step, _| {
        Box::pin(async move {
            if matches!(step, Step::Events(_)) {
                std::future::pending::<()>().await;
            }
            Ok(())
        })
    });
    let a = world.join_with("a", |b| b.drain_time(secs(3)), stuck).await;
    a.owns(2).await;
    let b = world.join("b").await;
    b.owns(1).await;
    let moved = b.owned()[0].clone();
    world.journal.sees(&moved, What::Cut((0..10).collect())).await;
    world.journal.sees(&moved, What::Stopping(StopReason::HandOff)).await;
    world.journal.sees(&moved, What::Handled((0..10).collect())).await;
    let moves = world.moves().await;
    let reasons: Vec<_> = moves.iter().filter(|m| m.partition == moved).map(|m| m.reason).collect();
    assert_eq!(reasons, [MoveReason::Claimed, MoveReason::Stolen]);
    world.journal.assert_no_overlap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn an_uncancellable_call_keeps_its_partition_and_is_asked_for_again_only_after_the_cool_down() {
    let world = World::new(2);
    world.fill(1);
    let timing = Timing::new(ms(100), ms(500)).unwrap();
    let release = Arc::new(std::sync::Barrier::new(3));
    let held = Arc::clone(&release);
    let errors = world.errors.clone();
    let calls = Arc::new(crate::support::TestStore::new(world.store.clone()));
    let a = Processor::builder(world.hub.source(), (*calls).clone())
        .timing(timing)
        .drain_time(ms(100))
        .cool_down(secs(2))
        .on_error(errors.listener())
        .on_event(move |_, _| {
            let held = Arc::clone(&held);
            async move {
                held.wait();
                Ok(())
            }
        })
        .build()
        .unwrap();
    let a = a.start().await.unwrap();
    soon("a owns both", a.wait_for(|status| status.owned().count() == 2)).await;
    let b = Processor::builder(world.hub.source(), world.store.clone())
        .timing(timing)
        .cool_down(secs(2))
        .on_event(async |_, _| Ok(()))
        .build()
        .unwrap();
    let b = b.start().await.unwrap();
    while errors.of(Operation::Drain).is_empty() {
        tokio::time::sleep(ms(10)).await;
    }
    let before = calls.calls();
    tokio::time::sleep(ms(1_000)).await;
    let per_cycle = (calls.calls() - before) / 10;
    assert!(per_cycle <= 4, "{per_cycle} store calls per cycle");
    assert_eq!(errors.of(Operation::Drain).len(), 1, "not asked for again before the cool-down");
    assert_eq!(a.status().owned().count(), 2, "it stays");
    release.wait();
    soon("b has one", b.wait_for(|status| status.owned().count() == 1)).await;
    assert!(world.moves().await.iter().all(|m| m.reason != MoveReason::TakenFromDead));
}

#[tokio::test(start_paused = true)]
async fn two_processors_of_one_name_both_work_and_are_warned_of() {
    let world = World::new(4);
    let (a, b) = (world.join("twin").await, world.join("twin").await);
    a.owns(2).await;
    b.owns(2).await;
    world.fill(25);
    world.handled().await;
    world.assert_once_each();
    tokio::time::sleep(secs(30)).await;
    let warnings = world.errors.of(Operation::View);
    assert_eq!(warnings.len(), 2, "once each");
    assert!(warnings[0].to_string().contains("another live instance calls itself twin"), "{}", warnings[0]);
}

#[tokio::test(start_paused = true)]
async fn the_owner_level_at_the_source_is_the_epoch() {
    let world = World::new(2);
    let a = world.join("a").await;
    a.owns(2).await;
    let b = world.join("b").await;
    b.owns(1).await;
    let moved = b.owned()[0].clone();
    let requests = b.source.requests();
    assert_eq!(requests.len(), 1);
    assert_eq!(requests[0].partition, moved);
    let epoch = b.status().owned().next().unwrap().epoch;
    assert_eq!(requests[0].owner_level, Some(epoch));
    assert_eq!(epoch.0, 2);
    assert_eq!(&*requests[0].name, "b");
    assert!(a.source.requests().iter().all(|request| request.owner_level.is_some_and(|level| level.0 == 1)));
}

#[tokio::test(start_paused = true)]
async fn the_status_shows_owners_standbys_lag_and_moves_with_reasons() {
    let world = World::new(1);
    world.fill(100);
    let a = world.join_with("a", |b| b, taking(secs(1))).await;
    let lagging = a
        .until("a lag", |s| {
            s.owned().any(|p| p.here.as_ref().is_some_and(|here| here.lag_events == Some(80)))
        })
        .await;
    let here = lagging.partitions[0].here.clone().unwrap();
    assert_eq!(here.handled.map(|n| n.0), Some(19));
    let b = world.join("b").await;
    a.until("a standby", |s| s.standbys().any(|i| i.incarnation.id() == &InstanceId::new("b"))).await;
    let caught_up = a
        .until("the end", |s| {
            s.owned().any(|p| p.here.as_ref().is_some_and(|here| here.lag_events == Some(0)))
        })
        .await;
    assert!(caught_up.partitions[0].here.as_ref().unwrap().rate > 5.0, "{caught_up:?}");
    a.until("its checkpoint", |s| {
        s.owned().any(|p| p.here.as_ref().is_some_and(|here| here.checkpoint.is_some_and(|n| n.0 == 99)))
    })
    .await;
    a.shutdown().await;
    let status = b.owns(1).await;
    let reasons: Vec<_> = status.moves.iter().map(|m| m.reason).collect();
    assert_eq!(reasons, [MoveReason::Released, MoveReason::Claimed]);
    assert_eq!(status.partitions[0].owner.as_ref().unwrap().id().as_str(), "b");
    assert!(status.partitions[0].epoch.0 > 1);
}

#[tokio::test(start_paused = true)]
async fn a_drain_and_a_stopping_that_each_take_their_time_are_in_good_order() {
    let world = World::new(1);
    world.fill(1);
    let slow: Behaviour = Arc::new(|step, _| {
        Box::pin(async move {
            if !matches!(step, Step::Open) {
                tokio::time::sleep(secs(9)).await;
            }
            Ok(())
        })
    });
    let a = world.join_with("a", |b| b, slow).await;
    world.journal.sees(&partition(0), What::Began(vec![0])).await;
    a.shutdown().await;
    assert_eq!(world.checkpoint(&partition(0)).await, Some(0));
}

#[tokio::test(start_paused = true)]
async fn a_group_that_is_balanced_stays_as_it_is() {
    let world = World::new(8);
    let (a, b) = (world.join("a").await, world.join("b").await);
    a.owns(4).await;
    b.owns(4).await;
    let c = world.join_with("c", |b| b, nothing()).await;
    c.until("its share", |s| s.owned().count() >= 2).await;
    tokio::time::sleep(secs(5)).await;
    let moves = world.moves().await.len();
    tokio::time::sleep(secs(600)).await;
    assert_eq!(world.moves().await.len(), moves);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_handler_that_blocks_does_not_starve_the_heartbeat() {
    let (hub, store) = (MemoryHub::new("hub", 2), MemoryStore::new());
    let timing = Timing::new(ms(100), ms(500)).unwrap();
    let start = async |block: bool| {
        let processor = Processor::builder(hub.source(), store.clone())
            .timing(timing)
            .on_event(move |_, _| async move {
                if block {
                    std::thread::sleep(ms(1_500));
                }
                Ok(())
            })
            .build()
            .unwrap();
        processor.start().await.unwrap()
    };
    let (a, b) = (start(true).await, start(false).await);
    for handle in [&a, &b] {
        soon("one each", handle.wait_for(|s| s.owned().count() == 1 && s.owned().all(|p| p.next.is_none())))
            .await;
    }
    let before = a.status().instance.clone();
    let blocked = a.status().owned().next().unwrap().partition.clone();
    hub.append(&blocked, partita_core::model::Event::builder("a long one"));
    let handled = |s: &partita_core::processor::Status| {
        s.owned().any(|p| p.here.as_ref().is_some_and(|here| here.handled.is_some()))
    };
    soon("the call's end", a.wait_for(handled)).await;
    let status = a.status();
    assert_eq!(status.instance, before, "it was not declared dead");
    assert!(status.moves.iter().all(|m| m.reason != MoveReason::TakenFromDead));
}
