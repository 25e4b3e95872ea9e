//! Idempotent producers: which batch is new, which was appended before, and which must not be. No I/O, no clock: the
//! committer asks, and recovery tells again what the log holds.
//!
//! A producer numbers its events one by one in each partition. A batch that repeats one of its last is not appended
//! again; one that leaves out a number, or comes from an incarnation that was replaced, is refused.

use std::collections::HashMap;

use super::error::AppendError;
use super::format::{ProducerEntry, ProducerStamp, REMEMBERED, SentBatch};
use super::writer::Placed;

/// The most producers that are remembered in a partition.
pub(crate) const PER_PARTITION_MAX: usize = 64;

/// The producers of a hub, as the log knows them.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Producers {
    /// By partition; the one that was idle for longest first.
    partitions: Vec<Vec<ProducerEntry>>,
    /// How many of a partition are remembered.
    per_partition: usize,
}

/// What an idempotent producer has, or is given, when it begins to send to a partition.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct ProducerState {
    /// Its incarnation.
    pub epoch: i16,
    /// The number of its last event; `None` if it has sent none, or it was forgotten.
    pub last_sequence: Option<i32>,
}

/// What becomes of a batch.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Verdict {
    Append,
    /// It was appended before, there.
    Repeats(Placed),
    /// It repeats the batch with this place in the same commit.
    RepeatsAhead(usize),
    Refused(AppendError),
}

/// The number that follows `count` events from `sequence` on.
fn after(sequence: i32, count: u32) -> i32 {
    (sequence.cast_unsigned().wrapping_add(count) & i32::MAX.cast_unsigned()).cast_signed()
}

impl SentBatch {
    fn next(&self) -> i32 {
        after(self.sequence, self.count)
    }

    fn is(&self, sequence: i32, count: u32) -> bool {
        (self.sequence, self.count) == (sequence, count)
    }

    fn placed(&self, partition: u32) -> Placed {
        Placed {
            partition,
            first_seq: self.first_seq,
            first_offset: self.first_offset,
            count: self.count,
            time_ms: self.time_ms,
        }
    }
}

impl Producers {
    pub(crate) fn new(per_partition: usize) -> Self {
        Self { partitions: Vec::new(), per_partition }
    }

    /// What a segment's table holds.
    pub(crate) fn of(entries: Vec<ProducerEntry>, per_partition: usize) -> Self {
        let mut producers = Self::new(per_partition);
        for entry in entries {
            producers.partition(entry.partition).push(entry);
        }
        producers
    }

    /// What goes into a segment's table.
    pub(crate) fn entries(&self) -> impl Iterator<Item = &ProducerEntry> {
        self.partitions.iter().flatten()
    }

    /// Remembers so many of each partition from now on.
    pub(crate) fn keep(&mut self, per_partition: usize) {
        self.per_partition = per_partition;
        for known in &mut self.partitions {
            known.drain(..known.len().saturating_sub(per_partition));
        }
    }

    /// Forgets all: part of the log cannot be read, so nothing is known for certain.
    pub(crate) fn forget(&mut self) {
        self.partitions.clear();
    }

    /// What is known of a producer.
    pub(crate) fn state(&self, partition: u32, id: i64) -> Option<ProducerState> {
        let known = self.find(partition, id)?;
        let last = known.sent.last().map(|batch| after(batch.next(), i32::MAX.cast_unsigned()));
        Some(ProducerState { epoch: known.epoch, last_sequence: last })
    }

    /// A producer begins to send. A higher epoch than before shuts out the former incarnation at once.
    pub(crate) fn begin(
        &mut self,
        partition: u32,
        id: i64,
        epoch: Option<i16>,
    ) -> Result<ProducerState, AppendError> {
        let known = self.state(partition, id).unwrap_or_default();
        let epoch = epoch.unwrap_or(known.epoch);
        if epoch < known.epoch {
            return Err(AppendError::ProducerStolen { id, epoch: known.epoch });
        }
        if epoch > known.epoch || self.find(partition, id).is_none() {
            self.replace(ProducerEntry { partition, id, epoch, sent: Vec::new() });
        }
        Ok(self.state(partition, id).unwrap_or_default())
    }

    /// A batch was appended.
    pub(crate) fn appended(&mut self, stamp: ProducerStamp, placed: &Placed) {
        let batch = SentBatch {
            sequence: stamp.sequence,
            count: placed.count,
            first_seq: placed.first_seq,
            first_offset: placed.first_offset,
            time_ms: placed.time_ms,
        };
        let known = self.find(placed.partition, stamp.id);
        // A later incarnation began while the batch was written: that one counts, and what it sent.
        if known.is_some_and(|known| known.epoch > stamp.epoch) {
            return;
        }
        let known = known.filter(|known| known.epoch == stamp.epoch);
        let mut sent = known.map(|known| known.sent.clone()).unwrap_or_default();
        sent.push(batch);
        sent.drain(..sent.len().saturating_sub(REMEMBERED));
        self.replace(ProducerEntry { partition: placed.partition, id: stamp.id, epoch: stamp.epoch, sent });
    }

    /// What becomes of batches that are to be committed together, each judged in the light of those before it.
    pub(crate) fn judge<'a>(
        &self,
        batches: impl IntoIterator<Item = (u32, u32, Option<&'a ProducerStamp>)>,
    ) -> Vec<Verdict> {
        let mut ahead: HashMap<(u32, i64), Ahead> = HashMap::new();
        let judge_one = |(index, (partition, count, stamp)): (usize, (u32, u32, Option<&ProducerStamp>))| {
            let Some(stamp) = stamp else { return Verdict::Append };
            let known = self.find(partition, stamp.id);
            let ahead = ahead.entry((partition, stamp.id)).or_default();
            let verdict = judge_one(known, ahead, partition, count, stamp);
            if verdict == Verdict::Append {
                if ahead.epoch != Some(stamp.epoch) {
                    *ahead = Ahead { epoch: Some(stamp.epoch), sent: Vec::new() };
                }
                ahead.sent.push((stamp.sequence, count, index));
            }
            verdict
        };
        batches.into_iter().enumerate().map(judge_one).collect()
    }

    fn partition(&mut self, partition: u32) -> &mut Vec<ProducerEntry> {
        let at = partition as usize;
        if self.partitions.len() <= at {
            self.partitions.resize_with(at + 1, Vec::new);
        }
        &mut self.partitions[at]
    }

    fn find(&self, partition: u32, id: i64) -> Option<&ProducerEntry> {
        self.partitions.get(partition as usize)?.iter().find(|known| known.id == id)
    }

    /// Puts a producer last, as the one that was idle for the shortest time.
    fn replace(&mut self, entry: ProducerEntry) {
        let keep = self.per_partition;
        let known = self.partition(entry.partition);
        known.retain(|other| other.id != entry.id);
        known.push(entry);
        known.drain(..known.len().saturating_sub(keep));
    }
}

/// What a producer has in the same commit: number, count and place of each batch.
#[derive(Debug, Default)]
struct Ahead {
    epoch: Option<i16>,
    sent: Vec<(i32, u32, usize)>,
}

fn judge_one(
    known: Option<&ProducerEntry>,
    ahead: &Ahead,
    partition: u32,
    count: u32,
    stamp: &ProducerStamp,
) -> Verdict {
    let Some(epoch) = ahead.epoch.or(known.map(|known| known.epoch)) else { return Verdict::Append };
    if stamp.epoch < epoch {
        return Verdict::Refused(AppendError::ProducerStolen { id: stamp.id, epoch });
    }
    if stamp.epoch > epoch {
        return Verdict::Append;
    }
    if let Some((_, _, index)) = ahead.sent.iter().find(|sent| (sent.0, sent.1) == (stamp.sequence, count)) {
        return Verdict::RepeatsAhead(*index);
    }
    let known = known.filter(|known| known.epoch == epoch);
    let before = known.map_or(&[][..], |known| &known.sent);
    if let Some(sent) = before.iter().find(|sent| sent.is(stamp.sequence, count)) {
        return Verdict::Repeats(sent.placed(partition));
    }
    let last = ahead.sent.last().map(|(sequence, count, _)| after(*sequence, *count));
    match last.or(before.last().map(SentBatch::next)) {
        Some(expected) if expected != stamp.sequence => {
            Verdict::Refused(AppendError::OutOfOrder { id: stamp.id, expected, found: stamp.sequence })
        }
        _ => Verdict::Append,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stamp(epoch: i16, sequence: i32) -> ProducerStamp {
        ProducerStamp { id: 9, epoch, sequence }
    }

    /// Judges one batch and appends it if it is new, 100 numbers further in the partition for each.
    fn send(producers: &mut Producers, epoch: i16, sequence: i32, count: u32) -> Verdict {
        let stamp = stamp(epoch, sequence);
        let verdict = producers.judge([(0, count, Some(&stamp))]).remove(0);
        if verdict == Verdict::Append {
            producers.appended(stamp, &placed(sequence, count));
        }
        verdict
    }

    fn placed(sequence: i32, count: u32) -> Placed {
        let at = sequence.unsigned_abs().into();
        Placed { partition: 0, first_seq: at, first_offset: at * 10, count, time_ms: 1 }
    }

    fn out_of_order(expected: i32, found: i32) -> Verdict {
        Verdict::Refused(AppendError::OutOfOrder { id: 9, expected, found })
    }

    #[test]
    fn a_repeated_batch_is_told_its_first_place_and_a_gap_is_refused() {
        let mut producers = Producers::new(4);
        assert_eq!(send(&mut producers, 0, 1, 10), Verdict::Append);
        assert_eq!(send(&mut producers, 0, 11, 5), Verdict::Append);
        assert_eq!(send(&mut producers, 0, 11, 5), Verdict::Repeats(placed(11, 5)));
        assert_eq!(send(&mut producers, 0, 1, 10), Verdict::Repeats(placed(1, 10)));
        assert_eq!(send(&mut producers, 0, 17, 1), out_of_order(16, 17));
        // Some of it was appended and some not: neither answer would be true.
        assert_eq!(send(&mut producers, 0, 11, 6), out_of_order(16, 11));
        assert_eq!(send(&mut producers, 0, 16, 1), Verdict::Append);
        assert_eq!(producers.state(0, 9), Some(ProducerState { epoch: 0, last_sequence: Some(16) }));
    }

    #[test]
    fn so_many_batches_may_be_under_way_when_answers_are_lost() {
        let mut producers = Producers::new(4);
        for sequence in 0..10 {
            assert_eq!(send(&mut producers, 0, sequence, 1), Verdict::Append);
        }
        for sequence in 6..10 {
            assert_eq!(send(&mut producers, 0, sequence, 1), Verdict::Repeats(placed(sequence, 1)));
        }
        assert_eq!(send(&mut producers, 0, 5, 1), out_of_order(10, 5));
    }

    #[test]
    fn a_higher_epoch_starts_over_and_shuts_out_the_lower() {
        let mut producers = Producers::new(4);
        assert_eq!(send(&mut producers, 1, 50, 1), Verdict::Append);
        assert_eq!(send(&mut producers, 3, 7, 1), Verdict::Append);
        let stolen = AppendError::ProducerStolen { id: 9, epoch: 3 };
        assert_eq!(send(&mut producers, 1, 51, 1), Verdict::Refused(stolen.clone()));
        assert_eq!(producers.begin(0, 9, Some(2)), Err(stolen));
        assert_eq!(producers.begin(0, 9, Some(4)), Ok(ProducerState { epoch: 4, last_sequence: None }));
        let stolen = AppendError::ProducerStolen { id: 9, epoch: 4 };
        assert_eq!(send(&mut producers, 3, 8, 1), Verdict::Refused(stolen));
        assert_eq!(send(&mut producers, 4, 1, 1), Verdict::Append);
    }

    #[test]
    fn a_batch_that_is_written_while_its_producer_is_replaced_does_not_bring_the_former_back() {
        let mut producers = Producers::new(4);
        assert_eq!(send(&mut producers, 0, 1, 1), Verdict::Append);
        // Judged, and written without the lock: meanwhile a new incarnation begins, and perhaps sends.
        let late = stamp(0, 2);
        assert_eq!(producers.judge([(0, 1, Some(&late))]), [Verdict::Append]);
        assert_eq!(producers.begin(0, 9, Some(1)), Ok(ProducerState { epoch: 1, last_sequence: None }));
        producers.appended(late, &placed(2, 1));
        assert_eq!(producers.state(0, 9), Some(ProducerState { epoch: 1, last_sequence: None }));
        assert_eq!(send(&mut producers, 1, 70, 1), Verdict::Append);
        producers.appended(late, &placed(2, 1));
        assert_eq!(producers.state(0, 9), Some(ProducerState { epoch: 1, last_sequence: Some(70) }));
        let stolen = AppendError::ProducerStolen { id: 9, epoch: 1 };
        assert_eq!(send(&mut producers, 0, 3, 1), Verdict::Refused(stolen));
    }

    #[test]
    fn whoever_comes_back_finds_what_it_sent() {
        let mut producers = Producers::new(4);
        assert_eq!(producers.begin(0, 9, None), Ok(ProducerState { epoch: 0, last_sequence: None }));
        send(&mut producers, 0, 1, 3);
        let known = ProducerState { epoch: 0, last_sequence: Some(3) };
        assert_eq!(producers.begin(0, 9, None), Ok(known));
        assert_eq!(producers.begin(0, 9, Some(0)), Ok(known));
        assert_eq!(send(&mut producers, 0, 1, 3), Verdict::Repeats(placed(1, 3)));
    }

    #[test]
    fn batches_of_one_commit_are_judged_in_the_light_of_each_other() {
        let producers = Producers::new(4);
        let stamps = [stamp(0, 1), stamp(0, 3), stamp(0, 1), stamp(0, 9), stamp(1, 1), stamp(0, 5)];
        let group = stamps.iter().map(|stamp| (0, 2, Some(stamp))).chain([(0, 2, None)]);
        let stolen = AppendError::ProducerStolen { id: 9, epoch: 1 };
        assert_eq!(
            producers.judge(group),
            [
                Verdict::Append,
                Verdict::Append,
                Verdict::RepeatsAhead(0),
                out_of_order(5, 9),
                Verdict::Append,
                Verdict::Refused(stolen),
                Verdict::Append,
            ]
        );
    }

    #[test]
    fn numbers_go_on_at_zero_after_the_last() {
        let mut producers = Producers::new(4);
        assert_eq!(send(&mut producers, 0, i32::MAX - 1, 4), Verdict::Append);
        assert_eq!(producers.state(0, 9).and_then(|state| state.last_sequence), Some(1));
        assert_eq!(send(&mut producers, 0, 2, 1), Verdict::Append);
    }

    #[test]
    fn the_one_that_was_idle_for_longest_is_forgotten() {
        let mut producers = Producers::new(2);
        for id in [1, 2, 1, 3] {
            let stamp = ProducerStamp { id, epoch: 0, sequence: 5 };
            producers.appended(stamp, &placed(5, 1));
        }
        let known = |id| producers.state(0, id).is_some();
        assert_eq!([1, 2, 3].map(known), [true, false, true]);
    }
}
