//! Looks through a whole segment and says which events in it can be read. No I/O: bytes in, findings out.
//!
//! Every batch stands for itself: it has checksums of its own, so those of a group whose header is damaged are still
//! read. What no whole batch covers is lost.

use std::ops::Range;

use memchr::memmem;

use super::format::{
    BATCH_HEADER, BatchHeader, GROUP_HEADER, GROUP_MAGIC, GroupHeader, GroupView, Seed, parse_group,
};
use super::index::LiveIndex;
use super::lost_ranges::{LostRange, without};
use super::scan::EVENT_BYTES_MIN;

/// What is to be looked through.
#[derive(Debug)]
pub(crate) struct ExamineInput<'a> {
    /// The segment from its start, as far as its groups reach on disk.
    pub(crate) bytes: &'a [u8],
    /// Where groups start.
    pub(crate) start: u64,
    pub(crate) segment: u64,
    pub(crate) seed: Seed,
    /// The commit before the first group, and the boot in which the segment was begun, if they are known.
    pub(crate) before: Option<(u64, u32)>,
    /// For each partition, the numbers of the events that belong here: up to the next segment that is there.
    pub(crate) spans: Vec<Range<u64>>,
    /// Whether groups reach beyond the bytes: the last block of a segment that is being written is in memory only.
    pub(crate) cut_off: bool,
    /// Events of partitions that memory has, whatever the disk says.
    pub(crate) cached: Vec<(u32, Range<u64>)>,
    /// Whether the segment that should follow is not there: then its events are lost with those that are damaged here.
    pub(crate) next_missing: bool,
}

/// What was found.
#[derive(Debug, Default)]
pub(crate) struct Examined {
    /// Where every batch lies whose header is whole.
    pub(crate) index: LiveIndex,
    /// Events that no batch covers.
    pub(crate) lost: Vec<LostRange>,
    /// Bytes that are not what was written.
    pub(crate) damage: Vec<Range<u64>>,
    /// Events that are damaged here and that only memory has: they are lost when the process ends.
    pub(crate) memory_only: Vec<(u32, Range<u64>)>,
}

/// A whole batch: its events, and the damaged bytes that were met before it.
struct Cover {
    events: Range<u64>,
    damaged_before: u64,
}

/// Looks through the bytes.
pub(crate) fn examine(input: &ExamineInput<'_>) -> Examined {
    let mut out = Examined::default();
    let mut covers: Vec<Vec<Cover>> = Vec::new();
    covers.resize_with(input.spans.len(), Vec::new);
    let (mut at, mut damaged) = (input.start as usize, 0);
    let mut last = input.before;
    while at < input.bytes.len() {
        let group = parse_group(&input.bytes[at..], input.segment, input.seed);
        let (batches, end) = match group.filter(|group| follows(group, last)) {
            Some(group) => {
                last = Some((group.header.commit, group.header.boot));
                let end = at + group.header.len as usize;
                (group.batches.into_iter().map(|(pos, batch, whole)| (at + pos, batch, whole)).collect(), end)
            }
            None if input.cut_off && is_cut_off(&input.bytes[at..], input.segment) => {
                // The rest of the group is not to be read from disk yet: memory has it.
                let end = input.bytes.len();
                let mut batches = salvage(input.bytes, at..end, input.segment, input.seed);
                batches.retain(|(_, _, whole)| *whole);
                (batches, end)
            }
            None => {
                let end = next_group(input, at + 1, last);
                out.damage.push(at as u64..end as u64);
                (salvage(input.bytes, at..end, input.segment, input.seed), end)
            }
        };
        let in_damage = out.damage.last().is_some_and(|bytes| bytes.start == at as u64);
        let mut from = at;
        for (pos, batch, whole) in batches {
            let to = pos + batch.len as usize;
            if in_damage {
                damaged += (pos - from) as u64;
                from = to;
            }
            out.index.add(&batch, pos as u64);
            if !whole {
                damaged += u64::from(batch.len);
                if !in_damage {
                    out.damage.push(pos as u64..to as u64);
                }
            } else if let Some(covers) = covers.get_mut(batch.partition as usize) {
                covers.push(Cover { events: batch.base_seq..batch.next_seq(), damaged_before: damaged });
            }
        }
        if in_damage {
            damaged += (end - from) as u64;
        }
        at = end;
    }
    for ((partition, span), covers) in (0..).zip(&input.spans).zip(&covers) {
        let cached = input.cached.iter().filter(|(of, _)| *of == partition).map(|(_, events)| events.clone());
        let mut whole: Vec<_> = covers.iter().map(|cover| cover.events.clone()).chain(cached).collect();
        whole.sort_by_key(|events| events.start);
        let lost = without(span.clone(), &whole);
        if !out.damage.is_empty() {
            let on_disk: Vec<_> = covers.iter().map(|cover| cover.events.clone()).collect();
            // Where the last block is still being written, what lies behind all that the disk has is in that block.
            let is_here =
                |hole: &Range<u64>| !input.cut_off || on_disk.iter().any(|events| hole.end <= events.start);
            let holes = without(span.clone(), &on_disk).into_iter().filter(is_here);
            let kept = holes.flat_map(|hole| without(hole, &lost));
            out.memory_only.extend(kept.map(|events| (partition, events)));
        }
        out.lost.extend(lost.into_iter().map(|hole| LostRange {
            partition,
            segment: input.segment,
            certain: is_certain(input, &hole, span, covers, damaged),
            first: hole.start,
            next: hole.end,
            accepted: false,
        }));
    }
    out
}

/// Whether what the bytes begin with is a group that goes on behind them.
fn is_cut_off(bytes: &[u8], segment: u64) -> bool {
    bytes.len() < GROUP_HEADER
        || GroupHeader::peek(bytes, segment).is_some_and(|header| header.len as usize > bytes.len())
}

/// Whether a group is of a later commit than the one before it, and no left-over of an earlier boot.
fn follows(group: &GroupView, last: Option<(u64, u32)>) -> bool {
    last.is_none_or(|(commit, boot)| group.header.commit > commit && group.header.boot >= boot)
}

/// Where the next group begins, or the bytes end.
fn next_group(input: &ExamineInput<'_>, from: usize, last: Option<(u64, u32)>) -> usize {
    let rest = input.bytes.get(from..).unwrap_or_default();
    let magic = GROUP_MAGIC.to_le_bytes();
    let is_next = |at: &usize| {
        parse_group(&rest[*at..], input.segment, input.seed).is_some_and(|group| follows(&group, last))
    };
    memmem::find_iter(rest, &magic).find(is_next).map_or(input.bytes.len(), |at| from + at)
}

/// The batches in bytes that make no group: each with its place, and whether its events are whole too. Left-overs of an
/// earlier boot are none of them.
pub(crate) fn salvage(
    bytes: &[u8],
    range: Range<usize>,
    segment: u64,
    seed: Seed,
) -> Vec<(usize, BatchHeader, bool)> {
    let mut out: Vec<(usize, BatchHeader, bool)> = Vec::new();
    let mut at = range.start;
    while at + BATCH_HEADER <= range.end {
        if let Some(left_over) = parse_group(&bytes[at..range.end], segment, seed) {
            at += left_over.header.len as usize;
            continue;
        }
        let batch = BatchHeader::decode(&bytes[at..range.end], seed);
        match batch.filter(|batch| at + batch.len as usize <= range.end) {
            Some(batch) => {
                let end = at + batch.len as usize;
                let whole = batch.body_is_whole(&bytes[at + batch.head_len()..end]);
                out.push((at, batch, whole));
                at = end;
            }
            None => at += 1,
        }
    }
    out
}

/// Whether all numbers of a hole were given to events. Where nothing told how many events were lost, as many numbers were
/// skipped as the damaged bytes can have held; real events need a header, too.
fn is_certain(
    input: &ExamineInput<'_>,
    hole: &Range<u64>,
    span: &Range<u64>,
    covers: &[Cover],
    damaged: u64,
) -> bool {
    if input.next_missing && hole.end == span.end {
        return true;
    }
    let before = covers.iter().rev().find(|cover| cover.events.end <= hole.start);
    let after = covers.iter().find(|cover| cover.events.start >= hole.end);
    let to = after.map_or(damaged, |cover| cover.damaged_before);
    let bytes = to.saturating_sub(before.map_or(0, |cover| cover.damaged_before));
    (hole.end - hole.start).saturating_mul(EVENT_BYTES_MIN) + BATCH_HEADER as u64 <= bytes
}
