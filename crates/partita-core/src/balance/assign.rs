//! The assignment: sticky, with the fewest moves, the same on every instance.

use std::collections::{BTreeMap, BTreeSet};

use super::{Policy, Snapshot};
use crate::model::{Incarnation, PartitionId};

/// The owner that each partition should have.
pub type Assignment = BTreeMap<PartitionId, Incarnation>;

/// Computes the assignment.
///
/// - Every partition has a target, if there is a member that does not decline it.
/// - Without declines, the numbers of partitions of any two members differ by at most one.
/// - As few partitions as possible change hands (a move that was already requested counts as done); what is asked
///   of an instance is taken from the end of its sorted list.
/// - The order of the input does not matter, and an assignment that is carried out is its own next answer.
///
/// Declines make balance best effort: a partition goes to the first member with room that wants it, else to the
/// member with the fewest that does.
pub fn assign(snapshot: &Snapshot, policy: Policy) -> Assignment {
    match policy {
        Policy::Count => assign_by_count(snapshot),
    }
}

fn assign_by_count(snapshot: &Snapshot) -> Assignment {
    let members: BTreeMap<&Incarnation, BTreeSet<&PartitionId>> =
        snapshot.members.iter().map(|m| (&m.incarnation, m.declines.iter().collect())).collect();
    if members.is_empty() {
        return Assignment::new();
    }
    let declines = |member: &Incarnation, partition: &PartitionId| members[member].contains(partition);

    let mut held: BTreeMap<&Incarnation, Vec<&PartitionId>> =
        members.keys().map(|&member| (member, Vec::new())).collect();
    let mut free: BTreeSet<&PartitionId> = BTreeSet::new();
    let mut partitions = 0;
    let sorted: BTreeMap<&PartitionId, _> = snapshot.holdings.iter().map(|h| (&h.partition, h)).collect();
    for (&partition, holding) in &sorted {
        partitions += 1;
        let owner = holding.owner.as_ref().map(|(owner, _)| owner);
        let holder = [holding.next.as_ref(), owner]
            .into_iter()
            .flatten()
            .find(|&member| members.contains_key(member) && !declines(member, partition));
        match holder {
            Some(member) => held.get_mut(member).expect("a member").push(partition),
            None => {
                free.insert(partition);
            }
        }
    }

    // Those who hold the most keep the larger quotas: that is what makes the moves the fewest.
    let (least, extra) = (partitions / members.len(), partitions % members.len());
    let mut order: Vec<&Incarnation> = members.keys().copied().collect();
    order.sort_by_key(|&member| (std::cmp::Reverse(held[member].len()), member));

    let mut target = Assignment::new();
    let mut count: BTreeMap<&Incarnation, usize> = BTreeMap::new();
    let mut slots: Vec<(usize, &Incarnation)> = Vec::new();
    for (rank, &member) in order.iter().enumerate() {
        let quota = least + usize::from(rank < extra);
        let (keep, give) = held[member].split_at(quota.min(held[member].len()));
        target.extend(keep.iter().map(|&partition| (partition.clone(), member.clone())));
        free.extend(give);
        count.insert(member, keep.len());
        slots.extend((0..quota - keep.len()).map(|round| (round, member)));
    }
    // Round robin over the open slots, so that neighbours are spread.
    slots.sort_by_key(|&(round, member)| (round, count[member], member));

    for partition in free {
        let wanted = slots.iter().position(|&(_, member)| !declines(member, partition));
        let member = match wanted {
            Some(index) => Some(slots.remove(index).1),
            None => members
                .keys()
                .copied()
                .filter(|&member| !declines(member, partition))
                .min_by_key(|&member| (count[member], member)),
        };
        if let Some(member) = member {
            *count.get_mut(member).expect("a member") += 1;
            target.insert(partition.clone(), member.clone());
        }
    }
    target
}
