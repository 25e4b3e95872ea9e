//! Durations and sizes as people write them, the same in all commands.

use std::fmt;
use std::time::Duration;

use bytesize::ByteSize;

/// Beyond anything that is meant, and well within what clocks can add.
const DURATION_MAX: Duration = Duration::from_secs(u32::MAX as u64 * 365 * 86_400);

const TEXT_BYTES_MAX: usize = 20;

/// Reads `20s`, `1.5s`, `500ms`, `2m`, `1h30m` or `7d`.
pub(crate) fn parse_time(text: &str) -> Result<Duration, String> {
    // The parser adds up as many parts as there are; nobody means so many.
    if text.len() > TEXT_BYTES_MAX {
        return Err(format!("the duration {text:?} is too long"));
    }
    match humantime::parse_duration(text) {
        Ok(time) if time <= DURATION_MAX => Ok(time),
        Ok(_) | Err(humantime::DurationError::NumberOverflow) => {
            Err(format!("the duration {text:?} is too long"))
        }
        Err(_) => Err(format!("invalid duration {text:?}: write 20s, 1.5s, 500ms, 2m, 1h30m or 7d")),
    }
}

/// Reads a time that events are kept for: whole seconds, as a hub counts them.
pub(crate) fn parse_retention(text: &str) -> Result<Duration, String> {
    match parse_time(text)? {
        time if time.subsec_nanos() == 0 => Ok(time),
        _ => {
            Err(format!("a retention time has whole seconds, and {text} has not: write 20s, 2m, 1h30m or 7d"))
        }
    }
}

/// Reads `512MiB`, `10GiB`, `2GB` (powers of 1000, as MiB and GiB are of 1024) or a number of bytes.
pub(crate) fn parse_size(text: &str) -> Result<u64, String> {
    match text.parse::<ByteSize>() {
        // What does not fit is cut to the largest number there is.
        Ok(ByteSize(u64::MAX)) => Err(format!("the size {text:?} is too large")),
        Ok(ByteSize(bytes)) => Ok(bytes),
        Err(_) => Err(format!("invalid size {text:?}: write 512MiB, 10GiB, 2GB or a number of bytes")),
    }
}

/// A duration as a user would write it, to the millisecond.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Time(pub(crate) Duration);

impl fmt::Display for Time {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ms = u64::try_from(self.0.as_millis()).unwrap_or(u64::MAX);
        humantime::format_duration(Duration::from_millis(ms)).fmt(f)
    }
}

/// A number of bytes as a person would say it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Size(pub(crate) u64);

impl fmt::Display for Size {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text = ByteSize(self.0).display().iec().to_string();
        f.pad(&text.replacen(".0 ", " ", 1))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_read_as_people_write_them() {
        let ms = |text| parse_time(text).unwrap().as_millis();
        assert_eq!(
            ["20s", "1.5s", "500ms", "2m", "1h", "1h30m", "7d", "0s"].map(ms),
            [20_000, 1_500, 500, 120_000, 3_600_000, 5_400_000, 604_800_000, 0]
        );
        for bad in ["", "20", "s", "-1s", "1e3s", "2x", "1.2.3s", "infs"] {
            assert!(parse_time(bad).unwrap_err().contains("write 20s"), "{bad:?}");
        }
        for long in ["9999999999999999999h", "18446744073709551615s1000ms", "999999999999y"] {
            assert!(parse_time(long).unwrap_err().contains("too long"), "{long}");
        }
    }

    #[test]
    fn times_that_are_written_are_read_again() {
        for (text, written) in [
            ("20s", "20s"),
            ("1.5s", "1s 500ms"),
            ("500ms", "500ms"),
            ("90m", "1h 30m"),
            ("7d", "7days"),
            ("0s", "0s"),
        ] {
            let time = parse_time(text).unwrap();
            assert_eq!(Time(time).to_string(), written);
            assert_eq!(parse_time(written), Ok(time));
        }
    }

    #[test]
    fn sizes_are_read_and_written() {
        let bytes = |text| parse_size(text).unwrap();
        assert_eq!(
            ["7", "1KiB", "1.5k", "512MiB", "10G", "2GB", "1TiB", "4EiB", "1 GiB"].map(bytes),
            [7, 1 << 10, 1_500, 512 << 20, 10_000_000_000, 2_000_000_000, 1 << 40, 1 << 62, 1 << 30]
        );
        for bad in ["", "x", "1X", "-1"] {
            assert!(parse_size(bad).unwrap_err().contains("invalid size"), "{bad:?}");
        }
        assert!(parse_size("99999999T").unwrap_err().contains("too large"));
        let text = |bytes| Size(bytes).to_string();
        assert_eq!(
            [0, 999, 1_024, 1_536, 10 << 20, (1 << 30) + (1 << 29), 5_000_000_000, 1 << 62].map(text),
            ["0 B", "999 B", "1 KiB", "1.5 KiB", "10 MiB", "1.5 GiB", "4.7 GiB", "4 EiB"]
        );
    }
}
