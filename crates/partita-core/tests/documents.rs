//! What the documents that Partita comes from say an event processor does, test by test. `docs/seeds-map.md` says
//! which statement each of them is about.

mod support;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use partita_core::model::{Incarnation, InstanceId, PartitionId};
use partita_core::processor::FailurePolicy;
use partita_core::processor::{Checkpoint, Operation, Processor, StartError};
use partita_core::processor::{Phase, RevokeReason, StopReason, Timing};
use partita_core::source::{MemoryHub, SourceErrorKind};
use partita_core::store::{
    CheckpointStore, CheckpointWrite, InstanceRecord, InstanceState, InstanceWrite, MemoryStore, MoveReason,
    Op, OwnershipWrite,
};
use support::{
    Behaviour, Entry, Fault, Instance, Probe, Step, What, World, ms, nothing, partition, secs, soon, taking,
};

async fn two_and_two(world: &World) -> (Instance, Instance) {
    let a = world.join("a").await;
    let b = world.join("b").await;
    a.owns(2).await;
    b.owns(2).await;
    (a, b)
}

#[tokio::test(start_paused = true)]
async fn one_instance_owns_all_four_partitions() {
    let world = World::new(4);
    world.fill(25);
    let a = world.join("a").await;
    a.owns(4).await;
    world.handled().await;
    world.assert_once_each();
    a.shutdown().await;
}

#[tokio::test(start_paused = true)]
async fn two_instances_share_four_partitions_two_each() {
    let world = World::new(4);
    world.fill(25);
    let (a, b) = two_and_two(&world).await;
    let both: BTreeSet<PartitionId> = a.owned().into_iter().chain(b.owned()).collect();
    assert_eq!(both.len(), 4);
    world.fill(25);
    world.handled().await;
    world.assert_once_each();
}

#[tokio::test(start_paused = true)]
async fn four_instances_own_one_partition_each() {
    let world = World::new(4);
    world.fill(25);
    let (a, b) = two_and_two(&world).await;
    let (c, d) = tokio::join!(world.join("c"), world.join("d"));
    for instance in [&a, &b, &c, &d] {
        instance.owns(1).await;
    }
    world.fill(25);
    world.handled().await;
    world.assert_once_each();
}

#[tokio::test(start_paused = true)]
async fn one_dies_and_the_other_resumes_all_four_at_its_checkpoints() {
    for store in [MemoryStore::new(), MemoryStore::single_record()] {
        let world = World::on(store, 4);
        let (a, b) = two_and_two(&world).await;
        world.fill(100);
        world.checkpointed(99).await;
        let orphans = a.owned();
        world.fill(5);
        world.handled().await;
        assert_eq!(world.checkpoint(&orphans[0]).await, Some(99), "what follows was not checkpointed");
        let crash = tokio::time::Instant::now();
        a.machine.crash();
        b.owns(4).await;
        for orphan in &orphans {
            world.journal.sees(orphan, What::Handled((100..105).collect())).await;
            world
                .journal
                .until("the other has them", |entries| {
                    let last = |e: &Entry| e.instance.as_str() == "b" && e.handled().contains(&104);
                    entries.iter().any(|e| e.partition == *orphan && last(e))
                })
                .await;
            assert_eq!(world.journal.handled_by("b", orphan), (100..105).collect::<Vec<_>>());
        }
        // The bound of the protocol: the ttl, a cycle with its jitter and a few calls.
        assert!(crash.elapsed() < ms(6_500), "{:?}", crash.elapsed());
        assert_eq!(world.moves_for(MoveReason::TakenFromDead).await.len(), 2);
        world.journal.assert_no_overlap();
    }
}

#[tokio::test(start_paused = true)]
async fn two_join_and_it_is_two_one_one_with_exactly_two_moves() {
    let world = World::new(4);
    let a = world.join("a").await;
    a.owns(4).await;
    world.fill(25);
    let (b, c) = tokio::join!(world.join("b"), world.join("c"));
    a.owns(2).await;
    b.owns(1).await;
    c.owns(1).await;
    tokio::time::sleep(secs(30)).await;
    let moves = world.moves().await;
    assert_eq!(moves.len(), 4 + 2, "four claims and two hand-offs: {moves:#?}");
    assert_eq!(world.moves_for(MoveReason::HandedOff).await.len(), 2);
    world.fill(25);
    world.handled().await;
    world.assert_once_each();
}

#[tokio::test(start_paused = true)]
async fn ownership_changes_when_an_instance_comes() {
    let world = World::new(4);
    let a = world.join_with("a", |b| b, taking(ms(200))).await;
    a.owns(4).await;
    world.fill(200);
    let b = world.join_with("b", |b| b, taking(ms(200))).await;
    a.owns(2).await;
    b.owns(2).await;
    world.handled().await;
    world.assert_once_each();
    assert!(world.moves_for(MoveReason::HandedOff).await.len() == 2);
    for moved in b.owned() {
        let first = world.journal.handled_by("b", &moved)[0];
        assert!(first > 0, "it went on where the other had stopped");
    }
}

#[tokio::test(start_paused = true)]
async fn ownership_changes_when_an_instance_dies() {
    let world = World::new(4);
    let (a, b) = two_and_two(&world).await;
    let orphans = a.owned();
    a.machine.crash();
    let status = b.owns(4).await;
    assert!(status.instance_named(&InstanceId::new("a")).is_none(), "the dead are not shown");
    let taken = world.moves_for(MoveReason::TakenFromDead).await;
    assert_eq!(taken.iter().map(|moved| moved.partition.clone()).collect::<Vec<_>>(), orphans);
    assert!(taken.iter().all(|moved| moved.from.as_ref().is_some_and(|from| from.id().as_str() == "a")));
    world.fill(25);
    world.handled().await;
    world.assert_once_each();
}

#[tokio::test(start_paused = true)]
async fn ownership_changes_when_the_store_is_slower_than_the_ttl() {
    for store in [MemoryStore::new(), MemoryStore::single_record()] {
        let world = World::on(store, 4);
        let (a, b) = two_and_two(&world).await;
        let (before, lost) = (a.status().instance.clone(), a.owned());
        a.store.set(Fault::Slow(secs(7)));
        b.owns(4).await;
        world.fill(25);
        world.handled().await;
        world.assert_once_each();
        a.store.set(Fault::None);
        a.owns(2).await;
        b.owns(2).await;
        assert_ne!(a.status().instance, before, "it came back as a newcomer");
        for partition in &lost {
            world.journal.sees(partition, What::Revoked(RevokeReason::Buried)).await;
        }
        world.fill(25);
        world.handled().await;
        world.assert_once_each();
    }
}

#[tokio::test(start_paused = true)]
async fn a_store_slower_than_the_ttl_with_a_single_instance() {
    let world = World::new(4);
    let a = world.join("a").await;
    a.owns(4).await;
    let (before, moves) = (a.status(), world.moves().await);
    a.store.set(Fault::Slow(secs(7)));
    a.until("the lapse", |status| status.phase == Phase::Lapsed).await;
    world.fill(25);
    tokio::time::sleep(secs(20)).await;
    assert!(world.journal.entries().iter().all(|e| e.what == What::Open), "nothing without a lease");
    a.store.set(Fault::None);
    world.handled().await;
    world.assert_once_each();
    let after = a.owns(4).await;
    assert_eq!(after.instance, before.instance);
    assert_eq!(world.moves().await, moves);
    assert!(world.journal.entries().iter().all(|entry| entry.epoch.0 == 1), "at the same epoch");
}

#[tokio::test(start_paused = true)]
async fn ownership_changes_when_a_source_error_ends_a_reader() {
    let world = World::new(4);
    let (a, b) = two_and_two(&world).await;
    let given_up = a.owned()[0].clone();
    a.source.fail_opening(&given_up, Some(SourceErrorKind::Fatal));
    world.hub.fail_readers(&given_up, SourceErrorKind::Retriable, "a hiccup");
    world.journal.sees(&given_up, What::Stopping(StopReason::SourceFailed)).await;
    // The other one takes it, and gives another one for it.
    b.until("the other one has it", |status| status.owned().any(|p| p.partition == given_up)).await;
    a.owns(2).await;
    b.owns(2).await;
    assert!(b.owned().contains(&given_up));
    world.fill(25);
    world.handled().await;
    world.assert_once_each();
    let moves = world.moves().await;
    assert!(moves.iter().any(|m| m.reason == MoveReason::GivenUp && m.partition == given_up), "{moves:#?}");
    let told = world.errors.of(Operation::OpenReader);
    assert!(told.iter().any(|e| e.partition.as_ref() == Some(&given_up) && e.instance == a.name));
}

#[tokio::test(start_paused = true)]
async fn a_source_error_that_ends_a_reader_with_a_single_instance() {
    let world = World::new(4);
    let a = world.join("a").await;
    a.owns(4).await;
    world.fill(25);
    world.handled().await;
    a.source.fail_opening(&partition(2), Some(SourceErrorKind::Fatal));
    world.hub.fail_readers(&partition(2), SourceErrorKind::Fatal, "no more");
    world.journal.sees(&partition(2), What::Stopping(StopReason::SourceFailed)).await;
    let given_up = tokio::time::Instant::now();
    a.source.fail_opening(&partition(2), None);
    world.fill(25);
    a.until("given up", |status| status.owned().count() == 3).await;
    a.owns(4).await;
    assert!(given_up.elapsed() >= secs(9), "not before the cool-down: {:?}", given_up.elapsed());
    assert!(given_up.elapsed() < secs(13), "soon after the cool-down: {:?}", given_up.elapsed());
    world.handled().await;
    world.assert_once_each();
}

#[tokio::test(start_paused = true)]
async fn calls_of_one_partition_never_overlap() {
    for store in [MemoryStore::new(), MemoryStore::single_record()] {
        let world = World::on(store, 4);
        world.fill(2_000);
        let concurrent = Arc::new(Mutex::new((0_usize, 0_usize)));
        let counted = Arc::clone(&concurrent);
        let behave: Behaviour = Arc::new(move |step, _| {
            let counted = Arc::clone(&counted);
            Box::pin(async move {
                if matches!(step, Step::Events(_)) {
                    let now = counted.lock().unwrap().0 + 1;
                    let most = counted.lock().unwrap().1.max(now);
                    *counted.lock().unwrap() = (now, most);
                    tokio::time::sleep(ms(fastrand::u64(10..200))).await;
                    counted.lock().unwrap().0 -= 1;
                }
                Ok(())
            })
        });
        let mut fleet = vec![world.join_with("0", |b| b, behave.clone()).await];
        for round in 1..9 {
            tokio::time::sleep(secs(4)).await;
            fleet.push(world.join_with(&round.to_string(), |b| b, behave.clone()).await);
            match round % 3 {
                0 => fleet.remove(0).machine.crash(),
                1 => {}
                _ => fleet.remove(0).shutdown().await,
            }
        }
        world.handled().await;
        world.journal.assert_no_overlap();
        assert!(concurrent.lock().unwrap().1 > 1, "different partitions run concurrently");
    }
}

#[tokio::test(start_paused = true)]
async fn a_checkpoint_is_never_past_an_unhandled_event() {
    for store in [MemoryStore::new(), MemoryStore::single_record()] {
        let world = World::on(store, 4);
        world.fill(600);
        let calls = Arc::new(AtomicUsize::new(0));
        let declared: Arc<Mutex<BTreeSet<(PartitionId, i64)>>> = Arc::default();
        let declares = Arc::clone(&declared);
        let behave: Behaviour = Arc::new(move |step, cx| {
            let call = calls.fetch_add(1, Ordering::Relaxed);
            let declares = Arc::clone(&declares);
            Box::pin(async move {
                if let Step::Events(events) = step {
                    tokio::time::sleep(ms(400)).await;
                    match call % 11 {
                        3 => return Err("every eleventh call fails".into()),
                        7 => panic!("and another one panics"),
                        // Unwise, but allowed: what was declared handled counts as handled.
                        5 => {
                            let first = (cx.partition().clone(), events[0].sequence_number().0);
                            declares.lock().unwrap().insert(first);
                            drop(cx.checkpoint(&events[0]));
                        }
                        _ => {}
                    }
                }
                Ok(())
            })
        });
        let tune =
            |b: partita_core::processor::Builder<_>| b.checkpoint(Checkpoint::every(7).or_after(ms(300)));
        let mut fleet = vec![world.join_with("0", tune, behave.clone()).await];
        let mut round = 0;
        soon("the end", async {
            loop {
                let mut done = 0;
                for p in world.hub.description().partitions {
                    let Some(at) = world.checkpoint(&p).await else { continue };
                    let handled: BTreeSet<i64> = world.journal.handled(&p).into_iter().collect();
                    for event in 0..=at {
                        let counts = handled.contains(&event)
                            || declared.lock().unwrap().contains(&(p.clone(), event));
                        assert!(counts, "checkpoint {at} of {p} is past {event}");
                    }
                    done += usize::from(at == 599);
                }
                if done == 4 {
                    break;
                }
                tokio::time::sleep(ms(170)).await;
                round += 1;
                if round % 40 == 0 {
                    fleet.push(world.join_with(&round.to_string(), tune, behave.clone()).await);
                    let leaver = fleet.remove(0);
                    if round % 80 == 0 { leaver.machine.crash() } else { drop(leaver) }
                }
            }
        })
        .await;
        assert!(round > 80, "instances came, left and crashed meanwhile");
    }
}

#[tokio::test(start_paused = true)]
async fn more_instances_than_partitions_leave_standbys_and_one_takes_over() {
    let world = World::new(2);
    let (a, b) = (world.join("a").await, world.join("b").await);
    a.owns(1).await;
    b.owns(1).await;
    let c = world.join("c").await;
    let status = a.until("a standby", |status| status.instances.len() == 3).await;
    assert_eq!(status.standbys().map(|s| s.incarnation.id().as_str()).collect::<Vec<_>>(), ["c"]);
    tokio::time::sleep(secs(20)).await;
    assert_eq!(c.status().owned().count(), 0);
    assert_eq!(c.status().standbys().count(), 1);
    let orphan = b.owned()[0].clone();
    b.machine.crash();
    c.owns(1).await;
    assert_eq!(c.owned(), [orphan]);
    a.until("no standby", |status| status.standbys().count() == 0).await;
}

#[tokio::test(start_paused = true)]
async fn two_groups_read_independently() {
    let (world, other) = (World::new(4), World::new(4));
    world.fill(25);
    let _a = world.join("a").await;
    let (builder, ready) = world.prepare("b");
    let (journal, behave) = (other.journal.clone(), nothing());
    let processor = builder
        .consumer_group("other")
        .handler(move |_: &PartitionId| Probe::new(journal.clone(), "b".into(), behave.clone()))
        .build()
        .unwrap();
    let b = ready.started(processor.start().await.unwrap());
    b.owns(4).await;
    world.handled().await;
    world.assert_once_each();
    other.fill(25);
    other.handled().await;
    other.assert_once_each();
    assert_eq!(b.status().scope.group.as_str(), "other");
    assert_eq!(b.status().instances.len(), 1, "groups do not see one another");
}

#[tokio::test(start_paused = true)]
async fn a_handler_sees_one_partition() {
    let world = World::new(4);
    world.fill(100);
    let (_a, _b) = two_and_two(&world).await;
    world.fill(100);
    world.handled().await;
    let mut seen: BTreeMap<u64, BTreeSet<PartitionId>> = BTreeMap::new();
    for entry in world.journal.entries() {
        seen.entry(entry.handler).or_default().insert(entry.partition);
    }
    assert_eq!(seen.len(), 4 + 2, "one for every partition and ownership");
    assert!(seen.values().all(|partitions| partitions.len() == 1), "{seen:?}");
}

#[tokio::test(start_paused = true)]
async fn open_then_events_then_exactly_one_end() {
    let world = World::new(6);
    let opens = Arc::new(AtomicUsize::new(0));
    let behave: Behaviour = Arc::new(move |step, cx| {
        let fails = matches!(step, Step::Open)
            && *cx.partition() == partition(5)
            && opens.fetch_add(1, Ordering::Relaxed) < 3;
        Box::pin(async move { if fails { Err("not yet".into()) } else { Ok(()) } })
    });
    world.fill(25);
    let a = world.join_with("a", |b| b, behave).await;
    a.owns(6).await;
    world.handled().await;
    let b = world.join("b").await;
    a.owns(3).await;
    b.owns(3).await;
    let [lost, fenced, failed] = <[PartitionId; 3]>::try_from(a.owned()).unwrap();

    let ghost = Incarnation::new(InstanceId::new("ghost"), 1);
    let (scope, op) = (world.scope(), Op { by: ghost.clone(), number: 1 });
    let record = InstanceRecord {
        incarnation: ghost.clone(),
        host: Arc::from("nowhere"),
        started: Default::default(),
        stopping: true,
        ttl: std::time::Duration::from_secs(5),
        declines: Vec::new(),
        state: InstanceState::Live,
        beat: 0,
        details: Default::default(),
    };
    world.store.write_instance(&scope, InstanceWrite::Register(record)).await.unwrap();
    let view = world.store.view(&scope).await.unwrap();
    let held = view.ownerships.into_iter().find(|o| o.partition == lost).unwrap();
    let theft = OwnershipWrite {
        partition: lost.clone(),
        expect: Some(held.version),
        owner: Some(ghost),
        epoch: held.epoch.next(),
        next: None,
        reason: MoveReason::ForcedSeek,
        op: op.clone(),
        checkpoint: None,
    };
    world.store.write_ownership(&scope, theft).await.unwrap();
    world.journal.sees(&lost, What::Revoked(RevokeReason::OwnershipLost)).await;

    let epoch = partita_core::model::Epoch(90);
    let seal = CheckpointWrite::Seal { partition: fenced.clone(), epoch, op };
    world.store.write_checkpoint(&scope, seal).await.unwrap();
    world.fill_one(&fenced, 5);
    world.journal.sees(&fenced, What::Revoked(RevokeReason::Fenced)).await;

    world.hub.fail_readers(&failed, SourceErrorKind::Fatal, "gone");
    world.journal.sees(&failed, What::Stopping(StopReason::SourceFailed)).await;
    // The ghost goes the way of all that is silent.
    b.until("all is owned again", |s| s.partitions.iter().all(|p| p.owner.is_some() && p.next.is_none()))
        .await;
    a.owns(3).await;

    let former = b.status().instance.clone();
    b.store.set(Fault::Down);
    a.owns(6).await;
    b.store.set(Fault::None);
    b.until("a new life", |status| status.instance != former).await;
    b.owns(3).await;
    a.shutdown().await;
    b.shutdown().await;
    world.handled().await;
    let ends: BTreeSet<String> =
        world.journal.assert_lives().values().map(|end| format!("{end:?}")).collect();
    let all = [
        What::OpenFailed,
        What::Revoked(RevokeReason::Buried),
        What::Revoked(RevokeReason::Fenced),
        What::Revoked(RevokeReason::OwnershipLost),
        What::Stopping(StopReason::HandOff),
        What::Stopping(StopReason::Shutdown),
        What::Stopping(StopReason::SourceFailed),
    ];
    assert_eq!(ends, all.iter().map(|end| format!("{end:?}")).collect());
    world.journal.assert_no_overlap();
}

#[tokio::test(start_paused = true)]
async fn a_batch_has_between_one_and_the_most_events() {
    for most in [1, 10, 64] {
        let world = World::new(2);
        world.fill(333);
        let _a = world.join_with("a", |b| b.batch_size(most), taking(ms(5))).await;
        world.handled().await;
        world.assert_once_each();
        let sizes: BTreeSet<usize> =
            world.journal.entries().iter().map(|e| e.handled().len()).filter(|n| *n > 0).collect();
        assert_eq!(sizes.last(), Some(&most));
        assert!(world.journal.entries().iter().all(|e| e.what != What::Began(Vec::new())));
    }
}

#[tokio::test(start_paused = true)]
async fn an_empty_call_only_if_asked_for() {
    let world = World::new(1);
    world.fill(5);
    let quiet = world.join("a").await;
    tokio::time::sleep(secs(20)).await;
    assert!(!world.journal.entries().iter().any(|e| e.what == What::Began(Vec::new())));
    quiet.shutdown().await;
    let asked = world.join_with("b", |b| b.call_on_empty(true).max_wait(secs(3)), nothing()).await;
    asked.owns(1).await;
    world.fill(1);
    world.journal.sees(&partition(0), What::Handled(vec![5])).await;
    tokio::time::sleep(secs(10)).await;
    let empty: Vec<_> =
        world.journal.entries().into_iter().filter(|e| e.what == What::Handled(Vec::new())).collect();
    assert_eq!(empty.len(), 3, "one for every three seconds without an event");
    assert!(empty.windows(2).all(|pair| pair[1].at - pair[0].at >= secs(3)));
}

#[tokio::test(start_paused = true)]
async fn skip_rest_passes_over_the_rest_of_the_batch() {
    let world = World::new(1);
    world.fill(30);
    let calls = Arc::new(Mutex::new(Vec::new()));
    let (builder, ready) = world.prepare("a");
    let seen = Arc::clone(&calls);
    let processor = builder.on_failure(FailurePolicy::SkipRest).on_event(move |event, _| {
        seen.lock().unwrap().push(event.sequence_number().0);
        async move { if event.sequence_number().0 == 13 { Err("unlucky".into()) } else { Ok(()) } }
    });
    let a = ready.started(processor.build().unwrap().start().await.unwrap());
    world.checkpointed(29).await;
    assert_eq!(*calls.lock().unwrap(), (0..14).chain(20..30).collect::<Vec<_>>());
    let reports = world.errors.of(Operation::HandlerEvents);
    assert_eq!(reports.len(), 1);
    assert!(reports[0].error.to_string().contains("unlucky"), "{}", reports[0]);
    assert!(reports[0].error.to_string().contains("13 to 19"), "{}", reports[0]);
    a.shutdown().await;
}

#[tokio::test(start_paused = true)]
async fn a_failed_call_goes_to_error_and_on_error() {
    let world = World::new(2);
    world.fill(20);
    let tries = Arc::new(AtomicUsize::new(0));
    let behave: Behaviour = Arc::new(move |step, cx| {
        let try_number = match &step {
            Step::Events(events)
                if *cx.partition() == partition(0) && events[0].sequence_number().0 == 10 =>
            {
                tries.fetch_add(1, Ordering::Relaxed)
            }
            _ => usize::MAX,
        };
        Box::pin(async move {
            match try_number {
                0 => Err("the first time".into()),
                1 => panic!("the second time"),
                _ => Ok(()),
            }
        })
    });
    let _a = world.join_with("a", |b| b, behave).await;
    world.journal.sees(&partition(1), What::Handled((10..20).collect())).await;
    let failing = world.journal.of(&partition(0));
    assert!(!failing.iter().any(|e| e.handled().contains(&10)), "the other partition did not wait");
    world.handled().await;
    world.assert_once_each();
    let told: Vec<String> = world
        .journal
        .of(&partition(0))
        .into_iter()
        .filter_map(|e| match e.what {
            What::Error(Operation::HandlerEvents, text) => Some(text),
            _ => None,
        })
        .collect();
    assert_eq!(told, ["the first time", "the handler panicked: the second time"]);
    let reports = world.errors.of(Operation::HandlerEvents);
    assert_eq!(reports.iter().map(|e| e.error.to_string()).collect::<Vec<_>>(), told);
    assert!(reports.iter().all(|e| e.partition == Some(partition(0)) && e.instance.as_str() == "a"));

    // One event at a time: only what was not handled comes again.
    let world = World::new(1);
    world.fill(6);
    let calls = Arc::new(Mutex::new(Vec::new()));
    let (builder, ready) = world.prepare("b");
    let seen = Arc::clone(&calls);
    let processor = builder.on_event(move |event, _| {
        let mut calls = seen.lock().unwrap();
        calls.push(event.sequence_number().0);
        let third = calls.iter().filter(|n| **n == 3).count();
        drop(calls);
        async move {
            match (event.sequence_number().0, third) {
                (3, 1) => Err("an error".into()),
                (3, 2) => panic!("a panic"),
                _ => Ok(()),
            }
        }
    });
    let _b = ready.started(processor.build().unwrap().start().await.unwrap());
    world.checkpointed(5).await;
    assert_eq!(*calls.lock().unwrap(), [0, 1, 2, 3, 3, 3, 4, 5]);
}

#[tokio::test(start_paused = true)]
async fn what_prevents_a_start_surfaces_there() {
    let ignore = |_, _| async { Ok(()) };
    let world = World::new(4);
    let (builder, ready) = world.prepare("a");
    world.hub.set_reachable(false);
    let error = builder.on_batch(ignore).build().unwrap().start().await.unwrap_err();
    assert!(matches!(error, StartError::Source(_)), "{error}");
    assert_eq!(ready.store.calls(), 0, "nothing was left behind");

    world.hub.set_reachable(true);
    let (builder, ready) = world.prepare("b");
    ready.store.set(Fault::Down);
    let error = builder.on_batch(ignore).build().unwrap().start().await.unwrap_err();
    assert!(matches!(error, StartError::Store(_)), "{error}");
    assert!(error.to_string().contains("the store is down"), "{error}");
    assert!(world.store.view(&world.scope()).await.unwrap().instances.is_empty());

    let (builder, ready) = world.prepare("c");
    ready.store.set(Fault::Slow(secs(60)));
    let error = builder.on_batch(ignore).build().unwrap().start().await.unwrap_err();
    assert!(matches!(error, StartError::StoreTooSlow { .. }), "{error}");

    let empty = MemoryHub::new("empty", 0);
    let processor = Processor::builder(empty.source(), MemoryStore::new()).on_batch(ignore).build().unwrap();
    let error = processor.start().await.unwrap_err();
    assert!(matches!(&error, StartError::NoPartitions(hub) if hub == "empty"), "{error}");
}

#[tokio::test(start_paused = true)]
async fn shutdown_drains_checkpoints_releases_and_reports() {
    for store in [MemoryStore::new(), MemoryStore::single_record()] {
        let world = World::on(store, 4);
        world.fill(10);
        let a = world.join_with("a", |b| b, taking(secs(4))).await;
        a.owns(4).await;
        world.journal.until("all are busy", |e| e.iter().filter(|e| e.what != What::Open).count() == 4).await;
        a.shutdown().await;
        world.assert_once_each();
        for p in world.hub.description().partitions {
            assert_eq!(world.checkpoint(&p).await, Some(9));
        }
        let view = world.store.view(&world.scope()).await.unwrap();
        assert!(view.ownerships.iter().all(|o| o.owner.is_none()));
        assert!(view.instances.iter().all(|i| i.record.state == InstanceState::Dead));
        assert_eq!(world.moves_for(MoveReason::Released).await.len(), 4);
        let ends = world.journal.assert_lives();
        assert!(ends.values().all(|end| *end == What::Stopping(StopReason::Shutdown)));
    }
    // What the store does not take is told.
    let world = World::new(1);
    let a = world.join("a").await;
    a.owns(1).await;
    a.store.set(Fault::Down);
    let error = soon("the report", a.handle.shutdown()).await.unwrap_err();
    assert!(error.failures[0].starts_with("partition 0: "), "{error}");
    tokio::task::spawn_blocking(a_handler_that_does_not_end_is_reported).await.unwrap();
}

/// A call that blocks its thread cannot be cut off: real threads, real time.
fn a_handler_that_does_not_end_is_reported() {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    runtime.block_on(async {
        let world = World::new(1);
        world.fill(1);
        let (began, mut begun) = tokio::sync::mpsc::channel(1);
        let release = Arc::new(std::sync::Barrier::new(2));
        let held = Arc::clone(&release);
        let processor = Processor::builder(world.hub.source(), world.store.clone())
            .timing(Timing::new(ms(100), ms(500)).unwrap())
            .drain_time(ms(50))
            .on_event(move |_, _| {
                let (began, held) = (began.clone(), Arc::clone(&held));
                async move {
                    began.send(()).await?;
                    held.wait();
                    Ok(())
                }
            })
            .build()
            .unwrap();
        let handle = processor.start().await.unwrap();
        begun.recv().await.unwrap();
        let error = soon("the report", handle.shutdown()).await.unwrap_err();
        assert_eq!(error.failures, ["partition 0: a call of the handler did not end"]);
        release.wait();
    });
}
