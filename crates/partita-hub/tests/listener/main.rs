//! The hub on the network, over real sockets, with a client on partita-amqp's own machine.

mod as_service;
mod client;
mod durable;
mod faults;
mod flow;
mod hostile;
mod logged_disk;
mod raw;
mod readers;
mod senders;
mod tokens;
