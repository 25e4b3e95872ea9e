//! The ownership protocol: who reads which partition, and how that changes without loss.
//!
//! A protocol is a state machine behind a small interface (`interface.rs`): it takes an input and the time by the
//! instance's own clock, and answers with effects that the processor's run loop performs. It never awaits, sleeps or
//! reads a clock, so every interleaving can be replayed. `native` is Partita's own protocol.

mod interface;
mod lease;
pub(crate) mod native;

pub use interface::Phase;
pub(crate) use interface::{
    CallId, Coordination, CoordinationView, Effect, Input, PumpEvent, StoreAnswer, StoreCall, Target,
};
