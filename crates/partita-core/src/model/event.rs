//! An event: what a producer wrote and what the hub added.

use std::borrow::Cow;
use std::sync::Arc;

use bytes::Bytes;

use super::{MessageProperties, Offset, Position, SequenceNumber, StreamPosition, Timestamp, Value};

/// The content of an event. Producers almost always write one data section; the others come from AMQP clients that
/// choose to.
#[derive(Clone, PartialEq, Debug)]
#[non_exhaustive]
pub enum Body {
    /// One binary section.
    Data(Bytes),
    /// Several binary sections.
    DataSections(Vec<Bytes>),
    /// One AMQP value.
    Value(Value),
    /// One or more sections that are lists of AMQP values.
    Sequence(Vec<Vec<Value>>),
}

/// Properties or annotations, in the order in which they were written. Few in practice, so they are searched in turn.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Properties(Vec<(Arc<str>, Value)>);

impl Properties {
    /// The value of `key`.
    pub fn get(&self, key: &str) -> Option<&Value> {
        self.0.iter().find(|(k, _)| **k == *key).map(|(_, value)| value)
    }

    /// Sets `key`, replacing what it held.
    pub fn insert(&mut self, key: impl AsRef<str>, value: impl Into<Value>) {
        let key = key.as_ref();
        match self.0.iter_mut().find(|(k, _)| **k == *key) {
            Some((_, held)) => *held = value.into(),
            None => self.0.push((Arc::from(key), value.into())),
        }
    }

    /// All of them, in order.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = (&str, &Value)> {
        self.0.iter().map(|(key, value)| (&**key, value))
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

/// What the hub adds to an event.
#[derive(Clone, PartialEq, Debug)]
pub struct SystemProperties {
    /// Counts the events of the partition.
    pub sequence_number: SequenceNumber,
    /// The event's place in the partition.
    pub offset: Offset,
    /// When the hub accepted the event.
    pub enqueued_time: Timestamp,
    /// The key that chose the partition, if the producer gave one.
    pub partition_key: Option<Arc<str>>,
}

#[derive(Clone, PartialEq, Debug, Default)]
struct Extras {
    properties: Properties,
    annotations: Properties,
    /// Few events have them, and they are large.
    message: Option<Box<MessageProperties>>,
}

/// An event as a handler gets it. Cloning one copies no content.
#[derive(Clone, PartialEq, Debug)]
pub struct Event {
    body: Body,
    system: SystemProperties,
    extras: Option<Arc<Extras>>,
}

impl Event {
    /// An event with this body and place; more with the builder's methods.
    pub fn builder(body: impl Into<Body>) -> EventBuilder {
        EventBuilder { body: body.into(), partition_key: None, extras: Extras::default() }
    }

    /// The body as it was written.
    pub fn body(&self) -> &Body {
        &self.body
    }

    /// The body as bytes:
    /// - data: its bytes; several data sections: their concatenation (copied, the others are borrowed);
    /// - value: the bytes of a binary, string or symbol; `None` for any other type;
    /// - sequence: `None`. [`Event::body`] gives the values themselves.
    pub fn bytes(&self) -> Option<Cow<'_, [u8]>> {
        match &self.body {
            Body::Data(bytes) => Some(Cow::Borrowed(bytes)),
            Body::DataSections(sections) => Some(Cow::Owned(sections.concat())),
            Body::Value(Value::Binary(bytes)) => Some(Cow::Borrowed(bytes)),
            Body::Value(Value::String(text) | Value::Symbol(text)) => Some(Cow::Borrowed(text.as_bytes())),
            Body::Value(_) | Body::Sequence(_) => None,
        }
    }

    /// The body as text, if it has bytes and they are UTF-8.
    pub fn text(&self) -> Option<Cow<'_, str>> {
        match self.bytes()? {
            Cow::Borrowed(bytes) => std::str::from_utf8(bytes).ok().map(Cow::Borrowed),
            Cow::Owned(bytes) => String::from_utf8(bytes).ok().map(Cow::Owned),
        }
    }

    /// What the hub added.
    pub fn system(&self) -> &SystemProperties {
        &self.system
    }

    /// Counts the events of the partition.
    pub fn sequence_number(&self) -> SequenceNumber {
        self.system.sequence_number
    }

    /// The event's place in the partition.
    pub fn offset(&self) -> &Offset {
        &self.system.offset
    }

    /// When the hub accepted the event.
    pub fn enqueued_time(&self) -> Timestamp {
        self.system.enqueued_time
    }

    /// The key that chose the partition, if the producer gave one.
    pub fn partition_key(&self) -> Option<&str> {
        self.system.partition_key.as_deref()
    }

    /// The producer's application properties.
    pub fn properties(&self) -> &Properties {
        self.extras.as_ref().map_or(&NONE, |extras| &extras.properties)
    }

    /// Message annotations other than the system properties above.
    pub fn annotations(&self) -> &Properties {
        self.extras.as_ref().map_or(&NONE, |extras| &extras.annotations)
    }

    /// The standard properties of the message: ids, content type, subject and the like, where the producer set them.
    pub fn message_properties(&self) -> Option<&MessageProperties> {
        self.extras.as_ref()?.message.as_deref()
    }

    /// Both names of the event's place.
    pub fn position(&self) -> StreamPosition {
        let enqueued_time = Some(self.system.enqueued_time);
        StreamPosition {
            enqueued_time,
            ..StreamPosition::new(self.system.sequence_number, self.system.offset.clone())
        }
    }

    /// The position of the event after this one.
    pub fn next_position(&self) -> Position {
        Position::after_sequence(self.system.sequence_number)
    }

    /// About how many bytes of memory the event holds: what prefetch limits count.
    #[inline]
    pub fn size(&self) -> usize {
        match (&self.body, &self.extras) {
            // Almost all events, and asked for twice per event.
            (Body::Data(bytes), None) => size_of::<Self>() + bytes.len(),
            _ => self.size_in_full(),
        }
    }

    fn size_in_full(&self) -> usize {
        let body = match &self.body {
            Body::Data(bytes) => bytes.len(),
            Body::DataSections(sections) => sections.iter().map(Bytes::len).sum(),
            Body::Value(value) => value_size(value),
            Body::Sequence(sections) => sections.iter().flatten().map(value_size).sum(),
        };
        let extras = self.extras.as_ref().map_or(0, |extras| {
            let pairs = [&extras.properties, &extras.annotations].into_iter().flat_map(Properties::iter);
            let pairs: usize = pairs.map(|(key, value)| key.len() + value_size(value)).sum();
            pairs + extras.message.as_ref().map_or(0, |message| message.size())
        });
        size_of::<Self>() + body + extras
    }
}

static NONE: Properties = Properties(Vec::new());

pub(super) fn value_size(value: &Value) -> usize {
    let inner = match value {
        Value::Binary(bytes) => bytes.len(),
        Value::String(text) | Value::Symbol(text) => text.len(),
        Value::List(values) | Value::Array(values) => values.iter().map(value_size).sum(),
        Value::Map(pairs) => pairs.iter().map(|(key, value)| value_size(key) + value_size(value)).sum(),
        Value::Described(descriptor, value) => value_size(descriptor) + value_size(value),
        _ => 0,
    };
    size_of::<Value>() + inner
}

/// Builds an [`Event`]: sources do when they read one, tests when they make one up.
#[derive(Clone, Debug)]
pub struct EventBuilder {
    body: Body,
    partition_key: Option<Arc<str>>,
    extras: Extras,
}

impl EventBuilder {
    /// The key that chose the partition.
    pub fn partition_key(mut self, key: impl AsRef<str>) -> Self {
        self.partition_key = Some(Arc::from(key.as_ref()));
        self
    }

    /// Adds an application property.
    pub fn property(mut self, key: impl AsRef<str>, value: impl Into<Value>) -> Self {
        self.extras.properties.insert(key, value);
        self
    }

    /// Adds a message annotation.
    pub fn annotation(mut self, key: impl AsRef<str>, value: impl Into<Value>) -> Self {
        self.extras.annotations.insert(key, value);
        self
    }

    /// The standard properties of the message.
    pub fn message_properties(mut self, properties: MessageProperties) -> Self {
        self.extras.message = (properties != MessageProperties::default()).then(|| Box::new(properties));
        self
    }

    /// Identifies the message: a string, ulong, uuid or binary.
    pub fn message_id(mut self, id: impl Into<Value>) -> Self {
        self.message().message_id = Some(id.into());
        self
    }

    /// The message that this one belongs to: a string, ulong, uuid or binary.
    pub fn correlation_id(mut self, id: impl Into<Value>) -> Self {
        self.message().correlation_id = Some(id.into());
        self
    }

    /// The MIME type of the body.
    pub fn content_type(mut self, content_type: impl AsRef<str>) -> Self {
        self.message().content_type = Some(Arc::from(content_type.as_ref()));
        self
    }

    /// What the event is about.
    pub fn subject(mut self, subject: impl AsRef<str>) -> Self {
        self.message().subject = Some(Arc::from(subject.as_ref()));
        self
    }

    fn message(&mut self) -> &mut MessageProperties {
        self.extras.message.get_or_insert_default()
    }

    /// The event at its place in a partition.
    pub fn at(self, sequence: SequenceNumber, offset: Offset, enqueued_time: Timestamp) -> Event {
        let Extras { properties, annotations, message } = &self.extras;
        let bare = properties.is_empty() && annotations.is_empty() && message.is_none();
        Event {
            body: self.body,
            system: SystemProperties {
                sequence_number: sequence,
                offset,
                enqueued_time,
                partition_key: self.partition_key,
            },
            extras: (!bare).then(|| Arc::new(self.extras)),
        }
    }
}

impl From<Bytes> for Body {
    fn from(bytes: Bytes) -> Self {
        Self::Data(bytes)
    }
}

impl From<Vec<u8>> for Body {
    fn from(bytes: Vec<u8>) -> Self {
        Self::Data(bytes.into())
    }
}

impl From<&'static str> for Body {
    fn from(text: &'static str) -> Self {
        Self::Data(Bytes::from_static(text.as_bytes()))
    }
}

impl From<String> for Body {
    fn from(text: String) -> Self {
        Self::Data(text.into())
    }
}

impl From<Value> for Body {
    fn from(value: Value) -> Self {
        Self::Value(value)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn event(body: impl Into<Body>) -> Event {
        Event::builder(body).at(SequenceNumber(7), Offset::number(70), Timestamp(1))
    }

    #[test]
    fn bytes_of_each_kind_of_body() {
        let sections = Body::DataSections(vec![Bytes::from_static(b"ab"), Bytes::from_static(b"c")]);
        assert_eq!(event("abc").bytes().as_deref(), Some(&b"abc"[..]));
        assert_eq!(event(sections).bytes().as_deref(), Some(&b"abc"[..]));
        assert_eq!(event(Value::from("abc")).text().as_deref(), Some("abc"));
        assert_eq!(event(Value::from(5_i32)).bytes(), None);
        assert_eq!(event(Body::Sequence(vec![vec![Value::Null]])).bytes(), None);
        assert_eq!(event(vec![0xff]).text(), None);
    }

    #[test]
    fn properties_keep_order_and_the_last_value_of_a_key() {
        let event = Event::builder("x")
            .property("b", 1_i32)
            .property("a", "text")
            .property("b", 2_i32)
            .annotation("x-opt", true)
            .at(SequenceNumber(0), Offset::number(0), Timestamp(0));
        assert_eq!(event.properties().iter().map(|(key, _)| key).collect::<Vec<_>>(), ["b", "a"]);
        assert_eq!(event.properties().get("b").and_then(Value::as_i64), Some(2));
        assert_eq!(event.annotations().get("x-opt"), Some(&Value::Boolean(true)));
    }

    #[test]
    fn size_grows_with_content() {
        assert_eq!(event("12345").size() - event("").size(), 5);
    }
}
