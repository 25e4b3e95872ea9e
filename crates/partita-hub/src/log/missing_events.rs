//! Acknowledged events that are not there: what a start finds out by the record, and how numbers go on after it. Pure.

use std::fmt;
use std::ops::Range;

use super::format::{Acknowledged, Table, TableEntry};
use super::lost_ranges::Events;

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
            write!(f, "{least}{} of partition {partition}", Events(numbers.start, numbers.end))?;
            match self.events.len() - 1 {
                0 => {}
                1 => write!(f, " and events of 1 more partition")?,
                more => write!(f, " and events of {more} more partitions")?,
            }
            between = ", ";
        }
        if !self.segments.is_empty() {
            write!(f, "{between}{}", Segments(&self.segments))?;
        }
        Ok(())
    }
}

/// Segments in words.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Segments<'a>(pub(crate) &'a Range<u64>);

impl fmt::Display for Segments<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (first, last) = (self.0.start, self.0.end.saturating_sub(1));
        match first == last {
            true => write!(f, "segment {first:016x}"),
            false => write!(f, "segments {first:016x} to {last:016x}"),
        }
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
    /// "was", or "were": what its words call for.
    pub(crate) fn were(&self) -> &'static str {
        let events: u64 = self.events.iter().map(|lost| lost.numbers.end - lost.numbers.start).sum();
        if events + self.segments.clone().count() as u64 == 1 { "was" } else { "were" }
    }

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

/// What a record is worth, given the highest boot in the log: if the log was opened once more after it was closed and
/// recorded, and that could not be recorded, more can have been acknowledged.
pub(crate) fn as_of(record: &Acknowledged, boot_max: u32) -> Acknowledged {
    Acknowledged { closed: record.closed && boot_max <= record.boot, ..record.clone() }
}

/// Settles where partitions end whose last events are damaged. The table has skipped as many numbers as the damaged bytes can
/// have held; a record that was the last word knows how many there were. Without one the last of them may be of this moment.
pub(crate) fn settle(record: Option<&Acknowledged>, found: &[u64], now_ms: i64, table: &mut [TableEntry]) {
    let told = record.filter(|record| record.closed);
    for (p, (entry, found)) in table.iter_mut().zip(found).enumerate() {
        if entry.next_seq == *found {
            continue;
        }
        let told = told.map(|record| record.table.get(p).copied().unwrap_or_default());
        match told.filter(|told| (*found..=entry.next_seq).contains(&told.next_seq)) {
            Some(told) => *entry = told,
            None => entry.last_time = entry.last_time.max(now_ms),
        }
    }
}

/// Where numbers go on after a loss: above all that can have been acknowledged, up to this moment.
pub(crate) fn beyond(record: &Acknowledged, table: &[TableEntry], now_ms: i64) -> Table {
    let at = |table: &[TableEntry], p: usize| table.get(p).copied().unwrap_or_default();
    let raised = |p: usize| {
        let (known, found) = (at(&record.table, p), at(table, p));
        let known = match record.closed {
            true => known,
            false => {
                let next_offset = known.next_offset.saturating_add(UNRECORDED_BYTES_MAX);
                TableEntry {
                    next_seq: known.next_seq.saturating_add(UNRECORDED_EVENTS_MAX),
                    next_offset,
                    last_offset: next_offset - 1,
                    last_time: known.last_time.max(now_ms),
                }
            }
        };
        TableEntry {
            next_seq: found.next_seq.max(known.next_seq),
            next_offset: found.next_offset.max(known.next_offset),
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
        assert_eq!(empty.as_deref(), Some("segment 0000000000000001"));
    }

    #[test]
    fn numbers_go_on_above_all_that_can_have_been_acknowledged() {
        let ends = |table: Table| table.iter().map(|entry| entry.next_seq).collect::<Vec<_>>();
        let found = [TableEntry { next_seq: 7, ..Default::default() }; 2];
        assert_eq!(ends(beyond(&record(&[9, 3, 2], 1, true), &found, 5)), [9, 7, 2]);
        let margin = UNRECORDED_EVENTS_MAX;
        let raised = beyond(&record(&[9, 3], 1, false), &found, 5);
        assert!(
            raised.iter().all(|entry| entry.last_offset == entry.next_offset - 1 && entry.last_time == 5)
        );
        assert_eq!(ends(raised), [9 + margin, 3 + margin]);
    }

    #[test]
    fn a_record_that_is_the_last_word_settles_how_many_events_damaged_bytes_held() {
        let skipped = |next_seq| TableEntry { next_seq, next_offset: 1_000, last_offset: 999, last_time: 1 };
        let settled = |record: &Acknowledged| {
            let mut table = [skipped(100), skipped(100), skipped(7), skipped(100)];
            settle(Some(record), &[5, 9, 7, 0], 50, &mut table);
            table.map(|entry| (entry.next_seq, entry.last_time))
        };
        // Events of the second are missing beyond the damage, the third is whole, the fourth never had one.
        assert_eq!(settled(&record(&[8, 101, 7], 1, true)), [(8, 0), (100, 50), (7, 1), (0, 0)]);
        let all = [(100, 50), (100, 50), (7, 1), (100, 50)];
        assert_eq!(settled(&record(&[8, 101, 7], 1, false)), all);
        assert_eq!(settled(&as_of(&record(&[8, 101, 7], 1, true), 2)), all, "opened once more");
        assert_eq!(settled(&as_of(&record(&[8, 101, 7], 1, true), 1))[0], (8, 0));
    }
}
