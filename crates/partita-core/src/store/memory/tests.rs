//! What is particular to this store; the protocol is the conformance suite's.

use futures_util::{FutureExt, future::join_all};

use super::super::{InstanceRecord, InstanceState, MoveReason, Op, Version};
use super::*;
use crate::model::{ConsumerGroup, Epoch, HubName, InstanceId, Namespace, PartitionId, Timestamp};

fn scope() -> Scope {
    Scope { namespace: Namespace::new("memory"), hub: HubName::new("hub"), group: ConsumerGroup::default() }
}

fn incarnation(number: u128) -> Incarnation {
    Incarnation::new(InstanceId::new("host"), number)
}

fn register(number: u128) -> InstanceWrite {
    InstanceWrite::Register(InstanceRecord {
        incarnation: incarnation(number),
        host: Arc::from("machine"),
        started: Timestamp(0),
        stopping: false,
        ttl: std::time::Duration::from_secs(5),
        declines: Vec::new(),
        state: InstanceState::Live,
        beat: 0,
        details: Default::default(),
    })
}

fn claim(partition: u32, expect: Option<Version>, owner: u128) -> OwnershipWrite {
    OwnershipWrite {
        partition: PartitionId::from(partition),
        expect,
        owner: Some(incarnation(owner)),
        epoch: Epoch(1),
        next: None,
        reason: MoveReason::Claimed,
        op: Op { by: incarnation(owner), number: 0 },
        checkpoint: None,
    }
}

async fn version_of(store: &MemoryStore, number: u128) -> Version {
    let view = store.view(&scope()).await.unwrap();
    view.instances.into_iter().find(|seen| seen.record.incarnation == incarnation(number)).unwrap().version
}

#[tokio::test(start_paused = true)]
async fn the_dead_are_forgotten_after_an_hour_and_never_get_an_old_version() {
    let store = MemoryStore::new();
    store.write_instance(&scope(), register(1)).await.unwrap();
    let expect = version_of(&store, 1).await;
    let leave = InstanceWrite::Leave { incarnation: incarnation(1), expect: expect.clone() };
    store.write_instance(&scope(), leave).await.unwrap();

    tokio::time::advance(Duration::from_secs(3_599)).await;
    store.write_instance(&scope(), register(2)).await.unwrap();
    assert_eq!(store.view(&scope()).await.unwrap().instances.len(), 2);

    tokio::time::advance(Duration::from_secs(1)).await;
    store.write_instance(&scope(), register(3)).await.unwrap();
    let names: Vec<u128> =
        store.view(&scope()).await.unwrap().instances.iter().map(|i| i.record.incarnation.nonce()).collect();
    assert_eq!(names, [2, 3]);

    store.write_instance(&scope(), InstanceWrite::BuryAbsent { victim: incarnation(1) }).await.unwrap();
    assert_ne!(version_of(&store, 1).await, expect);
}

#[tokio::test(start_paused = true)]
async fn ages_count_from_the_last_heartbeat() {
    let store = MemoryStore::new();
    store.write_instance(&scope(), register(1)).await.unwrap();
    tokio::time::advance(Duration::from_secs(7)).await;
    let view = store.view(&scope()).await.unwrap();
    assert_eq!(view.instances[0].age, Duration::from_secs(7));
}

#[tokio::test]
async fn a_write_wakes_only_those_it_names() {
    let store = MemoryStore::new();
    let scope = scope();
    let cursor = store.view(&scope).await.unwrap().cursor;
    let (one, two) = (incarnation(1), incarnation(2));
    let mut first = store.changed(&scope, &one, cursor);
    let mut second = store.changed(&scope, &two, cursor);
    assert!(first.as_mut().now_or_never().is_none());
    assert!(second.as_mut().now_or_never().is_none());
    store.write_ownership(&scope, claim(0, None, 1)).await.unwrap();
    assert!(first.now_or_never().is_some());
    assert!(second.as_mut().now_or_never().is_none());

    store.write_instance(&scope, register(3)).await.unwrap();
    assert!(second.now_or_never().is_some(), "a newcomer concerns all");
}

#[tokio::test]
async fn a_change_between_the_view_and_the_question_is_told() {
    let store = MemoryStore::new();
    let cursor = store.view(&scope()).await.unwrap().cursor;
    store.write_ownership(&scope(), claim(0, None, 1)).await.unwrap();
    let (named, other) = (incarnation(1), incarnation(2));
    assert!(store.changed(&scope(), &named, cursor).now_or_never().is_some());
    assert!(store.changed(&scope(), &other, cursor).now_or_never().is_none());
}

#[tokio::test]
async fn waiters_and_names_of_the_gone_are_not_kept() {
    let store = MemoryStore::new();
    let scope = scope();
    let cursor = store.view(&scope).await.unwrap().cursor;
    for number in 0..100 {
        assert!(store.changed(&scope, &incarnation(number), cursor).now_or_never().is_none());
    }
    let mut expect = None;
    for number in 0..100 {
        let outcome = store.write_ownership(&scope, claim(0, expect, number)).await.unwrap();
        let OwnershipOutcome::Applied { ownership, .. } = outcome else { panic!("{outcome:?}") };
        expect = Some(ownership.version);
    }
    store.write_instance(&scope, register(1)).await.unwrap();
    assert_eq!(store.scope(&scope).lock().changes.entries(), 0);
    let view_before = cursor;
    assert!(store.changed(&scope, &incarnation(7), view_before).now_or_never().is_some());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_wake_up_is_lost_between_threads() {
    let store = MemoryStore::new();
    let scope = scope();
    let mut expect = None;
    for round in 0..2_000 {
        let cursor = store.view(&scope).await.unwrap().cursor;
        let waiters = (0..3).map(|_| {
            let (store, scope) = (store.clone(), scope.clone());
            tokio::spawn(async move { store.changed(&scope, &incarnation(1), cursor).await })
        });
        let waiters: Vec<_> = waiters.collect();
        let outcome = store.write_ownership(&scope, claim(0, expect.take(), 1)).await.unwrap();
        let OwnershipOutcome::Applied { ownership, .. } = outcome else { panic!("{outcome:?}") };
        expect = Some(ownership.version);
        let all = tokio::time::timeout(Duration::from_secs(10), join_all(waiters)).await;
        assert!(all.is_ok(), "a waiter slept through the write of round {round}");
    }
}

#[tokio::test]
async fn a_store_of_single_records_refuses_a_write_over_two() {
    let store = MemoryStore::single_record();
    let write = OwnershipWrite {
        checkpoint: Some(crate::store::AtomicCheckpoint { last: None, seal: Epoch(1) }),
        ..claim(0, None, 1)
    };
    let error = store.write_ownership(&scope(), write).await.unwrap_err();
    assert!(!error.is_transient());
    assert!(store.view(&scope()).await.unwrap().ownerships.is_empty());
}
