//! The tail cache: buffers of the last commits, shared read-only. Direct writes leave nothing in the page cache, so
//! readers that keep up are served from here.

use std::collections::VecDeque;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use bytes::Bytes;

use super::aligned::{AlignedBuf, SharedBuf};
use super::format::{BatchHeader, StoredBatch};

/// One commit as it was written.
#[derive(Debug)]
pub(crate) struct Commit {
    /// The number of its group, or of its last one where recovery put several together.
    pub(crate) number: u64,
    pub(crate) segment: u64,
    /// Where the buffer starts and the commit ends in the segment.
    pub(crate) base: u64,
    pub(crate) end: u64,
    pub(crate) buf: Arc<AlignedBuf>,
    /// Its batches with their places in the segment, sorted by partition and then as written.
    pub(crate) batches: Vec<(u64, BatchHeader)>,
}

impl Commit {
    fn of(&self, partition: u32) -> &[(u64, BatchHeader)] {
        let from = self.batches.partition_point(|(_, batch)| batch.partition < partition);
        let run = &self.batches[from..];
        &run[..run.partition_point(|(_, batch)| batch.partition == partition)]
    }
}

/// What the tail caches of all hubs of the process hold, and may.
static PROCESS_BYTES: AtomicUsize = AtomicUsize::new(0);
const PROCESS_BYTES_MAX: usize = 256 << 20;
/// What a hub keeps when all of them hold too much.
const CROWDED_BYTES_MAX: usize = 1 << 20;
/// After this long without a commit nothing is kept but what the disk cannot serve yet.
const IDLE_AFTER: Duration = Duration::from_secs(10);

/// The last commits, oldest first.
#[derive(Debug, Default)]
pub(crate) struct TailCache {
    commits: VecDeque<Commit>,
    bytes: usize,
    pushed: Option<Instant>,
}

impl TailCache {
    /// Adds a commit and gives back the buffers that make room for it. Commits of `segment` that end behind `keep`
    /// stay in any case: the disk cannot serve them yet.
    pub(crate) fn push(
        &mut self,
        commit: Commit,
        bytes_max: usize,
        segment: u64,
        keep: u64,
    ) -> Vec<Arc<AlignedBuf>> {
        self.count(commit.buf.capacity(), 0);
        self.commits.push_back(commit);
        self.pushed = Some(Instant::now());
        let crowded = PROCESS_BYTES.load(Ordering::Relaxed) > PROCESS_BYTES_MAX;
        self.shrink(if crowded { bytes_max.min(CROWDED_BYTES_MAX) } else { bytes_max }, segment, keep)
    }

    /// Lets go of what is not needed while nothing is written. `segment` is the one that is written, readable up to
    /// `keep`.
    pub(crate) fn shrink_if_idle(&mut self, segment: u64, keep: u64) {
        if self.pushed.is_some_and(|at| at.elapsed() >= IDLE_AFTER) {
            self.pushed = None;
            self.shrink(0, segment, keep);
        }
    }

    fn count(&mut self, more: usize, less: usize) {
        self.bytes = self.bytes + more - less;
        PROCESS_BYTES.fetch_add(more, Ordering::Relaxed);
        PROCESS_BYTES.fetch_sub(less, Ordering::Relaxed);
    }

    fn shrink(&mut self, bytes_max: usize, segment: u64, keep: u64) -> Vec<Arc<AlignedBuf>> {
        let mut freed = Vec::new();
        while self.bytes > bytes_max {
            let oldest = self.commits.front();
            let Some(commit) = oldest.filter(|c| c.segment != segment || c.end <= keep) else { break };
            let less = commit.buf.capacity();
            self.count(0, less);
            freed.extend(self.commits.pop_front().map(|commit| commit.buf));
        }
        freed
    }

    /// Appends batches of `partition` from `seq` on to `out`, up to about `bytes_max`, starting with the commit
    /// numbered `hint` or later. Returns the number of the commit to go on with; `None` if `seq` is not here.
    pub(crate) fn read(
        &self,
        partition: u32,
        seq: u64,
        hint: u64,
        bytes_max: usize,
        out: &mut Vec<StoredBatch>,
    ) -> Option<u64> {
        let start = self.find(partition, seq, hint)?;
        let (mut seq, mut bytes) = (seq, 0);
        for commit in self.commits.range(start..) {
            let run = commit.of(partition);
            let run = &run[run.partition_point(|(_, batch)| batch.next_seq() <= seq)..];
            if run.is_empty() {
                continue;
            }
            let whole = Bytes::from_owner(SharedBuf(commit.buf.clone()));
            for (pos, batch) in run {
                // What is damaged, or was lost before numbers went on higher, is not here, and is not to be passed over.
                if bytes >= bytes_max || batch.base_seq > seq {
                    return Some(commit.number);
                }
                let at = (pos - commit.base) as usize;
                let body = whole.slice(at + batch.head_len()..at + batch.len as usize);
                bytes += body.len();
                out.push(StoredBatch::new(*batch, body).starting_at(seq));
                seq = batch.next_seq();
            }
        }
        self.commits.back().map(|last| last.number)
    }

    /// The events that are here, of all partitions.
    pub(crate) fn held(&self) -> Vec<(u32, Range<u64>)> {
        let batches = self.commits.iter().flat_map(|commit| &commit.batches);
        batches.map(|(_, batch)| (batch.partition, batch.base_seq..batch.next_seq())).collect()
    }

    /// Which commit has event `seq` of `partition`.
    fn find(&self, partition: u32, seq: u64, hint: u64) -> Option<usize> {
        let holds = |commit: &Commit| {
            let run = commit.of(partition);
            let at = run.partition_point(|(_, batch)| batch.next_seq() <= seq);
            run.get(at).is_some_and(|(_, batch)| batch.base_seq <= seq)
        };
        let hinted = self.commits.partition_point(|commit| commit.number < hint);
        if hint > 0 && self.commits.front().is_some_and(|first| first.number <= hint) {
            // All of the partition's events up to the hint were read, so the first later commit with any has `seq`.
            let later = self.commits.range(hinted..).position(|c| !c.of(partition).is_empty() && holds(c));
            if let Some(later) = later {
                return Some(hinted + later);
            }
        }
        for (at, commit) in self.commits.iter().enumerate().rev() {
            if holds(commit) {
                return Some(at);
            }
            if commit.of(partition).first().is_some_and(|(_, batch)| batch.base_seq < seq) {
                return None;
            }
        }
        None
    }
}

impl Drop for TailCache {
    fn drop(&mut self) {
        PROCESS_BYTES.fetch_sub(self.bytes, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn commit(number: u64, segment: u64, end: u64) -> Commit {
        let buf = AlignedBuf::with_capacity(4096);
        Commit { number, segment, base: end - 1, end, buf: Arc::new(buf), batches: Vec::new() }
    }

    #[test]
    fn a_cache_that_is_idle_keeps_only_what_the_disk_cannot_serve() {
        let mut tail = TailCache::default();
        for number in 1..=5 {
            tail.push(commit(number, 1, number * 100), usize::MAX, 1, 0);
        }
        tail.shrink_if_idle(1, 450);
        assert_eq!(tail.commits.len(), 5, "it was written just now");
        tail.pushed = Instant::now().checked_sub(IDLE_AFTER);
        tail.shrink_if_idle(1, 450);
        assert_eq!(tail.commits.iter().map(|commit| commit.number).collect::<Vec<_>>(), [5]);
        assert_eq!(tail.bytes, 4096);
    }

    #[test]
    fn many_hubs_share_what_the_process_may_hold() {
        let mut tail = TailCache::default();
        let others = PROCESS_BYTES_MAX;
        PROCESS_BYTES.fetch_add(others, Ordering::Relaxed);
        for number in 1..=300 {
            tail.push(commit(number, 1, number), usize::MAX, 2, 0);
        }
        PROCESS_BYTES.fetch_sub(others, Ordering::Relaxed);
        assert_eq!(tail.bytes, CROWDED_BYTES_MAX);
        let before = PROCESS_BYTES.load(Ordering::Relaxed);
        drop(tail);
        assert!(PROCESS_BYTES.load(Ordering::Relaxed) <= before - CROWDED_BYTES_MAX);
    }
}
