//! The pump: reader, bounded queue and handler of one owned partition. One task, one call at a time.
//!
//! - `failure`: the pure decision what to do about a handler that fails.
//! - `intake`: the reader and the bounded queue.
//! - `missed`: which missing events were told.
//! - `past`: whether the hub still has what was handled.
//! - `progress`: how far the partition was handled, and when to checkpoint.
//! - `call`: one call of user code, guarded against panics and cut off on demand.
//! - `task`: the life of the pump.
//! - `trouble`: what is told of a partition that cannot get on.

mod call;
mod failure;
mod intake;
mod missed;
mod past;
mod progress;
mod task;
mod trouble;

#[cfg(test)]
mod tests;

pub use failure::FailurePolicy;
pub use past::ChangedPast;

pub(crate) use progress::Start;
pub(crate) use task::{Pump, PumpConfig};
