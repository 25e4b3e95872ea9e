//! The hub on the network.

pub mod transport;
