//! Reading: from every position, exclusively or beside others, and what is refused.

use partita_amqp::connection::Event;
use partita_amqp::message::Message;
use partita_amqp::performative::{Attach, ReceiverSettleMode, SenderSettleMode};
use partita_core::model::{Body, ConsumerGroup, Value};
use partita_hub::broker::Route;
use partita_hub::log::EncodedBatch;

use crate::client::{
    Client, EARLIEST, Hosted, LATEST, annotation, filter, property, reader_of, receiver, status, text,
};

/// Five events in partition 0: their offsets and times.
async fn five(hosted: &Hosted, client: &mut Client) -> Vec<(String, i64)> {
    let hub = hosted.server.broker().hub("eh1").expect("there");
    for n in 0..5 {
        let event = EncodedBatch::of(&[text(format!("event {n}"))]).expect("valid");
        let hub = hub.clone();
        let send = move || hub.send_and_wait(Route::Partition(0), event).expect("durable");
        let placed = tokio::task::spawn_blocking(send).await.expect("done");
        // Times that differ, by waiting for the clock to show another one.
        while partita_core::model::Timestamp::now().millis() <= placed.time_ms {
            tokio::task::yield_now().await;
        }
    }
    let reader = client.reader(0, EARLIEST, 10).await;
    let messages = client.receive(reader, 5).await;
    client.wire.connection().detach(reader, None);
    let place = |message: &Message| {
        let offset = annotation(message, "x-opt-offset").as_str().expect("text").to_owned();
        let Value::Timestamp(time) = annotation(message, "x-opt-enqueued-time") else { panic!("no time") };
        (offset, time.millis())
    };
    messages.iter().map(place).collect()
}

#[tokio::test]
async fn reading_starts_where_the_filter_says() {
    let hosted = Hosted::new().await;
    let mut client = hosted.client().await;
    let places = five(&hosted, &mut client).await;
    let (offset, time) = &places[2];
    for (from, first) in [
        (EARLIEST.to_owned(), 0),
        (format!("amqp.annotation.x-opt-offset > '{offset}'"), 3),
        (format!("amqp.annotation.x-opt-offset >='{offset}'"), 2),
        ("amqp.annotation.x-opt-sequence-number > '-1'".to_owned(), 0),
        ("amqp.annotation.x-opt-sequence-number > '2'".to_owned(), 3),
        ("amqp.annotation.x-opt-sequence-number >= '2'".to_owned(), 2),
        (format!("amqp.annotation.x-opt-enqueued-time > '{time}'"), 3),
        (format!("amqp.annotation.x-opt-enqueued-time >= '{time}'"), 2),
        ("amqp.annotation.x-opt-enqueued-time > '0'".to_owned(), 0),
    ] {
        let reader = client.reader(0, &from, 10).await;
        let expected: Vec<_> = (first..5).map(|n| format!("event {n}")).collect();
        assert_eq!(client.texts(reader, expected.len()).await, expected, "{from}");
        client.wire.connection().detach(reader, None);
    }
    // Without a filter: from the start.
    let (reader, _) = client.attach(Attach::receiver("bare", &reader_of(0))).await.expect("attached");
    client.wire.connection().set_credit(reader, 1, false);
    assert_eq!(client.texts(reader, 1).await, ["event 0"]);
}

#[tokio::test]
async fn latest_and_a_time_to_come_wait_for_what_is_new() {
    let hosted = Hosted::new().await;
    let mut client = hosted.client().await;
    five(&hosted, &mut client).await;
    let latest = client.reader(0, LATEST, 10).await;
    let last = client.reader(0, "amqp.annotation.x-opt-sequence-number > '4'", 10).await;
    let sender = client.sender("eh1/Partitions/0").await;
    client.send(sender, text("new")).await;
    assert_eq!(client.texts(latest, 1).await, ["new"]);
    assert_eq!(client.texts(last, 1).await, ["new"]);
}

#[tokio::test]
async fn places_past_the_end_are_refused_in_the_documented_words() {
    let hosted = Hosted::new().await;
    let mut client = hosted.client().await;
    let places = five(&hosted, &mut client).await;
    let last_offset = &places[4].0;
    for (from, words) in [
        (
            "amqp.annotation.x-opt-sequence-number > '9'",
            "The supplied sequence number '9' is invalid. The last sequence number in the system is '4'"
                .to_owned(),
        ),
        (
            "amqp.annotation.x-opt-offset > '1000000'",
            format!(
                "The supplied offset '1000000' is invalid. The last offset in the system is '{last_offset}'"
            ),
        ),
        ("amqp.annotation.x-opt-colour > '9'", "The filter expression".to_owned()),
    ] {
        let error = client.attach(receiver(from, &reader_of(0), from)).await.expect_err(from);
        let description = error.description.as_deref().unwrap_or_default();
        assert!(
            &*error.condition == "com.microsoft:argument-error" && description.contains(&words),
            "{error}"
        );
    }
}

#[tokio::test]
async fn an_attach_is_answered_with_what_was_asked_for_as_far_as_the_service_grants_it() {
    let hosted = Hosted::new().await;
    let mut client = hosted.client().await;
    let mut attach = receiver("r", &reader_of(0), EARLIEST);
    attach.snd_settle_mode = SenderSettleMode::Unsettled;
    attach.rcv_settle_mode = ReceiverSettleMode::Second;
    attach.properties = vec![property("com.microsoft:epoch", 3_i64)];
    attach.desired_capabilities =
        vec!["com.microsoft:enable-receiver-runtime-metric".into(), "something:else".into()];
    let (_, answer) = client.attach(attach.clone()).await.expect("attached");
    assert_eq!(answer.source.as_ref().map(|source| &source.filter), Some(&filter(EARLIEST)));
    assert_eq!(answer.source.as_ref().and_then(|source| source.address.as_deref()), Some(&*reader_of(0)));
    assert_eq!(answer.snd_settle_mode, SenderSettleMode::Settled);
    assert_eq!(answer.rcv_settle_mode, attach.rcv_settle_mode);
    assert_eq!(answer.properties, attach.properties);
    assert!(answer.offered_capabilities.is_empty());
    assert_eq!(answer.max_message_size, Some(1 << 20));
    let asked = Attach { rcv_settle_mode: ReceiverSettleMode::Second, ..Attach::sender("s", "eh1") };
    let (_, answer) = client.attach(asked).await.expect("attached");
    assert_eq!(answer.rcv_settle_mode, ReceiverSettleMode::First);
}

#[tokio::test]
async fn events_carry_the_hub_s_annotations_and_metrics_where_asked_for() {
    let hosted = Hosted::new().await;
    let mut client = hosted.client().await;
    let sender = client.sender("eh1/Partitions/1").await;
    client.send_batch(sender, ["a", "b"].map(text)).await;
    let mut attach = receiver("r", &reader_of(1), EARLIEST);
    attach.desired_capabilities = vec!["com.microsoft:enable-receiver-runtime-metric".into()];
    let (reader, _) = client.attach(attach).await.expect("attached");
    client.wire.connection().set_credit(reader, 10, false);
    let messages = client.receive(reader, 2).await;
    for (n, message) in messages.iter().enumerate() {
        assert_eq!(annotation(message, "x-opt-sequence-number"), Value::Long(n as i64));
        assert!(annotation(message, "x-opt-offset").as_str().is_some());
        assert!(matches!(annotation(message, "x-opt-enqueued-time"), Value::Timestamp(_)));
        let metrics = message.delivery_annotations.as_deref().expect("asked for");
        assert_eq!(metrics[0], property("last_enqueued_sequence_number_epoch", -1_i32));
        assert_eq!(metrics[1], property("last_enqueued_sequence_number", 1_i64));
        assert_eq!(metrics.len(), 5);
        let order: Vec<_> =
            message.message_annotations.iter().flatten().filter_map(|(key, _)| key.as_str()).collect();
        assert_eq!(
            order,
            ["x-opt-sequence-number-epoch", "x-opt-sequence-number", "x-opt-offset", "x-opt-enqueued-time"]
        );
    }
    assert_eq!(annotation(&messages[0], "x-opt-partition-key"), Value::Null);
}

fn with_epoch(name: &str, partition: u32, epoch: i64) -> Attach {
    let mut attach = receiver(name, &reader_of(partition), EARLIEST);
    attach.properties =
        vec![property("com.microsoft:epoch", epoch), property("com.microsoft:receiver-name", name)];
    attach
}

#[tokio::test]
async fn an_equal_or_higher_epoch_evicts_and_a_lower_one_is_refused() {
    let hosted = Hosted::new().await;
    let mut first = hosted.client().await;
    let mut second = hosted.client().await;
    let (old, _) = first.attach(with_epoch("B", 0, 0)).await.expect("attached");
    let (new, _) = second.attach(with_epoch("A", 0, 1)).await.expect("attached");
    let error = first.detached(old).await;
    assert_eq!(
        error.to_string(),
        "amqp:link:stolen: New receiver 'A' with higher epoch of '1' is created hence current receiver 'B' with epoch '0' is getting disconnected. If you are recreating the receiver, make sure a higher epoch is used."
    );
    let error = first.attach(with_epoch("B2", 0, 0)).await.expect_err("lower");
    let words = "amqp:link:stolen: Receiver 'A' with a higher epoch '1' already exists. Receiver 'B2' with epoch 0 cannot be created.";
    assert!(error.to_string().starts_with(words), "{error}");
    let error = first.attach(receiver("plain", &reader_of(0), EARLIEST)).await.expect_err("beside an epoch");
    assert!(error.to_string().contains("so non-epoch receiver is not allowed"), "{error}");
    // The Rust client's spelling of the name.
    let mut equal = with_epoch("unused", 0, 1);
    equal.properties[1] = property("com.microsoft.com:receiver-name", "C");
    first.attach(equal).await.expect("an equal one takes over");
    assert!(second.detached(new).await.to_string().contains("New receiver 'C'"));
    first.attach(with_epoch("bad", 1, -1)).await.expect_err("no epoch");
}

#[tokio::test]
async fn an_epoch_sends_plain_readers_away_that_have_no_credit() {
    let hosted = Hosted::new().await;
    let mut client = hosted.client().await;
    let sender = client.sender("eh1/Partitions/0").await;
    client.send(sender, text("waits")).await;
    let plain = client.reader(0, EARLIEST, 0).await;
    let mut other = hosted.client().await;
    other.attach(with_epoch("A", 0, 5)).await.expect("attached");
    assert_eq!(&*client.detached(plain).await.condition, "amqp:link:stolen");
}

#[tokio::test]
async fn five_plain_readers_and_no_sixth_until_one_leaves() {
    let hosted = Hosted::new().await;
    let mut client = hosted.client().await;
    let mut readers = Vec::new();
    for n in 0..5 {
        let attach = receiver(&format!("r{n}"), &reader_of(0), EARLIEST);
        readers.push(client.attach(attach).await.expect("attached").0);
    }
    let sixth = || receiver("r5", &reader_of(0), EARLIEST);
    let error = client.attach(sixth()).await.expect_err("one too many");
    assert_eq!(&*error.condition, "amqp:resource-limit-exceeded");
    assert!(
        error.to_string().contains("which is 5. List of connected receivers - r0, r1, r2, r3, r4"),
        "{error}"
    );
    let elsewhere = receiver("g", "eh1/ConsumerGroups/CG1/Partitions/0", EARLIEST);
    client.attach(elsewhere).await.expect("another group, in another case");
    client.wire.connection().detach(readers[2], None);
    client.attach(sixth()).await.expect("one left");
    // A connection that ends takes its readers with it.
    drop(client);
    let mut client = hosted.client().await;
    for n in 0..5 {
        let mut tries = 0;
        while client.attach(receiver(&format!("n{n}-{tries}"), &reader_of(0), EARLIEST)).await.is_err() {
            tries += 1;
            assert!(tries < 1_000, "the readers of a connection that is gone stay");
            tokio::task::yield_now().await;
        }
    }
}

#[tokio::test]
async fn hubs_and_partitions_are_described() {
    let hosted = Hosted::new().await;
    let mut client = hosted.client().await;
    for node in ["$management", "eh1/$management"] {
        let pairs = [("operation", "READ"), ("type", "com.microsoft:eventhub"), ("name", "eh1")];
        let pairs = pairs.map(|(key, value)| (Value::from(key), Value::from(value))).to_vec();
        let request = Message { application_properties: Some(pairs), ..Message::new("") };
        let reply = client.request(node, request).await;
        assert_eq!(status(&reply).0, 200);
        let Body::Value(Value::Map(map)) = &reply.body else { panic!("{reply:?}") };
        let ids = ["0", "1", "2", "3"].map(Value::from).to_vec();
        assert!(map.contains(&(Value::from("partition_ids"), Value::Array(ids))));
    }
}

#[tokio::test]
async fn groups_read_independently_and_a_deleted_one_is_told() {
    let hosted = Hosted::new().await;
    let mut client = hosted.client().await;
    let sender = client.sender("eh1/Partitions/0").await;
    client.send(sender, text("for both")).await;
    let default = client.reader(0, EARLIEST, 5).await;
    let (other, _) = client
        .attach(receiver("o", "eh1/ConsumerGroups/cg1/Partitions/0", EARLIEST))
        .await
        .expect("attached");
    client.wire.connection().set_credit(other, 5, false);
    assert_eq!(client.texts(default, 1).await, ["for both"]);
    assert_eq!(client.texts(other, 1).await, ["for both"]);
    let hub = hosted.server.broker().hub("eh1").expect("there");
    hub.delete_group(&ConsumerGroup::new("cg1")).expect("deleted");
    let error = client.detached(other).await;
    assert!(error.to_string().contains("The messaging entity 'cg1' could not be found"), "{error}");
    assert!(!client.stashed().any(|event| matches!(event, Event::Detached { link, .. } if *link == default)));
}
