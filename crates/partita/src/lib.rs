//! Balanced, resumable processing of partitioned event streams.

pub use partita_core::{balance, coordination, model, source, store};
