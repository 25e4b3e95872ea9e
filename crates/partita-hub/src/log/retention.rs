//! Which segments go.

use std::time::Duration;

use thiserror::Error;

/// Longer than anything lasts, and well within what can be counted: 1,000 years.
const AGE_MAX: Duration = Duration::from_secs(1_000 * 365 * 24 * 60 * 60);
/// More than any disk holds: 4 EiB.
const BYTES_MAX: u64 = 1 << 62;

/// How long and how much a hub keeps.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Retention {
    /// Events are kept at least this long.
    pub age: Duration,
    /// Bytes of segments the hub may take; the oldest go first when it takes more. None = no limit.
    pub bytes_max: Option<u64>,
}

impl Default for Retention {
    /// A day, as much as it takes.
    fn default() -> Self {
        Self { age: Duration::from_secs(24 * 60 * 60), bytes_max: None }
    }
}

/// Why a retention is refused.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Error)]
#[non_exhaustive]
pub enum RetentionError {
    /// Too long.
    #[error("a retention time has at most 365000 days: choose a shorter one")]
    Age,
    /// Nothing at all.
    #[error("a retention of 0 would keep nothing: choose a longer time or a larger size")]
    Nothing,
    /// Too much.
    #[error("a retention size has at most 4 EiB: choose a smaller one, or none")]
    Size,
}

impl Retention {
    /// Refuses what is beyond all that a hub can keep: numbers near the largest ones are mistakes, or mean no limit to
    /// somebody and a limit to somebody else.
    pub fn check(&self) -> Result<(), RetentionError> {
        if self.age.is_zero() || self.bytes_max == Some(0) {
            return Err(RetentionError::Nothing);
        }
        if self.age > AGE_MAX {
            return Err(RetentionError::Age);
        }
        if self.bytes_max.is_some_and(|bytes| bytes > BYTES_MAX) {
            return Err(RetentionError::Size);
        }
        Ok(())
    }
}

/// What retention looks at in a segment.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct SegmentFacts {
    pub(crate) sealed: bool,
    /// When its last event was enqueued; every other event in it is as old or older.
    pub(crate) last_time: i64,
    pub(crate) bytes: u64,
}

/// How many segments go, counted from the oldest.
///
/// A segment stays when
/// - it is not sealed: events are still being added. So an expired event in it is still delivered;
/// - a segment before it stays: a partition has one start, without holes behind it;
/// - its last event is younger than the age, and the hub is within its size;
/// - it is the newest: the next event's numbers are counted from it.
///
/// Segments hold events of all partitions, so the partitions of a hub lose their oldest events together.
pub(crate) fn expired(segments: &[SegmentFacts], retention: &Retention, now_ms: i64) -> usize {
    let age_ms = i64::try_from(retention.age.as_millis()).unwrap_or(i64::MAX);
    let mut bytes: u64 = segments.iter().map(|segment| segment.bytes).sum();
    let mut count = 0;
    let unsealed_too = partita_core::planted!(UnsealedRetention);
    for segment in segments.iter().take(segments.len().saturating_sub(usize::from(!unsealed_too))) {
        let old = now_ms.saturating_sub(segment.last_time) > age_ms;
        let over = retention.bytes_max.is_some_and(|max| bytes > max);
        if !(segment.sealed || unsealed_too) || !(old || over) {
            break;
        }
        bytes -= segment.bytes;
        count += 1;
    }
    count
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOUR: Retention = Retention { age: Duration::from_secs(3_600), bytes_max: None };

    fn sealed(last_time: i64) -> SegmentFacts {
        SegmentFacts { sealed: true, last_time, bytes: 10 }
    }

    fn open(last_time: i64) -> SegmentFacts {
        SegmentFacts { sealed: false, last_time, bytes: 10 }
    }

    #[test]
    fn retention_near_the_largest_number_is_refused() {
        let of = |secs, bytes_max| Retention { age: Duration::from_secs(secs), bytes_max }.check();
        assert_eq!(of(365_000 * 86_400, Some(1 << 62)), Ok(()));
        assert_eq!(of(1, Some(1)), Ok(()));
        for secs in [365_000 * 86_400 + 1, i64::MAX as u64, u64::MAX / 1_000, u64::MAX] {
            assert_eq!(of(secs, None), Err(RetentionError::Age), "{secs}");
        }
        for bytes in [(1 << 62) + 1, u64::MAX - 1, u64::MAX] {
            assert_eq!(of(1, Some(bytes)), Err(RetentionError::Size), "{bytes}");
        }
    }

    #[test]
    fn a_retention_that_keeps_nothing_is_refused() {
        for nothing in [(0, None), (1, Some(0))] {
            let retention = Retention { age: Duration::from_secs(nothing.0), bytes_max: nothing.1 };
            assert_eq!(retention.check(), Err(RetentionError::Nothing));
        }
    }

    #[test]
    fn expired_events_of_an_unsealed_segment_stay() {
        assert_eq!(expired(&[open(0)], &HOUR, i64::MAX), 0);
        assert_eq!(expired(&[sealed(0), open(0)], &HOUR, i64::MAX), 1);
    }

    #[test]
    fn a_segment_goes_when_its_last_event_is_past_the_age_and_not_before() {
        let segments = [sealed(0), sealed(1_000), open(5_000)];
        assert_eq!(expired(&segments, &HOUR, 3_600_000), 0);
        assert_eq!(expired(&segments, &HOUR, 3_600_001), 1);
        assert_eq!(expired(&segments, &HOUR, 3_601_001), 2);
    }

    #[test]
    fn no_segment_goes_before_an_older_one() {
        assert_eq!(expired(&[sealed(9_000_000), sealed(0), open(9_000_000)], &HOUR, 9_000_000), 0);
    }

    #[test]
    fn the_oldest_go_while_the_hub_is_over_its_size_but_never_the_newest() {
        let limit = |bytes| Retention { bytes_max: Some(bytes), ..HOUR };
        let segments = [sealed(0), sealed(0), sealed(0), open(0)];
        assert_eq!(expired(&segments, &limit(40), 0), 0);
        assert_eq!(expired(&segments, &limit(39), 0), 1);
        assert_eq!(expired(&segments, &limit(20), 0), 2);
        assert_eq!(expired(&segments, &limit(0), 0), 3);
        assert_eq!(expired(&[sealed(0)], &limit(0), i64::MAX), 0);
    }
}
