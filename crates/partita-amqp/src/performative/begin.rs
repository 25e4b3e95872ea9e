//! Begin and end of a session (2.7.2, 2.7.8).

use super::Error;
use super::field::composite;
use crate::message::Map;
use crate::types::Symbol;

composite! {
    /// The begin of a session, or the answer to one.
    pub Begin = 0x11 {
        /// In an answer: the channel on which the other side began.
        remote_channel: Option<u16>,
        next_outgoing_id: u32,
        incoming_window: u32,
        outgoing_window: u32,
        handle_max: u32 = u32::MAX,
        offered_capabilities: Vec<Symbol>,
        desired_capabilities: Vec<Symbol>,
        properties: Map,
    }
}

composite! {
    /// The end of a session.
    pub End = 0x17 {
        error: Option<Error>,
    }
}
