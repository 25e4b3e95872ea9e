//! `$cbs` and `$management`: requests on one link, replies on another.

use std::collections::VecDeque;
use std::time::Instant;

use bytes::Bytes;
use partita_amqp::connection::{Connection, Delivery, LinkId, Outgoing};
use partita_amqp::message::{self, Message};
use partita_amqp::performative::DeliveryState;
use partita_core::model::Timestamp;

use super::logic::{ConnectionLogic, LinkKind, error_of};
use crate::service::condition::{DECODE_ERROR, LIMIT_EXCEEDED, Refusal};
use crate::service::{cbs, management, reply_failure, request_reply_to};

/// How many requests a client may send ahead.
pub(super) const REQUEST_CREDIT: u32 = 100;

/// How many replies wait for a client that gives no credit for them.
const REPLIES_MAX: usize = 1_000;

/// The same in bytes: a reply repeats the id of its request, which may be long.
const REPLIES_BYTES_MAX: usize = 4 << 20;

/// Who answers.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Node {
    Cbs,
    Management,
}

/// A link on which a client asks.
pub(super) struct Requests {
    pub(super) node: Node,
}

/// A link on which a client is answered.
pub(super) struct Replies {
    pub(super) node: Node,
    /// What the client calls its end, which requests name.
    pub(super) address: Option<String>,
    queue: VecDeque<Bytes>,
    /// The bytes in the queue.
    queued: usize,
    sent: u64,
}

impl Replies {
    pub(super) fn new(node: Node, address: Option<String>) -> Self {
        Self { node, address, queue: VecDeque::new(), queued: 0, sent: 0 }
    }

    /// How many bytes wait for credit, with what the link is called.
    pub(super) fn bytes(&self) -> usize {
        self.queued + self.address.as_ref().map_or(0, String::len)
    }

    /// Sends what waits, as far as credit goes.
    pub(super) fn send(&mut self, id: LinkId, conn: &mut Connection) {
        while conn.sendable(id) > 0 {
            let Some(reply) = self.queue.pop_front() else { break };
            self.queued -= reply.len();
            if conn.send(id, Outgoing::settled(self.sent), reply).is_err() {
                break;
            }
            self.sent += 1;
        }
        if self.queue.is_empty() {
            conn.drained(id);
        }
    }
}

impl ConnectionLogic {
    pub(super) fn on_request(&mut self, delivery: &Delivery, now: Instant) {
        self.conn.top_up(delivery.link, REQUEST_CREDIT);
        let Some(link) = self.links.get(&delivery.link) else { return };
        let (LinkKind::Requests(requests), session) = (&link.kind, link.session) else { return };
        let node = requests.node;
        let request = match Message::decode_with_any_body(&delivery.payload) {
            Ok(request) => request,
            Err(error) => {
                let refusal = Refusal::new(DECODE_ERROR, format!("The request is not a message: {error}."));
                return self.settle(
                    delivery.link,
                    delivery.id.into(),
                    DeliveryState::rejected(error_of(&refusal)),
                    now,
                );
            }
        };
        let time = Timestamp::now();
        let shared = self.shared().clone();
        let reply = match node {
            Node::Cbs => {
                let hub = |name: &str| match shared.broker.hub(name) {
                    Some(_) => Ok(()),
                    None => Err(shared.broker.list().iter().map(|hub| hub.name().to_string()).collect()),
                };
                cbs::handle(&request, &shared.options.auth, &mut self.tokens, hub, time)
            }
            Node::Management => {
                management::handle(&request, &shared.broker, &shared.options.auth, &self.tokens, time)
            }
        };
        if let Some((condition, description)) = reply_failure(&reply) {
            self.warn_refused(condition, description);
        }
        if !delivery.settled {
            self.settle(delivery.link, delivery.id.into(), DeliveryState::Accepted, now);
        }
        let mut bytes = Vec::new();
        // Replies are of text and numbers, which have an encoding.
        let encoded = match node {
            Node::Cbs => message::encode_without_body(&reply, &mut bytes),
            Node::Management => message::encode(&reply, &mut bytes),
        };
        if encoded.is_err() {
            return;
        }
        let Some(to) = self.reply_link(node, session, request_reply_to(&request)) else {
            tracing::debug!(connection = self.id(), ?node, "there is no link for the reply");
            return;
        };
        let Some(LinkKind::Replies(replies)) = self.links.get_mut(&to).map(|link| &mut link.kind) else {
            return;
        };
        if replies.queue.len() >= REPLIES_MAX || replies.queued >= REPLIES_BYTES_MAX {
            let text = format!("{} replies wait for credit.", replies.queue.len());
            return self.detach(to, &Refusal::new(LIMIT_EXCEEDED, text));
        }
        replies.queued += bytes.len();
        replies.queue.push_back(bytes.into());
        replies.send(to, &mut self.conn);
    }

    /// The link for a reply: the one that the request names, else one of the same session, else any of the node.
    fn reply_link(
        &self,
        node: Node,
        session: partita_amqp::connection::SessionId,
        name: Option<&str>,
    ) -> Option<LinkId> {
        let of_node = self.links.iter().filter_map(|(id, link)| match &link.kind {
            LinkKind::Replies(replies) if replies.node == node => Some((*id, link.session, replies)),
            _ => None,
        });
        let best = of_node.max_by_key(|(id, its, replies)| {
            let named = name.is_some() && replies.address.as_deref() == name;
            (named, *its == session, *id)
        });
        best.map(|(id, ..)| id)
    }
}
