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

    /// Reads RFC 3339, as [`Timestamp`] writes it or with another fraction or offset; a time without an offset is
    /// taken for UTC, and what is finer than milliseconds is cut off.
    pub fn parse_rfc3339(text: &str) -> Option<Self> {
        let (date, rest) = text.split_at_checked(10)?;
        let [year, month, day] = numbers(date, '-', [4, 2, 2])?;
        let rest = rest.strip_prefix(['T', 't', ' '])?;
        let (time, rest) = rest.split_at_checked(8)?;
        let [hour, minute, second] = numbers(time, ':', [2, 2, 2])?;
        let (ms, zone) = match rest.strip_prefix('.') {
            Some(rest) => {
                let digits = rest.len() - rest.trim_start_matches(|c: char| c.is_ascii_digit()).len();
                let (fraction, zone) = rest.split_at(digits);
                let ms = format!("{fraction:0<3}").get(..3)?.parse::<i64>().ok()?;
                ((digits > 0).then_some(ms)?, zone)
            }
            None => (0, rest),
        };
        let offset_minutes = match zone {
            "" | "Z" | "z" => 0,
            _ => {
                let sign = if zone.starts_with('-') { -1 } else { 1 };
                let [hours, minutes] = numbers(zone.strip_prefix(['+', '-'])?, ':', [2, 2])?;
                (hours <= 23 && minutes <= 59).then_some(sign * (hours * 60 + minutes))?
            }
        };
        let in_range = (1..=12).contains(&month)
            && (1..=days_of_month(year, month)).contains(&day)
            && hour <= 23
            && minute <= 59
            && second <= 59;
        let minutes = (day_number(year, month, day) * 24 + hour) * 60 + minute - offset_minutes;
        in_range.then_some(Self((minutes * 60 + second) * 1_000 + ms))
    }
}

/// Numbers of exactly these lengths, with `separator` between them.
fn numbers<const N: usize>(text: &str, separator: char, lengths: [usize; N]) -> Option<[i64; N]> {
    let mut parts = text.split(separator);
    let mut found = [0; N];
    for (number, length) in found.iter_mut().zip(lengths) {
        let part = parts.next()?;
        let digits = part.len() == length && part.bytes().all(|c| c.is_ascii_digit());
        *number = digits.then(|| part.parse().ok())??;
    }
    parts.next().is_none().then_some(found)
}

fn days_of_month(year: i64, month: i64) -> i64 {
    let leap = year % 4 == 0 && (year % 100 != 0 || year % 400 == 0);
    match month {
        2 if leap => 29,
        2 => 28,
        4 | 6 | 9 | 11 => 30,
        _ => 31,
    }
}

/// Days since 1970 of a civil date; the inverse of what `Display` does.
fn day_number(year: i64, month: i64, day: i64) -> i64 {
    let year = if month <= 2 { year - 1 } else { year };
    let era = year.div_euclid(400);
    let year_of_era = year.rem_euclid(400);
    let month_from_march = (month + 9) % 12;
    let day_of_year = (153 * month_from_march + 2) / 5 + day - 1;
    era * 146_097 + year_of_era * 365 + year_of_era / 4 - year_of_era / 100 + day_of_year - 719_468
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

/// A moment on an instance's own clock, which only moves forward and counts time asleep (where the system has such a
/// clock: see `TokioRuntime`). Ticks of different instances have nothing to do with one another.
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

    #[test]
    fn rfc_3339_is_read_with_any_fraction_and_offset() {
        for (text, ms) in [
            ("1970-01-01T00:00:00Z", 0),
            ("2000-02-29T00:00:00.123Z", 951_782_400_123),
            ("2000-02-29t01:00:00.1239999+01:00", 951_782_400_123),
            ("2000-02-28 22:30:00.1-01:30", 951_782_400_100),
            ("2000-02-29T00:00:00", 951_782_400_000),
            ("1969-12-31T23:59:59.999Z", -1),
        ] {
            assert_eq!(Timestamp::parse_rfc3339(text), Some(Timestamp(ms)), "{text}");
        }
        for text in [
            "",
            "now",
            "2000-02-29",
            "2001-02-29T00:00:00Z",
            "2000-13-01T00:00:00Z",
            "2000-00-01T00:00:00Z",
            "2000-01-01T24:00:00Z",
            "2000-01-01T00:00:00.Z",
            "2000-01-01T00:00:00+1:00",
            "2000-01-01T00:00:00Zx",
            "+200-01-01T00:00:00Z",
            "2000-01-0é",
            "2000-1-001T00:00:00Z",
        ] {
            assert_eq!(Timestamp::parse_rfc3339(text), None, "{text}");
        }
    }

    proptest::proptest! {
        #[test]
        fn a_timestamp_comes_back_from_its_text(ms in -62_135_596_800_000_i64..253_402_300_799_999) {
            let time = Timestamp(ms);
            proptest::prop_assert_eq!(Timestamp::parse_rfc3339(&time.to_string()), Some(time));
        }
    }
}
