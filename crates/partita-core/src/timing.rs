//! The times of the protocol and the conditions between them.

use std::time::Duration;

/// How far apart two clocks may drift: 0.1 %.
const DRIFT_PER_MILLE: u32 = 1;

/// The longest ttl.
const LONGEST: Duration = Duration::from_secs(86_400);

/// How late a woken task may run.
const SCHEDULING_SLACK: Duration = Duration::from_millis(50);

/// Cycle, ttl and what follows from them. Only combinations that keep the protocol safe can be made.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Timing {
    cycle: Duration,
    ttl: Duration,
    call_deadline: Duration,
    margin: Duration,
}

/// Why a [`Timing`] cannot be.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TimingError {
    /// A cycle in which no store could answer.
    #[error("the cycle must be at least 100 ms, not {0:?}")]
    CycleTooShort(Duration),
    /// Longer than anybody would wait.
    #[error("the ttl must be at most a day, not {0:?}")]
    TooLong(Duration),
    /// Two heartbeats that fail in a row would already cost the lease.
    #[error(
        "a ttl of {ttl:?} is too short for a cycle of {cycle:?}: it must be at least {ttl_min:?}, so that a \
         heartbeat may fail and be repeated before the lease ends"
    )]
    TtlTooShort {
        /// The cycle asked for.
        cycle: Duration,
        /// The ttl asked for.
        ttl: Duration,
        /// The least ttl for that cycle.
        ttl_min: Duration,
    },
}

impl Timing {
    /// For stores that answer in milliseconds at no price: cycle 1 s, ttl 5 s.
    pub const FAST: Self = Self {
        cycle: Duration::from_secs(1),
        ttl: Duration::from_secs(5),
        call_deadline: Duration::from_millis(400),
        margin: Duration::from_millis(1_500),
    };

    /// For stores whose calls cost money: cycle 5 s, ttl 20 s.
    pub const FRUGAL: Self = Self {
        cycle: Duration::from_secs(5),
        ttl: Duration::from_secs(20),
        call_deadline: Duration::from_millis(1_500),
        margin: Duration::from_secs(7),
    };

    /// A heartbeat every `cycle`, an instance given up for dead after `ttl` without one. The ttl must be at least
    /// 4.1 cycles, and is rounded up to whole milliseconds, which is what stores keep. Store calls are given 0.4 cycles.
    pub fn new(cycle: Duration, ttl: Duration) -> Result<Self, TimingError> {
        if cycle < Duration::from_millis(100) {
            return Err(TimingError::CycleTooShort(cycle));
        }
        if let Some(time) = [cycle, ttl].into_iter().find(|time| *time > LONGEST) {
            return Err(TimingError::TooLong(time));
        }
        // Nobody may be taken for dead before its ttl because a store cannot say what that is.
        let ttl = whole_millis(ttl);
        let call_deadline = cycle * 2 / 5;
        let margin = (longest(cycle) + call_deadline).max(2 * uncertainty(ttl));
        let ttl_min = margin + 2 * longest(cycle) + call_deadline;
        if ttl < ttl_min {
            return Err(TimingError::TtlTooShort { cycle, ttl, ttl_min });
        }
        Ok(Self { cycle, ttl, call_deadline, margin })
    }

    /// Time between heartbeats (c); up to a tenth more with jitter.
    pub fn cycle(&self) -> Duration {
        self.cycle
    }

    /// Age at which an instance may be buried (T).
    pub fn ttl(&self) -> Duration {
        self.ttl
    }

    /// How long a store call may take before its outcome counts as unknown (r).
    pub fn call_deadline(&self) -> Duration {
        self.call_deadline
    }

    /// By how much a lease ends before others may bury (m).
    pub fn margin(&self) -> Duration {
        self.margin
    }

    /// How long a heartbeat keeps the lease valid, counted from its sending (T - m).
    pub fn lease(&self) -> Duration {
        self.ttl - self.margin
    }

    /// When running calls are cancelled, counted from the sending of the last acknowledged heartbeat.
    pub fn hard_stop(&self) -> Duration {
        self.ttl - uncertainty(self.ttl)
    }

    /// The longest time between two heartbeats (c+).
    pub fn cycle_max(&self) -> Duration {
        longest(self.cycle)
    }
}

fn longest(cycle: Duration) -> Duration {
    cycle * 11 / 10
}

fn whole_millis(time: Duration) -> Duration {
    let millis = time.as_nanos().div_ceil(1_000_000);
    Duration::from_millis(u64::try_from(millis).unwrap_or(u64::MAX))
}

/// By how much the end of a ttl may be misjudged.
fn uncertainty(ttl: Duration) -> Duration {
    ttl * DRIFT_PER_MILLE / 1_000 + SCHEDULING_SLACK
}

#[cfg(test)]
mod tests {
    use super::*;

    fn is_safe(t: Timing) {
        assert!(t.margin() >= t.cycle_max() + t.call_deadline(), "{t:?}");
        assert!(t.lease() >= 2 * t.cycle_max() + t.call_deadline(), "{t:?}");
        assert!(t.hard_stop() > t.lease() && t.hard_stop() < t.ttl(), "{t:?}");
    }

    #[test]
    fn all_timings_keep_the_protocols_conditions() {
        is_safe(Timing::FAST);
        is_safe(Timing::FRUGAL);
        for ms in [100, 333, 1_000, 60_000] {
            let cycle = Duration::from_millis(ms);
            is_safe(Timing::new(cycle, cycle * 41 / 10).unwrap());
            is_safe(Timing::new(cycle, cycle * 41 / 10 + Duration::from_secs(3_600)).unwrap());
        }
    }

    #[test]
    fn absurd_times_are_refused() {
        let forever = Duration::MAX;
        assert_eq!(Timing::new(forever, forever), Err(TimingError::TooLong(forever)));
        assert_eq!(Timing::new(Duration::from_secs(1), forever), Err(TimingError::TooLong(forever)));
    }

    #[test]
    fn a_ttl_is_whole_milliseconds_and_never_less_than_asked_for() {
        let ttl = |nanos| {
            let asked = Duration::from_secs(5) + Duration::from_nanos(nanos);
            Timing::new(Duration::from_secs(1), asked).unwrap().ttl().as_nanos() - 5_000_000_000
        };
        assert_eq!(
            [0, 1, 999_999, 1_000_000, 1_000_001].map(ttl),
            [0, 1_000_000, 1_000_000, 1_000_000, 2_000_000]
        );
    }

    #[test]
    fn the_default_is_what_new_makes() {
        assert_eq!(Timing::new(Duration::from_secs(1), Duration::from_secs(5)), Ok(Timing::FAST));
    }

    #[test]
    fn a_ttl_that_is_too_short_is_refused_with_the_least_one() {
        let error = Timing::new(Duration::from_secs(1), Duration::from_secs(3)).unwrap_err();
        assert!(error.to_string().contains("at least 4.1s"), "{error}");
    }
}
