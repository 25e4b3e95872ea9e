//! What a connection's task is asked to do. The answers come over channels of their own.

use bytes::Bytes;
use partita_amqp::connection::LinkId;
use partita_amqp::message::Message;
use partita_amqp::performative::Attach;
use partita_dialect::names::node;
use tokio::sync::{mpsc, oneshot};

use super::sender::SenderEnd;
use super::slot::Room;
use super::window::ReaderEnd;
use crate::eventhubs::EventHubsError;

/// Where an answer goes.
pub(super) type Reply<T> = oneshot::Sender<Result<T, EventHubsError>>;

/// A request.
#[derive(Debug)]
pub(super) enum Command {
    /// Attach a link that receives.
    Receive {
        /// The link.
        attach: Attach,
        /// How much of it may wait here, in events and in bytes.
        queue: (usize, usize),
        room: Room,
        reply: Reply<ReaderEnd>,
    },
    /// Attach a link that sends.
    Produce {
        /// The link.
        attach: Attach,
        /// Where the producer's messages will come from.
        commands: mpsc::Sender<Command>,
        room: Room,
        reply: Reply<SenderEnd>,
    },
    /// Send a message on a link and say what became of it.
    Send { link: LinkId, format: u32, payload: Bytes, reply: Reply<()> },
    /// Ask one of the hub's nodes and pass the answer on.
    Request { node: NodeName, message: Box<Message>, reply: Reply<Message> },
}

/// The nodes that answer requests.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum NodeName {
    /// Takes tokens.
    Cbs,
    /// Tells what hubs and partitions are like.
    Management,
}

impl NodeName {
    pub(super) const ALL: [Self; 2] = [Self::Cbs, Self::Management];

    pub(super) fn address(self) -> &'static str {
        match self {
            Self::Cbs => node::CBS,
            Self::Management => node::MANAGEMENT,
        }
    }
}

impl Command {
    /// Answers that it was not done.
    pub(super) fn fail(self, error: &EventHubsError) {
        let error = error.clone();
        match self {
            Self::Receive { reply, .. } => drop(reply.send(Err(error))),
            Self::Produce { reply, .. } => drop(reply.send(Err(error))),
            Self::Send { reply, .. } => drop(reply.send(Err(error))),
            Self::Request { reply, .. } => drop(reply.send(Err(error))),
        }
    }
}
