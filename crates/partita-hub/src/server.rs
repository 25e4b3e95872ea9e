//! A broker's hubs on the network, for clients of Event Hubs.
//!
//! ```no_run
//! # async fn example() -> Result<(), Box<dyn std::error::Error>> {
//! use std::sync::Arc;
//! use partita_hub::broker::Broker;
//! use partita_hub::listener::transport::Transport;
//! use partita_hub::server::{Server, ServerOptions};
//!
//! let (broker, _) = Broker::open("data")?;
//! let server = Server::new(Arc::new(broker), ServerOptions::default());
//! let listener = tokio::net::TcpListener::bind("127.0.0.1:5672").await?;
//! server.listen(listener, Transport::Plain).await;
//! # Ok(())
//! # }
//! ```

use std::collections::BTreeMap;
use std::fmt;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use partita_core::model::Timestamp;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio::time::Instant;

use crate::broker::Broker;
use crate::fault::Faults;
use crate::listener::connection;
use crate::listener::transport::Transport;
use crate::service::auth::Rules;

/// How long to wait when the system has no more sockets to give.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

/// How a server behaves. Every field has a default.
#[derive(Clone, Debug)]
pub struct ServerOptions {
    /// Who may do what. Default: the official emulator's well-known key may do everything.
    pub auth: Rules,
    /// How many messages a client may send on a link before it waits for more credit.
    pub credit: u32,
    /// The largest message.
    pub message_bytes_max: u64,
    /// How many connections there can be at once; further ones are closed at once.
    pub connections_max: usize,
    /// How long a client may be silent; it is told, and sends empty frames if it has nothing to say.
    pub idle_timeout: Duration,
    /// How long a client may take from its first byte to its open.
    pub handshake_timeout: Duration,
    /// The name that clients see.
    pub container_id: String,
}

impl Default for ServerOptions {
    fn default() -> Self {
        Self {
            auth: Rules::default(),
            credit: 300,
            message_bytes_max: 1 << 20,
            connections_max: 20_000,
            idle_timeout: Duration::from_secs(120),
            handshake_timeout: Duration::from_secs(20),
            container_id: "partita".to_owned(),
        }
    }
}

/// Who is at the other end of a connection, for people to read.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Peer(String);

impl Peer {
    /// In words of your own.
    pub fn new(text: impl Into<String>) -> Self {
        Self(text.into())
    }
}

impl From<SocketAddr> for Peer {
    fn from(address: SocketAddr) -> Self {
        Self(address.to_string())
    }
}

impl fmt::Display for Peer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// One connection, as it is now.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ConnectionInfo {
    /// Tells it from all others of this server.
    pub id: u64,
    /// Who is at the other end.
    pub peer: String,
    /// What the client calls itself; empty until it has said so.
    pub container_id: String,
    /// When it came.
    pub since: Timestamp,
    /// Its links.
    pub links: Vec<LinkInfo>,
}

/// One link of a connection.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct LinkInfo {
    /// Where it goes, such as `hub/Partitions/3`.
    pub address: String,
    /// What the client does on it.
    pub role: LinkRole,
}

/// What a client does on a link.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum LinkRole {
    /// It sends.
    Sender,
    /// It receives.
    Receiver,
}

impl fmt::Display for LinkRole {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Sender => "sender",
            Self::Receiver => "receiver",
        })
    }
}

/// Whether the server goes on.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Course {
    Running,
    /// Connections end in good order until then.
    Ending(Instant),
    /// Connections end now.
    Over,
}

/// What the connections of a server share.
#[derive(Debug)]
pub(crate) struct Shared {
    pub(crate) broker: Arc<Broker>,
    pub(crate) options: ServerOptions,
    pub(crate) faults: Faults,
    course: watch::Sender<Course>,
    connections: Mutex<Connections>,
    /// How many connections there are.
    count: watch::Sender<usize>,
}

#[derive(Debug, Default)]
struct Connections {
    last: u64,
    infos: BTreeMap<u64, ConnectionInfo>,
}

impl Shared {
    fn connections(&self) -> MutexGuard<'_, Connections> {
        self.connections.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn course(&self) -> watch::Receiver<Course> {
        self.course.subscribe()
    }

    fn admit(self: &Arc<Self>, peer: &Peer) -> Option<Seat> {
        let mut connections = self.connections();
        if connections.infos.len() >= self.options.connections_max || *self.course.borrow() != Course::Running
        {
            return None;
        }
        connections.last += 1;
        let id = connections.last;
        let info = ConnectionInfo {
            id,
            peer: peer.to_string(),
            container_id: String::new(),
            since: Timestamp::now(),
            links: Vec::new(),
        };
        connections.infos.insert(id, info);
        self.count.send_replace(connections.infos.len());
        Some(Seat { id, shared: self.clone() })
    }
}

/// A connection's place among those of its server, until it is dropped.
#[derive(Debug)]
pub(crate) struct Seat {
    pub(crate) id: u64,
    pub(crate) shared: Arc<Shared>,
}

impl Seat {
    pub(crate) fn update(&self, change: impl FnOnce(&mut ConnectionInfo)) {
        if let Some(info) = self.shared.connections().infos.get_mut(&self.id) {
            change(info);
        }
    }
}

impl Drop for Seat {
    fn drop(&mut self) {
        let mut connections = self.shared.connections();
        connections.infos.remove(&self.id);
        self.shared.count.send_replace(connections.infos.len());
    }
}

/// Serves a broker's hubs. Clones are the same server.
#[derive(Clone, Debug)]
pub struct Server {
    shared: Arc<Shared>,
}

impl Server {
    /// A server that has no connections yet.
    pub fn new(broker: Arc<Broker>, options: ServerOptions) -> Self {
        let shared = Shared {
            broker,
            options,
            faults: Faults::default(),
            course: watch::Sender::new(Course::Running),
            connections: Mutex::default(),
            count: watch::Sender::new(0),
        };
        Self { shared: Arc::new(shared) }
    }

    /// Accepts connections until the server is shut down. The first words of a client do not hold up others.
    pub async fn listen(&self, listener: TcpListener, transport: Transport) {
        let mut course = self.shared.course();
        loop {
            let accepted = tokio::select! {
                _ = course.wait_for(|course| *course != Course::Running) => return,
                accepted = listener.accept() => accepted,
            };
            let (stream, address) = match accepted {
                Ok(accepted) => accepted,
                Err(error) => {
                    tracing::warn!(%error, "no connection could be accepted");
                    tokio::time::sleep(ACCEPT_PAUSE).await;
                    continue;
                }
            };
            let peer = Peer::from(address);
            let Some(seat) = self.admit(&peer) else { continue };
            let transport = transport.clone();
            tokio::spawn(async move {
                let mut course = seat.shared.course();
                let stream = tokio::select! {
                    _ = course.wait_for(|course| *course != Course::Running) => return,
                    stream = transport.accept(stream) => stream,
                };
                match stream {
                    Ok(stream) => connection::run(stream, seat, &peer).await,
                    Err(error) => tracing::debug!(%peer, %error, "connection came to nothing"),
                }
            });
        }
    }

    /// Serves one connection until it ends, over any stream of bytes.
    pub async fn serve<S>(&self, stream: S, peer: Peer)
    where
        S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        if let Some(seat) = self.admit(&peer) {
            connection::run(stream, seat, &peer).await;
        }
    }

    fn admit(&self, peer: &Peer) -> Option<Seat> {
        let seat = self.shared.admit(peer);
        if seat.is_none() {
            let max = self.shared.options.connections_max;
            tracing::warn!(%peer, max, "connection refused: there are too many, or the server is ending");
        }
        seat
    }

    /// The broker.
    pub fn broker(&self) -> &Arc<Broker> {
        &self.shared.broker
    }

    /// What goes wrong on purpose.
    pub fn faults(&self) -> &Faults {
        &self.shared.faults
    }

    /// The connections there are, oldest first.
    pub fn connections(&self) -> Vec<ConnectionInfo> {
        self.shared.connections().infos.values().cloned().collect()
    }

    /// Ends the server: no more connections, senders get the answers that are due, connections are closed with
    /// `amqp:connection:forced`; those that take longer than `grace` are cut. The broker stays open.
    pub async fn shutdown(&self, grace: Duration) {
        let until = Instant::now() + grace;
        self.shared.course.send_if_modified(|course| {
            let first = *course == Course::Running;
            if first {
                *course = Course::Ending(until);
            }
            first
        });
        let mut count = self.shared.count.subscribe();
        if tokio::time::timeout_at(until, count.wait_for(|count| *count == 0)).await.is_err() {
            let cut = *count.borrow();
            tracing::warn!(cut, "connections did not end in time");
        }
        self.shared.course.send_replace(Course::Over);
        let _ = tokio::time::timeout(Duration::from_secs(1), count.wait_for(|count| *count == 0)).await;
    }
}
