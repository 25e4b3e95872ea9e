//! Finding a place in a partition by offset or time: the index gives a batch at or before it, reading gives the rest.

use std::cmp::Ordering::{Equal, Greater, Less};
use std::sync::Arc;

use super::core::{Core, read};
use super::error::ReadError;
use super::format::{IndexEntry, StoredBatch, StoredEvent};
use super::reader::LogReader;
use super::segment::Segment;

/// Where a reader starts.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum LogPosition {
    /// The oldest event there is.
    Earliest,
    /// Only events that are appended from now on.
    Latest,
    /// The event with this sequence number. The next one to be appended is a valid place too.
    Seq(u64),
    /// The first event at this offset or after it.
    Offset(u64),
    /// The first event enqueued at this time, in milliseconds since 1970, or later.
    Time(i64),
}

/// The sequence number of the event at a position, or of the next one to be appended.
pub(crate) fn resolve(core: &Arc<Core>, partition: u32, position: LogPosition) -> Result<u64, ReadError> {
    let end = match read(&core.ends).get(partition as usize) {
        Some(end) => *end,
        None => {
            let partitions = read(&core.ends).len() as u32;
            return Err(ReadError::NoPartition { partition, partitions });
        }
    };
    let (first, oldest) = (core.first_seq(partition), core.oldest_seq(partition));
    // Where events are lost before the oldest one, a place before its segment's start may be among them.
    let start = read(&core.segments).front().and_then(|s| s.table.get(partition as usize).copied());
    let ahead = |asked, next| Err(ReadError::Ahead { partition, asked, next });
    match position {
        LogPosition::Earliest => Ok(first),
        LogPosition::Latest => Ok(end.next_seq),
        LogPosition::Seq(seq) if seq > end.next_seq => ahead(seq, end.next_seq),
        LogPosition::Seq(seq) if seq < first => Err(ReadError::Gone { partition, from: seq, first }),
        LogPosition::Seq(seq) => Ok(seq),
        LogPosition::Offset(offset) if offset > end.next_offset => ahead(offset, end.next_offset),
        LogPosition::Offset(offset) => {
            let first_offset = start.map_or(0, |start| start.next_offset);
            if offset < first_offset && first < oldest {
                return Ok(first);
            }
            if offset < first_offset {
                return Err(ReadError::OffsetGone { partition, offset, first_offset, first });
            }
            let started = |segment: &Segment| {
                segment.table.get(partition as usize).is_none_or(|start| start.next_offset <= offset)
            };
            let from = candidate(core, partition, started, |entry| entry.offset <= offset)?;
            search(core, partition, from, end.next_seq, |event| event.offset.cmp(&offset))
        }
        LogPosition::Time(time) if first < oldest && start.is_some_and(|start| time <= start.last_time) => {
            Ok(first)
        }
        LogPosition::Time(time) => {
            let started = |segment: &Segment| {
                segment.table.get(partition as usize).is_none_or(|start| start.last_time < time)
            };
            let from = candidate(core, partition, started, |entry| entry.time_ms < time)?;
            // Others may have come at the same time, so an equal one is not the first for certain.
            let place = |event: &StoredEvent<'_>| if event.time_ms < time { Less } else { Greater };
            search(core, partition, from, end.next_seq, place)
        }
    }
}

/// An event from which reading on reaches the wanted one: the last index entry before it, in the last segment that
/// starts before it.
fn candidate(
    core: &Core,
    partition: u32,
    started: impl Fn(&Segment) -> bool,
    before: impl Fn(&IndexEntry) -> bool,
) -> Result<u64, ReadError> {
    let segment = {
        let segments = read(&core.segments);
        let after = segments.partition_point(|segment| started(segment));
        segments.get(after.saturating_sub(1)).cloned()
    };
    let Some(segment) = segment else { return Ok(0) };
    // Without an entry before the place, all of the segment may be: its first batches may be damaged.
    let found = core.with_entries(&segment, partition, |entries| {
        let after = entries.partition_point(&before);
        after.checked_sub(1).and_then(|at| entries.get(at)).map(|entry| entry.seq)
    });
    let found = found.map_err(|source| core.read_error(segment.id, source))?;
    Ok(found.unwrap_or(segment.first_seq(partition)))
}

/// Reads on from `from` up to the wanted event: the first that is not less than the place. `place` compares an event with it.
///
/// What is damaged on the way is passed over only if it is before the place for certain, because an event behind it is not
/// after the place. Otherwise the place may be in it: the reader starts with the damage, and meets it.
fn search(
    core: &Arc<Core>,
    partition: u32,
    from: u64,
    end: u64,
    place: impl Fn(&StoredEvent<'_>) -> std::cmp::Ordering,
) -> Result<u64, ReadError> {
    let mut reader = LogReader::new(core.clone(), partition, from);
    let mut batches: Vec<StoredBatch> = Vec::new();
    let mut damaged: Option<u64> = None;
    while reader.next_seq() < end {
        batches.clear();
        match reader.read(1 << 16, &mut batches) {
            Ok(()) => {}
            Err(ReadError::Corrupt { resume: next, .. } | ReadError::Lost { next, .. }) => {
                damaged.get_or_insert(reader.next_seq());
                reader.seek(next);
            }
            Err(ReadError::Gone { first, .. }) => reader.seek(first),
            Err(error) => return Err(error),
        }
        for event in batches.iter().flat_map(StoredBatch::events) {
            match place(&event) {
                Less => damaged = None,
                Equal => return Ok(event.seq),
                Greater => return Ok(damaged.unwrap_or(event.seq)),
            }
        }
    }
    Ok(damaged.unwrap_or(end))
}
