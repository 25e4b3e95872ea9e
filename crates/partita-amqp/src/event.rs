//! An event as a message, the way Event Hubs writes it: the key of its partition is the annotation
//! `x-opt-partition-key`. Its sequence number, offset and enqueued time are the hub's to say, so they are not in what a
//! producer encodes, and are ignored where one claims them.

pub mod batch;
mod partition_key;
mod received;

use bytes::Bytes;
use partita_core::model::{Event, EventBuilder, Value};
pub use partition_key::partition_of;
pub use received::{last_enqueued, received};

use crate::message::{self, Message, MessageError, map_section, section};
use crate::types::{self, EncodeError};

/// The annotation that holds the partition key.
pub const PARTITION_KEY: &str = "x-opt-partition-key";

/// Annotations that the hub writes.
const HUBS_OWN: [&str; 3] = ["x-opt-sequence-number", "x-opt-offset", "x-opt-enqueued-time"];

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

/// Reads an event's content from its sections. The body shares the memory of `bytes`. Header, delivery annotations,
/// footer and the standard's immutable properties have no place in an event and are left out.
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
    for (key, value) in message.application_properties.into_iter().flatten() {
        if let Some(name) = key.as_str() {
            event = event.property(name, value);
        }
    }
    Ok(event)
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
