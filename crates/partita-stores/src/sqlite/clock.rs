//! The clock that ages are measured by: one that nobody can set, and that all processes of the machine share.
//!
//! On Linux it is `CLOCK_BOOTTIME`: it starts at 0 when the kernel does, counts time asleep, and no change of the wall
//! clock moves it. Two readings are comparable within one boot, so a stamp carries the kernel's boot id. A stamp of
//! another boot says that its writer is gone, but not since when; see [`ANOTHER_BOOT`].
//!
//! Other Unix systems have `CLOCK_MONOTONIC`, and no boot id that can be read as simply. There a stamp that lies ahead
//! is of another boot; one that does not is taken for one of this boot, which delays a burial by a ttl at most.

use std::sync::Arc;
use std::time::Duration;

/// The age of whoever stamped its record in another boot. Old enough for every ttl, so what decides is how long the
/// observer itself has watched the record stand still (by its own clock, as the protocol demands of it anyway).
pub(super) const ANOTHER_BOOT: Duration = Duration::from_secs(24 * 3_600);

/// A moment: nanoseconds since the boot of that name.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Stamp {
    pub(super) boot: Arc<str>,
    pub(super) nanos: i64,
}

impl Stamp {
    /// How long `earlier` lies back.
    pub(super) fn since(&self, earlier: &Stamp) -> Duration {
        let nanos = self.nanos.checked_sub(earlier.nanos).and_then(|nanos| u64::try_from(nanos).ok());
        match nanos {
            Some(nanos) if self.boot == earlier.boot => Duration::from_nanos(nanos),
            // A clock that never goes back shows a stamp from ahead only if it started over.
            _ => ANOTHER_BOOT,
        }
    }
}

/// Where stamps come from. The wall clock is none.
pub(super) trait Clock: Send + Sync + 'static {
    fn now(&self) -> Stamp;
}

/// The machine's.
#[derive(Debug)]
pub(super) struct BootClock {
    boot: Arc<str>,
}

impl BootClock {
    /// None where the system has no clock that processes share.
    pub(super) fn new() -> Option<Self> {
        Some(Self { boot: if cfg!(unix) { boot_id() } else { return None } })
    }
}

/// Empty where the system does not tell; ages are then as on systems that have none.
fn boot_id() -> Arc<str> {
    let id = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default();
    Arc::from(id.trim())
}

#[cfg(unix)]
impl Clock for BootClock {
    fn now(&self) -> Stamp {
        use rustix::time::{ClockId, clock_gettime};
        #[cfg(any(target_os = "linux", target_os = "android"))]
        let time = clock_gettime(ClockId::Boottime);
        #[cfg(not(any(target_os = "linux", target_os = "android")))]
        let time = clock_gettime(ClockId::Monotonic);
        let nanos = (time.tv_sec as i64).saturating_mul(1_000_000_000).saturating_add(time.tv_nsec as i64);
        Stamp { boot: Arc::clone(&self.boot), nanos }
    }
}

#[cfg(not(unix))]
impl Clock for BootClock {
    fn now(&self) -> Stamp {
        // Never made: `new` gives none here.
        Stamp { boot: Arc::clone(&self.boot), nanos: 0 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stamp(boot: &str, nanos: i64) -> Stamp {
        Stamp { boot: Arc::from(boot), nanos }
    }

    #[test]
    fn ages_are_differences_within_a_boot() {
        assert_eq!(stamp("a", 500).since(&stamp("a", 200)), Duration::from_nanos(300));
        assert_eq!(stamp("a", 500).since(&stamp("a", 500)), Duration::ZERO);
    }

    #[test]
    fn a_stamp_of_another_boot_is_old_whatever_its_number() {
        for nanos in [i64::MIN, 0, 499, 501, i64::MAX] {
            assert_eq!(stamp("b", 500).since(&stamp("a", nanos)), ANOTHER_BOOT);
        }
        assert_eq!(stamp("", 500).since(&stamp("", 501)), ANOTHER_BOOT, "the clock started over");
    }

    #[test]
    fn the_clock_goes_on_and_names_its_boot() {
        let clock = BootClock::new().expect("tests run on Unix");
        let first = clock.now();
        std::thread::sleep(Duration::from_millis(2));
        assert!(clock.now().since(&first) >= Duration::from_millis(2));
        assert!(clock.now().since(&first) < Duration::from_secs(60));
        assert_eq!(BootClock::new().expect("tests run on Unix").now().boot, first.boot);
    }
}
