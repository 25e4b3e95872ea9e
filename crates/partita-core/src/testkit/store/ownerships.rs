//! Claims, requests, releases and the log of moves.

use std::sync::Arc;

use futures_util::future::join_all;

use super::StoreHarness;
use super::group::{Group, answer, incarnation};
use crate::model::{Epoch, Incarnation, PartitionId};
use crate::store::{MOVES_KEPT_MAX, MoveReason, Ownership, OwnershipOutcome, OwnershipWrite, Version};

const WRITERS: usize = 16;
const ROUNDS: u64 = 8;

/// Runs all writes at once and gives the one that was applied.
async fn race(group: &Arc<Group>, writes: Vec<OwnershipWrite>) -> Ownership {
    let tasks = writes.into_iter().map(|write| {
        let group = Arc::clone(group);
        tokio::spawn(async move { group.ownership(write).await })
    });
    let mut won = Vec::new();
    let mut shown = Vec::new();
    for outcome in join_all(tasks.collect::<Vec<_>>()).await {
        match outcome.expect("a writer ended") {
            OwnershipOutcome::Applied { ownership, .. } => won.push(ownership),
            OwnershipOutcome::Refused(current) => shown.push(current),
            OwnershipOutcome::Fenced(by) => panic!("no checkpoint was part of the write: {by:?}"),
        }
    }
    assert_eq!(won.len(), 1, "exactly one of the writers of one version wins: {won:?}");
    let winner = won.remove(0);
    for current in shown {
        assert_eq!(current.as_ref(), Some(&winner), "who lost is shown the winner's record");
    }
    winner
}

fn writes(group: &Group, p: &PartitionId, expect: Option<&Version>, epoch: u64) -> Vec<OwnershipWrite> {
    (0..WRITERS).map(|n| group.take(p, expect, &incarnation(&format!("writer-{n}")), epoch)).collect()
}

/// A write with a version that is no longer the record's changes nothing and is shown the record.
pub async fn stale_version_loses(harness: &dyn StoreHarness) {
    let group = Group::new(harness).await;
    let p = PartitionId::from(0);
    let (a, b) = (incarnation("a"), incarnation("b"));
    let first = group.owned(group.take(&p, None, &a, 1)).await;
    let second = group.owned(group.take(&p, Some(&first.version), &b, 2)).await;
    assert_ne!(first.version, second.version, "a write must change the version");
    for stale in [Some(&first.version), None] {
        let outcome = group.ownership(group.take(&p, stale, &a, 3)).await;
        assert_eq!(outcome, OwnershipOutcome::Refused(Some(second.clone())));
    }
    let absent = PartitionId::from(1);
    let outcome = group.ownership(group.take(&absent, Some(&first.version), &a, 1)).await;
    assert_eq!(outcome, OwnershipOutcome::Refused(None), "an absent record has no version");
    assert_eq!(group.view().await.ownerships, [second]);
}

/// Of many who claim a partition that was never owned, one gets it.
pub async fn claim_of_an_absent_record_is_won_once(harness: &dyn StoreHarness) {
    let group = Arc::new(Group::new(harness).await);
    for p in (0..u32::try_from(ROUNDS).unwrap_or(1)).map(PartitionId::from) {
        let winner = race(&group, writes(&group, &p, None, 1)).await;
        assert_eq!(group.held(&p).await, Some(winner));
    }
}

/// Of many who write the same version, one wins, every time.
pub async fn concurrent_writers_one_winner(harness: &dyn StoreHarness) {
    let group = Arc::new(Group::new(harness).await);
    let p = PartitionId::from(0);
    let mut held = group.owned(group.take(&p, None, &incarnation("first"), 1)).await;
    for epoch in 2..2 + ROUNDS {
        held = race(&group, writes(&group, &p, Some(&held.version), epoch)).await;
        assert_eq!(held.epoch, Epoch(epoch));
    }
    assert_eq!(group.held(&p).await, Some(held));
}

/// A view begun after a release was answered shows it, also through another handle.
pub async fn release_is_seen_at_once(harness: &dyn StoreHarness) {
    let group = Group::new(harness).await;
    let other = group.reopen(harness).await;
    let p = PartitionId::from(0);
    let a = incarnation("a");
    let mut expect = None;
    for epoch in (1..10).step_by(2) {
        let held = group.owned(group.take(&p, expect.as_ref(), &a, epoch)).await;
        assert_eq!(other.held(&p).await, Some(held.clone()));
        let release = OwnershipWrite {
            owner: None,
            reason: MoveReason::Released,
            ..group.take(&p, Some(&held.version), &a, epoch + 1)
        };
        let free = group.owned(release).await;
        assert_eq!((&free.owner, free.reason), (&None, MoveReason::Released));
        assert_eq!(other.held(&p).await, Some(free.clone()));
        expect = Some(free.version);
    }
}

/// Asking for a partition changes who waits for it, not who owns it, nor why and since when.
pub async fn request_is_no_move(harness: &dyn StoreHarness) {
    let group = Group::new(harness).await;
    let p = PartitionId::from(0);
    let (a, b) = (incarnation("a"), incarnation("b"));
    let held = group.owned(group.take(&p, None, &a, 1)).await;
    let ask = OwnershipWrite {
        next: Some(b.clone()),
        reason: MoveReason::HandedOff,
        op: group.op(&b),
        ..group.take(&p, Some(&held.version), &a, 1)
    };
    let asked = group.owned(ask.clone()).await;
    let version = asked.version.clone();
    assert_ne!(version, held.version);
    assert_eq!(asked, Ownership { next: Some(b), op: ask.op, version, ..held });
    assert_eq!(group.held(&p).await, Some(asked));
    assert_eq!(answer(group.store.moves(&group.scope).await).len(), 1, "only the claim was a move");
}

/// Changes of owner are logged with their reason, oldest first, and old ones are forgotten.
pub async fn moves_are_logged_and_bounded(harness: &dyn StoreHarness) {
    type Move = (Option<Incarnation>, Option<Incarnation>, Epoch, MoveReason);
    let group = Group::new(harness).await;
    let p = PartitionId::from(0);
    let (a, b) = (incarnation("a"), incarnation("b"));
    let steps = [
        (Some(&a), MoveReason::Claimed),
        (Some(&b), MoveReason::HandedOff),
        (None, MoveReason::Released),
        (Some(&a), MoveReason::Claimed),
        (Some(&b), MoveReason::TakenFromDead),
        (Some(&a), MoveReason::Stolen),
        (None, MoveReason::GivenUp),
        (Some(&a), MoveReason::Claimed),
        (None, MoveReason::ForcedSeek),
    ];
    let mut expect: Option<Version> = None;
    let mut from = None;
    let mut expected: Vec<Move> = Vec::new();
    for (epoch, (to, reason)) in (1..).zip(steps) {
        let owner = to.cloned();
        let write =
            OwnershipWrite { owner: owner.clone(), reason, ..group.take(&p, expect.as_ref(), &a, epoch) };
        expect = Some(group.owned(write).await.version);
        expected.push((from, owner.clone(), Epoch(epoch), reason));
        from = owner;
    }
    let moves = answer(group.store.moves(&group.scope).await);
    assert!(moves.iter().all(|logged| logged.partition == p));
    let logged: Vec<Move> = moves.into_iter().map(|m| (m.from, m.to, m.epoch, m.reason)).collect();
    assert_eq!(logged, expected);

    let first = expected.len() as u64 + 1;
    let last = first + MOVES_KEPT_MAX as u64;
    for epoch in first..=last {
        let to = if epoch % 2 == 0 { &a } else { &b };
        expect = Some(group.owned(group.take(&p, expect.as_ref(), to, epoch)).await.version);
    }
    let moves = answer(group.store.moves(&group.scope).await);
    assert!(moves.len() <= MOVES_KEPT_MAX, "{} moves are kept", moves.len());
    assert_eq!(moves.last().map(|logged| logged.epoch), Some(Epoch(last)), "the last move is logged");
    assert!(moves.is_sorted_by_key(|logged| logged.epoch), "the oldest move comes first");
}
