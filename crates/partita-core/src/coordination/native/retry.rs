//! When something that failed is tried again.

use std::time::Duration;

use crate::model::Tick;

/// Counts failures in a row and keeps when to try again.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Retry {
    at: Tick,
    failures: u32,
}

impl Retry {
    pub(super) fn is_due(self, now: Tick) -> bool {
        now >= self.at
    }

    /// It worked: the next failure is a first one.
    pub(super) fn succeeded(&mut self) {
        self.failures = 0;
    }

    /// It failed; tells when to try again: after a quarter of a cycle, doubling up to a cycle, with jitter.
    pub(super) fn failed(&mut self, now: Tick, cycle: Duration, rng: &mut fastrand::Rng) -> Tick {
        let pause = (cycle / 4) * 2_u32.pow(self.failures.min(2));
        self.failures += 1;
        self.at = now + pause.mul_f64(0.75 + 0.25 * rng.f64());
        self.at
    }
}
