//! Where a reader starts, and how far there is to read. Pure.

use partita_core::model::{Position, SequenceNumber};
use partita_core::source::{Gap, GapCause};
use partita_sources::eventhubs::PartitionProperties;

/// What there is to read of a partition.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Span {
    /// Where a reader starts.
    pub(crate) from: Position,
    /// The last event that is there now; none if there is none from the start on.
    pub(crate) last: Option<i64>,
    /// Events after that one that are lost: no event will come that tells.
    pub(crate) lost: Option<Gap>,
    /// What the user should know about the start.
    pub(crate) note: Option<String>,
}

/// The span of a partition from a position on. A hub refuses a start beyond its end; with several partitions it is a usual
/// thing, as they are not equally long: reading then starts with the next event.
pub(crate) fn span(wanted: &Position, partition: &PartitionProperties) -> Span {
    let end = partition.end.position.as_ref();
    let readable = partition.last_readable.map(|last| last.0);
    let last = readable.or(end.map(|position| position.sequence.0).filter(|_| !partition.is_empty));
    let lost = readable.zip(end).map(|(last, end)| Gap {
        from: Position::after_sequence(SequenceNumber(last)),
        next: SequenceNumber(end.sequence.0.saturating_add(1)),
        cause: GapCause::Unknown,
    });
    let next = match end {
        Some(position) => Position::after_sequence(position.sequence),
        None => Position::Earliest,
    };
    let (is_past, is_beyond) = match wanted {
        Position::Earliest => (false, false),
        Position::Latest => (true, false),
        Position::Sequence { sequence, inclusive } => {
            let first = sequence.0.saturating_add(i64::from(!inclusive));
            let end = end.map_or(-1, |position| position.sequence.0);
            (first > end, first > end.saturating_add(1))
        }
        Position::Offset { offset, inclusive } => {
            match (offset.as_number(), end.and_then(|position| position.offset.as_number())) {
                (Some(wanted), Some(end)) => (wanted > end || (wanted == end && !inclusive), wanted > end),
                (Some(wanted), None) if end.is_none() => (true, wanted > 0),
                _ => (false, false),
            }
        }
        // Later events may still be before that time.
        Position::Time(time) => {
            let past = partition.end.enqueued_time.is_some_and(|last| last < *time);
            return Span { from: wanted.clone(), last: last.filter(|_| !past), lost, note: None };
        }
    };
    let note = is_beyond.then(|| match end {
        Some(position) => format!("{wanted} is not there yet, it ends with {position}: starting after that"),
        None => format!("{wanted} is not there yet, it has no event: starting with the first"),
    });
    if is_past || last.is_none() {
        return Span { from: next, last: None, lost: None, note };
    }
    Span { from: wanted.clone(), last, lost, note }
}

/// Where the last `count` events of a partition begin.
pub(crate) fn last(count: u64, partition: &PartitionProperties) -> Position {
    match &partition.end.position {
        None => Position::Earliest,
        Some(_) if partition.is_empty || count == 0 => Position::Latest,
        Some(end) => {
            let back = i64::try_from(count).unwrap_or(i64::MAX) - 1;
            let from = end.sequence.0.saturating_sub(back).max(partition.first.0);
            Position::at_sequence(SequenceNumber(from))
        }
    }
}

/// How many events there are to read, as far as it is known.
pub(crate) fn events(span: &Span, partition: &PartitionProperties) -> Option<u64> {
    let first = match &span.from {
        Position::Earliest => partition.first.0,
        Position::Sequence { sequence, inclusive } => {
            sequence.0.saturating_add(i64::from(!inclusive)).max(partition.first.0)
        }
        Position::Latest | Position::Offset { .. } | Position::Time(_) => return None,
    };
    Some(u64::try_from(span.last?.saturating_sub(first).saturating_add(1)).unwrap_or(0))
}

#[cfg(test)]
mod tests {
    use partita_core::model::{LastEnqueued, Offset, StreamPosition, Timestamp};

    use super::*;

    fn partition(last: Option<i64>, is_empty: bool) -> PartitionProperties {
        let position = last.map(|n| StreamPosition::new(SequenceNumber(n), Offset::number(n as u64 * 10)));
        let enqueued_time = last.map(|n| Timestamp(n * 1_000));
        let end = LastEnqueued { position, enqueued_time, retrieved: Timestamp(0) };
        let first = SequenceNumber(0);
        PartitionProperties { partition: 0.into(), first, end, is_empty, last_readable: None }
    }

    fn of(words: &str, partition: &PartitionProperties) -> (String, Option<i64>, bool) {
        let span = span(&Position::parse(words, Timestamp(0)).unwrap(), partition);
        (span.from.to_string(), span.last, span.note.is_some())
    }

    #[test]
    fn each_word_has_its_start_and_its_end() {
        let held = partition(Some(7), false);
        for (words, from, last, noted) in [
            ("earliest", "earliest", Some(7), false),
            ("latest", "after seq:7", None, false),
            ("seq:3", "seq:3", Some(7), false),
            ("seq:7", "seq:7", Some(7), false),
            ("after seq:7", "after seq:7", None, false),
            ("seq:8", "after seq:7", None, false),
            ("seq:9", "after seq:7", None, true),
            ("offset:30", "offset:30", Some(7), false),
            ("offset:70", "offset:70", Some(7), false),
            ("after offset:70", "after seq:7", None, false),
            ("offset:71", "after seq:7", None, true),
            ("1970-01-01T00:00:07Z", "1970-01-01T00:00:07.000Z", Some(7), false),
            ("1970-01-01T00:00:08Z", "1970-01-01T00:00:08.000Z", None, false),
        ] {
            assert_eq!(of(words, &held), (from.to_owned(), last, noted), "{words}");
        }
    }

    #[test]
    fn a_lost_end_is_not_waited_for_and_told() {
        // Events 5 to 7 are lost, or all of them.
        for (readable, is_empty) in [(4, false), (-1, true)] {
            let last_readable = Some(SequenceNumber(readable));
            let held = PartitionProperties { last_readable, ..partition(Some(7), is_empty) };
            for words in ["earliest", "seq:6", "offset:30", "1970-01-01T00:00:07Z"] {
                let span = span(&Position::parse(words, Timestamp(0)).unwrap(), &held);
                assert_eq!(
                    (span.from.to_string().contains("after"), span.last),
                    (false, Some(readable)),
                    "{words}"
                );
                assert_eq!(span.lost.and_then(|gap| gap.range()), Some(readable + 1..8), "{words}");
            }
            for words in ["latest", "after seq:7", "seq:9"] {
                let span = span(&Position::parse(words, Timestamp(0)).unwrap(), &held);
                assert_eq!(
                    (span.from.to_string().as_str(), span.last, span.lost),
                    ("after seq:7", None, None)
                );
            }
        }
    }

    #[test]
    fn the_last_events_are_counted_from_the_end_and_begin_no_earlier_than_the_first() {
        let held = partition(Some(7), false);
        for (count, from) in [(1, "seq:7"), (3, "seq:5"), (8, "seq:0"), (u64::MAX, "seq:0"), (0, "latest")] {
            assert_eq!(last(count, &held).to_string(), from, "{count}");
        }
        let kept = PartitionProperties { first: SequenceNumber(6), ..held };
        assert_eq!(last(5, &kept).to_string(), "seq:6");
        assert_eq!(last(5, &partition(None, true)).to_string(), "earliest");
        assert_eq!(last(5, &partition(Some(7), true)).to_string(), "latest");
        let count = |words: &str| events(&span(&Position::parse(words, Timestamp(0)).unwrap(), &kept), &kept);
        assert_eq!([count("earliest"), count("seq:7"), count("after seq:0")], [Some(2), Some(1), Some(2)]);
        assert_eq!([count("latest"), count("1970-01-01T00:00:07Z")], [None, None]);
    }

    #[test]
    fn a_partition_without_events_is_waited_for() {
        let never = partition(None, true);
        for (words, noted) in
            [("earliest", false), ("latest", false), ("seq:0", false), ("offset:0", false), ("seq:1", true)]
        {
            assert_eq!(of(words, &never), ("earliest".to_owned(), None, noted), "{words}");
        }
        // Retention took all that it had.
        assert_eq!(of("earliest", &partition(Some(7), true)), ("after seq:7".to_owned(), None, false));
    }
}
