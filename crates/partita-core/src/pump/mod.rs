//! The pump: reader, bounded queue and handler of one owned partition. One task, one call at a time.
//!
//! - `deliver`: closures and full handlers, brought to one form.
//! - `failure`: the pure decision what to do about a handler that fails.
//! - `gate`: what is asked before every call.
//! - `prefetch`: the reader and the bounded queue.
//! - `missed`: which missing events were told.
//! - `past`: whether the hub still has what was handled.
//! - `progress`: how far the partition was handled, and when to checkpoint.
//! - `call`: one call of user code, guarded against panics and cut off on demand.
//! - `standing`: what all pumps of an instance look at.
//! - `state`: what a pump shares with the coordination and with contexts.
//! - `task`: the life of the pump.
//! - `trouble`: what is told of a partition that cannot get on.

mod call;
mod deliver;
mod failure;
mod gate;
mod missed;
mod past;
mod prefetch;
mod progress;
mod standing;
mod state;
mod task;
mod trouble;

#[cfg(test)]
mod tests;

pub(crate) use deliver::{Factory, FullFactory, OnBatch, OnEvent};

pub(crate) use progress::Start;
pub(crate) use standing::Standing;
pub(crate) use state::{Closed, Command, PumpState};
pub(crate) use task::{Pump, PumpConfig};
