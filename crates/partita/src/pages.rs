//! The pages whose programs are compiled, and run where they can be.

#[doc = include_str!("../../../docs/handlers.md")]
mod handlers {}

#[doc = include_str!("../../../docs/event-hubs.md")]
mod event_hubs {}

#[cfg(feature = "sqlite")]
#[doc = include_str!("../../../README.md")]
mod readme {}
