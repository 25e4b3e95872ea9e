//! Partita's event hub in the box: durable, partitioned, served by one process from a directory.
//!
//! Users reach it as `partita::hub`, with feature `hub` of crate `partita`, which has what they need of it. This crate is
//! one of Partita's parts, and promises nothing beyond that.
//!
//! ```
//! use partita_core::model::{Event, Route};
//! use partita_hub::broker::{Broker, HubOptions};
//! use partita_hub::{producer::HubProducer, source::HubSource};
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let broker = Broker::in_memory(64 << 20)?; // or Broker::open("data")?.0
//! let hub = broker.create_hub(&"homes".into(), HubOptions::default())?;
//! let sent = HubProducer::new(hub.clone()).send(Route::key("home 7"), Event::builder("door opened")).await?;
//! assert_eq!(sent.count(), 1);
//! let source = HubSource::new(hub); // for Processor::builder
//! # Ok(())
//! # }
//! ```
//!
//! - [`log`] is the storage: one shared log per hub, written by one committer, with each partition its own commit log to
//!   its readers.
//! - [`broker`] is what a hub is on top of that: names, consumer groups, routing, and who may read.
//! - [`source`] reads a hub of this process as an event source, [`producer`] writes to it; both await instead of blocking.
//! - `server` (feature `server`) is the hub on the network: Event Hubs over AMQP 1.0, with features `tls` and `websocket`
//!   over these, too. `fault` is what users ask it to do wrong.

pub mod broker;
#[cfg(feature = "server")]
pub mod fault;
#[cfg(feature = "server")]
#[doc(hidden)]
pub mod listener;
pub mod log;
pub mod producer;
#[cfg(feature = "server")]
pub mod server;
#[cfg(feature = "server")]
#[doc(hidden)]
pub mod service;
pub mod source;
