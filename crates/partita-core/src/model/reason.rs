//! Why a partition stops being read here.

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
