//! AMQP 1.0 without I/O: bytes in, values and messages out, and back. Files follow the chapters of the standard.
//!
//! - [`types`]: the type system (part 1).
//! - [`frame`], [`performative`]: the transport (part 2): frames, and what stands in them.
//! - [`sasl`]: who connects (part 5.3).
//! - [`connection`]: connection, sessions and links of either role as one state machine.
//! - `driver` (feature `tokio`): a connection on a stream. All else knows no socket, runtime or clock.
//! - [`message`]: the sections of a message (part 3.2).
//!
//! What Event Hubs makes of it is in `partita-dialect`.
//!
//! A value is [`partita_core::model::Value`], which is AMQP's type system already: a second one would only be copied into
//! the first. Whatever the bytes are, decoding ends in a value or an error: depth and number of values are bounded, and
//! nothing is set aside for a length that the input does not have.

pub mod connection;
#[cfg(feature = "tokio")]
pub mod driver;
pub mod frame;
pub mod message;
pub mod performative;
pub mod sasl;
pub mod types;
