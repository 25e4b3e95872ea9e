//! Opening a hub's log: finds out what is there, cuts a torn tail, reports damage, and says where writing goes on.

use std::collections::VecDeque;
use std::fmt;
use std::io;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, RwLock};
use std::time::{Duration, Instant};

use super::aligned::AlignedBuf;
use super::core::{Core, lock, read, read_range, write};
use super::disk::{Access, Disk, WriteMode, is_full, probe, read_full, write_exact};
use super::error::OpenError;
use super::format::{
    Acknowledged, BLOCK, NewSegment, ProducerEntry, Seed, SegmentHeader, StoreId, Table, TableEntry,
};
use super::index::LiveIndex;
use super::missing_events::{self, Loss, Segments};
use super::producers::Producers;
use super::scan::{EVENT_BYTES_MIN, PlacedBatch, Scan, ScanInput, scan};
use super::segment::{SEGMENT_ID_MAX, Segment, SegmentParts, segment_id, segment_path};
use super::settings::{Durability, Settings};
use super::spares::Spare;
use super::tail::Commit;
use super::witness::RecordFile;
use super::writer::{Resume, Writer, begin_segment};

/// What opening a hub's log found.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct Recovery {
    /// How many segments there are.
    pub segments: usize,
    /// How commits are written.
    pub mode: WriteMode,
    /// Whole groups found in what was scanned.
    pub groups: u64,
    /// Bytes of commits that were under way when the hub ended; they were never acknowledged and are dropped.
    pub torn_bytes: u64,
    /// Bytes that are not what was written. Nothing is removed; readers get an error for the events there.
    pub damage: Vec<Damage>,
    /// Segments that should be there and are not.
    pub missing: Vec<Range<u64>>,
    /// Acknowledged events that are missing, which was accepted.
    pub lost: Option<Loss>,
    /// How long it took.
    pub elapsed: Duration,
}

/// A damaged part of a segment.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Damage {
    /// The segment.
    pub segment: u64,
    /// The bytes in its file.
    pub bytes: Range<u64>,
    /// Whether they are not there: the file ends before them.
    pub cut_off: bool,
}

impl fmt::Display for Damage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (segment, from, to) = (self.segment, self.bytes.start, self.bytes.end);
        match self.cut_off {
            true => write!(f, "segment {segment:016x} was cut off at byte {from} of {to}"),
            false => write!(f, "segment {segment:016x} is damaged from byte {from} to {to}"),
        }
    }
}

impl Recovery {
    /// Whether all that was acknowledged is there, as far as opening looks.
    pub fn is_clean(&self) -> bool {
        self.damage.is_empty() && self.missing.is_empty() && self.lost.is_none()
    }
}

impl fmt::Display for Recovery {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ms = self.elapsed.as_millis();
        let s = if self.segments == 1 { "" } else { "s" };
        write!(f, "{} segment{s}, {} writes, opened in {ms} ms", self.segments, self.mode)?;
        if self.torn_bytes > 0 {
            write!(f, "; dropped {} bytes of an unfinished commit", self.torn_bytes)?;
        }
        for damage in &self.damage {
            write!(f, "; {damage}")?;
        }
        for missing in &self.missing {
            let are = if missing.end - missing.start == 1 { "is" } else { "are" };
            write!(f, "; {} {are} missing", Segments(missing))?;
        }
        if let Some(loss) = &self.lost {
            write!(f, "; goes on without {loss}")?;
        }
        Ok(())
    }
}

/// A segment file as it was found; no header = damaged.
struct Found {
    id: u64,
    path: PathBuf,
    /// How much of it is there, and how much there was, or can have been.
    len: u64,
    capacity: u64,
    header: Option<(SegmentHeader, Table)>,
    producers: Vec<ProducerEntry>,
}

impl Found {
    /// Whether groups can be added.
    fn is_whole(&self) -> bool {
        self.header.is_some() && self.len == self.capacity
    }
}

/// The partitions when a segment was begun.
struct Start {
    table: Table,
    /// Whether nothing tells, and the table is beyond all that can have been.
    guessed: bool,
}

/// The log after its last readable header, scanned.
struct Last {
    id: u64,
    end: u64,
    marked: u64,
    bytes: Vec<u8>,
    tail_start: u64,
    tail: Vec<PlacedBatch>,
    table: Table,
    /// Where the events end that were found.
    found: Vec<u64>,
    producers: Producers,
    next_commit: u64,
    boot_max: u32,
}

/// Opens the log of a hub in `dir`, creating it if it is not there.
pub(crate) fn open(
    disk: Arc<dyn Disk>,
    dir: &Path,
    store: StoreId,
    hub: u64,
    settings: Settings,
) -> Result<(Arc<Core>, Writer, Recovery), OpenError> {
    let started = Instant::now();
    settings.check()?;
    disk.create_dir(dir).map_err(|error| OpenError::io("creating the directory", dir, error))?;
    let names = disk.list(dir).map_err(|error| OpenError::io("listing", dir, error))?;
    let found = find_segments(&*disk, dir, &names, store, hub, &settings)?;
    let record = match RecordFile::load(&*disk, dir, store, hub) {
        Err(OpenError::Damaged { .. }) if settings.accept_loss => RecordFile::blank(dir),
        record => record?,
    };
    let known = record.last().cloned();
    if let Some(known) = known.as_ref().filter(|known| known.table.len() > settings.partitions as usize) {
        let (found, asked) = (known.table.len() as u32, settings.partitions);
        return Err(OpenError::FewerPartitions { hub, found, asked });
    }

    let relaxed = settings.durability != Durability::Always;
    let mode = match settings.buffered || relaxed {
        true => WriteMode::Buffered,
        false => match probe(&*disk, dir) {
            // No room to find out. What is there can still be read, and its last segment written.
            Err(error) if is_full(&error) && !found.is_empty() => WriteMode::Buffered,
            mode => mode.map_err(|error| OpenError::io("writing", dir, error))?,
        },
    };
    let core = Arc::new(Core {
        dir: dir.to_owned(),
        partitions: settings.partitions.into(),
        store,
        hub,
        mode,
        spares: Default::default(),
        segments: RwLock::new(VecDeque::new()),
        ends: RwLock::new(Table::new()),
        tail: RwLock::default(),
        indexes: Mutex::default(),
        waiting: Mutex::default(),
        closed: Default::default(),
        damage: Mutex::default(),
        book: Default::default(),
        retention: Mutex::new(settings.retention),
        producers: Mutex::new(Producers::new(settings.producers_per_partition(settings.partitions))),
        to_index: Mutex::default(),
        synced: Mutex::default(),
        next_commit: Default::default(),
        boot: Default::default(),
        record: Mutex::new(record),
        displaced: Default::default(),
        settings,
        disk,
    });
    let tidy = || tidy(&core, &names).map_err(|error| OpenError::io("removing unfinished files", dir, error));
    let mut recovery = Recovery {
        segments: found.len(),
        mode,
        groups: 0,
        torn_bytes: 0,
        damage: Vec::new(),
        missing: Vec::new(),
        lost: None,
        elapsed: Duration::ZERO,
    };
    let begin = |error| OpenError::io("creating a segment", dir, error);
    let mut writer = match found.is_empty() {
        true => {
            recovery.lost = known.as_ref().and_then(|known| missing_events::compare(known, &[], 0));
            refuse_unless_accepted(&core, &recovery)?;
            tidy()?;
            let writer = create(&core, known.as_ref()).map_err(begin)?;
            if let Some(loss) = &mut recovery.lost {
                loss.skip(&[], &read(&core.ends));
            }
            writer
        }
        false => {
            let mut writer = resume(&core, found, known.as_ref(), &mut recovery)?;
            tidy()?;
            if recovery.lost.is_some() {
                writer.begin_next().map_err(begin)?;
            }
            writer
        }
    };
    lock(&core.damage).clone_from(&recovery.damage);
    core.open_book(&recovery);
    // Puts the new boot on disk: what it overwrites is then told from what follows.
    writer.mark();
    // All that was found is durable by now.
    lock(&core.synced).clone_from(&read(&core.ends));
    if let Err(error) = core.write_record(false) {
        // The housekeeper tries again. What it holds so far is true, if not all.
        tracing::warn!(hub, %error, "what was acknowledged could not be recorded yet");
    }
    recovery.segments = recovery.segments.max(1);
    recovery.elapsed = started.elapsed();
    Ok((core, writer, recovery))
}

fn find_segments(
    disk: &dyn Disk,
    dir: &Path,
    names: &[String],
    store: StoreId,
    hub: u64,
    settings: &Settings,
) -> Result<Vec<Found>, OpenError> {
    let mut ids: Vec<u64> = names.iter().filter_map(|name| segment_id(name)).collect();
    ids.sort_unstable();
    if let Some(stray) = ids.iter().find(|id| !(1..=SEGMENT_ID_MAX).contains(*id)) {
        return Err(OpenError::Stray { path: segment_path(dir, *stray) });
    }
    let mut out = Vec::with_capacity(ids.len());
    for id in ids {
        let path = segment_path(dir, id);
        let fail = |error| OpenError::io("reading", &path, error);
        let file = disk.open(&path, Access::Read).map_err(fail)?;
        let len = file.len().map_err(fail)?;
        let mut head = vec![0; BLOCK];
        let read = read_full(&*file, &mut head, 0).map_err(fail)?;
        let header = SegmentHeader::decode(&head[..read]);
        if header.as_ref().is_some_and(|header| header.store != store) {
            return Err(OpenError::Foreign { path });
        }
        let header = header.filter(|h| (h.hub, h.segment) == (hub, id));
        // A file that became longer has nothing of ours behind its capacity; one whose header is lost is no larger than any.
        let largest = settings.largest_segment(settings.partitions);
        let capacity = header.as_ref().map_or(largest, |header| header.capacity);
        let (mut known, mut producers) = (None, Vec::new());
        if let Some(header) = header {
            let mut bytes = vec![0; header.data_start() - BLOCK];
            read_full(&*file, &mut bytes, BLOCK as u64).map_err(fail)?;
            if let Some((table, entries)) = header.decode_table(&bytes) {
                (known, producers) = (Some((header, table)), entries);
            }
        }
        if let Some((header, _)) = known.as_ref().filter(|(h, _)| h.partitions > settings.partitions) {
            let (found, asked) = (header.partitions, settings.partitions);
            return Err(OpenError::FewerPartitions { hub, found, asked });
        }
        out.push(Found { id, path, len: len.min(capacity), capacity, header: known, producers });
    }
    Ok(out)
}

/// Takes prepared files and removes unfinished ones.
fn tidy(core: &Core, names: &[String]) -> io::Result<()> {
    let mut spares = Vec::new();
    let mut highest = 0;
    for name in names {
        let path = core.dir.join(name);
        if name.ends_with(".tmp") {
            match core.disk.remove(&path) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
                _ => {}
            }
        } else if let Some(number) = name.strip_prefix("spare-").and_then(|n| u64::from_str_radix(n, 16).ok())
        {
            highest = highest.max(number);
            let bytes = core.disk.open(&path, Access::Read)?.len()?;
            spares.push(Spare { path, bytes });
        }
    }
    core.spares.adopt(spares, highest);
    Ok(())
}

fn refuse_unless_accepted(core: &Core, recovery: &Recovery) -> Result<(), OpenError> {
    match &recovery.lost {
        Some(loss) if !core.settings.accept_loss => {
            Err(OpenError::Lost { dir: core.dir.clone(), loss: loss.clone() })
        }
        _ => Ok(()),
    }
}

/// The first segment of a new hub, or of one whose segments are all missing.
fn create(core: &Arc<Core>, lost: Option<&Acknowledged>) -> io::Result<Writer> {
    let bytes = core.settings.smallest_segment(core.partitions());
    core.spares.want(bytes);
    core.spares.prepare(&*core.disk, &core.dir, core.mode)?;
    let spare = core.spares.take(bytes).map_err(io::Error::other)?;
    let mut table = vec![Default::default(); core.settings.partitions as usize];
    if let Some(lost) = lost {
        table = missing_events::beyond(lost, &table, core.settings.clock.now_ms());
    }
    let last_time = newest_time(&table);
    let (segment, boot) = lost.map_or((1, 1), |lost| (lost.segment + 1, lost.boot + 1));
    let next_commit = lost.map_or(1, |lost| lost.next_commit);
    let new = NewSegment {
        store: core.store,
        hub: core.hub,
        segment,
        boot,
        capacity: spare.bytes,
        created_ms: core.settings.clock.now_ms().max(last_time),
        first_commit: next_commit,
        prev_segment: 0,
        prev_end: 0,
    };
    let (file, segment) = begin_segment(core, &new, &spare.path, &table)?;
    core.spares.want(core.settings.next_segment(segment.capacity, core.partitions()));
    write(&core.segments).push_back(segment.clone());
    write(&core.ends).clone_from(&table);
    let resume = Resume {
        next_segment: segment.id + 1,
        segment,
        file,
        partial: Vec::new(),
        table,
        next_commit,
        boot,
        last_time,
        abandoned: false,
    };
    Ok(Writer::new(core.clone(), resume))
}

fn resume(
    core: &Arc<Core>,
    found: Vec<Found>,
    known: Option<&Acknowledged>,
    recovery: &mut Recovery,
) -> Result<Writer, OpenError> {
    for pair in found.windows(2) {
        // After a loss, ids go on above those that were used: the header says after which segment.
        let follows = pair[1].header.as_ref().is_some_and(|(header, _)| header.prev_segment == pair[0].id);
        if pair[0].id + 1 < pair[1].id && !follows {
            recovery.missing.push(pair[0].id + 1..pair[1].id);
        }
    }
    // Segments whose end the next one's header tells need no scan.
    let mut segments: VecDeque<Arc<Segment>> = VecDeque::new();
    let mut last: Option<Last> = None;
    for (at, segment) in found.iter().enumerate() {
        let fail = |error| OpenError::io("reading", &segment.path, error);
        let next = found.get(at + 1).and_then(|next| next.header.as_ref());
        let told = next.filter(|(header, _)| header.prev_segment == segment.id);
        let newest = at + 1 == found.len();
        let start = start_of(core, segment, last.as_ref());
        if segment.header.is_none() {
            recovery.damage.push(Damage { segment: segment.id, bytes: 0..BLOCK as u64, cut_off: false });
        }
        // What is missing of a file that was shortened.
        let known = segment.header.is_some().then_some(segment.capacity);
        let missing =
            segment.len.max(BLOCK as u64)..told.map(|(header, _)| header.prev_end).or(known).unwrap_or(0);
        if !missing.is_empty() {
            recovery.damage.push(Damage { segment: segment.id, bytes: missing, cut_off: true });
        }
        let (end, table, live) = match told {
            Some((header, _)) if !start.guessed => (header.prev_end.min(segment.len), start.table, None),
            Some((header, next)) => {
                let end = header.prev_end.min(segment.len);
                let (mut scanned, _) =
                    scan_segment(core, segment, start, last.as_ref(), Some(end)).map_err(fail)?;
                report(&mut scanned, segment.id, recovery);
                // Partitions that have no batch in it are where they are after it.
                for (p, first) in scanned.first.iter_mut().enumerate() {
                    let next = next.get(p).copied().unwrap_or_default();
                    *first = if first.next_seq > next.next_seq { next } else { *first };
                }
                (end, scanned.first, None)
            }
            None => {
                let (scanned, first, live) =
                    scan_last(core, segment, start, last.as_ref(), recovery).map_err(fail)?;
                let end = scanned.end;
                last = Some(scanned);
                (end, first, Some(live))
            }
        };
        let last_time = match told {
            Some((_, table)) => newest_time(table),
            None => last.as_ref().map_or(0, |last| newest_time(&last.table)),
        };
        let header = segment.header.as_ref().map(|(header, _)| header);
        segments.push_back(Arc::new(Segment::new(SegmentParts {
            id: segment.id,
            path: segment.path.clone(),
            capacity: segment.len,
            start: header.map_or(BLOCK as u64, |header| header.data_start() as u64),
            first_commit: header.map_or(0, |header| header.first_commit),
            boot: header.map_or(0, |header| header.boot),
            seed: Seed::new(core.store, segment.id),
            table,
            damaged: header.is_none(),
            end,
            last_time,
            // Nothing is added to a segment whose header is damaged, or whose file was shortened.
            sealed: !newest || !segment.is_whole(),
            live,
        })));
    }
    let (Some(mut last), Some(active)) = (last, segments.back().cloned()) else {
        unreachable!("the newest segment is always scanned")
    };
    let (found, asked) = (last.table.len() as u32, core.partitions());
    if found > asked {
        return Err(OpenError::FewerPartitions { hub: core.hub, found, asked });
    }
    last.table.resize(asked as usize, Default::default());
    let now_ms = core.settings.clock.now_ms();
    let known = known.map(|known| missing_events::as_of(known, last.boot_max));
    let known = known.as_ref();
    missing_events::settle(known, &last.found, now_ms, &mut last.table);
    // Retention goes by it, also for events that are damaged.
    active.advance(active.end(), newest_time(&last.table));
    // Damage is told from a loss by what follows it. In a file that was shortened nothing does.
    let ends: Vec<u64> = match active.is_sealed() {
        true => last.found.clone(),
        false => last.table.iter().map(|entry| entry.next_seq).collect(),
    };
    recovery.lost = known.and_then(|known| missing_events::compare(known, &ends, active.id));
    refuse_unless_accepted(core, recovery)?;
    let lost = known.filter(|_| recovery.lost.is_some());
    if let Some(known) = lost {
        last.table = missing_events::beyond(known, &last.table, now_ms);
        if let Some(loss) = &mut recovery.lost {
            loss.skip(&last.found, &last.table);
        }
        last.next_commit = last.next_commit.max(known.next_commit);
        last.boot_max = last.boot_max.max(known.boot);
    }
    write(&core.segments).clone_from(&segments);
    write(&core.ends).clone_from(&last.table);
    lock(&core.producers).clone_from(&last.producers);
    core.spares.want(core.settings.next_segment(active.capacity, core.partitions()));

    let fail = |error| OpenError::io("writing", &active.path, error);
    let file = core.disk.open(&active.path, Access::Write(core.mode)).map_err(fail)?;
    // After a kill, whole groups may be in the page cache only, and so may the segment's name. After a sync that failed
    // before, groups may even look durable there; what no mark vouches for is written again.
    let (from, to) = (last.marked as usize, last.end as usize);
    if let (WriteMode::Buffered, Some(doubtful)) = (core.mode, last.bytes.get(from..to)) {
        write_exact(&*file, doubtful, last.marked).map_err(fail)?;
    }
    file.sync().map_err(fail)?;
    core.disk.sync_dir(&core.dir).map_err(fail)?;
    if !active.is_sealed() {
        fill_tail(core, &active, &mut last);
    }
    let block = (last.end - last.end % BLOCK as u64) as usize;
    let resume = Resume {
        partial: last.bytes.get(block..last.end as usize).unwrap_or_default().to_vec(),
        abandoned: active.is_sealed() || lost.is_some(),
        next_segment: active.id.max(lost.map_or(0, |known| known.segment)) + 1,
        segment: active,
        file,
        next_commit: last.next_commit,
        boot: last.boot_max + 1,
        last_time: newest_time(&last.table),
        table: last.table,
    };
    Ok(Writer::new(core.clone(), resume))
}

/// Where the partitions stood when a segment was begun. A lost table is what the segment before led to. If that is not
/// known either, its batches tell; a partition without one goes on beyond what all segments before can have held.
fn start_of(core: &Core, segment: &Found, before: Option<&Last>) -> Start {
    let partitions = core.partitions();
    let known = match (&segment.header, before) {
        (Some((_, table)), _) => Some(table.clone()),
        (None, Some(before)) if before.id + 1 == segment.id => Some(before.table.clone()),
        (None, _) => (segment.id == 1).then(Table::new),
    };
    if let Some(mut table) = known {
        // Partitions that were added later started at 0.
        table.resize(table.len().max(partitions as usize), Default::default());
        return Start { table, guessed: false };
    }
    let largest = core.settings.largest_segment(partitions);
    let bytes = segment.id.saturating_sub(1).saturating_mul(largest);
    let last_time = |p: usize| before.and_then(|last| last.table.get(p)).map_or(0, |entry| entry.last_time);
    let beyond = |p: usize| TableEntry {
        next_seq: bytes / EVENT_BYTES_MIN,
        next_offset: bytes,
        last_offset: bytes,
        last_time: last_time(p),
    };
    Start { table: (0..partitions as usize).map(beyond).collect(), guessed: true }
}

/// Scans a segment; up to `sealed_at` if the next one's header says where it ends.
fn scan_segment(
    core: &Core,
    segment: &Found,
    start: Start,
    before: Option<&Last>,
    sealed_at: Option<u64>,
) -> io::Result<(Scan, Vec<u8>)> {
    let file = core.disk.open(&segment.path, Access::Read)?;
    let bytes = read_range(&*file, sealed_at.unwrap_or(segment.len))?;
    let header = segment.header.as_ref().map(|(header, _)| header);
    let producers = match (header, before) {
        (None, Some(before)) => before.producers.clone(),
        _ => {
            let keep = core.settings.producers_per_partition(core.partitions());
            Producers::of(segment.producers.clone(), keep)
        }
    };
    let boot = header.map(|header| header.boot).or(before.map(|last| last.boot_max)).unwrap_or(1);
    let found = scan(ScanInput {
        bytes: &bytes,
        reach: sealed_at.unwrap_or(segment.capacity),
        start: header.map_or(BLOCK, |header| header.data_start()) as u64,
        segment: segment.id,
        seed: Seed::new(core.store, segment.id),
        first_commit: header.map(|header| header.first_commit),
        boot,
        table: start.table,
        guessed: start.guessed,
        producers: Some(producers),
        sealed: sealed_at.is_some(),
    });
    Ok((found, bytes))
}

fn report(found: &mut Scan, segment: u64, recovery: &mut Recovery) {
    recovery.groups += found.groups;
    recovery.torn_bytes += found.torn;
    recovery.damage.extend(found.damage.drain(..).map(|bytes| Damage { segment, bytes, cut_off: false }));
}

/// Scans a segment that no header after it closes. Returns also the partitions at its start, and its index.
fn scan_last(
    core: &Core,
    segment: &Found,
    start: Start,
    before: Option<&Last>,
    recovery: &mut Recovery,
) -> io::Result<(Last, Table, LiveIndex)> {
    let (mut found, bytes) = scan_segment(core, segment, start, before, None)?;
    report(&mut found, segment.id, recovery);
    let next_commit = found.next_commit.or(before.map(|last| last.next_commit)).unwrap_or(1);
    let last = Last {
        id: segment.id,
        end: found.end,
        marked: found.marked,
        bytes,
        tail_start: found.tail_start,
        tail: found.tail,
        table: found.table,
        found: found.found,
        producers: found.producers.unwrap_or_else(|| Producers::new(0)),
        next_commit,
        boot_max: found.boot_max.max(before.map_or(0, |last| last.boot_max)),
    };
    Ok((last, found.first, found.index))
}

fn newest_time(table: &Table) -> i64 {
    table.iter().map(|entry| entry.last_time).max().unwrap_or(0)
}

/// The last block cannot be read from disk while it is rewritten, so its groups go to the tail cache.
fn fill_tail(core: &Core, segment: &Segment, last: &mut Last) {
    let range = last.tail_start as usize..last.end as usize;
    if range.is_empty() {
        return;
    }
    let mut buf = AlignedBuf::with_capacity(range.len());
    buf.extend(&last.bytes[range]);
    let mut batches = std::mem::take(&mut last.tail);
    batches.sort_by_key(|(_, batch)| batch.partition);
    let commit = Commit {
        number: last.next_commit.saturating_sub(1),
        segment: segment.id,
        base: last.tail_start,
        end: last.end,
        buf: Arc::new(buf),
        batches,
    };
    write(&core.tail).push(commit, usize::MAX, segment.id, 0);
}
