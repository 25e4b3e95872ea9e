//! The writing end of a hub's log: places batches, writes one group per commit and makes it visible. It does no
//! waiting and starts no thread, so that tests can cut the power at each of its calls.

use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use super::aligned::AlignedBuf;
use super::core::{Core, lock, write};
use super::disk::{Access, DiskFile, WriteMode, is_full, is_out_of_files, write_exact};
use super::error::AppendError;
use super::format::{
    BLOCK, BatchHeader, EncodedBatch, FLAG_MARK, FLAG_RELAXED, GROUP_HEADER, GroupHeader, NewSegment,
    PRODUCER_BLOCK, ProducerStamp, Seed, SegmentHeader, Table,
};
use super::index::LiveIndex;
use super::producers::Verdict;
use super::segment::{Segment, SegmentParts, segment_path};
use super::settings::Durability;
use super::tail::Commit;

/// Buffers kept for the next commits; fresh memory costs a page fault every 4 KiB.
const FREE_BUFFERS_MAX: usize = 8;
/// Larger ones are not kept while nothing is written.
const IDLE_BUFFER_BYTES_MAX: usize = 64 << 10;

/// Where a batch was put.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Placed {
    /// The partition.
    pub partition: u32,
    /// The sequence number of the first event.
    pub first_seq: u64,
    /// The offset of the first event.
    pub first_offset: u64,
    /// How many events.
    pub count: u32,
    /// When they were enqueued, in milliseconds since 1970.
    pub time_ms: i64,
}

impl Placed {
    pub(crate) fn of(header: &BatchHeader) -> Self {
        Self {
            partition: header.partition,
            first_seq: header.base_seq,
            first_offset: header.base_offset,
            count: header.count,
            time_ms: header.time_ms,
        }
    }
}

/// A batch that is to be appended.
#[derive(Clone, Debug)]
pub(crate) struct Append {
    pub(crate) partition: u32,
    pub(crate) batch: EncodedBatch,
    pub(crate) producer: Option<ProducerStamp>,
}

impl Append {
    /// How many bytes it takes on disk.
    pub(crate) fn disk_bytes(&self) -> usize {
        self.batch.disk_bytes() + if self.producer.is_some() { PRODUCER_BLOCK } else { 0 }
    }
}

/// Why a segment could not be opened.
enum RollError {
    NoSpare(String),
    Io(io::Error),
}

/// The state that only the committer touches.
#[derive(Debug)]
pub(crate) struct Writer {
    core: Arc<Core>,
    segment: Arc<Segment>,
    file: Arc<dyn DiskFile>,
    /// Where the next group starts.
    end: u64,
    /// What the last block holds before `end`: the next group's write starts with it.
    partial: Vec<u8>,
    table: Table,
    next_segment: u64,
    next_commit: u64,
    boot: u32,
    last_time: i64,
    /// A write to the segment failed. It ends where it was durable; nothing is written to it again.
    abandoned: bool,
    failed: Option<String>,
    /// Whether groups follow the last mark, and whether anything was written since the last sync.
    unmarked: bool,
    unsynced: bool,
    synced_at: Instant,
    free: Vec<AlignedBuf>,
}

/// Where writing goes on after recovery.
#[derive(Debug)]
pub(crate) struct Resume {
    pub(crate) segment: Arc<Segment>,
    pub(crate) file: Arc<dyn DiskFile>,
    pub(crate) partial: Vec<u8>,
    pub(crate) table: Table,
    pub(crate) next_commit: u64,
    pub(crate) boot: u32,
    pub(crate) last_time: i64,
    /// The next segment's id.
    pub(crate) next_segment: u64,
    /// Whether a new segment is to be begun: the last one's header is damaged, or numbers go on elsewhere.
    pub(crate) abandoned: bool,
}

impl Writer {
    pub(crate) fn new(core: Arc<Core>, resume: Resume) -> Self {
        core.next_commit.store(resume.next_commit, Ordering::Release);
        core.boot.store(resume.boot, Ordering::Release);
        Self {
            end: resume.segment.end(),
            segment: resume.segment,
            file: resume.file,
            partial: resume.partial,
            table: resume.table,
            next_segment: resume.next_segment,
            next_commit: resume.next_commit,
            boot: resume.boot,
            last_time: resume.last_time,
            abandoned: resume.abandoned,
            failed: None,
            unmarked: true,
            unsynced: false,
            synced_at: Instant::now(),
            free: Vec::new(),
            core,
        }
    }

    /// How many bytes of batches the next commit may take, if its first batch has `first` bytes.
    pub(crate) fn room(&self, first: usize) -> usize {
        let max = self.core.settings.group_bytes_max.max(first);
        let here = self.room_here();
        if !self.abandoned && first <= here {
            max.min(here)
        } else {
            max.min(self.core.settings.smallest_room(self.core.partitions()))
        }
    }

    /// Room for batches in the current segment. Space for a mark is set aside.
    fn room_here(&self) -> usize {
        self.left().saturating_sub(2 * GROUP_HEADER as u64) as usize
    }

    /// What is left of the current segment: nothing if its file is shorter than its header.
    fn left(&self) -> u64 {
        self.segment.capacity.saturating_sub(self.end)
    }

    /// Why the hub takes no more events.
    pub(crate) fn failure(&self) -> Option<&str> {
        self.failed.as_deref()
    }

    /// Writes batches as one group and makes them visible to readers; what became of each. Those that were placed are
    /// as durable as the settings say. What idempotent producers repeat is not written again. `batches` must be sorted
    /// by partition.
    pub(crate) fn commit(&mut self, mut batches: Vec<Append>) -> Vec<Result<Placed, AppendError>> {
        debug_assert!(batches.is_sorted_by_key(|append| append.partition));
        if batches.iter().all(|append| append.producer.is_none()) {
            let count = batches.len();
            return match self.write_batches(&batches) {
                Ok(placed) => placed.into_iter().map(Ok).collect(),
                Err(error) => vec![Err(error); count],
            };
        }
        let judged = batches.iter().map(|a| (a.partition, a.batch.count(), a.producer.as_ref()));
        let verdicts = lock(&self.core.producers).judge(judged);
        let mut is_new = verdicts.iter().map(|verdict| *verdict == Verdict::Append);
        batches.retain(|_| is_new.next() == Some(true));
        let written = match batches.is_empty() {
            true => Ok(Vec::new()),
            false => self.write_batches(&batches),
        };
        if let Ok(placed) = &written {
            let mut producers = lock(&self.core.producers);
            for (append, placed) in batches.iter().zip(placed) {
                if let Some(stamp) = append.producer {
                    producers.appended(stamp, placed);
                }
            }
        }
        let mut written = written.map(Vec::into_iter);
        let mut outcomes: Vec<Result<Placed, AppendError>> = Vec::with_capacity(verdicts.len());
        for verdict in verdicts {
            outcomes.push(match verdict {
                Verdict::Append => match &mut written {
                    Ok(placed) => placed.next().ok_or(AppendError::Closed),
                    Err(error) => Err(error.clone()),
                },
                Verdict::Repeats(placed) => Ok(placed),
                Verdict::RepeatsAhead(index) => outcomes[index].clone(),
                Verdict::Refused(error) => Err(error),
            });
        }
        outcomes
    }

    fn write_batches(&mut self, batches: &[Append]) -> Result<Vec<Placed>, AppendError> {
        let bytes: usize = batches.iter().map(Append::disk_bytes).sum();
        let flags = if self.core.settings.durability == Durability::Always { 0 } else { FLAG_RELAXED };
        self.write_group(batches, bytes, flags)
    }

    /// Writes a mark if groups came since the last one. Damage before a mark is told from a torn tail.
    pub(crate) fn mark(&mut self) {
        let room = self.left() >= GROUP_HEADER as u64;
        if !self.unmarked || self.abandoned || self.failed.is_some() || !room {
            return;
        }
        // What a mark follows must be durable before it, in every mode.
        if self.sync().is_ok() && self.write_group(&[], 0, FLAG_MARK).is_ok() {
            self.unmarked = false;
        }
        // The log is idle: large buffers can be had again.
        self.free.retain(|buf| buf.capacity() <= IDLE_BUFFER_BYTES_MAX);
    }

    /// Syncs if the settings ask for it now; says when to come back.
    pub(crate) fn sync_if_due(&mut self) -> Option<Duration> {
        let Durability::Interval(every) = self.core.settings.durability else { return None };
        if !self.unsynced {
            return None;
        }
        let left = every.saturating_sub(self.synced_at.elapsed());
        if left.is_zero() {
            // A failure has abandoned the segment; what was in it was acknowledged on these terms.
            let _ = self.sync();
            return None;
        }
        Some(left)
    }

    fn sync(&mut self) -> io::Result<()> {
        if self.unsynced {
            self.synced_at = Instant::now();
            self.unsynced = false;
            if let Err(error) = self.file.sync() {
                self.abandon(&error);
                return Err(error);
            }
            lock(&self.core.synced).clone_from(&self.table);
        }
        Ok(())
    }

    fn write_group(
        &mut self,
        batches: &[Append],
        bytes: usize,
        flags: u32,
    ) -> Result<Vec<Placed>, AppendError> {
        if let Some(reason) = &self.failed {
            return Err(AppendError::ReadOnly { reason: reason.clone() });
        }
        if let Some(reason) = self.core.displaced.get() {
            return Err(AppendError::Displaced { reason: reason.clone() });
        }
        let time_ms = self.core.settings.clock.now_ms().max(self.last_time);
        let partitions = self.table.len().max(self.core.partitions() as usize);
        self.table.resize(partitions, Default::default());
        // Once more in the next segment if the write fails, and then no more.
        for attempt in 0..2 {
            if self.abandoned || (bytes > 0 && bytes > self.room_here()) {
                match self.roll(time_ms) {
                    Ok(()) => {}
                    Err(RollError::NoSpare(reason)) => return Err(AppendError::NoSpace { reason }),
                    Err(RollError::Io(error)) => return Err(self.give_up(&error)),
                }
                // Partitions that were added since the group was put together make the table longer.
                if bytes > self.room_here() {
                    return Err(AppendError::QueueFull);
                }
            }
            let headers = self.headers(batches, time_ms);
            let (buf, group_at) = self.encode(batches, &headers, bytes, flags, time_ms);
            match self.write(&buf, flags) {
                Ok(()) => return Ok(self.publish(batches, headers, buf, group_at, time_ms)),
                Err(error) if attempt == 0 => self.abandon(&error),
                // Not every file system keeps the space that it reserved. Nothing is wrong with this one: the next commit
                // goes to another segment, when one can be prepared.
                Err(error) if is_full(&error) => {
                    self.abandon(&error);
                    return Err(AppendError::NoSpace { reason: error.to_string() });
                }
                Err(error) => return Err(self.give_up(&error)),
            }
        }
        unreachable!("the second attempt returns")
    }

    fn headers(&self, batches: &[Append], time_ms: i64) -> Vec<BatchHeader> {
        let mut last: Option<BatchHeader> = None;
        let place = |Append { partition, batch, producer }: &Append| {
            let entry = self.table[*partition as usize];
            let (seq, offset) = match last {
                Some(before) if before.partition == *partition => (before.next_seq(), before.next_offset()),
                _ => (entry.next_seq, entry.next_offset),
            };
            let header = batch.header(*partition, seq, offset, time_ms).stamped(*producer);
            last = Some(header);
            header
        };
        batches.iter().map(place).collect()
    }

    /// The bytes of the write: the start of the last block, the group, zeros. Returns also where the group starts.
    fn encode(
        &mut self,
        batches: &[Append],
        headers: &[BatchHeader],
        bytes: usize,
        flags: u32,
        time_ms: i64,
    ) -> (AlignedBuf, usize) {
        let seed = self.segment.seed;
        let group_at = self.partial.len();
        let len = GROUP_HEADER + bytes;
        let mut buf = self.buffer(group_at + len);
        buf.extend(&self.partial);
        buf.extend(&[0; GROUP_HEADER]);
        for (Append { batch, .. }, header) in batches.iter().zip(headers) {
            buf.extend(&header.encode(seed));
            buf.extend(&batch.ends);
            buf.extend(&batch.events);
        }
        let header = GroupHeader {
            len: len as u32,
            batches: batches.len() as u32,
            commit: self.next_commit,
            segment: self.segment.id,
            boot: self.boot,
            flags,
            time_ms,
        };
        header.seal(&mut buf.as_mut_slice()[group_at..], seed);
        buf.pad_to_block();
        (buf, group_at)
    }

    fn write(&mut self, buf: &AlignedBuf, flags: u32) -> io::Result<()> {
        write_exact(&*self.file, buf.as_slice(), self.end - self.partial.len() as u64)?;
        match self.core.mode {
            WriteMode::Direct => Ok(()),
            WriteMode::Buffered if partita_core::planted!(AcknowledgedTooEarly) => Ok(()),
            WriteMode::Buffered if flags & FLAG_RELAXED == 0 => self.file.sync(),
            WriteMode::Buffered => {
                self.unsynced = true;
                Ok(())
            }
        }
    }

    /// Makes a written group visible: index, tail cache, end of the segment, ends of the partitions, in this order.
    fn publish(
        &mut self,
        batches: &[Append],
        headers: Vec<BatchHeader>,
        buf: AlignedBuf,
        group_at: usize,
        time_ms: i64,
    ) -> Vec<Placed> {
        let base = self.end - self.partial.len() as u64;
        let group_end =
            group_at + GROUP_HEADER + headers.iter().map(|header| header.len as usize).sum::<usize>();
        self.end = base + group_end as u64;
        let block = group_end - group_end % BLOCK;
        self.partial.clear();
        self.partial.extend_from_slice(&buf.as_slice()[block..group_end]);

        let mut pos = base + (group_at + GROUP_HEADER) as u64;
        let mut placed = Vec::with_capacity(headers.len());
        let mut cached = Vec::with_capacity(headers.len());
        if let Some(live) = &mut *write(&self.segment.live) {
            for header in &headers {
                live.add(header, pos);
                cached.push((pos, *header));
                pos += u64::from(header.len);
            }
        }
        for (Append { batch, .. }, header) in batches.iter().zip(&headers) {
            let entry = &mut self.table[header.partition as usize];
            entry.next_seq = header.next_seq();
            entry.next_offset = header.next_offset();
            entry.last_offset = header.base_offset + batch.last_start();
            entry.last_time = time_ms;
            placed.push(Placed::of(header));
        }
        let keep = match self.core.mode {
            WriteMode::Direct => base + block as u64,
            WriteMode::Buffered => self.end,
        };
        let commit = Commit {
            number: self.next_commit,
            segment: self.segment.id,
            base,
            end: self.end,
            buf: Arc::new(buf),
            batches: cached,
        };
        let freed =
            write(&self.core.tail).push(commit, self.core.settings.tail_bytes_max, self.segment.id, keep);
        self.free.extend(freed.into_iter().filter_map(Arc::into_inner));
        self.free.truncate(FREE_BUFFERS_MAX);

        self.last_time = time_ms;
        self.next_commit += 1;
        self.core.next_commit.store(self.next_commit, Ordering::Release);
        self.unmarked = true;
        self.segment.advance(self.end, time_ms);
        if !headers.is_empty() {
            let mut ends = write(&self.core.ends);
            for header in &headers {
                ends[header.partition as usize] = self.table[header.partition as usize];
            }
        }
        placed
    }

    /// Wakes readers that wait for these partitions.
    pub(crate) fn wake<'a>(&self, placed: impl IntoIterator<Item = &'a Placed>) {
        let mut wakers = Vec::new();
        {
            let mut waiting = lock(&self.core.waiting);
            if waiting.is_empty() {
                return;
            }
            for batch in placed {
                wakers.extend(waiting.remove(&batch.partition).unwrap_or_default());
            }
        }
        for waker in wakers {
            waker.wake();
        }
    }

    fn buffer(&mut self, bytes: usize) -> AlignedBuf {
        let fits = self.free.iter().position(|buf| (bytes..=bytes * 4 + (1 << 16)).contains(&buf.capacity()));
        match fits {
            Some(at) => {
                let mut buf = self.free.swap_remove(at);
                buf.clear();
                buf
            }
            None => AlignedBuf::with_capacity(bytes.next_multiple_of(1 << 14)),
        }
    }

    fn abandon(&mut self, error: &io::Error) {
        tracing::error!(
            hub = self.core.label(),
            segment = self.segment.id,
            end = self.end,
            %error,
            "write failed, the segment ends here and the next one goes on"
        );
        self.abandoned = true;
    }

    fn give_up(&mut self, error: &io::Error) -> AppendError {
        tracing::error!(hub = self.core.label(), %error, "write failed twice, the hub takes no more events");
        let reason = error.to_string();
        self.failed = Some(reason.clone());
        AppendError::ReadOnly { reason }
    }

    /// Ends the current segment where it is durable and begins the next one.
    fn roll(&mut self, now_ms: i64) -> Result<(), RollError> {
        let core = self.core.clone();
        // If this fails the segment is abandoned and ends at the same place: what was in it was acknowledged unsynced.
        let _ = self.sync();
        let (id, bytes_min) = (self.next_segment, core.settings.smallest_segment(core.partitions()));
        let spare = core.spares.take(bytes_min).map_err(RollError::NoSpare)?;
        let new = NewSegment {
            store: core.store,
            hub: core.hub,
            segment: id,
            boot: self.boot,
            capacity: spare.bytes,
            created_ms: now_ms,
            first_commit: self.next_commit,
            prev_segment: self.segment.id,
            prev_end: self.end,
        };
        let (file, head) = match write_head(&core, &new, &spare.path, &self.table) {
            // It has no segment's name yet, so it can go, and make room.
            Err(error) if is_full(&error) => {
                let _ = core.disk.remove(&spare.path);
                return Err(RollError::NoSpare(error.to_string()));
            }
            Err(error) if is_out_of_files(&error) => {
                core.spares.put(spare);
                return Err(RollError::NoSpare(error.to_string()));
            }
            written => written.map_err(RollError::Io)?,
        };
        let segment = match name_segment(&core, &new, &spare.path, &self.table, head) {
            // The directory could not be opened to make the name durable. Nothing is in the segment yet: the name is taken
            // back, and given again at the next try.
            Err(error) if is_out_of_files(&error) => {
                core.disk.rename(&segment_path(&core.dir, id), &spare.path).map_err(RollError::Io)?;
                core.spares.put(spare);
                // A power cut may bring the name back, with a header that says where this segment ends: it must stay so.
                self.abandoned = true;
                return Err(RollError::NoSpare(error.to_string()));
            }
            named => named.map_err(RollError::Io)?,
        };
        core.spares.want(core.settings.next_segment(segment.capacity, core.partitions()));
        self.segment.seal();
        lock(&core.to_index).push_back(self.segment.clone());
        write(&core.segments).push_back(segment.clone());
        self.end = segment.end();
        self.file = file;
        self.segment = segment;
        self.next_segment = id + 1;
        self.partial.clear();
        self.abandoned = false;
        Ok(())
    }

    /// Begins the next segment now, so that it is durable where numbers go on.
    pub(crate) fn begin_next(&mut self) -> io::Result<()> {
        let core = self.core.clone();
        core.spares.want(core.settings.smallest_segment(core.partitions()));
        core.spares.prepare(&*core.disk, &core.dir, core.mode)?;
        self.roll(core.settings.clock.now_ms().max(self.last_time)).map_err(|error| match error {
            RollError::NoSpare(reason) => io::Error::other(reason),
            RollError::Io(error) => error,
        })
    }
}

/// Writes header and table into a prepared file and gives it the segment's name. Only then does a file have that name,
/// so a segment without a readable header is damaged and never just unused.
pub(crate) fn begin_segment(
    core: &Core,
    new: &NewSegment,
    spare: &std::path::Path,
    table: &Table,
) -> io::Result<(Arc<dyn DiskFile>, Arc<Segment>)> {
    let (file, head) = write_head(core, new, spare, table)?;
    Ok((file, name_segment(core, new, spare, table, head)?))
}

/// Makes header and table durable in a prepared file; their length.
fn write_head(
    core: &Core,
    new: &NewSegment,
    spare: &std::path::Path,
    table: &Table,
) -> io::Result<(Arc<dyn DiskFile>, usize)> {
    let file = core.disk.open(spare, Access::Write(core.mode))?;
    let head = {
        let mut producers = lock(&core.producers);
        producers.keep(core.settings.producers_per_partition(core.partitions()));
        SegmentHeader::encode(new, table, &producers.entries().collect::<Vec<_>>())
    };
    let mut buf = AlignedBuf::with_capacity(head.len());
    buf.extend(&head);
    write_exact(&*file, buf.as_slice(), 0)?;
    if core.mode == WriteMode::Buffered {
        file.sync()?;
    }
    Ok((file, head.len()))
}

fn name_segment(
    core: &Core,
    new: &NewSegment,
    spare: &std::path::Path,
    table: &Table,
    head: usize,
) -> io::Result<Arc<Segment>> {
    let path = segment_path(&core.dir, new.segment);
    core.disk.rename(spare, &path)?;
    core.disk.sync_dir(&core.dir)?;
    let segment = Segment::new(SegmentParts {
        id: new.segment,
        path,
        capacity: new.capacity,
        start: head as u64,
        first_commit: new.first_commit,
        boot: new.boot,
        seed: Seed::new(new.store, new.segment),
        table: table.clone(),
        damaged: false,
        end: head as u64,
        last_time: new.created_ms,
        sealed: false,
        live: Some(LiveIndex::default()),
    });
    Ok(Arc::new(segment))
}
