//! Sends events to a hub elsewhere.

mod attempts;
mod batch;
mod buffered;
mod links;
mod numbered;
mod places;

use std::sync::Arc;

use batch::fixed_partition;
pub use batch::{AddError, EncodedEvent, EventBatch};
pub use buffered::{BufferedProducer, BufferedProducerBuilder, PartitionOutcomes, Receipt};
use partita_core::model::EventBuilder;
pub use partita_core::model::Route;
use partita_dialect::event::batch::FORMAT;
use thiserror::Error;
use tokio::sync::{Mutex, OnceCell, Semaphore};

use self::attempts::{Attempts, Patience};
use self::links::{Links, message_bytes_max};
use self::numbered::Numbered;
use self::places::Places;
use super::EventHubsError;
use super::client::Client;

/// How many bytes of one producer may be under way, unless told otherwise.
pub const OUTSTANDING_BYTES_MAX: usize = 16 << 20;

/// How often a call is tried.
const ATTEMPTS: Patience = Patience::Attempts(4);

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
    /// The buffered producer takes nothing any more.
    #[error("the producer is closed: make another one")]
    Closed,
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
/// again all the same, so that an event may arrive twice but is not lost. An idempotent producer numbers its events, and the
/// hub takes none twice; the batches of a partition then go one after the other.
#[derive(Clone, Debug)]
pub struct Producer(Arc<ProducerState>);

#[derive(Debug)]
struct ProducerState {
    client: Client,
    links: Links,
    /// Only of an idempotent producer.
    numbered: Option<OnceCell<Numbers>>,
    room: Semaphore,
    bytes_max: usize,
}

/// An idempotent producer's place in each partition.
#[derive(Debug)]
struct Numbers {
    places: Places,
    lanes: Vec<Mutex<Numbered>>,
}

impl Producer {
    pub(super) fn new(client: Client, bytes_max: usize, idempotent: bool) -> Self {
        let bytes_max = bytes_max.clamp(1, Semaphore::MAX_PERMITS.min(u32::MAX as usize));
        let numbered = idempotent.then(OnceCell::new);
        let (links, room) = (Links::default(), Semaphore::new(bytes_max));
        Self(Arc::new(ProducerState { client, links, numbered, room, bytes_max }))
    }

    /// An empty batch of the size that the hub takes.
    pub async fn batch(&self, route: Route) -> Result<EventBatch, SendError> {
        let mut attempts = self.attempts();
        let link = loop {
            let link = self.0.links.get(&self.0.client, fixed_partition(&route));
            if let Some(result) = attempts.take(link).await {
                break result?;
            }
        };
        let max = message_bytes_max(&link);
        let bytes_max = match self.0.numbered {
            Some(_) => max.saturating_sub(numbered::HEAD_BYTES_MAX),
            None => max,
        };
        EventBatch::new(route, bytes_max).map_err(|error| SendError::Event { index: 0, source: error.into() })
    }

    /// Sends a batch and waits until the hub has it for good. An empty one is sent at once.
    pub async fn send(&self, batch: EventBatch) -> Result<(), SendError> {
        if batch.is_empty() {
            return Ok(());
        }
        let permits = batch.payload.len().min(self.0.bytes_max) as u32;
        // The semaphore is never closed.
        let _room = self.0.room.acquire_many(permits).await;
        if let Some(numbered) = &self.0.numbered {
            return self.send_numbered(numbered, batch).await;
        }
        let EventBatch { route, payload, .. } = batch;
        let payload = bytes::Bytes::from(payload);
        let mut attempts = self.attempts();
        loop {
            let send = async {
                let link = self.0.links.get(&self.0.client, fixed_partition(&route)).await?;
                link.send(FORMAT, payload.clone()).await
            };
            if let Some(result) = attempts.take(send).await {
                return Ok(result?);
            }
        }
    }

    async fn send_numbered(&self, numbers: &OnceCell<Numbers>, batch: EventBatch) -> Result<(), SendError> {
        let client = &self.0.client;
        let numbers = numbers.get_or_try_init(async || {
            let mut attempts = self.attempts();
            let places = loop {
                if let Some(result) = attempts.take(Places::ask(client)).await {
                    break result?;
                }
            };
            let lanes = places.partitions().iter().cloned().map(Numbered::new).map(Mutex::new).collect();
            Ok::<_, SendError>(Numbers { places, lanes })
        });
        let Numbers { places, lanes } = numbers.await?;
        let place = places.of(&batch.route, batch.key.as_deref())?.unwrap_or_else(|| places.next());
        let mut lane = lanes[place].lock().await;
        lane.begin();
        let (key, events) = (batch.key.as_deref(), &batch.payload[batch.head_bytes..]);
        let mut attempts = self.attempts();
        let result = loop {
            if let Some(result) = attempts.take(lane.send(client, key, events)).await {
                break result;
            }
        };
        lane.settle(batch.count, &result);
        Ok(result?)
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

    fn attempts(&self) -> Attempts {
        Attempts::new(ATTEMPTS, self.0.client.config().request_time_max)
    }
}
