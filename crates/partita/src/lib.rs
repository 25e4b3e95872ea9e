//! Balanced, resumable processing of partitioned event streams.

#[cfg(feature = "testkit")]
pub use partita_core::testkit;
pub use partita_core::{balance, coordination, model, source, store};
