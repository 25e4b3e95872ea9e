//! A message that a hub delivers, to an event with its place. This runs once per event, so the hub's own annotations are
//! read where they lie, what nobody asks for is stepped over, and the body shares the payload's memory.

use bytes::Bytes;
use partita_amqp::message::{MessageError, data, list, section};
use partita_amqp::types::{DecodeError, Decoder, VALUES_MAX, code};
use partita_core::model::{
    Body, Event, LastEnqueued, Offset, SequenceNumber, StreamPosition, Timestamp, Value,
};

use super::read_properties;
use crate::names::annotation::{PARTITION_KEY, SEQUENCE_NUMBER_EPOCH};

/// Where the hub says that an event is.
#[derive(Default)]
struct EventPosition {
    sequence: Option<SequenceNumber>,
    offset: Option<Offset>,
    time: Option<Timestamp>,
}

/// Reads a delivered event. The body shares the memory of `payload`. Header, delivery annotations and footer are left
/// out.
pub fn received(payload: &Bytes) -> Result<Event, MessageError> {
    let mut input = Decoder::within(payload, payload, VALUES_MAX);
    let mut place = EventPosition::default();
    let mut key = None;
    let mut annotations = Vec::new();
    let mut properties = Vec::new();
    let mut standard = None;
    let mut body = None;
    while !input.is_empty() {
        match section_of(&mut input)? {
            section::MESSAGE_ANNOTATIONS => {
                let mut pairs = pairs(&mut input)?;
                while !pairs.is_empty() {
                    if !pairs.place(&mut place)? {
                        let (name, value) = (pairs.0.value()?, pairs.0.value()?);
                        match (name.as_str(), value.as_str()) {
                            (Some(PARTITION_KEY), Some(text)) => key = Some(text.to_owned()),
                            // Nothing here depends on it.
                            (Some(SEQUENCE_NUMBER_EPOCH), _) => {}
                            (Some(_), _) => annotations.push((name, value)),
                            (None, _) => {}
                        }
                    }
                }
            }
            section::PROPERTIES => standard = Some(list(&mut input)?),
            section::APPLICATION_PROPERTIES => properties = input.map()?,
            section::DATA => body = Some(with_data(body, data(&mut input)?)?),
            section::SEQUENCE => body = Some(with_sequence(body, input.list()?)?),
            section::VALUE => body = Some(Body::Value(input.value()?)),
            _ => input.skip()?,
        }
    }
    let mut event = Event::builder(body.ok_or(MessageError::NoBody)?);
    if let Some(key) = key {
        event = event.partition_key(key);
    }
    for (name, value) in annotations {
        event = event.annotation(name.as_str().unwrap_or_default(), value);
    }
    if let Some(fields) = standard {
        event = event.message_properties(read_properties(fields));
    }
    for (name, value) in properties {
        if let Some(name) = name.as_str() {
            event = event.property(name, value);
        }
    }
    match place {
        EventPosition { sequence: Some(sequence), offset: Some(offset), time: Some(time) } => {
            Ok(event.at(sequence, offset, time))
        }
        _ => Err(MessageError::NoPlace),
    }
}

/// What a delivered message says about the end of its partition, if the reader asked for that.
pub fn last_enqueued(payload: &Bytes) -> Option<LastEnqueued> {
    let mut input = Decoder::within(payload, payload, VALUES_MAX);
    let mut map = loop {
        match section_of(&mut input).ok()? {
            section::HEADER => input.skip().ok()?,
            section::DELIVERY_ANNOTATIONS => break input.map().ok()?.into_iter(),
            _ => return None,
        }
    };
    let (mut sequence, mut offset, mut time, mut retrieved) = (None, None, None, None);
    for (name, value) in &mut map {
        match (name.as_str()?, value) {
            ("last_enqueued_sequence_number", value) => sequence = value.as_i64(),
            ("last_enqueued_offset", value) => offset = value.as_str().map(Offset::parse),
            ("last_enqueued_time_utc", Value::Timestamp(at)) => time = Some(at),
            ("runtime_info_retrieval_time_utc", Value::Timestamp(at)) => retrieved = Some(at),
            _ => {}
        }
    }
    // An empty partition has the number -1.
    let position = match (sequence?, offset) {
        (sequence @ 0.., Some(offset)) => Some(StreamPosition::new(SequenceNumber(sequence), offset)),
        _ => None,
    };
    let enqueued_time = position.as_ref().and(time);
    Some(LastEnqueued { position, enqueued_time, retrieved: retrieved? })
}

fn section_of(input: &mut Decoder<'_>) -> Result<u8, MessageError> {
    let number = input.descriptor()?;
    let section = u8::try_from(number).ok().filter(|s| (section::HEADER..=section::FOOTER).contains(s));
    section.ok_or(MessageError::UnknownSection(number))
}

/// What is left of a map.
struct Pairs<'a>(Decoder<'a>);

fn pairs<'a>(input: &mut Decoder<'a>) -> Result<Pairs<'a>, DecodeError> {
    let wide = match input.byte()? {
        code::NULL => return Ok(Pairs(input.narrowed(&[]))),
        code::MAP_8 => false,
        code::MAP_32 => true,
        _ => return Err(DecodeError::Expected("map")),
    };
    let content = input.variable(wide)?;
    let mut inner = input.narrowed(content);
    inner.take(if wide { 4 } else { 1 })?;
    Ok(Pairs(inner))
}

impl Pairs<'_> {
    fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Takes the next pair if it is one of the place, in the form in which hubs write it.
    #[inline]
    fn place(&mut self, place: &mut EventPosition) -> Result<bool, DecodeError> {
        let [code::SYMBOL_8, len, rest @ ..] = self.0.rest() else { return Ok(false) };
        let Some((name, value)) = rest.split_at_checked((*len).into()) else { return Ok(false) };
        let number = |bytes: &[u8]| bytes.first_chunk().map(|bytes| i64::from_be_bytes(*bytes));
        let used = match (name, value) {
            (b"x-opt-sequence-number-epoch", [code::INT_8, _, ..]) => 2,
            (b"x-opt-sequence-number", [code::LONG, value @ ..]) => {
                place.sequence = number(value).map(SequenceNumber);
                9
            }
            (b"x-opt-sequence-number", [code::LONG_8, value, ..]) => {
                place.sequence = Some(SequenceNumber(value.cast_signed().into()));
                2
            }
            (b"x-opt-enqueued-time", [code::TIMESTAMP, value @ ..]) => {
                place.time = number(value).map(Timestamp);
                9
            }
            (b"x-opt-offset", [code::STRING_8, len, text @ ..]) => {
                let text = text.get(..usize::from(*len)).and_then(|text| std::str::from_utf8(text).ok());
                place.offset = text.map(Offset::parse);
                2 + usize::from(*len)
            }
            _ => return Ok(false),
        };
        self.0.take(2 + name.len() + used)?;
        Ok(true)
    }
}

fn with_data(body: Option<Body>, data: Bytes) -> Result<Body, MessageError> {
    Ok(match body {
        None => Body::Data(data),
        Some(Body::Data(first)) => Body::DataSections(vec![first, data]),
        Some(Body::DataSections(mut sections)) => {
            sections.push(data);
            Body::DataSections(sections)
        }
        Some(_) => return Err(MessageError::Order(section::DATA)),
    })
}

fn with_sequence(body: Option<Body>, values: Vec<Value>) -> Result<Body, MessageError> {
    match body {
        None => Ok(Body::Sequence(vec![values])),
        Some(Body::Sequence(mut sections)) => {
            sections.push(values);
            Ok(Body::Sequence(sections))
        }
        Some(_) => Err(MessageError::Order(section::SEQUENCE)),
    }
}

#[cfg(test)]
mod tests {
    use partita_core::model::MessageProperties;
    use proptest::prelude::*;

    use super::*;
    use partita_amqp::message::{self, Header, Message};

    fn place() -> Vec<(Value, Value)> {
        let symbol = |text: &str| Value::Symbol(text.into());
        vec![
            (symbol("x-opt-sequence-number"), Value::Long(7)),
            (symbol("x-opt-offset"), Value::from("4096")),
            (symbol("x-opt-enqueued-time"), Value::Timestamp(Timestamp(5))),
            (symbol("x-opt-sequence-number-epoch"), Value::Int(-1)),
        ]
    }

    fn encoded(message: &Message) -> Bytes {
        let mut out = Vec::new();
        message::encode(message, &mut out).expect("encodes");
        out.into()
    }

    #[test]
    fn place_key_annotations_properties_and_body_are_read() {
        let mut annotations = place();
        annotations.insert(1, (Value::Symbol("x-opt-partition-key".into()), Value::from("door 7")));
        annotations.push((Value::Symbol("iothub-connection-device-id".into()), Value::from("d")));
        let message = Message {
            header: Some(Header { durable: Some(true), ..Header::default() }),
            delivery_annotations: Some(vec![(Value::Symbol("a".into()), Value::List(vec![Value::Null]))]),
            message_annotations: Some(annotations),
            properties: Some(vec![Value::from("id")]),
            application_properties: Some(vec![(Value::from("n"), Value::Int(-1))]),
            ..Message::new("body")
        };
        let event = received(&encoded(&message)).expect("reads");
        let mut standard = MessageProperties::default();
        standard.message_id = Some(Value::from("id"));
        let expected = Event::builder("body")
            .partition_key("door 7")
            .annotation("iothub-connection-device-id", "d")
            .message_properties(standard)
            .property("n", -1_i32)
            .at(SequenceNumber(7), Offset::number(4096), Timestamp(5));
        assert_eq!(event, expected);
    }

    #[test]
    fn the_body_is_shared_and_not_copied() {
        let bytes = encoded(&Message { message_annotations: Some(place()), ..Message::new("not copied") });
        let event = received(&bytes).expect("reads");
        let Body::Data(body) = event.body() else { panic!("data was written") };
        assert_eq!(body.as_ptr(), bytes[bytes.len() - body.len()..].as_ptr());
    }

    #[test]
    fn an_event_without_a_place_is_none() {
        for missing in 0..3 {
            let mut annotations = place();
            annotations.remove(missing);
            let message = Message { message_annotations: Some(annotations), ..Message::new("x") };
            assert_eq!(received(&encoded(&message)), Err(MessageError::NoPlace));
        }
    }

    #[test]
    fn the_end_of_the_partition_is_told_if_it_is_in_the_message() {
        let symbol = |text: &str| Value::Symbol(text.into());
        let end = |sequence: i64, offset: &str| {
            let annotations = vec![
                (symbol("last_enqueued_sequence_number"), Value::Long(sequence)),
                (symbol("last_enqueued_offset"), Value::from(offset)),
                (symbol("last_enqueued_time_utc"), Value::Timestamp(Timestamp(8))),
                (symbol("runtime_info_retrieval_time_utc"), Value::Timestamp(Timestamp(9))),
            ];
            last_enqueued(&encoded(&Message { delivery_annotations: Some(annotations), ..Message::new("x") }))
        };
        let position = Some(StreamPosition::new(SequenceNumber(41), Offset::number(900)));
        let there = LastEnqueued { position, enqueued_time: Some(Timestamp(8)), retrieved: Timestamp(9) };
        assert_eq!(end(41, "900"), Some(there));
        let empty = LastEnqueued { position: None, enqueued_time: None, retrieved: Timestamp(9) };
        assert_eq!(end(-1, "-1"), Some(empty));
        assert_eq!(last_enqueued(&encoded(&Message::new("x"))), None);
    }

    proptest! {
        #[test]
        fn any_bytes_are_an_event_or_none(mut bytes: Vec<u8>, at: usize, flip: u8) {
            let _ = received(&Bytes::from(bytes.clone()));
            let good = encoded(&Message { message_annotations: Some(place()), ..Message::new("x") });
            bytes.clear();
            bytes.extend_from_slice(&good);
            let at = at % bytes.len();
            bytes[at] ^= flip;
            let _ = received(&Bytes::from(bytes.clone()));
            let _ = last_enqueued(&Bytes::from(bytes));
        }
    }
}
