//! The hub on the network: one task per connection, which owns everything that belongs to it.
//!
//! `connection.rs` moves bytes and waits; `core.rs` decides, without waiting: what happened goes in, verbs of the AMQP
//! machine come out. Links are of three kinds: those that clients send events on (`sender_link.rs`), those that they read them
//! from (`receiver_link.rs`), and the nodes that answer requests (`node.rs`). `habits.rs` has what single clients need.

pub mod accept;
mod attach;
pub(crate) mod connection;
pub mod habits;
mod logic;
mod mailbox;
mod node;
mod receiver_link;
mod sender_link;
pub mod strangers;
pub mod throttle;
pub mod transport;
mod trust;
