//! What lies between a TCP connection and AMQP: nothing, TLS, a WebSocket, or a WebSocket in TLS.
//!
//! No port is for WebSockets alone. The first byte that a client sends tells what it speaks (`A` of AMQP, `G` of an HTTP
//! upgrade, 22 of a TLS handshake), so one port and one connection string do for every client.

mod client_stream;
pub mod origin;
mod prefixed;
pub mod tls;
mod websocket;

use std::fmt;
use std::io;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

pub use client_stream::ClientStream;
pub use origin::Origins;
use prefixed::Prefixed;
use thiserror::Error;
use tokio::io::AsyncReadExt;
use tokio::net::TcpStream;
use tokio_rustls::{TlsAcceptor, rustls};
pub use websocket::{PATH, SUBPROTOCOL, WebSocket};

/// How long a client may take from its TCP connection to its first byte of AMQP, all handshakes included.
pub const HANDSHAKE_TIME_MAX: Duration = Duration::from_secs(20);

/// The most of a client's first bytes that are read to find out what it speaks.
const FIRST_BYTES_MAX: usize = 1024;

/// What a port speaks. Cheap to clone.
#[derive(Clone, Default)]
pub enum Transport {
    /// AMQP, or a WebSocket.
    #[default]
    Plain,
    /// The same, or TLS with one of them in it.
    PlainOrTls(Arc<rustls::ServerConfig>),
    /// TLS only, with AMQP or a WebSocket in it.
    Tls(Arc<rustls::ServerConfig>),
}

impl fmt::Debug for Transport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Plain => "Plain",
            Self::PlainOrTls(_) => "PlainOrTls",
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
        let config = match self {
            Self::Tls(config) => config,
            Self::Plain | Self::PlainOrTls(_) => {
                let mut first = [0];
                if tcp.peek(&mut first).await? == 0 {
                    return Err(io::Error::from(io::ErrorKind::UnexpectedEof).into());
                }
                match (Speaks::of(first[0]), self) {
                    (Speaks::Amqp, _) => return Ok(ClientStream::Tcp(tcp)),
                    (Speaks::Http, _) => {
                        let door = Door { origins, peer, secure: false };
                        return websocket::upgrade(tcp, Vec::new(), door).await.map(ClientStream::WebSocket);
                    }
                    (Speaks::Tls, Self::PlainOrTls(config)) => config,
                    (Speaks::Tls, _) => return Err(AcceptError::TlsNotServed),
                }
            }
        };
        let mut tls = TlsAcceptor::from(config.clone()).accept(tcp).await.map_err(AcceptError::Tls)?;
        let mut first = Vec::with_capacity(FIRST_BYTES_MAX);
        if tls.read_buf(&mut first).await? == 0 {
            return Err(io::Error::from(io::ErrorKind::UnexpectedEof).into());
        }
        match Speaks::of(first[0]) {
            Speaks::Http => {
                let door = Door { origins, peer, secure: true };
                websocket::upgrade(tls, first, door).await.map(ClientStream::WebSocketTls)
            }
            // TLS in TLS is nobody's habit: AMQP refuses it like any other noise.
            Speaks::Amqp | Speaks::Tls => Ok(ClientStream::Tls(Box::new(Prefixed::new(tls, first)))),
        }
    }
}

/// Where a request for a WebSocket came in, and whose pages may make one.
#[derive(Clone, Copy, Debug)]
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
