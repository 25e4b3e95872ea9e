//! Why a partition stops being read here.

use std::fmt;

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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reasons_are_shown_in_words_and_can_be_padded() {
        assert_eq!(StopReason::HandOff.to_string(), "another instance takes over");
        assert_eq!(RevokeReason::Buried.to_string(), "this instance was declared dead");
        assert_eq!(format!("{:25}|", StopReason::Shutdown), "the processor shuts down |");
    }
}
