//! What there is to choose about a hub elsewhere, and the client that comes of it.

use std::sync::Arc;
use std::time::Duration;

use partita_core::model::{HubName, PartitionId};
use thiserror::Error;

use super::auth::{Authorization, TokenSource};
use super::client::{Client, Config};
use super::management::{self, HubProperties, PartitionProperties};
use super::producer::{BufferedProducerBuilder, OUTSTANDING_BYTES_MAX, Producer};
use super::transport::{Endpoint, Path, Proxy};
use super::{ConnectionString, ConnectionStringError, Credential, EventHubsError, EventHubsSource, Service};

/// Why a client cannot be made.
#[derive(Clone, Debug, Error)]
#[non_exhaustive]
pub enum BuildError {
    /// The connection string does not do.
    #[error(transparent)]
    ConnectionString(#[from] ConnectionStringError),
    /// The custom endpoint cannot be read.
    #[error("the endpoint '{0}' is not of the form amqp://host:port, with amqp, amqps, ws or wss")]
    Endpoint(String),
    /// The proxy cannot be read. It is not repeated: it may hold a password.
    #[error("the proxy is not of the form http://host:port or http://user:password@host:port")]
    Proxy,
    /// Nothing says who connects.
    #[error("there is no credential for the hub: give one, or a connection string that has one")]
    NoCredential,
    /// Where an IoT hub keeps its events is known only after it was asked.
    #[error(
        "the connection string is of an IoT hub, which has to be asked where its events are: use `EventHubs::builder(..).connect().await`"
    )]
    IotHub,
    /// Something else does not do.
    #[error(transparent)]
    Other(#[from] EventHubsError),
}

/// A remote hub: an event source, and where producers come from.
///
/// There is one connection for all that is done with it, made when it is first needed, and further ones where readers
/// and producers have more than 1,000 links. Clones share them. Connections run on threads of their own, so a client may be
/// used from several runtimes, and none of them has to outlive the others.
#[derive(Clone, Debug)]
pub struct EventHubs {
    client: Client,
}

impl EventHubs {
    /// The hub `hub` at the namespace of a connection string. If the connection string names a hub, it must be the same
    /// one. Nothing is connected yet.
    pub fn connect(connection_string: &str, hub: impl Into<HubName>) -> Result<Self, BuildError> {
        Self::builder(&connection_string.parse()?).hub(hub).build()
    }

    /// The hub that a connection string names.
    pub fn new(connection: &ConnectionString) -> Result<Self, BuildError> {
        Self::builder(connection).build()
    }

    /// The same with choices.
    pub fn builder(connection: &ConnectionString) -> EventHubsBuilder {
        EventHubsBuilder {
            connection: connection.clone(),
            hub: None,
            endpoint: None,
            websocket: false,
            proxy: None,
            roots: None,
            tokens: None,
            identifier: None,
            connect_time_max: Duration::from_secs(15),
            request_time_max: Duration::from_secs(30),
            token_lifetime: Duration::from_secs(60 * 60),
            idle_timeout: Duration::from_secs(60),
        }
    }

    /// A hub of a namespace such as `contoso.servicebus.windows.net`, for tokens that are asked for.
    pub fn in_namespace(host: impl Into<String>, hub: impl Into<HubName>) -> EventHubsBuilder {
        Self::builder(&ConnectionString::builder(host, Credential::Tokens).hub(hub).build())
    }

    /// Reads it. A client is a source itself, too: this one is for those who keep sources apart.
    pub fn source(&self) -> EventHubsSource {
        EventHubsSource::new(self.client.clone())
    }

    /// Sends to it, with at most [`OUTSTANDING_BYTES_MAX`] under way.
    pub fn producer(&self) -> Producer {
        Producer::new(self.client.clone(), OUTSTANDING_BYTES_MAX, false)
    }

    /// The same, with events that are numbered, so that the hub takes none twice when an answer was lost.
    pub fn idempotent_producer(&self) -> Producer {
        Producer::new(self.client.clone(), OUTSTANDING_BYTES_MAX, true)
    }

    /// Sends to it events that are handed over one by one, in batches.
    pub fn buffered_producer(&self) -> BufferedProducerBuilder {
        BufferedProducerBuilder::new(self.client.clone())
    }

    /// What the hub says about itself.
    pub async fn properties(&self) -> Result<HubProperties, EventHubsError> {
        management::hub(&self.client).await
    }

    /// What the hub says about one of its partitions.
    pub async fn partition(&self, partition: &PartitionId) -> Result<PartitionProperties, EventHubsError> {
        management::partition(&self.client, partition).await
    }

    /// The hub's name.
    pub fn hub(&self) -> &HubName {
        &self.client.config().hub
    }
}

/// Makes [`EventHubs`].
#[derive(Clone)]
pub struct EventHubsBuilder {
    connection: ConnectionString,
    hub: Option<HubName>,
    endpoint: Option<String>,
    websocket: bool,
    proxy: Option<String>,
    roots: Option<Vec<u8>>,
    tokens: Option<Arc<dyn TokenSource>>,
    identifier: Option<String>,
    connect_time_max: Duration,
    request_time_max: Duration,
    token_lifetime: Duration,
    idle_timeout: Duration,
}

impl std::fmt::Debug for EventHubsBuilder {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("EventHubsBuilder")
            .field("connection", &self.connection)
            .field("hub", &self.hub)
            .field("endpoint", &self.endpoint)
            .finish_non_exhaustive()
    }
}

impl EventHubsBuilder {
    /// Which hub of the namespace. It must be the connection string's, if that names one.
    pub fn hub(mut self, hub: impl Into<HubName>) -> Self {
        self.hub = Some(hub.into());
        self
    }

    /// Connects to another place than the connection string's, which the hub is still known by: `amqp://host:port` or, in
    /// TLS, `amqps://host:port`; in a WebSocket `ws` and `wss`.
    pub fn endpoint(mut self, endpoint: impl Into<String>) -> Self {
        self.endpoint = Some(endpoint.into());
        self
    }

    /// Connects in a WebSocket, for networks that let only HTTPS through: port 443, unless the connection string says
    /// otherwise or it is the emulator's.
    #[cfg(feature = "websocket")]
    pub fn websocket(mut self) -> Self {
        self.websocket = true;
        self
    }

    /// Connects through an HTTP proxy: `http://host:port` or `http://user:password@host:port`.
    pub fn proxy(mut self, proxy: impl Into<String>) -> Self {
        self.proxy = Some(proxy.into());
        self
    }

    /// Trusts only these certificates, in PEM form, instead of the platform's.
    #[cfg(feature = "tls")]
    pub fn roots(mut self, pem: impl Into<Vec<u8>>) -> Self {
        self.roots = Some(pem.into());
        self
    }

    /// Asks for tokens instead of using the connection string's credential.
    pub fn tokens(mut self, tokens: Arc<dyn TokenSource>) -> Self {
        self.tokens = Some(tokens);
        self
    }

    /// Asks a credential of the Azure SDK for tokens, instead of using the connection string's.
    #[cfg(feature = "entra")]
    pub fn credential(self, credential: Arc<dyn azure_core::credentials::TokenCredential>) -> Self {
        self.tokens(Arc::new(super::entra::Entra(credential)))
    }

    /// What this client is called in the hub's logs.
    pub fn identifier(mut self, identifier: impl Into<String>) -> Self {
        self.identifier = Some(identifier.into());
        self
    }

    /// How long connecting may take, all handshakes included; 15 s if nothing is said.
    pub fn connect_time_max(mut self, time: Duration) -> Self {
        self.connect_time_max = time;
        self
    }

    /// How long the hub may take to answer; 30 s if nothing is said.
    pub fn request_time_max(mut self, time: Duration) -> Self {
        self.request_time_max = time;
        self
    }

    /// For how long the tokens are that are signed here; one hour if nothing is said. They are replaced after three quarters
    /// of that.
    pub fn token_lifetime(mut self, lifetime: Duration) -> Self {
        self.token_lifetime = lifetime;
        self
    }

    /// How long the hub may be silent before it counts as gone; a minute if nothing is said.
    pub fn idle_timeout(mut self, time: Duration) -> Self {
        self.idle_timeout = time;
        self
    }

    /// The client, of an IoT hub, too: that one is asked where its events are, and the client reads them there. If the IoT hub
    /// moves them, as in a failover, make another client.
    ///
    /// What is said of the [`endpoint`](Self::endpoint) holds for the IoT hub itself.
    pub async fn connect(mut self) -> Result<EventHubs, BuildError> {
        if self.connection.service() != Service::IotHub {
            return self.build();
        }
        let endpoint = match self.endpoint.take() {
            Some(text) => custom_endpoint(&text).ok_or(BuildError::Endpoint(text))?,
            None => endpoint_of(&self.connection, self.websocket),
        };
        let path = self.path()?;
        let identifier = self.identifier.clone().unwrap_or_else(identifier);
        let time = self.connect_time_max;
        let redirected = super::iothub::redirected(&self.connection, &endpoint, &path, &identifier);
        self.connection = tokio::time::timeout(time, redirected).await.unwrap_or_else(|_| {
            let text = format!("the IoT hub at {endpoint} did not answer within {time:?}");
            Err(EventHubsError::retriable(text))
        })?;
        self.build()
    }

    fn path(&self) -> Result<Path, BuildError> {
        let mut path = path(self.roots.as_deref())?;
        if let Some(proxy) = &self.proxy {
            path.proxy = Some(Proxy::parse(proxy).ok_or(BuildError::Proxy)?);
        }
        Ok(path)
    }

    /// The client. Nothing is connected yet.
    pub fn build(self) -> Result<EventHubs, BuildError> {
        if self.connection.service() == Service::IotHub {
            return Err(BuildError::IotHub);
        }
        let path = self.path()?;
        let hub = self.connection.resolve_hub(self.hub.as_ref())?;
        let endpoint = match &self.endpoint {
            Some(text) => custom_endpoint(text).ok_or_else(|| BuildError::Endpoint(text.clone()))?,
            None => endpoint_of(&self.connection, self.websocket),
        };
        let authorization = match self.tokens {
            Some(tokens) => Authorization::Tokens(tokens),
            None if *self.connection.credential() == Credential::Tokens => {
                return Err(BuildError::NoCredential);
            }
            None => Authorization::Shared(self.connection.credential().clone()),
        };
        let identifier = self.identifier.unwrap_or_else(identifier);
        let client = Client::new(Config {
            endpoint,
            path,
            host: self.connection.host().to_owned(),
            namespace: self.connection.namespace(),
            former_namespace: self.connection.former_namespace(),
            hub,
            authorization,
            identifier: identifier.into(),
            connect_time_max: self.connect_time_max,
            request_time_max: self.request_time_max,
            token_lifetime: self.token_lifetime,
            idle_timeout: self.idle_timeout,
        });
        Ok(EventHubs { client })
    }
}

#[cfg(feature = "tls")]
fn path(roots: Option<&[u8]>) -> Result<Path, EventHubsError> {
    Ok(Path { tls: roots.map(super::transport::tls::Client::of_roots).transpose()?, proxy: None })
}

#[cfg(not(feature = "tls"))]
fn path(_: Option<&[u8]>) -> Result<Path, EventHubsError> {
    Ok(Path::default())
}

fn identifier() -> String {
    format!("partita-{:016x}", fastrand::u64(..))
}

const AMQP_PORT: u16 = 5672;
const AMQPS_PORT: u16 = 5671;
const HTTP_PORT: u16 = 80;
const HTTPS_PORT: u16 = 443;

fn endpoint_of(connection: &ConnectionString, websocket: bool) -> Endpoint {
    let tls = connection.service() != Service::Emulator;
    let port = match (connection.port(), tls, websocket) {
        (Some(port), ..) => port,
        (None, true, true) => HTTPS_PORT,
        (None, true, false) => AMQPS_PORT,
        // One port for both.
        (None, false, _) => AMQP_PORT,
    };
    Endpoint { host: without_brackets(connection.host()), port, tls, websocket }
}

fn custom_endpoint(text: &str) -> Option<Endpoint> {
    let (scheme, rest) = text.split_once("://")?;
    let (tls, websocket, default) = match scheme {
        "amqp" => (false, false, AMQP_PORT),
        "amqps" => (true, false, AMQPS_PORT),
        "ws" => (false, true, HTTP_PORT),
        "wss" => (true, true, HTTPS_PORT),
        _ => return None,
    };
    let rest = rest.trim_end_matches('/');
    let (host, port) = match rest.rsplit_once(':') {
        Some((host, port)) if !port.ends_with(']') => (host, port.parse().ok()?),
        _ => (rest, default),
    };
    let good = !host.is_empty() && !host.contains(['/', '@', '?', '#', ' ']);
    good.then(|| Endpoint { host: without_brackets(host), port, tls, websocket })
}

fn without_brackets(host: &str) -> String {
    host.trim_start_matches('[').trim_end_matches(']').to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn endpoint(host: &str, port: u16, tls: bool) -> Endpoint {
        Endpoint { host: host.into(), port, tls, websocket: false }
    }

    #[test]
    fn the_service_and_the_string_say_where_to_connect() {
        let key = "SharedAccessKeyName=r;SharedAccessKey=k";
        for (text, expected) in [
            (format!("Endpoint=sb://ns.example/;{key}"), endpoint("ns.example", 5671, true)),
            (
                format!("Endpoint=sb://localhost;{key};UseDevelopmentEmulator=true"),
                endpoint("localhost", 5672, false),
            ),
            (
                format!("Endpoint=sb://[::1]:7000;{key};UseDevelopmentEmulator=true"),
                endpoint("::1", 7000, false),
            ),
        ] {
            assert_eq!(endpoint_of(&text.parse().expect("a connection string"), false), expected);
        }
    }

    #[test]
    fn the_hub_asked_for_and_the_connection_string_s_must_agree() {
        let namespace = "Endpoint=sb://ns.example/;SharedAccessKeyName=r;SharedAccessKey=k";
        let homes = format!("{namespace};EntityPath=Homes");
        assert_eq!(EventHubs::connect(namespace, "eh1").expect("of the namespace").hub().as_str(), "eh1");
        assert_eq!(EventHubs::connect(&homes, "homes").expect("the same hub").hub().as_str(), "Homes");
        let error = EventHubs::connect(&homes, "cars").expect_err("another hub");
        let expected = "the connection string names the hub 'Homes', but 'cars' was asked for: ask for 'Homes', or use \
                        the connection string of 'cars' or of the namespace";
        assert_eq!(error.to_string(), expected);
        let error =
            EventHubs::connect("HostName=h.azure-devices.net;SharedAccessKeyName=s;SharedAccessKey=k", "h");
        assert!(matches!(error, Err(BuildError::IotHub)), "{error:?}");
    }

    #[test]
    fn custom_endpoints_are_read_or_refused() {
        for (text, expected) in [
            ("amqp://localhost:7000", Some(endpoint("localhost", 7000, false))),
            ("wss://h", Some(Endpoint { websocket: true, ..endpoint("h", 443, true) })),
            ("amqps://localhost/", Some(endpoint("localhost", 5671, true))),
            ("amqp://[::1]", Some(endpoint("::1", 5672, false))),
            ("amqp://[::1]:1", Some(endpoint("::1", 1, false))),
            ("http://localhost", None),
            ("localhost:5672", None),
            ("amqp://", None),
            ("amqp://h:x", None),
        ] {
            assert_eq!(custom_endpoint(text), expected, "{text}");
        }
    }
}
