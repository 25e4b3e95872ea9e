//! A connection before it has a token: how much it may do, how much it may hold, and for how long.

use std::sync::atomic::Ordering;
use std::time::Instant;

use partita_amqp::connection::Limits;
use partita_core::model::Timestamp;

use super::logic::{ConnectionLogic, End, LinkKind, OUTBOX_BYTES_LIMIT, error_of};
use super::strangers::{ALL_BYTES_MAX, EACH_BYTES_MAX, Excess};
use crate::server::ServerOptions;
use crate::service::condition::{LIMIT_EXCEEDED, Refusal, UNAUTHORIZED};

/// Events that a stranger's frames may lead to before they are looked at; each is answered, and answers take memory.
const STRANGERS_EVENTS_MAX: usize = 64;

/// What the AMQP machine lets a client do that has a token.
pub(super) fn limits(options: &ServerOptions) -> Limits {
    Limits {
        message_bytes_max: options.message_bytes_max,
        outbox_bytes_max: OUTBOX_BYTES_LIMIT,
        ..Limits::default()
    }
}

/// What it lets one do that has none. What was told when the connection began is the same.
pub(super) fn strangers_limits(options: &ServerOptions) -> Limits {
    Limits {
        reassembly_bytes_max: EACH_BYTES_MAX,
        events_max: STRANGERS_EVENTS_MAX,
        events_bytes_max: EACH_BYTES_MAX,
        outbox_bytes_max: EACH_BYTES_MAX / 2,
        ..limits(options)
    }
}

impl ConnectionLogic {
    /// Whether nobody has vouched for the client yet.
    pub(super) fn is_stranger(&self) -> bool {
        self.stake.is_some()
    }

    /// Looks at what a stranger holds, besides `input` bytes that are no frame yet. It is none any more once it has a token;
    /// it goes if it holds too much, or has been one for too long.
    pub(super) fn look_at_stranger(&mut self, input: usize, now: Instant) {
        let Some(stake) = &self.stake else { return };
        if self.tokens.any(Timestamp::now()) {
            self.stake = None;
            self.token_until = None;
            self.seat().trusted.store(true, Ordering::Release);
            let limits = limits(&self.shared().options);
            return self.conn.set_limits(limits);
        }
        let replies = self.links.values().map(|link| match &link.kind {
            LinkKind::Replies(replies) => replies.bytes(),
            _ => 0,
        });
        let held = input + self.conn.held_bytes() + replies.sum::<usize>();
        let refusal = match stake.hold(held) {
            Err(Excess::Own) => {
                let text = format!(
                    "The connection has no token yet and holds more than {EACH_BYTES_MAX} bytes of the hub's memory."
                );
                Refusal::new(LIMIT_EXCEEDED, text)
            }
            Err(Excess::Total) => {
                let text = format!(
                    "Connections without a token hold more than {ALL_BYTES_MAX} bytes of the hub's memory, and this one held most."
                );
                Refusal::new(LIMIT_EXCEEDED, text)
            }
            Ok(()) if self.token_until.is_some_and(|until| until <= now) => {
                let seconds = self.shared().options.token_timeout.as_secs();
                Refusal::new(UNAUTHORIZED, format!("No token was put on the connection within {seconds} s."))
            }
            Ok(()) => return,
        };
        tracing::debug!(connection = self.id(), held, %refusal, "a stranger is sent away");
        self.warn_refused(&refusal.condition, &refusal.description);
        self.stake = None;
        self.token_until = None;
        self.links.clear();
        self.conn.close(Some(error_of(&refusal)));
        self.finish(End::Closed);
    }
}
