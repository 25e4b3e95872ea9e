//! Where a reader starts, as the filter of its link: a small language of the service's.
//!
//! `amqp.annotation.<field> <operator> '<value>'`, with the fields `x-opt-offset`, `x-opt-sequence-number` and
//! `x-opt-enqueued-time` (milliseconds since 1970) and the operators `>` and `>=`. Offset `-1` is the oldest event,
//! `@latest` the end. Without a filter a reader starts at the oldest event.

use partita_core::model::{Offset, Position, SequenceNumber, Timestamp, Value};

use crate::names::annotation::{ENQUEUED_TIME, OFFSET, SEQUENCE_NUMBER};

/// Why a filter names no position.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum BadSelector {
    /// It holds something else than a text.
    #[error("The filter of the receiver is not a text.")]
    NoText,
    /// The text is no expression of the language.
    #[error("The filter expression '{0}' is invalid.")]
    Invalid(String),
}

/// The name of the filter, which is also one of its two descriptors.
pub const SELECTOR: &str = "apache.org:selector-filter:string";
/// Its other descriptor.
pub const SELECTOR_CODE: u64 = 0x0000_468C_0000_0004;

const PREFIX: &str = "amqp.annotation.";

/// The position that a source's filters ask for. Filters of other names are no concern of the hub's.
pub fn position(filters: &[(Value, Value)]) -> Result<Position, BadSelector> {
    match filters.iter().find(|(name, filter)| is_selector(name, filter)) {
        Some((_, filter)) => parse(text_of(filter)?),
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

fn text_of(filter: &Value) -> Result<&str, BadSelector> {
    let value = match filter {
        Value::Described(_, value) => value,
        bare => bare,
    };
    value.as_str().ok_or(BadSelector::NoText)
}

/// Reads an expression.
pub fn parse(text: &str) -> Result<Position, BadSelector> {
    let bad = || BadSelector::Invalid(text.to_owned());
    let rest = text.trim().strip_prefix(PREFIX).ok_or_else(bad)?;
    let (field, rest) = rest.split_at(rest.find('>').ok_or_else(bad)?);
    let (inclusive, value) = match rest.strip_prefix(">=") {
        Some(value) => (true, value),
        None => (false, &rest[1..]),
    };
    let value = unquoted(value.trim()).ok_or_else(bad)?;
    let number = || value.parse::<i64>().map_err(|_| bad());
    Ok(match field.trim_end() {
        OFFSET => match value {
            "-1" => Position::Earliest,
            "@latest" => Position::Latest,
            "" => return Err(bad()),
            _ => Position::Offset { offset: Offset::parse(value), inclusive },
        },
        SEQUENCE_NUMBER => match number()? {
            ..0 => Position::Earliest,
            number => Position::Sequence { sequence: SequenceNumber(number), inclusive },
        },
        ENQUEUED_TIME => Position::Time(Timestamp(number()?.saturating_add(i64::from(!inclusive)))),
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

/// The expression for a position.
pub fn expression(from: &Position) -> String {
    let comparison = |inclusive: bool| if inclusive { ">=" } else { ">" };
    match from {
        // The service knows no number 0 in a partition that never had an event; there is nothing before it anyway.
        Position::Offset { offset, inclusive: true } if offset.as_number() == Some(0) => {
            expression(&Position::Earliest)
        }
        Position::Sequence { sequence, inclusive: true } if sequence.0 <= 0 => {
            expression(&Position::Earliest)
        }
        Position::Earliest => "amqp.annotation.x-opt-offset > '-1'".to_owned(),
        Position::Latest => "amqp.annotation.x-opt-offset > '@latest'".to_owned(),
        Position::Offset { offset, inclusive } => {
            format!("amqp.annotation.x-opt-offset {} '{offset}'", comparison(*inclusive))
        }
        Position::Sequence { sequence, inclusive } => {
            format!("amqp.annotation.x-opt-sequence-number {} '{sequence}'", comparison(*inclusive))
        }
        // The service takes the first event after a time, so that the one before a time is at it or later.
        Position::Time(time) => {
            format!("amqp.annotation.x-opt-enqueued-time > '{}'", time.millis().saturating_sub(1))
        }
    }
}

/// The filters of a source, with the expression for a position.
pub fn filter(from: &Position) -> Value {
    let expression = Value::from(expression(from));
    let described = Value::Described(Box::new(Value::Ulong(SELECTOR_CODE)), Box::new(expression));
    Value::Map(vec![(Value::Symbol(SELECTOR.into()), described)])
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
            assert_eq!(parse(text), Err(BadSelector::Invalid(text.to_owned())));
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
    fn positions_are_written_in_the_service_s_words() {
        for (position, text) in [
            (Position::Earliest, "amqp.annotation.x-opt-offset > '-1'"),
            (Position::Latest, "amqp.annotation.x-opt-offset > '@latest'"),
            (Position::at_sequence(SequenceNumber(0)), "amqp.annotation.x-opt-offset > '-1'"),
            (Position::after_sequence(SequenceNumber(0)), "amqp.annotation.x-opt-sequence-number > '0'"),
            (Position::at_offset(Offset::number(0)), "amqp.annotation.x-opt-offset > '-1'"),
            (Position::at_offset(Offset::number(7)), "amqp.annotation.x-opt-offset >= '7'"),
            (Position::after_offset(Offset::parse("1:2")), "amqp.annotation.x-opt-offset > '1:2'"),
            (Position::at_sequence(SequenceNumber(7)), "amqp.annotation.x-opt-sequence-number >= '7'"),
            (Position::after_sequence(SequenceNumber(7)), "amqp.annotation.x-opt-sequence-number > '7'"),
            (Position::Time(Timestamp(1_000)), "amqp.annotation.x-opt-enqueued-time > '999'"),
        ] {
            assert_eq!(expression(&position), text);
        }
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
