//! Sending: where events go, what is refused, and with what words.

use partita_amqp::connection::Event;
use partita_amqp::message::Message;
use partita_amqp::performative::{Attach, DeliveryState};
use partita_amqp::sasl;
use partita_core::model::Value;
use partita_hub::broker::partition_of;
use partita_hub::listener::habits::RUST_DISTANCE;
use partita_hub::service::ingest::FORMAT_BATCH;

use crate::client::{
    Client, EARLIEST, Hosted, annotation, batch, encoded, property, reader_of, receiver, text, token,
};

fn keyed(key: &str, body: &'static str) -> Message {
    let pair = (Value::Symbol("x-opt-partition-key".into()), Value::from(key));
    Message { message_annotations: Some(vec![pair]), ..Message::new(body) }
}

fn rejected(state: &DeliveryState) -> (String, String) {
    let DeliveryState::Rejected(Some(error)) = state else { panic!("{state:?}") };
    (error.condition.to_string(), error.description.as_deref().unwrap_or_default().to_owned())
}

#[tokio::test]
async fn events_go_to_the_partition_of_the_link_or_of_their_key_or_in_turn() {
    let hosted = Hosted::new().await;
    let mut client = hosted.client().await;
    let to_partition = client.sender("amqp://localhost/eh1/Partitions/2").await;
    assert_eq!(client.send(to_partition, text("to 2")).await, DeliveryState::Accepted);
    assert_eq!(client.send_batch(to_partition, [text("a"), text("b")]).await, DeliveryState::Accepted);
    let reader = client.reader(2, EARLIEST, 10).await;
    assert_eq!(client.texts(reader, 3).await, ["to 2", "a", "b"]);

    let to_hub = client.sender("/eh1").await;
    let home = partition_of("door 7", 4);
    assert_eq!(client.send(to_hub, encoded(&keyed("door 7", "keyed"))).await, DeliveryState::Accepted);
    let reader = client.reader(home, EARLIEST, 10).await;
    let got = client.receive(reader, if home == 2 { 4 } else { 1 }).await.pop().expect("one");
    assert_eq!(annotation(&got, "x-opt-partition-key"), Value::from("door 7"));
    let envelope = Message {
        body: Message::decode(&batch([text("x"), text("y")])).expect("one").body,
        ..keyed("door 7", "")
    };
    let id = client.send_only(to_hub, FORMAT_BATCH, encoded(&envelope)).await;
    assert_eq!(client.outcome(id).await, DeliveryState::Accepted);
    for message in client.receive(reader, 2).await {
        assert_eq!(annotation(&message, "x-opt-partition-key"), Value::from("door 7"));
    }

    let hub = hosted.server.broker().hub("eh1").expect("there");
    let before: Vec<_> = (0..4).map(|n| hub.partition(n).expect("there").next_seq).collect();
    for _ in 0..8 {
        assert_eq!(client.send(to_hub, text("anywhere")).await, DeliveryState::Accepted);
    }
    let after: Vec<_> = (0..4).map(|n| hub.partition(n).expect("there").next_seq).collect();
    let more: Vec<_> = after.iter().zip(&before).map(|(a, b)| a - b).collect();
    assert_eq!(more, [2, 2, 2, 2]);
}

#[tokio::test]
async fn a_sender_is_told_the_largest_message_and_gets_credit() {
    let hosted = Hosted::new().await;
    let mut client = hosted.client().await;
    let (link, answer) = client.attach(Attach::sender("s", "eh1")).await.expect("attached");
    assert_eq!(answer.max_message_size, Some(1 << 20));
    // Far more messages than the first credit, none of which waits for its answer.
    let mut last = 0;
    for n in 0..1_000 {
        last = client.send_only(link, 0, text(format!("{n}"))).await;
    }
    assert_eq!(client.outcome(last).await, DeliveryState::Accepted);
}

#[tokio::test]
async fn the_rust_sdk_is_not_answered_before_it_can_hear_it() {
    let hosted = Hosted::new().await;
    let product = vec![property("product", "azure_messaging_eventhubs")];
    let mut client = Client::connect_as(hosted.address, sasl::Client::Anonymous, product).await;
    let (code, words) = client.put_token("sb://localhost/eh1", &token("sb://localhost/eh1", 600)).await;
    assert_eq!(code, 202, "{words}");
    let link = client.sender("eh1").await;
    let begun = std::time::Instant::now();
    rejected(&client.send(link, "garbage".into()).await);
    assert!(begun.elapsed() >= RUST_DISTANCE, "answered after {:?}", begun.elapsed());
    let begun = std::time::Instant::now();
    assert_eq!(client.send(link, text("x")).await, DeliveryState::Accepted);
    assert!(begun.elapsed() >= RUST_DISTANCE, "answered after {:?}", begun.elapsed());
}

#[tokio::test]
async fn what_cannot_be_stored_is_rejected_and_the_link_goes_on() {
    let hosted = Hosted::new().await;
    let mut client = hosted.client().await;
    let link = client.sender("eh1").await;
    let (condition, words) = rejected(&client.send(link, "garbage".into()).await);
    assert!(condition == "amqp:decode-error" && words.contains("not an AMQP message"), "{words}");
    let id = client.send_only(link, 7, text("x")).await;
    let (condition, _) = rejected(&client.outcome(id).await);
    assert_eq!(condition, "com.microsoft:argument-error");
    let long = encoded(&keyed(&"k".repeat(200), "x"));
    assert_eq!(rejected(&client.send(link, long).await).0, "com.microsoft:argument-error");
    assert_eq!(client.send_batch(link, []).await, DeliveryState::Accepted, "nothing is no mistake");
    assert_eq!(client.send(link, text("fine")).await, DeliveryState::Accepted);
}

#[tokio::test]
async fn a_message_of_just_the_limit_is_taken_and_one_byte_more_is_rejected() {
    let hosted = Hosted::new().await;
    let mut client = hosted.client().await;
    let link = client.sender("eh1/Partitions/0").await;
    let overhead = text("").len() + 3;
    let largest = text("x".repeat((1 << 20) - overhead));
    assert_eq!(largest.len(), 1 << 20);
    assert_eq!(client.send(link, largest.clone()).await, DeliveryState::Accepted);
    let reader = client.reader(0, EARLIEST, 1).await;
    assert_eq!(client.receive(reader, 1).await[0].body, Message::decode(&largest).expect("one").body);
    // A client that does not keep to what it was told.
    client.wire.connection().send_any_size(link);
    let (condition, words) = rejected(&client.send(link, text("x".repeat((1 << 20) - overhead + 1))).await);
    assert!(condition == "amqp:link:message-size-exceeded" && words.contains("exceeds the limit"), "{words}");
    assert!(
        words.starts_with("The received message (delivery-id:2, size:1048577 bytes) exceeds the limit"),
        "{words}"
    );
    assert_eq!(client.send(link, text("fits")).await, DeliveryState::Accepted);
}

#[tokio::test]
async fn an_event_that_is_too_large_for_its_reader_is_delivered_all_the_same() {
    let hosted = Hosted::new().await;
    let mut client = hosted.client().await;
    let sender = client.sender("eh1/Partitions/0").await;
    assert_eq!(client.send(sender, text("x".repeat(500))).await, DeliveryState::Accepted);
    let attach = Attach { max_message_size: Some(400), ..receiver("small", &reader_of(0), EARLIEST) };
    let (reader, _) = client.attach(attach).await.expect("attached");
    client.wire.connection().set_credit(reader, 1, false);
    // This client of ours says that it is too much; others take it.
    let too_large =
        |event: &Event| matches!(event, Event::TooLarge { link, .. } if *link == reader).then_some(());
    client.until("event", too_large).await;
}

fn producer(properties: Vec<(Value, Value)>) -> Attach {
    Attach {
        desired_capabilities: vec!["com.microsoft:idempotent-producer".into()],
        properties,
        ..Attach::sender("idempotent", "eh1/Partitions/1")
    }
}

fn mark(id: &Value, epoch: i16, sequence: i32, body: &'static str) -> bytes::Bytes {
    let symbol = |name: &str| Value::Symbol(name.into());
    encoded(&Message {
        message_annotations: Some(vec![
            (symbol("com.microsoft:producer-id"), id.clone()),
            (symbol("com.microsoft:producer-epoch"), Value::Short(epoch)),
            (symbol("com.microsoft:producer-sequence-number"), Value::Int(sequence)),
        ]),
        ..Message::new(body)
    })
}

#[tokio::test]
async fn an_idempotent_producer_s_repetition_is_accepted_and_stored_once() {
    let hosted = Hosted::new().await;
    let mut client = hosted.client().await;
    let (link, answer) = client.attach(producer(Vec::new())).await.expect("attached");
    let get = |answer: &Attach, name: &str| answer.property(name).cloned().expect(name);
    let id = get(&answer, "com.microsoft:producer-id");
    assert!(matches!(id, Value::Long(_)));
    assert_eq!(get(&answer, "com.microsoft:producer-epoch"), Value::Short(0));
    let Value::Int(last) = get(&answer, "com.microsoft:producer-sequence-number") else {
        panic!("no number")
    };
    assert!(answer.offered_capabilities.is_empty(), "as on the service");
    for (sequence, body) in
        [(last + 1, "a"), (last + 1, "a"), (last + 2, "b"), (last + 2, "b"), (last + 1, "a")]
    {
        assert_eq!(client.send(link, mark(&id, 0, sequence, body)).await, DeliveryState::Accepted);
    }
    let (condition, _) = rejected(&client.send(link, mark(&id, 0, last + 9, "gap")).await);
    assert_eq!(condition, "com.microsoft:out-of-order-sequence");
    client.wire.connection().detach(link, None);

    // It comes back, and is told where it stands; then a later incarnation takes over.
    let again = vec![property("com.microsoft:producer-id", id.clone())];
    let (old, answer) = client.attach(producer(again)).await.expect("attached");
    assert_eq!(get(&answer, "com.microsoft:producer-sequence-number"), Value::Int(last + 2));
    // If it says itself where it stands, it is taken at its word: it may not know that its last batch was stored.
    let claim = vec![
        property("com.microsoft:producer-id", id.clone()),
        property("com.microsoft:producer-epoch", Value::Short(0)),
        property("com.microsoft:producer-sequence-number", Value::Int(last + 1)),
    ];
    let claim = Attach { name: "claim".into(), ..producer(claim) };
    let (unsure, answer) = client.attach(claim).await.expect("attached");
    assert_eq!(get(&answer, "com.microsoft:producer-sequence-number"), Value::Int(last + 1));
    assert_eq!(client.send(unsure, mark(&id, 0, last + 2, "b")).await, DeliveryState::Accepted);
    let later = vec![
        property("com.microsoft:producer-id", id.clone()),
        property("com.microsoft:producer-epoch", Value::Short(1)),
    ];
    let later = Attach { name: "later".into(), ..producer(later) };
    let (new, _) = client.attach(later).await.expect("attached");
    let (condition, _) = rejected(&client.send(old, mark(&id, 0, last + 3, "late")).await);
    assert_eq!(condition, "com.microsoft:producer-epoch-stolen");
    assert_eq!(client.send(new, mark(&id, 1, 0, "c")).await, DeliveryState::Accepted);
    let reader = client.reader(1, EARLIEST, 10).await;
    assert_eq!(client.texts(reader, 3).await, ["a", "b", "c"]);
    let lower = vec![
        property("com.microsoft:producer-id", id),
        property("com.microsoft:producer-epoch", Value::Short(0)),
    ];
    let error =
        client.attach(Attach { name: "lower".into(), ..producer(lower) }).await.expect_err("replaced");
    assert_eq!(&*error.condition, "com.microsoft:producer-epoch-stolen");
}

#[tokio::test]
async fn ids_of_producers_survive_a_client_that_reads_them_as_floating_point_numbers() {
    let hosted = Hosted::new().await;
    let mut client = hosted.client().await;
    for n in 0..200 {
        let attach = Attach { name: format!("js-{n}").into(), ..producer(Vec::new()) };
        let (link, answer) = client.attach(attach).await.expect("attached");
        let Some(Value::Long(id)) = answer.property("com.microsoft:producer-id") else { panic!("no id") };
        assert_eq!((*id as f64) as i64, *id);
        assert!((0..1 << 53).contains(id), "{id}");
        client.wire.connection().detach(link, None);
    }
}

#[tokio::test]
async fn an_event_of_another_producer_than_the_link_s_is_refused_and_not_taken_for_a_repetition() {
    let hosted = Hosted::new().await;
    let mut client = hosted.client().await;
    let claim = |id: i64| vec![property("com.microsoft:producer-id", Value::Long(id))];
    let (one, _) =
        client.attach(Attach { name: "one".into(), ..producer(claim(7)) }).await.expect("attached");
    let (two, _) =
        client.attach(Attach { name: "two".into(), ..producer(claim(8)) }).await.expect("attached");
    assert_eq!(client.send(one, mark(&Value::Long(7), 0, 1, "first")).await, DeliveryState::Accepted);
    // As if both had been rounded to the same number: it must not be accepted and left out.
    let (condition, words) = rejected(&client.send(two, mark(&Value::Long(7), 0, 1, "second")).await);
    assert_eq!(condition, "com.microsoft:argument-error");
    assert!(words.contains("producer id 7") && words.contains("its link 8"), "{words}");
    assert_eq!(client.send(two, mark(&Value::Long(8), 0, 1, "second")).await, DeliveryState::Accepted);
}

#[tokio::test]
async fn negative_numbers_of_a_producer_are_out_of_range_at_once() {
    let hosted = Hosted::new().await;
    let mut client = hosted.client().await;
    let words = "Invalid range for idempotent producer state. Producer Id, Epoch, and Sequence Number must be zero or positive.";
    for (name, value) in [
        ("com.microsoft:producer-id", Value::Long(-1)),
        ("com.microsoft:producer-epoch", Value::Short(-1)),
        ("com.microsoft:producer-sequence-number", Value::Int(-1)),
    ] {
        let attach = Attach { name: name.into(), ..producer(vec![property(name, value)]) };
        let error = client.attach(attach).await.expect_err(name);
        assert_eq!(&*error.condition, "com.microsoft:argument-out-of-range", "{name}");
        assert!(error.description.as_deref().is_some_and(|text| text.starts_with(words)), "{error}");
    }
    let claim = vec![property("com.microsoft:producer-id", Value::Long(7))];
    let (link, _) = client.attach(producer(claim)).await.expect("attached");
    for message in [
        mark(&Value::Long(-7), 0, 1, "x"),
        mark(&Value::Long(7), -1, 1, "x"),
        mark(&Value::Long(7), 0, -1, "x"),
    ] {
        let (condition, said) = rejected(&client.send(link, message).await);
        assert_eq!(condition, "com.microsoft:argument-out-of-range");
        assert!(said.starts_with(words), "{said}");
    }
    assert_eq!(client.send(link, mark(&Value::Long(7), 0, 1, "x")).await, DeliveryState::Accepted);
}

#[tokio::test]
async fn what_a_producer_did_wrong_is_said_in_the_words_that_the_sdk_s_tests_want() {
    let hosted = Hosted::new().await;
    let mut client = hosted.client().await;
    let id = Value::Long(7);
    let claim = |epoch: i16| {
        vec![
            property("com.microsoft:producer-id", Value::Long(7)),
            property("com.microsoft:producer-epoch", Value::Short(epoch)),
        ]
    };
    let (old, _) =
        client.attach(Attach { name: "old".into(), ..producer(claim(0)) }).await.expect("attached");
    for sequence in 1..=6 {
        assert_eq!(client.send(old, mark(&id, 0, sequence, "x")).await, DeliveryState::Accepted);
    }
    let (_, words) = rejected(&client.send(old, mark(&id, 0, 1, "x")).await);
    assert!(words.contains("old sequence"), "{words}");
    let (_, words) = rejected(&client.send(old, mark(&id, 0, 9, "x")).await);
    assert!(!words.contains("old sequence"), "{words}");
    client.attach(Attach { name: "new".into(), ..producer(claim(1)) }).await.expect("attached");
    let (condition, words) = rejected(&client.send(old, mark(&id, 0, 7, "x")).await);
    assert_eq!(condition, "com.microsoft:producer-epoch-stolen");
    assert!(words.contains("Received:0 Current:1"), "{words}");
    let error =
        client.attach(Attach { name: "third".into(), ..producer(claim(0)) }).await.expect_err("stolen");
    assert!(error.to_string().contains("Received:0 Current:1"), "{error}");
}

#[tokio::test]
async fn links_to_what_is_not_there_are_refused_in_the_documented_words() {
    let hosted = Hosted::new().await;
    let mut client = hosted.stranger().await;
    let everything = crate::client::token("sb://localhost/", 600);
    assert_eq!(client.put_token("sb://localhost/", &everything).await.0, 202);
    for (address, condition, words) in [
        ("nowhere", "amqp:not-found", "The messaging entity 'nowhere' could not be found"),
        ("eh1/Partitions/4", "com.microsoft:argument-out-of-range", "It should be between 0 and 3"),
        ("eh1/Partitions/x", "com.microsoft:argument-out-of-range", "It should be between 0 and 3"),
        ("eh1/Something/1", "amqp:not-found", "could not be found"),
        ("eh1/ConsumerGroups/$Default/Partitions/0", "amqp:not-allowed", "can only be received from"),
    ] {
        let error = client.attach(Attach::sender(format!("s-{address}"), address)).await.expect_err(address);
        let description = error.description.as_deref().unwrap_or_default();
        assert!(&*error.condition == condition && description.contains(words), "{address}: {error}");
    }
    let error = client.attach(Attach::receiver("r", "eh1")).await.expect_err("a hub is not read as a whole");
    assert_eq!(&*error.condition, "amqp:not-allowed");
    let nobody = "eh1/ConsumerGroups/nobody/Partitions/0";
    let error = client.attach(Attach::receiver("g", nobody)).await.expect_err("no such group");
    assert!(error.to_string().contains("The messaging entity 'nobody' could not be found"), "{error}");
}

#[tokio::test]
async fn a_deleted_hub_detaches_its_links() {
    let hosted = Hosted::new().await;
    let mut client = hosted.client().await;
    let sender = client.sender("eh1").await;
    let reader = client.reader(0, EARLIEST, 10).await;
    let broker = hosted.server.broker().clone();
    tokio::task::spawn_blocking(move || broker.delete_hub("eh1").expect("deleted")).await.expect("done");
    for link in [reader, sender] {
        let error = client.detached(link).await;
        assert_eq!(&*error.condition, "amqp:not-found");
        assert!(error.to_string().contains("The messaging entity 'eh1' could not be found"), "{error}");
    }
}
