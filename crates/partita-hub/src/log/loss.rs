//! Acknowledged events that are not there: what a start finds out by the record, and how numbers go on after it. Pure.

use std::fmt;
use std::ops::Range;

use super::format::{Acknowledged, Table, TableEntry};

/// How many events of a partition, and bytes, can have followed a record that was not the last word: more than a hub
/// takes while the record lags. Numbers are skipped rather than used twice, and there are 2^63 of them.
const UNRECORDED_EVENTS_MAX: u64 = 1 << 28;
const UNRECORDED_BYTES_MAX: u64 = 1 << 40;

/// Acknowledged events that are missing from a hub's log, as its record tells.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct Loss {
    /// The events that are missing, of each partition that lost some. More may have followed them unless `exact`.
    pub events: Vec<LostEvents>,
    /// The newest segments, if they are missing.
    pub segments: Range<u64>,
    /// The numbers that no event has, once the loss was accepted: what is missing, and what may have followed it.
    pub skipped: Vec<LostEvents>,
    /// Whether the record was written when the log was closed, so that it tells of all that was acknowledged.
    pub exact: bool,
}

/// Events of one partition that are missing.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct LostEvents {
    /// The partition.
    pub partition: u32,
    /// Their sequence numbers.
    pub numbers: Range<u64>,
}

impl fmt::Display for Loss {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let least = if self.exact { "" } else { "at least " };
        let mut between = "";
        if let Some(LostEvents { partition, numbers }) = self.events.first() {
            let (first, last) = (numbers.start, numbers.end - 1);
            write!(f, "{least}events {first} to {last} of partition {partition}")?;
            match self.events.len() - 1 {
                0 => {}
                1 => write!(f, " and events of 1 more partition")?,
                more => write!(f, " and events of {more} more partitions")?,
            }
            between = ", ";
        }
        if !self.segments.is_empty() {
            let (first, last) = (self.segments.start, self.segments.end - 1);
            write!(f, "{between}segments {first:016x} to {last:016x}")?;
        }
        Ok(())
    }
}

/// Compares the record with what is there: where each partition ends, and the newest segment, 0 if there is none.
pub(crate) fn compare(record: &Acknowledged, ends: &[u64], newest: u64) -> Option<Loss> {
    let end = |p: usize| ends.get(p).copied().unwrap_or(0);
    let missing = record.table.iter().zip(0..).filter_map(|(entry, partition)| {
        let numbers = end(partition as usize)..entry.next_seq;
        (!numbers.is_empty()).then_some(LostEvents { partition, numbers })
    });
    let loss = Loss {
        events: missing.collect(),
        segments: newest.saturating_add(1)..record.segment.saturating_add(1),
        skipped: Vec::new(),
        exact: record.closed,
    };
    (!loss.events.is_empty() || !loss.segments.is_empty()).then_some(loss)
}

impl Loss {
    /// Notes which numbers no event has, given where the events that are there end and where numbers go on.
    pub(crate) fn skip(&mut self, ends: &[u64], beyond: &[TableEntry]) {
        let end = |p: u32| ends.get(p as usize).copied().unwrap_or(0);
        let skipped = beyond
            .iter()
            .zip(0..)
            .map(|(entry, partition)| LostEvents { partition, numbers: end(partition)..entry.next_seq });
        self.skipped = skipped.filter(|lost| !lost.numbers.is_empty()).collect();
    }
}

/// Where numbers go on after a loss: above all that can have been acknowledged.
pub(crate) fn beyond(record: &Acknowledged, table: &[TableEntry]) -> Table {
    let (events, bytes) = if record.closed { (0, 0) } else { (UNRECORDED_EVENTS_MAX, UNRECORDED_BYTES_MAX) };
    let at = |table: &[TableEntry], p: usize| table.get(p).copied().unwrap_or_default();
    let raised = |p: usize| {
        let (known, found) = (at(&record.table, p), at(table, p));
        TableEntry {
            next_seq: found.next_seq.max(known.next_seq.saturating_add(events)),
            next_offset: found.next_offset.max(known.next_offset.saturating_add(bytes)),
            last_offset: found.last_offset.max(known.last_offset),
            last_time: found.last_time.max(known.last_time),
        }
    };
    (0..table.len().max(record.table.len())).map(raised).collect()
}

#[cfg(test)]
mod tests {
    use super::super::format::StoreId;
    use super::*;

    fn record(ends: &[u64], segment: u64, closed: bool) -> Acknowledged {
        let entry = |seq: &u64| TableEntry { next_seq: *seq, next_offset: seq * 10, ..Default::default() };
        let table = ends.iter().map(entry).collect();
        Acknowledged {
            store: StoreId([1; 16]),
            hub: 1,
            number: 1,
            segment,
            next_commit: 1,
            boot: 1,
            closed,
            table,
        }
    }

    #[test]
    fn more_than_was_recorded_is_no_loss() {
        assert_eq!(compare(&record(&[3, 0], 2, false), &[4, 9, 1], 3), None);
        assert_eq!(compare(&record(&[3, 0], 2, true), &[3, 0], 2), None);
    }

    #[test]
    fn what_is_missing_is_named() {
        let said = |ends: &[u64], segment, closed, found: &[u64], newest| {
            compare(&record(ends, segment, closed), found, newest).map(|loss| loss.to_string())
        };
        let events = said(&[9, 4, 5], 1, true, &[6, 4, 5], 1);
        assert_eq!(events.as_deref(), Some("events 6 to 8 of partition 0"));
        let more = said(&[9, 4, 5], 3, false, &[6, 2], 1);
        assert_eq!(
            more.as_deref(),
            Some(
                "at least events 6 to 8 of partition 0 and events of 2 more partitions, \
                 segments 0000000000000002 to 0000000000000003"
            )
        );
        let empty = said(&[0], 1, true, &[0], 0);
        assert_eq!(empty.as_deref(), Some("segments 0000000000000001 to 0000000000000001"));
    }

    #[test]
    fn numbers_go_on_above_all_that_can_have_been_acknowledged() {
        let ends = |table: Table| table.iter().map(|entry| entry.next_seq).collect::<Vec<_>>();
        let found = [TableEntry { next_seq: 7, ..Default::default() }; 2];
        assert_eq!(ends(beyond(&record(&[9, 3, 2], 1, true), &found)), [9, 7, 2]);
        let margin = UNRECORDED_EVENTS_MAX;
        assert_eq!(ends(beyond(&record(&[9, 3], 1, false), &found)), [9 + margin, 3 + margin]);
    }
}
