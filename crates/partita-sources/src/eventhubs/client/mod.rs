//! The connections to a hub, shared by all who read from it or send to it.
//!
//! Each is made when it is first needed and made again after it was lost, by whoever needs it next: while it is away, one
//! attempt at a time is made for all, and the pauses between attempts grow. Readers are not resumed behind the back of their
//! owner: a reader fails, and the owner, who alone knows what was handled, opens another one where it wants to go on.
//!
//! One connection does for most hubs. When it has as many links as it takes, the next one is made.

mod actor;
mod command;
mod connect;
mod credit;
mod node;
mod receiver;
mod runtime;
mod sender;
mod slot;
mod window;

use std::sync::Arc;
use std::time::Duration;

use partita_amqp::message::Message;
use partita_amqp::performative::Attach;
use partita_core::model::{HubName, Namespace};
use tokio::sync::Semaphore;

use self::command::{Command, NodeName, Reply};
use self::connect::{Handle, checked};
pub(crate) use self::sender::SenderEnd;
use self::slot::{Room, Slot};
pub(crate) use self::window::{Batch, ReaderEnd};
use super::EventHubsError;
use super::auth::Authorization;
use super::transport::{Endpoint, Path};

/// Links on one connection. Each has a session of its own, and a hub takes about a thousand of these or more; one that takes
/// fewer is given more connections.
const LINKS_MAX: usize = 1_000;

/// Connections of one client.
const CONNECTIONS_MAX: usize = 16;

/// Requests to the hub's management that are under way; further ones wait their turn.
const REQUESTS_MAX: usize = 64;

/// What a client is told.
#[derive(Clone, Debug)]
pub(crate) struct Config {
    pub(crate) endpoint: Endpoint,
    pub(crate) path: Path,
    /// The host that the hub is known by, wherever we connect to.
    pub(crate) host: String,
    /// What its checkpoints are kept under, and what they were kept under.
    pub(crate) namespace: Namespace,
    pub(crate) former_namespace: Option<Namespace>,
    pub(crate) hub: HubName,
    pub(crate) authorization: Authorization,
    /// What we call ourselves.
    pub(crate) identifier: Arc<str>,
    pub(crate) connect_time_max: Duration,
    pub(crate) request_time_max: Duration,
    pub(crate) token_lifetime: Duration,
    pub(crate) idle_timeout: Duration,
}

impl Config {
    /// What tokens are for.
    fn audience(&self) -> String {
        format!("sb://{}/{}", self.host, self.hub)
    }

    fn place(&self) -> String {
        format!("{} at {}", self.hub, self.endpoint)
    }
}

/// Connections that are made when they are needed. Clones share them.
#[derive(Clone, Debug)]
pub(crate) struct Client(Arc<ClientState>);

#[derive(Debug)]
struct ClientState {
    config: Config,
    slots: Vec<Slot>,
    requests: Semaphore,
}

impl Client {
    pub(crate) fn new(config: Config) -> Self {
        let slots = (0..CONNECTIONS_MAX).map(|number| Slot::new(number, LINKS_MAX)).collect();
        Self(Arc::new(ClientState { config, slots, requests: Semaphore::new(REQUESTS_MAX) }))
    }

    pub(crate) fn config(&self) -> &Config {
        &self.0.config
    }

    /// Attaches a link that receives; so many events and bytes may wait here.
    pub(crate) async fn receive(
        &self,
        attach: Attach,
        queue: (usize, usize),
    ) -> Result<ReaderEnd, EventHubsError> {
        self.attach("the receiver was not attached", |_, room, reply| {
            let attach = attach.clone();
            Command::Receive { attach, queue, room, reply }
        })
        .await
    }

    /// Attaches a link that sends.
    pub(crate) async fn produce(&self, attach: Attach) -> Result<SenderEnd, EventHubsError> {
        self.attach("the sender was not attached", |handle, room, reply| {
            let (attach, commands) = (attach.clone(), handle.commands.clone());
            Command::Produce { attach, commands, room, reply }
        })
        .await
    }

    /// Attaches a link on the first connection that has room for it.
    async fn attach<T>(
        &self,
        what: &str,
        command: impl Fn(&Handle, Room, Reply<T>) -> Command,
    ) -> Result<T, EventHubsError> {
        for slot in &self.0.slots {
            let Some(room) = slot.room() else { continue };
            let handle = slot.handle(self.config()).await?;
            let attached = handle.ask(|reply| command(&handle, room, reply));
            match self.in_time(what, attached).await {
                // It takes fewer than we thought.
                Err(error) if error.is_no_room() => {}
                attached => return attached,
            }
        }
        Err(EventHubsError::retriable(format!(
            "{what}: all {CONNECTIONS_MAX} connections to the hub {} are full; close some readers or producers, or make \
             another client",
            self.config().place()
        )))
    }

    /// Asks the hub's management.
    pub(crate) async fn manage(&self, message: Message) -> Result<Message, EventHubsError> {
        // The semaphore is never closed. The time to answer begins when it is asked.
        let _turn = self.0.requests.acquire().await;
        let handle = self.0.slots[0].handle(self.config()).await?;
        let message = Box::new(message);
        let what = format!("the hub {} did not answer", self.config().place());
        self.in_time(&what, async {
            let node = NodeName::Management;
            let reply = handle.ask(|reply| Command::Request { node, message, reply }).await?;
            checked(|_| format!("the hub '{}' cannot be read", self.config().hub), reply)
        })
        .await
    }

    async fn in_time<T>(
        &self,
        what: &str,
        call: impl Future<Output = Result<T, EventHubsError>>,
    ) -> Result<T, EventHubsError> {
        let time = self.config().request_time_max;
        match tokio::time::timeout(time, call).await {
            Ok(result) => result,
            Err(_) => Err(EventHubsError::retriable(format!("{what} within {time:?}"))),
        }
    }
}
