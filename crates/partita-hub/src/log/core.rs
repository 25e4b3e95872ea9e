//! What the committer, the housekeeper and readers of one hub share. The committer alone writes it, except that
//! retention takes segments from the front.

use std::collections::{HashMap, VecDeque};
use std::io;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};
use std::task::Waker;

use super::book::Book;
use super::disk::{Disk, DiskFile, WriteMode, read_full, read_whole};
use super::error::ReadError;
use super::format::{Acknowledged, IndexEntry, SealedIndex, StoreId, Table};
use super::index::IndexCache;
use super::producers::Producers;
use super::recovery::Damage;
use super::retention::Retention;
use super::segment::{Segment, index_path};
use super::settings::{Durability, Settings};
use super::spares::Spares;
use super::tail::TailCache;
use super::witness::RecordFile;

/// Shared state of a hub's log.
#[derive(Debug)]
pub(crate) struct Core {
    pub(crate) disk: Arc<dyn Disk>,
    pub(crate) dir: PathBuf,
    pub(crate) store: StoreId,
    pub(crate) hub: u64,
    pub(crate) settings: Settings,
    /// Idempotent producers; the committer alone adds what they sent.
    pub(crate) producers: Mutex<Producers>,
    /// What is kept how long, now.
    pub(crate) retention: Mutex<Retention>,
    /// How many partitions there are now; the settings say how many there were when the hub was opened.
    pub(crate) partitions: AtomicU32,
    pub(crate) mode: WriteMode,
    pub(crate) spares: Spares,
    /// Oldest first; the last one is being written.
    pub(crate) segments: RwLock<VecDeque<Arc<Segment>>>,
    /// Where each partition ends for readers.
    pub(crate) ends: RwLock<Table>,
    pub(crate) tail: RwLock<TailCache>,
    pub(crate) indexes: Mutex<IndexCache>,
    /// Readers to wake when their partition grows.
    pub(crate) waiting: Mutex<HashMap<u32, Vec<Waker>>>,
    /// No more events will come.
    pub(crate) closed: AtomicBool,
    /// Damaged bytes that opening, or looking through segments, found.
    pub(crate) damage: Mutex<Vec<Damage>>,
    /// Where each partition ended when the log was last made durable; only a log that does not sync each commit has it.
    pub(crate) synced: Mutex<Table>,
    /// The number of the next group and the boot, as the record tells them.
    pub(crate) next_commit: AtomicU64,
    pub(crate) boot: AtomicU32,
    /// The record of what was acknowledged.
    pub(crate) record: Mutex<RecordFile>,
    /// What became of the files, if they are no longer where the hub writes.
    pub(crate) displaced: OnceLock<String>,
    /// The events that are lost with them.
    pub(crate) book: Book,
    /// Sealed segments whose index is not in a file yet.
    pub(crate) to_index: Mutex<VecDeque<Arc<Segment>>>,
}

/// Locks without caring for a thread that panicked: every critical section leaves the data consistent.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

pub(crate) fn read<T>(lock: &RwLock<T>) -> RwLockReadGuard<'_, T> {
    lock.read().unwrap_or_else(PoisonError::into_inner)
}

pub(crate) fn write<T>(lock: &RwLock<T>) -> RwLockWriteGuard<'_, T> {
    lock.write().unwrap_or_else(PoisonError::into_inner)
}

impl Core {
    /// How many partitions there are.
    pub(crate) fn partitions(&self) -> u32 {
        self.partitions.load(Ordering::Acquire)
    }

    /// Writes down what is durable by now, if that is more than before. `closed`: nothing will follow.
    pub(crate) fn write_record(&self, closed: bool) -> io::Result<()> {
        // Numbers that were skipped because the newest segment is damaged are durable once the next one is begun.
        if read(&self.segments).back().is_some_and(|newest| newest.is_sealed()) {
            return Ok(());
        }
        // Each of these is a lower limit of what is durable, whatever is committed meanwhile.
        let next_commit = self.next_commit.load(Ordering::Acquire);
        let segment = read(&self.segments).back().map_or(0, |segment| segment.id);
        let table = match self.settings.durability {
            Durability::Always => read(&self.ends).clone(),
            Durability::Interval(_) | Durability::Never => lock(&self.synced).clone(),
        };
        // A log that was closed without being synced may hold more than is told here.
        let closed = closed && table == *read(&self.ends);
        let boot = self.boot.load(Ordering::Acquire);
        let (store, hub) = (self.store, self.hub);
        let record = Acknowledged { store, hub, number: 0, segment, next_commit, boot, closed, table };
        lock(&self.record).write(&*self.disk, record)
    }

    /// The segment that holds event `seq` of a partition; none if it is gone.
    pub(crate) fn locate(&self, partition: u32, seq: u64) -> Option<Arc<Segment>> {
        let segments = read(&self.segments);
        let after = segments.partition_point(|segment| segment.first_seq(partition) <= seq);
        after.checked_sub(1).and_then(|at| segments.get(at)).cloned()
    }

    /// The oldest event that is kept of a partition.
    pub(crate) fn oldest_seq(&self, partition: u32) -> u64 {
        read(&self.segments).front().map_or(0, |first| first.first_seq(partition))
    }

    /// The number of a partition's next event.
    pub(crate) fn end_of(&self, partition: u32) -> u64 {
        read(&self.ends).get(partition as usize).map_or(0, |end| end.next_seq)
    }

    /// How far a segment can be read from disk. A direct write replaces the last block, and the page cache may keep
    /// its former content for a moment, so that block is left to the tail cache.
    pub(crate) fn readable(&self, segment: &Segment) -> u64 {
        let sealed = segment.is_sealed();
        let end = segment.end();
        match self.mode {
            WriteMode::Direct if !sealed => end - end % super::format::BLOCK as u64,
            _ => end,
        }
    }

    /// Lets go of memory if nothing was written for a while.
    pub(crate) fn shrink_tail(&self) {
        // Under its lock no commit of a later segment comes into the cache, so the last one is the one that is written.
        let mut tail = write(&self.tail);
        if let Some(segment) = read(&self.segments).back() {
            tail.shrink_if_idle(segment.id, self.readable(segment));
        }
    }

    /// Looks at the index entries of a partition in a segment.
    pub(crate) fn with_entries<R>(
        &self,
        segment: &Arc<Segment>,
        partition: u32,
        look: impl FnOnce(&[IndexEntry]) -> R,
    ) -> io::Result<R> {
        if let Some(live) = &*read(&segment.live) {
            return Ok(look(live.of(partition)));
        }
        let cached = lock(&self.indexes).get(segment.id);
        let index = match cached {
            Some(index) => index,
            None => {
                let index = Arc::new(self.load_index(segment)?);
                lock(&self.indexes).insert(segment.id, index.clone());
                index
            }
        };
        Ok(look(index.of(partition)))
    }

    fn load_index(&self, segment: &Arc<Segment>) -> io::Result<SealedIndex> {
        let stored = read_whole(&*self.disk, &index_path(&self.dir, segment.id));
        let stored = stored.ok().and_then(|b| SealedIndex::decode(&b, self.store, segment.id, segment.end()));
        if let Some(index) = stored {
            return Ok(index);
        }
        Ok(self.look_through(segment)?.index.seal())
    }

    /// Why a segment could not be read. Where its files are gone, the system's words say too little.
    pub(crate) fn read_error(&self, segment: u64, source: io::Error) -> ReadError {
        let source = match self.displaced.get() {
            Some(reason) => io::Error::new(
                source.kind(),
                format!("{reason} while the hub runs: put the data directory back and restart the hub"),
            ),
            None => source,
        };
        ReadError::Io { segment, source }
    }

    /// Whether the log was closed.
    pub(crate) fn is_closed(&self) -> bool {
        self.closed.load(Ordering::Acquire)
    }
}

/// The first `len` bytes of a file, or what there is of them.
pub(crate) fn read_range(file: &dyn DiskFile, len: u64) -> io::Result<Vec<u8>> {
    let mut bytes = vec![0; len as usize];
    file.will_need(0, len);
    let read = read_full(file, &mut bytes, 0)?;
    bytes.truncate(read);
    Ok(bytes)
}
