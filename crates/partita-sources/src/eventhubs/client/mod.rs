//! One connection to a hub, shared by all who read from it or send to it.
//!
//! It is made when it is first needed and made again after it was lost, by whoever needs it next: while it is away, one
//! attempt at a time is made for all, and the pauses between attempts grow. Readers are not resumed behind the back of their
//! owner: a reader fails, and the owner, who alone knows what was handled, opens another one where it wants to go on.

mod actor;
mod command;
mod credit;
mod node;
mod receiver;
mod sender;
mod window;

use std::sync::Arc;
use std::time::Duration;

use partita_amqp::connection::{Connection, Limits, Options};
use partita_amqp::driver::{Driver, now};
use partita_amqp::message::Message;
use partita_amqp::performative::Attach;
use partita_amqp::sasl;
use partita_core::model::{HubName, Namespace, Value};
use tokio::sync::{Mutex, Notify, mpsc, oneshot};
use tokio::task::JoinHandle;
use tokio::time::Instant;

use self::actor::{Actor, Links};
use self::command::{Command, NodeName};
pub(crate) use self::sender::SenderEnd;
pub(crate) use self::window::{Batch, ReaderEnd};
use super::EventHubsError;
use super::auth::Authorization;
use super::transport::{self, Endpoint, Path};

/// Commands that wait for the connection's task.
const COMMANDS_MAX: usize = 64;

/// The pauses between attempts to connect.
const PAUSE_MIN: Duration = Duration::from_millis(100);
const PAUSE_MAX: Duration = Duration::from_secs(3);

/// How long a call waits for a connection that was lost, before it says so.
const AWAY_TIME_MAX: Duration = Duration::from_secs(30);

/// The largest message that a reader takes; the service's largest is 20 MiB.
const MESSAGE_BYTES_MAX: u64 = 24 * 1024 * 1024;

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

/// A connection that is made when it is needed. Clones share it.
#[derive(Clone, Debug)]
pub(crate) struct Client(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    config: Config,
    state: Mutex<State>,
}

/// The connection, and how the last attempts went.
#[derive(Debug, Default)]
struct State {
    handle: Option<Handle>,
    /// Whether there ever was a connection.
    was_there: bool,
    failures: u32,
    /// When the next attempt may be made, and how the last one failed; not said if whoever made it went away.
    last: Option<(Option<EventHubsError>, Instant)>,
}

impl Client {
    pub(crate) fn new(config: Config) -> Self {
        Self(Arc::new(Shared { config, state: Mutex::default() }))
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
        let handle = self.handle().await?;
        self.in_time("the receiver was not attached", async {
            handle.ask(|reply| Command::Receive { attach, queue, reply }).await
        })
        .await
    }

    /// Attaches a link that sends.
    pub(crate) async fn produce(&self, attach: Attach) -> Result<SenderEnd, EventHubsError> {
        let handle = self.handle().await?;
        let commands = handle.commands.clone();
        self.in_time("the sender was not attached", async {
            handle.ask(|reply| Command::Produce { attach, commands, reply }).await
        })
        .await
    }

    /// Asks the hub's management.
    pub(crate) async fn manage(&self, message: Message) -> Result<Message, EventHubsError> {
        let handle = self.handle().await?;
        let message = Box::new(message);
        let what = format!("the hub {} did not answer", self.config().place());
        self.in_time(&what, async {
            let node = NodeName::Management;
            let reply = handle.ask(|reply| Command::Request { node, message, reply }).await?;
            checked(&format!("the hub '{}' cannot be read", self.config().hub), reply)
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

    /// The connection. If it was lost, waits some time for its return.
    async fn handle(&self) -> Result<Handle, EventHubsError> {
        let give_up = Instant::now() + AWAY_TIME_MAX;
        loop {
            let mut state = self.0.state.lock().await;
            if let Some(handle) = &state.handle
                && !handle.commands.is_closed()
            {
                return Ok(handle.clone());
            }
            let pause = match &state.last {
                Some((error, next)) if *next > Instant::now() => {
                    if let Some(error) = error
                        && (!state.was_there || !error.is_retriable() || *next > give_up)
                    {
                        return Err(error.clone());
                    }
                    *next
                }
                _ => {
                    if let Some(handle) = state.attempt(self.config()).await {
                        return handle;
                    }
                    continue;
                }
            };
            // Others may try, or have what they need, meanwhile.
            drop(state);
            tokio::time::sleep_until(pause).await;
        }
    }
}

impl State {
    /// Tries to connect. `None` if it is worth to wait and try again.
    async fn attempt(&mut self, config: &Config) -> Option<Result<Handle, EventHubsError>> {
        self.handle = None;
        // Noted beforehand: many who each give up half-way are no reason to hurry.
        let pause = PAUSE_MIN.saturating_mul(1 << self.failures.min(10)).min(PAUSE_MAX);
        let pause = pause.mul_f64(0.75 + 0.25 * fastrand::f64());
        self.failures += 1;
        self.last = Some((None, Instant::now() + pause));
        let time = config.connect_time_max;
        let connected = tokio::time::timeout(time, connect(config)).await.unwrap_or_else(|_| {
            let text = format!("the hub {} did not answer within {time:?}", config.place());
            Err(EventHubsError::retriable(text))
        });
        match connected {
            Ok(handle) => {
                *self = Self { handle: Some(handle.clone()), was_there: true, failures: 0, last: None };
                Some(Ok(handle))
            }
            Err(error) => {
                self.last = Some((Some(error.clone()), Instant::now() + pause));
                let first = self.failures == 1 || !self.was_there || !error.is_retriable();
                first.then_some(Err(error))
            }
        }
    }
}

/// How others reach the connection's task.
#[derive(Clone, Debug)]
struct Handle {
    commands: mpsc::Sender<Command>,
}

impl Handle {
    async fn ask<T>(
        &self,
        command: impl FnOnce(oneshot::Sender<Result<T, EventHubsError>>) -> Command,
    ) -> Result<T, EventHubsError> {
        let (reply, answer) = oneshot::channel();
        let lost = || EventHubsError::retriable("the connection to the hub was lost");
        self.commands.send(command(reply)).await.map_err(|_| lost())?;
        answer.await.unwrap_or_else(|_| Err(lost()))
    }
}

/// Connects and proves who we are.
async fn connect(config: &Config) -> Result<Handle, EventHubsError> {
    let audience = config.audience();
    let proof = config.authorization.prove(&audience, config.token_lifetime).await?;
    let stream = transport::dial(&config.endpoint, &config.host, &config.path).await?;
    let options = Options {
        hostname: Some(config.host.as_str().into()),
        idle_timeout: config.idle_timeout,
        // The time for all of it, transport included, ends before.
        handshake_timeout: 2 * config.connect_time_max,
        limits: Limits {
            message_bytes_max: MESSAGE_BYTES_MAX,
            reassembly_bytes_max: 4 * MESSAGE_BYTES_MAX as usize,
            ..Limits::default()
        },
        ..Options::new(config.identifier.clone())
    };
    let connection = Connection::connect(options, sasl::Client::Anonymous, now());
    let (commands, receiver) = mpsc::channel(COMMANDS_MAX);
    let links =
        Links::new(config.place().into(), config.identifier.clone(), receiver, Arc::new(Notify::new()));
    let task = tokio::spawn(Actor::new(Driver::new(stream, connection), links).run());
    let handle = Handle { commands };
    let put = put_token(&handle, &audience, proof.request(&audience)).await;
    put.map_err(|error| match error.condition() {
        Some(_) => error,
        None => EventHubsError::new(
            error.kind(),
            format!("the hub {} did not let us in: {error}", config.place()),
        ),
    })?;
    if config.authorization.renews() {
        let renewal =
            Renewal { config: config.clone(), commands: handle.commands.downgrade(), connection: task };
        tokio::spawn(renewal.run(proof.renew_after()));
    }
    Ok(handle)
}

async fn put_token(handle: &Handle, audience: &str, request: Message) -> Result<(), EventHubsError> {
    let (node, message) = (NodeName::Cbs, Box::new(request));
    let reply = handle.ask(|reply| Command::Request { node, message, reply }).await?;
    checked(&format!("access to {audience} was refused: check key, signature and hub name"), reply)?;
    Ok(())
}

/// A reply, if its status says that all went well.
fn checked(what: &str, reply: Message) -> Result<Message, EventHubsError> {
    let property = |names: [&str; 2]| {
        let mut pairs = reply.application_properties.iter().flatten();
        pairs.find(|(key, _)| key.as_str().is_some_and(|key| names.contains(&key))).map(|(_, value)| value)
    };
    let code = property(["status-code", "statusCode"]).and_then(Value::as_i64).unwrap_or(500);
    if (200..300).contains(&code) {
        return Ok(reply);
    }
    let description = property(["status-description", "statusDescription"]).and_then(Value::as_str);
    Err(EventHubsError::of_status(what, code, description.unwrap_or("no reason was given")))
}

/// Replaces the token of a connection before it ends. Ends with the connection, which it does not keep alive.
struct Renewal {
    config: Config,
    commands: mpsc::WeakSender<Command>,
    /// Is done when the connection has ended.
    connection: JoinHandle<()>,
}

impl Renewal {
    async fn run(mut self, mut pause: Duration) {
        let audience = self.config.audience();
        loop {
            tokio::select! {
                _ = &mut self.connection => return,
                () = tokio::time::sleep(pause) => {}
            }
            let renew = async {
                let proof = self.config.authorization.prove(&audience, self.config.token_lifetime).await?;
                let commands = self.commands.upgrade();
                let commands =
                    commands.ok_or_else(|| EventHubsError::retriable("the connection has ended"))?;
                put_token(&Handle { commands }, &audience, proof.request(&audience)).await?;
                Ok::<_, EventHubsError>(proof.renew_after())
            };
            pause = match tokio::time::timeout(self.config.request_time_max, renew).await {
                Ok(Ok(pause)) => pause,
                Ok(Err(error)) => {
                    tracing::warn!(hub = %self.config.hub, %error, "token not renewed, will try again");
                    self.retry_pause()
                }
                Err(_) => self.retry_pause(),
            };
        }
    }

    fn retry_pause(&self) -> Duration {
        (self.config.token_lifetime / 20).min(Duration::from_secs(10))
    }
}
