//! Several events as one message: each data section holds an encoded event.

use partita_amqp::message::{map_section, section};
use partita_amqp::types::{self, EncodeError};
use partita_core::model::Value;

use crate::names::annotation::PARTITION_KEY;

/// The format of such a message, which the transfer tells.
pub const FORMAT: u32 = 0x8001_3700;

/// The bytes that an event takes beside its own.
pub fn overhead(event_bytes: usize) -> usize {
    3 + if event_bytes <= u8::MAX.into() { 2 } else { 5 }
}

/// Appends what comes before the events: the partition key that they have in common, and further annotations.
pub fn begin(key: Option<&str>, annotations: &[(&str, Value)], out: &mut Vec<u8>) -> Result<(), EncodeError> {
    let count = annotations.len() + usize::from(key.is_some());
    if count == 0 {
        return Ok(());
    }
    map_section(section::MESSAGE_ANNOTATIONS, count, out, |out| {
        if let Some(key) = key {
            types::symbol(PARTITION_KEY, out)?;
            types::text(key, out)?;
        }
        for (name, value) in annotations {
            types::symbol(name, out)?;
            types::encode(value, out)?;
        }
        Ok(())
    })
}

/// Appends an encoded event.
pub fn push(event: &[u8], out: &mut Vec<u8>) -> Result<(), EncodeError> {
    types::smallulong_descriptor(section::DATA, out);
    types::binary(event, out)
}

#[cfg(test)]
mod tests {
    use partita_core::model::Body;

    use super::*;
    use partita_amqp::message::Message;

    #[test]
    fn a_batch_is_a_message_with_an_event_in_each_data_section() {
        let mut out = Vec::new();
        begin(Some("key"), &[("n", Value::Int(1))], &mut out).unwrap();
        for size in [0, 255, 256] {
            let before = out.len();
            push(&vec![7; size], &mut out).unwrap();
            assert_eq!(out.len() - before, size + overhead(size));
        }
        let message = Message::decode(&out.into()).unwrap();
        let annotations = message.message_annotations.unwrap();
        assert_eq!(annotations[0], (Value::Symbol(PARTITION_KEY.into()), Value::from("key")));
        let Body::DataSections(sections) = message.body else { panic!("sections") };
        assert_eq!(sections.iter().map(bytes::Bytes::len).collect::<Vec<_>>(), [0, 255, 256]);
    }
}
