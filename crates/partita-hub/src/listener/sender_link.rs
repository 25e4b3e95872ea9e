//! Links on which clients send events: a message goes to the log, and its answer to the client when it is durable.

use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

use partita_amqp::connection::{Delivery, DeliveryId, DeliveryRange, LinkId};
use partita_amqp::performative::DeliveryState;

use super::logic::{ConnectionLogic, LinkKind, error_of};
use super::node::REQUEST_CREDIT;
use crate::broker::{Hub, Route, partition_of};
use crate::fault::{Moment, Spot, Strike};
use crate::log::{Ack, AckSink, AppendError, EncodedBatch, ProducerStamp};
use crate::service::condition::Refusal;
use crate::service::ingest::ingest;

/// How long to wait when the hub's queue had room that others took.
const QUEUE_FULL_PAUSE: Duration = Duration::from_millis(1);

/// How long a full queue is waited for before the client is told to come back later.
const QUEUE_FULL_TIME_MAX: Duration = Duration::from_secs(5);

/// The hub's end of a sender link: a client sends events on it.
pub(super) struct SenderLink {
    pub(super) hub: Arc<Hub>,
    /// Where its events go, unless their key says.
    pub(super) partition: Option<u32>,
    /// The id of an idempotent producer: what it repeats is not appended again.
    pub(super) producer: Option<i64>,
    pub(super) credit: Credit,
}

/// How many messages a sender may have under way, and after how many it is told so again.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Credit {
    pub(super) target: u32,
    used: u32,
}

impl Credit {
    /// As the service does it: 300 for a hub, renewed at half; 1,000 for a partition, renewed at every 100. Other settings
    /// keep the proportions.
    pub(super) fn new(setting: u32, partition: Option<u32>) -> Self {
        match partition {
            None => Self { target: setting, used: setting.div_ceil(2) },
            Some(_) => {
                let target = u64::from(setting) * 10 / 3;
                let target = u32::try_from(target).unwrap_or(u32::MAX).max(1);
                Self { target, used: (setting / 3).max(1) }
            }
        }
    }
}

/// A batch that waits for the log.
pub(super) struct Append {
    pub(super) link: LinkId,
    delivery: DeliveryId,
    /// The client wants no answer.
    settled: bool,
    /// Of an idempotent producer.
    epoch: Option<i16>,
}

/// A batch on its way to a hub's log.
struct Sending {
    token: u64,
    hub: Arc<Hub>,
    partition: Option<u32>,
    key: Option<String>,
    batch: EncodedBatch,
    producer: Option<ProducerStamp>,
}

impl Sending {
    fn send(&self, sink: &Arc<dyn AckSink>) -> Result<(), AppendError> {
        let route = match (self.partition, &self.key) {
            (Some(partition), _) => Route::Partition(partition),
            (None, Some(key)) => Route::Key(key),
            (None, None) => Route::RoundRobin,
        };
        let batch = self.batch.clone();
        match self.producer {
            Some(producer) => self.hub.send_idempotent(route, batch, producer, self.token, sink),
            None => self.hub.send(route, batch, self.token, sink),
        }
        .map(|_| ())
    }
}

/// A batch that the hub's queue has no room for. Nothing else is read from the client meanwhile.
pub(super) struct Stuck {
    sending: Sending,
    since: Instant,
    pub(super) retry: Instant,
}

impl ConnectionLogic {
    /// A message came.
    pub(super) fn on_delivery(&mut self, delivery: &Delivery, now: Instant) {
        let Some(link) = self.links.get(&delivery.link) else { return };
        match &link.kind {
            LinkKind::Sender(intake) => {
                let credit = intake.credit;
                self.conn.top_up_every(delivery.link, credit.target, credit.used);
                self.on_event_delivery(delivery, now);
            }
            LinkKind::Requests(_) => self.on_request(delivery, now),
            _ => {}
        }
    }

    /// A message came that is larger than the link takes.
    pub(super) fn on_too_large(
        &mut self,
        link: LinkId,
        id: DeliveryId,
        settled: bool,
        size: u64,
        now: Instant,
    ) {
        let max = self.shared().options.message_bytes_max;
        self.top_up(link);
        if !settled {
            let refusal = Refusal::delivery_too_large(id, size, max);
            self.settle(link, id.into(), DeliveryState::rejected(error_of(&refusal)), now);
        }
    }

    fn top_up(&mut self, link: LinkId) {
        match self.links.get(&link).map(|link| &link.kind) {
            Some(LinkKind::Sender(SenderLink { credit, .. })) => {
                self.conn.top_up_every(link, credit.target, credit.used);
            }
            Some(LinkKind::Requests(_)) => self.conn.top_up(link, REQUEST_CREDIT),
            _ => {}
        }
    }

    fn on_event_delivery(&mut self, delivery: &Delivery, now: Instant) {
        let result = self.take_in(delivery, now);
        let outcome = match result {
            Ok(true) => return,
            Ok(false) => DeliveryState::Accepted,
            Err(refusal) => {
                tracing::debug!(connection = self.id(), %refusal, "message is rejected");
                DeliveryState::rejected(error_of(&refusal))
            }
        };
        if !delivery.settled {
            self.settle(delivery.link, delivery.id.into(), outcome, now);
        }
    }

    /// Hands a message to the log; true if it waits there now, false if there is nothing in it.
    fn take_in(&mut self, delivery: &Delivery, now: Instant) -> Result<bool, Refusal> {
        let Some(LinkKind::Sender(intake)) = self.links.get(&delivery.link).map(|link| &link.kind) else {
            return Ok(true);
        };
        let (hub, partition, producer) = (intake.hub.clone(), intake.partition, intake.producer);
        let bytes_max = usize::try_from(self.shared().options.message_bytes_max).unwrap_or(usize::MAX);
        let message = ingest(delivery.format, &delivery.payload, bytes_max)?;
        // Clients that lose digits of a number would pass for one another.
        let stamp = match (producer, message.producer) {
            (Some(id), Some(stamp)) if stamp.id != id => return Err(Refusal::other_producer(stamp.id, id)),
            (Some(_), stamp) => stamp,
            (None, _) => None,
        };
        let meant = partition.or_else(|| message.key.map(|key| partition_of(key, hub.partitions())));
        let spot = Spot { hub: hub.name().as_str(), partition: meant, sends: true, moment: Moment::Sent };
        match self.shared().faults.strike(&spot, now) {
            Some(Strike::Refuse(refusal)) => return Err(refusal),
            Some(Strike::Cut) => {
                self.cut();
                return Ok(true);
            }
            _ => {}
        }
        if hub.is_disabled() {
            return Err(Refusal::disabled(hub.name()));
        }
        let Some(batch) = message.batch else { return Ok(false) };
        self.next_token += 1;
        let token = self.next_token;
        let epoch = stamp.map(|stamp| stamp.epoch);
        let append = Append { link: delivery.link, delivery: delivery.id, settled: delivery.settled, epoch };
        self.appends.insert(token, append);
        let key = message.key.filter(|_| partition.is_none()).map(str::to_owned);
        let sending = Sending { token, hub, partition, key, batch, producer: stamp };
        match sending.send(&self.sink) {
            Ok(()) => Ok(true),
            Err(AppendError::QueueFull) => {
                let retry = self.when_there_is_room(&sending, now, now);
                self.stuck = Some(Stuck { sending, since: now, retry });
                Ok(true)
            }
            Err(error) => {
                self.appends.remove(&token);
                Err(error.into())
            }
        }
    }

    /// When to try again at the latest; a queue that gets room before that wakes the task.
    fn when_there_is_room(&self, sending: &Sending, since: Instant, now: Instant) -> Instant {
        let waker = Waker::from(self.mailbox.clone());
        let bytes = sending.batch.disk_bytes();
        match sending.hub.log().poll_room(&mut Context::from_waker(&waker), bytes) {
            Poll::Ready(()) => now + QUEUE_FULL_PAUSE,
            Poll::Pending => since + QUEUE_FULL_TIME_MAX,
        }
    }

    /// Tries again what the hub's queue had no room for; true if it is through, one way or the other.
    pub(super) fn retry_stuck(&mut self, now: Instant) -> bool {
        let Some(Stuck { sending, since, .. }) = self.stuck.take() else { return false };
        let error = match sending.send(&self.sink) {
            Ok(()) => return true,
            Err(AppendError::QueueFull) if now.duration_since(since) < QUEUE_FULL_TIME_MAX => {
                let retry = self.when_there_is_room(&sending, since, now);
                self.stuck = Some(Stuck { sending, since, retry });
                return false;
            }
            Err(error) => error,
        };
        self.on_acks(&mut vec![Ack { token: sending.token, outcome: Err(error) }], now);
        true
    }

    /// The log answered. Neighbours get one answer together.
    pub(super) fn on_acks(&mut self, acks: &mut Vec<Ack>, now: Instant) {
        let mut accepted: Vec<(LinkId, DeliveryId)> = Vec::with_capacity(acks.len());
        for Ack { token, outcome } in acks.drain(..) {
            let Some(append) = self.appends.remove(&token) else { continue };
            match outcome {
                _ if append.settled => {}
                Ok(_) => accepted.push((append.link, append.delivery)),
                Err(error) => {
                    let refusal = match error {
                        AppendError::ProducerStolen { id, epoch } => {
                            Refusal::producer_stolen(id, append.epoch, epoch)
                        }
                        AppendError::TooLarge { bytes, max } => {
                            Refusal::delivery_too_large(append.delivery, bytes as u64, max as u64)
                        }
                        error => Refusal::from(error),
                    };
                    tracing::debug!(connection = self.id(), %refusal, "message is rejected");
                    let state = DeliveryState::rejected(error_of(&refusal));
                    self.settle(append.link, append.delivery.into(), state, now);
                }
            }
        }
        accepted.sort_unstable();
        let mut rest = &accepted[..];
        while let Some((link, first)) = rest.first().copied() {
            let follows =
                |(at, next): (usize, &(LinkId, DeliveryId))| *next == (link, first.wrapping_add(at as u32));
            let count = rest.iter().enumerate().take_while(|entry| follows(*entry)).count();
            let ids = DeliveryRange { first, last: first.wrapping_add(count as u32 - 1) };
            self.settle(link, ids, DeliveryState::Accepted, now);
            rest = &rest[count..];
        }
    }
}
