//! Which events are lost to damage, and which of these losses somebody accepted. Pure; `book.rs` keeps it in a file.

use std::fmt;
use std::ops::Range;

/// The most ranges that are remembered. Damage beyond them is found again by whoever reads there.
pub(crate) const RANGES_MAX: usize = 1 << 16;

/// Events of a partition that cannot be read: the bytes on disk are not those that were written, or are not there.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct LostRange {
    /// The partition.
    pub partition: u32,
    /// The first event that cannot be read.
    pub first: u64,
    /// The first event after the range, readable or the next to be appended.
    pub next: u64,
    /// The segment in which they were, or the one before a segment that is missing.
    pub segment: u64,
    /// Whether all these numbers were given to events. If not, there were at most as many: numbers were skipped because
    /// nothing told how many events the damaged bytes held.
    pub certain: bool,
    /// Whether the loss was accepted: readers pass over the range, and report it as a gap.
    pub accepted: bool,
}

impl LostRange {
    /// The last event of the range.
    pub fn last(&self) -> u64 {
        self.next.saturating_sub(1)
    }

    /// How many numbers the range has.
    pub fn events(&self) -> u64 {
        self.next.saturating_sub(self.first)
    }

    fn holds(&self, partition: u32, seq: u64) -> bool {
        self.partition == partition && (self.first..self.next).contains(&seq)
    }

    /// Whether `after` goes on where this one ends, as one loss.
    fn meets(&self, after: &Self) -> bool {
        (self.partition, self.next, self.accepted) == (after.partition, after.first, after.accepted)
    }
}

impl fmt::Display for LostRange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { partition, first, .. } = self;
        match self.events() {
            1 => write!(f, "event {first} of partition {partition}")?,
            _ => write!(f, "events {first} to {} of partition {partition}", self.last())?,
        }
        if self.certain { Ok(()) } else { f.write_str(" (at most)") }
    }
}

/// Why a loss cannot be accepted.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum NotLost {
    /// This event of the range can be read.
    Readable(u64),
    /// There are too many ranges already.
    TooMany,
}

/// The lost ranges of a hub: in order, none overlaps another.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(crate) struct Losses(Vec<LostRange>);

impl Losses {
    /// Those that were written down; of overlapping ones the first counts.
    pub(crate) fn of(mut ranges: Vec<LostRange>) -> Self {
        ranges.sort_by_key(|range| (range.partition, range.first));
        let mut kept: Vec<LostRange> = Vec::with_capacity(ranges.len());
        for range in ranges.into_iter().filter(|range| range.first < range.next) {
            let overlaps = |last: &LostRange| last.partition == range.partition && last.next > range.first;
            if !kept.last().is_some_and(overlaps) {
                kept.push(range);
            }
        }
        Self(kept)
    }

    pub(crate) fn ranges(&self) -> &[LostRange] {
        &self.0
    }

    /// The same as readers see them: what meets is one range.
    pub(crate) fn joined(&self) -> Vec<LostRange> {
        let mut out: Vec<LostRange> = Vec::new();
        for range in &self.0 {
            match out.last_mut() {
                Some(last) if last.meets(range) => {
                    last.next = range.next;
                    last.certain &= range.certain;
                }
                _ => out.push(*range),
            }
        }
        out
    }

    /// The range that holds an event, with those that it meets.
    pub(crate) fn at(&self, partition: u32, seq: u64) -> Option<LostRange> {
        let after = self.0.partition_point(|range| (range.partition, range.first) <= (partition, seq));
        let at = after.checked_sub(1).filter(|at| self.0[*at].holds(partition, seq))?;
        let mut found = self.0[at];
        for before in self.0[..at].iter().rev() {
            if !before.meets(&found) {
                break;
            }
            found = LostRange { first: before.first, certain: found.certain && before.certain, ..found };
        }
        for next in &self.0[at + 1..] {
            if !found.meets(next) {
                break;
            }
            found = LostRange { next: next.next, certain: found.certain && next.certain, ..found };
        }
        Some(found)
    }

    /// A segment was looked through, and these are all that is lost in it. What was accepted stays accepted. Returns what
    /// was not known before, and whether anything changed.
    pub(crate) fn found(&mut self, segment: u64, lost: &[LostRange]) -> (Vec<LostRange>, bool) {
        let before = self.clone();
        self.0.retain(|range| range.accepted || range.segment != segment);
        let mut fresh = Vec::new();
        for range in lost {
            let known: Vec<Range<u64>> = self
                .0
                .iter()
                .filter(|known| known.partition == range.partition)
                .map(|known| known.first..known.next)
                .collect();
            fresh.extend(without(range.first..range.next, &known).into_iter().map(|rest| LostRange {
                first: rest.start,
                next: rest.end,
                ..*range
            }));
        }
        let room = RANGES_MAX.saturating_sub(self.0.len());
        self.0.extend(fresh.iter().take(room));
        self.0.sort_by_key(|range| (range.partition, range.first));
        fresh.retain(|range| before.at(range.partition, range.first).is_none());
        let changed = *self != before;
        (fresh, changed)
    }

    /// Accepts the loss of a range, every event of which must be lost.
    pub(crate) fn accept(&mut self, partition: u32, wanted: Range<u64>) -> Result<(), NotLost> {
        let mut seq = wanted.start;
        while seq < wanted.end {
            seq = self.at(partition, seq).ok_or(NotLost::Readable(seq))?.next;
        }
        let mut out: Vec<LostRange> = Vec::with_capacity(self.0.len() + 2);
        for range in &self.0 {
            let (first, next) = (range.first.max(wanted.start), range.next.min(wanted.end));
            if range.partition != partition || first >= next {
                push(&mut out, *range);
                continue;
            }
            let parts = [
                LostRange { next: first, ..*range },
                LostRange { first, next, accepted: true, ..*range },
                LostRange { first: next, ..*range },
            ];
            for part in parts.into_iter().filter(|part| part.first < part.next) {
                push(&mut out, part);
            }
        }
        if out.len() > RANGES_MAX {
            return Err(NotLost::TooMany);
        }
        self.0 = out;
        Ok(())
    }

    /// Notes the loss of ranges that was accepted before anybody looked there.
    pub(crate) fn give_up(&mut self, newest: u64, ranges: &[LostRange]) -> Result<(), NotLost> {
        self.found(newest, ranges);
        ranges.iter().try_for_each(|range| self.accept(range.partition, range.first..range.next))
    }

    /// Forgets what lies before each partition's first event: retention removed it. True if there was anything.
    pub(crate) fn forget_before(&mut self, first_seq: impl Fn(u32) -> u64) -> bool {
        let before = self.0.len();
        let mut cut = false;
        self.0.retain_mut(|range| {
            let first = first_seq(range.partition);
            cut |= range.first < first;
            range.first = range.first.max(first);
            range.first < range.next
        });
        cut || self.0.len() != before
    }
}

/// Adds a range behind others; accepted ones that meet become one, so that facts about old damage stay few.
fn push(out: &mut Vec<LostRange>, range: LostRange) {
    match out.last_mut() {
        Some(last) if last.accepted && last.meets(&range) => {
            last.next = range.next;
            last.certain &= range.certain;
        }
        _ => out.push(range),
    }
}

/// What is left of a range without others, which are in order.
pub(crate) fn without(range: Range<u64>, others: &[Range<u64>]) -> Vec<Range<u64>> {
    let (mut out, mut at) = (Vec::new(), range.start);
    for other in others.iter().filter(|other| other.end > range.start && other.start < range.end) {
        if other.start > at {
            out.push(at..other.start);
        }
        at = at.max(other.end);
    }
    if at < range.end {
        out.push(at..range.end);
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lost(partition: u32, first: u64, next: u64, segment: u64) -> LostRange {
        LostRange { partition, first, next, segment, certain: true, accepted: false }
    }

    fn view(losses: &Losses) -> Vec<(u64, u64, bool)> {
        losses.ranges().iter().map(|range| (range.first, range.next, range.accepted)).collect()
    }

    #[test]
    fn what_meets_across_segments_is_one_range_to_readers() {
        let losses =
            Losses::of(vec![lost(0, 5, 9, 1), lost(0, 9, 12, 2), lost(0, 13, 14, 2), lost(1, 14, 15, 2)]);
        for seq in 5..12 {
            let range = losses.at(0, seq).expect("lost");
            assert_eq!((range.first, range.next), (5, 12));
        }
        assert_eq!(losses.at(0, 12), None);
        assert_eq!(losses.at(1, 13), None);
        assert_eq!(losses.joined().len(), 3);
    }

    #[test]
    fn only_lost_events_can_be_accepted_and_exactly_those_named_are() {
        let mut losses = Losses::of(vec![lost(0, 5, 9, 1), lost(0, 9, 12, 2)]);
        assert_eq!(losses.accept(0, 4..6), Err(NotLost::Readable(4)));
        assert_eq!(losses.accept(0, 11..13), Err(NotLost::Readable(12)));
        assert_eq!(losses.accept(1, 5..6), Err(NotLost::Readable(5)));
        losses.accept(0, 7..10).expect("lost");
        assert_eq!(view(&losses), [(5, 7, false), (7, 10, true), (10, 12, false)]);
        losses.accept(0, 5..12).expect("lost");
        assert_eq!(view(&losses), [(5, 12, true)]);
    }

    #[test]
    fn looking_again_forgets_what_was_mended_and_keeps_what_was_accepted() {
        let mut losses = Losses::of(vec![lost(0, 5, 9, 1), lost(0, 20, 22, 2)]);
        losses.accept(0, 5..7).expect("lost");
        let (fresh, changed) = losses.found(1, &[lost(0, 5, 9, 1), lost(1, 3, 4, 1)]);
        assert!(changed);
        assert_eq!(fresh, [lost(1, 3, 4, 1)], "the rest was known");
        assert_eq!(losses.found(1, &[]).0, []);
        assert_eq!(view(&losses), [(5, 7, true), (20, 22, false)]);
    }

    #[test]
    fn retention_removes_facts_about_removed_events() {
        let mut losses = Losses::of(vec![lost(0, 5, 9, 1), lost(1, 5, 9, 1)]);
        assert!(losses.forget_before(|partition| if partition == 0 { 9 } else { 6 }));
        assert_eq!(losses.ranges(), [lost(1, 6, 9, 1)]);
        assert!(!losses.forget_before(|_| 6));
    }
}
