//! Whole fleets in one thread, on a simulated clock, with faults drawn from a seed.
//!
//! The engine that runs is the real one: the same [`Processor`](partita_core::processor::Processor), coordination and
//! pumps that users run, in some worlds on the real log. Simulated are the clock (Tokio's, paused), the ways to store and
//! hub (latency, errors, lost requests and replies, outages), the disk under the log, and the fate of processes. An oracle
//! sees every write that reaches the store and every call of a handler, and checks the invariants of ARCHITECTURE.md at
//! each of them.
//!
//! The same seed gives the same trace, byte for byte: a failing seed is a bug report.
//!
//! - [`World`] runs one seed, [`run_all`] many of them.
//! - [`Simulation`] does the same for a [`Subject`] of your own: your handler, your store, and what must be true in the end.

mod counts;
mod extras;
mod faults;
mod fleet;
mod handler;
mod hub;
mod oracle;
mod process;
mod runs;
mod simulation;
mod source;
mod store;
mod subject;
mod summary;
mod theme;
mod world;

#[cfg(feature = "planted")]
pub mod planted;

pub use counts::Counts;
pub use extras::Extras;
pub use faults::{Blow, Fault, Moment, Plan, ReaderFault, Setup};
pub use oracle::Violation;
pub use runs::run_all;
pub use simulation::{Failure, Simulation};
pub use subject::{Produced, Subject};
pub use summary::Summary;
pub use theme::Theme;
pub use world::{Report, World};
