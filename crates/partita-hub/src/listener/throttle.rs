//! Warnings that strangers can cause are few, however many strangers there are.

use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// How often one kind of warning is given.
const EVERY: Duration = Duration::from_secs(10);

/// Lets one warning through now and then, and counts the others.
#[derive(Debug, Default)]
pub struct Throttle(Mutex<ThrottleState>);

#[derive(Debug, Default)]
struct ThrottleState {
    last: Option<Instant>,
    unsaid: u64,
}

impl Throttle {
    /// Whether to warn now; if so, how many warnings were not given since the last one.
    pub fn pass(&self, now: Instant) -> Option<u64> {
        let mut state = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if state.last.is_some_and(|last| now.saturating_duration_since(last) < EVERY) {
            state.unsaid += 1;
            return None;
        }
        state.last = Some(now);
        Some(std::mem::take(&mut state.unsaid))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_warning_passes_in_a_while_and_tells_of_those_that_did_not() {
        let (throttle, start) = (Throttle::default(), Instant::now());
        assert_eq!(throttle.pass(start), Some(0));
        for at in 1..10 {
            assert_eq!(throttle.pass(start + Duration::from_secs(at)), None);
        }
        assert_eq!(throttle.pass(start + EVERY), Some(9));
        assert_eq!(throttle.pass(start + 3 * EVERY), Some(0));
    }
}
