//! Where a reader does not start, and in which words that is said. How it asks is in `partita_dialect::selector`.

use partita_core::model::Position;
use partita_dialect::selector::BadSelector;

use super::condition::{ARGUMENT_ERROR, Refusal};
use crate::broker::AttachError;
use crate::log::{PartitionInfo, ReadError};

impl From<BadSelector> for Refusal {
    fn from(bad: BadSelector) -> Self {
        Self::new(ARGUMENT_ERROR, bad.to_string())
    }
}

/// Why a reader does not start in a partition that never had an event: the service refuses every number and offset there,
/// also the first one that will be.
pub fn beyond_empty(from: &Position, info: Option<PartitionInfo>) -> Option<Refusal> {
    info.filter(|info| info.next_seq == 0)?;
    match from {
        Position::Sequence { sequence, .. } if sequence.0 >= 0 => {
            Some(Refusal::beyond_the_end("sequence number", sequence, -1))
        }
        Position::Offset { offset, .. } if offset.as_number().is_some() => {
            Some(Refusal::beyond_the_end("offset", offset, -1))
        }
        _ => None,
    }
}

/// Why a reader does not start there, in the service's words where the place is past the end.
pub fn refusal(from: &Position, error: AttachError, info: Option<PartitionInfo>) -> Refusal {
    let (AttachError::Position(ReadError::Ahead { .. }), Some(info)) = (&error, info) else {
        return error.into();
    };
    let last_seq = info.next_seq.cast_signed() - 1;
    let last_offset = info.last_offset.map_or_else(|| "-1".to_owned(), |offset| offset.to_string());
    match from {
        Position::Sequence { sequence, .. } => Refusal::beyond_the_end("sequence number", sequence, last_seq),
        Position::Offset { offset, .. } => Refusal::beyond_the_end("offset", offset, last_offset),
        _ => error.into(),
    }
}

#[cfg(test)]
mod tests {
    use partita_core::model::{Offset, SequenceNumber};

    use super::*;

    fn offset(number: u64, inclusive: bool) -> Position {
        Position::Offset { offset: Offset::number(number), inclusive }
    }

    fn sequence(number: i64, inclusive: bool) -> Position {
        Position::Sequence { sequence: SequenceNumber(number), inclusive }
    }

    #[test]
    fn past_the_end_is_said_in_the_service_s_words() {
        let info = PartitionInfo {
            first_seq: 0,
            next_seq: 483,
            next_offset: 9_000,
            last_offset: Some(8_900),
            last_time_ms: Some(1),
        };
        let ahead = || AttachError::Position(ReadError::Ahead { partition: 0, asked: 489, next: 483 });
        let refused = refusal(&sequence(488, false), ahead(), Some(info));
        assert_eq!(
            refused.description,
            "The supplied sequence number '488' is invalid. The last sequence number in the system is '482'"
        );
        let refused = refusal(&offset(10_000, true), ahead(), Some(info));
        assert_eq!(
            refused.description,
            "The supplied offset '10000' is invalid. The last offset in the system is '8900'"
        );
    }

    #[test]
    fn a_partition_that_never_had_an_event_has_no_number_to_start_at() {
        let empty = PartitionInfo {
            first_seq: 0,
            next_seq: 0,
            next_offset: 0,
            last_offset: None,
            last_time_ms: None,
        };
        for inclusive in [false, true] {
            let refused = beyond_empty(&sequence(0, inclusive), Some(empty)).expect("refused");
            assert_eq!(
                refused.to_string(),
                "com.microsoft:argument-error: The supplied sequence number '0' is invalid. The last sequence number in the system is '-1'"
            );
            let refused = beyond_empty(&offset(0, inclusive), Some(empty)).expect("refused");
            assert!(refused.description.ends_with("The last offset in the system is '-1'"), "{refused}");
        }
        assert_eq!(beyond_empty(&Position::Earliest, Some(empty)), None);
        assert_eq!(beyond_empty(&Position::Latest, Some(empty)), None);
        let used = PartitionInfo { first_seq: 1, next_seq: 1, ..empty };
        assert_eq!(beyond_empty(&sequence(1, true), Some(used)), None);
    }
}
