//! Records that move to another scope: all of them or none.

use std::time::Duration;

use super::StoreHarness;
use super::group::{Group, answer, applied, incarnation, record, scope};
use crate::model::{PartitionId, StreamId};
use crate::store::{
    Adoption, Certainty, CheckpointRecord, CheckpointWrite, GroupView, InstanceRecord, InstanceSeen,
    MoveRecord,
};

const TTL: Duration = Duration::from_millis(200);

/// A group with an owner, a checkpoint of `stream` and a move. The owner is live.
async fn former(harness: &dyn StoreHarness, stream: Option<&StreamId>) -> (Group, InstanceSeen) {
    let group = Group::new(harness).await;
    let p = PartitionId::from(0);
    let one = incarnation("one");
    let seen = group.register(InstanceRecord { ttl: TTL, ..record(&one) }).await;
    group.owned(group.take(&p, None, &one, 3)).await;
    applied(group.seal(&p, 3).await);
    let advance = CheckpointWrite::Advance {
        partition: p,
        epoch: crate::model::Epoch(3),
        last: super::group::position(7),
        stream: stream.cloned(),
        op: group.op(&one),
    };
    applied(group.checkpoint(advance).await);
    (group, seen)
}

/// All records, without ages, which grow.
async fn all(group: &Group) -> (GroupView, Vec<CheckpointRecord>, Vec<MoveRecord>) {
    let mut view = group.view().await;
    for seen in &mut view.instances {
        seen.age = Duration::ZERO;
    }
    view.cursor = 0;
    let checkpoints = answer(group.store.checkpoints(&group.scope).await);
    (view, checkpoints, answer(group.store.moves(&group.scope).await))
}

/// What came of it; none if the store says, without effect, that it cannot.
async fn adopt(from: &Group, to: &Group, stream: Option<&StreamId>) -> Option<Adoption> {
    match to.store.adopt_scope(&from.scope, &to.scope, stream).await {
        Ok(adoption) => Some(adoption),
        Err(error) => {
            assert!(!error.is_transient() && error.certainty() == Certainty::NoEffect, "{error}");
            None
        }
    }
}

/// Who left may be followed under another name: owners, epochs, positions and moves are there, and the old name has nothing.
/// A store that cannot do that leaves everything as it was.
pub async fn adopted_scope_has_all_records(harness: &dyn StoreHarness) {
    let stream = StreamId::new("this life");
    for known in [None, Some(&stream)] {
        let (from, seen) = former(harness, known).await;
        group_leaves(&from, &seen).await;
        let before = all(&from).await;
        let to = Group::with_scope(harness, scope()).await;
        let (empty, left) = (all(&to).await, adopt(&from, &to, Some(&stream)).await);
        match left {
            Some(adoption) => {
                assert_eq!(adoption, Adoption::Moved);
                assert_eq!((all(&to).await, all(&from).await), (before, empty));
                assert_eq!(adopt(&from, &to, Some(&stream)).await, Some(Adoption::Nothing), "once is enough");
                applied(to.advance(&PartitionId::from(0), 3, 8).await);
            }
            None => assert_eq!((all(&to).await, all(&from).await), (empty, before)),
        }
    }
}

async fn group_leaves(group: &Group, seen: &InstanceSeen) {
    group.leave(seen).await;
}

/// An instance that lives under the old name keeps its records; one that is silent for its ttl does not.
pub async fn scope_in_use_is_not_adopted(harness: &dyn StoreHarness) {
    let (from, seen) = former(harness, None).await;
    let to = Group::with_scope(harness, scope()).await;
    let before = all(&from).await;
    // It may have been slow to get here.
    let beaten = match from.beat(&seen).await {
        crate::store::InstanceOutcome::Applied(seen) => seen,
        refused => panic!("{refused:?}"),
    };
    let adoption = adopt(&from, &to, None).await;
    let Some(Adoption::InUse(live)) = adoption else {
        panic!("a live instance was left behind: {adoption:?}")
    };
    assert_eq!((&live.record, &live.version), (&beaten.record, &beaten.version));
    assert_eq!(all(&from).await.1, before.1);
    assert!(all(&to).await.0.instances.is_empty());
    harness.pass(2 * TTL).await;
    assert!(matches!(adopt(&from, &to, None).await, Some(Adoption::Moved) | None));
}

/// Records of another hub stay where they are.
pub async fn scope_of_another_stream_is_not_adopted(harness: &dyn StoreHarness) {
    let (theirs, ours) = (StreamId::new("their life"), StreamId::new("our life"));
    let (from, seen) = former(harness, Some(&theirs)).await;
    group_leaves(&from, &seen).await;
    let to = Group::with_scope(harness, scope()).await;
    let before = all(&from).await;
    assert_eq!(adopt(&from, &to, Some(&ours)).await, Some(Adoption::OtherStream(theirs)));
    assert_eq!(all(&from).await, before);
    assert!(all(&to).await.1.is_empty());
}

/// A scope that has records of its own keeps to them, and one without any has nothing to give.
pub async fn scope_with_records_adopts_none(harness: &dyn StoreHarness) {
    let (from, seen) = former(harness, None).await;
    group_leaves(&from, &seen).await;
    let to = Group::with_scope(harness, scope()).await;
    applied(to.seal(&PartitionId::from(1), 1).await);
    let before = (all(&from).await, all(&to).await);
    assert_eq!(adopt(&from, &to, None).await, Some(Adoption::Nothing));
    assert_eq!((all(&from).await, all(&to).await), before);
    let nobody = Group::with_scope(harness, scope()).await;
    assert_eq!(adopt(&nobody, &to, None).await, Some(Adoption::Nothing));
}
