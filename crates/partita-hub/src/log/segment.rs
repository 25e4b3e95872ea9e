//! A segment in memory: what is known of its file, and its index.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError, RwLock, Weak};

use super::disk::{Access, Disk, DiskFile};
use super::format::{Seed, Table};
use super::index::LiveIndex;

/// A segment file.
#[derive(Debug)]
pub(crate) struct Segment {
    pub(crate) id: u64,
    pub(crate) path: PathBuf,
    pub(crate) capacity: u64,
    /// Where groups start.
    pub(crate) start: u64,
    pub(crate) first_commit: u64,
    pub(crate) boot: u32,
    pub(crate) seed: Seed,
    /// The partitions at the start of the segment. If its header is damaged and nothing else tells: where their first
    /// batches are.
    pub(crate) table: Table,
    /// Whether the header cannot be read.
    pub(crate) damaged: bool,
    end: AtomicU64,
    last_time: AtomicI64,
    sealed: AtomicBool,
    retired: AtomicBool,
    /// The index while the segment is written, and after that until it was written to its file.
    pub(crate) live: RwLock<Option<LiveIndex>>,
    /// The file as long as anyone reads it.
    file: Mutex<Option<Weak<dyn DiskFile>>>,
}

/// What is known of a segment when it is made or found.
#[derive(Debug)]
pub(crate) struct SegmentParts {
    pub(crate) id: u64,
    pub(crate) path: PathBuf,
    pub(crate) capacity: u64,
    pub(crate) start: u64,
    pub(crate) first_commit: u64,
    pub(crate) boot: u32,
    pub(crate) seed: Seed,
    pub(crate) table: Table,
    pub(crate) damaged: bool,
    pub(crate) end: u64,
    pub(crate) last_time: i64,
    pub(crate) sealed: bool,
    pub(crate) live: Option<LiveIndex>,
}

impl Segment {
    pub(crate) fn new(parts: SegmentParts) -> Self {
        Self {
            id: parts.id,
            path: parts.path,
            capacity: parts.capacity,
            start: parts.start,
            first_commit: parts.first_commit,
            boot: parts.boot,
            seed: parts.seed,
            table: parts.table,
            damaged: parts.damaged,
            end: AtomicU64::new(parts.end),
            last_time: AtomicI64::new(parts.last_time),
            sealed: AtomicBool::new(parts.sealed),
            retired: AtomicBool::new(false),
            live: RwLock::new(parts.live),
            file: Mutex::new(None),
        }
    }

    /// Where durable groups end.
    pub(crate) fn end(&self) -> u64 {
        self.end.load(Ordering::Acquire)
    }

    /// When its last event was enqueued.
    pub(crate) fn last_time(&self) -> i64 {
        self.last_time.load(Ordering::Acquire)
    }

    /// Makes what lies before `end` visible to readers.
    pub(crate) fn advance(&self, end: u64, time_ms: i64) {
        self.last_time.store(time_ms, Ordering::Release);
        self.end.store(end, Ordering::Release);
    }

    pub(crate) fn is_sealed(&self) -> bool {
        self.sealed.load(Ordering::Acquire)
    }

    pub(crate) fn seal(&self) {
        self.sealed.store(true, Ordering::Release);
    }

    /// Whether retention took it: its file may hold another segment's bytes by now.
    pub(crate) fn is_retired(&self) -> bool {
        self.retired.load(Ordering::Acquire)
    }

    /// Takes the file away by `take`. Whoever opens the segment meanwhile waits, and finds it retired unless that failed.
    pub(crate) fn retire(&self, take: impl FnOnce() -> io::Result<()>) -> io::Result<()> {
        let _opening = self.file.lock().unwrap_or_else(PoisonError::into_inner);
        take()?;
        self.retired.store(true, Ordering::Release);
        Ok(())
    }

    /// Where a partition stands at the start of the segment; partitions added later start at 0.
    pub(crate) fn first_seq(&self, partition: u32) -> u64 {
        self.table.get(partition as usize).map_or(0, |entry| entry.next_seq)
    }

    /// The file, to read; shared by its readers and closed when the last one leaves.
    pub(crate) fn open(&self, disk: &dyn Disk) -> io::Result<Arc<dyn DiskFile>> {
        let mut slot = self.file.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(file) = slot.as_ref().and_then(Weak::upgrade) {
            return Ok(file);
        }
        let file = disk.open(&self.path, Access::Read)?;
        // Read-ahead beyond the end of the active segment would fill the page cache with what direct writes must
        // throw out again. Sealed segments are read ahead by explicit advice.
        file.random_access();
        *slot = Some(Arc::downgrade(&file));
        Ok(file)
    }
}

/// No log gets this far: these many segments are 64 PiB at least. A higher number is no segment of ours, and counting on
/// from it would lead nowhere.
pub(crate) const SEGMENT_ID_MAX: u64 = 1 << 36;

/// The name of a segment's file.
pub(crate) fn segment_path(dir: &Path, id: u64) -> PathBuf {
    dir.join(format!("{id:016x}.seg"))
}

/// The name of a sealed segment's index file.
pub(crate) fn index_path(dir: &Path, id: u64) -> PathBuf {
    dir.join(format!("{id:016x}.idx"))
}

/// The id in the name of a segment's file.
pub(crate) fn segment_id(name: &str) -> Option<u64> {
    number(name.strip_suffix(".seg")?)
}

/// The id in the name of an index file.
pub(crate) fn index_id(name: &str) -> Option<u64> {
    number(name.strip_suffix(".idx")?)
}

/// Reads 16 hex digits.
pub(crate) fn number(hex: &str) -> Option<u64> {
    (hex.len() == 16).then(|| u64::from_str_radix(hex, 16).ok()).flatten()
}
