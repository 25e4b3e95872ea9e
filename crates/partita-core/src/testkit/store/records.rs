//! What views show, how scopes are kept apart, and what survives.

use futures_util::FutureExt;

use super::super::poll_once;
use super::StoreHarness;
use super::group::{Group, after, answer, applied, incarnation, record, scope};
use crate::model::{ConsumerGroup, HubName, Incarnation, InstanceId, Namespace, PartitionId, Scope};
use crate::store::{
    CheckpointOutcome, CheckpointWrite, InstanceOutcome, InstanceRecord, InstanceWrite, OwnershipOutcome,
};

/// Scopes that differ in any part share nothing; a group spelled in another case is the same group.
pub async fn scopes_do_not_mix(harness: &dyn StoreHarness) {
    let base = scope();
    let scopes = [
        base.clone(),
        Scope { namespace: Namespace::new("conformance.example/x"), ..base.clone() },
        Scope { hub: HubName::new(format!("x/{}", base.hub)), ..base.clone() },
        Scope { group: ConsumerGroup::new("other"), ..base.clone() },
        Scope { hub: HubName::new(format!("{}/other", base.hub)), ..base.clone() },
        Scope { hub: HubName::new(format!("{}x", base.hub)), ..base.clone() },
    ];
    let p = PartitionId::from(0);
    let mut groups = Vec::new();
    for scope in scopes {
        let group = Group::with_scope(harness, scope).await;
        assert!(group.view().await.instances.is_empty(), "{} is not fresh", group.scope);
        assert!(group.view().await.ownerships.is_empty(), "{} is not fresh", group.scope);
        assert_eq!(group.stored(&p).await, None, "{} is not fresh", group.scope);
        assert!(answer(group.store.moves(&group.scope).await).is_empty());
        let seen = group.join("one").await;
        let held = group.owned(group.take(&p, None, &seen.record.incarnation, 1)).await;
        let stored = applied(group.seal(&p, 1).await);
        groups.push((group, seen, held, stored));
    }
    for (group, seen, held, stored) in &groups {
        let view = group.view().await;
        assert_eq!(view.instances.iter().map(|i| &i.record).collect::<Vec<_>>(), [&seen.record]);
        assert_eq!(view.ownerships, std::slice::from_ref(held));
        assert_eq!(group.stored(&p).await.as_ref(), Some(stored));
    }
    let spelled = Scope { group: ConsumerGroup::new(base.group.as_str().to_uppercase()), ..base };
    let same = Group::with_scope(harness, spelled).await;
    assert_eq!(same.held(&p).await.as_ref(), Some(&groups[0].2), "groups compare without regard to case");
    assert_eq!(same.stored(&p).await.as_ref(), Some(&groups[0].3));
}

/// Records are there for a handle that is opened after the one that wrote them was dropped.
pub async fn records_survive_reopening(harness: &dyn StoreHarness) {
    let group = Group::new(harness).await;
    let p = PartitionId::from(0);
    let seen = group.join("one").await;
    let held = group.owned(group.take(&p, None, &seen.record.incarnation, 1)).await;
    applied(group.seal(&p, 1).await);
    let stored = applied(group.advance(&p, 1, 42).await);
    let moves = answer(group.store.moves(&group.scope).await);
    let scope = group.scope.clone();
    drop(group);

    let group = Group::with_scope(harness, scope).await;
    let view = group.view().await;
    assert_eq!(view.ownerships, std::slice::from_ref(&held));
    assert_eq!((&view.instances[0].record, &view.instances[0].version), (&seen.record, &seen.version));
    assert_eq!(group.stored(&p).await, Some(stored));
    assert_eq!(answer(group.store.moves(&group.scope).await), moves);
    let outcome = group.beat(&seen).await;
    assert!(matches!(outcome, InstanceOutcome::Applied(_)), "versions survive too: {outcome:?}");
    group.owned(group.take(&p, Some(&held.version), &seen.record.incarnation, 2)).await;
    applied(group.advance(&p, 1, 43).await);
}

/// A view has all records, the dead ones too, in order.
pub async fn view_is_sorted_and_complete(harness: &dyn StoreHarness) {
    let group = Group::new(harness).await;
    assert!(group.view().await.ownerships.is_empty());
    let mut incarnations = Vec::new();
    for n in [3, 1, 10, 2] {
        let seen = group.join(&format!("instance-{n}")).await;
        if n == 1 {
            group.leave(&seen).await;
        }
        incarnations.push(seen.record.incarnation);
    }
    let mut partitions: Vec<PartitionId> = (0..40).map(|n| PartitionId::from(n * 7 % 40)).collect();
    for p in &partitions {
        group.owned(group.take(p, None, &incarnations[0], 1)).await;
        applied(group.seal(p, 1).await);
    }
    incarnations.sort();
    partitions.sort();
    let view = group.view().await;
    let seen: Vec<Incarnation> = view.instances.into_iter().map(|seen| seen.record.incarnation).collect();
    assert_eq!(seen, incarnations);
    let held: Vec<PartitionId> = view.ownerships.into_iter().map(|held| held.partition).collect();
    assert_eq!(held, partitions, "ownerships are sorted as partitions are: 2 before 10");
    let stored = answer(group.store.checkpoints(&group.scope).await);
    assert_eq!(stored.into_iter().map(|record| record.partition).collect::<Vec<_>>(), partitions);
}

/// Names are data: whatever is in them, they are kept apart and read back as they were.
pub async fn long_and_odd_names(harness: &dyn StoreHarness) {
    let long = "long-".repeat(40);
    let odd = [
        "a", "A", "a/b", "a%2Fb", "a%2fb", "a:b", "a b", "a+b", " a", "..", ".", "*", "%", "_", "'", "\"",
        "a\\b", "a\nb", "a\tb", "ä", "a\u{308}", "日本", "🙂", "{a}", "$Default", "a;b", "a,b", "a|b", "a=b",
        "a#b", "null", "-1", "01", "1", &long,
    ];
    let scope = Scope {
        namespace: Namespace::new("odd name/space"),
        hub: HubName::new(format!("hüb / {:016x} '; --", fastrand::u64(..))),
        group: ConsumerGroup::new("Grüppe a/b"),
    };
    let group = Group::with_scope(harness, scope).await;
    let mut partitions = Vec::new();
    let mut incarnations = Vec::new();
    for name in odd {
        let p = PartitionId::new(name);
        let instance = Incarnation::new(InstanceId::new(name), fastrand::u128(..));
        let declines = odd.iter().map(PartitionId::new).collect();
        group.register(InstanceRecord { host: name.into(), declines, ..record(&instance) }).await;
        let held = group.owned(group.take(&p, None, &instance, 1)).await;
        assert_eq!((&held.partition, held.owner.as_ref()), (&p, Some(&instance)));
        applied(group.seal(&p, 1).await);
        partitions.push(p);
        incarnations.push(instance);
    }
    for (number, p) in (0..).zip(&partitions) {
        applied(group.advance(p, 1, number).await);
    }
    for (number, (p, instance)) in (0..).zip(partitions.iter().zip(&incarnations)) {
        let held = group.held(p).await.unwrap_or_else(|| panic!("partition {p:?} is lost"));
        assert_eq!(held.owner.as_ref(), Some(instance));
        let seen = group.seen(instance).await.unwrap_or_else(|| panic!("instance {instance} is lost"));
        assert_eq!((&*seen.record.host, seen.record.declines.len()), (p.as_str(), odd.len()));
        assert_eq!(seen.record.declines, partitions);
        assert_eq!(group.stored(p).await.and_then(|record| record.resume), after(number));
    }
    assert_eq!(group.view().await.ownerships.len(), odd.len());
}

/// A call may be dropped at any time. Its write happened or did not; the store answers as before.
pub async fn dropped_futures_do_no_harm(harness: &dyn StoreHarness) {
    let group = Group::new(harness).await;
    let (store, scope) = (&group.store, &group.scope);
    let p = PartitionId::from(0);
    let mut seen = group.join("one").await;
    let me = seen.record.incarnation.clone();
    let mut held = group.owned(group.take(&p, None, &me, 1)).await;
    applied(group.seal(&p, 1).await);
    for round in 1..=10_i64 {
        let beat = InstanceWrite::Beat { record: seen.record.clone(), expect: seen.version.clone() };
        let take = group.take(&p, Some(&held.version), &me, held.epoch.0 + 1);
        let advance = CheckpointWrite::Advance {
            partition: p.clone(),
            epoch: crate::model::Epoch(1),
            last: super::group::position(round),
            stream: None,
            op: group.op(&incarnation("owner")),
        };
        drop(store.write_instance(scope, beat.clone()));
        drop(store.write_ownership(scope, take.clone()));
        drop(store.write_checkpoint(scope, advance.clone()));
        for polls in 0..round {
            let mut calls = [
                store.write_instance(scope, beat.clone()).map(drop).boxed(),
                store.write_ownership(scope, take.clone()).map(drop).boxed(),
                store.write_checkpoint(scope, advance.clone()).map(drop).boxed(),
                store.view(scope).map(drop).boxed(),
                store.checkpoints(scope).map(drop).boxed(),
                store.moves(scope).map(drop).boxed(),
                store.changed(scope, &me, u64::MAX).boxed(),
            ];
            for call in &mut calls {
                for _ in 0..=polls {
                    if poll_once(call).await.is_ready() {
                        break;
                    }
                    tokio::task::yield_now().await;
                }
            }
        }
        // A write that was under way may still come, so the first question may be outrun by it; the answer says so.
        seen = loop {
            let current = group.seen(&me).await.expect("the instance is in the view");
            if let InstanceOutcome::Applied(seen) = group.beat(&current).await {
                break seen;
            }
        };
        held = loop {
            let current = group.held(&p).await.expect("the partition is in the view");
            let again = group.take(&p, Some(&current.version), &me, current.epoch.0 + 1);
            if let OwnershipOutcome::Applied { ownership, .. } = group.ownership(again).await {
                break ownership;
            }
        };
        let outcome = group.checkpoint(advance).await;
        assert!(matches!(outcome, CheckpointOutcome::Applied(_)), "{outcome:?}");
    }
    assert_eq!(group.stored(&p).await.and_then(|record| record.resume), after(10));
}
