//! The sections of a message (3.2).

mod decode;
mod encode;
mod raw;
#[cfg(test)]
mod tests;

use bytes::Bytes;
pub use decode::decode;
pub use encode::encode;
pub(crate) use encode::{body, map_section};
use partita_core::model::{Body, Value};
pub use raw::{RawContent, RawSection, Sections};
use thiserror::Error;

use crate::types::DecodeError;

/// The descriptors of the sections.
pub(crate) mod section {
    pub(crate) const HEADER: u8 = 0x70;
    pub(crate) const DELIVERY_ANNOTATIONS: u8 = 0x71;
    pub(crate) const MESSAGE_ANNOTATIONS: u8 = 0x72;
    pub(crate) const PROPERTIES: u8 = 0x73;
    pub(crate) const APPLICATION_PROPERTIES: u8 = 0x74;
    pub(crate) const DATA: u8 = 0x75;
    pub(crate) const SEQUENCE: u8 = 0x76;
    pub(crate) const VALUE: u8 = 0x77;
    pub(crate) const FOOTER: u8 = 0x78;
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
    /// Sections come in the order of the standard, and all but data and sequences once.
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
}
