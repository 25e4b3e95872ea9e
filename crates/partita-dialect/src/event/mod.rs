//! An event as a message, the way Event Hubs writes it: the key of its partition is the annotation
//! `x-opt-partition-key`. Its sequence number, offset and enqueued time are the hub's to say, so they are not in what a
//! producer encodes, and are ignored where one claims them.

pub mod batch;
mod partition_key;
mod received;

use std::sync::Arc;

use bytes::Bytes;
use partita_core::model::{Event, EventBuilder, MessageProperties, Value};
pub use partition_key::{KEY_CHARS_MAX, partition_of};
pub use received::{last_enqueued, received};

use partita_amqp::message::{self, Message, MessageError, map_section, section};
use partita_amqp::types::{self, EncodeError, encode_list, smallulong_descriptor};

use crate::names::annotation::{
    ENQUEUED_TIME, OFFSET, PARTITION_KEY, SEQUENCE_NUMBER, SEQUENCE_NUMBER_EPOCH,
};

/// Annotations that the hub writes.
const HUBS_OWN: [&str; 4] = [SEQUENCE_NUMBER_EPOCH, SEQUENCE_NUMBER, OFFSET, ENQUEUED_TIME];

/// Appends the event's sections.
pub fn encode(event: &Event, out: &mut Vec<u8>) -> Result<(), EncodeError> {
    let is_own = |key: &str| key == PARTITION_KEY || HUBS_OWN.contains(&key);
    let annotations = || event.annotations().iter().filter(|(key, _)| !is_own(key));
    let key = event.partition_key();
    let count = annotations().count() + usize::from(key.is_some());
    if count > 0 {
        map_section(section::MESSAGE_ANNOTATIONS, count, out, |out| {
            if let Some(key) = key {
                types::symbol(PARTITION_KEY, out)?;
                types::encode(&Value::from(key), out)?;
            }
            for (key, value) in annotations() {
                types::symbol(key, out)?;
                types::encode(value, out)?;
            }
            Ok(())
        })?;
    }
    if let Some(properties) = event.message_properties() {
        smallulong_descriptor(section::PROPERTIES, out);
        encode_list(&property_fields(properties), out)?;
    }
    let properties = event.properties();
    if !properties.is_empty() {
        map_section(section::APPLICATION_PROPERTIES, properties.len(), out, |out| {
            for (key, value) in properties.iter() {
                types::encode(&Value::from(key), out)?;
                types::encode(value, out)?;
            }
            Ok(())
        })?;
    }
    message::body(event.body(), out)
}

/// Reads an event's content from its sections. The body shares the memory of `bytes`. Header, delivery annotations and
/// footer have no place in an event and are left out; so is a standard property of a type that it cannot have.
pub fn decode(bytes: &Bytes) -> Result<EventBuilder, MessageError> {
    let message = Message::decode(bytes)?;
    let mut event = Event::builder(message.body);
    for (key, value) in message.message_annotations.into_iter().flatten() {
        let Some(name) = key.as_str() else { continue };
        match value.as_str() {
            Some(partition_key) if name == PARTITION_KEY => event = event.partition_key(partition_key),
            _ if HUBS_OWN.contains(&name) => {}
            _ => event = event.annotation(name, value),
        }
    }
    if let Some(fields) = message.properties {
        event = event.message_properties(read_properties(fields));
    }
    for (key, value) in message.application_properties.into_iter().flatten() {
        if let Some(name) = key.as_str() {
            event = event.property(name, value);
        }
    }
    Ok(event)
}

/// The fields up to the last one that is there, in the order of the standard.
fn property_fields(properties: &MessageProperties) -> Vec<Value> {
    let text = |text: &Option<Arc<str>>| text.clone().map_or(Value::Null, Value::String);
    let symbol = |text: &Option<Arc<str>>| text.clone().map_or(Value::Null, Value::Symbol);
    let mut fields = vec![
        properties.message_id.clone().unwrap_or(Value::Null),
        properties.user_id.clone().map_or(Value::Null, Value::Binary),
        text(&properties.to),
        text(&properties.subject),
        text(&properties.reply_to),
        properties.correlation_id.clone().unwrap_or(Value::Null),
        symbol(&properties.content_type),
        symbol(&properties.content_encoding),
        properties.absolute_expiry_time.map_or(Value::Null, Value::Timestamp),
        properties.creation_time.map_or(Value::Null, Value::Timestamp),
        text(&properties.group_id),
        properties.group_sequence.map_or(Value::Null, Value::Uint),
        text(&properties.reply_to_group_id),
    ];
    let used = fields.iter().rposition(|field| *field != Value::Null).map_or(0, |last| last + 1);
    fields.truncate(used);
    fields
}

fn read_properties(fields: Vec<Value>) -> MessageProperties {
    let mut properties = MessageProperties::default();
    for (at, field) in fields.into_iter().enumerate() {
        let place = match at {
            2 => &mut properties.to,
            3 => &mut properties.subject,
            4 => &mut properties.reply_to,
            6 => &mut properties.content_type,
            7 => &mut properties.content_encoding,
            10 => &mut properties.group_id,
            12 => &mut properties.reply_to_group_id,
            _ => {
                match (at, field) {
                    (_, Value::Null) => {}
                    (0, id) => properties.message_id = Some(id),
                    (5, id) => properties.correlation_id = Some(id),
                    (1, Value::Binary(user)) => properties.user_id = Some(user),
                    (8, Value::Timestamp(time)) => properties.absolute_expiry_time = Some(time),
                    (9, Value::Timestamp(time)) => properties.creation_time = Some(time),
                    (11, Value::Uint(sequence)) => properties.group_sequence = Some(sequence),
                    _ => {}
                }
                continue;
            }
        };
        if let Value::String(text) | Value::Symbol(text) = field {
            *place = Some(text);
        }
    }
    properties
}

#[cfg(test)]
mod tests {
    use partita_core::model::{Body, Offset, SequenceNumber, Timestamp};

    use super::*;

    fn placed(event: EventBuilder) -> Event {
        event.at(SequenceNumber(1), Offset::number(2), Timestamp(3))
    }

    fn encoded(event: &Event) -> Bytes {
        let mut out = Vec::new();
        encode(event, &mut out).expect("encodes");
        out.into()
    }

    #[test]
    fn a_plain_event_is_one_data_section() {
        assert_eq!(encoded(&placed(Event::builder("hi")))[..], [0x00, 0x53, 0x75, 0xa0, 0x02, b'h', b'i']);
    }

    #[test]
    fn key_annotations_and_properties_come_back() {
        let written = || {
            Event::builder(Body::Sequence(vec![vec![Value::from(1_i32)], vec![]]))
                .partition_key("door 7")
                .annotation("x-colour", "blue")
                .property("n", -1_i64)
                .property("größe", Value::Decimal32([1, 2, 3, 4]))
        };
        let event = placed(written());
        assert_eq!(placed(decode(&encoded(&event)).expect("decodes")), event);
    }

    #[test]
    fn every_standard_property_comes_back() {
        let mut properties = MessageProperties::default();
        properties.message_id = Some(Value::Uuid(7));
        properties.user_id = Some(Bytes::from_static(b"me"));
        properties.to = Some("there".into());
        properties.subject = Some("doors".into());
        properties.reply_to = Some("here".into());
        properties.correlation_id = Some(Value::Ulong(9));
        properties.content_type = Some("application/json".into());
        properties.content_encoding = Some("gzip".into());
        properties.absolute_expiry_time = Some(Timestamp(11));
        properties.creation_time = Some(Timestamp(10));
        properties.group_id = Some("group".into());
        properties.group_sequence = Some(12);
        properties.reply_to_group_id = Some("others".into());
        let event = placed(Event::builder("x").message_properties(properties.clone()).property("n", 1_i32));
        let read = placed(decode(&encoded(&event)).expect("decodes"));
        assert_eq!(read.message_properties(), Some(&properties));
        assert_eq!(read, event);
        let few =
            placed(Event::builder("x").message_id("a").correlation_id(5_u64).content_type("text/plain"));
        assert_eq!(placed(decode(&encoded(&few)).expect("decodes")), few);
    }

    #[test]
    fn a_standard_property_of_another_type_is_left_out_and_the_rest_stays() {
        let mut message = Message::new(Body::Data(Bytes::from_static(b"x")));
        message.properties =
            Some(vec![Value::from("id"), Value::from(1_i32), Value::from(2_i32), Value::from("subject")]);
        let mut bytes = Vec::new();
        message::encode(&message, &mut bytes).expect("encodes");
        let read = placed(decode(&bytes.into()).expect("decodes"));
        let properties = read.message_properties().expect("some");
        assert_eq!((&properties.message_id, &properties.to), (&Some(Value::from("id")), &None));
        assert_eq!(properties.subject.as_deref(), Some("subject"));
    }

    #[test]
    fn what_the_hub_says_is_not_taken_from_the_producer() {
        let event =
            placed(Event::builder("x").annotation("x-opt-offset", "99").annotation(PARTITION_KEY, "k"));
        let read = placed(decode(&encoded(&event)).expect("decodes"));
        assert!(read.annotations().is_empty() && read.partition_key().is_none());
    }

    #[test]
    fn the_body_is_shared_and_not_copied() {
        let bytes = encoded(&placed(Event::builder("not copied")));
        let event = placed(decode(&bytes).expect("decodes"));
        let Body::Data(body) = event.body() else { panic!("data was written") };
        assert_eq!(body.as_ptr(), bytes[5..].as_ptr());
    }

    #[test]
    fn an_annotation_must_be_ascii() {
        let event = placed(Event::builder("x").annotation("größe", 1_i32));
        assert_eq!(encode(&event, &mut Vec::new()), Err(EncodeError::BadSymbol));
    }
}
