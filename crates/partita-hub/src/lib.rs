//! Partita's event hub in the box: a durable, partitioned log that one process serves from a directory.
//!
//! [`log`] is the storage: one shared log per hub, written by one committer, with each partition its own commit log to
//! its readers.

pub mod log;
