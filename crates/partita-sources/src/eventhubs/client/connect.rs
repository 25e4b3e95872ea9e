//! Makes a connection, proves who we are, and goes on proving it.

use std::sync::Arc;
use std::time::Duration;

use partita_amqp::connection::{Connection, Limits, Options};
use partita_amqp::driver::{Driver, now};
use partita_amqp::message::Message;
use partita_amqp::sasl;
use partita_core::model::Value;
use tokio::sync::{Notify, mpsc, oneshot};
use tokio::task::JoinHandle;

use super::Config;
use super::actor::{Actor, Links};
use super::command::{Command, NodeName};
use crate::eventhubs::EventHubsError;
use crate::eventhubs::transport;

/// Commands that wait for the connection's task.
const COMMANDS_MAX: usize = 64;

/// The largest message that a reader takes; the service's largest is 20 MiB.
const MESSAGE_BYTES_MAX: u64 = 24 * 1024 * 1024;

/// How others reach the connection's task.
#[derive(Clone, Debug)]
pub(super) struct Handle {
    pub(super) commands: mpsc::Sender<Command>,
}

impl Handle {
    pub(super) async fn ask<T>(
        &self,
        command: impl FnOnce(oneshot::Sender<Result<T, EventHubsError>>) -> Command,
    ) -> Result<T, EventHubsError> {
        let (reply, answer) = oneshot::channel();
        let lost = || EventHubsError::retriable("the connection to the hub was lost");
        self.commands.send(command(reply)).await.map_err(|_| lost())?;
        answer.await.unwrap_or_else(|_| Err(lost()))
    }
}

/// Connects and proves who we are. The number tells this connection of the client from its others: two with one name would
/// have links of one name.
pub(super) async fn connect(config: Config, number: usize) -> Result<Handle, EventHubsError> {
    let name: Arc<str> = match number {
        0 => config.identifier.clone(),
        _ => format!("{}-{number}", config.identifier).into(),
    };
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
        ..Options::new(name.clone())
    };
    let connection = Connection::connect(options, sasl::Client::Anonymous, now());
    let (commands, receiver) = mpsc::channel(COMMANDS_MAX);
    let links = Links::new(config.place().into(), name, receiver, Arc::new(Notify::new()));
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
        let renewal = Renewal { config, commands: handle.commands.downgrade(), connection: task };
        tokio::spawn(renewal.run(proof.renew_after()));
    }
    Ok(handle)
}

async fn put_token(handle: &Handle, audience: &str, request: Message) -> Result<(), EventHubsError> {
    let (node, message) = (NodeName::Cbs, Box::new(request));
    let reply = handle.ask(|reply| Command::Request { node, message, reply }).await?;
    let what = |code| match code {
        404 => "no such hub".to_owned(),
        _ => format!("access to {audience} was refused: check key, signature and hub name"),
    };
    checked(what, reply)?;
    Ok(())
}

/// A reply, if its status says that all went well.
pub(super) fn checked(what: impl FnOnce(i64) -> String, reply: Message) -> Result<Message, EventHubsError> {
    let property = |names: [&str; 2]| {
        let mut pairs = reply.application_properties.iter().flatten();
        pairs.find(|(key, _)| key.as_str().is_some_and(|key| names.contains(&key))).map(|(_, value)| value)
    };
    let code = property(["status-code", "statusCode"]).and_then(Value::as_i64).unwrap_or(500);
    if (200..300).contains(&code) {
        return Ok(reply);
    }
    let description = property(["status-description", "statusDescription"]).and_then(Value::as_str);
    Err(EventHubsError::of_status(&what(code), code, description.unwrap_or("no reason was given")))
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
