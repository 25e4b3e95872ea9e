//! What to do about a handler that fails: one pure function, so that further policies need no change in the pump.

use std::time::Duration;

use crate::options::FailurePolicy;

/// A failure as the decision sees it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Failure {
    /// How many calls have failed in a row without an event handled in between, this one included.
    pub(super) attempts: u32,
    /// How many events of the batch are not handled.
    pub(super) unhandled: usize,
}

/// What to do.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Verdict {
    /// Deliver the unhandled events again after a pause.
    RetryAfter(Duration),
    /// Go on after the batch.
    SkipRest,
}

/// Decides. No clock, no randomness, no state.
pub(super) fn decide(policy: FailurePolicy, failure: Failure) -> Verdict {
    match policy {
        FailurePolicy::Retry { first, longest } => {
            let doublings = failure.attempts.saturating_sub(1).min(31);
            Verdict::RetryAfter(first.saturating_mul(1 << doublings).min(longest))
        }
        FailurePolicy::SkipRest => Verdict::SkipRest,
    }
}

/// How long to wait after so many failures in a row of something that no policy is for.
pub(super) fn pause_after(failures: u32) -> Duration {
    match decide(FailurePolicy::default(), Failure { attempts: failures, unhandled: 0 }) {
        Verdict::RetryAfter(pause) => pause,
        Verdict::SkipRest => Duration::ZERO,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn retry_pauses_double_up_to_the_longest() {
        let policy = FailurePolicy::default();
        let pause = |attempts| decide(policy, Failure { attempts, unhandled: 1 });
        assert_eq!(pause(1), Verdict::RetryAfter(Duration::from_millis(100)));
        assert_eq!(pause(3), Verdict::RetryAfter(Duration::from_millis(400)));
        assert_eq!(pause(u32::MAX), Verdict::RetryAfter(Duration::from_secs(30)));
    }

    #[test]
    fn skip_rest_never_waits() {
        assert_eq!(decide(FailurePolicy::SkipRest, Failure { attempts: 1, unhandled: 9 }), Verdict::SkipRest);
    }
}
