//! Trying again what fails for now.

use std::time::Duration;

use tokio::time::Instant;

use crate::eventhubs::EventHubsError;

/// The pauses between attempts.
const PAUSE_MIN: Duration = Duration::from_millis(200);
const PAUSE_MAX: Duration = Duration::from_secs(10);

/// A hub that says it is busy is waited for this long, however few attempts there are: it asks for some seconds itself.
const BUSY_TIME_MAX: Duration = Duration::from_secs(30);

/// When to stop trying.
#[derive(Clone, Copy, Debug)]
pub(super) enum Patience {
    /// After so many attempts.
    Attempts(u32),
    /// When this moment is past.
    Until(Instant),
}

impl Patience {
    fn has_ended(self, attempts: u32) -> bool {
        match self {
            Self::Attempts(max) => attempts >= max,
            Self::Until(end) => Instant::now() >= end,
        }
    }
}

/// The attempts of one call: `loop { if let Some(result) = attempts.take(call()).await { break result } }`.
#[derive(Debug)]
pub(super) struct Attempts {
    patience: Patience,
    /// How long each may take.
    time_max: Duration,
    began: Instant,
    made: u32,
    uncertain: bool,
}

impl Attempts {
    pub(super) fn new(patience: Patience, time_max: Duration) -> Self {
        Self { patience, time_max, began: Instant::now(), made: 0, uncertain: false }
    }

    /// Makes an attempt; `None`, after a pause, if another one is to be made. What may have happened in any attempt may have
    /// happened, even if the last one certainly did nothing.
    pub(super) async fn take<T>(
        &mut self,
        call: impl Future<Output = Result<T, EventHubsError>>,
    ) -> Option<Result<T, EventHubsError>> {
        let result = tokio::time::timeout(self.time_max, call).await.unwrap_or_else(|_| {
            let text = format!("the hub did not answer within {:?}", self.time_max);
            Err(EventHubsError::retriable(text).uncertain())
        });
        self.made += 1;
        let error = match result {
            Ok(done) => return Some(Ok(done)),
            Err(error) => error,
        };
        self.uncertain |= error.may_have_happened();
        let waited_for = error.is_busy() && self.began.elapsed() < BUSY_TIME_MAX;
        if !error.is_retriable() || (self.patience.has_ended(self.made) && !waited_for) {
            return Some(Err(if self.uncertain { error.uncertain() } else { error }));
        }
        let pause = PAUSE_MIN.saturating_mul(1 << (self.made - 1).min(10)).min(PAUSE_MAX);
        tokio::time::sleep(pause.mul_f64(0.75 + 0.25 * fastrand::f64())).await;
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Fails with each of these, then with the last for ever; tells how often it was called.
    async fn run(patience: Patience, errors: &[EventHubsError]) -> (u32, EventHubsError) {
        let mut attempts = Attempts::new(patience, Duration::from_secs(1));
        let mut calls = 0;
        loop {
            let error = errors[(calls as usize).min(errors.len() - 1)].clone();
            calls += 1;
            if let Some(result) = attempts.take(async { Err::<(), _>(error) }).await {
                return (calls, result.expect_err("fails"));
            }
        }
    }

    #[tokio::test(start_paused = true)]
    async fn what_fails_for_now_is_tried_a_few_times_with_growing_pauses() {
        let began = Instant::now();
        let (calls, error) = run(Patience::Attempts(4), &[EventHubsError::retriable("busy")]).await;
        assert_eq!((calls, error.may_have_happened()), (4, false));
        let pauses = began.elapsed();
        assert!(
            (Duration::from_millis(1_050)..=Duration::from_millis(1_500)).contains(&pauses),
            "{pauses:?}"
        );
    }

    #[tokio::test(start_paused = true)]
    async fn a_busy_hub_is_waited_for_however_few_attempts_there_are() {
        let busy = partita_amqp::performative::Error::new("com.microsoft:server-busy", "come back later");
        let busy = EventHubsError::of_peer("the link", Some(&busy));
        let began = Instant::now();
        let (calls, error) = run(Patience::Attempts(2), &[busy]).await;
        assert!(calls > 2 && error.is_busy(), "{calls} calls: {error}");
        assert!((30..=45).contains(&began.elapsed().as_secs()), "{:?}", began.elapsed());
    }

    #[tokio::test(start_paused = true)]
    async fn what_may_have_happened_once_may_have_happened() {
        let lost = EventHubsError::retriable("lost");
        let (_, error) = run(Patience::Attempts(3), &[lost.clone().uncertain(), lost]).await;
        assert!(error.may_have_happened());
    }

    #[tokio::test(start_paused = true)]
    async fn what_fails_for_good_or_for_too_long_is_not_tried_again() {
        let (calls, _) = run(Patience::Attempts(4), &[EventHubsError::fatal("no")]).await;
        assert_eq!(calls, 1);
        let began = Instant::now();
        let until = Patience::Until(began + Duration::from_secs(60));
        run(until, &[EventHubsError::retriable("busy")]).await;
        assert!((60..=70).contains(&began.elapsed().as_secs()), "{:?}", began.elapsed());
    }
}
