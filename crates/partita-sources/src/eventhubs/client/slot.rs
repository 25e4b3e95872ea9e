//! A connection that is made when it is first needed, and made again after it was lost, by whoever needs it next.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{Mutex, OwnedSemaphorePermit, Semaphore};
use tokio::time::Instant;

use super::Config;
use super::connect::{Handle, connect};
use super::runtime;
use crate::eventhubs::EventHubsError;

/// The pauses between attempts to connect.
const PAUSE_MIN: Duration = Duration::from_millis(100);
const PAUSE_MAX: Duration = Duration::from_secs(3);

/// How long a call waits for a connection that was lost, before it says so.
const AWAY_TIME_MAX: Duration = Duration::from_secs(30);

/// Room for a link; given back when it is dropped.
pub(super) type Room = OwnedSemaphorePermit;

/// A place for one of the client's connections.
#[derive(Debug)]
pub(super) struct Slot {
    /// Which of them, from 0.
    number: usize,
    room: Arc<Semaphore>,
    state: Mutex<SlotState>,
}

/// The connection, and how the last attempts went.
#[derive(Debug, Default)]
struct SlotState {
    handle: Option<Handle>,
    /// Whether there ever was a connection.
    was_there: bool,
    failures: u32,
    /// When the next attempt may be made, and how the last one failed; not said if whoever made it went away.
    last: Option<(Option<EventHubsError>, Instant)>,
}

impl Slot {
    /// A place for a connection that takes so many links.
    pub(super) fn new(number: usize, links_max: usize) -> Self {
        Self { number, room: Arc::new(Semaphore::new(links_max)), state: Mutex::default() }
    }

    /// Room for one more link, if there is any.
    pub(super) fn room(&self) -> Option<Room> {
        self.room.clone().try_acquire_owned().ok()
    }

    /// The connection. If it was lost, waits some time for its return.
    pub(super) async fn handle(&self, config: &Config) -> Result<Handle, EventHubsError> {
        let give_up = Instant::now() + AWAY_TIME_MAX;
        loop {
            let mut state = self.state.lock().await;
            if let Some(handle) = &state.handle
                && !handle.commands.is_closed()
            {
                return Ok(handle.clone());
            }
            let pause = match &state.last {
                Some((error, next)) if *next > Instant::now() => {
                    if let Some(error) = error
                        && (!state.was_there || !error.is_retriable() || *next > give_up)
                    {
                        return Err(error.clone());
                    }
                    *next
                }
                _ => {
                    if let Some(handle) = state.attempt(config, self.number).await {
                        return handle;
                    }
                    continue;
                }
            };
            // Others may try, or have what they need, meanwhile.
            drop(state);
            tokio::time::sleep_until(pause).await;
        }
    }
}

impl SlotState {
    /// Tries to connect. `None` if it is worth to wait and try again.
    async fn attempt(&mut self, config: &Config, number: usize) -> Option<Result<Handle, EventHubsError>> {
        self.handle = None;
        // Noted beforehand: many who each give up half-way are no reason to hurry.
        let pause = PAUSE_MIN.saturating_mul(1 << self.failures.min(10)).min(PAUSE_MAX);
        let pause = pause.mul_f64(0.75 + 0.25 * fastrand::f64());
        self.failures += 1;
        self.last = Some((None, Instant::now() + pause));
        let time = config.connect_time_max;
        let connecting = async { runtime::run(connect(config.clone(), number))?.await? };
        let connected = tokio::time::timeout(time, connecting).await.unwrap_or_else(|_| {
            let text = format!("the hub {} did not answer within {time:?}", config.place());
            Err(EventHubsError::retriable(text))
        });
        match connected {
            Ok(handle) => {
                *self = Self { handle: Some(handle.clone()), was_there: true, failures: 0, last: None };
                Some(Ok(handle))
            }
            Err(error) => {
                self.last = Some((Some(error.clone()), Instant::now() + pause));
                let first = self.failures == 1 || !self.was_there || !error.is_retriable();
                first.then_some(Err(error))
            }
        }
    }
}
