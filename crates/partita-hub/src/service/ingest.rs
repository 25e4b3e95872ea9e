//! A message as it was sent, to what the log stores.
//!
//! An event is stored as its encoded message, in the form that is quickest to deliver: a header if there is one, then the
//! delivery annotations and the message annotations if there are any, then all else as it came, in its order. Delivery
//! annotations that a client put behind others stay there, as on the service; an empty header says that there are such.
//! The annotations that are the hub's to say go. Everything is checked here, once, so that whatever is stored decodes.

use partita_amqp::message::{MessageError, RawContent, Sections};
use partita_amqp::types::{self, Checker, Decoder, RawMap};
use partita_core::model::Value;
use partita_dialect::names::annotation::{
    ENQUEUED_TIME, OFFSET, PARTITION_KEY, PRODUCER_EPOCH, PRODUCER_ID, PRODUCER_SEQUENCE, SEQUENCE_NUMBER,
    SEQUENCE_NUMBER_EPOCH,
};

use super::condition::{ARGUMENT_ERROR, DECODE_ERROR, Refusal};
use crate::log::{BatchBuilder, EncodeError, EncodedBatch, ProducerStamp};

/// One event.
pub const FORMAT_EVENT: u32 = 0;
/// Several: each data section holds an encoded message.
pub const FORMAT_BATCH: u32 = partita_dialect::event::batch::FORMAT;

/// The longest partition key.
pub const KEY_CHARS_MAX: usize = partita_dialect::event::KEY_CHARS_MAX;

/// What a delivery holds.
#[derive(Clone, Debug)]
pub struct Ingested<'a> {
    /// The events; `None` if the delivery has none, which is no mistake.
    pub batch: Option<EncodedBatch>,
    /// The partition key, which the events have, too.
    pub key: Option<&'a str>,
    /// What an idempotent producer says of it.
    pub producer: Option<ProducerStamp>,
}

/// What the annotations of a message say to the hub.
#[derive(Clone, Copy, Default)]
struct Notes<'a> {
    key: Option<&'a str>,
    id: Option<i64>,
    epoch: Option<i64>,
    sequence: Option<i64>,
    /// Whether there is anything in them that is not to be stored.
    strip: bool,
}

/// Reads a delivery of at most `bytes_max` bytes.
pub fn ingest(format: u32, payload: &[u8], bytes_max: usize) -> Result<Ingested<'_>, Refusal> {
    if payload.len() > bytes_max {
        return Err(Refusal::too_large(payload.len() as u64, bytes_max as u64));
    }
    // Arrays can claim any number of values that take no bytes; a message in earnest has fewer values than bytes.
    let mut intake =
        Ingest { values_left: payload.len(), scratch: Vec::new(), batch: BatchBuilder::default() };
    let (key, notes) = match format {
        FORMAT_EVENT => {
            intake.batch = BatchBuilder::with_capacity(1, payload.len() + 16);
            let notes = intake.event(payload, None).map_err(|error| garbage(0, error))?;
            (notes.key, notes)
        }
        FORMAT_BATCH => intake.batch(payload)?,
        other => {
            let text = format!("The message format 0x{other:x} is not known here.");
            return Err(Refusal::new(ARGUMENT_ERROR, text));
        }
    };
    if let Some(key) = key.filter(|key| key.chars().count() > KEY_CHARS_MAX) {
        let text =
            format!("The partition key has {} characters, {KEY_CHARS_MAX} are allowed.", key.chars().count());
        return Err(Refusal::new(ARGUMENT_ERROR, text));
    }
    let batch = match intake.batch.finish() {
        Ok(batch) => Some(batch),
        Err(EncodeError::NoEvents) => None,
        Err(EncodeError::TooLarge) => return Err(Refusal::too_large(payload.len() as u64, bytes_max as u64)),
        Err(error) => return Err(Refusal::new(DECODE_ERROR, error.to_string())),
    };
    Ok(Ingested { batch, key, producer: stamp(&notes)? })
}

fn garbage(index: usize, error: MessageError) -> Refusal {
    Refusal::new(DECODE_ERROR, format!("Event {index} of the delivery is not an AMQP message: {error}."))
}

fn stamp(notes: &Notes<'_>) -> Result<Option<ProducerStamp>, Refusal> {
    if notes.id.is_none() || notes.epoch.is_none() || notes.sequence.is_none() {
        return Ok(None);
    }
    let ProducerNumbers { id, epoch, sequence } =
        ProducerNumbers::new(notes.id, notes.epoch, notes.sequence)?;
    Ok(id.zip(epoch).zip(sequence).map(|((id, epoch), sequence)| ProducerStamp { id, epoch, sequence }))
}

/// The numbers of an idempotent producer, those that it gives, in the types that they have.
pub(crate) struct ProducerNumbers {
    pub(crate) id: Option<i64>,
    pub(crate) epoch: Option<i16>,
    pub(crate) sequence: Option<i32>,
}

impl ProducerNumbers {
    /// Refuses what is negative or too large.
    pub(crate) fn new(id: Option<i64>, epoch: Option<i64>, sequence: Option<i64>) -> Result<Self, Refusal> {
        let check = |number: Option<i64>, max: i64| match number {
            Some(number) if !(0..=max).contains(&number) => Err(Refusal::producer_out_of_range()),
            number => Ok(number),
        };
        Ok(Self {
            id: check(id, i64::MAX)?,
            epoch: check(epoch, i16::MAX.into())?.map(|epoch| epoch as i16),
            sequence: check(sequence, i32::MAX.into())?.map(|sequence| sequence as i32),
        })
    }
}

struct Ingest {
    values_left: usize,
    scratch: Vec<u8>,
    batch: BatchBuilder,
}

impl Ingest {
    /// Takes the messages out of an envelope.
    fn batch<'a>(&mut self, payload: &'a [u8]) -> Result<(Option<&'a str>, Notes<'a>), Refusal> {
        let bad = |error: MessageError| {
            Refusal::new(DECODE_ERROR, format!("The delivery is not an AMQP message: {error}."))
        };
        let values_max = self.values_left;
        let mut sections = Sections::new(Checker::with_values_max(payload, values_max));
        let mut notes = Notes::default();
        let mut first: Option<Notes<'a>> = None;
        let (mut index, mut first_key) = (0, None);
        self.batch = BatchBuilder::with_capacity(64, payload.len() + payload.len() / 8);
        let mut late = false;
        while let Some(section) = sections.next().map_err(bad)? {
            match section.content {
                RawContent::MessageAnnotations(map) => {
                    notes = read_notes(map);
                    late = index > 0;
                }
                RawContent::Data(event) => {
                    let inner = self.event(event, notes.key).map_err(|error| garbage(index, error))?;
                    first_key = first_key.or(inner.key);
                    first.get_or_insert(inner);
                    index += 1;
                }
                RawContent::Sequence | RawContent::Value => {
                    return Err(Refusal::new(DECODE_ERROR, "A batch holds its events in data sections."));
                }
                _ => {}
            }
        }
        if late && notes.key.is_some() {
            // The key came behind events that have it, too: once more, now that it is known.
            self.values_left = values_max;
            self.batch = BatchBuilder::with_capacity(index, payload.len() + payload.len() / 8);
            let mut sections = Sections::new(Checker::with_values_max(payload, values_max));
            while let Some(section) = sections.next().map_err(bad)? {
                if let RawContent::Data(event) = section.content {
                    self.event(event, notes.key).map_err(|error| garbage(0, error))?;
                }
            }
        }
        let key = notes.key.or(first_key);
        // JavaScript's client marks the events of a batch that its user filled, and not the envelope.
        let marked = if notes.sequence.is_some() { notes } else { first.unwrap_or(notes) };
        Ok((key, marked))
    }

    /// Adds one event, with the envelope's key where there is one.
    fn event<'a>(&mut self, bytes: &'a [u8], key: Option<&str>) -> Result<Notes<'a>, MessageError> {
        let mut sections = Sections::new(Checker::with_values_max(bytes, self.values_left));
        let (mut annotations, mut hop): (Option<RawMap<'_>>, Option<Hop<'_>>) = (None, None);
        let (mut as_it_is, mut place) = (true, SectionOrder::Start);
        while let Some(section) = sections.next()? {
            let prefix = &section.bytes[..section.bytes.len().min(3)];
            let (here, usual) = match section.content {
                RawContent::Header => (SectionOrder::Header, prefix == HEADER_DESCRIPTOR),
                RawContent::DeliveryAnnotations(map) => {
                    hop = Some(Hop { map, in_place: place <= SectionOrder::Header });
                    (SectionOrder::Hop, prefix == HOP_DESCRIPTOR && map.count > 0)
                }
                RawContent::MessageAnnotations(map) => {
                    annotations = Some(map);
                    (SectionOrder::Annotations, prefix == ANNOTATIONS_DESCRIPTOR && map.count > 0)
                }
                _ => (SectionOrder::Others, true),
            };
            as_it_is &= usual && here >= place;
            place = place.max(here);
        }
        self.values_left = sections.values_left();
        let notes = annotations.map(read_notes).unwrap_or_default();
        let keyed = key.is_none() || key == notes.key;
        if as_it_is && keyed && !notes.strip && sections.has_body() {
            self.batch.push(bytes);
            return Ok(notes);
        }
        let out = &mut self.scratch;
        out.clear();
        // A header is not delivered, so that it need not be kept either.
        match &hop {
            Some(hop) if !hop.in_place => out.extend_from_slice(&STRAY_HOP_MARK),
            Some(Hop { map, .. }) if map.count > 0 => {
                out.extend_from_slice(&HOP_DESCRIPTOR);
                super::annotations::put_map_head(map.count, map.content.len(), out);
                out.extend_from_slice(map.content);
            }
            _ => {}
        }
        put_annotations(annotations, if keyed { notes.key } else { key }, out);
        let hop_is_done = hop.is_some_and(|hop| hop.in_place);
        put_others(bytes, hop_is_done, sections.has_body(), out)?;
        self.batch.push(out);
        Ok(notes)
    }
}

/// The delivery annotations of an event, and whether they are where the standard has them.
struct Hop<'a> {
    map: RawMap<'a>,
    in_place: bool,
}

/// How far an event is gone over. The order is that of what is stored.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum SectionOrder {
    Start,
    Header,
    Hop,
    Annotations,
    Others,
}

pub(super) const HEADER_DESCRIPTOR: [u8; 3] = [0x00, 0x53, 0x70];
pub(super) const HOP_DESCRIPTOR: [u8; 3] = [0x00, 0x53, 0x71];
pub(super) const ANNOTATIONS_DESCRIPTOR: [u8; 3] = [0x00, 0x53, 0x72];
/// A header of no fields, before events whose delivery annotations stand behind other sections.
pub(super) const STRAY_HOP_MARK: [u8; 4] = [0x00, 0x53, 0x70, 0x45];
const EMPTY_DATA: [u8; 5] = [0x00, 0x53, 0x75, 0xa0, 0x00];

/// Copies the sections that have no place of their own. Some clients leave the body out where it is empty; it belongs
/// before a footer.
fn put_others(
    bytes: &[u8],
    hop_is_done: bool,
    mut has_body: bool,
    out: &mut Vec<u8>,
) -> Result<(), MessageError> {
    let mut sections = Sections::new(Checker::new(bytes));
    while let Some(section) = sections.next()? {
        match section.content {
            RawContent::Header | RawContent::MessageAnnotations(_) => continue,
            RawContent::DeliveryAnnotations(_) if hop_is_done => continue,
            RawContent::Footer(_) if !has_body => {
                out.extend_from_slice(&EMPTY_DATA);
                has_body = true;
            }
            _ => {}
        }
        out.extend_from_slice(section.bytes);
    }
    if !has_body {
        out.extend_from_slice(&EMPTY_DATA);
    }
    Ok(())
}

fn read_notes(map: RawMap<'_>) -> Notes<'_> {
    let mut notes = Notes::default();
    for (key, value) in map.pairs() {
        match types::text_of(key) {
            Some(PARTITION_KEY) => match types::text_of(value) {
                // Twice would be twice in what is delivered.
                Some(text) if notes.key.is_none() => notes.key = Some(text),
                _ => notes.strip = true,
            },
            Some(name) if is_ours(name) => {
                let number = number(value);
                match name {
                    PRODUCER_ID => notes.id = number,
                    PRODUCER_EPOCH => notes.epoch = number,
                    PRODUCER_SEQUENCE => notes.sequence = number,
                    _ => {}
                }
                notes.strip = true;
            }
            _ => {}
        }
    }
    notes
}

/// Annotations that are not the producer's to keep.
fn is_ours(name: &str) -> bool {
    // Quick for names that are not: all of ours begin alike.
    (name.starts_with("x-opt-") || name.starts_with("com.microsoft:producer-"))
        && [
            SEQUENCE_NUMBER_EPOCH,
            SEQUENCE_NUMBER,
            OFFSET,
            ENQUEUED_TIME,
            PRODUCER_ID,
            PRODUCER_EPOCH,
            PRODUCER_SEQUENCE,
        ]
        .contains(&name)
}

fn number(value: &[u8]) -> Option<i64> {
    let bytes = bytes::Bytes::copy_from_slice(value);
    Decoder::new(&bytes).value().ok().as_ref().and_then(Value::as_i64)
}

/// Writes the annotations that are kept, and the key.
fn put_annotations(map: Option<RawMap<'_>>, key: Option<&str>, out: &mut Vec<u8>) {
    let mut content = Vec::new();
    let mut count = 0_u32;
    if let Some(key) = key {
        let put = |value: &Value, content: &mut Vec<u8>| {
            // Short and ASCII, or text: both encode.
            let _ = types::encode(value, content);
        };
        put(&Value::Symbol(PARTITION_KEY.into()), &mut content);
        put(&Value::from(key), &mut content);
        count += 2;
    }
    for (name, value) in map.into_iter().flat_map(|map| map.pairs()) {
        if !types::text_of(name).is_some_and(|name| name == PARTITION_KEY || is_ours(name)) {
            content.extend_from_slice(name);
            content.extend_from_slice(value);
            count += 2;
        }
    }
    if count > 0 {
        out.extend_from_slice(&ANNOTATIONS_DESCRIPTOR);
        super::annotations::put_map_head(count, content.len(), out);
        out.extend_from_slice(&content);
    }
}
