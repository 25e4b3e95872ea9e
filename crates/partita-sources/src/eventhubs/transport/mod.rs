//! How the bytes of AMQP travel to a hub: over TCP, in TLS, in a WebSocket, through a proxy.

use std::fmt;
use std::io;
use std::pin::Pin;

use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;

use super::EventHubsError;

#[cfg(feature = "tls")]
pub(crate) mod tls;

/// A stream of any kind.
pub(crate) trait Stream: AsyncRead + AsyncWrite + Send + Unpin {}

impl<S: AsyncRead + AsyncWrite + Send + Unpin> Stream for S {}

pub(crate) type BoxStream = Pin<Box<dyn Stream>>;

/// Where a hub listens, and in what the bytes are wrapped.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Endpoint {
    /// Without brackets around an IPv6 address.
    pub(crate) host: String,
    pub(crate) port: u16,
    pub(crate) tls: bool,
}

impl fmt::Display for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.host.contains(':') {
            true => write!(f, "[{}]:{}", self.host, self.port),
            false => write!(f, "{}:{}", self.host, self.port),
        }
    }
}

/// What TLS needs, where there is TLS.
#[derive(Clone, Debug, Default)]
pub(crate) struct Trust {
    #[cfg(feature = "tls")]
    pub(crate) tls: Option<tls::Client>,
}

/// Connects.
pub(crate) async fn dial(endpoint: &Endpoint, trust: &Trust) -> Result<BoxStream, EventHubsError> {
    let tcp = connect(&endpoint.host, endpoint.port).await?;
    if !endpoint.tls {
        return Ok(Box::pin(tcp));
    }
    secure(endpoint, trust, tcp).await
}

async fn connect(host: &str, port: u16) -> Result<TcpStream, EventHubsError> {
    let addresses = tokio::net::lookup_host((host, port)).await.map_err(|error| {
        let text = format!("the host '{host}' is not found: check its name, and the network ({error})");
        EventHubsError::retriable(text)
    })?;
    let mut last = None;
    for address in addresses {
        match TcpStream::connect(address).await {
            Ok(tcp) => {
                // Small frames wait for nothing; the writer batches by itself.
                let _ = tcp.set_nodelay(true);
                return Ok(tcp);
            }
            Err(error) => last = Some(error),
        }
    }
    let error = last.unwrap_or_else(|| io::Error::other("its name has no address"));
    Err(EventHubsError::retriable(format!("nobody answers at {host}:{port}: is the hub running? ({error})")))
}

#[cfg(feature = "tls")]
async fn secure(endpoint: &Endpoint, trust: &Trust, tcp: TcpStream) -> Result<BoxStream, EventHubsError> {
    let client = trust.tls.clone().map_or_else(tls::Client::of_platform, Ok)?;
    client.connect(&endpoint.host, tcp).await
}

#[cfg(not(feature = "tls"))]
async fn secure(endpoint: &Endpoint, _: &Trust, _: TcpStream) -> Result<BoxStream, EventHubsError> {
    let text = format!("{endpoint} needs TLS, which was left out of this program: build it with the feature `tls`");
    Err(EventHubsError::fatal(text))
}
