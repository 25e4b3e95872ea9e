//! Open and close (2.7.1, 2.7.9).

use std::sync::Arc;

use super::Error;
use super::field::composite;
use crate::message::Map;
use crate::types::Symbol;

composite! {
    /// What a peer says about itself and its limits before anything else.
    pub Open = 0x10 {
        container_id: Arc<str>,
        hostname: Option<Arc<str>>,
        max_frame_size: u32 = u32::MAX,
        channel_max: u16 = u16::MAX,
        /// How long it waits for a frame before it gives up.
        idle_timeout_ms: Option<u32>,
        outgoing_locales: Vec<Symbol>,
        incoming_locales: Vec<Symbol>,
        offered_capabilities: Vec<Symbol>,
        desired_capabilities: Vec<Symbol>,
        properties: Map,
    }
}

impl Open {
    /// An open without limits or properties.
    pub fn new(container_id: impl Into<Arc<str>>) -> Self {
        Self {
            container_id: container_id.into(),
            hostname: None,
            max_frame_size: u32::MAX,
            channel_max: u16::MAX,
            idle_timeout_ms: None,
            outgoing_locales: Vec::new(),
            incoming_locales: Vec::new(),
            offered_capabilities: Vec::new(),
            desired_capabilities: Vec::new(),
            properties: Map::new(),
        }
    }
}

composite! {
    /// The end of a connection.
    pub Close = 0x18 {
        error: Option<Error>,
    }
}
