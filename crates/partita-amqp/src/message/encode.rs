//! A message to bytes.

use partita_core::model::{Body, Value};

use super::{Header, Message, section};
use crate::types::{self, EncodeError, encode_list, smallulong_descriptor};

/// Appends the message's sections. `out` is of no use after an error.
pub fn encode(message: &Message, out: &mut Vec<u8>) -> Result<(), EncodeError> {
    encode_without_body(message, out)?;
    body(&message.body, out)?;
    map(section::FOOTER, message.footer.as_deref(), out)
}

/// Appends the sections before the body, and no body: the service's replies to tokens have none.
pub fn encode_without_body(message: &Message, out: &mut Vec<u8>) -> Result<(), EncodeError> {
    if let Some(header) = &message.header {
        smallulong_descriptor(section::HEADER, out);
        encode_list(&header_fields(header), out)?;
    }
    map(section::DELIVERY_ANNOTATIONS, message.delivery_annotations.as_deref(), out)?;
    map(section::MESSAGE_ANNOTATIONS, message.message_annotations.as_deref(), out)?;
    if let Some(fields) = &message.properties {
        smallulong_descriptor(section::PROPERTIES, out);
        encode_list(fields, out)?;
    }
    map(section::APPLICATION_PROPERTIES, message.application_properties.as_deref(), out)
}

fn map(section: u8, pairs: Option<&[(Value, Value)]>, out: &mut Vec<u8>) -> Result<(), EncodeError> {
    let Some(pairs) = pairs else { return Ok(()) };
    map_section(section, pairs.len(), out, |out| {
        for (key, value) in pairs {
            types::encode(key, out)?;
            types::encode(value, out)?;
        }
        Ok(())
    })
}

/// Appends a section that is a map, whose pairs `content` writes.
pub fn map_section(
    section: u8,
    pairs: usize,
    out: &mut Vec<u8>,
    content: impl FnOnce(&mut Vec<u8>) -> Result<(), EncodeError>,
) -> Result<(), EncodeError> {
    smallulong_descriptor(section, out);
    types::compound((0xc1, 0xd1), pairs * 2, out, content)
}

/// Appends a data section.
fn data_section(bytes: &[u8], out: &mut Vec<u8>) -> Result<(), EncodeError> {
    smallulong_descriptor(section::DATA, out);
    types::binary(bytes, out)
}

/// Appends the sections of a body. A body of no data sections or sequences is one empty one: a message has a body.
pub fn body(body: &Body, out: &mut Vec<u8>) -> Result<(), EncodeError> {
    match body {
        Body::Data(bytes) => data_section(bytes, out),
        Body::DataSections(sections) if sections.is_empty() => data_section(&[], out),
        Body::DataSections(sections) => sections.iter().try_for_each(|bytes| data_section(bytes, out)),
        Body::Value(value) => {
            smallulong_descriptor(section::VALUE, out);
            types::encode(value, out)
        }
        Body::Sequence(sections) => {
            let empty = [Vec::new()];
            let sections = if sections.is_empty() { &empty[..] } else { sections };
            sections.iter().try_for_each(|values| {
                smallulong_descriptor(section::SEQUENCE, out);
                encode_list(values, out)
            })
        }
        _ => Err(EncodeError::Unknown),
    }
}

/// The fields up to the last one that is there.
fn header_fields(header: &Header) -> Vec<Value> {
    let mut fields = vec![
        header.durable.map_or(Value::Null, Value::Boolean),
        header.priority.map_or(Value::Null, Value::Ubyte),
        header.ttl_ms.map_or(Value::Null, Value::Uint),
        header.first_acquirer.map_or(Value::Null, Value::Boolean),
        header.delivery_count.map_or(Value::Null, Value::Uint),
    ];
    let used = fields.iter().rposition(|field| *field != Value::Null).map_or(0, |last| last + 1);
    fields.truncate(used);
    fields
}
