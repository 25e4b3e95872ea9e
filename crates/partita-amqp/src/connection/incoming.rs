//! Messages that arrive: windows and credit are counted, parts are put together.

use bytes::{Bytes, BytesMut};

use super::link::LinkState;
use super::{Connection, Delivery, DeliveryId, DeliveryRange, Event, LinkId, SessionId};
use crate::performative::{DeliveryState, DeliveryTag, Disposition, Error, Role, Transfer, condition};

/// A message that is larger than its link takes is refused when it is complete, which is kinder to its sender. One that is so
/// many times as large is not waited for.
const ENDLESS_TIMES: u64 = 8;

/// A message of which parts are missing.
#[derive(Debug)]
pub(super) struct Partial {
    id: DeliveryId,
    tag: DeliveryTag,
    format: u32,
    settled: bool,
    payload: BytesMut,
    /// How large it is by now, of which nothing is kept once that is too much.
    size: u64,
}

impl Partial {
    pub(super) fn len(&self) -> usize {
        self.payload.len()
    }
}

impl Connection {
    /// Says what became of messages that arrived, or settles messages that we sent and the peer did not settle. What is
    /// said is final, also in the mode in which the receiver is to settle second: Event Hubs does so, and its clients ask
    /// for that mode and wait for this.
    pub fn settle(&mut self, link: LinkId, ids: impl Into<DeliveryRange>, state: DeliveryState) {
        let DeliveryRange { first, last } = ids.into();
        let Some(known) = self.links.get_mut(link) else { return };
        if known.state == LinkState::Asked {
            return;
        }
        if known.role == Role::Sender {
            known.outgoing.unsettled.find(DeliveryRange { first, last }, true);
        }
        let disposition = Disposition {
            role: known.role,
            first,
            last: Some(last),
            settled: true,
            state: Some(state),
            batchable: false,
        };
        if let Some(session) = self.sessions.get(known.session) {
            let channel = session.local_channel;
            self.write(channel, &disposition);
        }
    }

    #[inline]
    pub(super) fn on_transfer(&mut self, id: SessionId, transfer: &Transfer, frames: &Bytes, payload: &[u8]) {
        let Some(session) = self.sessions.get_mut(id) else { return };
        if !session.count_incoming() {
            let text = "more transfers came than the session's window has room for";
            return self.violated(id, condition::WINDOW_VIOLATION, text);
        }
        let is_half_used = session.incoming_window <= self.options.limits.session_window / 2;
        match session.by_remote_handle.get(transfer.handle) {
            Some(link) => self.on_link_transfer(id, link, transfer, frames, payload),
            None => {
                let text = format!("a transfer is for handle {}, which has no link", transfer.handle);
                return self.violated(id, condition::UNATTACHED_HANDLE, text);
            }
        }
        if is_half_used {
            self.write_flow(id);
        }
    }

    fn on_link_transfer(
        &mut self,
        session: SessionId,
        link: LinkId,
        transfer: &Transfer,
        frames: &Bytes,
        payload: &[u8],
    ) {
        let Some(known) = self.links.get_mut(link) else { return };
        if !known.is_live() {
            return;
        }
        if known.role == Role::Sender {
            return self.violated(
                session,
                condition::NOT_ALLOWED,
                "a transfer is for a link on which we send",
            );
        }
        if let Some(partial) = &known.incoming.partial {
            // fe2o3-amqp sends what is too large in pieces of just the limit, each under an id of its own, and waits for an answer
            // to the first. What is too large is not taken anyway: its sender is to hear why.
            let is_too_large = partial.size + payload.len() as u64 > known.message_bytes_max;
            if transfer.delivery_id.is_some_and(|id| id != partial.id) && !is_too_large {
                let text = "a message began before the one before it on its link was complete";
                return self.violated(session, condition::NOT_ALLOWED, text);
            }
            return self.on_part(link, transfer, payload);
        }
        let (Some(id), Some(tag)) = (transfer.delivery_id, transfer.delivery_tag.clone()) else {
            let text = "the first transfer of a message has no delivery-id or no delivery-tag";
            return self.violated(session, condition::INVALID_FIELD, text);
        };
        known.delivery_count = known.delivery_count.map(|count| count.wrapping_add(1));
        if known.credit > 0 {
            known.credit -= 1;
        } else {
            known.incoming.overrun += 1;
            if known.incoming.overrun > self.options.limits.credit_overrun_max {
                let text = "far more messages came than the link's credit allows";
                return self.force_detach(link, Error::new(condition::TRANSFER_LIMIT_EXCEEDED, text));
            }
        }
        let is_drained = known.drain && known.credit == 0;
        let format = transfer.message_format.unwrap_or(0);
        let settled = transfer.settled.unwrap_or(false);
        if transfer.more || transfer.aborted {
            let payload_so_far = BytesMut::new();
            known.incoming.partial =
                Some(Partial { id, tag, format, settled, payload: payload_so_far, size: 0 });
            self.on_part(link, transfer, payload);
        } else if payload.len() as u64 > known.message_bytes_max {
            let size = payload.len() as u64;
            self.tell(0, Event::TooLarge { link, id, settled, size });
        } else {
            let delivery = Delivery { link, id, tag, format, settled, payload: frames.slice_ref(payload) };
            self.tell(payload.len(), Event::Delivery(delivery));
        }
        if is_drained {
            self.check_drained(link);
        }
    }

    /// A part of the message that is not complete on this link.
    fn on_part(&mut self, link: LinkId, transfer: &Transfer, payload: &[u8]) {
        let Some(known) = self.links.get_mut(link) else { return };
        let max = known.message_bytes_max;
        let Some(partial) = &mut known.incoming.partial else { return };
        if !transfer.aborted {
            partial.size += payload.len() as u64;
            partial.settled |= transfer.settled.unwrap_or(false);
            if partial.size > max.saturating_mul(ENDLESS_TIMES) {
                let text = "a message goes on and on, and is far larger than the link takes";
                return self.force_detach(link, Error::new(condition::MESSAGE_SIZE_EXCEEDED, text));
            }
            if partial.size > max {
                self.reassembly_bytes -= partial.len();
                partial.payload = BytesMut::new();
            } else if self.reassembly_bytes + payload.len() > self.options.limits.reassembly_bytes_max {
                let text = "too many large messages are under way on this connection";
                return self.force_detach(link, Error::new(condition::RESOURCE_LIMIT_EXCEEDED, text));
            } else {
                partial.payload.extend_from_slice(payload);
                self.reassembly_bytes += payload.len();
            }
            if transfer.more {
                return;
            }
        }
        let Some(partial) = known.incoming.partial.take() else { return };
        self.reassembly_bytes -= partial.len();
        let Partial { id, tag, format, settled, payload, size } = partial;
        if transfer.aborted {
            return;
        }
        if size > max {
            return self.tell(0, Event::TooLarge { link, id, settled, size });
        }
        let delivery = Delivery { link, id, tag, format, settled, payload: payload.freeze() };
        self.tell(delivery.payload.len(), Event::Delivery(delivery));
    }
}
