//! Sends events to a hub of this process.
//!
//! A send ends when its events are durable as the hub's settings say, or were refused. Many can be under way at once, from
//! any number of tasks; what they hold is bounded.

use std::collections::HashMap;
use std::future::poll_fn;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use partita_amqp::types::EncodeError;
use partita_core::model::{
    Event, EventBuilder, Offset, PartitionId, Route, SequenceNumber, StreamPosition, Timestamp,
};
use partita_dialect::event;
use thiserror::Error;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, oneshot};

use crate::broker::{self, Hub};
use crate::log::{self, Ack, AckSink, AppendError, BatchBuilder, EncodedBatch, Placed};

/// How many bytes of one producer may wait for the disk, unless told otherwise.
pub const OUTSTANDING_BYTES_MAX: usize = 4 << 20;

/// Why events were not sent.
#[derive(Clone, PartialEq, Eq, Debug, Error)]
#[non_exhaustive]
pub enum SendError {
    /// An event cannot be written as a message.
    #[error("event {index} cannot be encoded: {source}")]
    Encode {
        /// Which one of the batch, from 0.
        index: usize,
        /// Why.
        source: EncodeError,
    },
    /// Events do not make a batch.
    #[error(transparent)]
    Batch(#[from] log::EncodeError),
    /// A batch goes to one partition, so its events have one key.
    #[error("the events of the batch have different partition keys: send a batch per key")]
    MixedKeys,
    /// There is no such partition.
    #[error("the hub has no partition {partition}, it has {partitions}")]
    NoPartition {
        /// The one asked for.
        partition: PartitionId,
        /// How many there are.
        partitions: u32,
    },
    /// The hub refused the batch.
    #[error(transparent)]
    Append(#[from] AppendError),
}

impl SendError {
    /// Whether sending again, later, may succeed.
    pub fn is_retriable(&self) -> bool {
        matches!(self, Self::Append(error) if error.is_retriable())
    }

    /// Whether the events may come to light although the send failed.
    pub fn may_have_happened(&self) -> bool {
        matches!(self, Self::Append(error) if error.may_have_happened())
    }
}

/// Where events were put.
#[derive(Clone, Debug)]
pub struct Sent {
    placed: Placed,
    batch: EncodedBatch,
}

impl Sent {
    /// The partition.
    pub fn partition(&self) -> PartitionId {
        PartitionId::from(self.placed.partition)
    }

    /// How many events.
    pub fn count(&self) -> usize {
        self.placed.count as usize
    }

    /// When the hub accepted them.
    pub fn enqueued_time(&self) -> Timestamp {
        Timestamp(self.placed.time_ms)
    }

    /// The place of each event, in the order in which they were sent.
    pub fn positions(&self) -> impl Iterator<Item = StreamPosition> {
        (self.placed.first_seq..).zip(self.batch.starts()).map(|(seq, start)| {
            StreamPosition::new(
                SequenceNumber(seq.cast_signed()),
                Offset::number(self.placed.first_offset + start),
            )
        })
    }
}

/// Sends events to a hub of this process. Clones share one limit.
#[derive(Clone, Debug)]
pub struct HubProducer {
    hub: Arc<Hub>,
    room: Arc<Semaphore>,
    bytes_max: usize,
    waiting: Arc<Waiting>,
    next_token: Arc<AtomicU64>,
}

impl HubProducer {
    /// Sends to this hub, with [`OUTSTANDING_BYTES_MAX`].
    pub fn new(hub: Arc<Hub>) -> Self {
        Self::with_outstanding_bytes(hub, OUTSTANDING_BYTES_MAX)
    }

    /// The same, with at most this many bytes waiting for the disk; a larger batch waits until it is alone.
    pub fn with_outstanding_bytes(hub: Arc<Hub>, bytes_max: usize) -> Self {
        let bytes_max = bytes_max.clamp(1, u32::MAX as usize >> 4);
        Self {
            hub,
            room: Arc::new(Semaphore::new(bytes_max)),
            bytes_max,
            waiting: Arc::default(),
            next_token: Arc::default(),
        }
    }

    /// Sends one event; see [`HubProducer::send_batch`].
    pub async fn send(&self, route: impl Into<Route>, event: EventBuilder) -> Result<Sent, SendError> {
        self.send_batch(route, [event]).await
    }

    /// Sends events to one partition, one after another in it and all of them or none. A route by key gives its key to
    /// the events; [`Route::Any`] follows the key that the events have, if they have one. Dropping the future does not
    /// call back what the hub was given.
    pub async fn send_batch(
        &self,
        route: impl Into<Route>,
        events: impl IntoIterator<Item = EventBuilder>,
    ) -> Result<Sent, SendError> {
        let route = route.into();
        let (key, batch) = encode(&route, events)?;
        let route = match (&route, &key) {
            (Route::Partition(partition), _) => broker::Route::Partition(self.number_of(partition)?),
            (Route::Key(key), _) | (Route::Any, Some(key)) => broker::Route::Key(key),
            (Route::Any, None) => broker::Route::RoundRobin,
        };
        let bytes = batch.disk_bytes().min(self.bytes_max) as u32;
        // The semaphore is never closed.
        let permit = self.room.clone().acquire_many_owned(bytes).await.map_err(|_| AppendError::Closed)?;
        let token = self.next_token.fetch_add(1, Ordering::Relaxed);
        let (done, outcome) = oneshot::channel();
        self.waiting.lock().insert(token, Waiter { done, _permit: permit });
        let sink: Arc<dyn AckSink> = self.waiting.clone();
        loop {
            match self.hub.send(route, batch.clone(), token, &sink) {
                Ok(_) => break,
                // Others fill it: this producer has its own bound.
                Err(AppendError::QueueFull) => {
                    let guard = Forget { waiting: &self.waiting, token };
                    poll_fn(|cx| self.hub.log().poll_room(cx, batch.disk_bytes())).await;
                    std::mem::forget(guard);
                }
                Err(error) => {
                    self.waiting.lock().remove(&token);
                    return Err(error.into());
                }
            }
        }
        let placed = outcome.await.unwrap_or(Err(AppendError::Closed))?;
        Ok(Sent { placed, batch })
    }

    /// Partitions are numbered; whether there is one of this number, the hub says.
    fn number_of(&self, partition: &PartitionId) -> Result<u32, SendError> {
        partition.as_str().parse().map_err(|_| SendError::NoPartition {
            partition: partition.clone(),
            partitions: self.hub.partitions(),
        })
    }
}

/// The events' common key, and their bytes.
fn encode(
    route: &Route,
    events: impl IntoIterator<Item = EventBuilder>,
) -> Result<(Option<Arc<str>>, EncodedBatch), SendError> {
    let mut batch = BatchBuilder::default();
    let mut bytes = Vec::new();
    let mut common: Option<Option<Arc<str>>> = None;
    for (index, mut event) in events.into_iter().enumerate() {
        if let Route::Key(key) = route {
            event = event.partition_key(key);
        }
        // The place is the hub's to say; it is not encoded.
        let event: Event = event.at(SequenceNumber(0), Offset::number(0), Timestamp(0));
        let key = &event.system().partition_key;
        let mixed = common.get_or_insert_with(|| key.clone()) != key;
        if mixed && !matches!(route, Route::Partition(_)) {
            return Err(SendError::MixedKeys);
        }
        bytes.clear();
        event::encode(&event, &mut bytes).map_err(|source| SendError::Encode { index, source })?;
        batch.push(&bytes);
    }
    Ok((common.flatten(), batch.finish()?))
}

#[derive(Debug)]
struct Waiter {
    done: oneshot::Sender<Result<Placed, AppendError>>,
    /// Given back when the hub has answered, even if nobody waits any more.
    _permit: OwnedSemaphorePermit,
}

/// Who waits for an answer of the hub.
#[derive(Debug, Default)]
struct Waiting(Mutex<HashMap<u64, Waiter>>);

impl Waiting {
    fn lock(&self) -> MutexGuard<'_, HashMap<u64, Waiter>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl AckSink for Waiting {
    fn acked(&self, acks: &[Ack]) {
        let mut waiting = self.lock();
        for ack in acks {
            if let Some(waiter) = waiting.remove(&ack.token) {
                // A send that was dropped needs no answer.
                let _ = waiter.done.send(ack.outcome.clone());
            }
        }
    }
}

/// Takes back the place of a send that was dropped before the hub had its batch.
struct Forget<'a> {
    waiting: &'a Waiting,
    token: u64,
}

impl Drop for Forget<'_> {
    fn drop(&mut self) {
        self.waiting.lock().remove(&self.token);
    }
}
