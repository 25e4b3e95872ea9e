//! Errors of whoever was called: a handler, a store, a source.

/// Any error, boxed.
pub type BoxError = Box<dyn std::error::Error + Send + Sync + 'static>;
