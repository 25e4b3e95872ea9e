//! Errors of a source, classified by what the pump does about them.

use std::fmt;

use crate::model::BoxError;

/// What an error means for the reader's owner.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[non_exhaustive]
pub enum SourceErrorKind {
    /// Trying again may help: connection lost, name not resolved, server busy.
    Retriable,
    /// A reader of an equal or higher owner level took the partition.
    OwnershipLost,
    /// The position is no longer, or not yet, in the partition.
    PositionGone,
    /// Trying again will not help: no such hub, access refused.
    Fatal,
}

/// A source call that failed.
#[derive(Debug)]
pub struct SourceError {
    kind: SourceErrorKind,
    source: BoxError,
}

impl SourceError {
    /// An error of this kind.
    pub fn new(kind: SourceErrorKind, source: impl Into<BoxError>) -> Self {
        Self { kind, source: source.into() }
    }

    /// What it means.
    pub fn kind(&self) -> SourceErrorKind {
        self.kind
    }
}

impl fmt::Display for SourceErrorKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Retriable => "retryable",
            Self::OwnershipLost => "partition taken by another reader",
            Self::PositionGone => "position not in the partition",
            Self::Fatal => "fatal",
        })
    }
}

impl fmt::Display for SourceError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let what = match self.kind {
            SourceErrorKind::Retriable => "event source, retryable",
            SourceErrorKind::OwnershipLost => "event source, partition taken by another reader",
            SourceErrorKind::PositionGone => "event source, position not in the partition",
            SourceErrorKind::Fatal => "event source",
        };
        write!(f, "{what}: {}", self.source)
    }
}

impl std::error::Error for SourceError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        Some(&*self.source)
    }
}
