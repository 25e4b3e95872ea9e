//! Two kinds of time that are never compared with one another: wall time for people, ticks for leases.

use std::fmt;
use std::ops::{Add, Sub};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// Wall-clock time in milliseconds since 1970, as hubs and stores write it. It is shown, never used to judge a lease.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug, Default)]
pub struct Timestamp(pub i64);

impl Timestamp {
    /// Now, by this machine's wall clock.
    pub fn now() -> Self {
        Self::from(SystemTime::now())
    }

    /// Milliseconds since 1970.
    pub fn millis(self) -> i64 {
        self.0
    }
}

impl From<SystemTime> for Timestamp {
    fn from(time: SystemTime) -> Self {
        match time.duration_since(UNIX_EPOCH) {
            Ok(after) => Self(i64::try_from(after.as_millis()).unwrap_or(i64::MAX)),
            Err(before) => Self(i64::try_from(before.duration().as_millis()).map_or(i64::MIN, |ms| -ms)),
        }
    }
}

impl fmt::Display for Timestamp {
    /// RFC 3339 in UTC with milliseconds.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (days, ms) = (self.0.div_euclid(86_400_000), self.0.rem_euclid(86_400_000));
        // Civil date from a day count: years are shifted to begin in March, so that the leap day comes last.
        let shifted = days + 719_468;
        let (era, day_of_era) = (shifted.div_euclid(146_097), shifted.rem_euclid(146_097));
        let year_of_era =
            (day_of_era - day_of_era / 1_460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
        let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
        let month_from_march = (5 * day_of_year + 2) / 153;
        let day = day_of_year - (153 * month_from_march + 2) / 5 + 1;
        let month = if month_from_march < 10 { month_from_march + 3 } else { month_from_march - 9 };
        let year = year_of_era + era * 400 + i64::from(month <= 2);
        let (hour, minute) = (ms / 3_600_000, ms / 60_000 % 60);
        let (second, milli) = (ms / 1_000 % 60, ms % 1_000);
        write!(f, "{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}.{milli:03}Z")
    }
}

/// A moment on an instance's own clock, which only moves forward and counts time asleep. Ticks of different
/// instances have nothing to do with one another.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug, Default)]
pub struct Tick(pub u64);

impl Tick {
    /// How long `earlier` lies back, or zero if it does not.
    pub fn since(self, earlier: Tick) -> Duration {
        Duration::from_nanos(self.0.saturating_sub(earlier.0))
    }
}

impl Add<Duration> for Tick {
    type Output = Tick;

    fn add(self, rest: Duration) -> Tick {
        Tick(self.0.saturating_add(u64::try_from(rest.as_nanos()).unwrap_or(u64::MAX)))
    }
}

impl Sub<Duration> for Tick {
    type Output = Tick;

    fn sub(self, rest: Duration) -> Tick {
        Tick(self.0.saturating_sub(u64::try_from(rest.as_nanos()).unwrap_or(u64::MAX)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn timestamps_read_as_rfc_3339() {
        assert_eq!(Timestamp(0).to_string(), "1970-01-01T00:00:00.000Z");
        assert_eq!(Timestamp(951_782_400_123).to_string(), "2000-02-29T00:00:00.123Z");
        assert_eq!(Timestamp(-1).to_string(), "1969-12-31T23:59:59.999Z");
        assert_eq!(Timestamp(4_102_444_799_999).to_string(), "2099-12-31T23:59:59.999Z");
    }
}
