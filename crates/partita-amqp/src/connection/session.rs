//! Sessions (2.5): channels, windows, and the flow frames that tell them.

use super::outgoing::Remainder;
use super::slots::Numbered;
use super::{Connection, Event, LinkId, SessionId};
use crate::message::Map;
use crate::performative::{Begin, End, Error, Flow, condition};

/// The number of our first transfer and of our first delivery in a session.
const FIRST_OUTGOING_ID: u32 = 0;

/// How far a session is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum SessionState {
    /// We began; the peer has not answered.
    Beginning,
    /// Both have begun.
    Begun,
    /// We ended; the peer has not answered.
    Ending,
}

#[derive(Debug)]
pub(super) struct Session {
    pub(super) state: SessionState,
    /// Whether the end was told as an event already.
    told: bool,
    pub(super) local_channel: u16,
    remote_channel: Option<u16>,
    /// The number of the peer's next transfer, once it has begun.
    pub(super) next_incoming_id: Option<u32>,
    /// How many transfers the peer may still send.
    pub(super) incoming_window: u32,
    pub(super) next_outgoing_id: u32,
    /// How many transfers we may still send.
    pub(super) outgoing_left: u32,
    pub(super) next_delivery_id: u32,
    /// The highest handle that we may use.
    remote_handle_max: u32,
    pub(super) by_local_handle: Numbered<LinkId>,
    pub(super) by_remote_handle: Numbered<LinkId>,
    /// The peer's handles whose links it detached.
    pub(super) detached_handles: Numbered<()>,
    /// What of a message waits for the window.
    pub(super) remainder: Option<Remainder>,
}

impl Session {
    fn new(state: SessionState, local_channel: u16, window: u32) -> Self {
        Self {
            state,
            told: false,
            local_channel,
            remote_channel: None,
            next_incoming_id: None,
            incoming_window: window,
            next_outgoing_id: FIRST_OUTGOING_ID,
            outgoing_left: 0,
            next_delivery_id: FIRST_OUTGOING_ID,
            remote_handle_max: u32::MAX,
            by_local_handle: Numbered::default(),
            by_remote_handle: Numbered::default(),
            detached_handles: Numbered::default(),
            remainder: None,
        }
    }

    /// What the peer says in its begin.
    fn learn(&mut self, channel: u16, begin: &Begin) {
        self.state = SessionState::Begun;
        self.remote_channel = Some(channel);
        self.next_incoming_id = Some(begin.next_outgoing_id);
        self.outgoing_left = begin.incoming_window;
        self.remote_handle_max = begin.handle_max;
    }

    /// Whether no transfer may be begun.
    pub(super) fn is_shut(&self) -> bool {
        self.outgoing_left == 0 || self.remainder.is_some()
    }

    /// A handle of ours that is free; that of the peer, if it is.
    pub(super) fn free_handle(&self, remote: Option<u32>) -> Option<u32> {
        let remote = remote.filter(|handle| *handle <= self.remote_handle_max);
        let handle = self.by_local_handle.free(remote);
        (handle <= self.remote_handle_max).then_some(handle)
    }

    /// Counts a transfer of the peer; false if it was one too many.
    #[inline]
    pub(super) fn count_incoming(&mut self) -> bool {
        if self.incoming_window == 0 {
            return false;
        }
        self.incoming_window -= 1;
        self.next_incoming_id = self.next_incoming_id.map(|id| id.wrapping_add(1));
        true
    }

    /// Counts a transfer of ours.
    #[inline]
    pub(super) fn count_outgoing(&mut self) {
        self.outgoing_left -= 1;
        self.next_outgoing_id = self.next_outgoing_id.wrapping_add(1);
    }

    /// The session's part of a flow, in which the window is open in full again.
    pub(super) fn flow(&mut self, window: u32) -> Flow {
        self.incoming_window = window;
        Flow {
            next_incoming_id: self.next_incoming_id,
            incoming_window: window,
            next_outgoing_id: self.next_outgoing_id,
            outgoing_window: window,
            handle: None,
            delivery_count: None,
            link_credit: None,
            available: None,
            drain: false,
            echo: false,
            properties: Map::new(),
        }
    }

    /// The window, as the peer tells it: what it has not seen yet of ours is taken off.
    fn update(&mut self, flow: &Flow) {
        let seen = flow.next_incoming_id.unwrap_or(FIRST_OUTGOING_ID);
        let under_way = self.next_outgoing_id.wrapping_sub(seen);
        // A peer cannot have seen what we did not send.
        let under_way = if under_way > u32::MAX / 2 { 0 } else { under_way };
        self.outgoing_left = flow.incoming_window.saturating_sub(under_way);
    }
}

impl Connection {
    /// Begins a session. `None` if the connection is gone or no channel is left.
    pub fn begin(&mut self) -> Option<SessionId> {
        let (id, begin, channel) = self.new_session(SessionState::Beginning, None)?;
        self.write(channel, &begin);
        Some(id)
    }

    /// Ends a session and its links. [`Event::Ended`] follows when the peer has answered.
    pub fn end(&mut self, session: SessionId, error: Option<Error>) {
        self.end_session(session, error);
    }

    /// Ends a session because of what the peer did.
    pub(super) fn violated(&mut self, id: SessionId, condition: &str, text: impl Into<String>) {
        let error = Error::new(condition, text.into());
        if self.end_session(id, Some(error.clone())) {
            if let Some(session) = self.sessions.get_mut(id) {
                session.told = true;
            }
            self.tell(0, Event::Ended { session: id, error: Some(error) });
        }
    }

    fn end_session(&mut self, id: SessionId, error: Option<Error>) -> bool {
        let Some(session) = self.sessions.get_mut(id) else { return false };
        if session.state == SessionState::Ending {
            return false;
        }
        session.state = SessionState::Ending;
        let channel = session.local_channel;
        self.drop_links(id);
        self.write(channel, &End { error });
        true
    }

    fn drop_links(&mut self, id: SessionId) {
        let Some(session) = self.sessions.get_mut(id) else { return };
        session.remainder = None;
        session.by_remote_handle = Numbered::default();
        for link in std::mem::take(&mut session.by_local_handle).iter() {
            if let Some(link) = self.links.remove(link) {
                self.reassembly_bytes -= link.reassembly_bytes();
            }
        }
    }

    fn new_session(
        &mut self,
        state: SessionState,
        remote_channel: Option<u16>,
    ) -> Option<(SessionId, Begin, u16)> {
        if self.phase.is_over() {
            return None;
        }
        let limits = &self.options.limits;
        // A session has the same number in both directions if it can. The lowest would be that of a session which ended just
        // now, and there are clients that take the first frames of the new one for late ones of the old.
        let wanted = remote_channel.filter(|channel| *channel <= self.channel_out_max);
        let channel = u16::try_from(self.by_local_channel.free(wanted.map(u32::from))).ok()?;
        if channel > self.channel_out_max || channel >= limits.sessions_max {
            return None;
        }
        let window = limits.session_window;
        let id = self.sessions.insert(|_| Session::new(state, channel, window));
        self.by_local_channel.set(channel.into(), id);
        let begin = Begin {
            remote_channel,
            next_outgoing_id: FIRST_OUTGOING_ID,
            incoming_window: window,
            outgoing_window: window,
            handle_max: limits.handle_max,
            offered_capabilities: Vec::new(),
            desired_capabilities: Vec::new(),
            properties: Map::new(),
        };
        Some((id, begin, channel))
    }

    /// `Err` ends the connection.
    pub(super) fn on_begin(&mut self, channel: u16, begin: &Begin) -> Result<(), Error> {
        if channel >= self.options.limits.sessions_max {
            let text = format!("channel {channel} is beyond the agreed channel-max");
            return Err(Error::new(condition::FRAMING_ERROR, text));
        }
        if self.by_remote_channel.get(channel.into()).is_some() {
            let text = format!("a session was begun on channel {channel} already");
            return Err(Error::new(condition::NOT_ALLOWED, text));
        }
        let id = match begin.remote_channel {
            None => {
                let Some((id, answer, local)) = self.new_session(SessionState::Begun, Some(channel)) else {
                    let text = "no more sessions can be begun on this connection";
                    return Err(Error::new(condition::RESOURCE_LIMIT_EXCEEDED, text));
                };
                self.write(local, &answer);
                id
            }
            Some(local) => {
                let id = self.by_local_channel.get(local.into());
                let waits = |id: &SessionId| {
                    self.sessions.get(*id).is_some_and(|session| session.remote_channel.is_none())
                };
                let Some(id) = id.filter(waits) else {
                    let text = format!("no session waits for an answer on channel {local}");
                    return Err(Error::new(condition::NOT_ALLOWED, text));
                };
                id
            }
        };
        self.by_remote_channel.set(channel.into(), id);
        self.ended_channels.remove(channel.into());
        if let Some(session) = self.sessions.get_mut(id) {
            // One that we ended before this answer is still to be answered that.
            let ending = session.state == SessionState::Ending;
            session.learn(channel, begin);
            if ending {
                session.state = SessionState::Ending;
            } else {
                self.tell(0, Event::Begun(id));
            }
        }
        Ok(())
    }

    pub(super) fn on_end(&mut self, id: SessionId, error: Option<Error>) {
        self.drop_links(id);
        let Some(session) = self.sessions.remove(id) else { return };
        self.by_local_channel.remove(session.local_channel.into());
        if let Some(channel) = session.remote_channel {
            self.by_remote_channel.remove(channel.into());
            self.ended_channels.set(channel.into(), ());
        }
        if session.state != SessionState::Ending {
            self.write(session.local_channel, &End { error: None });
        }
        if !session.told {
            self.tell(0, Event::Ended { session: id, error });
        }
    }

    pub(super) fn on_flow(&mut self, id: SessionId, flow: &Flow) {
        let Some(session) = self.sessions.get_mut(id) else { return };
        let was_shut = session.is_shut();
        session.update(flow);
        if let Some(handle) = flow.handle {
            let Some(link) = session.by_remote_handle.get(handle) else {
                if session.detached_handles.get(handle).is_some() {
                    return;
                }
                let text = format!("a flow is for handle {handle}, which has no link");
                return self.violated(id, condition::UNATTACHED_HANDLE, text);
            };
            self.on_link_flow(link, flow);
        } else if flow.echo {
            self.write_flow(id);
        }
        if was_shut {
            self.send_remainder(id);
            if self.sessions.get(id).is_some_and(|session| !session.is_shut()) {
                self.tell(0, Event::Window(id));
            }
        }
    }

    /// Tells the state of the session.
    pub(super) fn write_flow(&mut self, id: SessionId) {
        if let Some(session) = self.sessions.get_mut(id) {
            let flow = session.flow(self.options.limits.session_window);
            let channel = session.local_channel;
            self.write(channel, &flow);
        }
    }
}
