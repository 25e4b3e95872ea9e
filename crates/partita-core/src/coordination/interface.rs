//! What every protocol has in common: inputs, effects and what can be seen of it.

use std::fmt;

use crate::model::{Epoch, Incarnation, PartitionId, StreamPosition, Tick};
use crate::processor::ErrorReport;
use crate::source::HubDescription;
use crate::store::{
    CheckpointOutcome, CheckpointRecord, CheckpointWrite, FailingPartition, GroupView, InstanceOutcome,
    InstanceWrite, MoveReason, MoveRecord, OwnershipOutcome, OwnershipWrite, Resume, StoreError,
};

/// A protocol: all its state in one place, changed by a synchronous `apply`.
pub(crate) trait Coordination: Send {
    /// Takes an input at a moment of the instance's own clock and appends what is to be done about it.
    fn apply(&mut self, now: Tick, input: Input, out: &mut Vec<Effect>);

    /// When [`Input::Time`] is next due.
    fn deadline(&self) -> Option<Tick>;

    /// The incarnation that takes part, and its last view's cursor and time: what a wait for changes needs.
    fn listens_as(&self) -> Option<(&Incarnation, u64, Tick)>;

    /// From when on no call may go on, by the instance's own clock, unless the lease is renewed before.
    fn hard_stop(&self) -> Tick;

    /// What can be seen from outside.
    fn view(&self) -> CoordinationView<'_>;
}

/// Names a store call.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) struct CallId(pub(crate) u64);

#[derive(Clone, PartialEq, Debug)]
pub(crate) enum StoreCall {
    Instance(InstanceWrite),
    Ownership(OwnershipWrite),
    Checkpoint(CheckpointWrite),
    View,
}

#[derive(Debug)]
pub(crate) enum StoreAnswer {
    Instance(InstanceOutcome),
    Ownership(OwnershipOutcome),
    Checkpoint(CheckpointOutcome),
    View(GroupView),
}

#[derive(Debug)]
#[allow(clippy::large_enum_variant)] // Inputs are made one at a time and never kept.
pub(crate) enum Input {
    /// A deadline has come.
    Time,
    /// The store says that something changed.
    Changed,
    /// What the hub says about itself.
    Hub(HubDescription),
    /// A store call ended.
    Answer(CallId, Result<StoreAnswer, StoreError>),
    /// The pump that was opened at this epoch says something.
    Pump(PartitionId, Epoch, PumpEvent),
    /// Leave the group in good order.
    Stop,
}

/// A position to be made durable.
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct Target {
    pub(crate) resume: Resume,
    /// Whether the position may fall.
    pub(crate) seek: bool,
    /// How often the pump had sought when this was asked for: a position from before a seek is worth nothing after it.
    pub(crate) seeks: u64,
}

impl Target {
    /// Folds a newer target into one that has not been written yet.
    pub(crate) fn merge(held: Option<Target>, newer: Target) -> Target {
        match held {
            None => newer,
            Some(held) if newer.seeks < held.seeks => held,
            Some(held) if newer.seeks > held.seeks => Target { seek: newer.seek || held.seek, ..newer },
            Some(held) => {
                let resume = match (held.resume, newer.resume) {
                    // Asked for in another order than handled: the furthest includes the others.
                    (Resume::After(held), Resume::After(newer)) if held.sequence > newer.sequence => {
                        Resume::After(held)
                    }
                    (_, newer) => newer,
                };
                Target { resume, seek: newer.seek || held.seek, seeks: newer.seeks }
            }
        }
    }
}

#[derive(Debug)]
pub(crate) enum PumpEvent {
    /// Make this durable.
    Checkpoint(Target),
    /// The source said that somebody else reads the partition: look whether that is so.
    Suspect,
    /// The hub says that it is another one than it was.
    AskHub,
    /// The same thing fails again and again, or no longer does.
    Failing(Option<FailingPartition>),
    /// No call runs any more; the handler is being told that it stops.
    Stopping,
    /// The handler was told that it stops, and the pump has ended.
    Drained {
        /// What the next owner must start after.
        last: Option<Target>,
        /// Whether a call was cut off.
        cancelled: bool,
        /// Whether the pump stopped by itself because it cannot go on here.
        give_up: bool,
    },
    /// The pump has ended after it was revoked.
    Ended,
}

/// Why a partition is drained.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum DrainReason {
    HandOff,
    Shutdown,
}

/// Why a running call is cut off.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum CancelReason {
    /// It outlasts the drain time. Not meant for `stopping`, which has a drain time of its own and may have begun since.
    DrainTime,
    /// The lease is over, or the partition was lost.
    Lost,
}

#[derive(Debug)]
pub(crate) enum Effect {
    Call(CallId, StoreCall),
    /// Ask the hub what it is, now: somebody says that it is another one.
    AskHub,
    /// The instance is registered: the start has succeeded.
    Registered,
    /// Start a pump.
    Open {
        partition: PartitionId,
        epoch: Epoch,
        checkpoint: CheckpointRecord,
        lease: Tick,
    },
    /// The pump may start calls before this moment.
    Lease {
        partition: PartitionId,
        until: Tick,
    },
    /// Start no call; end the running one; tell the handler; end.
    Drain {
        partition: PartitionId,
        reason: DrainReason,
    },
    /// Go on after all.
    Undrain {
        partition: PartitionId,
    },
    /// Cut the running call off.
    Cancel {
        partition: PartitionId,
        reason: CancelReason,
    },
    /// The partition is no longer ours: cut off, tell the handler, end.
    Revoke {
        partition: PartitionId,
        reason: RevokeReason,
    },
    /// This, and all before it, is durable.
    Durable {
        partition: PartitionId,
        resume: Resume,
        /// As in [`Target`].
        seeks: u64,
    },
    /// The pump's last word has been dealt with; forget it.
    Closed {
        partition: PartitionId,
        moved: Option<MoveReason>,
    },
    /// An owner changed.
    Moved(MoveRecord),
    /// Tell whoever listens to errors.
    Report(ErrorReport),
    /// Left the group, with what could not be done in good order.
    Stopped {
        failures: Vec<String>,
    },
}

/// Where an instance is in its life.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum Phase {
    /// Not yet in the group.
    Joining,
    /// In the group, lease valid.
    Running,
    /// In the group, but the lease is not valid: nothing is delivered until the store answers again.
    Lapsed,
    /// Declared dead by others; joins again as another incarnation.
    Buried,
    /// Draining and leaving.
    Stopping,
    /// Gone.
    Stopped,
}

impl fmt::Display for Phase {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Joining => "joining",
            Self::Running => "running",
            Self::Lapsed => "lapsed",
            Self::Buried => "buried",
            Self::Stopping => "stopping",
            Self::Stopped => "stopped",
        })
    }
}

/// Why a handler is told to stop while the partition is still its own.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[non_exhaustive]
pub enum StopReason {
    /// Another instance takes over.
    HandOff,
    /// The processor shuts down.
    Shutdown,
    /// The partition cannot be read from here; it is given up for a while.
    SourceFailed,
}

impl fmt::Display for StopReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::HandOff => "another instance takes over",
            Self::Shutdown => "the processor shuts down",
            Self::SourceFailed => "the partition cannot be read from here",
        })
    }
}

/// Why a partition is no longer its owner's.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[non_exhaustive]
pub enum RevokeReason {
    /// The store shows another owner.
    OwnershipLost,
    /// A checkpoint was refused because a newer owner had sealed the record.
    Fenced,
    /// This instance was declared dead by the others.
    Buried,
}

impl fmt::Display for RevokeReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::OwnershipLost => "another instance owns the partition",
            Self::Fenced => "a newer owner has sealed the checkpoint",
            Self::Buried => "this instance was declared dead",
        })
    }
}

/// What can be seen of a protocol's state.
pub(crate) struct CoordinationView<'a> {
    pub(crate) me: &'a Incarnation,
    pub(crate) phase: Phase,
    pub(crate) group: Option<&'a GroupView>,
    /// Those that the hub has.
    pub(crate) partitions: Vec<&'a PartitionId>,
    pub(crate) durable: Vec<(&'a PartitionId, &'a StreamPosition)>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reasons_are_shown_in_words_and_can_be_padded() {
        assert_eq!(StopReason::HandOff.to_string(), "another instance takes over");
        assert_eq!(RevokeReason::Buried.to_string(), "this instance was declared dead");
        assert_eq!(format!("{:>9}|", Phase::Running), "  running|");
        assert_eq!(format!("{:25}|", StopReason::Shutdown), "the processor shuts down |");
    }
}
