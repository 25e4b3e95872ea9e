//! Partita's event hub in the box: durable, partitioned, served by one process from a directory.
//!
//! - [`log`] is the storage: one shared log per hub, written by one committer, with each partition its own commit log to
//!   its readers.
//! - [`broker`] is what a hub is on top of that: names, consumer groups, routing, and who may read.
//! - [`source`] reads a hub of this process as an event source, [`producer`] writes to it; both await instead of blocking.
//! - [`server`] (feature `server`) is the hub on the network: Event Hubs over AMQP 1.0. [`service`] is what is said there,
//!   [`listener`] who says it to whom, [`fault`] what users ask it to do wrong.

pub mod broker;
#[cfg(feature = "server")]
pub mod fault;
#[cfg(feature = "server")]
pub mod listener;
pub mod log;
pub mod producer;
#[cfg(feature = "server")]
pub mod server;
#[cfg(feature = "server")]
pub mod service;
pub mod source;
