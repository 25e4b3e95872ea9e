//! What lies between a TCP connection and AMQP: nothing, TLS, a WebSocket, or a WebSocket in TLS.
//!
//! No port is for WebSockets alone. The first byte that a client sends tells what it speaks (`A` of AMQP, `G` of an HTTP
//! upgrade, 22 of a TLS handshake), so one port and one connection string do for every client.

mod client_stream;
#[cfg_attr(not(feature = "websocket"), allow(dead_code))] // Only requests for WebSockets have an origin.
pub mod origin;
#[cfg(feature = "tls")]
mod prefixed;
#[cfg(feature = "tls")]
pub mod tls;
#[cfg(feature = "websocket")]
mod websocket;

use std::fmt;
use std::io;
use std::net::IpAddr;
#[cfg(feature = "tls")]
use std::sync::Arc;
use std::time::Duration;

pub use client_stream::ClientStream;
pub use origin::Origins;
use thiserror::Error;
use tokio::net::TcpStream;
#[cfg(feature = "tls")]
use tokio_rustls::rustls;
#[cfg(feature = "websocket")]
pub use websocket::{PATH, SUBPROTOCOL, WebSocket};

/// How long a client may take from its TCP connection to its first byte of AMQP, all handshakes included.
pub const HANDSHAKE_TIME_MAX: Duration = Duration::from_secs(20);

/// The most of a client's first bytes that are read to find out what it speaks.
#[cfg(feature = "tls")]
const FIRST_BYTES_MAX: usize = 1024;

/// What a port speaks. Cheap to clone.
#[derive(Clone, Default)]
#[non_exhaustive]
pub enum Transport {
    /// AMQP or, with feature `websocket`, a WebSocket.
    #[default]
    Plain,
    /// The same, or TLS with one of them in it.
    #[cfg(feature = "tls")]
    PlainOrTls(Arc<rustls::ServerConfig>),
    /// TLS only, with AMQP or a WebSocket in it.
    #[cfg(feature = "tls")]
    Tls(Arc<rustls::ServerConfig>),
}

impl fmt::Debug for Transport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Plain => "Plain",
            #[cfg(feature = "tls")]
            Self::PlainOrTls(_) => "PlainOrTls",
            #[cfg(feature = "tls")]
            Self::Tls(_) => "Tls",
        })
    }
}

/// Why a connection came to nothing before AMQP began.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum AcceptError {
    /// Nothing, or not enough, came in time.
    #[error("the client did not finish its handshake within {} s", HANDSHAKE_TIME_MAX.as_secs())]
    TimedOut,
    /// It went away.
    #[error("the connection ended before AMQP began: {0}")]
    Io(#[from] io::Error),
    /// TLS was not agreed upon; a client that does not trust the certificate ends here.
    #[error("the TLS handshake failed: {0}")]
    Tls(io::Error),
    /// A TLS client on a port without a certificate.
    #[error(
        "a TLS client came to a port without TLS: give the hub a certificate, or the client the emulator's flag"
    )]
    TlsNotServed,
    /// An HTTP request that is no WebSocket for AMQP.
    #[error("an HTTP request came that does not ask for an AMQP WebSocket: {0}")]
    NotAWebSocket(&'static str),
    /// A web page that may not.
    #[error("a WebSocket was refused: {}", origin::why_refused(.0))]
    Origin(String),
}

impl Transport {
    /// Finds out what the client speaks and does the handshakes, within [`HANDSHAKE_TIME_MAX`]. Pages of browsers must be
    /// of one of the origins.
    pub async fn accept(&self, tcp: TcpStream, origins: &Origins) -> Result<ClientStream, AcceptError> {
        match tokio::time::timeout(HANDSHAKE_TIME_MAX, self.handshakes(tcp, origins)).await {
            Ok(done) => done,
            Err(_) => Err(AcceptError::TimedOut),
        }
    }

    async fn handshakes(&self, tcp: TcpStream, origins: &Origins) -> Result<ClientStream, AcceptError> {
        let peer = tcp.peer_addr()?.ip();
        // Small frames wait for nothing; the writer batches by itself.
        tcp.set_nodelay(true)?;
        match self.speaks(&tcp).await? {
            Speaks::Amqp => Ok(ClientStream::Tcp(tcp)),
            Speaks::Http => upgrade(tcp, Door { origins, peer, secure: false }).await,
            Speaks::Tls => self.in_tls(tcp, Door { origins, peer, secure: true }).await,
        }
    }

    async fn speaks(&self, tcp: &TcpStream) -> io::Result<Speaks> {
        #[cfg(feature = "tls")]
        if let Self::Tls(_) = self {
            return Ok(Speaks::Tls);
        }
        let mut first = [0];
        if tcp.peek(&mut first).await? == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        Ok(Speaks::of(first[0]))
    }

    #[cfg(feature = "tls")]
    async fn in_tls(&self, tcp: TcpStream, door: Door<'_>) -> Result<ClientStream, AcceptError> {
        use tokio::io::AsyncReadExt;

        let (Self::PlainOrTls(config) | Self::Tls(config)) = self else {
            return Err(AcceptError::TlsNotServed);
        };
        let acceptor = tokio_rustls::TlsAcceptor::from(config.clone());
        let mut tls = acceptor.accept(tcp).await.map_err(AcceptError::Tls)?;
        let mut first = Vec::with_capacity(FIRST_BYTES_MAX);
        if tls.read_buf(&mut first).await? == 0 {
            return Err(io::Error::from(io::ErrorKind::UnexpectedEof).into());
        }
        match Speaks::of(first[0]) {
            Speaks::Http => upgrade_in_tls(tls, first, door).await,
            // TLS in TLS is nobody's habit: AMQP refuses it like any other noise.
            Speaks::Amqp | Speaks::Tls => {
                Ok(ClientStream::Tls(Box::new(prefixed::Prefixed::new(tls, first))))
            }
        }
    }

    #[cfg(not(feature = "tls"))]
    async fn in_tls(&self, _: TcpStream, _: Door<'_>) -> Result<ClientStream, AcceptError> {
        Err(AcceptError::TlsNotServed)
    }
}

#[cfg(feature = "websocket")]
async fn upgrade(tcp: TcpStream, door: Door<'_>) -> Result<ClientStream, AcceptError> {
    websocket::upgrade(tcp, Vec::new(), door).await.map(ClientStream::WebSocket)
}

#[cfg(not(feature = "websocket"))]
async fn upgrade(_: TcpStream, _: Door<'_>) -> Result<ClientStream, AcceptError> {
    Err(NO_WEBSOCKETS)
}

#[cfg(all(feature = "tls", feature = "websocket"))]
async fn upgrade_in_tls(
    tls: tokio_rustls::server::TlsStream<TcpStream>,
    first: Vec<u8>,
    door: Door<'_>,
) -> Result<ClientStream, AcceptError> {
    websocket::upgrade(tls, first, door).await.map(ClientStream::WebSocketTls)
}

#[cfg(all(feature = "tls", not(feature = "websocket")))]
async fn upgrade_in_tls(
    _: tokio_rustls::server::TlsStream<TcpStream>,
    _: Vec<u8>,
    _: Door<'_>,
) -> Result<ClientStream, AcceptError> {
    Err(NO_WEBSOCKETS)
}

#[cfg(not(feature = "websocket"))]
const NO_WEBSOCKETS: AcceptError = AcceptError::NotAWebSocket("this hub was built without WebSockets");

/// Where a request for a WebSocket came in, and whose pages may make one.
#[derive(Clone, Copy, Debug)]
#[cfg_attr(not(feature = "websocket"), allow(dead_code))]
struct Door<'a> {
    origins: &'a Origins,
    peer: IpAddr,
    secure: bool,
}

/// What a client speaks, by the first byte it sends.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Speaks {
    /// Or noise, which AMQP refuses in AMQP's words.
    Amqp,
    Http,
    Tls,
}

impl Speaks {
    fn of(first: u8) -> Self {
        match first {
            b'G' => Self::Http,
            22 => Self::Tls,
            _ => Self::Amqp,
        }
    }
}
