//! Reads a segment's groups in order and tells a torn tail from damage. No I/O: bytes in, findings out.

use std::collections::VecDeque;
use std::ops::Range;

use memchr::memmem;

use super::examine::salvage;
use super::format::{
    BLOCK, BatchHeader, FLAG_MARK, FLAG_RELAXED, GROUP_HEADER, GROUP_MAGIC, GroupHeader, GroupView, Seed,
    Table, TableEntry, parse_group,
};
use super::index::LiveIndex;
use super::producers::Producers;
use super::writer::Placed;

/// The least that an event takes on disk: one byte, and its end.
pub(crate) const EVENT_BYTES_MIN: u64 = 5;
/// How a group begins.
const MAGIC: [u8; 4] = GROUP_MAGIC.to_le_bytes();

/// A batch and its place in the segment.
pub(crate) type PlacedBatch = (u64, BatchHeader);

/// What is to be scanned.
#[derive(Debug)]
pub(crate) struct ScanInput<'a> {
    /// The segment from its start, up to where its groups can reach.
    pub(crate) bytes: &'a [u8],
    /// Up to where groups can have reached before the file was shortened; the end of `bytes` if it was not.
    pub(crate) reach: u64,
    pub(crate) start: u64,
    pub(crate) segment: u64,
    pub(crate) seed: Seed,
    /// The number of the first group; `None` if it is not known.
    pub(crate) first_commit: Option<u64>,
    pub(crate) boot: u32,
    /// The partitions at the start of the segment.
    pub(crate) table: Table,
    /// Whether nothing tells where the partitions stand but their first batches. Those without one then are where the
    /// table says: beyond all that can have been.
    pub(crate) guessed: bool,
    /// The idempotent producers at the start of the segment, if anyone wants to know.
    pub(crate) producers: Option<Producers>,
    /// Whether the segment is known to be written up to the end of `bytes`, so that a hole at the end is damage.
    pub(crate) sealed: bool,
}

/// What a scan found.
#[derive(Debug)]
pub(crate) struct Scan {
    /// Where the last group ends.
    pub(crate) end: u64,
    /// The partitions before the first group: as told, or as their first batches tell.
    pub(crate) first: Table,
    /// The partitions after the last group.
    pub(crate) table: Table,
    /// The number after each partition's last event that was found; the table may be beyond it.
    pub(crate) found: Vec<u64>,
    pub(crate) producers: Option<Producers>,
    pub(crate) index: LiveIndex,
    /// Where the last mark ends, or the groups start: what lies before it was durable.
    pub(crate) marked: u64,
    /// Bytes that are not what was written, although later ones are.
    pub(crate) damage: Vec<Range<u64>>,
    /// Bytes of a commit that was under way when the power went.
    pub(crate) torn: u64,
    pub(crate) next_commit: Option<u64>,
    /// The highest boot of any group, left-overs included.
    pub(crate) boot_max: u32,
    pub(crate) groups: u64,
    /// The start of the first group that reaches into the last block, and the whole batches from there on.
    pub(crate) tail_start: u64,
    pub(crate) tail: Vec<PlacedBatch>,
}

/// Reads all groups.
pub(crate) fn scan(input: ScanInput<'_>) -> Scan {
    let mut scanner = Scanner::new(input);
    while scanner.step() {}
    scanner.finish()
}

struct Scanner<'a> {
    bytes: &'a [u8],
    reach: u64,
    segment: u64,
    seed: Seed,
    sealed: bool,
    at: usize,
    marked: usize,
    expect: Option<u64>,
    boot: u32,
    boot_max: u32,
    first: Table,
    table: Table,
    /// Partitions of which only a limit is known.
    guessed: Vec<bool>,
    producers: Option<Producers>,
    /// Damaged bytes before each partition's last batch: what came after that may have held events of it.
    settled: Vec<u64>,
    damaged_bytes: u64,
    index: LiveIndex,
    damage: Vec<Range<u64>>,
    /// The group found last that proves what is before it to have been durable.
    voucher: Option<(usize, GroupHeader)>,
    groups: u64,
    recent: VecDeque<(Range<u64>, Vec<PlacedBatch>)>,
}

impl<'a> Scanner<'a> {
    fn new(input: ScanInput<'a>) -> Self {
        Self {
            bytes: input.bytes,
            reach: input.reach,
            segment: input.segment,
            seed: input.seed,
            sealed: input.sealed,
            at: input.start as usize,
            marked: input.start as usize,
            expect: input.first_commit,
            boot: input.boot,
            boot_max: input.boot,
            settled: vec![0; input.table.len()],
            guessed: vec![input.guessed; input.table.len()],
            first: input.table.clone(),
            table: input.table,
            producers: input.producers,
            damaged_bytes: 0,
            index: LiveIndex::default(),
            damage: Vec::new(),
            voucher: None,
            groups: 0,
            recent: VecDeque::new(),
        }
    }

    /// Takes the next group, or steps over damage; false at the end.
    fn step(&mut self) -> bool {
        if self.at >= self.bytes.len() {
            return false;
        }
        let view =
            parse_group(&self.bytes[self.at..], self.segment, self.seed).filter(|view| self.follows(view));
        if let Some(view) = view.as_ref().filter(|view| view.is_whole()) {
            self.take(view);
            return true;
        }
        let next = self.later(self.at + 1).next();
        // Where the header is lost, what stands before the first group is its table and no torn tail.
        let headless = self.expect.is_none();
        let damaged =
            self.sealed || headless || next.as_ref().is_some_and(|(at, _)| self.is_vouched_for(*at));
        if !damaged {
            if let Some((_, left_over)) = next {
                self.boot_max = self.boot_max.max(left_over.header.boot);
            }
            return false;
        }
        if let Some(view) = view {
            // Only bodies are damaged. The headers tell which events those are; a reader meets the checksum.
            let bad = view.batches.iter().filter(|(_, _, whole)| !whole);
            let start = self.at as u64;
            self.damage.extend(bad.map(|(at, batch, _)| {
                let from = start + *at as u64;
                from..from + u64::from(batch.len)
            }));
            self.take(&view);
            return true;
        }
        let to = next.as_ref().map_or(self.bytes.len(), |(at, _)| *at);
        self.damage.push(self.at as u64..to as u64);
        // Where the header is lost, the first block behind it is the table's at any rate: no events are missing there.
        let table = if headless && self.groups == 0 { BLOCK } else { 0 };
        self.salvage(to, next.as_ref().map(|(_, group)| group), table);
        if let Some(producers) = &mut self.producers {
            producers.forget();
        }
        self.at = to;
        self.expect = next.map(|(_, group)| group.header.commit);
        true
    }

    /// Takes the batches that are whole in damaged bytes up to `to`, where `next` follows. They stand for themselves; what is
    /// between them counts as damaged.
    fn salvage(&mut self, to: usize, next: Option<&GroupView>, table: usize) {
        let mut from = (self.at + table).min(to);
        for (pos, batch, whole) in salvage(self.bytes, self.at..to, self.segment, self.seed) {
            let p = batch.partition as usize;
            let guessed = self.guessed.get(p).copied().unwrap_or(false);
            let stands = self.table.get(p).map_or(0, |entry| entry.next_seq);
            let first_after = next.and_then(|group| {
                group
                    .batches
                    .iter()
                    .map(|(_, after, _)| after)
                    .find(|after| after.partition == batch.partition)
            });
            let fits = guessed || batch.base_seq >= stands;
            if !fits || first_after.is_some_and(|after| after.base_seq < batch.next_seq()) {
                continue;
            }
            self.damaged_bytes += pos.saturating_sub(from) as u64;
            from = pos + batch.len as usize;
            self.take_batch(pos, &batch, whole);
            if whole {
                self.recent.push_back((pos as u64..from as u64, vec![(pos as u64, batch)]));
            }
        }
        self.damaged_bytes += (to - from) as u64;
    }

    /// Whether a group may come next: numbered as expected, of no earlier boot, its batches where they belong.
    fn follows(&self, view: &GroupView) -> bool {
        let header = &view.header;
        header.boot >= self.boot
            && self.expect.is_none_or(|expect| header.commit == expect)
            && self.continues(view)
    }

    /// Whether a group is of a later commit, and no left-over of an earlier boot.
    fn is_later(&self, header: &GroupHeader) -> bool {
        header.boot >= self.boot && self.expect.is_none_or(|expect| header.commit >= expect)
    }

    fn continues(&self, view: &GroupView) -> bool {
        let mut last: Option<(u32, u64)> = None;
        view.batches.iter().all(|(_, batch, _)| {
            let p = batch.partition as usize;
            let again = last.filter(|(partition, _)| *partition == batch.partition);
            let stands = || self.table.get(p).map_or(0, |entry| entry.next_seq);
            let (next, again) = (again.map_or_else(stands, |(_, next)| next), again.is_some());
            last = Some((batch.partition, batch.next_seq()));
            let holed = self.settled.get(p).copied().unwrap_or(0) < self.damaged_bytes;
            let guessed = !again && self.guessed.get(p).copied().unwrap_or(false);
            batch.base_seq == next || guessed || (holed && batch.base_seq > next)
        })
    }

    /// The groups from `from` on that come later.
    fn later(&self, from: usize) -> impl Iterator<Item = (usize, GroupView)> + '_ {
        let rest = self.bytes.get(from..).unwrap_or_default();
        memmem::find_iter(rest, &MAGIC).filter_map(move |at| {
            let group = parse_group(&self.bytes[from + at..], self.segment, self.seed)?;
            self.is_later(&group.header).then_some((from + at, group))
        })
    }

    /// Whether a later group, `from` or behind it, was written only when all before it was durable. A relaxed one says
    /// nothing: the write before it may have been lost.
    fn is_vouched_for(&mut self, from: usize) -> bool {
        let known = self.voucher.is_some_and(|(at, header)| at >= from && self.is_later(&header));
        if !known {
            let found = self.later(from).find(|(_, group)| group.header.flags & FLAG_RELAXED == 0);
            self.voucher = found.map(|(at, group)| (at, group.header));
        }
        self.voucher.is_some()
    }

    /// Notes a batch at `pos`, and where its partition stands after it.
    fn take_batch(&mut self, pos: usize, batch: &BatchHeader, whole: bool) {
        let p = batch.partition as usize;
        if self.table.len() <= p {
            self.table.resize(p + 1, Default::default());
            self.first.resize(p + 1, Default::default());
            self.guessed.resize(p + 1, false);
            self.settled.resize(p + 1, 0);
        }
        if std::mem::take(&mut self.guessed[p]) {
            self.first[p] = TableEntry {
                next_seq: batch.base_seq,
                next_offset: batch.base_offset,
                last_offset: batch.base_offset,
                last_time: batch.time_ms,
            };
        }
        let entry = &mut self.table[p];
        entry.next_seq = batch.next_seq();
        entry.next_offset = batch.next_offset();
        entry.last_time = batch.time_ms;
        entry.last_offset = match whole {
            true => batch.last_offset(&self.bytes[pos + batch.head_len()..]),
            // Not known; no event of the batch has a higher one, and readers must not take those for ones still to come.
            false => batch.next_offset().saturating_sub(1).max(batch.base_offset),
        };
        self.settled[p] = self.damaged_bytes;
        if let (Some(producers), Some(stamp)) = (&mut self.producers, batch.producer) {
            producers.appended(stamp, &Placed::of(batch));
        }
        self.index.add(batch, pos as u64);
    }

    fn take(&mut self, view: &GroupView) {
        for (at, batch, whole) in &view.batches {
            self.take_batch(self.at + at, batch, *whole);
        }
        let from = self.at as u64;
        self.at += view.header.len as usize;
        if view.header.flags & FLAG_MARK != 0 {
            self.marked = self.at;
        }
        self.expect = Some(view.header.commit + 1);
        self.boot = view.header.boot;
        self.boot_max = self.boot_max.max(self.boot);
        self.groups += 1;
        let whole = view.batches.iter().filter(|(_, _, whole)| *whole);
        let batches = whole.map(|(at, batch, _)| (from + *at as u64, *batch)).collect();
        self.recent.push_back((from..self.at as u64, batches));
        let last_block = (self.at - self.at % BLOCK) as u64;
        while self.recent.front().is_some_and(|(group, _)| group.end <= last_block) {
            self.recent.pop_front();
        }
    }

    /// How much of a commit lies behind the last whole group. Behind a group its block is padded with zeros, so
    /// anything else there is a later write that did not finish.
    fn torn(&self) -> u64 {
        let rest = &self.bytes[self.at.min(self.bytes.len())..];
        let begun = GroupHeader::peek(rest, self.segment).filter(|header| self.is_later(header));
        if let Some(header) = begun {
            return u64::from(header.len).clamp(GROUP_HEADER as u64, rest.len() as u64);
        }
        let padding = (self.at.next_multiple_of(BLOCK) - self.at).min(rest.len());
        rest[..padding].iter().rposition(|byte| *byte != 0).map_or(0, |last| last as u64 + 1)
    }

    /// Whether groups may be missing because the file was shortened. A group starts where the one before it ends, so none
    /// is missing if there is room for one and none was begun, or one that ends within the file.
    fn is_cut(&self, torn: u64) -> bool {
        let rest = self.bytes.len().saturating_sub(self.at);
        self.reach > self.bytes.len() as u64 && (rest < GROUP_HEADER || torn >= rest as u64)
    }

    fn finish(mut self) -> Scan {
        let mut torn = if self.sealed { 0 } else { self.torn() };
        if self.is_cut(torn) {
            if self.at < self.bytes.len() {
                self.damage.push(self.at as u64..self.bytes.len() as u64);
            }
            self.damaged_bytes += self.reach.saturating_sub(self.at as u64);
            if let Some(producers) = &mut self.producers {
                producers.forget();
            }
            torn = 0;
        }
        let found = self.table.iter().map(|entry| entry.next_seq).collect();
        for (entry, settled) in self.table.iter_mut().zip(&self.settled) {
            // Events may have been lost whose numbers nothing tells. Numbers are never used twice, so skip as many as
            // there can have been; a reader gets an error for them.
            let lost = self.damaged_bytes - settled;
            if lost > 0 {
                entry.next_seq += lost.div_ceil(EVENT_BYTES_MIN);
                entry.next_offset += lost;
                entry.last_offset = entry.next_offset - 1;
            }
        }
        for ((first, entry), _) in
            self.first.iter_mut().zip(&self.table).zip(&self.guessed).filter(|(_, guessed)| **guessed)
        {
            *first = *entry;
        }
        Scan {
            end: self.at as u64,
            marked: self.marked as u64,
            first: self.first,
            table: self.table,
            found,
            producers: self.producers,
            index: self.index,
            damage: self.damage,
            torn,
            next_commit: self.expect,
            boot_max: self.boot_max,
            groups: self.groups,
            tail_start: self.recent.front().map_or(self.at as u64, |(group, _)| group.start),
            tail: self.recent.into_iter().flat_map(|(_, batches)| batches).collect(),
        }
    }
}
