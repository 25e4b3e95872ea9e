//! One instance's part of the assignment.

use std::num::NonZeroUsize;

use super::assign::{assignment, sorted, targets};
use super::{Assignment, OwnerState, Policy, Snapshot};
use crate::model::{Incarnation, PartitionId};

/// How many partitions an instance goes after in one cycle.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Pace {
    /// All that it should have.
    #[default]
    Greedy,
    /// At most this many actions in a plan, so that a large group shifts its load gradually, and at most this many
    /// hand-offs under way to one instance: one that takes several cycles still counts. A claim does not wait for a
    /// hand-off, as nobody reads its partition meanwhile.
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
    /// Bury its owner, then take it. An owner of several partitions appears with each.
    BuryAndClaim(PartitionId, Incarnation),
    /// Ask its owner to hand it over.
    Request(PartitionId),
}

/// What one instance should do, and what for.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Plan {
    /// The whole group's assignment.
    pub target: Assignment,
    /// One's own part: claims, then burials, then requests, each sorted by partition. What nobody reads comes first
    /// where the pace leaves no room for all.
    pub actions: Vec<Action>,
    /// Requests of one's own (`next` is me) that the assignment does not give to me, sorted. Withdraw them whatever
    /// the pace: until then the partition can be asked for by no one else.
    pub withdrawals: Vec<PartitionId>,
}

/// Computes what `me` should do.
///
/// `settled` says that the members have been the same for long enough. Only then are live owners asked for
/// anything, so that a group that starts up or loses several instances at once moves once. Claims and withdrawals
/// do not wait for it.
///
/// - An action is only ever about a partition whose target is me and whose owner is not.
/// - A live owner is asked only while no one waits for the partition. If someone does who should not, the owner or
///   that one clears it first.
/// - Whoever is not a member has no actions, and withdraws all its requests.
pub fn plan(snapshot: &Snapshot, me: &Incarnation, policy: Policy, pace: Pace, settled: bool) -> Plan {
    let holdings = sorted(&snapshot.holdings);
    let targets = targets(&snapshot.members, &holdings, policy);

    let (mut claims, mut burials, mut requests) = (Vec::new(), Vec::new(), Vec::new());
    let mut withdrawals = Vec::new();
    let mut under_way = 0;
    for (holding, &target) in holdings.iter().zip(&targets) {
        let partition = || holding.partition.clone();
        let asked = holding.next.as_ref() == Some(me);
        if target != Some(me) {
            if asked {
                withdrawals.push(partition());
            }
            continue;
        }
        match &holding.owner {
            Some((owner, _)) if owner == me => {}
            None | Some((_, OwnerState::Dead)) => claims.push(Action::Claim(partition())),
            Some((owner, OwnerState::Expired)) => {
                burials.push(Action::BuryAndClaim(partition(), owner.clone()))
            }
            Some((_, OwnerState::Live)) if asked => under_way += 1,
            Some((_, OwnerState::Live)) if settled && holding.next.is_none() => {
                requests.push(Action::Request(partition()));
            }
            Some((_, OwnerState::Live)) => {}
        }
    }

    let limit = pace.limit();
    let mut actions = claims;
    actions.append(&mut burials);
    actions.truncate(limit);
    requests.truncate((limit - actions.len()).saturating_sub(under_way));
    actions.append(&mut requests);
    Plan { target: assignment(&holdings, &targets), actions, withdrawals }
}
