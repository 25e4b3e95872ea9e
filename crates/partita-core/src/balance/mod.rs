//! Who should own what: pure functions over a snapshot of the group. No clock, no store, no randomness, no logging;
//! every instance computes the same answer from the same snapshot and does its own part of it.

mod assign;
mod plan;

pub use assign::{Assignment, assign};
pub use plan::{Action, Pace, Plan, plan};

use crate::model::{Incarnation, PartitionId};

/// A live instance that takes part: it is not stopping.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Member {
    /// Which one.
    pub incarnation: Incarnation,
    /// Partitions that it does not want to own for now. One that it owns is given to whoever wants it.
    pub declines: Vec<PartitionId>,
}

/// Whether an owner can be asked for a partition.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum OwnerState {
    /// It heartbeats, be it stopping or not.
    Live,
    /// It has not been heard of for the ttl, or has no record: it must be buried first.
    Expired,
    /// It has been buried.
    Dead,
}

/// A partition and who has it.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Holding {
    /// The partition.
    pub partition: PartitionId,
    /// Who owns it.
    pub owner: Option<(Incarnation, OwnerState)>,
    /// Who waits for a hand-off.
    pub next: Option<Incarnation>,
}

/// How the target is chosen.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[non_exhaustive]
pub enum Policy {
    /// Equal numbers of partitions, give or take one.
    #[default]
    Count,
}

/// All that a plan is made from.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Snapshot {
    /// Those that take part, in any order.
    pub members: Vec<Member>,
    /// All partitions of the hub, in any order.
    pub holdings: Vec<Holding>,
}
