//! What one end of a connection says about itself, and how much it lets the other do.

use std::sync::Arc;
use std::time::Duration;

use crate::message::Map;
use crate::performative::Open;
use crate::types::Symbol;

/// What we say and how long we wait.
#[derive(Clone, Debug)]
pub struct Options {
    /// Our name, for people to read.
    pub container_id: Arc<str>,
    /// A client: the host it means.
    pub hostname: Option<Arc<str>>,
    /// The largest frame that we take.
    pub frame_bytes_max: u32,
    /// How long the peer may be silent. A client closes at one and a half times that, a server a little after twice that,
    /// as the service does. Zero: for ever.
    pub idle_timeout: Duration,
    /// How long the peer has until it is open.
    pub handshake_timeout: Duration,
    /// How long we wait for the answer to our close.
    pub close_timeout: Duration,
    /// What we offer.
    pub offered_capabilities: Vec<Symbol>,
    /// What we would like.
    pub desired_capabilities: Vec<Symbol>,
    /// Anything else.
    pub properties: Map,
    /// How much the peer may do.
    pub limits: Limits,
}

/// How much the peer may do, each per connection unless it says otherwise.
#[derive(Clone, Debug)]
pub struct Limits {
    /// Sessions.
    pub sessions_max: u16,
    /// Links in all sessions.
    pub links_max: usize,
    /// The highest handle of a link in its session.
    pub handle_max: u32,
    /// Transfer frames that a session's peer may send ahead.
    pub session_window: u32,
    /// The largest message on a link whose attach does not say.
    pub message_bytes_max: u64,
    /// Parts of messages that are not complete.
    pub reassembly_bytes_max: usize,
    /// How many messages a peer may send on a link beyond its credit, before the link is detached. Clients of Event Hubs
    /// begin before they were given any.
    pub credit_overrun_max: u32,
    /// Deliveries that we sent on a link and whose outcome we wait for.
    pub unsettled_max: usize,
    /// Events that nobody took yet; the limit pauses [`receive`](super::Connection::receive).
    pub events_max: usize,
    /// Bytes of frames whose events nobody took yet; likewise.
    pub events_bytes_max: usize,
    /// Bytes that the peer did not read yet; likewise. High, because a peer that is writing may not read until we do.
    pub outbox_bytes_max: usize,
}

impl Options {
    /// The defaults, under this name.
    pub fn new(container_id: impl Into<Arc<str>>) -> Self {
        Self {
            container_id: container_id.into(),
            hostname: None,
            frame_bytes_max: 64 * 1024,
            idle_timeout: Duration::from_secs(120),
            handshake_timeout: Duration::from_secs(30),
            close_timeout: Duration::from_secs(5),
            offered_capabilities: Vec::new(),
            desired_capabilities: Vec::new(),
            properties: Map::new(),
            limits: Limits::default(),
        }
    }

    pub(super) fn open(&self) -> Open {
        let idle_ms = u32::try_from(self.idle_timeout.as_millis()).unwrap_or(u32::MAX);
        Open {
            hostname: self.hostname.clone(),
            max_frame_size: self.frame_bytes_max,
            channel_max: self.limits.sessions_max.saturating_sub(1),
            idle_timeout_ms: (idle_ms > 0).then_some(idle_ms),
            offered_capabilities: self.offered_capabilities.clone(),
            desired_capabilities: self.desired_capabilities.clone(),
            properties: self.properties.clone(),
            ..Open::new(self.container_id.clone())
        }
    }
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            // As many as links: there are clients that give each link a session of its own.
            sessions_max: 4096,
            links_max: 4096,
            handle_max: 255,
            session_window: 5000,
            message_bytes_max: 1024 * 1024,
            reassembly_bytes_max: 16 * 1024 * 1024,
            credit_overrun_max: 10_000,
            unsettled_max: 16 * 1024,
            events_max: 4096,
            events_bytes_max: 4 * 1024 * 1024,
            outbox_bytes_max: 8 * 1024 * 1024,
        }
    }
}
