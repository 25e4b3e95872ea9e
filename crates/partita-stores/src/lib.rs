//! Checkpoint stores for Partita, one module and one feature each.
//!
//! All of them pass the same conformance suite. What each promises beyond it is said in its module.

#[cfg(feature = "sqlite")]
pub mod sqlite;
