//! Whole fleets in one thread, on a simulated clock, with faults drawn from a seed.
//!
//! The engine that runs is the real one: the same [`Processor`](partita_core::processor::Processor), coordination and
//! pumps that users run. Simulated are the clock (Tokio's, paused), the way to the store (latency, lost requests,
//! lost replies, late requests, outages) and the fate of processes (crash, freeze and thaw, joining and leaving). An
//! [`Oracle`](oracle::Oracle) sees every write that reaches the store and every call of a handler, and checks the
//! protocol's invariants at each of them.
//!
//! The same seed gives the same trace, byte for byte: a failing seed is a bug report.

pub mod faults;
pub mod oracle;
pub mod world;

mod handler;
mod process;
mod store;

pub use faults::{Fault, Plan, Setup};
pub use oracle::{Counts, Violation};
pub use world::{Report, World};
