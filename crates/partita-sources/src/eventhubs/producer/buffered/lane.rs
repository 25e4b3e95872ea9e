//! The events of one partition on their way: gathered in a batch, sealed, and sent one batch after the other, so that their
//! order holds whatever has to be tried again. While one is under way the next one gathers.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use partita_core::model::PartitionId;
use tokio::sync::Notify;
use tokio::time::Instant;

use super::receipt::{Receipt, Teller, receipt};
use crate::eventhubs::EventHubsError;
use crate::eventhubs::producer::{EncodedEvent, SendError};

/// From this size on a batch is not added to any more.
const BATCH_BYTES_FULL: usize = 256 * 1024;

/// Events that go to the hub together.
#[derive(Debug)]
pub(super) struct Gathered {
    /// Their data sections, one after the other.
    pub(super) events: Vec<u8>,
    pub(super) count: usize,
    /// When it is to go, full or not.
    due: Instant,
    teller: Teller,
    receipt: Receipt,
}

impl Gathered {
    fn new(due: Instant) -> Self {
        let (teller, receipt) = receipt();
        Self { events: Vec::new(), count: 0, due, teller, receipt }
    }

    pub(super) fn into_teller(self) -> Teller {
        self.teller
    }
}

#[derive(Debug, Default)]
struct LaneState {
    gathering: Option<Gathered>,
    sealed: VecDeque<Gathered>,
    /// Of the one that is under way.
    sending: Option<Receipt>,
    /// Why nothing is taken any more.
    closed: Option<SendError>,
    /// Whether there is a task that sends.
    running: bool,
}

impl LaneState {
    fn seal(&mut self) {
        self.sealed.extend(self.gathering.take());
    }
}

/// One partition's part of a buffered producer.
#[derive(Debug)]
pub(super) struct Lane {
    pub(super) partition: PartitionId,
    state: Mutex<LaneState>,
    wake: Notify,
    sent_events: AtomicU64,
    sent_bytes: AtomicU64,
    failed_events: AtomicU64,
    /// Why the batch under way is tried again.
    trouble: Mutex<Option<EventHubsError>>,
}

/// What became of the events of one partition so far.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct PartitionOutcomes {
    /// The partition.
    pub partition: PartitionId,
    /// How many events the hub has.
    pub sent_events: u64,
    /// How many bytes these took in their batches.
    pub sent_bytes: u64,
    /// How many were given up; some may be in the hub all the same, where its answer was lost.
    pub failed_events: u64,
}

/// What became of an event that was to be added.
pub(super) enum Added {
    /// It is in a batch. If `start` is set, a task that sends has to be started.
    Here { receipt: Receipt, start: bool },
    /// Nothing is taken any more, for this reason.
    Closed(SendError),
}

impl Lane {
    pub(super) fn new(partition: PartitionId) -> Self {
        Self {
            partition,
            state: Mutex::default(),
            wake: Notify::new(),
            sent_events: AtomicU64::new(0),
            sent_bytes: AtomicU64::new(0),
            failed_events: AtomicU64::new(0),
            trouble: Mutex::default(),
        }
    }

    /// Notes what became of an attempt.
    pub(super) fn attempted<T>(&self, outcome: &Result<T, EventHubsError>) {
        let trouble = outcome.as_ref().err().filter(|error| error.is_retriable()).cloned();
        *self.trouble.lock().unwrap_or_else(PoisonError::into_inner) = trouble;
    }

    /// Why the batch under way is tried again, if it is.
    pub(super) fn trouble(&self) -> Option<EventHubsError> {
        self.trouble.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Whether there is a batch that can still be added to.
    pub(super) fn is_gathering(&self) -> bool {
        self.lock().gathering.is_some()
    }

    /// Adds an event that goes in `linger` at the latest, in a message of at most `bytes_max`.
    pub(super) fn add(&self, event: &EncodedEvent, linger: Duration, bytes_max: usize) -> Added {
        let mut state = self.lock();
        if let Some(reason) = &state.closed {
            return Added::Closed(reason.clone());
        }
        let mut changed = false;
        if state.gathering.as_ref().is_some_and(|batch| batch.events.len() + event.size() > bytes_max) {
            state.seal();
            changed = true;
        }
        let batch = state.gathering.get_or_insert_with(|| {
            changed = true;
            Gathered::new(Instant::now() + linger)
        });
        event.append_to(&mut batch.events);
        batch.count += 1;
        let receipt = batch.receipt.clone();
        if batch.events.len() >= BATCH_BYTES_FULL {
            state.seal();
            changed = true;
        }
        let start = !std::mem::replace(&mut state.running, true);
        drop(state);
        if changed {
            self.wake.notify_one();
        }
        Added::Here { receipt, start }
    }

    /// Lets what is there go as soon as it can; until then it is added to.
    pub(super) fn hurry(&self) {
        let mut state = self.lock();
        if let Some(batch) = &mut state.gathering {
            batch.due = Instant::now();
            drop(state);
            self.wake.notify_one();
        }
    }

    /// Sends what is there without waiting for more; the receipts of all that has no outcome yet.
    pub(super) fn push(&self) -> Vec<Receipt> {
        let mut state = self.lock();
        state.seal();
        let sealed = state.sealed.iter().map(|batch| batch.receipt.clone());
        let receipts = state.sending.clone().into_iter().chain(sealed).collect();
        drop(state);
        self.wake.notify_one();
        receipts
    }

    /// Takes nothing any more; what is there still comes out of [`next`](Self::next).
    pub(super) fn close(&self, reason: SendError) {
        self.lock().closed.get_or_insert(reason);
        self.push();
    }

    /// Counts a batch that has its outcome.
    pub(super) fn count(&self, events: usize, bytes: usize, outcome: &Result<(), SendError>) {
        match outcome {
            Ok(()) => {
                self.sent_events.fetch_add(events as u64, Ordering::Relaxed);
                self.sent_bytes.fetch_add(bytes as u64, Ordering::Relaxed);
            }
            Err(_) => {
                self.failed_events.fetch_add(events as u64, Ordering::Relaxed);
            }
        }
    }

    pub(super) fn outcomes(&self) -> PartitionOutcomes {
        PartitionOutcomes {
            partition: self.partition.clone(),
            sent_events: self.sent_events.load(Ordering::Relaxed),
            sent_bytes: self.sent_bytes.load(Ordering::Relaxed),
            failed_events: self.failed_events.load(Ordering::Relaxed),
        }
    }

    /// A batch that nobody will send.
    pub(super) fn take(&self) -> Option<Gathered> {
        self.lock().sealed.pop_front()
    }

    /// The next batch that is to go; `None` when the lane is closed and empty.
    pub(super) async fn next(&self) -> Option<Gathered> {
        loop {
            let due = {
                let mut state = self.lock();
                state.sending = None;
                if state.sealed.is_empty()
                    && state.gathering.as_ref().is_some_and(|batch| batch.due <= Instant::now())
                {
                    state.seal();
                }
                if let Some(batch) = state.sealed.pop_front() {
                    state.sending = Some(batch.receipt.clone());
                    return Some(batch);
                }
                if state.closed.is_some() {
                    return None;
                }
                state.gathering.as_ref().map(|batch| batch.due)
            };
            match due {
                Some(due) => {
                    let _ = tokio::time::timeout_at(due, self.wake.notified()).await;
                }
                None => self.wake.notified().await,
            }
        }
    }

    fn lock(&self) -> MutexGuard<'_, LaneState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use partita_core::model::Event;

    use super::*;

    const LINGER: Duration = Duration::from_millis(10);

    fn event(bytes: usize) -> EncodedEvent {
        EncodedEvent::new(Event::builder(vec![7; bytes])).expect("encodes")
    }

    fn add(lane: &Lane, bytes: usize) {
        assert!(matches!(lane.add(&event(bytes), LINGER, 1 << 20), Added::Here { .. }));
    }

    #[tokio::test(start_paused = true)]
    async fn a_batch_goes_when_it_is_old_or_full_or_pushed_and_not_before() {
        let lane = Lane::new(0.into());
        let began = Instant::now();
        add(&lane, 10);
        add(&lane, 10);
        assert_eq!(lane.next().await.map(|batch| batch.count), Some(2));
        assert!(began.elapsed() >= LINGER, "{:?}", began.elapsed());
        let began = Instant::now();
        add(&lane, BATCH_BYTES_FULL);
        add(&lane, 10);
        assert_eq!(lane.next().await.map(|batch| batch.count), Some(1));
        lane.push();
        assert_eq!(lane.next().await.map(|batch| batch.count), Some(1));
        assert_eq!(began.elapsed(), Duration::ZERO);
    }

    #[tokio::test(start_paused = true)]
    async fn a_batch_is_no_larger_than_the_hub_takes() {
        let lane = Lane::new(0.into());
        for _ in 0..3 {
            lane.add(&event(900), LINGER, 2_000);
        }
        let batch = lane.next().await.expect("a batch");
        assert!(batch.count == 2 && batch.events.len() <= 2_000);
    }

    #[tokio::test(start_paused = true)]
    async fn a_closed_lane_is_emptied_and_takes_nothing() {
        let lane = Lane::new(0.into());
        add(&lane, 10);
        lane.close(SendError::Closed);
        assert!(matches!(lane.add(&event(1), LINGER, 1 << 20), Added::Closed(SendError::Closed)));
        assert!(lane.next().await.is_some() && lane.next().await.is_none());
    }
}
