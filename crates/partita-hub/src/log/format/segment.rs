//! A segment's header block and the partition table after it: the checkpoint from which recovery starts, and each
//! partition's first available position.

use super::{
    BLOCK, FORMAT_MAJOR, FORMAT_MINOR, PRODUCER_ENTRY, ProducerEntry, StoreId, array, i64_at, put, u16_at,
    u32_at, u64_at,
};

const MAGIC: [u8; 8] = *b"PARTSEG\n";
pub(crate) const ENTRY: usize = 32;
/// The number of idempotent producers, which follow the entries.
const PRODUCERS_COUNT: usize = 4;

/// The header of a segment file.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct SegmentHeader {
    pub(crate) store: StoreId,
    pub(crate) hub: u64,
    pub(crate) segment: u64,
    /// Counts the times the hub was opened; groups of a lower boot than one before them are left-overs.
    pub(crate) boot: u32,
    pub(crate) partitions: u32,
    /// Length of the file.
    pub(crate) capacity: u64,
    pub(crate) created_ms: i64,
    /// The number of the segment's first group.
    pub(crate) first_commit: u64,
    /// The segment before this one, or 0.
    pub(crate) prev_segment: u64,
    /// Where the segment before this one ends. What lies behind that was given up and written again here.
    pub(crate) prev_end: u64,
    table_len: u32,
    table_crc: u32,
}

/// Where a partition stands: what the next event gets, and what the last one got.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct TableEntry {
    pub(crate) next_seq: u64,
    pub(crate) next_offset: u64,
    pub(crate) last_offset: u64,
    pub(crate) last_time: i64,
}

/// All partitions at the start of a segment.
pub(crate) type Table = Vec<TableEntry>;

pub(crate) fn put_entry(out: &mut [u8], at: usize, entry: &TableEntry) {
    put(out, at, &entry.next_seq.to_le_bytes());
    put(out, at + 8, &entry.next_offset.to_le_bytes());
    put(out, at + 16, &entry.last_offset.to_le_bytes());
    put(out, at + 24, &entry.last_time.to_le_bytes());
}

pub(crate) fn get_entry(bytes: &[u8], at: usize) -> TableEntry {
    TableEntry {
        next_seq: u64_at(bytes, at),
        next_offset: u64_at(bytes, at + 8),
        last_offset: u64_at(bytes, at + 16),
        last_time: i64_at(bytes, at + 24),
    }
}

/// Where groups start after a table of this length.
fn data_start(table_len: usize) -> usize {
    BLOCK + table_len.next_multiple_of(BLOCK)
}

fn table_len(partitions: usize, producers: usize) -> usize {
    partitions * ENTRY + PRODUCERS_COUNT + producers * PRODUCER_ENTRY
}

/// The parts of a header that the caller chooses.
#[derive(Clone, Copy, Debug)]
pub(crate) struct NewSegment {
    pub(crate) store: StoreId,
    pub(crate) hub: u64,
    pub(crate) segment: u64,
    pub(crate) boot: u32,
    pub(crate) capacity: u64,
    pub(crate) created_ms: i64,
    pub(crate) first_commit: u64,
    pub(crate) prev_segment: u64,
    pub(crate) prev_end: u64,
}

impl SegmentHeader {
    /// Where groups start in a segment of this many partitions and idempotent producers.
    pub(crate) fn data_start_for(partitions: usize, producers: usize) -> usize {
        data_start(table_len(partitions, producers))
    }

    /// Where groups start.
    pub(crate) fn data_start(&self) -> usize {
        data_start(self.table_len as usize)
    }

    /// Header and table as they stand at the start of the file: whole blocks.
    pub(crate) fn encode(new: &NewSegment, table: &[TableEntry], producers: &[&ProducerEntry]) -> Vec<u8> {
        let table_len = table_len(table.len(), producers.len());
        let mut out = vec![0; data_start(table_len)];
        for (entry, at) in table.iter().zip((BLOCK..).step_by(ENTRY)) {
            put_entry(&mut out, at, entry);
        }
        let count_at = BLOCK + table.len() * ENTRY;
        put(&mut out, count_at, &(producers.len() as u32).to_le_bytes());
        for (producer, at) in producers.iter().zip((count_at + PRODUCERS_COUNT..).step_by(PRODUCER_ENTRY)) {
            put(&mut out, at, &producer.encode());
        }
        let table_crc = crc32fast::hash(&out[BLOCK..]);
        put(&mut out, 0, &MAGIC);
        put(&mut out, 8, &FORMAT_MAJOR.to_le_bytes());
        put(&mut out, 10, &FORMAT_MINOR.to_le_bytes());
        put(&mut out, 16, &new.store.0);
        put(&mut out, 32, &new.hub.to_le_bytes());
        put(&mut out, 40, &new.segment.to_le_bytes());
        put(&mut out, 48, &new.boot.to_le_bytes());
        put(&mut out, 52, &(table.len() as u32).to_le_bytes());
        put(&mut out, 56, &new.capacity.to_le_bytes());
        put(&mut out, 64, &new.created_ms.to_le_bytes());
        put(&mut out, 72, &new.first_commit.to_le_bytes());
        put(&mut out, 80, &new.prev_segment.to_le_bytes());
        put(&mut out, 88, &new.prev_end.to_le_bytes());
        put(&mut out, 96, &(table_len as u32).to_le_bytes());
        put(&mut out, 100, &table_crc.to_le_bytes());
        let crc = crc32fast::hash(&out[..BLOCK]);
        put(&mut out, 12, &crc.to_le_bytes());
        out
    }

    /// Reads the header block; `None` if it is damaged or no header. The whole block is under the checksum.
    pub(crate) fn decode(block: &[u8]) -> Option<Self> {
        let mut copy: [u8; BLOCK] = block.get(..BLOCK)?.try_into().ok()?;
        put(&mut copy, 12, &[0; 4]);
        if block[..8] != MAGIC || u32_at(block, 12) != crc32fast::hash(&copy) {
            return None;
        }
        let header = Self {
            store: StoreId(array(block, 16)),
            hub: u64_at(block, 32),
            segment: u64_at(block, 40),
            boot: u32_at(block, 48),
            partitions: u32_at(block, 52),
            capacity: u64_at(block, 56),
            created_ms: i64_at(block, 64),
            first_commit: u64_at(block, 72),
            prev_segment: u64_at(block, 80),
            prev_end: u64_at(block, 88),
            table_len: u32_at(block, 96),
            table_crc: u32_at(block, 100),
        };
        let fits = u64::from(header.table_len) < header.capacity
            && header.table_len as usize >= table_len(header.partitions as usize, 0);
        (u16_at(block, 8) == FORMAT_MAJOR && fits).then_some(header)
    }

    /// Reads the table from the bytes between the header block and the data; `None` if it is damaged.
    pub(crate) fn decode_table(&self, bytes: &[u8]) -> Option<(Table, Vec<ProducerEntry>)> {
        let bytes = bytes.get(..self.data_start() - BLOCK)?;
        if crc32fast::hash(bytes) != self.table_crc {
            return None;
        }
        let table: Table = (0..self.partitions as usize).map(|p| get_entry(bytes, p * ENTRY)).collect();
        let count = u32_at(bytes, table.len() * ENTRY) as usize;
        if self.table_len as usize != table_len(table.len(), count) {
            return None;
        }
        let producers = &bytes[table.len() * ENTRY + PRODUCERS_COUNT..self.table_len as usize];
        let producers = producers.chunks_exact(PRODUCER_ENTRY).map(ProducerEntry::decode);
        Some((table, producers.collect::<Option<_>>()?))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn new_segment() -> NewSegment {
        NewSegment {
            store: StoreId([3; 16]),
            hub: 7,
            segment: 9,
            boot: 2,
            capacity: 1 << 20,
            created_ms: 1_700_000_000_000,
            first_commit: 55,
            prev_segment: 8,
            prev_end: 12_345,
        }
    }

    fn producer(id: i64) -> ProducerEntry {
        ProducerEntry { partition: 2, id, epoch: 4, sent: vec![Default::default(); id as usize % 5] }
    }

    proptest! {
        #[test]
        fn table_reads_back_as_written(
            entries in prop::collection::vec((any::<u64>(), any::<u64>(), any::<u64>(), any::<i64>()), 1..300),
            producers in 0_i64..80,
        ) {
            let table: Table = entries
                .into_iter()
                .map(|(next_seq, next_offset, last_offset, last_time)| TableEntry {
                    next_seq, next_offset, last_offset, last_time,
                })
                .collect();
            let entries: Vec<ProducerEntry> = (0..producers).map(producer).collect();
            let bytes = SegmentHeader::encode(&new_segment(), &table, &entries.iter().collect::<Vec<_>>());
            let header = SegmentHeader::decode(&bytes).expect("valid");
            prop_assert_eq!((header.segment, header.prev_end, header.first_commit), (9, 12_345, 55));
            prop_assert_eq!(header.data_start(), bytes.len());
            prop_assert_eq!(header.decode_table(&bytes[BLOCK..]), Some((table, entries)));
        }
    }

    #[test]
    fn every_flipped_bit_of_header_and_table_is_refused() {
        let bytes = SegmentHeader::encode(&new_segment(), &[TableEntry::default(); 3], &[&producer(5)]);
        for bit in 0..bytes.len() * 8 {
            let mut flipped = bytes.clone();
            flipped[bit / 8] ^= 1 << (bit % 8);
            let read = SegmentHeader::decode(&flipped).and_then(|h| h.decode_table(&flipped[BLOCK..]));
            assert_eq!(read, None, "bit {bit}");
        }
    }
}
