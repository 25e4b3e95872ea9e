//! Writes over an ownership and its checkpoint in one step.

use super::StoreHarness;
use super::group::{Group, after, applied, incarnation, position};
use crate::model::{Epoch, Incarnation, PartitionId, StreamId};
use crate::store::{AtomicCheckpoint, Certainty, MoveReason, Ownership, OwnershipOutcome, OwnershipWrite};

fn hand_off(group: &Group, held: &Ownership, to: &Incarnation, last: Option<(u64, i64)>) -> OwnershipWrite {
    let epoch = held.epoch.next();
    let last = last.map(|(epoch, last)| (Epoch(epoch), position(last), Some(StreamId::new("a-life"))));
    OwnershipWrite {
        reason: MoveReason::HandedOff,
        checkpoint: Some(AtomicCheckpoint { last, seal: epoch }),
        ..group.take(&held.partition, Some(&held.version), to, epoch.0)
    }
}

/// A claim seals the checkpoint, and a hand-off writes the last position and seals it for the next owner, in the
/// same step as the ownership. (Stores that are not atomic have nothing to show here.)
pub async fn transfer_with_last_checkpoint_is_one_step(harness: &dyn StoreHarness) {
    let group = Group::new(harness).await;
    if !group.store.properties().atomic {
        return;
    }
    let p = PartitionId::from(0);
    let (a, b) = (incarnation("a"), incarnation("b"));
    let claim = OwnershipWrite {
        checkpoint: Some(AtomicCheckpoint { last: None, seal: Epoch(1) }),
        ..group.take(&p, None, &a, 1)
    };
    let outcome = group.ownership(claim).await;
    let OwnershipOutcome::Applied { ownership: held, checkpoint: Some(sealed) } = outcome else {
        panic!("a claim of an absent record must seal the checkpoint: {outcome:?}");
    };
    assert_eq!((sealed.epoch, &sealed.resume), (Epoch(1), &None));
    assert_eq!(group.stored(&p).await, Some(sealed));
    applied(group.advance(&p, 1, 5).await);

    let outcome = group.ownership(hand_off(&group, &held, &b, Some((1, 9)))).await;
    let OwnershipOutcome::Applied { ownership: held, checkpoint: Some(sealed) } = outcome else {
        panic!("a hand-off by the owner must be applied: {outcome:?}");
    };
    assert_eq!((held.owner.as_ref(), held.epoch), (Some(&b), Epoch(2)));
    assert_eq!((sealed.epoch, &sealed.resume), (Epoch(2), &after(9)));
    assert_eq!((group.held(&p).await, group.stored(&p).await), (Some(held.clone()), Some(sealed)));

    let outcome = group.ownership(hand_off(&group, &held, &a, None)).await;
    let OwnershipOutcome::Applied { checkpoint: Some(sealed), .. } = outcome else {
        panic!("a hand-off without a last position must be applied: {outcome:?}");
    };
    assert_eq!((sealed.epoch, &sealed.resume), (Epoch(3), &after(9)));
}

/// If either half is refused, neither is written. A store that is not atomic refuses such a write altogether.
pub async fn refused_transfer_changes_nothing(harness: &dyn StoreHarness) {
    let group = Group::new(harness).await;
    let p = PartitionId::from(0);
    let (a, b) = (incarnation("a"), incarnation("b"));
    let stale = group.owned(group.take(&p, None, &a, 1)).await;
    let held = group.owned(group.take(&p, Some(&stale.version), &a, 4)).await;
    applied(group.seal(&p, 4).await);
    let stored = applied(group.advance(&p, 4, 10).await);

    if group.store.properties().atomic {
        let refused = |outcome| match outcome {
            OwnershipOutcome::Refused(Some(current)) => assert_eq!(current, held),
            other => panic!("a stale version must be refused: {other:?}"),
        };
        refused(group.ownership(hand_off(&group, &stale, &b, Some((4, 20)))).await);
        let cases = [("of another epoch", (3, 20)), ("of an epoch to come", (5, 20)), ("behind", (4, 9))];
        for (what, last) in cases {
            match group.ownership(hand_off(&group, &held, &b, Some(last))).await {
                OwnershipOutcome::Fenced(by) => assert_eq!(by, stored),
                other => panic!("a last checkpoint {what} must be fenced: {other:?}"),
            }
        }
        let below = OwnershipWrite {
            checkpoint: Some(AtomicCheckpoint { last: None, seal: Epoch(3) }),
            ..hand_off(&group, &held, &b, None)
        };
        let outcome = group.ownership(below).await;
        assert!(matches!(outcome, OwnershipOutcome::Fenced(_)), "a seal below must be fenced: {outcome:?}");
    } else {
        let write = hand_off(&group, &held, &b, Some((4, 20)));
        let error = group.store.write_ownership(&group.scope, write).await;
        let error = error.expect_err("a store that is not atomic must refuse a write over two records");
        assert_eq!((error.is_transient(), error.certainty()), (false, Certainty::NoEffect));
    }
    assert_eq!((group.held(&p).await, group.stored(&p).await), (Some(held), Some(stored)));
}
