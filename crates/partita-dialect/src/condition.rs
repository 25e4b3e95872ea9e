//! Conditions of errors that only Event Hubs has. Those of the standard are in `partita_amqp::performative::condition`.

/// A token that is not valid, in a reply.
pub const AUTH_FAILED: &str = "com.microsoft:auth-failed";
/// The hub is disabled.
pub const ENTITY_DISABLED: &str = "com.microsoft:entity-disabled";
/// Not now; clients try again later.
pub const SERVER_BUSY: &str = "com.microsoft:server-busy";
/// It took too long; clients try again.
pub const TIMEOUT: &str = "com.microsoft:timeout";
/// Something that was given makes no sense.
pub const ARGUMENT_ERROR: &str = "com.microsoft:argument-error";
/// A partition or number that is not in the hub.
pub const OUT_OF_RANGE: &str = "com.microsoft:argument-out-of-range";
/// An idempotent producer left out a number.
pub const OUT_OF_ORDER: &str = "com.microsoft:out-of-order-sequence";
/// A later incarnation of an idempotent producer took over.
pub const PRODUCER_STOLEN: &str = "com.microsoft:producer-epoch-stolen";
