//! Checkpoint stores for Partita, one module and one feature each. Users reach them through crate `partita`.
//!
//! - `sqlite` (feature `sqlite`; there: `partita::sqlite`): a database file that the processes of one machine share.
//!
//! All of them pass the same conformance suite. What each promises beyond it is said in its module.

#[cfg(feature = "sqlite")]
pub mod sqlite;
