//! Messages that are sent, as far as credit and windows go, and what became of them.

use bytes::Bytes;
use thiserror::Error;

use super::link::LinkState;
use super::{Connection, DeliveryId, DeliveryRange, Event, LinkId, Outgoing, SessionId};
use crate::frame::{self, FrameKind};
use crate::performative::field::Composite;
use crate::performative::{Disposition, ReceiverSettleMode, Role, SenderSettleMode, Transfer};
use crate::types::EncodeError;

/// Why a message cannot be sent, now or at all.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Error)]
#[non_exhaustive]
pub enum SendError {
    /// Wait for [`Event::Credit`].
    #[error("the link has no credit")]
    Credit,
    /// Wait for [`Event::Window`].
    #[error("the session's window is shut")]
    Window,
    /// Wait for [`Event::Outcome`].
    #[error("too many messages on the link wait for their outcome")]
    Unsettled,
    /// The peer does not take messages of this size on this link.
    #[error("the message has {size} bytes, and the link takes {max}")]
    TooLarge {
        /// The message's.
        size: usize,
        /// The peer's limit.
        max: u64,
    },
    /// There is no such link on which we send, or it is not attached.
    #[error("the link is not attached")]
    Detached,
    /// The payload has no encoding.
    #[error(transparent)]
    Encode(#[from] EncodeError),
}

impl SendError {
    /// Whether the same message may go later on this link.
    pub fn is_temporary(self) -> bool {
        matches!(self, Self::Credit | Self::Window | Self::Unsettled)
    }
}

/// What of a message waits for its session's window.
#[derive(Debug)]
pub(super) struct Remainder {
    link: LinkId,
    handle: u32,
    payload: Bytes,
}

/// A message that may be sent.
struct Ready {
    session: SessionId,
    channel: u16,
    id: DeliveryId,
    transfer: Transfer,
    message_bytes_max: u64,
}

impl Ready {
    fn check(&self, size: usize) -> Result<(), SendError> {
        match self.message_bytes_max {
            max if max > 0 && size as u64 > max => Err(SendError::TooLarge { size, max }),
            _ => Ok(()),
        }
    }
}

impl Connection {
    /// How many messages can be sent on a link at once, if each fits a frame.
    #[inline]
    pub fn sendable(&self, link: LinkId) -> u32 {
        let Some(known) = self.links.get(link) else { return 0 };
        let Some(session) = self.sessions.get(known.session) else { return 0 };
        if known.role != Role::Sender || known.state != LinkState::Attached || session.is_shut() {
            return 0;
        }
        let unsettled = match known.snd_settle_mode {
            SenderSettleMode::Settled => usize::MAX,
            _ => self.options.limits.unsettled_max.saturating_sub(known.outgoing.unsettled.len()),
        };
        known.credit.min(session.outgoing_left).min(u32::try_from(unsettled).unwrap_or(u32::MAX))
    }

    /// Sends a message. A large payload is not copied; what of it exceeds the session's window waits here for it.
    pub fn send(&mut self, link: LinkId, message: Outgoing, payload: Bytes) -> Result<DeliveryId, SendError> {
        let mut ready = self.ready(link, &message)?;
        ready.check(payload.len())?;
        self.count_sent(link, &ready);
        self.send_parts(ready.session, link, &mut ready.transfer, payload);
        Ok(ready.id)
    }

    /// Sends a message whose payload `encode` appends, straight to where it is written from. `encode` must only append. If
    /// it fails, nothing is sent.
    #[inline]
    pub fn send_with(
        &mut self,
        link: LinkId,
        message: Outgoing,
        encode: impl FnOnce(&mut Vec<u8>) -> Result<(), EncodeError>,
    ) -> Result<DeliveryId, SendError> {
        let mut ready = self.ready(link, &message)?;
        let out = self.outbox.small();
        let start = frame::begin(FrameKind::Amqp, ready.channel, out);
        let write = || {
            ready.transfer.encode(out)?;
            let body = out.len();
            encode(out)?;
            ready.check(out.len() - body)?;
            Ok(body)
        };
        let body = match write() {
            Ok(body) => body,
            Err(error) => {
                out.truncate(start);
                return Err(error);
            }
        };
        if out.len() - start <= self.frame_out_bytes {
            frame::finish(start, 0, out);
            if let Some(session) = self.sessions.get_mut(ready.session) {
                session.count_outgoing();
            }
            self.count_sent(link, &ready);
        } else {
            let payload = Bytes::copy_from_slice(&out[body..]);
            out.truncate(start);
            self.count_sent(link, &ready);
            self.send_parts(ready.session, link, &mut ready.transfer, payload);
        }
        Ok(ready.id)
    }

    /// Gives up the credit that is left on a link on which we send and have nothing more to send, if the peer asked to
    /// drain it.
    pub fn drained(&mut self, link: LinkId) {
        let Some(known) = self.links.get_mut(link) else { return };
        if known.role == Role::Sender && known.drain && known.is_live() {
            known.delivery_count = known.delivery_count.map(|count| count.wrapping_add(known.credit));
            known.credit = 0;
            known.drain = false;
            self.write_link_flow(link, true);
        }
    }

    /// Sends messages of any size on this link, whatever the peer said it takes: for who has nowhere else to go with them.
    pub fn send_any_size(&mut self, link: LinkId) {
        if let Some(known) = self.links.get_mut(link) {
            known.message_bytes_max = 0;
        }
    }

    /// Keeps no account of what became of messages sent on this link: there are no [`Event::Outcome`]s, and no limit to
    /// how many are unsettled.
    pub fn ignore_outcomes(&mut self, link: LinkId) {
        if let Some(known) = self.links.get_mut(link) {
            known.outgoing.ignores_outcomes = true;
            known.outgoing.unsettled = Default::default();
        }
    }

    // ---- within -----------------------------------------------------------------------------------------------

    #[inline]
    fn ready(&self, link: LinkId, message: &Outgoing) -> Result<Ready, SendError> {
        let known = self.links.get(link).ok_or(SendError::Detached)?;
        let session = self.sessions.get(known.session).ok_or(SendError::Detached)?;
        if known.role != Role::Sender || known.state != LinkState::Attached {
            return Err(SendError::Detached);
        }
        if known.credit == 0 {
            return Err(SendError::Credit);
        }
        if session.is_shut() {
            return Err(SendError::Window);
        }
        let settled = match known.snd_settle_mode {
            SenderSettleMode::Settled => true,
            SenderSettleMode::Unsettled => false,
            SenderSettleMode::Mixed => message.settled,
        };
        if !settled && known.outgoing.unsettled.len() >= self.options.limits.unsettled_max {
            return Err(SendError::Unsettled);
        }
        let transfer = Transfer {
            delivery_id: Some(session.next_delivery_id),
            delivery_tag: Some(message.tag.clone()),
            message_format: Some(message.format),
            settled: Some(settled),
            ..Transfer::part(known.local_handle)
        };
        Ok(Ready {
            session: known.session,
            channel: session.local_channel,
            id: session.next_delivery_id,
            transfer,
            message_bytes_max: known.message_bytes_max,
        })
    }

    #[inline]
    fn count_sent(&mut self, link: LinkId, ready: &Ready) {
        if let Some(session) = self.sessions.get_mut(ready.session) {
            session.next_delivery_id = session.next_delivery_id.wrapping_add(1);
        }
        if let Some(known) = self.links.get_mut(link) {
            known.credit -= 1;
            known.delivery_count = known.delivery_count.map(|count| count.wrapping_add(1));
            if ready.transfer.settled == Some(false) && !known.outgoing.ignores_outcomes {
                known.outgoing.unsettled.push(ready.id);
            }
        }
    }

    /// Writes as much of a message as fits the session's window, and keeps the rest.
    fn send_parts(&mut self, id: SessionId, link: LinkId, transfer: &mut Transfer, mut payload: Bytes) {
        let Some(session) = self.sessions.get_mut(id) else { return };
        while session.outgoing_left > 0 {
            let out = self.outbox.small();
            let start = frame::begin(FrameKind::Amqp, session.local_channel, out);
            // A transfer without state has an encoding, and of the same length whether or not there is more.
            transfer.more = false;
            let _ = transfer.encode(out);
            let room = self.frame_out_bytes - (out.len() - start);
            session.count_outgoing();
            if payload.len() <= room {
                frame::finish(start, payload.len(), out);
                self.outbox.payload(payload);
                return;
            }
            out.truncate(start);
            let _ = frame::begin(FrameKind::Amqp, session.local_channel, out);
            transfer.more = true;
            let _ = transfer.encode(out);
            let part = payload.split_to(room);
            frame::finish(start, part.len(), out);
            self.outbox.payload(part);
            *transfer = Transfer::part(transfer.handle);
        }
        session.remainder = Some(Remainder { link, handle: transfer.handle, payload });
    }

    /// Goes on with the message that waited for the session's window.
    pub(super) fn send_remainder(&mut self, id: SessionId) {
        let remainder = self.sessions.get_mut(id).and_then(|session| session.remainder.take());
        if let Some(Remainder { link, handle, payload }) = remainder {
            self.send_parts(id, link, &mut Transfer::part(handle), payload);
        }
    }

    /// Forgets what waits of a link that is gone.
    pub(super) fn drop_remainder(&mut self, link: LinkId) {
        if let Some(known) = self.links.get(link)
            && let Some(session) = self.sessions.get_mut(known.session)
            && session.remainder.as_ref().is_some_and(|remainder| remainder.link == link)
        {
            session.remainder = None;
            if session.outgoing_left > 0 {
                let id = known.session;
                self.tell(0, Event::Window(id));
            }
        }
    }

    pub(super) fn on_disposition(&mut self, id: SessionId, disposition: Disposition) {
        let Disposition { role, first, last, settled, state, .. } = disposition;
        // What a sender settles, its receiver has already forgotten.
        if role == Role::Sender {
            return;
        }
        let range = DeliveryRange { first, last: last.unwrap_or(first) };
        let Some(session) = self.sessions.get(id) else { return };
        let is_outcome = state.as_ref().is_some_and(|state| state.is_outcome());
        let mut settle_for_them = false;
        for link in session.by_local_handle.iter() {
            let Some(known) = self.links.get_mut(link) else { continue };
            if known.role != Role::Sender || !known.is_live() {
                continue;
            }
            if known.outgoing.ignores_outcomes {
                settle_for_them |= known.rcv_settle_mode == ReceiverSettleMode::Second;
            } else if let Some(ids) = known.outgoing.unsettled.find(range, settled) {
                let event = Event::Outcome { link, ids, state: state.clone(), settled };
                self.events.push_back((0, event));
            }
        }
        if settle_for_them && is_outcome && !settled {
            let answer = Disposition {
                role: Role::Sender,
                first,
                last: Some(range.last),
                settled: true,
                state,
                batchable: false,
            };
            let channel = session.local_channel;
            self.write(channel, &answer);
        }
    }
}
