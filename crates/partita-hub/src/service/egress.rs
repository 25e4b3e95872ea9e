//! A stored event to what is delivered: the hub's annotations, merged with those that the event has, and all else as it
//! is stored. This runs once per event and reader, so it is copies of bytes and nothing else.

use partita_amqp::message::{RawContent, Sections};
use partita_amqp::types::Checker;
use partita_core::model::Timestamp;

use super::annotations::{MAP_8, MAP_32, map_head_len, put_map_head};
use super::ingest::{ANNOTATIONS_DESCRIPTOR, HEADER_DESCRIPTOR, HOP_DESCRIPTOR, STRAY_HOP_MARK};
use super::management::YEAR_ONE_MS;
use crate::log::{PartitionInfo, StoredEvent};

/// The hub's annotations in the service's order: the epoch of the sequence number, which is always -1, the sequence number,
/// and the offset, whose text follows.
const TEMPLATE: [u8; 79] = *b"\xa3\x1bx-opt-sequence-number-epoch\x54\xff\xa3\x15x-opt-sequence-number\x81________\xa3\x0cx-opt-offset\xa1_";
const SEQUENCE_AT: usize = 31 + 24;
const DIGITS_LEN_AT: usize = TEMPLATE.len() - 1;
/// And behind that text the time.
const TIME_TEMPLATE: [u8; 30] = *b"\xa3\x13x-opt-enqueued-time\x83________";
const TIME_AT: usize = 22;
/// Keys and values in both.
const TEMPLATE_VALUES: u32 = 8;

/// What a reader that asked for it learns with every event: the end of the partition, as delivery annotations.
#[derive(Clone, Debug, Default)]
pub struct Metrics {
    /// Alone, with its descriptor.
    section: Vec<u8>,
    /// Where its pairs begin.
    content_at: usize,
}

/// Keys and values in it.
const METRICS_VALUES: u32 = 10;

impl Metrics {
    /// Encodes what is known of the partition now.
    pub fn new(info: &PartitionInfo, now: Timestamp) -> Self {
        let mut content = Vec::with_capacity(200);
        let name = |name: &str, out: &mut Vec<u8>| {
            out.extend_from_slice(&[0xa3, name.len() as u8]);
            out.extend_from_slice(name.as_bytes());
        };
        let number = |code: u8, number: i64, out: &mut Vec<u8>| {
            out.push(code);
            out.extend_from_slice(&number.to_be_bytes());
        };
        name("last_enqueued_sequence_number_epoch", &mut content);
        content.extend_from_slice(&[0x54, 0xff]);
        name("last_enqueued_sequence_number", &mut content);
        number(0x81, info.next_seq.cast_signed() - 1, &mut content);
        name("last_enqueued_offset", &mut content);
        let offset = info.last_offset.map_or("-1".to_owned(), |offset| offset.to_string());
        content.extend_from_slice(&[0xa1, offset.len() as u8]);
        content.extend_from_slice(offset.as_bytes());
        name("last_enqueued_time_utc", &mut content);
        number(0x83, info.last_time_ms.unwrap_or(YEAR_ONE_MS), &mut content);
        name("runtime_info_retrieval_time_utc", &mut content);
        number(0x83, now.millis(), &mut content);
        let mut section = HOP_DESCRIPTOR.to_vec();
        put_map_head(METRICS_VALUES, content.len(), &mut section);
        let content_at = section.len();
        section.extend_from_slice(&content);
        Self { section, content_at }
    }

    fn content(&self) -> &[u8] {
        &self.section[self.content_at..]
    }
}

/// One event as it will be delivered: measured, and then written.
#[derive(Clone, Copy, Debug)]
pub struct Delivery<'a> {
    /// Delivery annotations as they are; none if they are to be merged.
    hop: &'a [u8],
    /// Two sets of delivery annotations that are to be one.
    merged: Option<(&'a Metrics, Pairs<'a>)>,
    /// The event's own annotations.
    own: Pairs<'a>,
    rest: &'a [u8],
    /// What follows the rest, where something was taken out between them.
    tail: &'a [u8],
    seq: u64,
    time_ms: i64,
    digits: Digits,
}

/// How many keys and values a map has, and their bytes.
type Pairs<'a> = (u32, &'a [u8]);

impl<'a> Delivery<'a> {
    /// Looks where the parts of the event are.
    #[inline]
    pub fn new(event: &StoredEvent<'a>, metrics: Option<&'a Metrics>) -> Self {
        // Headers are for the hop that is over: the service does not deliver them.
        let (header, rest) = split_header(event.data);
        let (hop, rest) = match rest.starts_with(&HOP_DESCRIPTOR) {
            true => split_hop(rest),
            false => (None, rest),
        };
        let (own, rest) = split_annotations(rest);
        let mut delivery = Self {
            hop: hop.map_or(&[], |(section, _)| section),
            merged: None,
            own,
            rest,
            tail: &[],
            seq: event.seq,
            time_ms: event.time_ms,
            digits: Digits::of(event.offset),
        };
        if let Some(metrics) = metrics {
            delivery.add(metrics, hop.map(|(_, pairs)| pairs), header == STRAY_HOP_MARK);
        }
        delivery
    }

    /// Adds metrics to the delivery annotations that the event may have: a message has them once.
    #[inline]
    fn add(&mut self, metrics: &'a Metrics, own: Option<Pairs<'a>>, may_be_behind: bool) {
        let own = own.or_else(|| if may_be_behind { self.take_out_hop() } else { None });
        match own {
            None => self.hop = &metrics.section,
            Some(pairs) => {
                self.hop = &[];
                self.merged = Some((metrics, pairs));
            }
        }
    }

    /// Finds delivery annotations behind other sections, and takes them out.
    fn take_out_hop(&mut self) -> Option<Pairs<'a>> {
        let (all, mut at) = (self.rest, 0);
        let mut sections = Sections::new(Checker::new(all));
        while let Ok(Some(section)) = sections.next() {
            let end = at + section.bytes.len();
            if let RawContent::DeliveryAnnotations(map) = section.content {
                (self.rest, self.tail) = (&all[..at], &all[end..]);
                return Some((map.count, map.content));
            }
            at = end;
        }
        None
    }

    /// How many bytes it will be.
    #[inline]
    pub fn len(&self) -> usize {
        let content = self.annotations_len();
        let head = 3 + map_head_len(self.annotations_count(), content);
        let merged = self.merged.map_or(0, |(metrics, (count, pairs))| {
            let content = metrics.content().len() + pairs.len();
            3 + map_head_len(METRICS_VALUES + count, content) + content
        });
        self.hop.len() + merged + head + content + self.rest.len() + self.tail.len()
    }

    /// It never is: the hub's annotations are always there.
    pub fn is_empty(&self) -> bool {
        false
    }

    /// Appends it.
    #[inline]
    pub fn write(&self, out: &mut Vec<u8>) {
        out.reserve(self.len());
        out.extend_from_slice(self.hop);
        if let Some((metrics, (count, pairs))) = self.merged {
            out.extend_from_slice(&HOP_DESCRIPTOR);
            put_map_head(METRICS_VALUES + count, metrics.content().len() + pairs.len(), out);
            out.extend_from_slice(metrics.content());
            out.extend_from_slice(pairs);
        }
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
        out.extend_from_slice(self.own.1);
        let mut ours = TEMPLATE;
        ours[SEQUENCE_AT..SEQUENCE_AT + 8].copy_from_slice(&self.seq.to_be_bytes());
        ours[DIGITS_LEN_AT] = self.digits.len;
        out.extend_from_slice(&ours);
        out.extend_from_slice(self.digits.text());
        let mut time = TIME_TEMPLATE;
        time[TIME_AT..].copy_from_slice(&self.time_ms.to_be_bytes());
        out.extend_from_slice(&time);
        out.extend_from_slice(self.rest);
        out.extend_from_slice(self.tail);
    }

    #[inline]
    fn annotations_len(&self) -> usize {
        TEMPLATE.len() + usize::from(self.digits.len) + TIME_TEMPLATE.len() + self.own.1.len()
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
        [0x40 | 0x45, ..] => 1,
        [0xc0, size, ..] => 2 + usize::from(*size),
        [0xd0, a, b, c, d, ..] => 5 + u32::from_be_bytes([*a, *b, *c, *d]) as usize,
        _ => return (&[], data),
    };
    data.split_at_checked(3 + len).unwrap_or((&[], data))
}

/// The delivery annotations in front, whole and as pairs, and what follows them.
fn split_hop(data: &[u8]) -> (Option<(&[u8], Pairs<'_>)>, &[u8]) {
    let Some((pairs, rest)) = data.strip_prefix(&HOP_DESCRIPTOR).and_then(split_map) else {
        return (None, data);
    };
    (Some((&data[..data.len() - rest.len()], pairs)), rest)
}

/// How many values the annotations are, their bytes, and what follows them.
#[inline]
fn split_annotations(data: &[u8]) -> (Pairs<'_>, &[u8]) {
    let map = data.strip_prefix(&ANNOTATIONS_DESCRIPTOR).and_then(split_map);
    map.unwrap_or(((0, &data[..0]), data))
}

/// The pairs of a map, and what follows it.
#[inline]
fn split_map(map: &[u8]) -> Option<(Pairs<'_>, &[u8])> {
    let (count, size, content) = match map {
        [0xc1, size, count, content @ ..] => (u32::from(*count), usize::from(*size).checked_sub(1), content),
        [0xd1, a, b, c, d, e, f, g, h, content @ ..] => {
            let size = u32::from_be_bytes([*a, *b, *c, *d]) as usize;
            (u32::from_be_bytes([*e, *f, *g, *h]), size.checked_sub(4), content)
        }
        _ => return None,
    };
    let (own, rest) = content.split_at_checked(size?)?;
    Some(((count, own), rest))
}
