//! A pair of links to one of the hub's nodes, over which requests go and replies come.

use std::collections::VecDeque;

use bytes::Bytes;
use partita_amqp::connection::{Connection, LinkId, Outgoing, SessionId};
use partita_amqp::message::{self, Message};
use partita_amqp::performative::{self, Attach, DeliveryState};
use partita_core::model::Value;

use super::command::{NodeName, Reply};
use crate::eventhubs::EventHubsError;

/// Requests that wait for their reply, on one node; more than are ever made at once.
const REQUESTS_MAX: usize = 256;

/// Replies that the node may send ahead.
const REPLY_CREDIT: u32 = 64;

const MESSAGE_ID: usize = 0;
const REPLY_TO: usize = 4;
const CORRELATION_ID: usize = 5;

#[derive(Debug)]
struct Waiting {
    id: u64,
    /// Until it is sent.
    payload: Option<Bytes>,
    reply: Reply<Message>,
}

/// The links to a node.
#[derive(Debug)]
pub(super) struct Node {
    name: NodeName,
    pub(super) session: SessionId,
    pub(super) sender: LinkId,
    pub(super) receiver: LinkId,
    reply_to: String,
    next_id: u64,
    waiting: VecDeque<Waiting>,
}

impl Node {
    /// Starts the links. `None` if the connection takes no more.
    pub(super) fn attach(name: NodeName, connection: &mut Connection, client: &str) -> Option<Self> {
        let session = connection.begin()?;
        let reply_to = format!("{client}-{}", &name.address()[1..]);
        let sender = Attach::sender(format!("{reply_to}-sender"), name.address());
        let mut receiver = Attach::receiver(format!("{reply_to}-receiver"), name.address());
        receiver.target = Some(performative::Target::to(&reply_to));
        let sender = connection.attach(session, sender)?;
        let receiver = connection.attach(session, receiver)?;
        connection.set_credit(receiver, REPLY_CREDIT, false);
        Some(Self { name, session, sender, receiver, reply_to, next_id: 0, waiting: VecDeque::new() })
    }

    pub(super) fn name(&self) -> NodeName {
        self.name
    }

    /// Sends a request as soon as it can be sent.
    pub(super) fn request(
        &mut self,
        mut message: Message,
        reply: Reply<Message>,
        connection: &mut Connection,
    ) {
        // Whoever has given up needs no answer.
        self.waiting.retain(|waiting| !waiting.reply.is_closed());
        if self.waiting.len() >= REQUESTS_MAX {
            let text = format!("{REQUESTS_MAX} requests already wait for the hub's {}", self.name.address());
            let _ = reply.send(Err(EventHubsError::retriable(text)));
            return;
        }
        let id = self.next_id;
        self.next_id += 1;
        let mut properties = vec![Value::Null; CORRELATION_ID + 1];
        properties[MESSAGE_ID] = Value::from(id.to_string());
        properties[REPLY_TO] = Value::from(self.reply_to.as_str());
        message.properties = Some(properties);
        let mut payload = Vec::new();
        match message::encode(&message, &mut payload) {
            Ok(()) => self.waiting.push_back(Waiting { id, payload: Some(payload.into()), reply }),
            Err(error) => {
                let _ =
                    reply.send(Err(EventHubsError::fatal(format!("the request cannot be written: {error}"))));
            }
        }
        self.send(connection);
    }

    /// Sends what there is credit for.
    pub(super) fn send(&mut self, connection: &mut Connection) {
        for waiting in &mut self.waiting {
            let Some(payload) = &waiting.payload else { continue };
            let message = Outgoing { settled: true, ..Outgoing::unsettled(waiting.id) };
            if connection.send(self.sender, message, payload.clone()).is_err() {
                return;
            }
            waiting.payload = None;
        }
    }

    /// Takes a reply. What is none, or of a request that was given up, is dropped.
    pub(super) fn replied(&mut self, id: u32, settled: bool, payload: &Bytes, connection: &mut Connection) {
        if !settled {
            connection.settle(self.receiver, id, DeliveryState::Accepted);
        }
        connection.top_up(self.receiver, REPLY_CREDIT);
        let Ok(message) = Message::decode_with_any_body(payload) else { return };
        let correlation = message.properties.as_ref().and_then(|fields| fields.get(CORRELATION_ID));
        let Some(id) = correlation.and_then(Value::as_str).and_then(|id| id.parse::<u64>().ok()) else {
            return;
        };
        if let Some(at) = self.waiting.iter().position(|waiting| waiting.id == id)
            && let Some(waiting) = self.waiting.remove(at)
        {
            let _ = waiting.reply.send(Ok(message));
        }
    }

    /// Fails everything that waits.
    pub(super) fn end(self, error: &EventHubsError) {
        for waiting in self.waiting {
            let _ = waiting.reply.send(Err(error.clone()));
        }
    }

    pub(super) fn is_idle(&self) -> bool {
        self.waiting.iter().all(|waiting| waiting.reply.is_closed())
    }
}
