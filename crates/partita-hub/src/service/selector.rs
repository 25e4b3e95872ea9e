//! Where a reader starts: a filter on its source, in a small language of the service's.
//!
//! `amqp.annotation.<field> <operator> '<value>'`, with the fields `x-opt-offset`, `x-opt-sequence-number` and
//! `x-opt-enqueued-time` (milliseconds since 1970) and the operators `>` and `>=`. Offset `-1` is the oldest event,
//! `@latest` the end. Without a filter a reader starts at the oldest event.

use partita_core::model::{Offset, Position, SequenceNumber, Timestamp, Value};

use super::condition::{ARGUMENT_ERROR, Refusal};
use crate::broker::AttachError;
use crate::log::{PartitionInfo, ReadError};

/// The name of the filter, which is also one of its two descriptors.
pub const SELECTOR: &str = "apache.org:selector-filter:string";
/// Its other descriptor.
pub const SELECTOR_CODE: u64 = 0x0000_468C_0000_0004;

const PREFIX: &str = "amqp.annotation.";

/// The position that a source's filters ask for. Filters of other names are no concern of the hub's.
pub fn position(filters: &[(Value, Value)]) -> Result<Position, Refusal> {
    match filters.iter().find(|(name, filter)| is_selector(name, filter)) {
        Some((_, filter)) => parse(expression(filter)?),
        None => Ok(Position::Earliest),
    }
}

/// Whether a filter of a source is the one that is understood here. The attach is answered with such filters alone.
pub fn is_selector(name: &Value, filter: &Value) -> bool {
    let described = match filter {
        Value::Described(descriptor, _) => match &**descriptor {
            Value::Ulong(code) => *code == SELECTOR_CODE,
            Value::Symbol(name) => &**name == SELECTOR,
            _ => false,
        },
        _ => false,
    };
    described || name.as_str() == Some(SELECTOR)
}

fn expression(filter: &Value) -> Result<&str, Refusal> {
    let value = match filter {
        Value::Described(_, value) => value,
        bare => bare,
    };
    value.as_str().ok_or_else(|| Refusal::new(ARGUMENT_ERROR, "The filter of the receiver is not a text."))
}

/// Reads an expression.
pub fn parse(text: &str) -> Result<Position, Refusal> {
    let bad = || Refusal::new(ARGUMENT_ERROR, format!("The filter expression '{text}' is invalid."));
    let rest = text.trim().strip_prefix(PREFIX).ok_or_else(bad)?;
    let (field, rest) = rest.split_at(rest.find('>').ok_or_else(bad)?);
    let (inclusive, value) = match rest.strip_prefix(">=") {
        Some(value) => (true, value),
        None => (false, &rest[1..]),
    };
    let value = unquoted(value.trim()).ok_or_else(bad)?;
    let number = || value.parse::<i64>().map_err(|_| bad());
    Ok(match field.trim_end() {
        "x-opt-offset" => match value {
            "-1" => Position::Earliest,
            "@latest" => Position::Latest,
            "" => return Err(bad()),
            _ => Position::Offset { offset: Offset::parse(value), inclusive },
        },
        "x-opt-sequence-number" => match number()? {
            ..0 => Position::Earliest,
            number => Position::Sequence { sequence: SequenceNumber(number), inclusive },
        },
        "x-opt-enqueued-time" => Position::Time(Timestamp(number()?.saturating_add(i64::from(!inclusive)))),
        _ => return Err(bad()),
    })
}

/// What is between quotes of one kind, or the text if there are none.
fn unquoted(text: &str) -> Option<&str> {
    let value = match text.chars().next()? {
        quote @ ('\'' | '"') => text[1..].strip_suffix(quote)?,
        _ => text,
    };
    (!value.contains(['\'', '"', ' '])).then_some(value)
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
    use proptest::prelude::*;

    use super::*;

    fn offset(number: u64, inclusive: bool) -> Position {
        Position::Offset { offset: Offset::number(number), inclusive }
    }

    fn sequence(number: i64, inclusive: bool) -> Position {
        Position::Sequence { sequence: SequenceNumber(number), inclusive }
    }

    #[test]
    fn expressions_mean_what_the_service_means() {
        for (text, position) in [
            ("amqp.annotation.x-opt-offset > '-1'", Position::Earliest),
            ("amqp.annotation.x-opt-offset > '@latest'", Position::Latest),
            ("amqp.annotation.x-opt-offset > '4096'", offset(4096, false)),
            ("amqp.annotation.x-opt-offset >= '4096'", offset(4096, true)),
            ("amqp.annotation.x-opt-offset >'4096'", offset(4096, false)),
            ("amqp.annotation.x-opt-offset >='4096'", offset(4096, true)),
            ("amqp.annotation.x-opt-offset>4096", offset(4096, false)),
            ("amqp.annotation.x-opt-sequence-number > '-1'", Position::Earliest),
            ("amqp.annotation.x-opt-sequence-number > '7'", sequence(7, false)),
            (" amqp.annotation.x-opt-sequence-number >= \"7\" ", sequence(7, true)),
            ("amqp.annotation.x-opt-enqueued-time > '1000'", Position::Time(Timestamp(1001))),
            ("amqp.annotation.x-opt-enqueued-time >= '1000'", Position::Time(Timestamp(1000))),
        ] {
            assert_eq!(parse(text), Ok(position), "{text}");
        }
    }

    #[test]
    fn other_expressions_are_refused() {
        for text in [
            "",
            "x-opt-offset > '1'",
            "amqp.annotation.x-opt-offset < '1'",
            "amqp.annotation.x-opt-offset = '1'",
            "amqp.annotation.x-opt-offset > ''",
            "amqp.annotation.x-opt-offset > '1",
            "amqp.annotation.x-opt-offset > '1' OR 1=1",
            "amqp.annotation.x-opt-sequence-number > 'one'",
            "amqp.annotation.x-opt-enqueued-time > '1.5'",
            "amqp.annotation.x-opt-partition-key > 'a'",
            "amqp.annotation.x-opt-offset >",
        ] {
            assert_eq!(parse(text).expect_err(text).condition, "com.microsoft:argument-error");
        }
    }

    #[test]
    fn filters_are_found_by_either_descriptor_and_others_are_passed_over() {
        let text = || Box::new(Value::from("amqp.annotation.x-opt-sequence-number > '7'"));
        let name = || Value::Symbol(SELECTOR.into());
        let by_code = Value::Described(Value::Ulong(SELECTOR_CODE).into(), text());
        let by_name = Value::Described(name().into(), text());
        for filter in [by_code, by_name, *text()] {
            assert_eq!(position(&[(name(), filter)]), Ok(sequence(7, false)));
        }
        let other = (Value::Symbol("no-local".into()), Value::from("x"));
        assert_eq!(position(std::slice::from_ref(&other)), Ok(Position::Earliest));
        assert_eq!(position(&[]), Ok(Position::Earliest));
        assert!(position(&[(name(), Value::Uint(1))]).is_err());
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

    proptest! {
        #[test]
        fn any_text_is_a_position_or_refused(text in any::<String>(), field in 0..3_usize) {
            let _ = parse(&text);
            let fields = ["x-opt-offset", "x-opt-sequence-number", "x-opt-enqueued-time"];
            let _ = parse(&format!("{PREFIX}{} > {text}", fields[field]));
        }
    }
}
