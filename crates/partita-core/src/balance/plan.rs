//! One instance's part of the assignment.

use std::num::NonZeroUsize;

use super::{Assignment, OwnerState, Policy, Snapshot, assign};
use crate::model::{Incarnation, PartitionId};

/// How many partitions an instance goes after in one cycle.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Pace {
    /// All that it should have.
    #[default]
    Greedy,
    /// At most this many, so that a large group shifts its load gradually.
    Balanced(NonZeroUsize),
}

impl Pace {
    fn limit(self) -> usize {
        match self {
            Self::Greedy => usize::MAX,
            Self::Balanced(limit) => limit.get(),
        }
    }
}

/// Something to do about a partition that should be one's own.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Action {
    /// Take it: nobody has it, or its owner is dead.
    Claim(PartitionId),
    /// Bury its owner, then take it.
    BuryAndClaim(PartitionId, Incarnation),
    /// Ask its owner to hand it over.
    Request(PartitionId),
}

/// What one instance should do, and what for.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Plan {
    /// The whole group's assignment.
    pub target: Assignment,
    /// One's own part, sorted by partition.
    pub actions: Vec<Action>,
    /// Requests of one's own that the assignment no longer asks for.
    pub withdrawals: Vec<PartitionId>,
}

/// Computes what `me` should do. `settled` says that the membership has not changed lately: only then are live
/// owners asked for anything, so that a group that starts up or loses several instances at once moves once.
pub fn plan(snapshot: &Snapshot, me: &Incarnation, policy: Policy, pace: Pace, settled: bool) -> Plan {
    let target = assign(snapshot, policy);
    let mut holdings: Vec<_> = snapshot.holdings.iter().collect();
    holdings.sort_by(|a, b| a.partition.cmp(&b.partition));
    let mut plan = Plan::default();
    for holding in holdings {
        let mine = target.get(&holding.partition) == Some(me);
        let owner = holding.owner.as_ref();
        let own_it = owner.is_some_and(|(owner, _)| owner == me);
        let asked = holding.next.as_ref() == Some(me);
        if asked && !own_it && !mine {
            plan.withdrawals.push(holding.partition.clone());
        }
        if !mine || own_it || plan.actions.len() == pace.limit() {
            continue;
        }
        let partition = holding.partition.clone();
        plan.actions.extend(match owner {
            None | Some((_, OwnerState::Dead)) => Some(Action::Claim(partition)),
            Some((owner, OwnerState::Expired)) => Some(Action::BuryAndClaim(partition, owner.clone())),
            Some((_, OwnerState::Live)) if holding.next.is_none() && settled => {
                Some(Action::Request(partition))
            }
            Some((_, OwnerState::Live)) => None,
        });
    }
    plan.target = target;
    plan
}
