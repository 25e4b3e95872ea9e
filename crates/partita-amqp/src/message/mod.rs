//! The sections of a message (3.2).

mod decode;
mod encode;
mod raw;
#[cfg(test)]
mod tests;

use bytes::Bytes;
pub use decode::decode;
pub use decode::{data, list};
pub use encode::{body, map_section};
pub use encode::{encode, encode_without_body};
use partita_core::model::{Body, Value};
pub use raw::{RawContent, RawSection, Sections};
use thiserror::Error;

use crate::types::DecodeError;

/// The descriptors of the sections.
pub mod section {
    /// How the message is to be delivered.
    pub const HEADER: u8 = 0x70;
    /// From the last hop to the next.
    pub const DELIVERY_ANNOTATIONS: u8 = 0x71;
    /// Of the message, for those on its way.
    pub const MESSAGE_ANNOTATIONS: u8 = 0x72;
    /// The standard properties.
    pub const PROPERTIES: u8 = 0x73;
    /// The application's own.
    pub const APPLICATION_PROPERTIES: u8 = 0x74;
    /// A body of bytes.
    pub const DATA: u8 = 0x75;
    /// A body of values.
    pub const SEQUENCE: u8 = 0x76;
    /// A body that is one value.
    pub const VALUE: u8 = 0x77;
    /// What is known only after the body.
    pub const FOOTER: u8 = 0x78;
}

/// Which sections a message had so far. They may come in any order, but not twice, and a body is of one kind.
#[derive(Clone, Debug, Default)]
struct Seen {
    /// A bit for each section.
    kinds: u16,
    body: Option<u8>,
}

impl Seen {
    /// Notes a section by the number of its descriptor.
    fn add(&mut self, number: u64) -> Result<u8, MessageError> {
        let kind = u8::try_from(number).ok().filter(|s| (section::HEADER..=section::FOOTER).contains(s));
        let kind = kind.ok_or(MessageError::UnknownSection(number))?;
        let bit = 1 << (kind - section::HEADER);
        let repeats = self.kinds & bit != 0;
        if (section::DATA..=section::VALUE).contains(&kind) {
            let other = self.body.is_some_and(|body| body != kind);
            if other || repeats && kind == section::VALUE {
                return Err(MessageError::Order(kind));
            }
            self.body = Some(kind);
        } else if repeats {
            return Err(MessageError::Order(kind));
        }
        self.kinds |= bit;
        Ok(kind)
    }
}

/// The number of a descriptor that is written by its name.
pub(crate) fn descriptor_of(name: &str) -> Option<u64> {
    let number = match name {
        "amqp:header:list" => section::HEADER,
        "amqp:delivery-annotations:map" => section::DELIVERY_ANNOTATIONS,
        "amqp:message-annotations:map" => section::MESSAGE_ANNOTATIONS,
        "amqp:properties:list" => section::PROPERTIES,
        "amqp:application-properties:map" => section::APPLICATION_PROPERTIES,
        "amqp:data:binary" => section::DATA,
        "amqp:amqp-sequence:list" => section::SEQUENCE,
        "amqp:amqp-value:*" => section::VALUE,
        "amqp:footer:map" => section::FOOTER,
        _ => return None,
    };
    Some(number.into())
}

/// Why bytes are no message.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Error)]
#[non_exhaustive]
pub enum MessageError {
    /// The bytes are no AMQP.
    #[error(transparent)]
    Decode(#[from] DecodeError),
    /// The value is no section of a message.
    #[error("a message has no section 0x{0:02x}")]
    UnknownSection(u64),
    /// All sections but data and sequences come once, and a body is of one kind.
    #[error("section 0x{0:02x} of the message is out of place")]
    Order(u8),
    /// Exactly one kind of body belongs in a message.
    #[error("the message has no body")]
    NoBody,
    /// A hub gives each event a sequence number, an offset and a time.
    #[error("the message does not say where in its partition it is")]
    NoPlace,
}

/// The pairs of an annotations section or of the footer.
pub type Map = Vec<(Value, Value)>;

/// How the message is to be transferred (3.2.1). `None` = the standard's default.
#[derive(Clone, PartialEq, Debug, Default)]
#[allow(missing_docs)] // The fields are the standard's.
pub struct Header {
    pub durable: Option<bool>,
    pub priority: Option<u8>,
    pub ttl_ms: Option<u32>,
    pub first_acquirer: Option<bool>,
    pub delivery_count: Option<u32>,
}

/// The immutable properties (3.2.4): its fields in order, [`Value::Null`] where one is absent. They are passed on rather
/// than used, so they stay as they are; the names are in [`PROPERTY_FIELDS`].
pub type PropertyFields = Vec<Value>;

/// The names of [`PropertyFields`].
pub const PROPERTY_FIELDS: [&str; 13] = [
    "message-id",
    "user-id",
    "to",
    "subject",
    "reply-to",
    "correlation-id",
    "content-type",
    "content-encoding",
    "absolute-expiry-time",
    "creation-time",
    "group-id",
    "group-sequence",
    "reply-to-group-id",
];

/// A message. What it holds of binaries shares the memory that it was decoded from.
#[derive(Clone, PartialEq, Debug)]
pub struct Message {
    /// How it is to be transferred.
    pub header: Option<Header>,
    /// For the next hop only.
    pub delivery_annotations: Option<Map>,
    /// For the infrastructure.
    pub message_annotations: Option<Map>,
    /// The immutable properties.
    pub properties: Option<PropertyFields>,
    /// The application's properties: string keys, simple values.
    pub application_properties: Option<Map>,
    /// The content.
    pub body: Body,
    /// What could only be known at the end.
    pub footer: Option<Map>,
}

impl Message {
    /// A message of this body alone.
    pub fn new(body: impl Into<Body>) -> Self {
        Self {
            header: None,
            delivery_annotations: None,
            message_annotations: None,
            properties: None,
            application_properties: None,
            body: body.into(),
            footer: None,
        }
    }

    /// Reads a message from its bytes.
    pub fn decode(bytes: &Bytes) -> Result<Self, MessageError> {
        decode(bytes)
    }

    /// The same of a request or a reply, which may have no body: then it is null.
    pub fn decode_with_any_body(bytes: &Bytes) -> Result<Self, MessageError> {
        const NO_VALUE: [u8; 4] = [0x00, 0x53, section::VALUE, 0x40];
        match decode(bytes) {
            Err(MessageError::NoBody) => decode(&[bytes, &NO_VALUE[..]].concat().into()),
            decoded => decoded,
        }
    }
}
