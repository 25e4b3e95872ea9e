//! Indexes in memory: the growing one of the active segment, and recently used ones of sealed segments.

use std::collections::VecDeque;
use std::sync::Arc;

use super::format::{BatchHeader, IndexEntry, SealedIndex};

/// One entry per partition and window of this size; readers walk batch headers within a window.
const WINDOW: u64 = 64 << 10;
/// Memory for indexes of sealed segments, together.
const CACHED_BYTES_MAX: usize = 64 << 20;

/// The index of the segment being written.
#[derive(Clone, Debug, Default)]
pub(crate) struct LiveIndex {
    partitions: Vec<Vec<IndexEntry>>,
}

impl LiveIndex {
    /// Notes a batch that lies at `pos`.
    pub(crate) fn add(&mut self, batch: &BatchHeader, pos: u64) {
        let partition = batch.partition as usize;
        if self.partitions.len() <= partition {
            self.partitions.resize_with(partition + 1, Vec::new);
        }
        let list = &mut self.partitions[partition];
        let end = pos as u32 + batch.len;
        match list.last_mut() {
            Some(last) if u64::from(last.pos) / WINDOW == pos / WINDOW => last.end = end,
            _ => list.push(IndexEntry {
                seq: batch.base_seq,
                offset: batch.base_offset,
                time_ms: batch.time_ms,
                pos: pos as u32,
                end,
            }),
        }
    }

    /// The entries of a partition, in order.
    pub(crate) fn of(&self, partition: u32) -> &[IndexEntry] {
        self.partitions.get(partition as usize).map_or(&[], Vec::as_slice)
    }

    /// The same index, as a sealed segment has it.
    pub(crate) fn seal(&self) -> SealedIndex {
        SealedIndex::new(&self.partitions)
    }
}

/// The most recently used indexes of sealed segments.
#[derive(Debug, Default)]
pub(crate) struct IndexCache {
    recent: VecDeque<(u64, Arc<SealedIndex>)>,
    bytes: usize,
}

impl IndexCache {
    pub(crate) fn get(&mut self, segment: u64) -> Option<Arc<SealedIndex>> {
        let at = self.recent.iter().position(|(id, _)| *id == segment)?;
        let hit = self.recent.remove(at)?;
        let index = hit.1.clone();
        self.recent.push_back(hit);
        Some(index)
    }

    pub(crate) fn insert(&mut self, segment: u64, index: Arc<SealedIndex>) {
        self.remove(segment);
        self.bytes += index.bytes();
        self.recent.push_back((segment, index));
        while self.bytes > CACHED_BYTES_MAX && self.recent.len() > 1 {
            if let Some((_, oldest)) = self.recent.pop_front() {
                self.bytes -= oldest.bytes();
            }
        }
    }

    pub(crate) fn remove(&mut self, segment: u64) {
        let at = self.recent.iter().position(|(id, _)| *id == segment);
        if let Some((_, index)) = at.and_then(|at| self.recent.remove(at)) {
            self.bytes -= index.bytes();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_entry_per_partition_and_window() {
        let batch = |partition, base_seq| BatchHeader {
            len: 30_000,
            body_crc: 0,
            partition,
            base_seq,
            base_offset: base_seq * 10,
            count: 1,
            time_ms: 5,
            producer: None,
        };
        let mut index = LiveIndex::default();
        for (seq, pos) in [(0, 8_192), (1, 38_192), (2, 68_192)] {
            index.add(&batch(1, seq), pos);
        }
        let entries: Vec<_> = index.of(1).iter().map(|e| (e.seq, e.pos, e.end)).collect();
        assert_eq!(entries, [(0, 8_192, 68_192), (2, 68_192, 98_192)]);
        assert_eq!(index.of(0), []);
        assert_eq!(index.seal().of(1), index.of(1));
    }
}
