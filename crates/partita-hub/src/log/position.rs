//! Finding a place in a partition by offset or time: the index gives a batch at or before it, reading gives the rest.

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
    let first = core.first_seq(partition);
    let ahead = |asked, next| Err(ReadError::Ahead { partition, asked, next });
    match position {
        LogPosition::Earliest => Ok(first),
        LogPosition::Latest => Ok(end.next_seq),
        LogPosition::Seq(seq) if seq > end.next_seq => ahead(seq, end.next_seq),
        LogPosition::Seq(seq) if seq < first => Err(ReadError::Gone { partition, from: seq, first }),
        LogPosition::Seq(seq) => Ok(seq),
        LogPosition::Offset(offset) if offset > end.next_offset => ahead(offset, end.next_offset),
        LogPosition::Offset(offset) => {
            let oldest = read(&core.segments).front().and_then(|s| s.table.get(partition as usize).copied());
            let first_offset = oldest.map_or(0, |start| start.next_offset);
            if offset < first_offset {
                return Err(ReadError::OffsetGone { partition, offset, first_offset, first });
            }
            let started = |segment: &Segment| {
                segment.table.get(partition as usize).is_none_or(|start| start.next_offset <= offset)
            };
            let from = candidate(core, partition, started, |entry| entry.offset <= offset)?;
            search(core, partition, from, end.next_seq, |event| event.offset >= offset)
        }
        LogPosition::Time(time) => {
            let started = |segment: &Segment| {
                segment.table.get(partition as usize).is_none_or(|start| start.last_time < time)
            };
            let from = candidate(core, partition, started, |entry| entry.time_ms < time)?;
            search(core, partition, from, end.next_seq, |event| event.time_ms >= time)
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
    let found = core.with_entries(&segment, partition, |entries| {
        let after = entries.partition_point(&before);
        entries.get(after.saturating_sub(1)).map(|entry| entry.seq)
    });
    let found = found.map_err(|source| ReadError::Io { segment: segment.id, source })?;
    Ok(found.unwrap_or(segment.first_seq(partition)))
}

fn search(
    core: &Arc<Core>,
    partition: u32,
    from: u64,
    end: u64,
    wanted: impl Fn(&StoredEvent<'_>) -> bool,
) -> Result<u64, ReadError> {
    let mut reader = LogReader::new(core.clone(), partition, from);
    let mut batches: Vec<StoredBatch> = Vec::new();
    while reader.next_seq() < end {
        batches.clear();
        match reader.read(1 << 16, &mut batches) {
            Ok(()) => {}
            // What is damaged cannot be the place; the reader meets the damage if it lies behind the place.
            Err(ReadError::Corrupt { resume, .. }) => reader.seek(resume),
            Err(ReadError::Gone { first, .. }) => reader.seek(first),
            Err(error) => return Err(error),
        }
        if let Some(event) = batches.iter().flat_map(StoredBatch::events).find(&wanted) {
            return Ok(event.seq);
        }
    }
    Ok(end)
}
