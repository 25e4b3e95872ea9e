//! Where in a partition: offsets, sequence numbers and the positions a reader can start at.

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use thiserror::Error;

use super::Timestamp;

/// Counts the events of a partition from 0.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug, Default)]
pub struct SequenceNumber(pub i64);

impl fmt::Display for SequenceNumber {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// An event's place in its partition as the hub names it: a byte position, or a text of the service's own making.
/// Offsets are compared for equality only; order is the sequence number's.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct Offset(Repr);

#[derive(Clone, PartialEq, Eq, Hash)]
enum Repr {
    Number(u64),
    Text(Arc<str>),
}

impl Offset {
    /// A byte position.
    pub const fn number(bytes: u64) -> Self {
        Self(Repr::Number(bytes))
    }

    /// Reads an offset from its text. Text that is a canonical number equals [`Offset::number`].
    pub fn parse(text: &str) -> Self {
        match text.parse::<u64>() {
            // A canonical number has no sign, and no zero before other digits.
            Ok(bytes) if text == "0" || !text.starts_with(['0', '+']) => Self::number(bytes),
            _ => Self(Repr::Text(Arc::from(text))),
        }
    }

    /// The byte position, where the offset is one.
    pub fn as_number(&self) -> Option<u64> {
        match self.0 {
            Repr::Number(bytes) => Some(bytes),
            Repr::Text(_) => None,
        }
    }
}

impl fmt::Display for Offset {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0 {
            Repr::Number(bytes) => bytes.fmt(f),
            Repr::Text(text) => text.fmt(f),
        }
    }
}

impl fmt::Debug for Offset {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// The place of one event, both ways the hub names it. Places are equal if both names are.
#[derive(Clone, Debug)]
pub struct StreamPosition {
    /// The event's sequence number.
    pub sequence: SequenceNumber,
    /// The event's offset.
    pub offset: Offset,
    /// When the event was enqueued, where that is known: no part of the place, but it tells the event from another one
    /// that a hub has at the same place after its data were replaced.
    pub enqueued_time: Option<Timestamp>,
}

impl StreamPosition {
    /// A place, without the time of its event.
    pub const fn new(sequence: SequenceNumber, offset: Offset) -> Self {
        Self { sequence, offset, enqueued_time: None }
    }
}

impl PartialEq for StreamPosition {
    fn eq(&self, other: &Self) -> bool {
        (self.sequence, &self.offset) == (other.sequence, &other.offset)
    }
}

impl Eq for StreamPosition {}

impl std::hash::Hash for StreamPosition {
    fn hash<H: std::hash::Hasher>(&self, state: &mut H) {
        (self.sequence, &self.offset).hash(state);
    }
}

impl fmt::Display for StreamPosition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "seq:{} offset:{}", self.sequence, self.offset)
    }
}

/// Where reading starts.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Default)]
pub enum Position {
    /// The oldest event that the hub still has.
    #[default]
    Earliest,
    /// Only events that arrive after the reader attached.
    Latest,
    /// The event at an offset, or the one after it.
    Offset {
        /// The offset.
        offset: Offset,
        /// Whether the event at the offset is delivered too.
        inclusive: bool,
    },
    /// The event with a sequence number, or the one after it.
    Sequence {
        /// The sequence number.
        sequence: SequenceNumber,
        /// Whether the event with that number is delivered too.
        inclusive: bool,
    },
    /// The first event enqueued at this time or later.
    Time(Timestamp),
}

impl Position {
    /// The event at `offset`.
    pub fn at_offset(offset: Offset) -> Self {
        Self::Offset { offset, inclusive: true }
    }

    /// The event after the one at `offset`.
    pub fn after_offset(offset: Offset) -> Self {
        Self::Offset { offset, inclusive: false }
    }

    /// The event numbered `sequence`.
    pub fn at_sequence(sequence: SequenceNumber) -> Self {
        Self::Sequence { sequence, inclusive: true }
    }

    /// The event after the one numbered `sequence`.
    pub fn after_sequence(sequence: SequenceNumber) -> Self {
        Self::Sequence { sequence, inclusive: false }
    }
}

impl fmt::Display for Position {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let after = |inclusive: &bool| if *inclusive { "" } else { "after " };
        match self {
            Self::Earliest => f.write_str("earliest"),
            Self::Latest => f.write_str("latest"),
            Self::Offset { offset, inclusive } => write!(f, "{}offset:{offset}", after(inclusive)),
            Self::Sequence { sequence, inclusive } => write!(f, "{}seq:{sequence}", after(inclusive)),
            Self::Time(time) => write!(f, "{time}"),
        }
    }
}

/// A text that names no position.
#[derive(Clone, PartialEq, Eq, Debug, Error)]
#[error(
    "invalid position '{text}': use earliest, latest, a time such as 2026-01-31T08:00:00Z or 10m-ago, seq:N or offset:N"
)]
pub struct PositionError {
    text: String,
}

impl Position {
    /// Reads the words that commands and configuration use: `earliest`, `latest`, `seq:N` and `offset:N` (that event,
    /// or with `after ` before it the next one), a time in RFC 3339, or how long ago (`90s-ago`, `10m-ago`, `2h-ago`,
    /// `1d-ago`) counted from `now`. What [`Position`] prints is read back.
    pub fn parse(text: &str, now: Timestamp) -> Result<Self, PositionError> {
        let fail = || PositionError { text: text.to_owned() };
        let (inclusive, place) = match text.strip_prefix("after ") {
            Some(place) => (false, place),
            None => (true, text),
        };
        if let Some(number) = place.strip_prefix("seq:") {
            let sequence = SequenceNumber(number.parse().map_err(|_| fail())?);
            return Ok(Self::Sequence { sequence, inclusive });
        }
        match place.strip_prefix("offset:") {
            Some("") => return Err(fail()),
            Some(offset) => return Ok(Self::Offset { offset: Offset::parse(offset), inclusive }),
            None if !inclusive => return Err(fail()),
            None => {}
        }
        match text {
            "earliest" => Ok(Self::Earliest),
            "latest" => Ok(Self::Latest),
            _ => match text.strip_suffix("-ago") {
                Some(ago) => ago_ms(ago).map(|ms| Self::Time(Timestamp(now.0.saturating_sub(ms)))),
                None => Timestamp::parse_rfc3339(text).map(Self::Time),
            }
            .ok_or_else(fail),
        }
    }
}

impl FromStr for Position {
    type Err = PositionError;

    /// See [`Position::parse`]; counted from this machine's wall clock.
    fn from_str(text: &str) -> Result<Self, PositionError> {
        Self::parse(text, Timestamp::now())
    }
}

/// Milliseconds of a number with a unit.
fn ago_ms(text: &str) -> Option<i64> {
    let digits = text.trim_start_matches(|c: char| c.is_ascii_digit());
    let unit_ms = match digits {
        "ms" => 1,
        "s" => 1_000,
        "m" => 60_000,
        "h" => 3_600_000,
        "d" => 86_400_000,
        _ => return None,
    };
    text[..text.len() - digits.len()].parse::<i64>().ok()?.checked_mul(unit_ms)
}

/// The end of a partition as a reader last heard of it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct LastEnqueued {
    /// The last event, or none if the partition is empty.
    pub position: Option<StreamPosition>,
    /// When that event was enqueued.
    pub enqueued_time: Option<Timestamp>,
    /// When the hub said so.
    pub retrieved: Timestamp,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn offsets_of_canonical_numbers_are_numbers_and_others_keep_their_text() {
        assert_eq!(Offset::parse("4294967296"), Offset::number(4_294_967_296));
        assert_eq!(Offset::parse("007").to_string(), "007");
        assert_eq!(Offset::parse("12:3:4").to_string(), "12:3:4");
        assert_eq!(Offset::parse("007").as_number(), None);
    }

    #[test]
    fn positions_are_named_by_the_same_words_everywhere() {
        let now = Timestamp(1_000_000_000);
        for (text, position) in [
            ("earliest", Position::Earliest),
            ("latest", Position::Latest),
            ("seq:7", Position::at_sequence(SequenceNumber(7))),
            ("after seq:7", Position::after_sequence(SequenceNumber(7))),
            ("offset:4096", Position::at_offset(Offset::number(4_096))),
            ("after offset:1:2:3", Position::after_offset(Offset::parse("1:2:3"))),
            ("10m-ago", Position::Time(Timestamp(999_400_000))),
            ("0s-ago", Position::Time(now)),
            ("1970-01-01T00:00:01Z", Position::Time(Timestamp(1_000))),
        ] {
            assert_eq!(Position::parse(text, now), Ok(position.clone()), "{text}");
            assert_eq!(Position::parse(&position.to_string(), now), Ok(position), "{text}, printed");
        }
        for text in [
            "",
            "first",
            "seq:",
            "seq:x",
            "offset:",
            "after latest",
            "10-ago",
            "m-ago",
            "9999999999999999d-ago",
        ] {
            let error = Position::parse(text, now).expect_err(text);
            assert!(error.to_string().starts_with(&format!("invalid position '{text}': use ")), "{error}");
        }
    }
}
