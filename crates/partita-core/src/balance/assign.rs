//! The assignment: sticky, with the fewest moves, the same on every instance.

use std::collections::{BTreeMap, BTreeSet};

use super::{Holding, Member, Policy, Snapshot};
use crate::model::{Incarnation, PartitionId};

/// The owner that each partition should have.
pub type Assignment = BTreeMap<PartitionId, Incarnation>;

/// Computes the assignment.
///
/// A partition counts as held by the member that asked for it (`next`), else by its owner; a requested move thus
/// counts as done. Whoever is not a member, or declines the partition, does not hold it.
///
/// - Every partition has a target, if there is a member that does not decline it. Nobody gets what it declines.
/// - Without declines, the numbers of partitions of any two members differ by at most one, and as few partitions
///   as possible leave their holder. What is asked of a holder comes from the end of its list: first what it is
///   itself still waiting for, then what it owns, the highest partition first.
/// - With declines, balance is best effort: no partition could go to a member that has two fewer and wants it.
/// - The order of the input does not matter. A member that is listed twice declines what either says; of two
///   holdings of a partition the greater one counts.
/// - An assignment that is carried out is its own next answer.
pub fn assign(snapshot: &Snapshot, policy: Policy) -> Assignment {
    let holdings = sorted(&snapshot.holdings);
    let targets = targets(&snapshot.members, &holdings, policy);
    assignment(&holdings, &targets)
}

/// The holdings by partition, each partition once.
pub(super) fn sorted(holdings: &[Holding]) -> Vec<&Holding> {
    let mut sorted: Vec<&Holding> = holdings.iter().collect();
    sorted.sort_unstable_by(|a, b| a.partition.cmp(&b.partition).then_with(|| b.cmp(a)));
    sorted.dedup_by(|later, kept| later.partition == kept.partition);
    sorted
}

/// The target of each of the sorted holdings.
pub(super) fn targets<'a>(
    members: &'a [Member],
    holdings: &[&Holding],
    policy: Policy,
) -> Vec<Option<&'a Incarnation>> {
    if planted!(PlanByInputOrder) {
        let round = members.iter().map(|member| &member.incarnation).cycle();
        return round.take(holdings.len()).map(Some).collect();
    }
    let members = Members::new(members, holdings);
    let lists = match policy {
        Policy::Count => level(&members, holdings),
    };
    let mut targets = vec![None; holdings.len()];
    for (&member, list) in members.sorted.iter().zip(lists) {
        for partition in list {
            targets[partition] = Some(member);
        }
    }
    targets
}

/// Sorted holdings and their targets as a map.
pub(super) fn assignment(holdings: &[&Holding], targets: &[Option<&Incarnation>]) -> Assignment {
    let pairs = holdings.iter().zip(targets);
    pairs.filter_map(|(holding, target)| Some((holding.partition.clone(), (*target)?.clone()))).collect()
}

/// Evens out the numbers of partitions. From here on, members and partitions are indices into sorted lists; the
/// answer is each member's partitions.
fn level(members: &Members<'_>, holdings: &[&Holding]) -> Vec<Vec<usize>> {
    // Everyone keeps what it holds: what it owns, then what it waits for, as lists are shortened from the end.
    let mut lists = vec![Vec::new(); members.sorted.len()];
    let mut awaited = Vec::new();
    let mut free = Vec::new();
    for (partition, holding) in holdings.iter().enumerate() {
        let holder = |claimant: Option<&Incarnation>| {
            claimant.and_then(|c| members.find(c)).filter(|&member| members.wants(member, partition))
        };
        let owner = holder(holding.owner.as_ref().map(|(owner, _)| owner));
        match (holder(holding.next.as_ref()), owner) {
            (Some(next), owner) if owner != Some(next) => awaited.push((next, partition)),
            (_, Some(owner)) => lists[owner].push(partition),
            (_, None) => free.push(partition),
        }
    }
    for (next, partition) in awaited {
        lists[next].push(partition);
    }

    // What nobody holds goes to whoever has the fewest; neighbours are spread.
    let mut by_count: BTreeSet<(usize, usize)> = lists.iter().map(Vec::len).zip(0..).collect();
    for partition in free {
        let taker = by_count.iter().copied().find(|&(_, member)| members.wants(member, partition));
        if let Some((count, member)) = taker {
            lists[member].push(partition);
            by_count.remove(&(count, member));
            by_count.insert((count + 1, member));
        }
    }

    // Whoever has the most gives to whoever has the fewest, while that brings the two closer. Every step lowers the
    // sum of the squares, so this ends; without declines, no step could be spared.
    while let Some(step) = next_step(members, &lists, &by_count) {
        let (high, giver) = step.giver;
        let (low, taker) = step.taker;
        let partition = lists[giver].remove(step.position);
        lists[taker].push(partition);
        for changed in [step.giver, step.taker] {
            by_count.remove(&changed);
        }
        by_count.extend([(high - 1, giver), (low + 1, taker)]);
    }
    lists
}

/// One partition that changes hands: from whom, where it is in the giver's list, and to whom.
struct Step {
    giver: (usize, usize),
    position: usize,
    taker: (usize, usize),
}

fn next_step(
    members: &Members<'_>,
    lists: &[Vec<usize>],
    by_count: &BTreeSet<(usize, usize)>,
) -> Option<Step> {
    by_count.iter().rev().find_map(|&giver| {
        let fewer = by_count.iter().take_while(|taker| taker.0 + 2 <= giver.0);
        fewer.copied().find_map(|taker| {
            let position = lists[giver.1].iter().rposition(|&partition| members.wants(taker.1, partition))?;
            Some(Step { giver, position, taker })
        })
    })
}

/// The members, sorted, each once.
struct Members<'a> {
    sorted: Vec<&'a Incarnation>,
    /// By member, then partition. Empty if nobody declines anything.
    declined: Vec<bool>,
    partitions: usize,
}

impl<'a> Members<'a> {
    fn new(members: &'a [Member], holdings: &[&Holding]) -> Self {
        let mut sorted: Vec<&Incarnation> = members.iter().map(|member| &member.incarnation).collect();
        sorted.sort_unstable();
        sorted.dedup();
        let mut this = Self { sorted, declined: Vec::new(), partitions: holdings.len() };
        for member in members.iter().filter(|member| !member.declines.is_empty()) {
            let index = this.find(&member.incarnation).expect("listed above");
            this.declined.resize(this.sorted.len() * this.partitions, false);
            for declined in &member.declines {
                if let Ok(partition) = holdings.binary_search_by(|h| h.partition.cmp(declined)) {
                    this.declined[index * this.partitions + partition] = true;
                }
            }
        }
        this
    }

    fn find(&self, incarnation: &Incarnation) -> Option<usize> {
        self.sorted.binary_search(&incarnation).ok()
    }

    fn wants(&self, member: usize, partition: usize) -> bool {
        self.declined.is_empty() || !self.declined[member * self.partitions + partition]
    }
}
