//! What Event Hubs says over AMQP 1.0. A hub and its clients speak the same dialect, so it has one home.
//!
//! - [`event`]: an event as a message, and several of them as one.
//! - [`selector`]: where a reader starts, as the filter of its link.
//! - [`names`]: annotations, properties of links, nodes, and what is asked of them.
//! - [`condition`]: errors that only Event Hubs has.
//! - `sas` (feature `sas`): shared access signatures.

pub mod condition;
pub mod event;
pub mod names;
#[cfg(feature = "sas")]
pub mod sas;
pub mod selector;
