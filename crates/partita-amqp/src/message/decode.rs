//! Bytes to a message.

use bytes::Bytes;
use partita_core::model::{Body, Value};

use super::{Header, Message, MessageError, Seen, section};
use crate::types::{DecodeError, Decoder, code};

/// Reads a message from its bytes, all of them. Sections may come in any order: some clients put delivery annotations last.
pub fn decode(bytes: &Bytes) -> Result<Message, MessageError> {
    let mut input = Decoder::new(bytes);
    let mut message = Message::new(Body::DataSections(Vec::new()));
    let mut body: Option<Body> = None;
    let mut seen = Seen::default();
    while !input.is_empty() {
        let section = seen.add(input.descriptor()?)?;
        match section {
            section::HEADER => message.header = Some(header(&list(&mut input)?)?),
            section::DELIVERY_ANNOTATIONS => message.delivery_annotations = Some(input.map()?),
            section::MESSAGE_ANNOTATIONS => message.message_annotations = Some(input.map()?),
            section::PROPERTIES => message.properties = Some(list(&mut input)?),
            section::APPLICATION_PROPERTIES => message.application_properties = Some(input.map()?),
            section::DATA => {
                let data = data(&mut input)?;
                body = Some(match body {
                    None => Body::Data(data),
                    Some(Body::Data(first)) => Body::DataSections(vec![first, data]),
                    Some(Body::DataSections(mut sections)) => {
                        sections.push(data);
                        Body::DataSections(sections)
                    }
                    Some(_) => return Err(MessageError::Order(section)),
                });
            }
            section::SEQUENCE => {
                let values = input.list()?;
                match &mut body {
                    Some(Body::Sequence(sections)) => sections.push(values),
                    _ => body = Some(Body::Sequence(vec![values])),
                }
            }
            section::VALUE => body = Some(Body::Value(input.value()?)),
            _ => message.footer = Some(input.map()?),
        }
    }
    message.body = body.ok_or(MessageError::NoBody)?;
    Ok(message)
}

/// A list, or null in its place.
pub fn list(input: &mut Decoder<'_>) -> Result<Vec<Value>, DecodeError> {
    if input.rest().first() == Some(&code::NULL) {
        input.skip()?;
        return Ok(Vec::new());
    }
    input.list()
}

/// The content of a data section. Null is taken for nothing: some clients write it for an empty body.
pub fn data(input: &mut Decoder<'_>) -> Result<Bytes, DecodeError> {
    if input.rest().first() == Some(&code::NULL) {
        input.skip()?;
        return Ok(Bytes::new());
    }
    input.binary()
}

pub(super) fn header(fields: &[Value]) -> Result<Header, DecodeError> {
    let mut header = Header::default();
    for (at, field) in fields.iter().enumerate() {
        match (at, field) {
            (_, Value::Null) => {}
            (0, Value::Boolean(durable)) => header.durable = Some(*durable),
            (1, Value::Ubyte(priority)) => header.priority = Some(*priority),
            (2, Value::Uint(ttl)) => header.ttl_ms = Some(*ttl),
            (3, Value::Boolean(first)) => header.first_acquirer = Some(*first),
            (4, Value::Uint(count)) => header.delivery_count = Some(*count),
            _ => return Err(DecodeError::Expected("message header")),
        }
    }
    Ok(header)
}
