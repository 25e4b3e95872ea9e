//! A stored event to what is delivered: the hub's annotations, merged with those that the event has, and all else as it
//! is stored. This runs once per event and reader, so it is copies of bytes and nothing else.

use partita_core::model::Timestamp;

use super::annotations::{MAP_8, MAP_32, map_head_len, put_map_head};
use super::ingest::{ANNOTATIONS_DESCRIPTOR, HEADER_DESCRIPTOR};
use crate::log::{PartitionInfo, StoredEvent};

/// Sequence number and time, of one length; the offset's text follows its name.
const TEMPLATE: [u8; 78] = *b"\xa3\x15x-opt-sequence-number\x81________\xa3\x13x-opt-enqueued-time\x83________\xa3\x0cx-opt-offset\xa1_";
const SEQUENCE_AT: usize = 24;
const TIME_AT: usize = SEQUENCE_AT + 8 + 22;
const DIGITS_LEN_AT: usize = TEMPLATE.len() - 1;
/// Keys and values in the template.
const TEMPLATE_VALUES: u32 = 6;

/// What a reader that asked for it learns with every event: the end of the partition, as a section of its own.
#[derive(Clone, Debug, Default)]
pub struct Metrics(Vec<u8>);

impl Metrics {
    /// Encodes what is known of the partition now.
    pub fn new(info: &PartitionInfo, now: Timestamp) -> Self {
        let mut content = Vec::with_capacity(160);
        let name = |name: &str, out: &mut Vec<u8>| {
            out.extend_from_slice(&[0xa3, name.len() as u8]);
            out.extend_from_slice(name.as_bytes());
        };
        let number = |code: u8, number: i64, out: &mut Vec<u8>| {
            out.push(code);
            out.extend_from_slice(&number.to_be_bytes());
        };
        name("last_enqueued_sequence_number", &mut content);
        number(0x81, info.next_seq.cast_signed() - 1, &mut content);
        name("last_enqueued_offset", &mut content);
        let offset = info.last_offset.map_or("-1".to_owned(), |offset| offset.to_string());
        content.extend_from_slice(&[0xa1, offset.len() as u8]);
        content.extend_from_slice(offset.as_bytes());
        name("last_enqueued_time_utc", &mut content);
        number(0x83, info.last_time_ms.unwrap_or(0), &mut content);
        name("runtime_info_retrieval_time_utc", &mut content);
        number(0x83, now.millis(), &mut content);
        let mut section = vec![0x00, 0x53, 0x71];
        put_map_head(8, content.len(), &mut section);
        section.extend_from_slice(&content);
        Self(section)
    }
}

/// One event as it will be delivered: measured, and then written.
#[derive(Clone, Copy, Debug)]
pub struct Delivery<'a> {
    header: &'a [u8],
    metrics: &'a [u8],
    /// How many values the event's own annotations are, and their bytes.
    own: (u32, &'a [u8]),
    rest: &'a [u8],
    seq: u64,
    time_ms: i64,
    digits: Digits,
}

impl<'a> Delivery<'a> {
    /// Looks where the parts of the event are.
    #[inline]
    pub fn new(event: &StoredEvent<'a>, metrics: Option<&'a Metrics>) -> Self {
        let (header, rest) = split_header(event.data);
        let (own, rest) = split_annotations(rest);
        Self {
            header,
            metrics: metrics.map_or(&[], |metrics| &metrics.0),
            own,
            rest,
            seq: event.seq,
            time_ms: event.time_ms,
            digits: Digits::of(event.offset),
        }
    }

    /// How many bytes it will be.
    #[inline]
    pub fn len(&self) -> usize {
        let content = self.annotations_len();
        let head = 3 + map_head_len(self.annotations_count(), content);
        self.header.len() + self.metrics.len() + head + content + self.rest.len()
    }

    /// It never is: the hub's annotations are always there.
    pub fn is_empty(&self) -> bool {
        false
    }

    /// Appends it.
    #[inline]
    pub fn write(&self, out: &mut Vec<u8>) {
        out.reserve(self.len());
        out.extend_from_slice(self.header);
        out.extend_from_slice(self.metrics);
        let mut head = [0; 12];
        let content = self.annotations_len();
        let count = self.annotations_count();
        head[..3].copy_from_slice(&ANNOTATIONS_DESCRIPTOR);
        if map_head_len(count, content) == 3 {
            head[3..6].copy_from_slice(&[MAP_8, content as u8 + 1, count as u8]);
            out.extend_from_slice(&head[..6]);
        } else {
            head[3] = MAP_32;
            head[4..8].copy_from_slice(&(content as u32 + 4).to_be_bytes());
            head[8..].copy_from_slice(&count.to_be_bytes());
            out.extend_from_slice(&head);
        }
        let mut ours = TEMPLATE;
        ours[SEQUENCE_AT..SEQUENCE_AT + 8].copy_from_slice(&self.seq.to_be_bytes());
        ours[TIME_AT..TIME_AT + 8].copy_from_slice(&self.time_ms.to_be_bytes());
        ours[DIGITS_LEN_AT] = self.digits.len;
        out.extend_from_slice(&ours);
        out.extend_from_slice(self.digits.text());
        out.extend_from_slice(self.own.1);
        out.extend_from_slice(self.rest);
    }

    #[inline]
    fn annotations_len(&self) -> usize {
        TEMPLATE.len() + usize::from(self.digits.len) + self.own.1.len()
    }

    #[inline]
    fn annotations_count(&self) -> u32 {
        TEMPLATE_VALUES + self.own.0
    }
}

/// A number as text, without a heap.
#[derive(Clone, Copy, Debug)]
struct Digits {
    bytes: [u8; 20],
    len: u8,
}

impl Digits {
    #[inline]
    fn of(mut number: u64) -> Self {
        let (mut bytes, mut len) = ([b'0'; 20], 0);
        loop {
            bytes[19 - len] = b'0' + (number % 10) as u8;
            len += 1;
            number /= 10;
            if number == 0 {
                return Self { bytes, len: len as u8 };
            }
        }
    }

    #[inline]
    fn text(&self) -> &[u8] {
        &self.bytes[20 - usize::from(self.len)..]
    }
}

/// The header section, if there is one, and what follows it.
#[inline]
fn split_header(data: &[u8]) -> (&[u8], &[u8]) {
    let Some(list) = data.strip_prefix(&HEADER_DESCRIPTOR) else { return (&[], data) };
    let len = match list {
        [0x45, ..] => 1,
        [0xc0, size, ..] => 2 + usize::from(*size),
        [0xd0, a, b, c, d, ..] => 5 + u32::from_be_bytes([*a, *b, *c, *d]) as usize,
        _ => return (&[], data),
    };
    data.split_at_checked(3 + len).unwrap_or((&[], data))
}

/// How many values the annotations are, their bytes, and what follows them.
#[inline]
fn split_annotations(data: &[u8]) -> ((u32, &[u8]), &[u8]) {
    let none = ((0, &data[..0]), data);
    let Some(map) = data.strip_prefix(&ANNOTATIONS_DESCRIPTOR) else { return none };
    let (count, size, content) = match map {
        [0xc1, size, count, content @ ..] => (u32::from(*count), usize::from(*size).checked_sub(1), content),
        [0xd1, a, b, c, d, e, f, g, h, content @ ..] => {
            let size = u32::from_be_bytes([*a, *b, *c, *d]) as usize;
            (u32::from_be_bytes([*e, *f, *g, *h]), size.checked_sub(4), content)
        }
        _ => return none,
    };
    match size.and_then(|size| content.split_at_checked(size)) {
        Some((own, rest)) => ((count, own), rest),
        None => none,
    }
}
