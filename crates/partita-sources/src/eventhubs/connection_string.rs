//! Connection strings, of a namespace, of a hub, of the emulator, and of an IoT hub.

use std::fmt;
use std::str::FromStr;

use partita_core::model::{HubName, Namespace};
use thiserror::Error;

use super::Secret;

/// Why a text is no connection string. No value of it is repeated: it may be a key.
#[derive(Clone, PartialEq, Eq, Debug, Error)]
#[non_exhaustive]
pub enum ConnectionStringError {
    /// There is nothing.
    #[error("the connection string is empty: copy it from the portal, or from what `partita serve` prints")]
    Empty,
    /// A part without `=`.
    #[error("part {0} of the connection string is not of the form Name=Value")]
    NotAPair(usize),
    /// The same part twice.
    #[error("the connection string names {0} twice")]
    Twice(&'static str),
    /// A part that must be there.
    #[error("the connection string has no {0}")]
    Missing(&'static str),
    /// The endpoint is not `sb://host[:port]/`.
    #[error("the Endpoint of the connection string is not of the form sb://host/ or sb://host:port/")]
    Endpoint,
    /// Neither key nor signature.
    #[error(
        "the connection string has no credential: it needs SharedAccessKeyName and SharedAccessKey, or SharedAccessSignature"
    )]
    NoCredential,
    /// Key and signature.
    #[error("the connection string has both a SharedAccessKey and a SharedAccessSignature: leave one out")]
    TwoCredentials,
    /// The hub of the connection string is not the one that was asked for.
    #[error(
        "the connection string names the hub '{found}', but '{asked}' was asked for: ask for '{found}', or use the \
         connection string of '{asked}' or of the namespace"
    )]
    OtherHub {
        /// The hub of the connection string.
        found: HubName,
        /// The hub asked for.
        asked: HubName,
    },
    /// No hub at all.
    #[error("the connection string is of a namespace, so say which hub is meant")]
    NoHub,
}

/// Which service a connection string is of.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[non_exhaustive]
pub enum Service {
    /// Event Hubs: in Azure, TLS on port 5671 unless the string says otherwise.
    EventHubs,
    /// The emulator or Partita's hub: plain on port 5672 unless the string says otherwise.
    Emulator,
    /// IoT Hub's built-in endpoint.
    IotHub,
}

/// What proves the right to connect.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum Credential {
    /// A named key; tokens are signed with it.
    Key {
        /// The name of the rule.
        name: String,
        /// The key.
        key: Secret,
    },
    /// A signature made elsewhere. It is not renewed.
    Signature(Secret),
    /// Nothing here: tokens are asked for.
    Tokens,
}

/// Where to connect, and as whom.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ConnectionString {
    service: Service,
    host: String,
    port: Option<u16>,
    hub: Option<HubName>,
    credential: Credential,
}

impl ConnectionString {
    /// Puts one together from its parts.
    pub fn builder(host: impl Into<String>, credential: Credential) -> ConnectionStringBuilder {
        ConnectionStringBuilder(Self {
            service: Service::EventHubs,
            host: host.into(),
            port: None,
            hub: None,
            credential,
        })
    }

    /// The service that it is of.
    pub fn service(&self) -> Service {
        self.service
    }

    /// The host, without a port.
    pub fn host(&self) -> &str {
        &self.host
    }

    /// The port that the string names.
    pub fn port(&self) -> Option<u16> {
        self.port
    }

    /// What its hubs' checkpoints are kept under: host and port, in lower case. Ports that say only how a client connects (5671,
    /// 5672, 443, 80) are left out, so that a hub is the same one in TLS, in plain and in a WebSocket.
    pub fn namespace(&self) -> Namespace {
        let host = self.host.to_lowercase();
        match self.port.filter(|port| !DEFAULT_PORTS.contains(port)) {
            Some(port) => Namespace::new(format!("{host}:{port}")),
            None => Namespace::new(host),
        }
    }

    /// What [`namespace`](Self::namespace) was in versions that left the port out, if that is something else.
    pub fn former_namespace(&self) -> Option<Namespace> {
        let former = Namespace::new(&self.host);
        (former != self.namespace()).then_some(former)
    }

    /// The hub that the string is of, if it is not of a namespace.
    pub fn hub(&self) -> Option<&HubName> {
        self.hub.as_ref()
    }

    /// As whom.
    pub fn credential(&self) -> &Credential {
        &self.credential
    }

    /// The hub that is meant: the one asked for, or the one of the string; they must not differ.
    pub fn resolve_hub(&self, asked: Option<&HubName>) -> Result<HubName, ConnectionStringError> {
        match (&self.hub, asked) {
            (Some(found), Some(asked)) if !found.as_str().eq_ignore_ascii_case(asked.as_str()) => {
                Err(ConnectionStringError::OtherHub { found: found.clone(), asked: asked.clone() })
            }
            (Some(hub), _) | (None, Some(hub)) => Ok(hub.clone()),
            (None, None) => Err(ConnectionStringError::NoHub),
        }
    }
}

/// Ports that are no part of a namespace.
const DEFAULT_PORTS: [u16; 4] = [5671, 5672, 443, 80];

/// Makes a [`ConnectionString`].
#[derive(Clone, Debug)]
pub struct ConnectionStringBuilder(ConnectionString);

impl ConnectionStringBuilder {
    /// Another port than the service's own.
    pub fn port(mut self, port: u16) -> Self {
        self.0.port = Some(port);
        self
    }

    /// Of one hub.
    pub fn hub(mut self, hub: impl Into<HubName>) -> Self {
        self.0.hub = Some(hub.into());
        self
    }

    /// Of another service than Event Hubs in Azure.
    pub fn service(mut self, service: Service) -> Self {
        self.0.service = service;
        self
    }

    /// The connection string.
    pub fn build(self) -> ConnectionString {
        self.0
    }
}

const NAMES: [&str; 7] = [
    "Endpoint",
    "HostName",
    "SharedAccessKeyName",
    "SharedAccessKey",
    "SharedAccessSignature",
    "EntityPath",
    "UseDevelopmentEmulator",
];

/// The known parts of a connection string, each at most once; unknown ones are passed over, as the official clients do.
struct Parts<'a>([Option<&'a str>; NAMES.len()]);

impl<'a> Parts<'a> {
    fn read(text: &'a str) -> Result<Self, ConnectionStringError> {
        let mut found = [None; NAMES.len()];
        let parts = text.split(';').map(str::trim).enumerate().filter(|(_, part)| !part.is_empty());
        for (index, part) in parts {
            // Keys are base64 and end in `=`, so only the first one separates.
            let (name, value) = part.split_once('=').ok_or(ConnectionStringError::NotAPair(index + 1))?;
            let known = NAMES.iter().position(|known| known.eq_ignore_ascii_case(name.trim()));
            if let Some(at) = known
                && found[at].replace(value.trim()).is_some()
            {
                return Err(ConnectionStringError::Twice(NAMES[at]));
            }
        }
        Ok(Self(found))
    }

    fn get(&self, name: &str) -> Option<&'a str> {
        let at = NAMES.iter().position(|known| *known == name)?;
        self.0[at].filter(|value| !value.is_empty())
    }

    fn credential(&self) -> Result<Credential, ConnectionStringError> {
        let name = self.get("SharedAccessKeyName");
        match (name, self.get("SharedAccessKey"), self.get("SharedAccessSignature")) {
            (_, Some(_), Some(_)) => Err(ConnectionStringError::TwoCredentials),
            (Some(name), Some(key), None) => {
                Ok(Credential::Key { name: name.to_owned(), key: Secret::from(key) })
            }
            (None, Some(_), None) => Err(ConnectionStringError::Missing("SharedAccessKeyName")),
            (_, None, Some(signature)) => Ok(Credential::Signature(Secret::from(signature))),
            (Some(_), None, None) => Err(ConnectionStringError::Missing("SharedAccessKey")),
            (None, None, None) => Err(ConnectionStringError::NoCredential),
        }
    }
}

impl FromStr for ConnectionString {
    type Err = ConnectionStringError;

    fn from_str(text: &str) -> Result<Self, ConnectionStringError> {
        if text.trim().is_empty() {
            return Err(ConnectionStringError::Empty);
        }
        let parts = Parts::read(text)?;
        let hub = parts.get("EntityPath").map(HubName::new);
        let (service, host, port) = match (parts.get("Endpoint"), parts.get("HostName")) {
            (None, Some(host)) => (Service::IotHub, host.to_owned(), None),
            (Some(endpoint), _) => {
                let (host, port) = host_and_port(endpoint).ok_or(ConnectionStringError::Endpoint)?;
                let emulator = parts.get("UseDevelopmentEmulator");
                let emulator = emulator.is_some_and(|value| value.eq_ignore_ascii_case("true"));
                let service = if emulator { Service::Emulator } else { Service::EventHubs };
                (service, host.to_owned(), port)
            }
            (None, None) => return Err(ConnectionStringError::Missing("Endpoint")),
        };
        Ok(Self { service, host, port, hub, credential: parts.credential()? })
    }
}

/// Host and port of `sb://host[:port][/]`; an IPv6 address stands in brackets, which are kept.
fn host_and_port(endpoint: &str) -> Option<(&str, Option<u16>)> {
    let (scheme, rest) = endpoint.split_once("://")?;
    if !["sb", "amqp", "amqps"].iter().any(|known| known.eq_ignore_ascii_case(scheme)) {
        return None;
    }
    let authority = rest.trim_end_matches('/');
    let colon = match authority.strip_prefix('[') {
        Some(inner) => {
            let end = inner.find(']')? + 2;
            (end < authority.len()).then_some(end)
        }
        None => authority.find(':'),
    };
    let (host, port) = match colon {
        Some(at) => (&authority[..at], Some(authority[at..].strip_prefix(':')?.parse().ok()?)),
        None => (authority, None),
    };
    let good = !host.is_empty() && !host.contains(['/', '@', '?', '#', ' ']);
    good.then_some((host, port))
}

impl fmt::Display for ConnectionString {
    /// Where it leads, without its credential.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.host)?;
        if let Some(port) = self.port {
            write!(f, ":{port}")?;
        }
        if let Some(hub) = &self.hub {
            write!(f, "/{hub}")?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const KEY: &str = "c2VjcmV0IGtleSBvZiB0aGUgaHViIQ==";

    fn parse(text: &str) -> Result<ConnectionString, ConnectionStringError> {
        text.replace("KEY", KEY).parse()
    }

    #[test]
    fn hubs_of_one_host_have_a_namespace_per_port_and_one_for_all_default_ports() {
        let of = |endpoint: &str| {
            let text = format!("Endpoint={endpoint};SharedAccessKeyName=root;SharedAccessKey=KEY");
            let parsed = parse(&text).expect("a connection string");
            (parsed.namespace().to_string(), parsed.former_namespace().map(|former| former.to_string()))
        };
        assert_eq!(of("sb://localhost:7001"), ("localhost:7001".into(), Some("localhost".into())));
        assert_eq!(of("sb://localhost:7002/"), ("localhost:7002".into(), Some("localhost".into())));
        for same in ["sb://localhost", "sb://localhost:5672", "sb://localhost:5671", "sb://localhost:443"] {
            assert_eq!(of(same), ("localhost".into(), None), "{same}");
        }
        assert_eq!(of("sb://[::1]:7001"), ("[::1]:7001".into(), Some("[::1]".into())));
        assert_eq!(of("sb://NS.example"), ("ns.example".into(), Some("NS.example".into())));
    }

    #[test]
    fn namespace_hub_emulator_and_iot_hub_are_told_apart() {
        let namespace =
            parse("Endpoint=sb://ns.servicebus.windows.net/;SharedAccessKeyName=root;SharedAccessKey=KEY");
        let namespace = namespace.expect("a namespace's");
        assert_eq!(
            (namespace.service(), namespace.host()),
            (Service::EventHubs, "ns.servicebus.windows.net")
        );
        assert_eq!((namespace.port(), namespace.hub()), (None, None));
        let key = Credential::Key { name: "root".into(), key: Secret::from(KEY) };
        assert_eq!(namespace.credential(), &key);

        let hub = parse("Endpoint=sb://ns/;SharedAccessKeyName=r;SharedAccessKey=KEY;EntityPath=homes");
        assert_eq!(hub.expect("a hub's").hub(), Some(&HubName::new("homes")));

        let emulator = "Endpoint=sb://localhost:6000;SharedAccessKeyName=r;SharedAccessKey=KEY;UseDevelopmentEmulator=true;";
        let emulator = parse(emulator).expect("the emulator's");
        assert_eq!((emulator.service(), emulator.port()), (Service::Emulator, Some(6_000)));

        let iot = parse("HostName=h.azure-devices.net;SharedAccessKeyName=service;SharedAccessKey=KEY");
        let iot = iot.expect("an IoT hub's");
        assert_eq!((iot.service(), iot.host()), (Service::IotHub, "h.azure-devices.net"));
    }

    #[test]
    fn a_signature_is_a_credential() {
        let text = "Endpoint=sb://ns/;SharedAccessSignature=SharedAccessSignature sr=a&sig=b%3d&se=1&skn=k";
        let signature = Credential::Signature(Secret::from("SharedAccessSignature sr=a&sig=b%3d&se=1&skn=k"));
        assert_eq!(parse(text).expect("with a signature").credential(), &signature);
    }

    #[test]
    fn the_hub_asked_for_must_be_the_hub_of_the_string() {
        let of_hub =
            parse("Endpoint=sb://ns/;SharedAccessKeyName=r;SharedAccessKey=KEY;EntityPath=Homes").unwrap();
        let (homes, cars) = (HubName::new("homes"), HubName::new("cars"));
        assert_eq!(of_hub.resolve_hub(Some(&homes)), Ok(HubName::new("Homes")));
        let error = of_hub.resolve_hub(Some(&cars)).expect_err("another");
        assert_eq!(
            error.to_string(),
            "the connection string names the hub 'Homes', but 'cars' was asked for: ask for 'Homes', or use the \
             connection string of 'cars' or of the namespace"
        );
        let of_namespace = parse("Endpoint=sb://ns/;SharedAccessKeyName=r;SharedAccessKey=KEY").unwrap();
        assert_eq!(of_namespace.resolve_hub(Some(&cars)), Ok(cars));
        assert_eq!(of_namespace.resolve_hub(None), Err(ConnectionStringError::NoHub));
    }

    #[test]
    fn what_is_wrong_is_said_without_the_key() {
        use ConnectionStringError as E;
        for (text, error) in [
            (" ", E::Empty),
            ("Endpoint=sb://ns/;KEYwithoutname", E::NotAPair(2)),
            ("Endpoint=sb://ns/", E::NoCredential),
            ("Endpoint=sb://ns/;SharedAccessKey=KEY", E::Missing("SharedAccessKeyName")),
            ("Endpoint=sb://ns/;SharedAccessKeyName=r", E::Missing("SharedAccessKey")),
            ("SharedAccessKeyName=r;SharedAccessKey=KEY", E::Missing("Endpoint")),
            ("Endpoint=ns;SharedAccessKeyName=r;SharedAccessKey=KEY", E::Endpoint),
            ("Endpoint=http://ns;SharedAccessKeyName=r;SharedAccessKey=KEY", E::Endpoint),
            ("Endpoint=sb://ns:99999;SharedAccessKeyName=r;SharedAccessKey=KEY", E::Endpoint),
            ("Endpoint=sb://ns/;endpoint=sb://ns/", E::Twice("Endpoint")),
            ("Endpoint=sb://ns/;SharedAccessKey=KEY;SharedAccessSignature=x", E::TwoCredentials),
        ] {
            let text = text.replace("KEYwithoutname", "c2VjcmV0");
            let found = parse(&text).expect_err(&text);
            assert_eq!(found, error, "{text}");
            assert!(!found.to_string().contains("c2Vj"), "{found}");
        }
    }

    #[test]
    fn ports_and_addresses_are_kept() {
        for (endpoint, host, port) in [
            ("sb://localhost", "localhost", None),
            ("sb://localhost/", "localhost", None),
            ("sb://127.0.0.1:5672/", "127.0.0.1", Some(5_672)),
            ("amqps://ns.example:5671", "ns.example", Some(5_671)),
            ("sb://[::1]:5672/", "[::1]", Some(5_672)),
            ("sb://[::1]", "[::1]", None),
        ] {
            assert_eq!(host_and_port(endpoint), Some((host, port)), "{endpoint}");
        }
        for endpoint in
            ["", "sb://", "sb:///", "sb://a/b", "sb://u@h", "sb://[::1", "sb://[::1]5672", "sb://h:"]
        {
            assert_eq!(host_and_port(endpoint), None, "{endpoint}");
        }
    }

    #[test]
    fn debug_and_display_hide_the_key() {
        let text =
            parse("Endpoint=sb://ns:1/;SharedAccessKeyName=r;SharedAccessKey=KEY;EntityPath=h").unwrap();
        assert!(!format!("{text:?} {text}").contains(KEY), "{text:?}");
        assert_eq!(text.to_string(), "ns:1/h");
        let key = Credential::Key { name: "r".into(), key: Secret::from(KEY) };
        let built = ConnectionString::builder("ns", key).port(1).hub("h");
        assert!(!format!("{built:?}").contains(KEY), "{built:?}");
        assert_eq!(built.build(), text);
    }

    proptest! {
        #[test]
        fn any_text_is_read_or_refused(text in ".{0,80}") {
            let _ = text.parse::<ConnectionString>();
        }
    }
}
