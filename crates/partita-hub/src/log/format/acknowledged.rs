//! The record of what a hub has acknowledged, kept outside of its directory: what a start compares the segments with.

use super::segment::{ENTRY, get_entry, put_entry};
use super::{BLOCK, FORMAT_MAJOR, StoreId, Table, array, put, u16_at, u32_at, u64_at};

const MAGIC: [u8; 8] = *b"PARTACK\n";
const HEAD: usize = 80;
const FLAG_CLOSED: u32 = 1;
/// The record is no longer than this, for as many partitions as a hub can have.
pub(crate) const ACKNOWLEDGED_BYTES_MAX: usize = 9 * BLOCK;

/// What a hub had made durable when this was written. All of it is a lower limit, unless the hub was closed after it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Acknowledged {
    pub(crate) store: StoreId,
    pub(crate) hub: u64,
    /// Rises with each record, so that the newer of two is known.
    pub(crate) number: u64,
    /// The newest segment.
    pub(crate) segment: u64,
    /// The number of the next group.
    pub(crate) next_commit: u64,
    pub(crate) boot: u32,
    /// Nothing was written after this: the log was closed.
    pub(crate) closed: bool,
    pub(crate) table: Table,
}

impl Acknowledged {
    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut out = vec![0; HEAD + self.table.len() * ENTRY];
        put(&mut out, 0, &MAGIC);
        put(&mut out, 12, &FORMAT_MAJOR.to_le_bytes());
        put(&mut out, 16, &self.store.0);
        put(&mut out, 32, &self.hub.to_le_bytes());
        put(&mut out, 40, &self.number.to_le_bytes());
        put(&mut out, 48, &self.segment.to_le_bytes());
        put(&mut out, 56, &self.next_commit.to_le_bytes());
        put(&mut out, 64, &self.boot.to_le_bytes());
        put(&mut out, 68, &(if self.closed { FLAG_CLOSED } else { 0 }).to_le_bytes());
        put(&mut out, 72, &(self.table.len() as u32).to_le_bytes());
        for (entry, at) in self.table.iter().zip((HEAD..).step_by(ENTRY)) {
            put_entry(&mut out, at, entry);
        }
        let crc = crc32fast::hash(&out);
        put(&mut out, 8, &crc.to_le_bytes());
        out
    }

    /// Reads a record; `None` if it is damaged, or none. Bytes after it do not matter.
    pub(crate) fn decode(bytes: &[u8]) -> Option<Self> {
        if bytes.len() < HEAD || bytes[..8] != MAGIC || u16_at(bytes, 12) != FORMAT_MAJOR {
            return None;
        }
        let partitions = u32_at(bytes, 72) as usize;
        let mut copy = bytes.get(..HEAD.checked_add(partitions.checked_mul(ENTRY)?)?)?.to_vec();
        put(&mut copy, 8, &[0; 4]);
        if crc32fast::hash(&copy) != u32_at(bytes, 8) {
            return None;
        }
        Some(Self {
            store: StoreId(array(bytes, 16)),
            hub: u64_at(bytes, 32),
            number: u64_at(bytes, 40),
            segment: u64_at(bytes, 48),
            next_commit: u64_at(bytes, 56),
            boot: u32_at(bytes, 64),
            closed: u32_at(bytes, 68) & FLAG_CLOSED != 0,
            table: (0..partitions).map(|p| get_entry(bytes, HEAD + p * ENTRY)).collect(),
        })
    }

    /// Whether both say the same, apart from what rises without an event: number and commit.
    pub(crate) fn says_as_much_as(&self, other: &Self) -> bool {
        (self.segment, self.boot, self.closed) == (other.segment, other.boot, other.closed)
            && self.table == other.table
    }
}

#[cfg(test)]
mod tests {
    use super::super::TableEntry;
    use super::*;
    use crate::log::PARTITIONS_MAX;

    fn record(partitions: usize) -> Acknowledged {
        let entry = |p: usize| TableEntry {
            next_seq: p as u64 * 3,
            next_offset: p as u64 * 100,
            last_offset: p as u64 * 90,
            last_time: 1_700_000_000_000,
        };
        Acknowledged {
            store: StoreId([5; 16]),
            hub: 7,
            number: 12,
            segment: 3,
            next_commit: 99,
            boot: 4,
            closed: true,
            table: (0..partitions).map(entry).collect(),
        }
    }

    #[test]
    fn reads_back_as_written_and_refuses_any_flipped_bit() {
        let bytes = record(3).encode();
        let padded = [&bytes[..], &[9; 100]].concat();
        assert_eq!(Acknowledged::decode(&padded), Some(record(3)));
        for bit in 0..bytes.len() * 8 {
            let mut flipped = bytes.clone();
            flipped[bit / 8] ^= 1 << (bit % 8);
            assert_eq!(Acknowledged::decode(&flipped), None, "bit {bit}");
        }
        for len in 0..bytes.len() {
            assert_eq!(Acknowledged::decode(&bytes[..len]), None);
        }
    }

    #[test]
    fn the_most_partitions_fit() {
        assert!(record(PARTITIONS_MAX as usize).encode().len() <= ACKNOWLEDGED_BYTES_MAX);
    }
}
