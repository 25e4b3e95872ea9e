//! The index of a segment: for each partition, where its batches lie, one entry for each 64 KiB window that has any.
//! A sealed segment's is kept in an `.idx` file, which is derived from the segment and may be deleted.

use super::{StoreId, array, i64_at, put, u32_at, u64_at};

const MAGIC: [u8; 8] = *b"PARTIDX\n";
const HEADER: usize = 64;
const ENTRY: usize = 32;

/// The first batch of a partition in a window, and where its last one there ends.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct IndexEntry {
    pub(crate) seq: u64,
    pub(crate) offset: u64,
    pub(crate) time_ms: i64,
    pub(crate) pos: u32,
    pub(crate) end: u32,
}

/// The index of a segment that no longer changes.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(crate) struct SealedIndex {
    /// Where each partition's entries start, and the end of the last one's.
    starts: Vec<u32>,
    entries: Vec<IndexEntry>,
}

impl SealedIndex {
    pub(crate) fn new(partitions: &[Vec<IndexEntry>]) -> Self {
        let mut starts = Vec::with_capacity(partitions.len() + 1);
        let mut entries = Vec::with_capacity(partitions.iter().map(Vec::len).sum());
        for list in partitions {
            starts.push(entries.len() as u32);
            entries.extend_from_slice(list);
        }
        starts.push(entries.len() as u32);
        Self { starts, entries }
    }

    /// The entries of a partition, in order.
    pub(crate) fn of(&self, partition: u32) -> &[IndexEntry] {
        match self.starts.get(partition as usize..partition as usize + 2) {
            Some([from, to]) => &self.entries[*from as usize..*to as usize],
            _ => &[],
        }
    }

    /// About how much memory it takes.
    pub(crate) fn bytes(&self) -> usize {
        self.starts.len() * 4 + self.entries.len() * ENTRY
    }

    /// The content of the `.idx` file of the segment that ends at `end`.
    pub(crate) fn encode(&self, store: StoreId, segment: u64, end: u64) -> Vec<u8> {
        let mut out = vec![0; HEADER];
        put(&mut out, 0, &MAGIC);
        put(&mut out, 16, &store.0);
        put(&mut out, 32, &segment.to_le_bytes());
        put(&mut out, 40, &end.to_le_bytes());
        put(&mut out, 48, &(self.starts.len() as u32).to_le_bytes());
        put(&mut out, 52, &(self.entries.len() as u32).to_le_bytes());
        out.extend(self.starts.iter().flat_map(|start| start.to_le_bytes()));
        for entry in &self.entries {
            out.extend(entry.seq.to_le_bytes());
            out.extend(entry.offset.to_le_bytes());
            out.extend(entry.time_ms.to_le_bytes());
            out.extend(entry.pos.to_le_bytes());
            out.extend(entry.end.to_le_bytes());
        }
        let crc = crc32fast::hash(&out);
        put(&mut out, 8, &crc.to_le_bytes());
        out
    }

    /// Reads an `.idx` file; `None` unless it is whole and of this very segment.
    pub(crate) fn decode(bytes: &[u8], store: StoreId, segment: u64, end: u64) -> Option<Self> {
        let head = bytes.get(..HEADER)?;
        let mut hasher = crc32fast::Hasher::new();
        hasher.update(&head[..8]);
        hasher.update(&[0; 4]);
        hasher.update(&bytes[12..]);
        let ours = head[..8] == MAGIC
            && u32_at(head, 8) == hasher.finalize()
            && StoreId(array(head, 16)) == store
            && (u64_at(head, 32), u64_at(head, 40)) == (segment, end);
        let (starts, entries) = (u32_at(head, 48) as usize, u32_at(head, 52) as usize);
        if !ours || bytes.len() != HEADER + starts * 4 + entries * ENTRY {
            return None;
        }
        let (start_bytes, entry_bytes) = bytes[HEADER..].split_at(starts * 4);
        let index = Self {
            starts: start_bytes.chunks_exact(4).map(|start| u32_at(start, 0)).collect(),
            entries: entry_bytes
                .chunks_exact(ENTRY)
                .map(|entry| IndexEntry {
                    seq: u64_at(entry, 0),
                    offset: u64_at(entry, 8),
                    time_ms: i64_at(entry, 16),
                    pos: u32_at(entry, 24),
                    end: u32_at(entry, 28),
                })
                .collect(),
        };
        let ordered =
            index.starts.is_sorted() && index.starts.last().is_none_or(|last| *last as usize == entries);
        ordered.then_some(index)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn reads_back_as_written_and_refuses_any_flipped_bit(
            sizes in prop::collection::vec(0_usize..5, 0..20),
            flip in any::<prop::sample::Index>(),
        ) {
            let entry = |i: usize| IndexEntry { seq: i as u64, offset: 9, time_ms: -1, pos: 5, end: 50 };
            let lists: Vec<Vec<_>> = sizes.iter().map(|n| (0..*n).map(entry).collect()).collect();
            let index = SealedIndex::new(&lists);
            for (list, partition) in lists.iter().zip(0..) {
                prop_assert_eq!(index.of(partition), &list[..]);
            }
            prop_assert_eq!(index.of(lists.len() as u32), &[]);
            let store = StoreId([8; 16]);
            let mut bytes = index.encode(store, 3, 77);
            prop_assert_eq!(SealedIndex::decode(&bytes, store, 3, 77), Some(index));
            prop_assert_eq!(SealedIndex::decode(&bytes, store, 3, 78), None);
            let bit = flip.index(bytes.len() * 8);
            bytes[bit / 8] ^= 1 << (bit % 8);
            prop_assert_eq!(SealedIndex::decode(&bytes, store, 3, 77), None);
        }
    }
}
