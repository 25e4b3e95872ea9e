//! Where the built-in endpoint of an IoT hub is. The IoT hub is asked in its own way, as public samples show it, and answers by
//! turning us away to an Event Hubs namespace: a receiver on its management node is detached with `amqp:link:redirect`.

use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use partita_amqp::connection::{Connection, Event, Options};
use partita_amqp::driver::{Driver, now};
use partita_amqp::performative::{self, Attach, condition};
use partita_amqp::sasl;
use partita_core::model::{HubName, Timestamp, Value};
use partita_core::source::SourceErrorKind;
use partita_dialect::sas;

use super::transport::{self, Endpoint, Path};
use super::{ConnectionString, Credential, EventHubsError, Service};

/// For how long the token is that the IoT hub is shown: it is needed once.
const TOKEN_TIME: Duration = Duration::from_secs(5 * 60);

/// How long the IoT hub may take to hang up after we did.
const HANG_UP_TIME_MAX: Duration = Duration::from_secs(2);

/// Asks the IoT hub of a connection string for its built-in endpoint; the answer is a connection string of Event Hubs, with the
/// same rule and key.
pub(super) async fn redirected(
    iot_hub: &ConnectionString,
    endpoint: &Endpoint,
    path: &Path,
    identifier: &str,
) -> Result<ConnectionString, EventHubsError> {
    let host = iot_hub.host();
    let user = user(iot_hub)?;
    let password = password(iot_hub, Timestamp::now())?;
    let stream = transport::dial(endpoint, host, path).await?;
    let options = Options { hostname: Some(host.into()), ..Options::new(identifier) };
    let mut connection = Connection::connect(options, sasl::Client::plain(user, password), now());
    let full = || EventHubsError::fatal("the connection takes no link");
    let session = connection.begin().ok_or_else(full)?;
    let address = format!("amqps://{host}/messages/events/$management");
    connection.attach(session, Attach::receiver(format!("{identifier}-where"), &address)).ok_or_else(full)?;
    let mut driver = Driver::new(stream, connection);
    let answer = answer(&mut driver, host).await;
    driver.connection().close(None);
    // The answer is there; how the connection ends does not matter.
    tokio::spawn(async move { driver.finish(HANG_UP_TIME_MAX).await });
    let EventHubsEndpoint { host, port, hub } = answer?;
    let mut found = ConnectionString::builder(host, iot_hub.credential().clone())
        .service(Service::EventHubs)
        .hub(HubName::new(hub));
    if let Some(port) = port {
        found = found.port(port);
    }
    Ok(found.build())
}

async fn answer<S>(driver: &mut Driver<S>, host: &str) -> Result<EventHubsEndpoint, EventHubsError>
where
    S: tokio::io::AsyncRead + tokio::io::AsyncWrite + Unpin,
{
    let lost =
        |error| EventHubsError::of_io(&format!("the connection to the IoT hub {host} was lost"), &error);
    while let Some(event) = driver.event().await.map_err(lost)? {
        let error = match event {
            Event::Detached { error, .. } | Event::Ended { error, .. } => error,
            Event::Closed { error, by_peer } => {
                let refused = error.as_ref().is_some_and(|e| *e.condition == *condition::UNAUTHORIZED_ACCESS);
                if refused && !by_peer {
                    let text = format!(
                        "the IoT hub {host} refuses the rule or its key: check both, and that the rule may connect as a service"
                    );
                    return Err(EventHubsError::fatal(text));
                }
                error
            }
            _ => continue,
        };
        return match &error {
            Some(error) if *error.condition == *condition::LINK_REDIRECT => EventHubsEndpoint::of(error)
                .ok_or_else(|| {
                    EventHubsError::fatal(format!("the IoT hub {host} does not say where its events are"))
                }),
            error => {
                let error =
                    EventHubsError::of_peer(&format!("the link to the IoT hub {host}"), error.as_ref());
                // Nobody has taken anything from anybody here.
                let kind = match error.kind() {
                    SourceErrorKind::OwnershipLost | SourceErrorKind::PositionGone => SourceErrorKind::Fatal,
                    kind => kind,
                };
                Err(error.with_kind(kind))
            }
        };
    }
    Err(EventHubsError::retriable(format!("the IoT hub {host} hung up")))
}

/// As whom: a rule of the IoT hub, which is known by the first part of its host's name.
fn user(iot_hub: &ConnectionString) -> Result<String, EventHubsError> {
    let Credential::Key { name, .. } = iot_hub.credential() else {
        return Err(EventHubsError::fatal(
            "the connection string of an IoT hub needs SharedAccessKeyName and SharedAccessKey: its endpoint takes other signatures than itself",
        ));
    };
    let hub = iot_hub.host().split('.').next().unwrap_or_default();
    Ok(format!("{name}@sas.root.{hub}"))
}

/// A signature. Unlike that of Event Hubs, its key is what the base64 of the connection string stands for.
fn password(iot_hub: &ConnectionString, now: Timestamp) -> Result<String, EventHubsError> {
    let Credential::Key { name, key } = iot_hub.credential() else { return Ok(String::new()) };
    let key = STANDARD.decode(key.expose()).map_err(|_| {
        EventHubsError::fatal("the SharedAccessKey of the IoT hub is not base64: copy it again")
    })?;
    let lifetime = i64::try_from(TOKEN_TIME.as_millis()).unwrap_or(i64::MAX);
    let expires = Timestamp(now.millis().saturating_add(lifetime));
    Ok(sas::sign(&format!("{}/messages/events", iot_hub.host()), name, &key, expires))
}

/// What an IoT hub answers.
#[derive(Clone, PartialEq, Eq, Debug)]
struct EventHubsEndpoint {
    host: String,
    port: Option<u16>,
    hub: String,
}

impl EventHubsEndpoint {
    /// Reads `hostname` and `address`, which is `amqps://host[:port]/hub/$management` or only its path.
    fn of(error: &performative::Error) -> Option<Self> {
        let field = |name: &str| {
            error.info.iter().find(|(key, _)| key.as_str() == Some(name)).map(|(_, value)| value)
        };
        let address = field("address").and_then(Value::as_str)?;
        let (authority, path) = match address.split_once("://") {
            Some((_, rest)) => rest.split_once('/')?,
            None => ("", address.trim_start_matches('/')),
        };
        let hub = path.split('/').next().filter(|hub| !hub.is_empty() && !hub.starts_with('$'))?.to_owned();
        let (named, port) = match authority.rsplit_once(':') {
            Some((host, port)) => (host, Some(port.parse().ok()?)),
            None => (authority, None),
        };
        let host = field("hostname").and_then(Value::as_str).unwrap_or(named);
        let good = !host.is_empty() && !host.contains(['/', '@', ':', ' ']);
        good.then(|| Self { host: host.to_owned(), port, hub })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str =
        "HostName=contoso.azure-devices.net;SharedAccessKeyName=service;SharedAccessKey=c2VjcmV0IGtleQ==";

    #[test]
    fn user_and_password_are_an_iot_hub_s() {
        let iot_hub: ConnectionString = TEXT.parse().unwrap();
        assert_eq!(user(&iot_hub).unwrap(), "service@sas.root.contoso");
        let password = password(&iot_hub, Timestamp(1_700_000_000_000)).unwrap();
        let token = sas::Token::parse(&password).unwrap();
        assert_eq!(&*token.resource(), "contoso.azure-devices.net/messages/events");
        assert_eq!((token.rule(), token.expires()), ("service", Timestamp(1_700_000_300_000)));
        assert!(token.is_signed_with(b"secret key"), "the key is decoded");
    }

    #[test]
    fn a_key_that_is_no_base64_or_a_signature_is_refused_without_showing_it() {
        let key = TEXT.replace("c2VjcmV0IGtleQ==", "geheim!").parse::<ConnectionString>().unwrap();
        let error = password(&key, Timestamp(0)).unwrap_err();
        assert!(!error.is_retriable() && !error.to_string().contains("geheim"), "{error}");
        let signed = "HostName=h;SharedAccessSignature=SharedAccessSignature sr=h&sig=eA%3d%3d&se=1";
        assert!(user(&signed.parse().unwrap()).is_err());
    }

    #[test]
    fn the_place_is_read_from_the_redirect() {
        let redirect = |pairs: &[(&str, &str)]| {
            let info = pairs.iter().map(|(key, value)| (Value::Symbol((*key).into()), Value::from(*value)));
            let error = performative::Error::new(condition::LINK_REDIRECT, "there");
            EventHubsEndpoint::of(&performative::Error { info: info.collect(), ..error })
        };
        let place = |host: &str, port| {
            Some(EventHubsEndpoint { host: host.into(), port, hub: "iothub-ehub-c-1".into() })
        };
        let address = "amqps://ns.example:5671/iothub-ehub-c-1/$management";
        assert_eq!(
            redirect(&[("hostname", "ns.example"), ("address", address)]),
            place("ns.example", Some(5671))
        );
        assert_eq!(
            redirect(&[("address", "amqps://ns.example/iothub-ehub-c-1/")]),
            place("ns.example", None)
        );
        assert_eq!(
            redirect(&[("hostname", "ns.example"), ("address", "iothub-ehub-c-1/$management")]),
            place("ns.example", None)
        );
        for pairs in [
            &[("hostname", "ns.example")][..],
            &[("address", "iothub-ehub-c-1")],
            &[("hostname", "h"), ("address", "amqps://h/$management")],
            &[("address", "amqps://h:x/hub")],
        ] {
            assert_eq!(redirect(pairs), None, "{pairs:?}");
        }
    }
}
