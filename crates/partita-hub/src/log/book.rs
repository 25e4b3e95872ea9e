//! What a hub knows of its damage: found by readers, by looking through segments and by opening, kept in the file `damage`
//! beside the segments, so that it is known again after a restart.

use std::collections::VecDeque;
use std::io;
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, OnceLock};

use super::core::{Core, lock, read, read_range};
use super::disk::{Access, Disk, read_whole, write_exact};
use super::error::{AcceptError, ReadError};
use super::examine::{ExamineInput, Examined, examine};
use super::format::{BLOCK, SegmentHeader, decode_damage, encode_damage};
use super::lost_ranges::{Events, Losses, LostRange, NotLost};
use super::missing_events::{Loss, LostEvents};
use super::recovery::{Damage, Recovery};
use super::segment::Segment;

/// The file in a hub's directory.
pub(crate) const DAMAGE: &str = "damage";
/// How many segments with known damage are looked at again while the hub starts: half a gigabyte at most.
pub(crate) const VERIFIED_AT_START_MAX: usize = 8;
/// How many ranges are told one by one in the log.
const TOLD_MAX: usize = 20;

/// The damage of a hub, as far as it is known.
#[derive(Debug, Default)]
pub(crate) struct Book {
    losses: Mutex<Losses>,
    /// What is known and not in the file yet: writing it failed.
    unsaved: AtomicBool,
    /// Whether writing failed last time, so that it is said once.
    failing: AtomicBool,
    /// One looks through a segment at a time: each takes as much memory as the segment.
    looking: Mutex<()>,
    /// The hub's name, for the log; what is found before it is known is told with it.
    name: OnceLock<String>,
    /// What can be read again, and was not told yet.
    mended: Mutex<Vec<LostRange>>,
    /// Segments with damage that a former run found, still to be looked at: it may have been mended meanwhile.
    to_verify: Mutex<VecDeque<u64>>,
}

impl Core {
    /// Says by which name people know the hub, and what is known of its damage.
    pub(crate) fn introduce(&self, name: &str) {
        let _ = self.book.name.set(name.to_owned());
        let mended = std::mem::take(&mut *lock(&self.book.mended));
        let lost: Vec<LostRange> = self.losses().into_iter().filter(|range| !range.accepted).collect();
        self.tell(&lost, &mended);
    }

    /// The hub's name, or its number where it has none.
    pub(crate) fn label(&self) -> String {
        self.book.name.get().cloned().unwrap_or_else(|| self.hub.to_string())
    }

    /// Reads what former runs found, and looks through the segments in which they or opening found something.
    pub(crate) fn open_book(&self, recovery: &Recovery) {
        match read_whole(&*self.disk, &self.dir.join(DAMAGE)) {
            Ok(bytes) => match decode_damage(&bytes, self.store, self.hub) {
                Some(ranges) => *lock(&self.book.losses) = Losses::of(ranges),
                // Nothing is passed over without it; what was accepted has to be accepted again.
                None => tracing::warn!(
                    hub = self.label(),
                    "the file of known damage is damaged itself: run 'partita hub check', and accept losses again"
                ),
            },
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => {
                tracing::warn!(hub = self.label(), %error, "the file of known damage cannot be read")
            }
        }
        if let Some(loss) = &recovery.lost {
            // Where nothing is left, retention may have removed the first of the events before.
            self.give_up(loss, loss.exact && recovery.segments > 0);
        }
        let before_gap = recovery.missing.iter().map(|gap| gap.start - 1);
        let mut doubtful: Vec<u64> = recovery.damage.iter().map(|d| d.segment).chain(before_gap).collect();
        doubtful.sort_unstable();
        doubtful.dedup();
        // What was damaged may have been restored. A start waits for a few segments; the housekeeper looks at the others.
        let mut marked = lock(&self.book.losses).marked_segments();
        marked.retain(|segment| !doubtful.contains(segment));
        let later = marked.split_off(marked.len().min(VERIFIED_AT_START_MAX));
        *lock(&self.book.to_verify) = later.into();
        doubtful.extend(marked);
        doubtful.into_iter().for_each(|segment| self.look_again(segment));
        self.keep_book();
    }

    /// Looks at the next segment with damage that a former run found, if there is one.
    pub(crate) fn verify_next(&self) {
        let next = lock(&self.book.to_verify).pop_front();
        if let Some(segment) = next {
            self.look_again(segment);
        }
    }

    fn look_again(&self, id: u64) {
        let segment = read(&self.segments).iter().find(|segment| segment.id == id).cloned();
        if let Some(Err(error)) = segment.map(|segment| self.look_through(&segment)) {
            tracing::warn!(hub = self.label(), segment = id, %error, "segment could not be read");
        }
    }

    /// Notes the numbers that no event has because a loss was accepted when the log was opened: readers pass over them and
    /// report a gap. If that cannot be noted, they are damage to whoever reads there.
    fn give_up(&self, loss: &Loss, certain: bool) {
        // They are remembered as long as the segment that begins behind them: what was before may be without events.
        let Some(newest) = read(&self.segments).back().map(|segment| segment.id) else { return };
        let range = |lost: &LostEvents| LostRange {
            partition: lost.partition,
            first: lost.numbers.start,
            next: lost.numbers.end,
            segment: newest,
            certain,
            accepted: false,
        };
        let ranges: Vec<LostRange> = loss.skipped.iter().map(range).collect();
        let mut losses = lock(&self.book.losses);
        let mut accepted = losses.clone();
        if accepted.give_up(&ranges).is_ok() {
            *losses = accepted;
            self.book.unsaved.store(true, Ordering::Release);
        }
    }

    /// Where a partition begins for readers: with its oldest event, or with the events right before it if they are lost and
    /// that was accepted, so that whoever reads from the start is told.
    pub(crate) fn first_seq(&self, partition: u32) -> u64 {
        let oldest = self.oldest_seq(partition);
        lock(&self.book.losses).before(partition, oldest).unwrap_or(oldest)
    }

    /// The numbers of a partition from the first to behind the last event that a reader gets: without losses that were accepted
    /// at either end. Empty, at the partition's start, if there is none.
    pub(crate) fn readable_seqs(&self, partition: u32) -> Range<u64> {
        let (first, end) = (self.first_seq(partition), self.end_of(partition));
        let losses = lock(&self.book.losses);
        let accepted = |seq: u64| losses.at(partition, seq).filter(|range| range.accepted);
        let start = accepted(first).map_or(first, |range| range.next);
        if start >= end {
            return first..first;
        }
        start..accepted(end - 1).map_or(end, |range| range.first)
    }

    /// The accepted loss that holds an event, as far as it is known.
    pub(crate) fn given_up_at(&self, partition: u32, seq: u64) -> Option<LostRange> {
        lock(&self.book.losses).at(partition, seq).filter(|range| range.accepted)
    }

    /// All that is known to be lost, as readers see it.
    pub(crate) fn losses(&self) -> Vec<LostRange> {
        lock(&self.book.losses).joined()
    }

    pub(crate) fn segments_now(&self) -> Vec<Arc<Segment>> {
        read(&self.segments).iter().cloned().collect()
    }

    /// The lost range that holds an event which a reader did not find. `None`: it is there after all, and the segment's index
    /// was made again.
    pub(crate) fn lost_at(
        &self,
        segment: &Arc<Segment>,
        partition: u32,
        seq: u64,
    ) -> Result<Option<LostRange>, ReadError> {
        if let Some(known) = lock(&self.book.losses).at(partition, seq) {
            return Ok(Some(known));
        }
        let found = self.look_through(segment);
        let found = found.map_err(|source| self.read_error(segment.id, source))?;
        let known = lock(&self.book.losses).at(partition, seq);
        // If there are more than can be remembered, the finding itself tells.
        Ok(known.or_else(|| Losses::of(found.lost).at(partition, seq)))
    }

    /// Looks through a segment, remembers what is lost in it and makes its index again.
    pub(crate) fn look_through(&self, segment: &Arc<Segment>) -> io::Result<Examined> {
        let _looking = lock(&self.book.looking);
        // In this order: what leaves the tail cache after it was asked is in what was read from it, and what left it before
        // is readable from disk.
        let spans = self.spans(segment);
        let cached = read(&self.tail).held();
        let readable = self.readable(segment);
        let file = segment.open(&*self.disk)?;
        let bytes = read_range(&*file, readable)?;
        let mut found = examine(&ExamineInput {
            bytes: &bytes,
            start: segment.start,
            segment: segment.id,
            seed: segment.seed,
            before: (!segment.damaged).then(|| (segment.first_commit.saturating_sub(1), segment.boot)),
            spans: spans.0,
            cut_off: readable < segment.end(),
            cached,
            next_missing: spans.1,
        });
        if !self.has_whole_header(segment, &bytes) {
            found.damage.insert(0, 0..segment.start);
        }
        if (bytes.len() as u64) < readable {
            found.damage.push(bytes.len() as u64..readable);
        }
        // A retired file may hold another segment by now.
        if segment.is_retired() {
            return Ok(Examined::default());
        }
        self.note_damage(segment.id, &found.damage, bytes.len() as u64, readable);
        if read(&segment.live).is_none() {
            lock(&self.indexes).insert(segment.id, Arc::new(found.index.seal()));
        }
        let looked = lock(&self.book.losses).found(segment.id, &found.lost);
        match self.book.name.get() {
            Some(_) => self.tell(&looked.fresh, &looked.mended),
            None => lock(&self.book.mended).extend(looked.mended),
        }
        if looked.changed {
            self.book.unsaved.store(true, Ordering::Release);
            self.keep_book();
        }
        Ok(found)
    }

    /// The numbers of each partition that belong to a segment, and whether the segment after it is missing.
    pub(crate) fn spans(&self, segment: &Segment) -> (Vec<Range<u64>>, bool) {
        let ends: Vec<u64> = read(&self.ends).iter().map(|end| end.next_seq).collect();
        let segments = read(&self.segments);
        let next = segments.iter().find(|other| other.id > segment.id);
        let partitions = (0..).zip(&ends);
        let span = |(partition, end): (u32, &u64)| {
            segment.first_seq(partition)..next.map_or(*end, |next| next.first_seq(partition))
        };
        (partitions.map(span).collect(), next.is_some_and(|next| next.id != segment.id + 1))
    }

    fn has_whole_header(&self, segment: &Segment, bytes: &[u8]) -> bool {
        let header = bytes.get(..BLOCK).and_then(SegmentHeader::decode);
        header.filter(|header| (header.hub, header.segment) == (self.hub, segment.id)).is_some_and(|header| {
            bytes.get(BLOCK..header.data_start()).is_some_and(|table| header.decode_table(table).is_some())
        })
    }

    /// Notes damaged bytes of a segment that was looked through up to `end`, and says so, once. Its file has `len` bytes.
    fn note_damage(&self, segment: u64, ranges: &[Range<u64>], len: u64, end: u64) {
        let mut known = lock(&self.damage);
        let before = known.clone();
        known.retain(|damage| damage.segment != segment || damage.bytes.start >= end);
        for bytes in ranges {
            let found = Damage { segment, bytes: bytes.clone(), cut_off: bytes.start >= len };
            // What opening finds is in its own report.
            if !before.contains(&found) && self.book.name.get().is_some() {
                tracing::warn!(hub = self.label(), "{found}");
            }
            known.push(found);
        }
    }

    fn tell(&self, lost: &[LostRange], mended: &[LostRange]) {
        let hub = self.label();
        for range in mended.iter().take(TOLD_MAX) {
            // Not at the level of bookkeeping: whoever restored a file waits for it.
            let (events, partition) = (Events(range.first, range.next), range.partition);
            tracing::warn!(%hub, partition, "{events} of partition {partition} can be read again: no longer marked as damaged");
        }
        if mended.len() > TOLD_MAX {
            let more = mended.len() - TOLD_MAX;
            tracing::warn!(%hub, more, "more ranges can be read again");
        }
        for range in lost.iter().take(TOLD_MAX) {
            tracing::error!(
                %hub,
                partition = range.partition,
                first = range.first,
                last = range.last(),
                "partition is damaged: {range} cannot be read; see 'partita hub check'"
            );
        }
        if lost.len() > TOLD_MAX {
            let more = lost.len() - TOLD_MAX;
            tracing::error!(%hub, more, "more ranges are damaged; see 'partita hub check'");
        }
    }

    /// Accepts the loss of events, durably: from then on readers pass over them.
    pub(crate) fn accept_loss(&self, partition: u32, first: u64, last: u64) -> Result<(), AcceptError> {
        let partitions = self.partitions();
        if partition >= partitions {
            return Err(AcceptError::NoPartition { partition, partitions });
        }
        if first > last || last == u64::MAX {
            return Err(AcceptError::Empty { first, last });
        }
        // What is on disk now decides, not what was found some time ago.
        for segment in self.segments_now() {
            let span = self.spans(&segment).0.get(partition as usize).cloned().unwrap_or_default();
            if span.start <= last && first < span.end {
                let looked = self.look_through(&segment);
                looked.map_err(|source| AcceptError::Read { segment: segment.id, source })?;
            }
        }
        let mut losses = lock(&self.book.losses);
        let mut accepted = losses.clone();
        accepted.accept(partition, first..last + 1).map_err(|why| match why {
            NotLost::TooMany => AcceptError::TooMany,
            NotLost::Readable(event) => {
                let lost = losses.joined().into_iter().filter(|range| range.partition == partition);
                let lost: Vec<String> =
                    lost.take(TOLD_MAX).map(|r| Events(r.first, r.next).to_string()).collect();
                AcceptError::Readable { partition, event, lost: lost.join(", ") }
            }
        })?;
        save(&*self.disk, &self.dir, &encode_damage(accepted.ranges(), self.store, self.hub))
            .map_err(|source| AcceptError::Write { path: self.dir.join(DAMAGE), source })?;
        *losses = accepted;
        self.book.unsaved.store(false, Ordering::Release);
        drop(losses);
        tracing::warn!(
            hub = self.label(),
            partition,
            first,
            last,
            "loss accepted: readers pass over these events"
        );
        Ok(())
    }

    /// Writes what is known of damage to the hub's directory on another disk, durably.
    pub(crate) fn copy_book(&self, disk: &dyn Disk) -> Result<(), AcceptError> {
        let bytes = encode_damage(lock(&self.book.losses).ranges(), self.store, self.hub);
        let saved = save(disk, &self.dir, &bytes);
        saved.map_err(|source| AcceptError::Write { path: self.dir.join(DAMAGE), source })
    }

    /// Forgets what retention removed, and writes down what is not yet. False if that failed.
    pub(crate) fn keep_book(&self) -> bool {
        let mut losses = lock(&self.book.losses);
        let oldest = read(&self.segments).front().map_or(0, |segment| segment.id);
        let forgot = losses.forget_before(oldest, |partition| self.oldest_seq(partition));
        if !forgot && !self.book.unsaved.load(Ordering::Acquire) {
            return true;
        }
        let saved = save(&*self.disk, &self.dir, &encode_damage(losses.ranges(), self.store, self.hub));
        self.book.unsaved.store(saved.is_err(), Ordering::Release);
        let failed_before = self.book.failing.swap(saved.is_err(), Ordering::AcqRel);
        if let (Err(error), false) = (&saved, failed_before) {
            tracing::warn!(hub = self.label(), %error, "known damage is not in its file yet, trying again every second");
        }
        saved.is_ok()
    }
}

/// Puts the file in place of the former one, durably.
fn save(disk: &dyn Disk, dir: &Path, bytes: &[u8]) -> io::Result<()> {
    let unfinished = dir.join("damage.tmp");
    let file = disk.open(&unfinished, Access::Create)?;
    write_exact(&*file, bytes, 0)?;
    file.sync()?;
    disk.rename(&unfinished, &dir.join(DAMAGE))?;
    disk.sync_dir(dir)
}
