//! Errors that say whether the write may have happened.

use std::fmt;

use crate::model::BoxError;

/// What is known about a write that did not answer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Certainty {
    /// It did not happen and will not.
    NoEffect,
    /// It may have happened, or may still happen.
    Unknown,
}

impl fmt::Display for Certainty {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::NoEffect => "no effect",
            Self::Unknown => "outcome unknown",
        })
    }
}

/// A store call that gave no answer.
#[derive(Debug)]
pub struct StoreError {
    op: &'static str,
    certainty: Certainty,
    transient: bool,
    source: BoxError,
}

impl StoreError {
    /// `op` failed and may have had its effect; trying again may help.
    pub fn unknown(op: &'static str, source: impl Into<BoxError>) -> Self {
        Self { op, certainty: Certainty::Unknown, transient: true, source: source.into() }
    }

    /// `op` failed without effect; trying again may help.
    pub fn no_effect(op: &'static str, source: impl Into<BoxError>) -> Self {
        Self { op, certainty: Certainty::NoEffect, transient: true, source: source.into() }
    }

    /// `op` failed without effect and will fail again until somebody changes something: a bad credential, a schema
    /// of another version.
    pub fn permanent(op: &'static str, source: impl Into<BoxError>) -> Self {
        Self { op, certainty: Certainty::NoEffect, transient: false, source: source.into() }
    }

    /// The operation.
    pub fn op(&self) -> &'static str {
        self.op
    }

    /// Whether the write may have happened.
    pub fn certainty(&self) -> Certainty {
        self.certainty
    }

    /// Whether trying again may help.
    pub fn is_transient(&self) -> bool {
        self.transient
    }
}

impl fmt::Display for StoreError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "checkpoint store: {} failed: {}", self.op, self.source)?;
        if self.certainty == Certainty::Unknown {
            f.write_str(" (outcome unknown: it may have been applied)")?;
        }
        Ok(())
    }
}

impl std::error::Error for StoreError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        Some(&*self.source)
    }
}
