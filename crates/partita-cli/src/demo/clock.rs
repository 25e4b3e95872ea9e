//! A clock that all processes of the machine share and nobody sets.

use std::time::Duration;

/// Time since some moment before the machine's last start.
#[cfg(unix)]
pub(crate) fn now() -> Duration {
    use rustix::time::{ClockId, clock_gettime};
    let now = clock_gettime(ClockId::Monotonic);
    Duration::new(now.tv_sec.unsigned_abs(), u32::try_from(now.tv_nsec).unwrap_or(0))
}

/// Time since some moment. Where no shared clock is at hand, the wall clock has to do.
#[cfg(not(unix))]
pub(crate) fn now() -> Duration {
    std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or_default()
}
