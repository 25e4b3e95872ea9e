//! Where a reader starts, as the filter of its link: the service's small language.

use partita_core::model::{Position, Value};

/// The name of the filter.
const SELECTOR: &str = "apache.org:selector-filter:string";
/// Its descriptor.
const SELECTOR_CODE: u64 = 0x0000_468C_0000_0004;

/// The expression for a position.
pub(crate) fn expression(from: &Position) -> String {
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
pub(crate) fn filter(from: &Position) -> Value {
    let expression = Value::from(expression(from));
    let described = Value::Described(Box::new(Value::Ulong(SELECTOR_CODE)), Box::new(expression));
    Value::Map(vec![(Value::Symbol(SELECTOR.into()), described)])
}

#[cfg(test)]
mod tests {
    use partita_core::model::{Offset, SequenceNumber, Timestamp};

    use super::*;

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
}
