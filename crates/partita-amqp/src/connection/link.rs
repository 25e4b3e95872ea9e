//! Links (2.6): handles, attach and detach, credit.

use std::sync::Arc;

use super::incoming::Partial;
use super::unsettled::Unsettled;
use super::{Connection, Event, LinkId, SessionId};
use crate::performative::{
    Attach, Detach, Error, Flow, ReceiverSettleMode, Refused, Role, SenderSettleMode, condition,
};

/// The delivery-count with which our sending links begin.
const FIRST_DELIVERY_COUNT: u32 = 0;

/// How far a link is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum LinkState {
    /// The peer started it; we have not answered.
    Asked,
    /// We started it; the peer has not answered.
    Attaching,
    /// Both have attached.
    Attached,
    /// We detached; the peer has not answered.
    Detaching,
}

#[derive(Debug)]
pub(super) struct Link {
    pub(super) session: SessionId,
    pub(super) state: LinkState,
    /// Whether the end was told as an event already.
    told: bool,
    /// Our role.
    pub(super) role: Role,
    /// Until both have attached.
    name: Arc<str>,
    pub(super) local_handle: u32,
    remote_handle: Option<u32>,
    pub(super) snd_settle_mode: SenderSettleMode,
    pub(super) rcv_settle_mode: ReceiverSettleMode,
    /// Of the sender; `None` until it has said where it begins.
    pub(super) delivery_count: Option<u32>,
    /// How many messages may still be sent.
    pub(super) credit: u32,
    /// Whether the sender shall use up its credit at once.
    pub(super) drain: bool,
    /// The largest message that may be sent; where we send, 0 is no limit.
    pub(super) message_bytes_max: u64,
    pub(super) incoming: Incoming,
    pub(super) outgoing: Outgoing,
}

/// What a link has on which we receive.
#[derive(Debug, Default)]
pub(super) struct Incoming {
    /// Messages beyond the credit.
    pub(super) overrun: u32,
    /// A message that is not complete.
    pub(super) partial: Option<Partial>,
    /// Whether our credit is still to be told.
    held: bool,
}

/// What a link has on which we send.
#[derive(Debug, Default)]
pub(super) struct Outgoing {
    pub(super) unsettled: Unsettled,
    /// Whether outcomes are of no interest.
    pub(super) ignores_outcomes: bool,
}

impl Link {
    pub(super) fn reassembly_bytes(&self) -> usize {
        self.incoming.partial.as_ref().map_or(0, Partial::len)
    }

    /// Whether its frames count.
    pub(super) fn is_live(&self) -> bool {
        self.state != LinkState::Detaching
    }
}

impl Connection {
    /// Starts a link; handle and initial delivery-count are set here. `None` if the session is gone or has no handle left.
    /// A receiver may be given credit at once; a sender has to wait for it.
    pub fn attach(&mut self, session: SessionId, attach: Attach) -> Option<LinkId> {
        if self.links.len() >= self.options.limits.links_max {
            return None;
        }
        let link = self.new_link(session, LinkState::Attaching, &attach, attach.role)?;
        self.write_attach(link, attach);
        Some(link)
    }

    /// Answers the peer's attach; [`Attach::answer`] makes an answer that grants what was asked for. Name, role, handle and
    /// initial delivery-count are set here. To refuse, [`detach`](Self::detach) without an answer. What is told as the largest
    /// message may be more than what is taken: that is never more than the [`Limits`](super::Limits) say.
    pub fn answer_attach(&mut self, link: LinkId, answer: Attach) {
        let default_max = self.options.limits.message_bytes_max;
        let Some(known) = self.links.get_mut(link) else { return };
        if known.state != LinkState::Asked {
            return;
        }
        known.state = LinkState::Attached;
        known.snd_settle_mode = answer.snd_settle_mode;
        known.rcv_settle_mode = answer.rcv_settle_mode;
        if known.role == Role::Receiver {
            let told = answer.max_message_size.filter(|max| *max > 0);
            known.message_bytes_max = told.unwrap_or(default_max).min(default_max);
        }
        self.write_attach(link, answer);
        if let Some(known) = self.links.get_mut(link)
            && std::mem::take(&mut known.incoming.held)
        {
            self.write_link_flow(link, false);
        }
    }

    /// Ends a link for good, or refuses one that was not answered: then an attach without termini goes before, as the
    /// standard wants it. [`Event::Detached`] follows when the peer has answered.
    pub fn detach(&mut self, link: LinkId, error: Option<Error>) {
        self.detach_link(link, error);
    }

    /// Sets the credit of a link on which we receive: the peer may send so many messages from now on, whatever it might
    /// before. With `drain` it shall send what it has, and then give the rest up.
    pub fn set_credit(&mut self, link: LinkId, credit: u32, drain: bool) {
        let Some(known) = self.links.get_mut(link) else { return };
        if known.role != Role::Receiver || !known.is_live() {
            return;
        }
        known.credit = credit;
        known.drain = drain;
        known.incoming.overrun = 0;
        if known.state == LinkState::Asked {
            known.incoming.held = true;
        } else {
            self.write_link_flow(link, false);
        }
    }

    /// Sets the credit of a link on which we receive back to `target` when half of it is used up.
    pub fn top_up(&mut self, link: LinkId, target: u32) {
        self.top_up_every(link, target, target.div_ceil(2));
    }

    /// The same when `used` of it are used up.
    #[inline]
    pub fn top_up_every(&mut self, link: LinkId, target: u32, used: u32) {
        if self.links.get(link).is_some_and(|known| known.credit <= target.saturating_sub(used)) {
            self.set_credit(link, target, false);
        }
    }

    /// How many messages the peer may still send on a link on which we receive, or we on one on which we send.
    pub fn credit(&self, link: LinkId) -> u32 {
        self.links.get(link).map_or(0, |known| known.credit)
    }

    /// The role that we have on a link, if it is there.
    pub fn role(&self, link: LinkId) -> Option<Role> {
        self.links.get(link).map(|known| known.role)
    }

    /// The session of a link, if it is there.
    pub fn session_of(&self, link: LinkId) -> Option<SessionId> {
        self.links.get(link).map(|known| known.session)
    }

    // ---- within -----------------------------------------------------------------------------------------------

    fn new_link(&mut self, id: SessionId, state: LinkState, attach: &Attach, role: Role) -> Option<LinkId> {
        let session = self.sessions.get_mut(id)?;
        if session.state == super::SessionState::Ending {
            return None;
        }
        // That of the peer, as its session's number is that of the peer's; see `new_session`.
        let remote = (state == LinkState::Asked).then_some(attach.handle);
        let local_handle = session.free_handle(remote)?;
        let delivery_count = match (role, state) {
            (Role::Sender, _) => Some(FIRST_DELIVERY_COUNT),
            (Role::Receiver, LinkState::Asked) => Some(attach.initial_delivery_count.unwrap_or_default()),
            (Role::Receiver, _) => None,
        };
        // A sender's own limit is of no interest to it or to us.
        let message_bytes_max = match (role, state) {
            (Role::Receiver, LinkState::Attaching) => attach.max_message_size.filter(|max| *max > 0),
            (Role::Receiver, _) => None,
            (Role::Sender, _) => Some(attach.max_message_size.unwrap_or(0)),
        };
        let message_bytes_max = message_bytes_max.unwrap_or(self.options.limits.message_bytes_max);
        let link = self.links.insert(|_| Link {
            session: id,
            state,
            told: false,
            role,
            name: attach.name.clone(),
            local_handle,
            remote_handle: None,
            snd_settle_mode: attach.snd_settle_mode,
            rcv_settle_mode: attach.rcv_settle_mode,
            delivery_count,
            credit: 0,
            drain: false,
            message_bytes_max,
            incoming: Incoming::default(),
            outgoing: Outgoing::default(),
        });
        session.by_local_handle.set(local_handle, link);
        Some(link)
    }

    fn write_attach(&mut self, link: LinkId, mut attach: Attach) {
        let Some(known) = self.links.get_mut(link) else { return };
        attach.name = known.name.clone();
        attach.handle = known.local_handle;
        attach.role = known.role;
        attach.initial_delivery_count = match known.role {
            Role::Sender => known.delivery_count,
            Role::Receiver => None,
        };
        if known.state == LinkState::Attached {
            known.name = Arc::default();
        }
        if let Some(session) = self.sessions.get(known.session) {
            let channel = session.local_channel;
            self.write(channel, &attach);
        }
    }

    /// Detaches a link because of what the peer did on it.
    pub(super) fn force_detach(&mut self, link: LinkId, error: Error) {
        if self.detach_link(link, Some(error.clone())) {
            if let Some(known) = self.links.get_mut(link) {
                known.told = true;
            }
            self.tell(0, Event::Detached { link, error: Some(error), closed: true });
        }
    }

    fn detach_link(&mut self, link: LinkId, error: Option<Error>) -> bool {
        let Some(known) = self.links.get_mut(link) else { return false };
        match known.state {
            LinkState::Detaching => return false,
            // There is no detach before an attach; one without termini refuses.
            LinkState::Asked => self.write_refused(link),
            LinkState::Attaching | LinkState::Attached => {}
        }
        self.write_detach(link, true, error);
        let Some(known) = self.links.get_mut(link) else { return false };
        known.state = LinkState::Detaching;
        self.reassembly_bytes -= known.reassembly_bytes();
        known.incoming.partial = None;
        known.outgoing = Outgoing::default();
        self.drop_remainder(link);
        true
    }

    /// Answers an attach with nothing in it.
    fn write_refused(&mut self, link: LinkId) {
        let Some(known) = self.links.get_mut(link) else { return };
        known.state = LinkState::Attached;
        let (name, handle, role) = (std::mem::take(&mut known.name), known.local_handle, known.role);
        if let Some(session) = self.sessions.get(known.session) {
            let channel = session.local_channel;
            self.write(channel, &Refused { name, handle, role });
        }
    }

    fn write_detach(&mut self, link: LinkId, closed: bool, error: Option<Error>) {
        let Some(known) = self.links.get(link) else { return };
        let Some(session) = self.sessions.get(known.session) else { return };
        let (channel, handle) = (session.local_channel, known.local_handle);
        self.write(channel, &Detach { handle, closed, error });
    }

    /// `Err` ends the connection.
    pub(super) fn on_attach(&mut self, id: SessionId, attach: Box<Attach>, size: usize) -> Result<(), Error> {
        let limits = &self.options.limits;
        let Some(session) = self.sessions.get(id) else { return Ok(()) };
        let handle = attach.handle;
        if handle > limits.handle_max {
            let text = format!("handle {handle} is beyond the agreed handle-max");
            return Err(Error::new(condition::FRAMING_ERROR, text));
        }
        if session.by_remote_handle.get(handle).is_some() {
            let text = format!("handle {handle} has a link already");
            self.violated(id, condition::HANDLE_IN_USE, text);
            return Ok(());
        }
        let is_answered = |link: &LinkId| {
            self.links.get(*link).is_some_and(|known| {
                known.remote_handle.is_none() && known.role != attach.role && known.name == attach.name
            })
        };
        let ours = session.by_local_handle.iter().find(is_answered);
        let link = match ours {
            Some(link) => link,
            None if self.links.len() >= limits.links_max => {
                let text = "no more links can be attached on this connection";
                self.violated(id, condition::RESOURCE_LIMIT_EXCEEDED, text);
                return Ok(());
            }
            None => match self.new_link(id, LinkState::Asked, &attach, attach.role.other()) {
                Some(link) => link,
                None => {
                    let text = "no more links can be attached on this session";
                    self.violated(id, condition::RESOURCE_LIMIT_EXCEEDED, text);
                    return Ok(());
                }
            },
        };
        if let Some(session) = self.sessions.get_mut(id) {
            session.by_remote_handle.set(handle, link);
            session.detached_handles.remove(handle);
        }
        let Some(known) = self.links.get_mut(link) else { return Ok(()) };
        known.remote_handle = Some(handle);
        match known.state {
            LinkState::Asked => self.tell(size, Event::Attaching { link, attach }),
            LinkState::Attaching => {
                known.state = LinkState::Attached;
                known.name = Arc::default();
                known.snd_settle_mode = attach.snd_settle_mode;
                known.rcv_settle_mode = attach.rcv_settle_mode;
                match known.role {
                    Role::Receiver => known.delivery_count = attach.initial_delivery_count.or(Some(0)),
                    Role::Sender => known.message_bytes_max = attach.max_message_size.unwrap_or(0),
                }
                self.tell(size, Event::Attached { link, attach });
            }
            // We gave up on it; the peer will answer that, too.
            LinkState::Attached | LinkState::Detaching => {}
        }
        Ok(())
    }

    pub(super) fn on_detach(&mut self, id: SessionId, detach: Detach) {
        let Some(session) = self.sessions.get(id) else { return };
        let Some(link) = session.by_remote_handle.get(detach.handle) else {
            // Told twice.
            if session.detached_handles.get(detach.handle).is_some() {
                return;
            }
            let text = format!("a detach is for handle {}, which has no link", detach.handle);
            return self.violated(id, condition::UNATTACHED_HANDLE, text);
        };
        if let Some(known) = self.links.get(link)
            && known.is_live()
        {
            if known.state == LinkState::Asked {
                self.write_refused(link);
            }
            self.write_detach(link, detach.closed, None);
        }
        self.drop_remainder(link);
        let Some(known) = self.links.remove(link) else { return };
        self.reassembly_bytes -= known.reassembly_bytes();
        if let Some(session) = self.sessions.get_mut(id) {
            session.by_remote_handle.remove(detach.handle);
            session.detached_handles.set(detach.handle, ());
            session.by_local_handle.remove(known.local_handle);
        }
        if !known.told {
            self.tell(0, Event::Detached { link, error: detach.error, closed: detach.closed });
        }
    }

    pub(super) fn on_link_flow(&mut self, link: LinkId, flow: &Flow) {
        let Some(known) = self.links.get_mut(link) else { return };
        if !known.is_live() {
            return;
        }
        match known.role {
            Role::Sender => {
                if let Some(credit) = flow.link_credit {
                    // What the peer has not seen yet of ours is taken off; credit is never added up.
                    let count = known.delivery_count.unwrap_or(FIRST_DELIVERY_COUNT);
                    let seen = flow.delivery_count.unwrap_or(FIRST_DELIVERY_COUNT);
                    let under_way = count.wrapping_sub(seen);
                    let under_way = if under_way > u32::MAX / 2 { 0 } else { under_way };
                    known.credit = credit.saturating_sub(under_way);
                    known.drain = flow.drain;
                    let (credit, drain) = (known.credit, known.drain);
                    self.tell(0, Event::Credit { link, credit, drain });
                }
            }
            Role::Receiver => {
                // Only a drain moves the count by more than messages do; some clients' flows say nothing of use.
                if known.drain
                    && let (Some(count), Some(told)) = (known.delivery_count, flow.delivery_count)
                {
                    let given_up = told.wrapping_sub(count).min(known.credit);
                    known.delivery_count = Some(count.wrapping_add(given_up));
                    known.credit -= given_up;
                    self.check_drained(link);
                }
            }
        }
        if flow.echo {
            self.write_link_flow(link, false);
        }
    }

    /// Tells that the credit of a link that was to be drained is used up.
    pub(super) fn check_drained(&mut self, link: LinkId) {
        if let Some(known) = self.links.get_mut(link)
            && known.drain
            && known.credit == 0
        {
            known.drain = false;
            self.tell(0, Event::Drained(link));
        }
    }

    /// Tells the state of a link, with that of its session.
    pub(super) fn write_link_flow(&mut self, link: LinkId, drained: bool) {
        let Some(known) = self.links.get(link) else { return };
        let Some(session) = self.sessions.get_mut(known.session) else { return };
        if known.state == LinkState::Asked {
            return;
        }
        let flow = Flow {
            handle: Some(known.local_handle),
            delivery_count: known.delivery_count,
            link_credit: Some(known.credit),
            available: Some(0),
            drain: known.drain || drained,
            ..session.flow(self.options.limits.session_window)
        };
        let channel = session.local_channel;
        self.write(channel, &flow);
    }
}
