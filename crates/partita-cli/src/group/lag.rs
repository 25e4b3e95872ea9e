//! How far a group is behind. Pure.

use std::time::Duration;

use partita_core::model::{Position, SequenceNumber, StreamId, Timestamp};
use partita_core::store::CheckpointRecord;
use partita_sources::eventhubs::PartitionProperties;

use super::since;

/// How long the first event after the checkpoint has been waiting.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Behind {
    Exactly(Duration),
    /// At least as long as the last event.
    AtLeast(Duration),
    Unknown,
}

/// Whether a checkpoint is of a life of the hub that is over: the processors begin anew then.
pub(super) fn is_void(checkpoint: &CheckpointRecord, stream: Option<&StreamId>) -> bool {
    matches!((&checkpoint.stream, stream), (Some(own), Some(hubs)) if own != hubs)
}

/// Where a processor would go on: after the checkpoint, or where partitions without one start.
pub(super) fn start(
    checkpoint: Option<&CheckpointRecord>,
    initial: Option<&Position>,
    stream: Option<&StreamId>,
) -> Position {
    match checkpoint.and_then(|record| Some((record, record.resume.as_ref()?))) {
        Some((record, _)) if is_void(record, stream) => Position::Earliest,
        Some((_, resume)) => resume.position(),
        None => initial.cloned().unwrap_or_default(),
    }
}

/// How many events a processor that goes on at `start` has before it. `found` is the first of them, if it was looked at; without
/// it nobody can say how many come after a time or an offset.
pub(super) fn lag(
    start: &Position,
    found: Option<SequenceNumber>,
    partition: &PartitionProperties,
) -> Option<u64> {
    // Nobody gets events at the end that are lost.
    let last = partition.last_readable.or(partition.end.position.as_ref().map(|position| position.sequence));
    let last = last.map_or(-1, |last| last.0);
    let held = if partition.is_empty { 0 } else { last - partition.first.0 + 1 };
    if held == 0 {
        return Some(0);
    }
    let after = match start {
        Position::Earliest => held,
        Position::Latest => 0,
        Position::Sequence { sequence, inclusive } => last - sequence.0 + i64::from(*inclusive),
        Position::Time(_) | Position::Offset { .. } => last - found?.0 + 1,
    };
    u64::try_from(after.clamp(0, held.max(0))).ok()
}

/// How long the first event after the checkpoint has waited; `enqueued` is when it came, if it could be read, and `last`
/// when the last one came.
pub(super) fn behind(
    lag: Option<u64>,
    enqueued: Option<Timestamp>,
    last: Option<Timestamp>,
    now: Timestamp,
) -> Behind {
    match (lag, enqueued, last) {
        (Some(0), ..) => Behind::Exactly(Duration::ZERO),
        (Some(_), Some(enqueued), _) => Behind::Exactly(since(enqueued, now)),
        (Some(_), None, Some(last)) => Behind::AtLeast(since(last, now)),
        _ => Behind::Unknown,
    }
}

#[cfg(test)]
mod tests {
    use partita_core::model::{Epoch, Incarnation, InstanceId, LastEnqueued, Offset, StreamPosition};
    use partita_core::store::{Op, Resume, Version};

    use super::*;

    fn partition(first: i64, last: i64) -> PartitionProperties {
        let position = (last >= 0).then(|| StreamPosition::new(SequenceNumber(last), Offset::number(0)));
        let end = LastEnqueued { position, enqueued_time: None, retrieved: Timestamp(0) };
        let (first, is_empty) = (SequenceNumber(first), first > last);
        PartitionProperties { partition: 0.into(), first, end, is_empty, last_readable: None }
    }

    fn checkpoint(resume: Option<Resume>, stream: Option<&str>) -> CheckpointRecord {
        CheckpointRecord {
            partition: 0.into(),
            epoch: Epoch(1),
            resume,
            stream: stream.map(StreamId::new),
            time: Timestamp(0),
            op: Op { by: Incarnation::new(InstanceId::new("a"), 1), number: 1 },
            version: Version::number(1),
        }
    }

    fn after(sequence: i64) -> Option<Resume> {
        Some(Resume::After(StreamPosition::new(SequenceNumber(sequence), Offset::number(0))))
    }

    #[test]
    fn a_lost_end_is_no_lag() {
        let partition = PartitionProperties { last_readable: Some(SequenceNumber(4)), ..partition(0, 9) };
        assert_eq!(lag(&Position::after_sequence(SequenceNumber(4)), None, &partition), Some(0));
        assert_eq!(lag(&Position::after_sequence(SequenceNumber(3)), None, &partition), Some(1));
        assert_eq!(lag(&Position::Earliest, None, &partition), Some(5));
    }

    #[test]
    fn lag_is_what_comes_after_the_checkpoint() {
        let stream = StreamId::new("now");
        let of = |record: &CheckpointRecord| {
            lag(&start(Some(record), None, Some(&stream)), None, &partition(10, 19))
        };
        assert_eq!(of(&checkpoint(after(19), None)), Some(0));
        assert_eq!(of(&checkpoint(after(15), Some("now"))), Some(4));
        assert_eq!(of(&checkpoint(after(2), None)), Some(10), "what retention removed is no lag");
        assert_eq!(of(&checkpoint(after(99), None)), Some(0));
        assert_eq!(of(&checkpoint(after(15), Some("former"))), Some(10), "of a hub that was reset");
        assert_eq!(of(&checkpoint(Some(Resume::At(Position::Earliest)), None)), Some(10));
        assert_eq!(
            of(&checkpoint(Some(Resume::At(Position::at_sequence(SequenceNumber(18)))), None)),
            Some(2)
        );
        assert_eq!(of(&checkpoint(Some(Resume::At(Position::Latest)), None)), Some(0));
        let record = checkpoint(after(3), None);
        assert_eq!(lag(&start(Some(&record), None, None), None, &partition(4, 3)), Some(0));
    }

    #[test]
    fn without_a_checkpoint_lag_is_counted_from_where_the_partition_would_start() {
        let of = |initial: Option<&Position>, found: Option<i64>| {
            let sealed = checkpoint(None, Some("now"));
            let of =
                |record| lag(&start(record, initial, None), found.map(SequenceNumber), &partition(10, 19));
            assert_eq!(of(None), of(Some(&sealed)), "a seal is no checkpoint");
            of(None)
        };
        assert_eq!(of(None, None), Some(10), "from the first event that is left");
        assert_eq!(of(Some(&Position::Earliest), None), Some(10));
        assert_eq!(of(Some(&Position::Latest), None), Some(0));
        assert_eq!(of(Some(&Position::at_sequence(SequenceNumber(17))), None), Some(3));
        assert_eq!(of(Some(&Position::Time(Timestamp(5))), Some(16)), Some(4));
        assert_eq!(of(Some(&Position::Time(Timestamp(5))), None), None);
        assert_eq!(lag(&start(None, None, None), None, &partition(0, -1)), Some(0), "there is nothing");
    }

    #[test]
    fn seconds_are_exact_where_the_event_could_be_read() {
        let now = Timestamp(10_000);
        assert_eq!(behind(Some(0), None, Some(Timestamp(1)), now), Behind::Exactly(Duration::ZERO));
        let read = behind(Some(3), Some(Timestamp(4_000)), Some(Timestamp(9_000)), now);
        assert_eq!(read, Behind::Exactly(Duration::from_secs(6)));
        assert_eq!(
            behind(Some(3), None, Some(Timestamp(9_000)), now),
            Behind::AtLeast(Duration::from_secs(1))
        );
        assert_eq!(behind(None, None, Some(Timestamp(1)), now), Behind::Unknown);
    }
}
