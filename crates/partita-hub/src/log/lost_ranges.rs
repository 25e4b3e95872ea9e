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
    /// The segment in which they were, or the one before a segment that is missing; the one that begins behind them if their
    /// loss was accepted at a start.
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

/// Events from the first up to before the second number, in words.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Events(pub(crate) u64, pub(crate) u64);

impl Events {
    fn is_one(self) -> bool {
        self.1.saturating_sub(self.0) == 1
    }

    /// "is", or "are".
    pub(crate) fn are(self) -> &'static str {
        if self.is_one() { "is" } else { "are" }
    }

    /// "it", or "these events".
    pub(crate) fn them(self) -> &'static str {
        if self.is_one() { "it" } else { "these events" }
    }
}

impl fmt::Display for Events {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (first, last) = (self.0, self.1.saturating_sub(1));
        if self.is_one() { write!(f, "event {first}") } else { write!(f, "events {first} to {last}") }
    }
}

impl fmt::Display for LostRange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} of partition {}", Events(self.first, self.next), self.partition)?;
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

/// What looking through a segment led to.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Looked {
    /// What was not known before.
    pub(crate) fresh: Vec<LostRange>,
    /// What was lost, and can be read again.
    pub(crate) mended: Vec<LostRange>,
    /// Whether anything is to be written down.
    pub(crate) changed: bool,
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

    /// What is left of a range without those that are here.
    fn rest_of(&self, range: &LostRange) -> Vec<LostRange> {
        let known = self.0.iter().filter(|known| known.partition == range.partition);
        part_without(range, &known.map(|known| known.first..known.next).collect::<Vec<_>>())
    }

    /// A segment was looked through, and these are all that is lost in it. What was accepted stays accepted.
    pub(crate) fn found(&mut self, segment: u64, lost: &[LostRange]) -> Looked {
        let before = self.clone();
        self.0.retain(|range| range.accepted || range.segment != segment);
        let mut fresh: Vec<LostRange> = lost.iter().flat_map(|range| self.rest_of(range)).collect();
        let room = RANGES_MAX.saturating_sub(self.0.len());
        self.0.extend(fresh.iter().take(room));
        self.0.sort_by_key(|range| (range.partition, range.first));
        fresh.retain(|range| before.at(range.partition, range.first).is_none());
        let here = before.0.iter().filter(|range| !range.accepted && range.segment == segment);
        let mended = here.flat_map(|range| self.rest_of(range)).collect();
        Looked { fresh, mended, changed: *self != before }
    }

    /// The segments in which events are lost and nobody accepted that, in order.
    pub(crate) fn marked_segments(&self) -> Vec<u64> {
        let mut marked: Vec<u64> =
            self.0.iter().filter(|range| !range.accepted).map(|range| range.segment).collect();
        marked.sort_unstable();
        marked.dedup();
        marked
    }

    /// Where the loss begins that was accepted and reaches up to a partition's oldest event: events that are lost from the
    /// start of the partition.
    pub(crate) fn before(&self, partition: u32, oldest: u64) -> Option<u64> {
        let last = self.at(partition, oldest.checked_sub(1)?)?;
        last.accepted.then_some(last.first)
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

    /// Notes the loss of ranges that was accepted before anybody looked there. They take the place of what was known of them.
    pub(crate) fn give_up(&mut self, ranges: &[LostRange]) -> Result<(), NotLost> {
        for range in ranges {
            let rest = |known: &LostRange| match known.partition == range.partition {
                true => part_without(known, &[range.first..range.next]),
                false => vec![*known],
            };
            let accepted = LostRange { accepted: true, ..*range };
            self.0 = self.0.iter().flat_map(rest).chain([accepted]).collect();
        }
        self.0.sort_by_key(|range| (range.partition, range.first));
        if self.0.len() > RANGES_MAX { Err(NotLost::TooMany) } else { Ok(()) }
    }

    /// Forgets what lies before each partition's oldest event: retention removed it. A loss that was accepted where the
    /// oldest segment begins stays: nothing but that loss is before it. True if there was anything to forget.
    pub(crate) fn forget_before(&mut self, oldest_segment: u64, oldest_seq: impl Fn(u32) -> u64) -> bool {
        let before = self.0.len();
        let mut cut = false;
        self.0.retain_mut(|range| {
            let first = oldest_seq(range.partition);
            if range.accepted && range.segment >= oldest_segment && range.next >= first {
                return true;
            }
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

/// The parts of a lost range that are left without others, which are in order.
fn part_without(range: &LostRange, others: &[Range<u64>]) -> Vec<LostRange> {
    let rest = without(range.first..range.next, others).into_iter();
    rest.map(|rest| LostRange { first: rest.start, next: rest.end, ..*range }).collect()
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
    fn a_loss_accepted_at_a_start_takes_the_place_of_damage_that_was_known() {
        let mut losses = Losses::of(vec![lost(0, 2, 6, 1), lost(0, 8, 30, 2), lost(1, 2, 6, 1)]);
        losses.give_up(&[lost(0, 5, 20, 3)]).expect("room");
        assert_eq!(view(&losses), [(2, 5, false), (5, 20, true), (20, 30, false), (2, 6, false)]);
        assert_eq!(losses.ranges()[1].segment, 3);
    }

    #[test]
    fn looking_again_forgets_what_was_mended_and_keeps_what_was_accepted() {
        let mut losses = Losses::of(vec![lost(0, 5, 9, 1), lost(0, 20, 22, 2)]);
        losses.accept(0, 5..7).expect("lost");
        let looked = losses.found(1, &[lost(0, 5, 9, 1), lost(1, 3, 4, 1)]);
        assert!(looked.changed);
        assert_eq!(looked.fresh, [lost(1, 3, 4, 1)], "the rest was known");
        assert_eq!(looked.mended, []);
        assert_eq!(losses.marked_segments(), [1, 2]);
        let looked = losses.found(1, &[lost(0, 8, 9, 1)]);
        assert_eq!((looked.fresh, looked.mended), (vec![], vec![lost(0, 7, 8, 1), lost(1, 3, 4, 1)]));
        assert_eq!(losses.found(1, &[]).mended, [lost(0, 8, 9, 1)]);
        assert_eq!(view(&losses), [(5, 7, true), (20, 22, false)]);
        assert_eq!(losses.marked_segments(), [2]);
    }

    #[test]
    fn retention_removes_facts_about_removed_events() {
        let mut losses = Losses::of(vec![lost(0, 5, 9, 1), lost(1, 5, 9, 1)]);
        assert!(losses.forget_before(1, |partition| if partition == 0 { 9 } else { 6 }));
        assert_eq!(losses.ranges(), [lost(1, 6, 9, 1)]);
        assert!(!losses.forget_before(1, |_| 6));
    }

    #[test]
    fn a_loss_accepted_at_the_start_is_known_until_retention_goes_beyond_it() {
        let mut losses = Losses::of(vec![lost(0, 5, 9, 4), lost(1, 0, 3, 4)]);
        losses.accept(0, 5..9).expect("lost");
        assert!(losses.forget_before(4, |partition| if partition == 0 { 9 } else { 3 }));
        assert_eq!(view(&losses), [(5, 9, true)], "what nobody accepted is not kept");
        assert_eq!((losses.before(0, 9), losses.before(0, 10), losses.before(1, 3)), (Some(5), None, None));
        assert_eq!(losses.before(0, 0), None);
        let mut removed = losses.clone();
        assert!(removed.forget_before(5, |_| 9), "the segment after it is the oldest");
        assert_eq!(view(&removed), []);
        assert!(losses.forget_before(4, |_| 10));
        assert_eq!(view(&losses), []);
    }
}
