//! Partita's engine: it decides who reads which partition, hands partitions over, resumes where the last owner
//! stopped and keeps the events of a partition in order. Users depend on the `partita` crate, which re-exports this.

#[doc(hidden)]
#[macro_use]
pub mod planted;

pub mod balance;
pub mod coordination;
pub mod handler;
pub mod model;
pub mod options;
pub mod processor;
pub mod pump;
pub mod report;
pub mod runtime;
pub mod source;
pub mod store;
#[cfg(feature = "testkit")]
pub mod testkit;
pub mod timing;
