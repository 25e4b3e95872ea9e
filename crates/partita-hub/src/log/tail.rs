//! The tail cache: buffers of the last commits, shared read-only. Direct writes leave nothing in the page cache, so
//! readers that keep up are served from here.

use std::collections::VecDeque;
use std::sync::Arc;

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

/// The last commits, oldest first.
#[derive(Debug, Default)]
pub(crate) struct TailCache {
    commits: VecDeque<Commit>,
    bytes: usize,
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
        self.bytes += commit.buf.capacity();
        self.commits.push_back(commit);
        let mut freed = Vec::new();
        while self.bytes > bytes_max {
            let oldest = self.commits.front();
            let Some(commit) = oldest.filter(|c| c.segment != segment || c.end <= keep) else { break };
            self.bytes -= commit.buf.capacity();
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
                if bytes >= bytes_max {
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

    /// The first batch of a partition that starts after event `seq`.
    pub(crate) fn first_after(&self, partition: u32, seq: u64) -> Option<u64> {
        let starts =
            self.commits.iter().flat_map(|commit| commit.of(partition)).map(|(_, batch)| batch.base_seq);
        starts.filter(|start| *start > seq).min()
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
