//! Writes one rich event per kind of body, and reads those of all SDKs.

use std::time::{Duration, SystemTime};

use azure_core_amqp::message::{AmqpMessageBody, AmqpMessageId, AmqpMessageProperties};
use azure_core_amqp::{AmqpList, AmqpMessage, AmqpSimpleValue, AmqpTimestamp, AmqpValue};
use azure_messaging_eventhubs::EventDataBatchOptions;
use azure_messaging_eventhubs::models::ReceivedEventData;
use serde_json::{Map, Value, json};

use crate::client::{Context, producer, read as read_events, say, text};

pub async fn write(context: &Context) {
    let client = producer(context, "rich").await.expect("a producer");
    let options = EventDataBatchOptions {
        partition_id: Some(text(&context["partition"])),
        ..EventDataBatchOptions::default()
    };
    let batch = client.create_batch(Some(options)).await.expect("a batch");
    let bodies = &context["bodies"];
    let sequence = bodies["sequence"].as_array().expect("a sequence").iter().map(value).collect();
    for (kind, body) in [
        ("data", AmqpMessageBody::Binary(vec![from_hex(&text(&bodies["data"]))])),
        ("value", AmqpMessageBody::Value(value(&bodies["value"]))),
        ("sequence", AmqpMessageBody::Sequence(vec![AmqpList(sequence)])),
    ] {
        let mut properties = AmqpMessageProperties::default();
        properties.message_id = Some(AmqpMessageId::String(format!("{}-{kind}", text(&context["writer"]))));
        properties.correlation_id = Some(AmqpMessageId::String("correlated".into()));
        properties.content_type = Some("application/json".into());
        let mut message = AmqpMessage::builder().with_properties(properties).with_body(body);
        for (name, kind_and_value) in context["properties"].as_object().expect("properties") {
            message = message.add_application_property(
                name.clone(),
                property(&text(&kind_and_value[0]), &kind_and_value[1]),
            );
        }
        assert!(batch.try_add_amqp_message(message.build(), None).expect("an addition"));
    }
    client.send_batch(batch, None).await.expect("a send");
    say(json!({"bodies": ["data", "value", "sequence"]}));
}

pub async fn read(context: &Context) {
    let mut events = Map::new();
    for (partition, count) in context["expected"].as_object().expect("what to expect") {
        let found = read_events(context, "rich", partition, count.as_u64().expect("a number") as usize).await;
        match found {
            Ok(found) => {
                drop(events.insert(partition.clone(), found.iter().map(|event| plain(event)).collect()))
            }
            Err(error) => return say(json!({ "error": error })),
        }
    }
    say(json!({ "events": events }));
}

fn plain(event: &ReceivedEventData) -> Value {
    let message = event.raw_amqp_message();
    let (kind, body) = match &message.body {
        AmqpMessageBody::Binary(parts) => ("data", json!(to_hex(&parts.concat()))),
        AmqpMessageBody::Value(value) => ("value", of_value(value)),
        AmqpMessageBody::Sequence(lists) => {
            ("sequence", lists.iter().flat_map(|list| list.0.iter().map(of_value)).collect())
        }
        AmqpMessageBody::Empty => ("empty", Value::Null),
    };
    let properties = message.properties.clone().unwrap_or_default();
    let application = message.application_properties.as_ref();
    let values = application
        .map(|properties| properties.0.iter().map(|(name, value)| (name.clone(), of_property(value))));
    json!({
        "kind": kind,
        "message_id": id(properties.message_id),
        "correlation_id": id(properties.correlation_id),
        "content_type": properties.content_type.map(|kind| kind.0),
        "properties": values.map(Iterator::collect::<Map<_, _>>),
        "body": body,
    })
}

fn id(id: Option<AmqpMessageId>) -> Value {
    match id {
        Some(AmqpMessageId::String(text)) => json!(text),
        other => json!(other.map(|id| format!("{id:?}"))),
    }
}

fn property(kind: &str, value: &Value) -> AmqpSimpleValue {
    match kind {
        "string" => text(value).into(),
        "bool" => value.as_bool().expect("a boolean").into(),
        "int" => (value.as_i64().expect("a number") as i32).into(),
        "long" => value.as_i64().expect("a number").into(),
        "double" => value.as_f64().expect("a number").into(),
        "float" => (value.as_f64().expect("a number") as f32).into(),
        "timestamp" => {
            let at = SystemTime::UNIX_EPOCH + Duration::from_millis(value.as_u64().expect("a number"));
            AmqpSimpleValue::TimeStamp(AmqpTimestamp(Some(at)))
        }
        "uuid" => AmqpSimpleValue::Uuid(text(value).parse().expect("a uuid")),
        "binary" => AmqpSimpleValue::Binary(from_hex(&text(value))),
        other => panic!("no such kind: {other}"),
    }
}

fn value(value: &Value) -> AmqpValue {
    match value {
        Value::String(text) => text.clone().into(),
        Value::Number(number) => number.as_i64().expect("a whole number").into(),
        other => panic!("no such value: {other}"),
    }
}

/// The SDK has two types for values, of the same variants in so far as we care.
macro_rules! plain_value {
    ($type:ident, $value:expr) => {
        match $value {
            $type::String(text) => json!(text),
            $type::Boolean(value) => json!(value),
            $type::Byte(value) => json!(value),
            $type::Short(value) => json!(value),
            $type::Int(value) => json!(value),
            $type::Long(value) => json!(value),
            $type::UByte(value) => json!(value),
            $type::UShort(value) => json!(value),
            $type::UInt(value) => json!(value),
            $type::ULong(value) => json!(value),
            $type::Float(value) => json!(value),
            $type::Double(value) => json!(value),
            $type::Uuid(value) => json!(value.to_string()),
            $type::Binary(bytes) => json!(to_hex(bytes)),
            $type::TimeStamp(AmqpTimestamp(Some(at))) => {
                json!(at.duration_since(SystemTime::UNIX_EPOCH).expect("a time after 1970").as_millis() as u64)
            }
            other => json!(format!("{other:?}")),
        }
    };
}

fn of_value(value: &AmqpValue) -> Value {
    plain_value!(AmqpValue, value)
}

fn of_property(value: &AmqpSimpleValue) -> Value {
    plain_value!(AmqpSimpleValue, value)
}

fn to_hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn from_hex(text: &str) -> Vec<u8> {
    let digits = |at| u8::from_str_radix(&text[at..at + 2], 16).expect("hexadecimal digits");
    (0..text.len()).step_by(2).map(digits).collect()
}
