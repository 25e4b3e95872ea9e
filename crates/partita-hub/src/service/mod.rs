//! What Event Hubs says over AMQP, without a connection: addresses, start positions, tokens, questions about hubs, and
//! events in and out. Nothing here waits or knows a socket; time is passed in.

pub mod address;
pub mod annotations;
pub mod auth;
pub mod cbs;
pub mod condition;
pub mod egress;
pub mod ingest;
pub mod management;
mod request;
pub(crate) use request::{failure as reply_failure, reply_to as request_reply_to};
pub mod selector;
#[cfg(test)]
mod tests;
