//! Sends events that are handed over one by one in batches.

mod lane;
mod receipt;

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use futures_util::future::join_all;
use partita_core::model::{EventBuilder, PartitionId};
use partita_dialect::event::batch::FORMAT;
use tokio::sync::{OnceCell, Semaphore};
use tokio::time::Instant;

pub use self::lane::PartitionOutcomes;
use self::lane::{Added, Gathered, Lane};
pub use self::receipt::Receipt;
use super::attempts::{Attempts, Patience};
use super::links::{self, message_bytes_max};
use super::numbered::{self, Numbered, Numbering};
use super::places::Places;
use super::{ATTEMPTS, AddError, EncodedEvent, Route, SendError};
use crate::eventhubs::EventHubsError;
use crate::eventhubs::client::{Client, SenderEnd};

/// Longer times are meant as for ever, and this is as good.
const TIME_MAX: Duration = Duration::from_secs(365 * 24 * 60 * 60);

/// Makes a [`BufferedProducer`].
#[derive(Clone, Debug)]
pub struct BufferedProducerBuilder {
    client: Client,
    linger: Duration,
    events_max: usize,
    bytes_max: usize,
    send_time_max: Duration,
    numbering: Numbering,
    stop_on_failure: bool,
}

impl BufferedProducerBuilder {
    pub(crate) fn new(client: Client) -> Self {
        Self {
            client,
            linger: Duration::from_millis(5),
            events_max: 100_000,
            bytes_max: 32 << 20,
            send_time_max: Duration::from_secs(60),
            numbering: Numbering::Never,
            stop_on_failure: false,
        }
    }

    /// How long an event waits for others to go with; 5 ms if nothing is said.
    pub fn linger(mut self, linger: Duration) -> Self {
        self.linger = linger.min(TIME_MAX);
        self
    }

    /// How many events may be here without an outcome; 100,000 if nothing is said. Who sends more waits.
    pub fn events_max(mut self, events: usize) -> Self {
        self.events_max = events.clamp(1, Semaphore::MAX_PERMITS);
        self
    }

    /// How many encoded bytes may be here without an outcome; 32 MiB if nothing is said. Who sends more waits.
    pub fn bytes_max(mut self, bytes: usize) -> Self {
        self.bytes_max = bytes.clamp(1, u32::MAX as usize >> 1);
        self
    }

    /// For how long a send that fails for now is tried again; a minute if nothing is said.
    pub fn send_time_max(mut self, time: Duration) -> Self {
        self.send_time_max = time.min(TIME_MAX);
        self
    }

    /// Numbers the events, so that the hub takes none twice when an answer was lost.
    pub fn idempotent(mut self) -> Self {
        self.numbering = Numbering::Always;
        self
    }

    /// The same where the hub takes numbers; to another hub the events go without.
    pub fn idempotent_if_taken(mut self) -> Self {
        self.numbering = Numbering::IfTaken;
        self
    }

    /// When a batch fails in the end, nothing more goes to its partition: what waits ends with the same error, and so does
    /// every further send there. What is in the hub is then always the beginning of what was handed over.
    pub fn stop_on_failure(mut self) -> Self {
        self.stop_on_failure = true;
        self
    }

    /// The producer. Nothing is connected yet.
    pub fn build(self) -> BufferedProducer {
        let shared = BufferedState {
            events: Semaphore::new(self.events_max),
            bytes: Semaphore::new(self.bytes_max),
            in_want: AtomicUsize::new(0),
            closed: AtomicBool::new(false),
            ready: OnceCell::new(),
            failure: Mutex::new(None),
            options: self,
        };
        BufferedProducer(Arc::new(Owner(Arc::new(shared))))
    }
}

/// Takes events one by one and sends them in batches: when a batch is full, when its first event has waited long enough, and
/// at [`flush`](Self::flush) and [`close`](Self::close). Clones share everything.
///
/// Events of a partition arrive in the order in which they were handed over: one batch of a partition is under way at a time,
/// and is tried again before the next one goes. Where the hub's answer was lost a batch may arrive twice, unless the producer
/// is [idempotent](BufferedProducerBuilder::idempotent). A batch that fails in the end does not hold up the next, unless
/// it is to [stop](BufferedProducerBuilder::stop_on_failure).
///
/// Keys are hashed here, as the service does it, over the partitions that the hub had when it was first sent to.
///
/// When the last clone is dropped what is there is still sent, as long as the runtime runs; `close` waits for it.
#[derive(Clone, Debug)]
pub struct BufferedProducer(Arc<Owner>);

/// Closes the producer when it is dropped; the tasks that send do not own it.
#[derive(Debug)]
struct Owner(Arc<BufferedState>);

impl Drop for Owner {
    fn drop(&mut self) {
        self.0.close();
    }
}

#[derive(Debug)]
struct BufferedState {
    options: BufferedProducerBuilder,
    /// Room for events, and for their bytes.
    events: Semaphore,
    bytes: Semaphore,
    /// How many wait for room. Nothing lingers meanwhile.
    in_want: AtomicUsize,
    closed: AtomicBool,
    ready: OnceCell<Ready>,
    /// The first one since it was last asked for.
    failure: Mutex<Option<SendError>>,
}

/// What is known after the hub was asked.
#[derive(Debug)]
struct Ready {
    places: Places,
    lanes: Vec<Arc<Lane>>,
    batch_bytes_max: usize,
}

impl BufferedProducer {
    /// Hands over an event, which then has its place in the order of its partition; waits for room, if there is none. The
    /// receipt tells what became of it. If this is dropped before it ends, the event was not handed over.
    pub async fn send(&self, route: Route, event: EventBuilder) -> Result<Receipt, SendError> {
        let event = match &route {
            Route::Key(key) => event.partition_key(key),
            _ => event,
        };
        let event = EncodedEvent::new(event)
            .map_err(|error| SendError::Event { index: 0, source: AddError::Encode(error) })?;
        self.send_encoded(route, &event).await
    }

    /// The same for an event that is encoded already. It goes by the route's key, and keeps its own.
    pub async fn send_encoded(&self, route: Route, event: &EncodedEvent) -> Result<Receipt, SendError> {
        let shared = &self.0.0;
        let ready = shared.ready().await?;
        // Not before: whoever closes closes the lanes that there are, and those that come later are closed by this.
        if shared.closed.load(Ordering::SeqCst) {
            return Err(SendError::Closed);
        }
        let (size, max) = (event.size(), ready.batch_bytes_max);
        if size > max {
            return Err(SendError::Event { index: 0, source: AddError::TooLarge { size, max } });
        }
        // One event that the hub refuses would fail all that go with it.
        event.check_key().map_err(|source| SendError::Event { index: 0, source })?;
        let place = ready.places.of(&route, event.key())?;
        let room = shared.room(size, ready).await;
        let lane = &ready.lanes[place.unwrap_or_else(|| ready.any())];
        match lane.add(event, shared.options.linger, max) {
            Added::Here { receipt, start } => {
                room.keep();
                if start {
                    let tender = Tender { shared: shared.clone(), lane: lane.clone(), under_way: None };
                    tokio::spawn(tender.run());
                }
                // Whoever began to wait before this was added did not see it.
                if shared.in_want.load(Ordering::SeqCst) > 0 {
                    lane.hurry();
                }
                Ok(receipt)
            }
            Added::Closed(reason) => Err(reason),
        }
    }

    /// Sends what is there at once and waits until all of it has an outcome. Tells the first failure since the last flush.
    pub async fn flush(&self) -> Result<(), SendError> {
        let shared = &self.0.0;
        if let Some(ready) = shared.ready.get() {
            join_all(ready.lanes.iter().flat_map(|lane| lane.push())).await;
        }
        let failure = shared.failure.lock().unwrap_or_else(PoisonError::into_inner).take();
        failure.map_or(Ok(()), Err)
    }

    /// Takes nothing any more, from no clone, and flushes.
    pub async fn close(self) -> Result<(), SendError> {
        self.0.0.close();
        self.flush().await
    }

    /// What became of all events so far, by partition; nothing before the first send.
    pub fn outcomes(&self) -> Vec<PartitionOutcomes> {
        let ready = self.0.0.ready.get();
        ready.iter().flat_map(|ready| &ready.lanes).map(|lane| lane.outcomes()).collect()
    }

    /// Why events are being sent again at this moment: what the hub or the network said last, of the first partition that
    /// waits; none while nothing fails.
    pub fn retrying(&self) -> Option<EventHubsError> {
        self.0.0.ready.get()?.lanes.iter().find_map(|lane| lane.trouble())
    }

    /// How many events and bytes are here without an outcome.
    pub fn buffered(&self) -> (usize, usize) {
        let shared = &self.0.0;
        let used = |max: usize, room: &Semaphore| max.saturating_sub(room.available_permits());
        (used(shared.options.events_max, &shared.events), used(shared.options.bytes_max, &shared.bytes))
    }
}

impl Ready {
    async fn ask(client: &Client) -> Result<Self, EventHubsError> {
        let places = Places::ask(client).await?;
        // A link to the hub tells how large a message may be, and whether we may send at all.
        let bytes_max = message_bytes_max(&links::attach(client, None).await?);
        let lanes = places.partitions().iter().cloned().map(Lane::new).map(Arc::new).collect();
        Ok(Self { places, lanes, batch_bytes_max: bytes_max.saturating_sub(numbered::HEAD_BYTES_MAX) })
    }

    /// Where an event without a key goes: with those before it until their batch is gone, then to the next partition.
    fn any(&self) -> usize {
        let current = self.places.current();
        match self.lanes[current].is_gathering() {
            true => current,
            false => self.places.next(),
        }
    }
}

/// Room that is given back unless it is kept.
struct Room<'a> {
    _event: tokio::sync::SemaphorePermit<'a>,
    _bytes: tokio::sync::SemaphorePermit<'a>,
}

impl Room<'_> {
    /// Keeps it until the event has an outcome.
    fn keep(self) {
        self._event.forget();
        self._bytes.forget();
    }
}

/// Counts somebody who waits for room.
struct Want<'a>(&'a AtomicUsize);

impl Drop for Want<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::SeqCst);
    }
}

impl BufferedState {
    async fn ready(&self) -> Result<&Ready, SendError> {
        let client = &self.options.client;
        let ready = self.ready.get_or_try_init(async || {
            let mut attempts = Attempts::new(ATTEMPTS, client.config().request_time_max);
            loop {
                if let Some(ready) = attempts.take(Ready::ask(client)).await {
                    return Ok::<_, SendError>(ready?);
                }
            }
        });
        ready.await
    }

    /// Waits for room for an event.
    async fn room(&self, size: usize, ready: &Ready) -> Room<'_> {
        let permits = size.min(self.options.bytes_max) as u32;
        if let (Ok(event), Ok(bytes)) = (self.events.try_acquire(), self.bytes.try_acquire_many(permits)) {
            return Room { _event: event, _bytes: bytes };
        }
        // Whoever waits for room waits for what lingers.
        self.in_want.fetch_add(1, Ordering::SeqCst);
        let _want = Want(&self.in_want);
        for lane in &ready.lanes {
            lane.hurry();
        }
        loop {
            // The semaphores are never closed.
            if let (Ok(event), Ok(bytes)) =
                (self.events.acquire().await, self.bytes.acquire_many(permits).await)
            {
                return Room { _event: event, _bytes: bytes };
            }
        }
    }

    fn close(&self) {
        self.closed.store(true, Ordering::SeqCst);
        for lane in self.ready.get().iter().flat_map(|ready| &ready.lanes) {
            lane.close(SendError::Closed);
        }
    }

    /// Gives back the room of a batch that has its outcome.
    fn give_back(&self, (events, bytes): (usize, usize)) {
        self.events.add_permits(events);
        self.bytes.add_permits(bytes.min(self.options.bytes_max));
    }

    /// Remembers a failure for whoever flushes.
    fn failed(&self, lane: &Lane, events: usize, error: &SendError) {
        let partition = lane.partition.as_str();
        tracing::warn!(hub = %self.options.client.config().hub, partition, events, %error, "events not sent");
        self.failure.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert_with(|| error.clone());
    }

    async fn send(
        &self,
        lane: &Lane,
        sender: &mut Sender,
        batch: &mut Gathered,
    ) -> Result<(), EventHubsError> {
        let client = &self.options.client;
        let patience = Patience::Until(Instant::now() + self.options.send_time_max);
        let mut attempts = Attempts::new(patience, client.config().request_time_max);
        let events = Bytes::from(std::mem::take(&mut batch.events));
        if let Sender::Numbered(numbered) = sender {
            numbered.begin();
        }
        let result = loop {
            let attempt = async {
                let sent = sender.send(client, &lane.partition, &events).await;
                lane.attempted(&sent);
                sent
            };
            match attempts.take(attempt).await {
                Some(Err(_)) if self.goes_without(sender) => *sender = Sender::Plain(None),
                Some(result) => break result,
                None => {}
            }
        };
        if let Sender::Numbered(numbered) = sender {
            numbered.settle(batch.count, &result);
        }
        result
    }

    /// Whether a hub that takes no numbers is to have the events without.
    fn goes_without(&self, sender: &Sender) -> bool {
        self.options.numbering == Numbering::IfTaken
            && matches!(sender, Sender::Numbered(numbered) if numbered.is_refused())
    }
}

/// Sends the batches of a lane. If it ends early, because its runtime does, whoever waits for the lane is told.
#[derive(Debug)]
struct Tender {
    shared: Arc<BufferedState>,
    lane: Arc<Lane>,
    /// Events and bytes of the batch that has no outcome yet.
    under_way: Option<(usize, usize)>,
}

impl Tender {
    /// Sends until the lane is closed and empty.
    async fn run(mut self) {
        let mut sender = match self.shared.options.numbering {
            Numbering::Never => Sender::Plain(None),
            Numbering::IfTaken | Numbering::Always => {
                Sender::Numbered(Numbered::new(self.lane.partition.clone()))
            }
        };
        let mut stopped: Option<SendError> = None;
        while let Some(mut batch) = self.lane.next().await {
            let size = (batch.count, batch.events.len());
            self.under_way = Some(size);
            let outcome = match &stopped {
                Some(error) => Err(error.clone()),
                None => {
                    let sent = self.shared.send(&self.lane, &mut sender, &mut batch).await;
                    if let (Err(error), true) = (&sent, self.shared.options.stop_on_failure) {
                        // What comes after was certainly not sent.
                        let error = SendError::Hub(error.clone().certain());
                        self.lane.close(error.clone());
                        stopped = Some(error);
                    }
                    sent.map_err(SendError::Hub)
                }
            };
            self.lane.count(size.0, size.1, &outcome);
            if let Err(error) = &outcome {
                self.shared.failed(&self.lane, size.0, error);
            }
            self.under_way = None;
            self.shared.give_back(size);
            batch.into_teller().tell(outcome);
        }
    }
}

impl Drop for Tender {
    fn drop(&mut self) {
        self.lane.close(SendError::Closed);
        self.under_way.take().into_iter().for_each(|size| self.shared.give_back(size));
        while let Some(batch) = self.lane.take() {
            let size = (batch.count, batch.events.len());
            let outcome = Err(SendError::Closed);
            self.lane.count(size.0, size.1, &outcome);
            self.shared.failed(&self.lane, size.0, &SendError::Closed);
            self.shared.give_back(size);
            batch.into_teller().tell(outcome);
        }
    }
}

/// How a lane sends.
#[derive(Debug)]
enum Sender {
    Plain(Option<SenderEnd>),
    Numbered(Numbered),
}

impl Sender {
    async fn send(
        &mut self,
        client: &Client,
        partition: &PartitionId,
        events: &Bytes,
    ) -> Result<(), EventHubsError> {
        match self {
            Self::Plain(link) => {
                let open = match link.take_if(|link| !link.is_closed()) {
                    Some(open) => link.insert(open),
                    None => link.insert(links::attach(client, Some(partition)).await?),
                };
                open.send(FORMAT, events.clone()).await
            }
            Self::Numbered(numbered) => numbered.send(client, None, events).await,
        }
    }
}
