//! A broker's hubs on the network, for clients of Event Hubs.
//!
//! ```no_run
//! # async fn example() -> Result<(), Box<dyn std::error::Error>> {
//! use std::sync::Arc;
//! use partita_hub::broker::Broker;
//! use partita_hub::server::{Server, ServerOptions, Transport};
//!
//! let (broker, _) = Broker::open("data")?;
//! let server = Server::new(Arc::new(broker), ServerOptions::default());
//! let listener = tokio::net::TcpListener::bind("127.0.0.1:5672").await?;
//! server.listen(listener, Transport::Plain).await;
//! # Ok(())
//! # }
//! ```

use std::collections::{BTreeMap, HashMap};
use std::fmt;
use std::net::{IpAddr, Ipv6Addr, SocketAddr};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use partita_core::model::Timestamp;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio::time::Instant;

pub use crate::listener::transport::origin::{BadOrigin, Origin};
#[cfg(feature = "tls")]
pub use crate::listener::transport::tls::{
    ServerConfig, TlsError, server_config as tls_config, server_config_from_files as tls_config_from_files,
};
pub use crate::listener::transport::{Origins, Transport};
pub use crate::service::auth::{Key, Right, Rights, Rule, RuleScope, Rules, WELL_KNOWN_KEY, WELL_KNOWN_NAME};

use crate::broker::Broker;
use crate::fault::Faults;
use crate::listener::accept::AcceptFailures;
use crate::listener::connection;
use crate::listener::strangers::Strangers;
use crate::listener::throttle::Throttle;
use crate::listener::transport::AcceptError;
use crate::service::condition::{AUTH_FAILED, LIMIT_EXCEEDED, NOT_FOUND, UNAUTHORIZED};

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
    /// How many of them one address may have, unless it is this machine's own. Of IPv6 addresses, those that begin with the
    /// same 64 bits count as one.
    pub address_connections_max: usize,
    /// How long a client may be silent; it is told, and sends empty frames if it has nothing to say.
    pub idle_timeout: Duration,
    /// How long a client may take from its first byte to its open.
    pub handshake_timeout: Duration,
    /// How long a connection may be without a token from its beginning on.
    pub token_timeout: Duration,
    /// The name that clients see.
    pub container_id: String,
    /// Which web pages may open a WebSocket. Default: those of this machine, over loopback.
    pub origins: Origins,
}

impl Default for ServerOptions {
    fn default() -> Self {
        Self {
            auth: Rules::default(),
            credit: 300,
            message_bytes_max: 1 << 20,
            connections_max: 20_000,
            address_connections_max: 10_000,
            idle_timeout: Duration::from_secs(120),
            handshake_timeout: Duration::from_secs(20),
            token_timeout: Duration::from_secs(60),
            container_id: "partita".to_owned(),
            origins: Origins::default(),
        }
    }
}

/// Who is at the other end of a connection, for people to read.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Peer {
    text: String,
    address: Option<IpAddr>,
}

impl Peer {
    /// In words of your own.
    pub fn new(text: impl Into<String>) -> Self {
        Self { text: text.into(), address: None }
    }
}

impl From<SocketAddr> for Peer {
    fn from(address: SocketAddr) -> Self {
        Self { text: address.to_string(), address: Some(address.ip()) }
    }
}

/// The address that a client's counts under: an IPv4 address in IPv6 is itself, and of an IPv6 address the first 64 bits count,
/// for whoever has one of them has them all.
#[doc(hidden)]
pub fn neighbourhood(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V6(ip) if !ip.is_loopback() => {
            IpAddr::V6(Ipv6Addr::from_bits(ip.to_bits() & !u128::from(u64::MAX)))
        }
        other => other,
    }
}

impl fmt::Display for Peer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
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
pub(crate) struct ServerState {
    pub(crate) broker: Arc<Broker>,
    pub(crate) options: ServerOptions,
    pub(crate) faults: Faults,
    course: watch::Sender<Course>,
    connections: Mutex<Connections>,
    /// How many connections there are.
    count: watch::Sender<usize>,
    warnings: Warnings,
    pub(crate) strangers: Arc<Strangers>,
    /// How many connections have ended.
    ended: AtomicU64,
}

/// What strangers can make the server warn of.
#[derive(Debug, Default)]
struct Warnings {
    origin: Throttle,
    full: Throttle,
    /// No valid token.
    access: Throttle,
    /// No such hub or group.
    unknown: Throttle,
    /// More than there may be.
    limit: Throttle,
}

#[derive(Debug, Default)]
struct Connections {
    last: u64,
    infos: BTreeMap<u64, ConnectionInfo>,
    /// How many each address has; those of this machine are not counted.
    of_address: HashMap<IpAddr, usize>,
}

impl ServerState {
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
        let address = peer.address.map(neighbourhood).filter(|address| !address.is_loopback());
        if let Some(address) = address {
            let count = connections.of_address.entry(address).or_default();
            if *count >= self.options.address_connections_max {
                return None;
            }
            *count += 1;
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
        Some(Seat { id, address, trusted: Arc::default(), shared: self.clone() })
    }

    fn came_to_nothing(&self, peer: &Peer, error: &AcceptError) {
        tracing::debug!(%peer, %error, "connection came to nothing");
        // A browser tells its user nothing about it, so the hub does.
        if let AcceptError::Origin(_) = error
            && let Some(unsaid) = self.warnings.origin.pass(std::time::Instant::now())
        {
            tracing::warn!(%peer, unsaid, "{error}");
        }
    }
}

/// A connection's place among those of its server, until it is dropped.
#[derive(Debug)]
pub(crate) struct Seat {
    pub(crate) id: u64,
    /// Where it is counted, if anywhere.
    address: Option<IpAddr>,
    /// Whether it has, or had, a token.
    pub(crate) trusted: Arc<AtomicBool>,
    pub(crate) shared: Arc<ServerState>,
}

impl Seat {
    pub(crate) fn update(&self, change: impl FnOnce(&mut ConnectionInfo)) {
        if let Some(info) = self.shared.connections().infos.get_mut(&self.id) {
            change(info);
        }
    }
}

/// How much of a refusal's words is logged: clients choose some of them.
const SAID_CHARS_MAX: usize = 300;

impl Seat {
    /// Where the client is, and what it calls itself.
    pub(crate) fn client(&self) -> (String, String) {
        let connections = self.shared.connections();
        let info = connections.infos.get(&self.id);
        info.map(|info| (info.peer.clone(), info.container_id.clone())).unwrap_or_default()
    }

    /// Warns of a refusal that whoever runs the hub should know of, now and then. The words are those that the client gets:
    /// they never hold a key or a token.
    pub(crate) fn warn_refused(&self, condition: &str, description: &str) {
        let warnings = &self.shared.warnings;
        let throttle = match condition {
            UNAUTHORIZED | AUTH_FAILED => &warnings.access,
            NOT_FOUND => &warnings.unknown,
            LIMIT_EXCEEDED => &warnings.limit,
            _ => return,
        };
        let Some(unsaid) = throttle.pass(std::time::Instant::now()) else { return };
        let (peer, client) = self.client();
        let tame = |letter: char| if letter.is_control() { '\u{fffd}' } else { letter };
        let said: String = description.chars().take(SAID_CHARS_MAX).map(tame).collect();
        tracing::warn!(peer, client, unsaid, "refused: {said}");
    }
}

impl Drop for Seat {
    fn drop(&mut self) {
        let mut connections = self.shared.connections();
        connections.infos.remove(&self.id);
        if let Some(address) = self.address
            && let Some(count) = connections.of_address.get_mut(&address)
        {
            *count -= 1;
            if *count == 0 {
                connections.of_address.remove(&address);
            }
        }
        self.shared.ended.fetch_add(1, Ordering::Relaxed);
        self.shared.count.send_replace(connections.infos.len());
    }
}

/// Serves a broker's hubs. Clones are the same server.
#[derive(Clone, Debug)]
pub struct Server {
    shared: Arc<ServerState>,
}

impl Server {
    /// A server that has no connections yet.
    pub fn new(broker: Arc<Broker>, options: ServerOptions) -> Self {
        let shared = ServerState {
            broker,
            options,
            faults: Faults::default(),
            course: watch::Sender::new(Course::Running),
            connections: Mutex::default(),
            count: watch::Sender::new(0),
            warnings: Warnings::default(),
            strangers: Arc::default(),
            ended: AtomicU64::new(0),
        };
        Self { shared: Arc::new(shared) }
    }

    /// Accepts connections until the server is shut down. The first words of a client do not hold up others.
    pub async fn listen(&self, listener: TcpListener, transport: Transport) {
        let mut course = self.shared.course();
        let failures = AcceptFailures::default();
        loop {
            let accepted = tokio::select! {
                _ = course.wait_for(|course| *course != Course::Running) => return,
                accepted = listener.accept() => accepted,
            };
            let (stream, address) = match accepted {
                Ok(accepted) => accepted,
                Err(error) => {
                    failures.wait(&error).await;
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
                    stream = transport.accept(stream, &seat.shared.options.origins) => stream,
                };
                match stream {
                    Ok(stream) => {
                        let stream = stream.limited_until(seat.trusted.clone());
                        connection::run(stream, seat, &peer).await;
                    }
                    Err(error) => seat.shared.came_to_nothing(&peer, &error),
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
        if seat.is_none()
            && let Some(unsaid) = self.shared.warnings.full.pass(std::time::Instant::now())
        {
            let ServerOptions { connections_max: max, address_connections_max: of_address, .. } =
                self.shared.options;
            tracing::warn!(
                %peer, max, of_address, unsaid,
                "connection refused: there are too many, of this address or at all, or the server is ending"
            );
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

    /// How many connections have ended so far.
    pub fn ended(&self) -> u64 {
        self.shared.ended.load(Ordering::Relaxed)
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

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn an_address_has_no_more_than_its_part_and_gives_it_back() {
        let options =
            ServerOptions { connections_max: 8, address_connections_max: 2, ..ServerOptions::default() };
        let server = Server::new(Arc::new(Broker::in_memory(16 << 20).expect("opens")), options);
        let come = |address: &str| {
            server.shared.admit(&Peer::from(SocketAddr::new(address.parse().expect("an address"), 7)))
        };
        let mut held = vec![come("192.0.2.1").expect("room"), come("::ffff:192.0.2.1").expect("room")];
        assert!(come("192.0.2.1").is_none(), "the same address in other words");
        held.extend([come("2001:db8::1"), come("2001:db8::2")].map(|seat| seat.expect("room")));
        assert!(come("2001:db8::3").is_none(), "a network of one owner");
        held.extend([come("2001:db8:0:1::1").expect("room")]);
        held.extend((0..3).map(|_| come("127.0.0.1").expect("this machine has no part")));
        assert!(come("127.0.0.1").is_none(), "eight are all");
        held.remove(0);
        assert!(come("192.0.2.1").is_some());
        drop(held);
        assert!(server.shared.connections().of_address.is_empty());
    }
}
