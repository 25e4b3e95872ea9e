//! Reading one partition in order. Everything that comes from disk is checked before it is handed out.

use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use bytes::Bytes;

use super::core::{Core, lock, read};
use super::disk::{DiskFile, read_full};
use super::error::ReadError;
use super::format::{
    BATCH_HEADER, BatchHeader, GROUP_HEADER, GROUP_MAGIC, IndexEntry, StoredBatch, parse_batch, u32_at,
};
use super::park::park_until;
use super::segment::Segment;

/// The most one disk read takes.
const READ_BYTES_MAX: u64 = 1 << 20;
/// Batches of other partitions that are read over rather than starting another read.
const GAP_BYTES_MAX: u64 = 16 << 10;
/// Index entries whose bytes are asked for before they are needed.
const AHEAD_ENTRIES: usize = 64;

/// Reads one partition. It keeps no lock and no record in the hub; dropping it is all it takes to leave.
#[derive(Debug)]
pub struct LogReader {
    core: Arc<Core>,
    partition: u32,
    next_seq: u64,
    /// The commit in the tail cache to go on with.
    hint: u64,
    open: Option<OpenSegment>,
    /// What the hub was asked to wake, to take it back when the reader goes.
    waker: Option<Waker>,
}

#[derive(Debug)]
struct OpenSegment {
    segment: Arc<Segment>,
    file: Arc<dyn DiskFile>,
    /// Up to where reading ahead was asked for.
    advised: u64,
}

/// What one read from a segment led to.
enum FromDisk {
    Read,
    /// The wanted batch is not where the index says: it is in the tail cache, or damaged.
    Missing(Arc<Segment>),
}

/// How often a batch is looked for in memory and on disk before the segment itself is asked: it may move from the one to the
/// other between two looks.
const LOOKS: usize = 2;

impl LogReader {
    pub(crate) fn new(core: Arc<Core>, partition: u32, next_seq: u64) -> Self {
        Self { core, partition, next_seq, hint: 0, open: None, waker: None }
    }

    /// The partition.
    pub fn partition(&self) -> u32 {
        self.partition
    }

    /// The sequence number of the event that is read next.
    pub fn next_seq(&self) -> u64 {
        self.next_seq
    }

    /// Goes on at this sequence number: after an error, past what cannot be read.
    pub fn seek(&mut self, seq: u64) {
        self.next_seq = seq;
        self.hint = 0;
    }

    /// Appends the next batches to `out`, in order and without gaps, about `bytes_max` bytes or one batch if that is
    /// larger; none if the reader is at the end. May read the disk, so it does not belong on a runtime's worker.
    ///
    /// What is damaged is not passed over: [`ReadError::Corrupt`] names all of it, also if the reader starts within.
    pub fn read(&mut self, bytes_max: usize, out: &mut Vec<StoredBatch>) -> Result<(), ReadError> {
        let (bytes_max, mut look) = (bytes_max.max(1), 0);
        loop {
            look += 1;
            let end = self.core.end_of(self.partition);
            if self.next_seq >= end {
                return match self.next_seq == end {
                    true if self.core.is_closed() => Err(ReadError::Closed),
                    true => Ok(()),
                    false => {
                        Err(ReadError::Ahead { partition: self.partition, asked: self.next_seq, next: end })
                    }
                };
            }
            let had = out.len();
            let hit = read(&self.core.tail).read(self.partition, self.next_seq, self.hint, bytes_max, out);
            if let Some(hint) = hit {
                self.hint = hint;
                self.advance_past(&out[had..]);
                // Live readers need no file.
                self.open = None;
                return Ok(());
            }
            match self.read_disk(bytes_max, out)? {
                FromDisk::Read => {
                    self.advance_past(&out[had..]);
                    return Ok(());
                }
                FromDisk::Missing(_) if look < LOOKS => {}
                FromDisk::Missing(segment) => self.explain(&segment, look > LOOKS)?,
            }
        }
    }

    /// Why the next event was not found: the error that says so. Without one it is there, and worth another look; but not a
    /// second time.
    fn explain(&self, segment: &Arc<Segment>, again: bool) -> Result<(), ReadError> {
        let (partition, seq) = (self.partition, self.next_seq);
        let lost = self.core.lost_at(segment, partition, seq)?;
        if segment.is_retired() {
            return Err(ReadError::Gone { partition, from: seq, first: self.core.first_seq(partition) });
        }
        match lost {
            Some(lost) if lost.accepted => Err(ReadError::Lost { partition, from: seq, next: lost.next }),
            Some(lost) => Err(ReadError::Corrupt {
                hub: self.core.label(),
                partition,
                segment: segment.id,
                from: lost.first,
                resume: lost.next,
                certain: lost.certain,
            }),
            None if again => {
                let source = std::io::Error::other("it reads differently each time");
                Err(ReadError::Io { segment: segment.id, source })
            }
            None => Ok(()),
        }
    }

    /// As [`LogReader::read`], from memory alone, so never slow: false if the disk has to be read.
    pub fn read_cached(&mut self, bytes_max: usize, out: &mut Vec<StoredBatch>) -> bool {
        let had = out.len();
        let hit = read(&self.core.tail).read(self.partition, self.next_seq, self.hint, bytes_max.max(1), out);
        let Some(hint) = hit else { return false };
        self.hint = hint;
        self.advance_past(&out[had..]);
        self.open = None;
        true
    }

    /// Ready when the next [`LogReader::read`] has something to say; until then the waker is kept.
    pub fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        if self.is_ready() {
            return Poll::Ready(());
        }
        {
            let mut waiting = lock(&self.core.waiting);
            let wakers = waiting.entry(self.partition).or_default();
            if !wakers.iter().any(|waker| waker.will_wake(cx.waker())) {
                wakers.push(cx.waker().clone());
            }
        }
        self.waker = Some(cx.waker().clone());
        // The committer publishes the end before it looks for wakers, so one of the two sees the other.
        if self.is_ready() { Poll::Ready(()) } else { Poll::Pending }
    }

    fn is_ready(&self) -> bool {
        self.core.end_of(self.partition) != self.next_seq || self.core.is_closed()
    }

    /// Blocks the thread until there is something to read; false if there is not within `time_max`.
    pub fn wait(&mut self, time_max: Duration) -> bool {
        park_until(time_max, |cx| self.poll_ready(cx))
    }

    fn advance_past(&mut self, batches: &[StoredBatch]) {
        if let Some(last) = batches.last() {
            self.next_seq = last.next_seq();
        }
    }

    fn read_disk(&mut self, bytes_max: usize, out: &mut Vec<StoredBatch>) -> Result<FromDisk, ReadError> {
        let (partition, seq) = (self.partition, self.next_seq);
        let Some(segment) = self.core.locate(partition, seq) else {
            return Err(match self.core.given_up_at(partition, seq) {
                Some(lost) => ReadError::Lost { partition, from: seq, next: lost.next },
                None => ReadError::Gone { partition, from: seq, first: self.core.first_seq(partition) },
            });
        };
        let result = self.read_segment(&segment, bytes_max, out);
        match result {
            // Retention took the segment meanwhile, and its file may hold another one by now.
            Err(_) if segment.is_retired() => {
                Err(ReadError::Gone { partition, from: seq, first: self.core.first_seq(partition) })
            }
            other => other,
        }
    }

    fn read_segment(
        &mut self,
        segment: &Arc<Segment>,
        bytes_max: usize,
        out: &mut Vec<StoredBatch>,
    ) -> Result<FromDisk, ReadError> {
        let (partition, seq) = (self.partition, self.next_seq);
        let core = self.core.clone();
        let io = |source| core.read_error(segment.id, source);
        let entries = self.core.with_entries(segment, partition, |entries| {
            let from = entries.partition_point(|entry| entry.seq <= seq).saturating_sub(1);
            let to = entries.len().min(from + 2 * AHEAD_ENTRIES);
            entries[from..to].to_vec()
        });
        let entries = entries.map_err(io)?;
        // Asked after the index, so that what the index shows is readable or in the tail cache.
        let readable = self.core.readable(segment);
        let file = self.file(segment, &entries).map_err(io)?;
        let before = out.len();
        let (mut at, mut next_seq, mut bytes) = (0, seq, 0);
        while at < entries.len() && bytes < bytes_max {
            let (run, used) = run(&entries[at..], readable, (bytes_max - bytes) as u64);
            if run.is_empty() {
                break;
            }
            let mut buf = vec![0; (run.end - run.start) as usize];
            let got = read_full(&*file, &mut buf, run.start).map_err(io)?;
            buf.truncate(got);
            let walk = Walk { bytes: buf.into(), segment, partition };
            if walk.collect(&mut next_seq, &mut bytes, bytes_max, out).is_err() {
                break;
            }
            at += used;
        }
        if segment.is_retired() {
            out.truncate(before);
            return Err(ReadError::Gone { partition, from: seq, first: self.core.first_seq(partition) });
        }
        if next_seq > seq {
            return Ok(FromDisk::Read);
        }
        Ok(FromDisk::Missing(segment.clone()))
    }

    /// The open file of `segment`; asks for what comes next to be read ahead.
    fn file(&mut self, segment: &Arc<Segment>, entries: &[IndexEntry]) -> std::io::Result<Arc<dyn DiskFile>> {
        if self.open.as_ref().is_none_or(|open| open.segment.id != segment.id) {
            let file = segment.open(&*self.core.disk)?;
            self.open = Some(OpenSegment { segment: segment.clone(), file, advised: 0 });
        }
        let Some(open) = &mut self.open else { unreachable!("just set") };
        let half = entries.get(AHEAD_ENTRIES / 2).map_or(u64::MAX, |entry| entry.pos.into());
        if segment.is_sealed() && open.advised < half {
            let mut rest = entries;
            while let Some(first) = rest.first() {
                let (run, used) = run(rest, segment.end(), READ_BYTES_MAX);
                if u64::from(first.end) > open.advised {
                    open.file.will_need(run.start, run.end - run.start);
                    open.advised = run.end;
                }
                rest = &rest[used..];
            }
        }
        Ok(open.file.clone())
    }
}

impl Drop for LogReader {
    fn drop(&mut self) {
        // A partition that stays idle would otherwise collect the wakers of all that ever waited for it.
        if let Some(mine) = self.waker.take() {
            let mut waiting = lock(&self.core.waiting);
            if let Some(wakers) = waiting.get_mut(&self.partition) {
                wakers.retain(|waker| !waker.will_wake(&mine));
                if wakers.is_empty() {
                    waiting.remove(&self.partition);
                }
            }
        }
    }
}

/// The bytes of the first entries that are read together, and how many entries those are.
fn run(entries: &[IndexEntry], readable: u64, bytes_max: u64) -> (std::ops::Range<u64>, usize) {
    let Some(first) = entries.first() else { return (0..0, 0) };
    let start = u64::from(first.pos);
    let (mut end, mut used) = (u64::from(first.end), 1);
    for entry in &entries[1..] {
        let (pos, stop) = (u64::from(entry.pos), u64::from(entry.end));
        if pos > end + GAP_BYTES_MAX || stop - start > READ_BYTES_MAX.min(bytes_max) {
            break;
        }
        (end, used) = (stop, used + 1);
    }
    (start..end.min(readable).max(start), used)
}

/// The bytes of some batches, at least the first of which is of the partition.
struct Walk<'a> {
    bytes: Bytes,
    segment: &'a Segment,
    partition: u32,
}

/// A batch is not what was written.
struct Damaged;

impl Walk<'_> {
    /// Appends the partition's batches from `next_seq` on, up to the last one that is complete or reaches `bytes_max`.
    fn collect(
        &self,
        next_seq: &mut u64,
        bytes: &mut usize,
        bytes_max: usize,
        out: &mut Vec<StoredBatch>,
    ) -> Result<(), Damaged> {
        let mut at = 0;
        while at + BATCH_HEADER <= self.bytes.len() && *bytes < bytes_max {
            if u32_at(&self.bytes, at) == GROUP_MAGIC {
                at += GROUP_HEADER;
                continue;
            }
            let Some(header) = BatchHeader::decode(&self.bytes[at..], self.segment.seed) else {
                // The way to the next batch is lost, but the partition's next one can still be recognised.
                at = self.find(at + 1, *next_seq).ok_or(Damaged)?;
                continue;
            };
            let end = at + header.len as usize;
            if end > self.bytes.len() {
                return Ok(());
            }
            if header.partition == self.partition && header.next_seq() > *next_seq {
                if header.base_seq > *next_seq {
                    return Err(Damaged);
                }
                let batch = parse_batch(&self.bytes.slice(at..end), self.segment.seed);
                let batch = batch.ok_or(Damaged)?;
                let batch = batch.starting_at(*next_seq);
                *bytes += batch.event_bytes();
                out.push(batch);
                *next_seq = header.next_seq();
            }
            at = end;
        }
        Ok(())
    }

    /// The partition's next batch that reaches event `seq`: a reader may start in the middle of one.
    fn find(&self, from: usize, seq: u64) -> Option<usize> {
        let last = self.bytes.len().checked_sub(BATCH_HEADER)?;
        (from..=last).find(|at| {
            u32_at(&self.bytes, at + 12) == self.partition
                && BatchHeader::decode(&self.bytes[*at..], self.segment.seed)
                    .is_some_and(|header| header.next_seq() > seq)
        })
    }
}
