//! What was being done when something went wrong.

use std::fmt;

/// What was being done when an error occurred.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[non_exhaustive]
#[allow(missing_docs)] // The variants are the operations' names.
pub enum Operation {
    Register,
    Heartbeat,
    View,
    Bury,
    Leave,
    Lease,
    Claim,
    Request,
    Transfer,
    Release,
    Seal,
    Checkpoint,
    Drain,
    Describe,
    OpenReader,
    Read,
    HandlerOpen,
    HandlerEvents,
    HandlerStopping,
    HandlerRevoked,
}

impl Operation {
    /// The operation in words.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Register => "joining the group",
            Self::Heartbeat => "renewing the lease",
            Self::View => "reading the group",
            Self::Bury => "declaring a silent instance dead",
            Self::Leave => "leaving the group",
            Self::Lease => "keeping the lease",
            Self::Claim => "claiming a partition",
            Self::Request => "asking for a hand-off",
            Self::Transfer => "handing a partition over",
            Self::Release => "releasing a partition",
            Self::Seal => "sealing a checkpoint",
            Self::Checkpoint => "writing a checkpoint",
            Self::Drain => "draining a partition",
            Self::Describe => "describing the hub",
            Self::OpenReader => "opening a reader",
            Self::Read => "reading events",
            Self::HandlerOpen => "opening the handler",
            Self::HandlerEvents => "handling events",
            Self::HandlerStopping => "stopping the handler",
            Self::HandlerRevoked => "revoking the handler",
        }
    }
}

impl fmt::Display for Operation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}
