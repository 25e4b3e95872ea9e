//! Time as it passes and time as the process uses it.

use std::time::{Duration, Instant};

/// A moment by both clocks.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Stamp {
    wall: Instant,
    cpu: Duration,
}

/// What passed between two moments.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Spent {
    pub(crate) wall: Duration,
    /// Of all threads of the process.
    pub(crate) cpu: Duration,
}

impl Stamp {
    pub(crate) fn now() -> Self {
        Self { wall: Instant::now(), cpu: cpu() }
    }

    pub(crate) fn until(self, later: Stamp) -> Spent {
        Spent { wall: later.wall - self.wall, cpu: later.cpu.saturating_sub(self.cpu) }
    }
}

#[cfg(unix)]
fn cpu() -> Duration {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
    Duration::new(time.tv_sec.unsigned_abs(), u32::try_from(time.tv_nsec).unwrap_or(0))
}

/// Without such a clock the wall's stands in for it.
#[cfg(not(unix))]
fn cpu() -> Duration {
    static START: std::sync::OnceLock<Instant> = std::sync::OnceLock::new();
    START.get_or_init(Instant::now).elapsed()
}
