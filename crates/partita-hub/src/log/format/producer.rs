//! What an idempotent producer puts on a batch, and what a segment's table keeps of each producer.

use super::{array, i64_at, put, u16_at, u32_at, u64_at};

/// Length of the block after a batch's header.
pub(crate) const PRODUCER_BLOCK: usize = 16;
/// Length of a producer in a segment's table.
pub(crate) const PRODUCER_ENTRY: usize = 144;
/// How many of a producer's last batches are remembered, so that as many may be under way when answers are lost.
pub(crate) const REMEMBERED: usize = 4;

const SENT: usize = 32;

/// An idempotent producer's mark on a batch.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct ProducerStamp {
    /// The producer.
    pub id: i64,
    /// Its incarnation: a higher one shuts out the lower ones.
    pub epoch: i16,
    /// The number of the batch's first event. The events are numbered one by one, and 0 follows [`i32::MAX`].
    pub sequence: i32,
}

impl ProducerStamp {
    pub(crate) fn encode(&self) -> [u8; PRODUCER_BLOCK] {
        let mut out = [0; PRODUCER_BLOCK];
        put(&mut out, 0, &self.id.to_le_bytes());
        put(&mut out, 8, &self.sequence.to_le_bytes());
        put(&mut out, 12, &self.epoch.to_le_bytes());
        out
    }

    pub(crate) fn decode(bytes: &[u8]) -> Self {
        Self {
            id: i64_at(bytes, 0),
            sequence: u32_at(bytes, 8).cast_signed(),
            epoch: u16_at(bytes, 12).cast_signed(),
        }
    }
}

/// A batch that a producer sent, and its place.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct SentBatch {
    pub(crate) sequence: i32,
    pub(crate) count: u32,
    pub(crate) first_seq: u64,
    pub(crate) first_offset: u64,
    pub(crate) time_ms: i64,
}

/// What is known of a producer in a partition.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct ProducerEntry {
    pub(crate) partition: u32,
    pub(crate) id: i64,
    pub(crate) epoch: i16,
    /// The last batches of this epoch, the oldest first; at most [`REMEMBERED`].
    pub(crate) sent: Vec<SentBatch>,
}

impl ProducerEntry {
    pub(crate) fn encode(&self) -> [u8; PRODUCER_ENTRY] {
        let mut out = [0; PRODUCER_ENTRY];
        put(&mut out, 0, &self.partition.to_le_bytes());
        put(&mut out, 4, &self.epoch.to_le_bytes());
        put(&mut out, 6, &[self.sent.len() as u8]);
        put(&mut out, 8, &self.id.to_le_bytes());
        for (batch, at) in self.sent.iter().zip((16..).step_by(SENT)) {
            put(&mut out, at, &batch.sequence.to_le_bytes());
            put(&mut out, at + 4, &batch.count.to_le_bytes());
            put(&mut out, at + 8, &batch.first_seq.to_le_bytes());
            put(&mut out, at + 16, &batch.first_offset.to_le_bytes());
            put(&mut out, at + 24, &batch.time_ms.to_le_bytes());
        }
        out
    }

    pub(crate) fn decode(bytes: &[u8]) -> Option<Self> {
        let bytes = bytes.get(..PRODUCER_ENTRY)?;
        let sent = usize::from(bytes[6]);
        let batch = |at| SentBatch {
            sequence: u32_at(bytes, at).cast_signed(),
            count: u32_at(bytes, at + 4),
            first_seq: u64_at(bytes, at + 8),
            first_offset: u64_at(bytes, at + 16),
            time_ms: i64_at(bytes, at + 24),
        };
        (sent <= REMEMBERED).then(|| Self {
            partition: u32_at(bytes, 0),
            epoch: i16::from_le_bytes(array(bytes, 4)),
            id: i64_at(bytes, 8),
            sent: (0..sent).map(|i| batch(16 + i * SENT)).collect(),
        })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn stamps_and_entries_read_back_as_written(
            id in any::<i64>(), epoch in any::<i16>(), partition in any::<u32>(),
            sent in prop::collection::vec((any::<i32>(), any::<u32>(), any::<u64>(), any::<i64>()), 0..=REMEMBERED),
        ) {
            let stamp = ProducerStamp { id, epoch, sequence: 7 };
            prop_assert_eq!(ProducerStamp::decode(&stamp.encode()), stamp);
            let sent = sent.into_iter().map(|(sequence, count, place, time_ms)| SentBatch {
                sequence, count, first_seq: place, first_offset: !place, time_ms,
            });
            let entry = ProducerEntry { partition, id, epoch, sent: sent.collect() };
            prop_assert_eq!(ProducerEntry::decode(&entry.encode()), Some(entry));
        }
    }
}
