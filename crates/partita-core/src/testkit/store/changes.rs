//! Who is woken by what. Stores that do not notify have nothing to show here.

use std::task::Poll;
use std::time::Duration;

use futures_util::future::{BoxFuture, FutureExt, ready};
use tokio::time::timeout;

use super::super::poll_once;
use super::StoreHarness;
use super::group::{Group, applied, incarnation};
use crate::model::{Incarnation, PartitionId};
use crate::store::{InstanceOutcome, InstanceRecord, InstanceWrite, OwnershipWrite};

/// How long a notification may take.
const WAKE_MAX: Duration = Duration::from_secs(5);

/// How long to listen before nothing counts as silence.
const SILENCE: Duration = Duration::from_millis(200);

/// Two handles, as the waiter and the writer are different processes; none if the store does not notify.
async fn two(harness: &dyn StoreHarness) -> Option<(Group, Group)> {
    let waiter = Group::new(harness).await;
    if !waiter.store.properties().notifies {
        return None;
    }
    let writer = waiter.reopen(harness).await;
    Some((waiter, writer))
}

/// Waits from the view of now on; the wait has begun when this returns. Being woken too early is no fault.
async fn wait<'a>(group: &'a Group, me: &'a Incarnation) -> BoxFuture<'a, ()> {
    let cursor = group.view().await.cursor;
    let mut changed = group.store.changed(&group.scope, me, cursor);
    match poll_once(&mut changed).await {
        Poll::Pending => changed,
        Poll::Ready(()) => Box::pin(ready(())),
    }
}

async fn is_woken(changed: BoxFuture<'_, ()>, why: &str) {
    assert!(timeout(WAKE_MAX, changed).await.is_ok(), "not woken within {WAKE_MAX:?}: {why}");
}

/// An ownership that names an incarnation, or named it, wakes it.
pub async fn change_wakes_the_one_it_concerns(harness: &dyn StoreHarness) {
    let Some((waiter, writer)) = two(harness).await else { return };
    let p = PartitionId::from(0);
    let me = waiter.join("me").await.record.incarnation;
    let other = waiter.join("other").await.record.incarnation;

    let changed = wait(&waiter, &me).await;
    let held = writer.owned(writer.take(&p, None, &me, 1)).await;
    is_woken(changed, "it became the owner").await;

    let changed = wait(&waiter, &me).await;
    let ask = OwnershipWrite { next: Some(other.clone()), ..writer.take(&p, Some(&held.version), &me, 1) };
    let held = writer.owned(ask).await;
    is_woken(changed, "somebody asked for its partition").await;

    let changed = wait(&waiter, &me).await;
    let held = writer.owned(writer.take(&p, Some(&held.version), &other, 2)).await;
    is_woken(changed, "it is the owner no more").await;

    let changed = wait(&waiter, &me).await;
    let ask = OwnershipWrite { next: Some(me.clone()), ..writer.take(&p, Some(&held.version), &other, 2) };
    writer.owned(ask).await;
    is_woken(changed, "it is the next owner").await;
}

/// What changed between the view and the question is told at once, however often one asks.
pub async fn change_before_the_question_is_told(harness: &dyn StoreHarness) {
    let Some((waiter, writer)) = two(harness).await else { return };
    let p = PartitionId::from(0);
    let me = waiter.join("me").await.record.incarnation;
    let mut expect = None;
    for epoch in 1..20 {
        let cursor = waiter.view().await.cursor;
        expect = Some(writer.owned(writer.take(&p, expect.as_ref(), &me, epoch)).await.version);
        for _ in 0..2 {
            let changed = waiter.store.changed(&waiter.scope, &me, cursor);
            is_woken(changed, "the change came before the question").await;
        }
    }
}

/// Who comes, stops, declines or leaves concerns all, and so does a partition that became free.
pub async fn membership_wakes_all(harness: &dyn StoreHarness) {
    let Some((waiter, writer)) = two(harness).await else { return };
    let p = PartitionId::from(0);
    let me = waiter.join("me").await.record.incarnation;

    let changed = wait(&waiter, &me).await;
    let mut other = writer.join("other").await;
    is_woken(changed, "somebody came").await;

    let owner = other.record.incarnation.clone();
    let held = writer.owned(writer.take(&p, None, &owner, 1)).await;
    let changed = wait(&waiter, &me).await;
    writer.owned(OwnershipWrite { owner: None, ..writer.take(&p, Some(&held.version), &owner, 2) }).await;
    is_woken(changed, "a partition became free").await;

    let tells = [
        ("somebody declines", InstanceRecord { declines: vec![p], ..other.record.clone() }),
        ("somebody stops", InstanceRecord { stopping: true, ..other.record.clone() }),
    ];
    for (why, record) in tells {
        let changed = wait(&waiter, &me).await;
        match writer.instance(InstanceWrite::Beat { record, expect: other.version }).await {
            InstanceOutcome::Applied(seen) => other = seen,
            refused => panic!("a heartbeat was refused: {refused:?}"),
        }
        is_woken(changed, why).await;
    }

    let changed = wait(&waiter, &me).await;
    writer.leave(&other).await;
    is_woken(changed, "somebody left").await;

    let changed = wait(&waiter, &me).await;
    let victim = incarnation("absent");
    writer.instance(InstanceWrite::BuryAbsent { victim }).await;
    is_woken(changed, "somebody was buried").await;
}

/// Heartbeats and checkpoints, the steady traffic, wake nobody.
pub async fn heartbeats_wake_nobody(harness: &dyn StoreHarness) {
    let Some((waiter, writer)) = two(harness).await else { return };
    let p = PartitionId::from(0);
    let me = waiter.join("me").await.record.incarnation;
    let mut other = waiter.join("other").await;
    applied(waiter.seal(&p, 1).await);
    // News of the writes above may still be on its way.
    let mut changed = wait(&waiter, &me).await;
    for _ in 0..5 {
        if timeout(SILENCE, &mut changed).await.is_err() {
            break;
        }
        changed = wait(&waiter, &me).await;
    }
    for round in 0..5 {
        match writer.beat(&other).await {
            InstanceOutcome::Applied(seen) => other = seen,
            refused => panic!("a heartbeat was refused: {refused:?}"),
        }
        applied(writer.advance(&p, 1, round).await);
        assert!(changed.as_mut().now_or_never().is_none(), "woken by a heartbeat");
    }
    assert!(timeout(SILENCE, changed).await.is_err(), "woken by a heartbeat");
}
