//! The task that owns a connection. It alone calls the protocol; everybody else asks it over a bounded channel, or tells it
//! by a counter that it looks at.
//!
//! ```text
//! loop { take commands -> poll events -> hand batches over, renew credit -> wait for the network, a command or a reader }
//! ```

use std::collections::HashMap;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use partita_amqp::connection::{Connection, Event, LinkId, SessionId};
use partita_amqp::driver::{Driver, Progress};
use partita_amqp::performative::Attach;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::{Notify, mpsc};

use super::command::{Command, NodeName};
use super::node::Node;
use super::receiver::Receiver;
use super::sender::Sender;
use crate::eventhubs::EventHubsError;

/// How long the hub may take to hang up after we did.
const HANG_UP_TIME_MAX: Duration = Duration::from_secs(2);

/// A connection and everything on it.
#[derive(Debug)]
pub(super) struct Actor<S> {
    driver: Driver<S>,
    links: Links,
}

/// What is on a connection, apart from how its bytes travel.
#[derive(Debug)]
pub(super) struct Links {
    /// The hub's name and place, for errors.
    hub: Arc<str>,
    client: Arc<str>,
    commands: mpsc::Receiver<Command>,
    wake: Arc<Notify>,
    receivers: HashMap<LinkId, Receiver>,
    senders: HashMap<LinkId, Sender>,
    nodes: Vec<Node>,
    /// Receivers that something arrived for in this turn.
    touched: Vec<LinkId>,
    /// Links that were answered in this turn: a refusal may follow.
    answered: Vec<LinkId>,
    next_link: u64,
    /// Why the connection ends.
    end: Option<EventHubsError>,
}

impl<S: AsyncRead + AsyncWrite + Unpin> Actor<S> {
    pub(super) fn new(driver: Driver<S>, links: Links) -> Self {
        Self { driver, links }
    }

    /// Runs until the connection ends or nobody needs it.
    pub(super) async fn run(mut self) {
        let result = self.turns().await;
        let error = self.links.end.take().unwrap_or_else(|| {
            let lost = format!("the connection to {} was lost", self.links.hub);
            match result {
                Err(error) => EventHubsError::of_io(&lost, &error),
                Ok(()) => EventHubsError::retriable(lost),
            }
        });
        tracing::debug!(hub = %self.links.hub, %error, "connection ended");
        self.links.end_all(&error);
        let _ = self.driver.finish(HANG_UP_TIME_MAX).await;
    }

    async fn turns(&mut self) -> io::Result<()> {
        let mut idle = false;
        loop {
            while let Ok(command) = self.links.commands.try_recv() {
                self.links.command(command, self.driver.connection());
            }
            while let Some(event) = self.driver.connection().poll() {
                self.links.event(event, self.driver.connection());
            }
            self.links.settle_turn(self.driver.connection());
            if idle && self.links.is_idle() {
                self.driver.connection().close(None);
            }
            let wake = self.links.wake.clone();
            tokio::select! {
                biased;
                progress = self.driver.turn() => {
                    if progress? == Progress::End && self.no_more_events() {
                        return Ok(());
                    }
                }
                command = self.links.commands.recv(), if !idle => match command {
                    Some(command) => self.links.command(command, self.driver.connection()),
                    None => idle = true,
                },
                () = wake.notified() => {}
            }
        }
    }

    /// Takes what the connection said last.
    fn no_more_events(&mut self) -> bool {
        while let Some(event) = self.driver.connection().poll() {
            self.links.event(event, self.driver.connection());
        }
        self.links.settle_turn(self.driver.connection());
        true
    }
}

impl Links {
    pub(super) fn new(
        hub: Arc<str>,
        client: Arc<str>,
        commands: mpsc::Receiver<Command>,
        wake: Arc<Notify>,
    ) -> Self {
        Self {
            hub,
            client,
            commands,
            wake,
            receivers: HashMap::new(),
            senders: HashMap::new(),
            nodes: Vec::with_capacity(NodeName::ALL.len()),
            touched: Vec::new(),
            answered: Vec::new(),
            next_link: 0,
            end: None,
        }
    }

    fn is_idle(&self) -> bool {
        self.receivers.is_empty() && self.senders.is_empty() && self.nodes.iter().all(Node::is_idle)
    }

    fn command(&mut self, command: Command, connection: &mut Connection) {
        match command {
            Command::Receive { attach, queue, room, reply } => {
                let what = format!("the receiver {}", attach.address().unwrap_or_default());
                match self.attach(attach, connection) {
                    Some((session, link)) => {
                        let receiver = Receiver::new(session, what, queue, self.wake.clone(), room, reply);
                        receiver.renew_credit(link, connection);
                        self.receivers.insert(link, receiver);
                    }
                    None => {
                        let _ = reply.send(Err(EventHubsError::no_room()));
                    }
                }
            }
            Command::Produce { attach, commands, room, reply } => {
                let what = format!("the sender {}", attach.address().unwrap_or_default());
                match self.attach(attach, connection) {
                    Some((session, link)) => {
                        let sender = Sender::new(session, what, self.wake.clone(), commands, room, reply);
                        self.senders.insert(link, sender);
                    }
                    None => {
                        let _ = reply.send(Err(EventHubsError::no_room()));
                    }
                }
            }
            Command::Send { link, format, payload, reply } => match self.senders.get_mut(&link) {
                Some(sender) => {
                    sender.push(format, payload, reply);
                    sender.send(link, connection);
                }
                None => {
                    let _ = reply.send(Err(EventHubsError::retriable("the link to the hub was lost")));
                }
            },
            Command::Request { node, message, reply } => {
                let at = self.nodes.iter().position(|known| known.name() == node);
                let known = match at {
                    Some(at) => Some(&mut self.nodes[at]),
                    None => Node::attach(node, connection, &self.client).map(|node| {
                        self.nodes.push(node);
                        let last = self.nodes.len() - 1;
                        &mut self.nodes[last]
                    }),
                };
                match known {
                    Some(node) => node.request(*message, reply, connection),
                    None => {
                        let _ = reply.send(Err(EventHubsError::retriable(
                            "the connection has no session left for requests",
                        )));
                    }
                }
            }
        }
    }

    /// Starts a link in a session of its own: the windows of sessions hold the others back otherwise.
    fn attach(&mut self, mut attach: Attach, connection: &mut Connection) -> Option<(SessionId, LinkId)> {
        attach.name = format!("{}-{}", self.client, self.next_link).into();
        self.next_link += 1;
        let session = connection.begin()?;
        let link = connection.attach(session, attach);
        if link.is_none() {
            connection.end(session, None);
        }
        Some((session, link?))
    }

    #[inline]
    fn event(&mut self, event: Event, connection: &mut Connection) {
        match event {
            Event::Delivery(delivery) => {
                let link = delivery.link;
                if let Some(receiver) = self.receivers.get_mut(&link) {
                    if receiver.delivered(delivery) {
                        self.touched.push(link);
                    }
                } else if let Some(node) = self.nodes.iter_mut().find(|node| node.receiver == link) {
                    node.replied(delivery.id, delivery.settled, &delivery.payload, connection);
                }
            }
            other => self.rare(other, connection),
        }
    }

    fn rare(&mut self, event: Event, connection: &mut Connection) {
        match event {
            Event::Attached { link, attach } => {
                if let Some(receiver) = self.receivers.get_mut(&link) {
                    receiver.attached(attach);
                } else if let Some(sender) = self.senders.get_mut(&link) {
                    sender.attached(attach);
                }
                self.answered.push(link);
            }
            Event::Credit { link, .. } => {
                if let Some(sender) = self.senders.get_mut(&link) {
                    sender.send(link, connection);
                    connection.drained(link);
                } else if let Some(node) = self.nodes.iter_mut().find(|node| node.sender == link) {
                    node.send(connection);
                    connection.drained(link);
                }
            }
            Event::Window(session) => {
                for (link, sender) in &mut self.senders {
                    if sender.session == session {
                        sender.send(*link, connection);
                    }
                }
                for node in &mut self.nodes {
                    node.send(connection);
                }
            }
            Event::Outcome { link, ids, state, settled } => {
                if let Some(sender) = self.senders.get_mut(&link) {
                    sender.outcome(ids, state.as_ref());
                    if let (false, Some(state)) = (settled, state) {
                        connection.settle(link, ids, state);
                    }
                    sender.send(link, connection);
                }
            }
            Event::Detached { link, error, .. } => {
                if let Some(session) = self.end_link(link, error.as_ref()) {
                    connection.end(session, None);
                }
            }
            Event::Ended { session, error } => self.end_session(session, error.as_ref()),
            Event::Closed { error, .. } => {
                let what = format!("the connection to {}", self.hub);
                self.end.get_or_insert(EventHubsError::of_peer(&what, error.as_ref()));
            }
            _ => {}
        }
    }

    /// What is done once per turn, after all that happened in it was heard.
    fn settle_turn(&mut self, connection: &mut Connection) {
        for link in self.touched.drain(..) {
            if let Some(receiver) = self.receivers.get_mut(&link) {
                receiver.hand_over(link, connection);
            }
        }
        for link in self.answered.drain(..) {
            if let Some(receiver) = self.receivers.get_mut(&link) {
                receiver.settle_opening();
            } else if let Some(sender) = self.senders.get_mut(&link) {
                sender.settle_opening(link);
            }
        }
        for (link, receiver) in &self.receivers {
            match receiver.is_gone() {
                true => connection.detach(*link, None),
                false => receiver.renew_credit(*link, connection),
            }
        }
        for (link, sender) in &self.senders {
            if sender.is_gone() {
                connection.detach(*link, None);
            }
        }
    }

    /// Forgets a link; the session that it had for itself is to be ended.
    fn end_link(
        &mut self,
        link: LinkId,
        error: Option<&partita_amqp::performative::Error>,
    ) -> Option<SessionId> {
        if let Some(receiver) = self.receivers.remove(&link) {
            let session = receiver.session;
            let what = receiver.what.clone();
            receiver.end(EventHubsError::of_peer(&what, error));
            return Some(session);
        }
        if let Some(sender) = self.senders.remove(&link) {
            let session = sender.session;
            let what = sender.what.clone();
            sender.end(&EventHubsError::of_peer(&what, error));
            return Some(session);
        }
        let at = self.nodes.iter().position(|node| node.sender == link || node.receiver == link)?;
        let node = self.nodes.swap_remove(at);
        let session = node.session;
        let what = format!("the link to {}", node.name().address());
        node.end(&EventHubsError::of_peer(&what, error));
        Some(session)
    }

    fn end_session(&mut self, session: SessionId, error: Option<&partita_amqp::performative::Error>) {
        let receivers = self.receivers.iter().filter(|(_, link)| link.session == session).map(|(id, _)| *id);
        let senders = self.senders.iter().filter(|(_, link)| link.session == session).map(|(id, _)| *id);
        let nodes = self.nodes.iter().filter(|node| node.session == session).map(|node| node.sender);
        let links: Vec<LinkId> = receivers.chain(senders).chain(nodes).collect();
        for link in links {
            self.end_link(link, error);
        }
    }

    fn end_all(mut self, error: &EventHubsError) {
        for (_, receiver) in self.receivers.drain() {
            receiver.end(error.clone());
        }
        for (_, sender) in self.senders.drain() {
            sender.end(error);
        }
        for node in self.nodes.drain(..) {
            node.end(error);
        }
        self.commands.close();
        while let Ok(command) = self.commands.try_recv() {
            command.fail(error);
        }
    }
}
