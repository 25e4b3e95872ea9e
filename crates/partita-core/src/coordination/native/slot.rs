//! What is known of one partition and what runs here for it.

use super::checkpoints::Checkpoints;
use super::retry::Retry;
use crate::model::{DrainReason, Epoch, Incarnation, Tick};
use crate::report::Operation;
use crate::store::{FailingPartition, Ownership, Version};

/// What runs here for the partition.
#[derive(Debug, Default)]
pub(super) enum Pump {
    #[default]
    Absent,
    /// Owned; the checkpoint record is being sealed.
    Sealing,
    Open,
    Draining {
        reason: DrainReason,
        deadline: Tick,
        /// When the running call was cut off.
        cut: Option<Tick>,
    },
    /// The pump has ended; the ownership is still to be passed on.
    Drained {
        cancelled: bool,
    },
    /// Revoked; the pump has not ended yet.
    Ending,
}

/// Kinds of ownership writes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum WriteKind {
    Claim,
    Request,
    Withdraw,
    Clear,
    Transfer,
    Release,
    Retake,
}

impl WriteKind {
    pub(super) fn operation(self) -> Operation {
        match self {
            Self::Claim | Self::Retake => Operation::Claim,
            Self::Request | Self::Withdraw | Self::Clear => Operation::Request,
            Self::Transfer => Operation::Transfer,
            Self::Release => Operation::Release,
        }
    }
}

#[derive(Default)]
pub(super) struct Slot {
    /// The ownership record as last seen.
    pub(super) known: Option<Ownership>,
    /// When the last answer to a write of ours arrived: views sent earlier may be older than it.
    pub(super) known_at: Tick,
    pub(super) pump: Pump,
    /// The epoch at which we own or owned it.
    pub(super) epoch: Epoch,
    /// The highest epoch ever seen, in either record.
    pub(super) highest: Epoch,
    /// Whether the pump's ownership was confirmed since the lease last lapsed.
    pub(super) confirmed: bool,
    pub(super) write: Option<(WriteKind, Option<Version>)>,
    /// The version at which a write of ours may still take effect.
    pub(super) unknown: Option<Option<Version>>,
    /// When an ownership write or a seal that failed is repeated.
    pub(super) retry: Retry,
    /// Until when this instance does not want the partition, and tells the others.
    pub(super) declined_until: Tick,
    /// A call that was cut off goes on: this instance cannot have the partition until it has ended.
    pub(super) stuck: bool,
    /// Until when a running call keeps us from handing it over, or an owner has told us so.
    pub(super) refused_until: Tick,
    pub(super) checkpoint: Checkpoints,
    /// What the pump tries again and again.
    pub(super) failing: Option<FailingPartition>,
}

impl Slot {
    pub(super) fn has_pump(&self) -> bool {
        matches!(self.pump, Pump::Open | Pump::Draining { .. } | Pump::Ending)
    }

    pub(super) fn declines(&self, now: Tick) -> bool {
        self.stuck || now < self.declined_until
    }

    pub(super) fn is_owned_by(&self, me: &Incarnation) -> bool {
        self.known.as_ref().is_some_and(|known| known.owner.as_ref() == Some(me))
    }

    pub(super) fn awaits(&self, me: &Incarnation) -> bool {
        self.known.as_ref().is_some_and(|known| known.next.as_ref() == Some(me))
    }

    /// Whether nothing here is left to do before the instance leaves.
    pub(super) fn is_done(&self, me: &Incarnation) -> bool {
        matches!(self.pump, Pump::Absent)
            && self.write.is_none()
            && self.unknown.is_none()
            && !self.is_owned_by(me)
            && !self.awaits(me)
    }

    /// What is left to do, for people.
    pub(super) fn left_undone(&self, me: &Incarnation) -> Option<&'static str> {
        match self.pump {
            _ if self.is_done(me) => None,
            Pump::Open | Pump::Draining { .. } | Pump::Ending => Some("a call of the handler did not end"),
            Pump::Drained { .. } => Some("drained, but the last checkpoint and release were not confirmed"),
            Pump::Absent | Pump::Sealing => Some("the release was not confirmed"),
        }
    }
}
