//! Times and sizes as people write them.

use std::fmt;
use std::time::Duration;

const TIME_UNITS: [(&str, u64); 5] =
    [("d", 86_400_000), ("h", 3_600_000), ("m", 60_000), ("s", 1_000), ("ms", 1)];
const SIZE_UNITS: [(&str, u64); 5] =
    [("TiB", 1 << 40), ("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10), ("B", 1)];

/// Reads `20s`, `1.5s`, `500ms`, `2m`, `1h` or `7d`.
pub(crate) fn parse_time(text: &str) -> Result<Duration, String> {
    let bad = || format!("{text:?} is no time: write 20s, 1.5s, 500ms, 2m, 1h or 7d");
    let (number, unit) = split(text).ok_or_else(bad)?;
    let (_, ms) = TIME_UNITS.iter().find(|(name, _)| *name == unit).ok_or_else(bad)?;
    Duration::try_from_secs_f64(number * *ms as f64 / 1_000.0).map_err(|_| format!("{text:?} is too long"))
}

/// Reads `512MiB`, `10GiB`, `1.5G`, `2GB` (all of them powers of 1024) or a number of bytes.
pub(crate) fn parse_size(text: &str) -> Result<u64, String> {
    let bad = || format!("{text:?} is no size: write 512MiB, 10GiB or a number of bytes");
    let (number, unit) = split(text).ok_or_else(bad)?;
    let unit = unit.to_ascii_uppercase();
    let scale = match unit.trim_end_matches('B').trim_end_matches('I') {
        "" => 1,
        "K" => 1 << 10,
        "M" => 1 << 20,
        "G" => 1 << 30,
        "T" => 1u64 << 40,
        _ => return Err(bad()),
    };
    let bytes = number * scale as f64;
    if bytes < u64::MAX as f64 { Ok(bytes as u64) } else { Err(format!("{text:?} is too much")) }
}

/// A plain number and what follows it.
fn split(text: &str) -> Option<(f64, &str)> {
    let at = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
    let (number, unit) = text.split_at(at);
    Some((number.parse().ok()?, unit))
}

/// A time as a user would write it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Time(pub(crate) Duration);

impl fmt::Display for Time {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ms = u64::try_from(self.0.as_millis()).unwrap_or(u64::MAX);
        match TIME_UNITS.iter().find(|(_, unit)| ms > 0 && ms.is_multiple_of(*unit)) {
            // 90000 ms is 1.5 minutes to nobody.
            Some((name, unit)) if ms / unit < 1_000 || *unit > 1_000 => write!(f, "{}{name}", ms / unit),
            _ => write!(f, "{}s", ms as f64 / 1_000.0),
        }
    }
}

/// A number of bytes as a person would say it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Size(pub(crate) u64);

impl fmt::Display for Size {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (name, unit) = SIZE_UNITS.iter().find(|(_, unit)| self.0 >= *unit).unwrap_or(&SIZE_UNITS[4]);
        let number = self.0 as f64 / *unit as f64;
        if number >= 100.0 || self.0.is_multiple_of(*unit) {
            write!(f, "{number:.0} {name}")
        } else {
            write!(f, "{number:.1} {name}")
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_read_as_people_write_them() {
        let ms = |text| parse_time(text).unwrap().as_millis();
        assert_eq!(
            ["20s", "1.5s", "500ms", "2m", "1h", "7d", "0s"].map(ms),
            [20_000, 1_500, 500, 120_000, 3_600_000, 604_800_000, 0]
        );
        for bad in ["", "20", "s", "-1s", "1e3s", "5 s", "2w", "1.2.3s", "infs"] {
            assert!(parse_time(bad).unwrap_err().contains("write 20s"), "{bad:?}");
        }
        assert!(parse_time("99999999999999999999h").unwrap_err().contains("too long"));
    }

    #[test]
    fn times_are_written_as_they_are_read() {
        for text in ["20s", "1.5s", "500ms", "2m", "0s", "90m", "1d", "7d", "36h", "90s"] {
            assert_eq!(Time(parse_time(text).unwrap()).to_string(), text);
        }
    }

    #[test]
    fn sizes_are_read_and_written() {
        let bytes = |text| parse_size(text).unwrap();
        assert_eq!(
            ["7", "1KiB", "1.5k", "512MiB", "10G", "2GB", "1TiB"].map(bytes),
            [7, 1 << 10, 1_536, 512 << 20, 10 << 30, 2 << 30, 1 << 40]
        );
        for bad in ["", "x", "1X", "-1", "1 GiB"] {
            assert!(parse_size(bad).unwrap_err().contains("is no size"), "{bad:?}");
        }
        assert!(parse_size("99999999T").unwrap_err().contains("too much"));
        let text = |bytes| Size(bytes).to_string();
        assert_eq!(
            [0, 999, 1_024, 1_536, 10 << 20, (1 << 30) + (1 << 29), 5_000_000_000].map(text),
            ["0 B", "999 B", "1 KiB", "1.5 KiB", "10 MiB", "1.5 GiB", "4.7 GiB"]
        );
    }
}
