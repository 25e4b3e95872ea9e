//! A batch: events of one partition that were sent together, opaque to the log, with one checksum over their bytes and
//! one over the header.

use bytes::{BufMut, Bytes, BytesMut};
use thiserror::Error;

use super::{BATCH_BYTES_LIMIT, PRODUCER_BLOCK, ProducerStamp, Seed, i64_at, put, u32_at, u64_at};

/// Length of a batch's header, without the block of an idempotent producer that may follow.
pub(crate) const BATCH_HEADER: usize = 48;
/// The block of an idempotent producer follows the header.
const FLAG_PRODUCER: u32 = 1;

/// Why events do not make a batch.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Error)]
pub enum EncodeError {
    /// A batch has at least one event.
    #[error("the batch has no events")]
    NoEvents,
    /// Offsets are byte positions that strictly rise, so every event has at least one byte.
    #[error("event {index} of the batch is empty")]
    EmptyEvent {
        /// Which one, from 0.
        index: usize,
    },
    /// No segment can hold it.
    #[error("the batch is larger than {} bytes", BATCH_BYTES_LIMIT)]
    TooLarge,
}

/// Collects the encoded events of a batch.
#[derive(Debug, Default)]
pub struct BatchBuilder {
    ends: BytesMut,
    events: BytesMut,
    error: Option<EncodeError>,
}

impl BatchBuilder {
    /// An empty batch with room for `bytes` bytes of events.
    pub fn with_capacity(events: usize, bytes: usize) -> Self {
        Self {
            ends: BytesMut::with_capacity(events * 4),
            events: BytesMut::with_capacity(bytes),
            error: None,
        }
    }

    /// Adds one encoded event.
    pub fn push(&mut self, event: &[u8]) {
        if event.is_empty() {
            self.error.get_or_insert(EncodeError::EmptyEvent { index: self.len() });
        }
        if BATCH_HEADER + self.ends.len() + 4 + self.events.len() + event.len() > BATCH_BYTES_LIMIT {
            self.error.get_or_insert(EncodeError::TooLarge);
            return;
        }
        self.events.extend_from_slice(event);
        self.ends.put_u32_le(self.events.len() as u32);
    }

    /// How many events were added.
    pub fn len(&self) -> usize {
        self.ends.len() / 4
    }

    /// Whether none were.
    pub fn is_empty(&self) -> bool {
        self.ends.is_empty()
    }

    /// Computes the checksum; on the caller's thread, so that the committer does not have to.
    pub fn finish(self) -> Result<EncodedBatch, EncodeError> {
        if let Some(error) = self.error {
            return Err(error);
        }
        if self.is_empty() {
            return Err(EncodeError::NoEvents);
        }
        let mut hasher = crc32fast::Hasher::new();
        hasher.update(&self.ends);
        hasher.update(&self.events);
        let (ends, events) = (self.ends.freeze(), self.events.freeze());
        Ok(EncodedBatch { ends, events, body_crc: hasher.finalize() })
    }
}

/// A batch ready to be appended. Cloning one copies no content.
#[derive(Clone, Debug)]
pub struct EncodedBatch {
    pub(crate) ends: Bytes,
    pub(crate) events: Bytes,
    body_crc: u32,
}

impl EncodedBatch {
    /// A batch of these encoded events.
    pub fn of<E: AsRef<[u8]>>(events: &[E]) -> Result<Self, EncodeError> {
        let bytes = events.iter().map(|event| event.as_ref().len()).sum();
        let mut builder = BatchBuilder::with_capacity(events.len(), bytes);
        for event in events {
            builder.push(event.as_ref());
        }
        builder.finish()
    }

    /// How many events it has.
    pub fn count(&self) -> u32 {
        (self.ends.len() / 4) as u32
    }

    /// How many bytes it takes on disk.
    pub fn disk_bytes(&self) -> usize {
        BATCH_HEADER + self.ends.len() + self.events.len()
    }

    /// Where each event starts, from the batch's first offset.
    pub(crate) fn starts(&self) -> impl Iterator<Item = u64> {
        let ends = self.ends.chunks_exact(4).map(|end| u64::from(u32_at(end, 0)));
        std::iter::once(0).chain(ends).take(self.ends.len() / 4)
    }

    /// Where the last event starts, from the batch's first offset.
    pub(crate) fn last_start(&self) -> u64 {
        match self.count() {
            0 | 1 => 0,
            count => u32_at(&self.ends, (count as usize - 2) * 4).into(),
        }
    }

    /// The header of this batch at its place.
    pub(crate) fn header(
        &self,
        partition: u32,
        base_seq: u64,
        base_offset: u64,
        time_ms: i64,
    ) -> BatchHeader {
        BatchHeader {
            len: self.disk_bytes() as u32,
            body_crc: self.body_crc,
            partition,
            base_seq,
            base_offset,
            count: self.count(),
            time_ms,
            producer: None,
        }
    }
}

/// A header's bytes, with the producer's block if there is one. No memory of its own: there is one for every batch.
#[derive(Debug)]
pub(crate) struct HeadBytes {
    bytes: [u8; BATCH_HEADER + PRODUCER_BLOCK],
    len: usize,
}

impl std::ops::Deref for HeadBytes {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.bytes[..self.len]
    }
}

/// What stands before a batch's body.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct BatchHeader {
    /// Of the whole batch, header included.
    pub(crate) len: u32,
    pub(crate) body_crc: u32,
    pub(crate) partition: u32,
    pub(crate) base_seq: u64,
    pub(crate) base_offset: u64,
    pub(crate) count: u32,
    pub(crate) time_ms: i64,
    /// What an idempotent producer put on it.
    pub(crate) producer: Option<ProducerStamp>,
}

impl BatchHeader {
    /// The header of the same batch, sent by an idempotent producer.
    pub(crate) fn stamped(self, producer: Option<ProducerStamp>) -> Self {
        match producer {
            None => self,
            Some(_) => Self { len: self.len + PRODUCER_BLOCK as u32, producer, ..self },
        }
    }

    /// How many bytes stand before the body.
    pub(crate) fn head_len(&self) -> usize {
        BATCH_HEADER + if self.producer.is_some() { PRODUCER_BLOCK } else { 0 }
    }

    /// The header's bytes; its checksum is at byte 4.
    pub(crate) fn encode(&self, seed: Seed) -> HeadBytes {
        let mut head = HeadBytes { bytes: [0; BATCH_HEADER + PRODUCER_BLOCK], len: self.head_len() };
        let out = &mut head.bytes[..head.len];
        put(out, 0, &self.len.to_le_bytes());
        put(out, 8, &self.body_crc.to_le_bytes());
        put(out, 12, &self.partition.to_le_bytes());
        put(out, 16, &self.base_seq.to_le_bytes());
        put(out, 24, &self.base_offset.to_le_bytes());
        put(out, 32, &self.count.to_le_bytes());
        if let Some(producer) = &self.producer {
            put(out, 36, &FLAG_PRODUCER.to_le_bytes());
            put(out, BATCH_HEADER, &producer.encode());
        }
        put(out, 40, &self.time_ms.to_le_bytes());
        let crc = head_crc(out, seed);
        put(out, 4, &crc.to_le_bytes());
        head
    }

    /// Reads a header at the start of `bytes`; `None` if it is damaged or none.
    pub(crate) fn decode(bytes: &[u8], seed: Seed) -> Option<Self> {
        // A flag of a later format would change how the batch reads.
        let flags = u32_at(bytes.get(..BATCH_HEADER)?, 36);
        let head_len = match flags {
            0 => BATCH_HEADER,
            FLAG_PRODUCER => BATCH_HEADER + PRODUCER_BLOCK,
            _ => return None,
        };
        let bytes = bytes.get(..head_len)?;
        let len = u32_at(bytes, 0);
        if !(head_len..=BATCH_BYTES_LIMIT + PRODUCER_BLOCK).contains(&(len as usize))
            || u32_at(bytes, 4) != head_crc(bytes, seed)
        {
            return None;
        }
        let header = Self {
            len,
            body_crc: u32_at(bytes, 8),
            partition: u32_at(bytes, 12),
            base_seq: u64_at(bytes, 16),
            base_offset: u64_at(bytes, 24),
            count: u32_at(bytes, 32),
            time_ms: i64_at(bytes, 40),
            producer: bytes.get(BATCH_HEADER..head_len).filter(|b| !b.is_empty()).map(ProducerStamp::decode),
        };
        (header.count > 0 && header.ends_len() < header.body_len()).then_some(header)
    }

    pub(crate) fn body_len(&self) -> usize {
        self.len as usize - self.head_len()
    }

    fn ends_len(&self) -> usize {
        self.count as usize * 4
    }

    /// Whether `body` is what was written, and its event ends make sense.
    pub(crate) fn body_is_whole(&self, body: &[u8]) -> bool {
        body.len() == self.body_len() && crc32fast::hash(body) == self.body_crc && self.ends_rise(body)
    }

    fn ends_rise(&self, body: &[u8]) -> bool {
        let (ends, events) = body.split_at(self.ends_len());
        let mut last = 0;
        let rise = ends.chunks_exact(4).all(|end| {
            let end = u32_at(end, 0);
            let rises = end > last;
            last = end;
            rises
        });
        rise && last as usize == events.len()
    }

    /// Where the events' bytes end in the partition.
    pub(crate) fn next_offset(&self) -> u64 {
        self.base_offset + (self.body_len() - self.ends_len()) as u64
    }

    pub(crate) fn next_seq(&self) -> u64 {
        self.base_seq + u64::from(self.count)
    }

    /// The offset of the last event, from a body that is whole.
    pub(crate) fn last_offset(&self, body: &[u8]) -> u64 {
        match self.count {
            0 | 1 => self.base_offset,
            count => self.base_offset + u64::from(u32_at(body, (count as usize - 2) * 4)),
        }
    }
}

fn head_crc(header: &[u8], seed: Seed) -> u32 {
    let mut hasher = seed.hasher();
    hasher.update(&header[..4]);
    hasher.update(&header[8..]);
    hasher.finalize()
}

/// Reads a whole batch at the start of `bytes`, both checksums verified.
pub(crate) fn parse_batch(bytes: &Bytes, seed: Seed) -> Option<StoredBatch> {
    let header = BatchHeader::decode(bytes, seed)?;
    let body = header.head_len()..header.len as usize;
    let whole = header.body_is_whole(bytes.get(body.clone())?);
    whole.then(|| StoredBatch::new(header, bytes.slice(body)))
}

/// A batch as it was read: its events, or those from a position on. Cloning one copies no content.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct StoredBatch {
    header: BatchHeader,
    body: Bytes,
    skip: u32,
}

/// One event of a [`StoredBatch`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct StoredEvent<'a> {
    /// Counts the events of the partition from 0.
    pub seq: u64,
    /// The event's byte position in the partition.
    pub offset: u64,
    /// When the hub accepted it, in milliseconds since 1970; never falls within a partition.
    pub time_ms: i64,
    /// Its bytes as they were appended.
    pub data: &'a [u8],
}

impl StoredBatch {
    pub(crate) fn new(header: BatchHeader, body: Bytes) -> Self {
        Self { header, body, skip: 0 }
    }

    /// Leaves out events before `seq`.
    pub(crate) fn starting_at(mut self, seq: u64) -> Self {
        let skip = seq.saturating_sub(self.header.base_seq).min(self.header.count.into());
        self.skip = self.skip.max(skip as u32);
        self
    }

    /// The partition.
    pub fn partition(&self) -> u32 {
        self.header.partition
    }

    /// When the hub accepted the events.
    pub fn time_ms(&self) -> i64 {
        self.header.time_ms
    }

    /// The sequence number of the first event.
    pub fn first_seq(&self) -> u64 {
        self.header.base_seq + u64::from(self.skip)
    }

    /// The sequence number after the last event's.
    pub fn next_seq(&self) -> u64 {
        self.header.next_seq()
    }

    /// How many events there are.
    pub fn len(&self) -> usize {
        (self.header.count - self.skip) as usize
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// How many bytes of events there are.
    pub fn event_bytes(&self) -> usize {
        self.body.len() - self.header.ends_len() - self.start_of(self.skip)
    }

    /// The events in order.
    pub fn events(&self) -> impl ExactSizeIterator<Item = StoredEvent<'_>> {
        let events = &self.body[self.header.ends_len()..];
        (self.skip..self.header.count).map(move |i| {
            let (start, end) = (self.start_of(i), self.start_of(i + 1));
            StoredEvent {
                seq: self.header.base_seq + u64::from(i),
                offset: self.header.base_offset + start as u64,
                time_ms: self.header.time_ms,
                data: &events[start..end],
            }
        })
    }

    /// The same batch in memory of its own, for who keeps it: what was read shares memory with its neighbours.
    pub fn detached(&self) -> Self {
        Self { body: Bytes::copy_from_slice(&self.body), ..self.clone() }
    }

    /// The bytes of an event of this batch, shared instead of copied.
    pub fn share(&self, event: &StoredEvent<'_>) -> Bytes {
        self.body.slice_ref(event.data)
    }

    fn start_of(&self, index: u32) -> usize {
        match index {
            0 => 0,
            i => u32_at(&self.body, (i as usize - 1) * 4) as usize,
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::StoreId;
    use super::*;

    fn seed() -> Seed {
        Seed::new(StoreId([1; 16]), 4)
    }

    fn bytes_of(batch: &EncodedBatch) -> Bytes {
        let head = batch.header(3, 100, 5_000, 42).encode(seed());
        [&head[..], &batch.ends, &batch.events].concat().into()
    }

    proptest! {
        #[test]
        fn events_read_back_as_written(
            events in prop::collection::vec(prop::collection::vec(any::<u8>(), 1..200), 1..40),
            from in 0_u64..60,
        ) {
            let bytes = bytes_of(&EncodedBatch::of(&events).expect("valid"));
            let batch = parse_batch(&bytes, seed()).expect("valid").starting_at(100 + from);
            let read: Vec<_> = batch.events().map(|e| (e.seq, e.offset, e.data.to_vec())).collect();
            let mut offset = 5_000;
            let mut written = Vec::new();
            for (seq, event) in (100..).zip(&events) {
                written.push((seq, offset, event.clone()));
                offset += event.len() as u64;
            }
            let written = written.split_off((from as usize).min(events.len()));
            prop_assert_eq!(batch.event_bytes(), written.iter().map(|w| w.2.len()).sum::<usize>());
            prop_assert_eq!(read, written);
        }

        #[test]
        fn arbitrary_bytes_never_panic(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
            prop_assert!(parse_batch(&bytes.into(), seed()).is_none());
        }
    }

    fn stamped(batch: &EncodedBatch, producer: ProducerStamp) -> Bytes {
        let head = batch.header(3, 100, 5_000, 42).stamped(Some(producer)).encode(seed());
        [&head[..], &batch.ends, &batch.events].concat().into()
    }

    #[test]
    fn every_flipped_bit_is_refused() {
        let batch = EncodedBatch::of(&["one", "two", "three"]).expect("valid");
        let producer = ProducerStamp { id: -2, epoch: 3, sequence: 77 };
        for bytes in [bytes_of(&batch), stamped(&batch, producer)] {
            for bit in 0..bytes.len() * 8 {
                let mut flipped = bytes.to_vec();
                flipped[bit / 8] ^= 1 << (bit % 8);
                assert_eq!(parse_batch(&flipped.into(), seed()), None, "bit {bit}");
            }
        }
    }

    #[test]
    fn a_producers_stamp_is_under_the_headers_checksum_and_changes_nothing_else() {
        let batch = EncodedBatch::of(&["one", "two", "three"]).expect("valid");
        let producer = ProducerStamp { id: i64::MIN, epoch: -1, sequence: i32::MAX };
        let bytes = stamped(&batch, producer);
        let header = BatchHeader::decode(&bytes, seed()).expect("valid");
        assert_eq!(header.producer, Some(producer));
        assert_eq!(bytes.len(), batch.disk_bytes() + PRODUCER_BLOCK);
        let read = |bytes: &Bytes| {
            let batch = parse_batch(bytes, seed()).expect("valid");
            batch.events().map(|e| (e.seq, e.offset, e.data.to_vec())).collect::<Vec<_>>()
        };
        assert_eq!(read(&bytes), read(&bytes_of(&batch)));
    }

    #[test]
    fn bytes_of_another_segment_are_refused() {
        let bytes = bytes_of(&EncodedBatch::of(&["one"]).expect("valid"));
        assert_eq!(parse_batch(&bytes, Seed::new(StoreId([1; 16]), 5)), None);
        assert_eq!(parse_batch(&bytes, Seed::new(StoreId([2; 16]), 4)), None);
    }

    #[test]
    fn empty_events_and_batches_are_refused() {
        assert_eq!(EncodedBatch::of(&["a", ""]).err(), Some(EncodeError::EmptyEvent { index: 1 }));
        assert_eq!(EncodedBatch::of::<&str>(&[]).err(), Some(EncodeError::NoEvents));
    }
}
