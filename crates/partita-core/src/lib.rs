//! Partita's engine: it decides who reads which partition, hands partitions over, resumes where the last owner
//! stopped and keeps the events of a partition in order.
//!
//! Users depend on crate `partita`, which re-exports what they need of this one. Whoever writes a store or a source
//! for others to use depends on this crate alone; it knows no hub, no database and no network.
//!
//! - [`processor`]: one instance of a group, from [`Processor::builder`](processor::Processor::builder) to shutdown.
//! - [`handler`]: what a user writes.
//! - [`model`]: events, positions, ids and times.
//! - [`source`]: the trait of event sources, and a hub in memory.
//! - [`store`]: the trait of checkpoint stores, and a store in memory.
//! - `testkit` (feature `testkit`): conformance suites for a store or a source of your own.
//!
//! ```
//! use partita_core::model::Event;
//! use partita_core::processor::Processor;
//! use partita_core::source::MemoryHub;
//! use partita_core::store::MemoryStore;
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let hub = MemoryHub::new("homes", 4);
//! hub.append(&"0".into(), Event::builder("door opened"));
//! Processor::builder(hub.source(), MemoryStore::new())
//!     .on_event(|event, cx| async move {
//!         println!("{} {}", cx.partition(), event.text().unwrap_or_default());
//!         Ok(())
//!     })
//!     .run_until(async {})
//!     .await?;
//! # Ok(())
//! # }
//! ```
//!
//! Modules that are not shown here are Partita's own: they change without notice.

#[doc(hidden)]
#[macro_use]
pub mod planted;

#[doc(hidden)]
pub mod balance;
mod coordination;
pub mod handler;
pub mod model;
mod options;
pub mod processor;
mod pump;
mod report;
mod runtime;
pub mod source;
pub mod store;
#[cfg(feature = "testkit")]
pub mod testkit;
mod timing;
