//! Stores that fail, are slow or lose answers.

use partita_core::processor::Operation;
use partita_core::processor::{Phase, Timing};
use partita_core::store::{CheckpointStore, InstanceSeen, InstanceState, MemoryStore, MoveReason};

use crate::support::{Fault, What, World, ms, secs, soon, taking};

#[tokio::test(start_paused = true)]
async fn a_store_outage_of_any_length_moves_nothing() {
    for (store, fault) in [
        (MemoryStore::new(), Fault::Down),
        (MemoryStore::single_record(), Fault::Slow(secs(5))),
        (MemoryStore::new(), Fault::Lost),
    ] {
        let world = World::on(store, 6);
        let fleet = [world.join("a").await, world.join("b").await, world.join("c").await];
        for instance in &fleet {
            instance.owns(2).await;
        }
        let (moves, before) = (world.moves().await, fleet.each_ref().map(|i| i.status().instance.clone()));
        for instance in &fleet {
            instance.store.set(fault);
        }
        for instance in &fleet {
            instance.until("the lapse", |status| status.phase == Phase::Lapsed).await;
        }
        world.fill(50);
        tokio::time::sleep(secs(60)).await;
        let handled =
            |world: &World| world.journal.entries().iter().filter(|e| !e.handled().is_empty()).count();
        if fault != Fault::Lost {
            assert_eq!(handled(&world), 0, "{fault:?}: nothing without a lease");
        }
        for instance in &fleet {
            // Not all at the same moment.
            tokio::time::sleep(ms(300)).await;
            instance.store.set(Fault::None);
        }
        world.handled().await;
        world.assert_once_each();
        tokio::time::sleep(secs(20)).await;
        assert_eq!(world.moves().await, moves, "{fault:?}");
        assert_eq!(fleet.each_ref().map(|i| i.status().instance.clone()), before, "{fault:?}");
        world.journal.assert_no_overlap();
    }
}

#[tokio::test(start_paused = true)]
async fn a_lease_that_lapses_stops_delivery_before_the_ttl() {
    let world = World::new(2);
    world.fill(1_000);
    let a = world.join_with("a", |b| b.batch_size(1), taking(ms(100))).await;
    a.owns(2).await;
    a.store.set(Fault::Down);
    let cut_off = tokio::time::Instant::now();
    tokio::time::sleep(secs(30)).await;
    let began = world.journal.entries().into_iter().filter(|e| matches!(e.what, What::Began(_)));
    let last = began.map(|e| e.at).max().unwrap();
    // The last heartbeat was sent before; its lease is 3.5 s.
    assert!(last - cut_off < ms(3_500), "{:?}", last - cut_off);
    assert!(last - cut_off > ms(2_000), "a store that fails for a while does not stop delivery");
    a.store.set(Fault::None);
    world.handled().await;
    world.assert_once_each();
}

#[tokio::test(start_paused = true)]
async fn a_call_is_cut_off_before_others_may_take_over() {
    let world = World::new(2);
    let a = world.join_with("a", |b| b, taking(secs(60))).await;
    a.owns(2).await;
    let b = world.join("b").await;
    a.owns(1).await;
    b.owns(1).await;
    let kept = a.owned()[0].clone();
    world.fill_one(&kept, 5);
    world.journal.sees(&kept, What::Began((0..5).collect())).await;
    a.store.set(Fault::Down);
    let cut_off = tokio::time::Instant::now();
    world.journal.sees(&kept, What::Cut((0..5).collect())).await;
    assert!(cut_off.elapsed() < secs(5), "{:?}", cut_off.elapsed());
    world.journal.sees(&kept, What::Handled((0..5).collect())).await;
    assert_eq!(world.journal.handled_by("b", &kept), [0, 1, 2, 3, 4]);
    world.journal.assert_no_overlap();
}

#[tokio::test(start_paused = true)]
async fn lost_answers_lose_no_event_and_heal() {
    for store in [MemoryStore::new(), MemoryStore::single_record()] {
        let world = World::on(store, 6);
        let mut fleet = vec![world.join("a").await, world.join("b").await];
        for round in 0..20_u64 {
            world.fill(7);
            let instance = &fleet[usize::try_from(round).unwrap() % fleet.len()];
            let fault = if round % 3 == 0 { Fault::Slow(ms(350)) } else { Fault::Lost };
            instance.store.set(fault);
            if round == 4 || round == 9 {
                fleet.push(world.join(&format!("{round}")).await);
            }
            tokio::time::sleep(ms(300 + 170 * round)).await;
            for instance in &fleet {
                instance.store.set(Fault::None);
            }
            tokio::time::sleep(ms(900)).await;
        }
        world.handled().await;
        world.journal.assert_no_overlap();
        // Healing: within the ttl and three cycles all is balanced again.
        tokio::time::sleep(secs(8)).await;
        let shares: Vec<usize> =
            fleet.iter().map(|i| i.status().owned().filter(|p| p.here.is_some()).count()).collect();
        assert_eq!(shares.iter().sum::<usize>(), 6, "{shares:?}");
        assert!(shares.iter().all(|share| (1..=2).contains(share)), "{shares:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_registration_whose_answer_is_lost_does_not_count_as_a_fresh_heartbeat() {
    let world = World::new(4);
    let (a, b) = (world.join("a").await, world.join("b").await);
    a.owns(2).await;
    let former = a.status().instance.clone();
    a.store.set(Fault::Down);
    b.owns(4).await;
    a.store.lose_next_registration();
    a.store.set(Fault::None);
    soon("the registration", async {
        let is_new = |i: &InstanceSeen| {
            i.record.incarnation.id() == former.id() && i.record.state == InstanceState::Live
        };
        while !world.store.view(&world.scope()).await.unwrap().instances.iter().any(is_new) {
            tokio::time::sleep(ms(10)).await;
        }
    })
    .await;
    // When the answer comes at last, the record is almost old enough to be buried.
    a.store.set(Fault::Down);
    tokio::time::sleep(ms(3_900)).await;
    a.store.set(Fault::None);
    a.until("a new life", |status| status.instance != former).await;
    a.owns(2).await;
    b.owns(2).await;
    let heartbeats = world.errors.of(Operation::Heartbeat);
    let burials = heartbeats.iter().filter(|e| e.error.to_string().contains("declared this instance dead"));
    assert_eq!(burials.count(), 1, "it renewed its record before it relied on it");
    world.fill(25);
    world.handled().await;
    world.assert_once_each();
}

#[tokio::test(start_paused = true)]
async fn while_a_groups_ttl_is_changed_the_longer_one_counts() {
    let world = World::new(2);
    let long = Timing::new(secs(10), secs(60)).unwrap();
    let slow = world.join_with("slow", |b| b.timing(long), taking(ms(1))).await;
    slow.owns(2).await;
    let _fast = world.join("fast").await;
    // Longer than the ttl of the one and shorter than that of the other.
    tokio::time::sleep(secs(40)).await;
    assert_eq!(world.moves_for(MoveReason::TakenFromDead).await, []);
    let told = world.errors.of(Operation::View);
    assert!(told.iter().any(|error| error.to_string().contains("the same timing")), "{told:?}");
}
