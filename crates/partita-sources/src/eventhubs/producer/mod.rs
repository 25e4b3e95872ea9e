//! Sends events to a hub elsewhere.

mod batch;

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

pub use batch::{AddError, EncodedEvent, EventBatch, Route};
use partita_amqp::event::batch::FORMAT;
use partita_amqp::performative::Attach;
use partita_core::model::{EventBuilder, PartitionId};
use thiserror::Error;
use tokio::sync::{Mutex, Semaphore};

use super::EventHubsError;
use super::client::{Client, SenderEnd};

/// What a hub takes that does not say.
const MESSAGE_BYTES_MAX: u64 = 1024 * 1024;

/// How many bytes of one producer may be under way, unless told otherwise.
pub const OUTSTANDING_BYTES_MAX: usize = 16 << 20;

/// How often a send is tried, and the pauses in between.
const ATTEMPTS_MAX: u32 = 4;
const PAUSE_MIN: Duration = Duration::from_millis(200);
const PAUSE_MAX: Duration = Duration::from_secs(10);

/// Why events were not sent.
#[derive(Clone, Debug, Error)]
#[non_exhaustive]
pub enum SendError {
    /// An event does not make it into a batch.
    #[error("event {index}: {source}")]
    Event {
        /// Which one, from 0.
        index: usize,
        /// Why.
        source: AddError,
    },
    /// The hub did not take them.
    #[error(transparent)]
    Hub(#[from] EventHubsError),
}

impl SendError {
    /// Whether sending again, later, may succeed.
    pub fn is_retriable(&self) -> bool {
        matches!(self, Self::Hub(error) if error.is_retriable())
    }

    /// Whether the events may be in the hub although the send failed.
    pub fn may_have_happened(&self) -> bool {
        matches!(self, Self::Hub(error) if error.may_have_happened())
    }
}

/// Sends events. Clones share their links and one limit.
///
/// What fails for now is tried again a few times. Where the hub's answer was lost, the events may have arrived: they are sent
/// again all the same, so that an event may arrive twice but is not lost.
#[derive(Clone, Debug)]
pub struct Producer(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    client: Client,
    /// One per place that is sent to.
    links: Mutex<HashMap<Option<PartitionId>, Arc<SenderEnd>>>,
    room: Semaphore,
    bytes_max: usize,
}

impl Producer {
    pub(super) fn new(client: Client, bytes_max: usize) -> Self {
        let bytes_max = bytes_max.clamp(1, Semaphore::MAX_PERMITS.min(u32::MAX as usize));
        let room = Semaphore::new(bytes_max);
        Self(Arc::new(Shared { client, links: Mutex::default(), room, bytes_max }))
    }

    /// An empty batch of the size that the hub takes.
    pub async fn batch(&self, route: Route) -> Result<EventBatch, SendError> {
        let max = self.in_attempts(|| async { Ok(message_bytes_max(&*self.link(&route).await?)) }).await?;
        let bytes_max = usize::try_from(max).unwrap_or(usize::MAX);
        EventBatch::new(route, bytes_max).map_err(|error| SendError::Event { index: 0, source: error.into() })
    }

    /// Sends a batch and waits until the hub has it for good. An empty one is sent at once.
    pub async fn send(&self, batch: EventBatch) -> Result<(), SendError> {
        if batch.is_empty() {
            return Ok(());
        }
        let EventBatch { route, payload, .. } = batch;
        let payload = bytes::Bytes::from(payload);
        let permits = payload.len().min(self.0.bytes_max) as u32;
        // The semaphore is never closed.
        let _room = self.0.room.acquire_many(permits).await;
        self.in_attempts(|| async { self.link(&route).await?.send(FORMAT, payload.clone()).await }).await?;
        Ok(())
    }

    /// Sends one event.
    pub async fn send_event(&self, route: Route, event: EventBuilder) -> Result<(), SendError> {
        self.send_all(route, [event]).await
    }

    /// Sends events in as few batches as they fit in, one after the other. What was sent before an error stays sent.
    pub async fn send_all(
        &self,
        route: Route,
        events: impl IntoIterator<Item = EventBuilder>,
    ) -> Result<(), SendError> {
        let mut batch = self.batch(route.clone()).await?;
        for (index, event) in events.into_iter().enumerate() {
            let event = match &route {
                Route::Key(key) => event.partition_key(key),
                _ => event,
            };
            let failed = |source| SendError::Event { index, source };
            let event = EncodedEvent::new(event).map_err(|error| failed(error.into()))?;
            match batch.add_encoded(&event) {
                Err(AddError::Full | AddError::MixedKeys) if !batch.is_empty() => {
                    let bytes_max = batch.size_max();
                    let next =
                        EventBatch::new(route.clone(), bytes_max).map_err(|error| failed(error.into()))?;
                    self.send(std::mem::replace(&mut batch, next)).await?;
                    batch.add_encoded(&event).map_err(failed)?;
                }
                result => result.map_err(failed)?,
            }
        }
        self.send(batch).await
    }

    /// The link for a route, attached if there is none.
    async fn link(&self, route: &Route) -> Result<Arc<SenderEnd>, EventHubsError> {
        let partition = match route {
            Route::Partition(partition) => Some(partition.clone()),
            Route::Key(_) | Route::Any => None,
        };
        let mut links = self.0.links.lock().await;
        if let Some(link) = links.get(&partition)
            && !link.is_closed()
        {
            return Ok(link.clone());
        }
        let hub = self.0.client.config().hub.as_str();
        let address = match &partition {
            Some(partition) => format!("{hub}/Partitions/{partition}"),
            None => hub.to_owned(),
        };
        let link = Arc::new(self.0.client.produce(Attach::sender("", &address)).await?);
        links.insert(partition, link.clone());
        Ok(link)
    }

    /// Tries a few times.
    async fn in_attempts<T, F>(&self, call: impl Fn() -> F) -> Result<T, EventHubsError>
    where
        F: Future<Output = Result<T, EventHubsError>>,
    {
        let mut attempt = 1;
        let time = self.0.client.config().request_time_max;
        loop {
            let result = tokio::time::timeout(time, call()).await.unwrap_or_else(|_| {
                Err(EventHubsError::retriable(format!("the hub did not answer within {time:?}")).uncertain())
            });
            match result {
                Err(error) if error.is_retriable() && attempt < ATTEMPTS_MAX => {
                    let pause = PAUSE_MIN.saturating_mul(1 << (attempt - 1)).min(PAUSE_MAX);
                    tokio::time::sleep(pause.mul_f64(0.75 + 0.25 * fastrand::f64())).await;
                    attempt += 1;
                }
                result => return result,
            }
        }
    }
}

fn message_bytes_max(link: &SenderEnd) -> u64 {
    link.granted.max_message_size.filter(|max| *max > 0).unwrap_or(MESSAGE_BYTES_MAX)
}
