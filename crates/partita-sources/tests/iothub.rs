//! An IoT hub's own connection string leads to its events. The IoT hub is played by a test server, after public samples; the
//! Event Hubs namespace behind it is Partita's hub.

mod support;

use std::sync::Arc;
use std::time::Duration;

use partita_core::handler::Context;
use partita_core::model::{Event, InstanceId, Value};
use partita_core::processor::Processor;
use partita_core::store::MemoryStore;
use partita_dialect::sas;
use partita_hub::listener::transport::Transport;
use partita_hub::server::ServerOptions;
use partita_hub::service::auth::{Key, Rights, Rule, RuleScope, Rules};
use partita_sources::eventhubs::{BuildError, ConnectionString, EventHubs, EventHubsBuilder};
use support::service::{Part, Service};
use support::{HUB, PATIENCE, Served, tls};

const KEY: &str = "c2VjcmV0IGtleSBvZiB0aGUgaHViIQ==";
const HOST: &str = "contoso.azure-devices.net";

fn connection(key: &str) -> ConnectionString {
    let text = format!("HostName={HOST};SharedAccessKeyName=service;SharedAccessKey={key}");
    text.parse().expect("a connection string")
}

/// An IoT hub that lets in whoever signs with the decoded key, and the events behind it.
async fn iot_hub() -> (Served, Service, String) {
    let (config, pem) = tls::localhost();
    let rule =
        Rule { name: "service".into(), key: Key::new(KEY), rights: Rights::ALL, scope: RuleScope::Namespace };
    let options = ServerOptions { auth: Rules::new([rule]), ..ServerOptions::default() };
    let served = Served::of(2, options, Transport::PlainOrTls(config.clone())).await;
    let login = |user: &str, password: &str| {
        let token = sas::Token::parse(password).expect("a signature");
        user == "service@sas.root.contoso"
            && token.resource() == format!("{HOST}/messages/events")
            && token.rule() == "service"
            && token.is_signed_with(b"secret key of the hub!")
    };
    let to = format!("amqps://localhost:{}/{HUB}/$management", served.address.port());
    let redirect = Some(("localhost".to_owned(), to));
    let service = Service::new(Part { redirect, login: Some(Arc::new(login)), tls: Some(config) }).await;
    (served, service, pem)
}

fn builder(key: &str, service: &Service, pem: &str) -> EventHubsBuilder {
    let endpoint = format!("amqps://localhost:{}", service.address.port());
    EventHubs::builder(&connection(key)).endpoint(endpoint).roots(pem)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn events_of_devices_reach_the_handler_with_what_the_iot_hub_says_of_them() {
    let (served, service, pem) = iot_hub().await;
    let event = Event::builder("21.5")
        .property("room", "kitchen")
        .annotation("iothub-connection-device-id", "thermometer-7")
        .annotation("iothub-connection-auth-method", r#"{"scope":"device"}"#)
        .annotation("iothub-connection-auth-generation-id", "636")
        .annotation("iothub-enqueuedtime", Value::Timestamp(partita_core::model::Timestamp(5)))
        .annotation("iothub-message-source", "Telemetry");
    served.append(1, [event]).await;
    let hubs = builder(KEY, &service, &pem).connect().await.expect("led to the events");
    assert_eq!(hubs.hub().as_str(), HUB);
    let (sender, mut handled) = tokio::sync::mpsc::channel(1);
    let processor = Processor::builder(hubs.source(), MemoryStore::new())
        .instance_id(InstanceId::generate("test"))
        .on_event(move |event: Event, _: Context| {
            let sender = sender.clone();
            async move { Ok(sender.send(event).await?) }
        })
        .on_error(|error| panic!("{error}"))
        .build()
        .expect("a processor");
    let running = processor.start().await.expect("starts");
    let event = tokio::time::timeout(PATIENCE, handled.recv()).await.expect("in time").expect("an event");
    let said = |name: &str| event.annotations().get(name).and_then(Value::as_str);
    assert_eq!(said("iothub-connection-device-id"), Some("thermometer-7"));
    assert_eq!(said("iothub-message-source"), Some("Telemetry"));
    assert_eq!(event.annotations().len(), 5);
    assert_eq!(event.properties().get("room").and_then(Value::as_str), Some("kitchen"));
    running.shutdown().await.expect("ends");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_wrong_with_an_iot_hub_is_said_in_a_sentence() {
    let (_served, service, pem) = iot_hub().await;
    let other = "b3RoZXIga2V5IG9mIHRoZSBodWIhISE=";
    let refused = builder(other, &service, &pem).connect().await.expect_err("another key");
    let text = refused.to_string();
    assert!(text.contains("refuses the rule or its key") && !text.contains(other), "{text}");
    assert!(matches!(builder(KEY, &service, &pem).build(), Err(BuildError::IotHub)));
    let nobody = builder(KEY, &service, &pem).endpoint("amqps://localhost:1").connect().await;
    assert!(nobody.expect_err("nobody there").to_string().contains("is the hub running?"));
    // One that answers, but not as an IoT hub does.
    let plain = Service::new(Part::default()).await;
    let silent = EventHubs::builder(&connection(KEY))
        .endpoint(format!("amqp://{}", plain.address))
        .connect_time_max(Duration::from_millis(300));
    assert!(silent.connect().await.expect_err("no answer").to_string().contains("did not answer"));
}
