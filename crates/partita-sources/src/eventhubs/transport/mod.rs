//! How the bytes of AMQP travel to a hub: over TCP, in TLS, in a WebSocket, through a proxy.

use std::fmt;
use std::io;
use std::pin::Pin;

use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;

use super::EventHubsError;

mod proxy;
#[cfg(feature = "tls")]
pub(crate) mod tls;

pub(crate) use proxy::Proxy;

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
    pub(crate) websocket: bool,
}

impl fmt::Display for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.host.contains(':') {
            true => write!(f, "[{}]:{}", self.host, self.port),
            false => write!(f, "{}:{}", self.host, self.port),
        }
    }
}

/// Whom to trust where there is TLS, and whom to go through.
#[derive(Clone, Debug, Default)]
pub(crate) struct Path {
    #[cfg(feature = "tls")]
    pub(crate) tls: Option<tls::Client>,
    pub(crate) proxy: Option<Proxy>,
}

/// Connects. `name` is the one that the hub's certificate has.
pub(crate) async fn dial(endpoint: &Endpoint, name: &str, path: &Path) -> Result<BoxStream, EventHubsError> {
    let tcp = match &path.proxy {
        None => connect("hub", &endpoint.host, endpoint.port).await?,
        Some(proxy) => {
            let mut tcp = connect("proxy", &proxy.host, proxy.port).await?;
            proxy.pass(&mut tcp, endpoint).await?;
            tcp
        }
    };
    let stream: BoxStream = match endpoint.tls {
        true => secure(endpoint, path, tcp).await?,
        false => Box::pin(tcp),
    };
    match endpoint.websocket {
        true => upgrade(endpoint, name, stream).await,
        false => Ok(stream),
    }
}

async fn connect(what: &str, host: &str, port: u16) -> Result<TcpStream, EventHubsError> {
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
    Err(EventHubsError::retriable(format!(
        "cannot connect to {host}:{port}: is the {what} running? ({error})"
    )))
}

#[cfg(feature = "tls")]
async fn secure(endpoint: &Endpoint, path: &Path, tcp: TcpStream) -> Result<BoxStream, EventHubsError> {
    let client = path.tls.clone().map_or_else(tls::Client::of_platform, Ok)?;
    client.connect(&endpoint.host, tcp).await
}

#[cfg(not(feature = "tls"))]
async fn secure(endpoint: &Endpoint, _: &Path, _: TcpStream) -> Result<BoxStream, EventHubsError> {
    Err(left_out(endpoint, "TLS", "tls"))
}

#[cfg(feature = "websocket")]
async fn upgrade(endpoint: &Endpoint, name: &str, stream: BoxStream) -> Result<BoxStream, EventHubsError> {
    use partita_amqp::driver::websocket::WebSocket;
    let socket = WebSocket::client(stream, name, endpoint.tls).await;
    let socket = socket
        .map_err(|error| EventHubsError::of_io(&format!("{endpoint} gives us no WebSocket"), &error))?;
    Ok(Box::pin(socket))
}

#[cfg(not(feature = "websocket"))]
async fn upgrade(endpoint: &Endpoint, _: &str, _: BoxStream) -> Result<BoxStream, EventHubsError> {
    Err(left_out(endpoint, "a WebSocket", "websocket"))
}

#[cfg(not(all(feature = "tls", feature = "websocket")))]
fn left_out(endpoint: &Endpoint, what: &str, feature: &str) -> EventHubsError {
    let text = format!(
        "{endpoint} needs {what}, which was left out of this program: build it with the feature `{feature}`"
    );
    EventHubsError::fatal(text)
}
