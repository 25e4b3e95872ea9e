//! Flow (2.7.4).

use super::field::composite;
use crate::message::Map;

composite! {
    /// The state of a session's windows, and of a link's credit if it has a handle.
    pub Flow = 0x13 {
        next_incoming_id: Option<u32>,
        incoming_window: u32,
        next_outgoing_id: u32,
        outgoing_window: u32,
        handle: Option<u32>,
        delivery_count: Option<u32>,
        link_credit: Option<u32>,
        available: Option<u32>,
        drain: bool = false,
        echo: bool = false,
        properties: Map,
    }
}
