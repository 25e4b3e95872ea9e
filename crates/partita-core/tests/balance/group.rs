//! Small builders for snapshots, and an independent reckoning of what a best assignment costs.

use std::collections::BTreeMap;

use partita_core::balance::{Assignment, Holding, Member, OwnerState, Policy, Snapshot, assign};
use partita_core::model::{Incarnation, InstanceId, PartitionId};
use proptest::prelude::*;

/// The instance with this number. Numbers from [`STRANGERS`] on are never members.
pub(crate) fn instance(number: usize) -> Incarnation {
    Incarnation::new(InstanceId::new(format!("i{number:03}")), number as u128)
}

pub(crate) const STRANGERS: usize = 900;

pub(crate) fn partition(number: usize) -> PartitionId {
    PartitionId::from(u32::try_from(number).unwrap())
}

pub(crate) fn member(number: usize) -> Member {
    Member { incarnation: instance(number), declines: Vec::new() }
}

pub(crate) fn declining(number: usize, declines: impl IntoIterator<Item = usize>) -> Member {
    Member { incarnation: instance(number), declines: declines.into_iter().map(partition).collect() }
}

/// A partition of a live owner, or of none.
pub(crate) fn held(number: usize, owner: Option<usize>) -> Holding {
    Holding {
        partition: partition(number),
        owner: owner.map(|owner| (instance(owner), OwnerState::Live)),
        next: None,
    }
}

pub(crate) fn holding(number: usize, owner: Option<(usize, OwnerState)>, next: Option<usize>) -> Holding {
    Holding {
        partition: partition(number),
        owner: owner.map(|(owner, state)| (instance(owner), state)),
        next: next.map(instance),
    }
}

/// Members `0..members`, and partition `p` with the owner `owners[p]`.
pub(crate) fn snapshot(members: usize, owners: impl IntoIterator<Item = Option<usize>>) -> Snapshot {
    Snapshot {
        members: (0..members).map(member).collect(),
        holdings: owners.into_iter().enumerate().map(|(p, owner)| held(p, owner)).collect(),
    }
}

/// `partitions` over `members`, as the group itself would share them out from nothing.
pub(crate) fn balanced(members: usize, partitions: usize) -> Snapshot {
    let empty = snapshot(members, vec![None; partitions]);
    carried_out(&empty, &assign(&empty, Policy::Count))
}

/// The snapshot once everybody has what it should have.
pub(crate) fn carried_out(snapshot: &Snapshot, target: &Assignment) -> Snapshot {
    let mut after = snapshot.clone();
    for holding in &mut after.holdings {
        if let Some(owner) = target.get(&holding.partition) {
            holding.owner = Some((owner.clone(), OwnerState::Live));
            holding.next = None;
        }
    }
    after
}

pub(crate) fn is_member(snapshot: &Snapshot, incarnation: &Incarnation) -> bool {
    snapshot.members.iter().any(|member| member.incarnation == *incarnation)
}

pub(crate) fn declines(snapshot: &Snapshot, incarnation: &Incarnation, partition: &PartitionId) -> bool {
    snapshot.members.iter().any(|m| m.incarnation == *incarnation && m.declines.contains(partition))
}

/// Who has a partition if requested moves count as done.
pub(crate) fn holder(snapshot: &Snapshot, holding: &Holding) -> Option<Incarnation> {
    let owner = holding.owner.as_ref().map(|(owner, _)| owner.clone());
    [holding.next.clone(), owner]
        .into_iter()
        .flatten()
        .find(|i| is_member(snapshot, i) && !declines(snapshot, i, &holding.partition))
}

/// How many partitions leave the member that holds them.
pub(crate) fn moves(snapshot: &Snapshot, target: &Assignment) -> usize {
    let moved = |h: &&Holding| holder(snapshot, h).is_some_and(|i| target.get(&h.partition) != Some(&i));
    snapshot.holdings.iter().filter(moved).count()
}

/// The number of partitions of each member, zeros included.
pub(crate) fn counts(snapshot: &Snapshot, target: &Assignment) -> BTreeMap<Incarnation, usize> {
    let mut counts: BTreeMap<_, _> = snapshot.members.iter().map(|m| (m.incarnation.clone(), 0)).collect();
    for owner in target.values() {
        *counts.get_mut(owner).expect("targets are members") += 1;
    }
    counts
}

pub(crate) fn spread(counts: &BTreeMap<Incarnation, usize>) -> usize {
    counts.values().max().unwrap_or(&0) - counts.values().min().unwrap_or(&0)
}

/// The fewest moves of any balanced assignment without declines: the members that hold the most keep the larger
/// shares, and all that is above a share must go. `brute_force_agrees_with_the_formula` vouches for it.
pub(crate) fn fewest_moves(snapshot: &Snapshot) -> usize {
    let mut held: BTreeMap<_, usize> = snapshot.members.iter().map(|m| (m.incarnation.clone(), 0)).collect();
    for holder in snapshot.holdings.iter().filter_map(|h| holder(snapshot, h)) {
        *held.get_mut(&holder).unwrap() += 1;
    }
    let mut sizes: Vec<usize> = held.into_values().collect();
    sizes.sort_unstable_by(|a, b| b.cmp(a));
    let (share, extra) = (snapshot.holdings.len() / sizes.len(), snapshot.holdings.len() % sizes.len());
    let shares = (0..).map(|rank| share + usize::from(rank < extra));
    sizes.into_iter().zip(shares).map(|(size, share)| size.saturating_sub(share)).sum()
}

/// Any group that can be, with owners that are members, stopping, expired, buried or none, and requests under way.
pub(crate) fn any_group(members_max: usize, partitions_max: usize) -> impl Strategy<Value = Snapshot> {
    (1..=members_max, 0..=partitions_max).prop_flat_map(|(members, partitions)| {
        let owner = prop_oneof![
            1 => Just(None),
            6 => (0..members).prop_map(|owner| Some((owner, OwnerState::Live))),
            2 => (0..members.div_ceil(2)).prop_map(|owner| Some((owner, OwnerState::Live))),
            1 => Just(Some((STRANGERS, OwnerState::Live))),
            1 => Just(Some((STRANGERS + 1, OwnerState::Expired))),
            1 => Just(Some((STRANGERS + 2, OwnerState::Dead))),
        ];
        let next = prop_oneof![
            6 => Just(None),
            3 => (0..members).prop_map(Some),
            1 => Just(Some(STRANGERS)),
        ];
        prop::collection::vec((owner, next), partitions).prop_map(move |rows| Snapshot {
            members: (0..members).map(member).collect(),
            holdings: rows
                .into_iter()
                .enumerate()
                .map(|(p, (owner, next))| holding(p, owner, next))
                .collect(),
        })
    })
}

/// [`any_group`] in which about a fifth of all pairs of member and partition is declined.
pub(crate) fn any_declining_group(
    members_max: usize,
    partitions_max: usize,
) -> impl Strategy<Value = Snapshot> {
    let declined = prop::collection::vec(prop::bool::weighted(0.2), members_max * partitions_max);
    (any_group(members_max, partitions_max), declined).prop_map(move |(mut snapshot, declined)| {
        for (number, member) in snapshot.members.iter_mut().enumerate() {
            let row = &declined[number * partitions_max..][..partitions_max];
            member.declines = (0..partitions_max).filter(|&p| row[p]).map(partition).collect();
        }
        snapshot
    })
}
