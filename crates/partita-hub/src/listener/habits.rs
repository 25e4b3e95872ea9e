//! What one client needs and others do not. Each has its reason, and goes when the client no longer needs it.

use std::time::Duration;

use partita_amqp::performative::Open;

/// The Rust SDK, as its opens name it.
const RUST: &str = "azure_messaging_eventhubs";

/// How long an answer to a message is held back from the Rust SDK. The AMQP library in it (fe2o3-amqp, up to 0.16) hands a
/// message over before it notes that it waits for an answer, and one that comes in between is lost: the send would never end.
pub const RUST_ANSWER_PAUSE: Duration = Duration::from_millis(10);

/// How long after a message the client can be told what became of it.
pub(super) fn answer_pause(open: &Open) -> Duration {
    let product = open.properties.iter().find(|(key, _)| key.as_str() == Some("product"));
    match product.and_then(|(_, value)| value.as_str()) {
        Some(RUST) => RUST_ANSWER_PAUSE,
        _ => Duration::ZERO,
    }
}
