//! What clients of the real service see, frame by frame.

use partita_amqp::connection::Event;
use partita_amqp::message::Message;
use partita_amqp::performative::{Attach, DeliveryState, Performative};
use partita_amqp::sasl;
use partita_core::model::{Body, HubName, Value};
use partita_hub::broker::{Broker, HubOptions};
use partita_hub::log::{Disk, Settings, SimDisk};

use crate::client::{Client, Hosted, property, reader_of, receiver, said, token};
use crate::raw::{Raw, attach};

const EMPTY: [&str; 4] = [
    "amqp.annotation.x-opt-sequence-number > '0'",
    "amqp.annotation.x-opt-sequence-number >= '0'",
    "amqp.annotation.x-opt-offset > '0'",
    "amqp.annotation.x-opt-offset >= '0'",
];

#[tokio::test]
async fn a_refused_link_is_answered_without_termini_and_detached() {
    let hosted = Hosted::new().await;
    let mut raw = Raw::begun(&hosted).await;
    let reader = receiver("r", &reader_of(0), EMPTY[0]);
    for (handle, asked) in [Attach::sender("s", "eh1"), reader].into_iter().enumerate() {
        let handle = handle as u32;
        let name = asked.name.clone();
        raw.tell(0, attach(handle, asked)).await;
        let (0, Performative::Attach(answer), _) = raw.frame().await else { panic!("no attach came") };
        assert_eq!((&answer.name, &answer.source, &answer.target), (&name, &None, &None));
        assert_eq!((answer.initial_delivery_count, answer.max_message_size), (None, None));
        let (0, Performative::Detach(detach), _) = raw.frame().await else { panic!("no detach came") };
        assert!(detach.closed);
        assert_eq!(&*detach.error.expect("a reason").condition, "amqp:unauthorized-access");
    }
}

#[tokio::test]
async fn a_refused_link_of_the_python_sdk_is_answered_with_its_termini() {
    let hosted = Hosted::new().await;
    for (product, named) in [("azsdk-python-eventhubs", true), ("azsdk-js-azureeventhubs", false)] {
        let product = vec![property("product", product)];
        let mut client = Client::connect_as(hosted.address, sasl::Client::Anonymous, product).await;
        let session = client.session;
        let link = client.wire.connection().attach(session, Attach::sender("s", "eh1")).expect("a handle");
        let answer = client
            .until("answer", |event| match event {
                Event::Attached { link: at, attach } if *at == link => Some(attach.clone()),
                _ => None,
            })
            .await;
        assert_eq!((answer.source.is_some(), answer.target.is_some()), (named, named));
        assert_eq!(&*client.detached(link).await.condition, "amqp:unauthorized-access");
    }
}

#[tokio::test]
async fn a_reader_whose_place_is_looked_for_and_not_found_is_refused_alike() {
    let hosted = Hosted::new().await;
    let mut client = hosted.client().await;
    let sender = client.sender("eh1/Partitions/0").await;
    client.send(sender, crate::client::text("x")).await;
    let session = client.session;
    let asked = receiver("r", &reader_of(0), "amqp.annotation.x-opt-offset > '5000'");
    let link = client.wire.connection().attach(session, asked).expect("a handle");
    let answer = client
        .until("answer", |event| match event {
            Event::Attached { link: at, attach } if *at == link => Some(attach.clone()),
            _ => None,
        })
        .await;
    assert!(answer.source.is_none() && answer.target.is_none());
    let error = client.detached(link).await;
    assert!(error.to_string().contains("The supplied offset '5000' is invalid"), "{error}");
}

#[tokio::test]
async fn one_link_for_tokens_is_enough_for_a_connection() {
    let hosted = Hosted::new().await;
    let mut client = hosted.stranger().await;
    let (first, answer) = client.attach(Attach::sender("one", "$cbs")).await.expect("attached");
    assert_eq!(answer.max_message_size, Some(u64::MAX));
    let error = client.attach(Attach::sender("two", "$cbs")).await.expect_err("a second one");
    assert_eq!(&*error.condition, "amqp:not-allowed");
    assert!(error.to_string().contains("$cbs node has already been opened."), "{error}");
    client.attach(Attach::receiver("three", "$cbs")).await.expect("replies may go to several");
    client.wire.connection().detach(first, None);
    client.attach(Attach::sender("four", "$cbs")).await.expect("the first one is gone");
}

#[tokio::test]
async fn replies_say_what_the_service_s_say() {
    let hosted = Hosted::new().await;
    let mut client = hosted.stranger().await;
    let everything = token("sb://localhost/", 600);
    let put = |audience: &str, token: &str| {
        let pairs =
            [("operation", "put-token"), ("type", "servicebus.windows.net:sastoken"), ("name", audience)];
        let pairs = pairs.map(|(key, value)| (Value::from(key), Value::from(value))).to_vec();
        Message { application_properties: Some(pairs), ..Message::new(Value::from(token)) }
    };
    let reply = client.request("$cbs", put("sb://localhost/eh2", &everything)).await;
    assert_eq!(said(&reply, "status-code"), Some(Value::Int(404)));
    assert_eq!(said(&reply, "error-condition"), Some(Value::Symbol("amqp:not-found".into())));
    let reply = client.request("$cbs", put("sb://localhost/eh1", "x")).await;
    assert_eq!(said(&reply, "error-condition"), Some(Value::Symbol("com.microsoft:auth-failed".into())));
    let reply = client.request("$cbs", put("sb://localhost/", &everything)).await;
    assert_eq!(said(&reply, "status-code"), Some(Value::Int(202)));
    assert_eq!(said(&reply, "error-condition"), None);

    let ask = |hub: &str| {
        let pairs = [("operation", "READ"), ("type", "com.microsoft:eventhub"), ("name", hub)];
        let pairs = pairs.map(|(key, value)| (Value::from(key), Value::from(value))).to_vec();
        Message { application_properties: Some(pairs), ..Message::new(Value::Null) }
    };
    let reply = client.request("$management", ask("eh1")).await;
    let pairs = reply.application_properties.expect("there");
    let expected =
        [(Value::from("operation"), Value::from("READ")), (Value::from("status-code"), Value::Int(200))];
    assert_eq!(pairs, expected);
    assert!(matches!(reply.body, Body::Value(Value::Map(_))));
    let reply = client.request("$management", ask("eh2")).await;
    assert_eq!(said(&reply, "error-condition"), Some(Value::Symbol("amqp:not-found".into())));
}

#[tokio::test]
async fn a_partition_that_never_had_an_event_refuses_every_number() {
    let hosted = Hosted::new().await;
    let mut client = hosted.client().await;
    for from in EMPTY {
        let error = client.attach(receiver(from, &reader_of(0), from)).await.expect_err(from);
        assert_eq!(&*error.condition, "com.microsoft:argument-error");
        let words = error.description.as_deref().unwrap_or_default();
        assert!(words.ends_with("in the system is '-1'"), "{words}");
    }
    let sender = client.sender("eh1/Partitions/0").await;
    client.send(sender, crate::client::text("x")).await;
    let reader = client.reader(0, EMPTY[1], 1).await;
    assert_eq!(client.texts(reader, 1).await, ["x"]);
}

#[tokio::test]
async fn senders_have_the_service_s_credit() {
    let hosted = Hosted::new().await;
    let mut client = hosted.client().await;
    for (address, credit, used) in [("eh1", 300, 150), ("eh1/Partitions/0", 1_000, 100)] {
        let link = client.sender(address).await;
        assert_eq!(client.wire.connection().credit(link), credit, "{address}");
        for _ in 0..used {
            client.send(link, crate::client::text("x")).await;
        }
        // The flow came before the answer to what used it up.
        assert_eq!(client.wire.connection().credit(link), credit, "{address}");
    }
}

#[tokio::test]
async fn a_disabled_hub_refuses_and_detaches_until_it_is_enabled() {
    let hosted = Hosted::new().await;
    let mut client = hosted.client().await;
    let sender = client.sender("eh1/Partitions/0").await;
    let reader = client.reader(0, "amqp.annotation.x-opt-offset > '-1'", 10).await;
    assert_eq!(client.send(sender, crate::client::text("before")).await, DeliveryState::Accepted);
    let hub = hosted.server.broker().hub("eh1").expect("there");
    let changed = hub.clone();
    let change = move |disabled: bool| {
        let hub = changed.clone();
        async move {
            let done = tokio::task::spawn_blocking(move || hub.set_disabled(disabled)).await;
            done.expect("no panic").expect("changed");
        }
    };
    change(true).await;
    for link in [sender, reader] {
        let error = client.detached(link).await;
        assert_eq!(&*error.condition, "com.microsoft:entity-disabled");
        assert!(error.to_string().contains("Messaging entity 'eh1' is currently disabled"), "{error}");
    }
    for attach in [Attach::sender("s", "eh1"), receiver("r", &reader_of(0), EMPTY[1])] {
        let error = client.attach(attach).await.expect_err("disabled");
        assert_eq!(&*error.condition, "com.microsoft:entity-disabled");
    }
    change(false).await;
    let sender = client.sender("eh1/Partitions/0").await;
    assert_eq!(client.send(sender, crate::client::text("after")).await, DeliveryState::Accepted);
    let reader = client.reader(0, EMPTY[1], 10).await;
    assert_eq!(client.texts(reader, 2).await, ["before", "after"], "nothing was lost");
}

#[test]
fn a_hub_stays_disabled_over_a_restart() {
    let disk: std::sync::Arc<dyn Disk> = std::sync::Arc::new(SimDisk::new(1));
    let open = || Broker::open_with(disk.clone(), "/data", Settings::new(1)).expect("opens").0;
    let broker = open();
    let hub = broker.create_hub(&HubName::new("eh1"), HubOptions::default()).expect("made");
    hub.set_disabled(true).expect("disabled");
    drop((hub, broker));
    let broker = open();
    let hub = broker.hub("eh1").expect("there");
    assert!(hub.is_disabled());
    hub.set_disabled(false).expect("enabled");
    drop((hub, broker));
    assert!(!open().hub("eh1").expect("there").is_disabled());
}
