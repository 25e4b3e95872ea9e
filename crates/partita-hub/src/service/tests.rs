//! Messages in, events out, and questions about hubs.

use bytes::Bytes;
use partita_amqp::message::{self, Header, Map, Message};
use partita_core::model::{Body, HubName, Timestamp, Value};
use partita_dialect::names::annotation::PARTITION_KEY;
use proptest::prelude::*;

use super::auth::{Key, Rules, Tokens, WELL_KNOWN_KEY, WELL_KNOWN_NAME, sign};
use super::egress::{Delivery, Metrics};
use super::ingest::{FORMAT_BATCH, FORMAT_EVENT, Ingested, ingest};
use super::management;
use crate::broker::{Broker, HubOptions, Route};
use crate::log::{EncodedBatch, PartitionInfo, ProducerStamp, StoredEvent};

const BYTES_MAX: usize = 1 << 20;

fn encoded(message: &Message) -> Vec<u8> {
    let mut out = Vec::new();
    message::encode(message, &mut out).expect("encodes");
    out
}

fn symbol(text: &str) -> Value {
    Value::Symbol(text.into())
}

fn keyed(key: &str, body: &'static str) -> Message {
    Message {
        message_annotations: Some(vec![(symbol(PARTITION_KEY), Value::from(key))]),
        ..Message::new(body)
    }
}

fn envelope(annotations: Option<Map>, events: &[Vec<u8>]) -> Vec<u8> {
    let sections = events.iter().map(|event| Bytes::copy_from_slice(event)).collect();
    encoded(&Message { message_annotations: annotations, ..Message::new(Body::DataSections(sections)) })
}

fn stored(batch: &EncodedBatch) -> Vec<Bytes> {
    let ends = batch.ends.chunks_exact(4).map(|end| u32::from_le_bytes(end.try_into().expect("four")));
    let mut start = 0;
    ends.map(|end| {
        let event = batch.events.slice(start..end as usize);
        start = end as usize;
        event
    })
    .collect()
}

fn events(ingested: &Ingested<'_>) -> Vec<Bytes> {
    ingested.batch.as_ref().map(stored).unwrap_or_default()
}

fn delivered(data: &[u8], metrics: Option<&Metrics>) -> Message {
    let event = StoredEvent { seq: 7, offset: 1_234, time_ms: 99, data };
    let delivery = Delivery::new(&event, metrics);
    let mut out = b"before".to_vec();
    delivery.write(&mut out);
    assert_eq!(out.len(), 6 + delivery.len());
    Message::decode(&Bytes::from(out).slice(6..)).expect("decodes")
}

fn hubs_own() -> Map {
    vec![
        (symbol("x-opt-sequence-number-epoch"), Value::Int(-1)),
        (symbol("x-opt-sequence-number"), Value::Long(7)),
        (symbol("x-opt-offset"), Value::from("1234")),
        (symbol("x-opt-enqueued-time"), Value::Timestamp(Timestamp(99))),
    ]
}

#[test]
fn a_plain_event_is_stored_as_it_came_and_delivered_with_the_hub_s_annotations() {
    let sent = encoded(&Message::new("hello"));
    let ingested = ingest(FORMAT_EVENT, &sent, BYTES_MAX).expect("valid");
    assert_eq!(events(&ingested)[0], sent);
    let got = delivered(&events(&ingested)[0], None);
    assert_eq!(got, Message { message_annotations: Some(hubs_own()), ..Message::new("hello") });
}

#[test]
fn a_batch_is_its_inner_messages_and_the_outer_key_rules() {
    let inner = [encoded(&keyed("door", "1")), encoded(&Message::new("2")), encoded(&keyed("gate", "3"))];
    let outer = vec![(symbol(PARTITION_KEY), Value::from("door"))];
    let payload = envelope(Some(outer), &inner);
    let ingested = ingest(FORMAT_BATCH, &payload, BYTES_MAX).expect("valid");
    assert_eq!(ingested.key, Some("door"));
    let events = events(&ingested);
    assert_eq!(events[0], inner[0], "what needs no change is not changed");
    for (event, body) in events.iter().zip(["1", "2", "3"]) {
        assert_eq!(Message::decode(event).expect("decodes"), keyed("door", body));
    }
    let payload = envelope(None, &inner);
    let ingested = ingest(FORMAT_BATCH, &payload, BYTES_MAX).expect("valid");
    assert_eq!(ingested.key, Some("door"), "the first inner one, where the envelope has none");
    assert_eq!(stored(ingested.batch.as_ref().expect("events")), inner);
}

#[test]
fn what_is_the_hub_s_to_say_is_not_taken_from_a_client() {
    let mut annotations = hubs_own();
    annotations.push((symbol("mine"), Value::from(1_i32)));
    annotations.push((symbol(PARTITION_KEY), Value::from("k")));
    annotations.push((symbol(PARTITION_KEY), Value::from("twice")));
    let sent = Message {
        header: Some(Header { durable: Some(true), ..Header::default() }),
        delivery_annotations: Some(vec![(symbol("hop"), Value::Null)]),
        message_annotations: Some(annotations),
        application_properties: Some(vec![(Value::from("n"), Value::from(5_i64))]),
        ..Message::new("x")
    };
    let payload = encoded(&sent);
    let ingested = ingest(FORMAT_EVENT, &payload, BYTES_MAX).expect("valid");
    assert_eq!(ingested.key, Some("k"));
    let mut expected = vec![(symbol(PARTITION_KEY), Value::from("k")), (symbol("mine"), Value::from(1_i32))];
    expected.extend(hubs_own());
    let got = delivered(&events(&ingested)[0], None);
    assert_eq!(got, Message { header: None, message_annotations: Some(expected), ..sent });
}

#[test]
fn metrics_come_as_delivery_annotations_and_a_header_does_not_come() {
    let sent = Message { header: Some(Header { ttl_ms: Some(5), ..Header::default() }), ..keyed("k", "x") };
    let got = delivered(&encoded(&sent), Some(&metrics()));
    assert_eq!(got.delivery_annotations, Some(metric_pairs()));
    assert!(got.header.is_none() && got.message_annotations.is_some_and(|map| map.len() == 5));
}

fn metrics() -> Metrics {
    let info = PartitionInfo {
        first_seq: 0,
        next_seq: 12,
        next_offset: 2_000,
        last_offset: Some(1_900),
        last_time_ms: Some(55),
    };
    Metrics::new(&info, Timestamp(77))
}

fn metric_pairs() -> Map {
    vec![
        (symbol("last_enqueued_sequence_number_epoch"), Value::Int(-1)),
        (symbol("last_enqueued_sequence_number"), Value::Long(11)),
        (symbol("last_enqueued_offset"), Value::from("1900")),
        (symbol("last_enqueued_time_utc"), Value::Timestamp(Timestamp(55))),
        (symbol("runtime_info_retrieval_time_utc"), Value::Timestamp(Timestamp(77))),
    ]
}

/// Sections by hand: delivery annotations, properties, a body and a footer.
const HOP: &[u8] = b"\0\x53\x71\xc1\x0b\x02\xa3\x03hop\xa1\x03yes";
const PROPERTIES: &[u8] = b"\0\x53\x74\xc1\x06\x02\xa1\x01n\x54\x01";
const BODY: &[u8] = b"\0\x53\x75\xa0\x01x";
const FOOTER: &[u8] = b"\0\x53\x78\xc1\x06\x02\xa3\x01f\x54\x01";

fn hop() -> Map {
    vec![(symbol("hop"), Value::from("yes"))]
}

fn raw_delivery(data: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    Delivery::new(&StoredEvent { seq: 7, offset: 1_234, time_ms: 99, data }, None).write(&mut out);
    out
}

#[test]
fn sections_in_another_order_are_taken_and_come_back_in_that_order() {
    for sections in
        [[PROPERTIES, BODY, HOP], [BODY, HOP, PROPERTIES], [FOOTER, BODY, HOP], [BODY, FOOTER, PROPERTIES]]
    {
        let sent = sections.concat();
        let batch = envelope(None, std::slice::from_ref(&sent));
        for (format, payload) in [(FORMAT_EVENT, &sent), (FORMAT_BATCH, &batch)] {
            let ingested = ingest(format, payload, BYTES_MAX).expect("taken");
            let stored = &events(&ingested)[0];
            let out = raw_delivery(stored);
            assert!(out.ends_with(&sent), "{}", out.escape_ascii());
            let annotations = &out[..out.len() - sent.len()];
            assert!(annotations.starts_with(b"\0\x53\x72"), "{}", annotations.escape_ascii());
        }
    }
    // Where the standard has them, they come back there.
    let sent = [HOP, PROPERTIES, BODY].concat();
    let ingested = ingest(FORMAT_EVENT, &sent, BYTES_MAX).expect("taken");
    assert_eq!(events(&ingested)[0], sent, "what needs no change is not changed");
    let out = raw_delivery(&events(&ingested)[0]);
    assert!(out.starts_with(HOP) && out.ends_with(&[PROPERTIES, BODY].concat()), "{}", out.escape_ascii());
}

#[test]
fn annotations_behind_the_body_are_merged_with_the_hub_s() {
    let annotations = b"\0\x53\x72\xc1\x0b\x02\xa3\x04mine\xa1\x02me".as_slice();
    let sent = [BODY, annotations, HOP].concat();
    let ingested = ingest(FORMAT_EVENT, &sent, BYTES_MAX).expect("taken");
    let got = delivered(&events(&ingested)[0], None);
    let mut expected = vec![(symbol("mine"), Value::from("me"))];
    expected.extend(hubs_own());
    assert_eq!((got.message_annotations, got.delivery_annotations), (Some(expected), Some(hop())));
    // The key of an envelope, behind events that have it, too.
    let key = b"\0\x53\x72\xc1\x1c\x02\xa3\x13x-opt-partition-key\xa1\x04door".as_slice();
    let payload = [&envelope(None, &[BODY.to_vec(), BODY.to_vec()]), key].concat();
    let ingested = ingest(FORMAT_BATCH, &payload, BYTES_MAX).expect("taken");
    assert_eq!((ingested.key, events(&ingested).len()), (Some("door"), 2));
    for event in events(&ingested) {
        assert_eq!(Message::decode(&event).expect("decodes"), keyed("door", "x"));
    }
}

#[test]
fn an_event_s_delivery_annotations_and_the_metrics_come_as_one_section() {
    for sent in [[HOP, BODY, FOOTER].concat(), [BODY, HOP, FOOTER].concat(), [BODY, FOOTER, HOP].concat()] {
        let ingested = ingest(FORMAT_EVENT, &sent, BYTES_MAX).expect("taken");
        let got = delivered(&events(&ingested)[0], Some(&metrics()));
        let mut expected = metric_pairs();
        expected.extend(hop());
        assert_eq!(got.delivery_annotations, Some(expected));
        assert!(got.body == Body::from("x") && got.footer.is_some());
    }
}

#[test]
fn a_null_data_section_is_taken_and_comes_back() {
    let null = b"\0\x53\x75\x40".to_vec();
    let ingested = ingest(FORMAT_EVENT, &null, BYTES_MAX).expect("taken");
    assert!(raw_delivery(&events(&ingested)[0]).ends_with(&null));
    assert_eq!(delivered(&events(&ingested)[0], None).body, Body::from(""));
    let batch = envelope(None, &[null.clone(), BODY.to_vec()]);
    assert_eq!(events(&ingest(FORMAT_BATCH, &batch, BYTES_MAX).expect("taken")), [&null[..], BODY]);
    let ingested = ingest(FORMAT_BATCH, &null, BYTES_MAX).expect("taken");
    assert_eq!(events(&ingested), [encoded(&Message::new(""))], "an event of nothing");
}

#[test]
fn large_annotations_are_delivered_too() {
    let long = "x".repeat(400);
    let sent =
        Message { message_annotations: Some(vec![(symbol("a"), Value::from(&*long))]), ..Message::new("x") };
    let got = delivered(&encoded(&sent), None).message_annotations.expect("there");
    assert_eq!(got[0], (symbol("a"), Value::from(&*long)));
}

#[test]
fn an_idempotent_producer_s_mark_is_read_and_not_stored() {
    let marks = vec![
        (symbol("com.microsoft:producer-id"), Value::Long(9)),
        (symbol("com.microsoft:producer-epoch"), Value::Short(2)),
        (symbol("com.microsoft:producer-sequence-number"), Value::Int(40)),
    ];
    let stamp = Some(ProducerStamp { id: 9, epoch: 2, sequence: 40 });
    let payload = envelope(Some(marks.clone()), &[encoded(&Message::new("x"))]);
    assert_eq!(ingest(FORMAT_BATCH, &payload, BYTES_MAX).expect("valid").producer, stamp);
    let single = encoded(&Message { message_annotations: Some(marks), ..Message::new("x") });
    let second = encoded(&Message {
        message_annotations: Some(vec![(symbol("com.microsoft:producer-sequence-number"), Value::Int(41))]),
        ..Message::new("y")
    });
    let inside = envelope(None, &[single.clone(), second]);
    assert_eq!(ingest(FORMAT_BATCH, &inside, BYTES_MAX).expect("valid").producer, stamp, "the first event's");
    let ingested = ingest(FORMAT_EVENT, &single, BYTES_MAX).expect("valid");
    assert_eq!(ingested.producer, stamp);
    assert_eq!(events(&ingested), [encoded(&Message::new("x"))]);
}

#[test]
fn nothing_is_no_mistake_and_an_empty_body_is_a_body() {
    assert!(ingest(FORMAT_BATCH, b"", BYTES_MAX).expect("empty").batch.is_none());
    let footer = [0x00, 0x53, 0x78, 0xc1, 0x01, 0x00];
    let properties = [0x00, 0x53, 0x74, 0xc1, 0x01, 0x00];
    let payload = [&properties[..], &footer].concat();
    let ingested = ingest(FORMAT_EVENT, &payload, BYTES_MAX).expect("tolerated");
    let got = Message::decode(&events(&ingested)[0]).expect("decodes");
    assert!(got.body == Body::from("") && got.footer.is_some() && got.application_properties.is_some());
    let ingested = ingest(FORMAT_EVENT, b"", BYTES_MAX).expect("tolerated");
    assert_eq!(events(&ingested), [encoded(&Message::new(""))]);
}

#[test]
fn what_is_no_message_is_refused_with_the_reason() {
    let good = encoded(&Message::new("x"));
    let bad_inner = envelope(None, &[good.clone(), b"garbage".to_vec()]);
    let value = encoded(&Message::new(Value::from(1_i32)));
    // A count of values that take no bytes is only a claim.
    let bomb = [&[0x00, 0x53, 0x77, 0xf0, 0, 0, 0, 5][..], &1_000_000_u32.to_be_bytes(), &[0x40]].concat();
    let long_key = encoded(&keyed(&"k".repeat(129), "x"));
    for (format, payload, condition, word) in [
        (FORMAT_EVENT, &b"garbage"[..], "amqp:decode-error", "not an AMQP message"),
        (FORMAT_EVENT, &good[..good.len() - 1], "amqp:decode-error", "end within"),
        (FORMAT_BATCH, &bad_inner, "amqp:decode-error", "Event 1"),
        (FORMAT_BATCH, &value, "amqp:decode-error", "data sections"),
        (FORMAT_EVENT, &bomb, "amqp:decode-error", "values"),
        (FORMAT_EVENT, &long_key, "com.microsoft:argument-error", "129 characters"),
        (7, &good, "com.microsoft:argument-error", "0x7"),
        (FORMAT_EVENT, &vec![0; BYTES_MAX + 1], "amqp:link:message-size-exceeded", "exceeds the limit"),
    ] {
        let refusal = ingest(format, payload, BYTES_MAX).expect_err(word);
        assert!(refusal.condition == condition && refusal.description.contains(word), "{refusal}");
    }
}

fn any_pairs() -> impl Strategy<Value = Map> {
    let names = prop_oneof![
        "[a-z]{1,8}",
        Just(PARTITION_KEY.to_owned()),
        Just("x-opt-offset".to_owned()),
        Just("com.microsoft:producer-id".to_owned()),
    ];
    let value = prop_oneof![any::<i64>().prop_map(Value::from), "[a-z]{0,90}".prop_map(Value::from)];
    prop::collection::vec((names.prop_map(|name| symbol(&name)), value), 0..6)
}

fn any_message() -> impl Strategy<Value = Message> {
    let body = prop_oneof![
        prop::collection::vec(any::<u8>(), 0..300).prop_map(|bytes| Body::Data(bytes.into())),
        any::<i64>().prop_map(|n| Body::Value(Value::from(n))),
        Just(Body::Sequence(vec![vec![Value::Null]])),
    ];
    let header = prop::option::of(Just(Header { ttl_ms: Some(5), ..Header::default() }));
    (header, prop::option::of(any_pairs()), prop::option::of(any_pairs()), body).prop_map(
        |(header, delivery_annotations, message_annotations, body)| Message {
            header,
            delivery_annotations,
            message_annotations,
            ..Message::new(body)
        },
    )
}

proptest! {
    #[test]
    fn whatever_is_sent_is_delivered_with_the_hub_s_annotations_once(
        messages in prop::collection::vec(any_message(), 1..6), key in prop::option::of("[a-z]{1,20}"),
    ) {
        let inner: Vec<_> = messages.iter().map(encoded).collect();
        let outer = key.clone().map(|key| vec![(symbol(PARTITION_KEY), Value::from(key))]);
        let payload = envelope(outer, &inner);
        let ingested = ingest(FORMAT_BATCH, &payload, BYTES_MAX).expect("valid");
        let events = events(&ingested);
        prop_assert_eq!(events.len(), messages.len());
        for (event, sent) in events.iter().zip(&messages) {
            let got = delivered(event, None);
            let hop = sent.delivery_annotations.clone().filter(|map| !map.is_empty());
            prop_assert_eq!((&got.header, &got.body, &got.delivery_annotations), (&None, &sent.body, &hop));
            let got = got.message_annotations.expect("there");
            let hubs = &got[got.len() - 4..];
            prop_assert_eq!(hubs, &hubs_own()[..]);
            let own = |map: &Map| -> Map {
                let others = map.iter().filter(|(name, _)| {
                    name.as_str().is_some_and(|name| !name.starts_with("x-opt-") && !name.starts_with("com."))
                });
                others.cloned().collect()
            };
            prop_assert_eq!(own(&got), sent.message_annotations.as_ref().map(own).unwrap_or_default());
            let keys = got.iter().filter(|(name, _)| *name == symbol(PARTITION_KEY)).collect::<Vec<_>>();
            prop_assert!(keys.len() <= 1);
            if let Some(key) = &key {
                prop_assert_eq!(keys[0].1.as_str(), Some(&**key));
            }
        }
    }

    #[test]
    fn any_bytes_are_taken_or_refused_and_what_is_taken_decodes(
        mut bytes in prop::collection::vec(any_message().prop_map(|message| encoded(&message)), 1..3),
        at in any::<usize>(), with in any::<u8>(), batch in any::<bool>(),
    ) {
        let mut payload = if batch { envelope(None, &bytes) } else { bytes.swap_remove(0) };
        let at = at % payload.len();
        payload[at] = with;
        let format = if batch { FORMAT_BATCH } else { FORMAT_EVENT };
        if let Ok(ingested) = ingest(format, &payload, BYTES_MAX) {
            for event in events(&ingested) {
                prop_assert!(Message::decode(&event).is_ok());
                delivered(&event, None);
                delivered(&event, Some(&metrics()));
            }
        }
    }

    #[test]
    fn bytes_that_nobody_checked_are_delivered_without_a_panic(data in prop::collection::vec(any::<u8>(), 0..80)) {
        for prefix in [&[][..], &[0x00, 0x53, 0x70], &[0x00, 0x53, 0x72, 0xc1], &[0x00, 0x53, 0x72, 0xd1]] {
            let data = [prefix, &data].concat();
            let event = StoredEvent { seq: 0, offset: u64::MAX, time_ms: 0, data: &data };
            let delivery = Delivery::new(&event, None);
            let mut out = Vec::new();
            delivery.write(&mut out);
            prop_assert_eq!(out.len(), delivery.len());
        }
    }
}

const NOW: Timestamp = Timestamp(1_700_000_000_000);

fn question(properties: &[(&str, &str)]) -> Message {
    let pairs = properties.iter().map(|(key, value)| (Value::from(*key), Value::from(*value)));
    Message {
        properties: Some(vec![Value::Uuid(3)]),
        application_properties: Some(pairs.collect()),
        ..Message::new("ignored")
    }
}

fn answer(reply: &Message) -> (i32, String, Map) {
    let get = |name: &str| property(reply, name);
    let Some(Value::Int(code)) = get("status-code") else { panic!("the status is an int") };
    let map = match &reply.body {
        Body::Value(Value::Map(map)) => map.clone(),
        _ => Map::new(),
    };
    let description = get("status-description").and_then(|text| text.as_str().map(str::to_owned));
    assert_eq!(description.is_some(), code != 200, "the service says nothing more where all went well");
    (code, description.unwrap_or_default(), map)
}

fn property(reply: &Message, name: &str) -> Option<Value> {
    let pairs = reply.application_properties.as_deref().expect("there");
    pairs.iter().find(|(key, _)| key.as_str() == Some(name)).map(|(_, value)| value.clone())
}

#[test]
fn hubs_and_partitions_are_described_in_the_types_that_clients_insist_on() {
    let broker = Broker::in_memory(64 << 20).expect("opens");
    let hub = broker.create_hub(&HubName::new("eh1"), HubOptions { partitions: 2, ..HubOptions::default() });
    let hub = hub.expect("made");
    let ask = |properties: &[(&str, &str)]| {
        let reply =
            management::handle(&question(properties), &broker, &Rules::default(), &Tokens::all(), NOW);
        assert_eq!(reply.properties.as_ref().expect("there")[5], Value::Uuid(3));
        answer(&reply)
    };
    let read = [("operation", "READ"), ("type", "com.microsoft:eventhub"), ("name", "EH1")];
    let (code, _, map) = ask(&read);
    let get =
        |map: &Map, name: &str| map.iter().find(|(key, _)| *key == Value::from(name)).expect(name).1.clone();
    assert_eq!(code, 200);
    assert_eq!(get(&map, "name"), Value::from("eh1"));
    assert_eq!(get(&map, "partition_ids"), Value::Array(vec![Value::from("0"), Value::from("1")]));
    assert_eq!(get(&map, "partition_count"), Value::Int(2));
    assert_eq!(get(&map, "georeplication_factor"), Value::Int(1));
    assert!(matches!(get(&map, "created_at"), Value::Timestamp(time) if time.0 > 0));

    let partition =
        [("operation", "READ"), ("type", "com.microsoft:partition"), ("name", "eh1"), ("partition", "1")];
    let (_, _, map) = ask(&partition);
    assert_eq!(get(&map, "begin_sequence_number"), Value::Long(-1));
    assert_eq!(get(&map, "begin_sequence_number_epoch"), Value::Int(-1));
    assert_eq!(get(&map, "last_enqueued_time_utc"), Value::Timestamp(Timestamp(-62_135_596_800_000)));
    assert_eq!(get(&map, "last_enqueued_sequence_number"), Value::Long(-1));
    assert_eq!(get(&map, "last_enqueued_offset"), Value::from("-1"));
    assert_eq!(get(&map, "is_partition_empty"), Value::Boolean(true));
    for _ in 0..2 {
        hub.send_and_wait(Route::Partition(1), EncodedBatch::of(&["abc"]).expect("valid")).expect("durable");
    }
    let (_, _, map) = ask(&partition);
    assert_eq!(get(&map, "partition"), Value::from("1"));
    assert_eq!(get(&map, "last_enqueued_sequence_number"), Value::Long(1));
    assert_eq!(get(&map, "begin_sequence_number"), Value::Long(0));
    assert_eq!(get(&map, "last_enqueued_sequence_number_epoch"), Value::Int(-1));
    assert_eq!(get(&map, "last_enqueued_offset"), Value::from("3"));
    assert!(matches!(get(&map, "last_enqueued_time_utc"), Value::Timestamp(time) if time.0 > 0));
    assert_eq!(get(&map, "is_partition_empty"), Value::Boolean(false));
}

#[test]
fn questions_that_cannot_be_answered_are_answered_with_the_reason() {
    let broker = Broker::in_memory(64 << 20).expect("opens");
    broker.create_hub(&HubName::new("eh1"), HubOptions::default()).expect("made");
    let (read, hub) = (("operation", "READ"), ("type", "com.microsoft:eventhub"));
    let partition = ("type", "com.microsoft:partition");
    for (properties, code, word) in [
        (vec![read, hub, ("name", "eh2")], 404, "The messaging entity 'eh2' could not be found"),
        (vec![read, partition, ("name", "eh1"), ("partition", "4")], 400, "between 0 and 3"),
        (vec![read, partition, ("name", "eh1")], 400, "'partition'"),
        (vec![read, hub], 400, "'name'"),
        (vec![read, ("type", "com.microsoft:consumergroup"), ("name", "eh1")], 501, "consumergroup"),
        (vec![("operation", "CREATE"), hub], 501, "CREATE"),
        (vec![], 400, "'operation'"),
    ] {
        let request = question(&properties);
        let reply = management::handle(&request, &broker, &Rules::default(), &Tokens::all(), NOW);
        let (got, description, _) = answer(&reply);
        assert!(got == code && description.contains(word), "{got} {description}");
        let condition = match word {
            "between 0 and 3" => "com.microsoft:argument-out-of-range",
            _ if code == 404 => "amqp:not-found",
            _ if code == 501 => "amqp:not-implemented",
            _ => "com.microsoft:argument-error",
        };
        assert_eq!(property(&reply, "error-condition"), Some(symbol(condition)));
    }
}

#[test]
fn questions_need_a_token_on_the_connection_or_in_the_request() {
    let broker = Broker::in_memory(64 << 20).expect("opens");
    broker.create_hub(&HubName::new("eh1"), HubOptions::default()).expect("made");
    let ask_with = |tokens: &Tokens, token: Option<&str>| {
        let mut properties = vec![("operation", "READ"), ("type", "com.microsoft:eventhub"), ("name", "eh1")];
        properties.extend(token.map(|token| ("security_token", token)));
        let request = question(&properties);
        answer(&management::handle(&request, &broker, &Rules::default(), tokens, NOW)).0
    };
    let ask = |token: Option<&str>| ask_with(&Tokens::default(), token);
    let end = Timestamp(NOW.0 + 1_000);
    let token = sign("sb://localhost/eh1", WELL_KNOWN_NAME, &Key::new(WELL_KNOWN_KEY), end);
    assert_eq!((ask(None), ask(Some("forged")), ask(Some(&token))), (401, 401, 200));
    // A bad token is refused beside a good one on the connection.
    let ask = |token: Option<&str>| ask_with(&Tokens::all(), token);
    let forged = sign("sb://localhost/eh1", WELL_KNOWN_NAME, &Key::new("guess"), end);
    let elsewhere = sign("sb://localhost/eh2", WELL_KNOWN_NAME, &Key::new(WELL_KNOWN_KEY), end);
    assert_eq!((ask(None), ask(Some(&token))), (200, 200));
    assert_eq!((ask(Some("x")), ask(Some(&forged)), ask(Some(&elsewhere))), (401, 401, 401));
}
