//! Conformance suites for a store or a source of your own.
//!
//! Each property of the contract is a public function that panics where the contract is broken, and the macros
//! make a test of each, so that a failure names its property:
//!
//! ```
//! # #![allow(dead_code, unused_imports)]
//! use std::sync::Arc;
//! use partita_core::store::{CheckpointStore, MemoryStore};
//!
//! async fn fresh() -> Arc<dyn CheckpointStore> {
//!     Arc::new(MemoryStore::new())
//! }
//!
//! partita_core::testkit::store_conformance!(fresh);
//! ```
//!
//! The tests run on tokio, so the crate that has them needs it among its dev-dependencies, with the features `macros`
//! and `rt-multi-thread`.

pub mod source;
pub mod store;

use std::future::poll_fn;
use std::pin::Pin;
use std::task::Poll;

pub use crate::{source_conformance, store_conformance};

/// Polls a future once, in the caller's task.
async fn poll_once<F: Future + Unpin>(future: &mut F) -> Poll<F::Output> {
    poll_fn(|cx| Poll::Ready(Pin::new(&mut *future).poll(cx))).await
}
