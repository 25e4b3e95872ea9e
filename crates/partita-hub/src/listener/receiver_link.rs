//! Links from which clients read events.

use std::collections::VecDeque;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Instant;

use partita_amqp::connection::{Connection, LinkId, Outgoing, SendError};
use partita_amqp::performative::Attach;
use partita_core::model::{Position, Timestamp};
use tokio::task::JoinHandle;

use super::mailbox::{Bell, Mailbox};
use crate::broker::{AttachError, Hub, HubReader};
use crate::log::{ReadError, StoredBatch};
use crate::service::condition::{Refusal, SIZE_EXCEEDED};
use crate::service::egress::{Delivery, Metrics};
use crate::source::fetch::Fetch;

/// How much one reader says before the next one has its turn.
const TURN_BYTES: usize = 128 << 10;

/// How much is fetched at once at least, where credit would ask for less.
const FETCH_BYTES_MIN: usize = 4 << 10;

/// How much a reader without credit keeps of what it fetched; more is fetched again.
const KEPT_BYTES_MAX: usize = 64 << 10;

/// What the first event is taken to be like.
const EVENT_BYTES_GUESS: usize = 1_024;

/// A reader whose place has to be looked for on the disk.
pub(super) struct Finding {
    pub(super) attach: Attach,
    pub(super) hub: Arc<Hub>,
    pub(super) from: Position,
    pub(super) found: JoinHandle<Result<HubReader, AttachError>>,
    pub(super) bell: Arc<Bell>,
}

impl Finding {
    pub(super) fn poll(&mut self) -> Poll<Result<HubReader, AttachError>> {
        let waker = self.bell.waker();
        let found = Pin::new(&mut self.found).poll(&mut Context::from_waker(&waker));
        // A runtime that is going down finds nothing.
        found.map(|found| found.unwrap_or(Err(AttachError::Position(ReadError::Closed))))
    }
}

/// How a turn ended.
pub(super) enum Turn {
    /// Credit, or an event, will bring the next one.
    Done,
    /// There is more to say.
    More,
    /// Not before then.
    Wait(Instant),
    /// The link is to be detached.
    Failed(Refusal),
}

/// The hub's end of a receiver link: a client reads events from it.
pub(super) struct ReceiverLink {
    fetch: Fetch,
    waker: Waker,
    hub: Arc<Hub>,
    partition: u32,
    /// Whether the client wants to know the end of the partition with each event.
    wants_metrics: bool,
    metrics: Option<Metrics>,
    /// Whether the client settles nothing, where it left the choice.
    settled: bool,
    /// What was fetched and not sent yet, and how many events of the first of them were.
    batches: VecDeque<StoredBatch>,
    taken: usize,
    /// Events before this time are passed over.
    not_before: Option<i64>,
    /// About how large events are.
    event_bytes: usize,
    /// Whether it is among those that wait for their turn.
    pub(super) queued: bool,
    /// Until when a fault holds it back.
    held_until: Option<Instant>,
}

impl ReceiverLink {
    pub(super) fn new(
        link: LinkId,
        reader: HubReader,
        from: &Position,
        wants_metrics: bool,
        mailbox: &Arc<Mailbox>,
    ) -> Self {
        Self {
            hub: reader.hub().clone(),
            partition: reader.partition(),
            fetch: Fetch::new(reader),
            waker: Bell::new(link, mailbox).waker(),
            wants_metrics,
            metrics: None,
            settled: true,
            batches: VecDeque::new(),
            taken: 0,
            not_before: match from {
                Position::Time(time) => Some(time.millis()),
                _ => None,
            },
            event_bytes: EVENT_BYTES_GUESS,
            queued: false,
            held_until: None,
        }
    }

    /// Sends what there is, as far as credit and room go. `hold` says until when a fault holds events back.
    pub(super) fn turn(
        &mut self,
        id: LinkId,
        conn: &mut Connection,
        outbox_bytes_max: usize,
        hold: impl Fn() -> Option<Instant>,
    ) -> Turn {
        let turn = self.send(id, conn, outbox_bytes_max, hold);
        if !matches!(turn, Turn::More) {
            self.settle_down();
        }
        turn
    }

    fn send(
        &mut self,
        id: LinkId,
        conn: &mut Connection,
        outbox_bytes_max: usize,
        hold: impl Fn() -> Option<Instant>,
    ) -> Turn {
        if let Err(error) = self.fetch.check() {
            return Turn::Failed(error.into());
        }
        let start = conn.outbox().len();
        let mut held = match self.held_until {
            Some(at) if at > Instant::now() => return Turn::Wait(at),
            held => held.is_some(),
        };
        self.held_until = None;
        loop {
            let room = conn.sendable(id) as usize;
            if room == 0 {
                return Turn::Done;
            }
            if self.batches.is_empty() {
                // What was fetched is said, all of it if there is credit: kept, it would hold on to memory of others.
                let said = conn.outbox().len();
                if said >= outbox_bytes_max || said - start >= TURN_BYTES {
                    return Turn::More;
                }
                match self.fetch(room) {
                    Poll::Ready(Ok(())) => continue,
                    Poll::Ready(Err(refusal)) => return Turn::Failed(refusal),
                    Poll::Pending => {
                        // What is on its way from the disk is still to be said.
                        if !self.fetch.is_away() {
                            conn.drained(id);
                        }
                        return Turn::Done;
                    }
                }
            }
            if !held && let Some(at) = hold() {
                self.held_until = Some(at);
                return Turn::Wait(at);
            }
            held = true;
            match self.send_batch(id, conn, room) {
                Ok(()) => {}
                Err(error @ SendError::TooLarge { .. }) => {
                    return Turn::Failed(Refusal::new(
                        SIZE_EXCEEDED,
                        format!("An event cannot be delivered: {error}."),
                    ));
                }
                // Credit, a window or a detach will say how it goes on.
                Err(_) => return Turn::Done,
            }
        }
    }

    /// Fetches about as much as there is credit for.
    fn fetch(&mut self, room: usize) -> Poll<Result<(), Refusal>> {
        let bytes = room.saturating_mul(self.event_bytes).clamp(FETCH_BYTES_MIN, TURN_BYTES);
        let mut found = Vec::new();
        let result = self.fetch.poll(&mut Context::from_waker(&self.waker), bytes, &mut found);
        if let Some(time) = self.not_before {
            // Time never falls within a partition.
            found.retain(|batch| batch.time_ms() >= time);
            if !found.is_empty() {
                self.not_before = None;
            }
        }
        if self.wants_metrics && !found.is_empty() {
            let info = self.hub.partition(self.partition);
            self.metrics = info.map(|info| Metrics::new(&info, Timestamp::now()));
        }
        self.batches.extend(found);
        result.map_err(Refusal::from)
    }

    /// Sends up to `room` events of the first batch.
    fn send_batch(&mut self, id: LinkId, conn: &mut Connection, room: usize) -> Result<(), SendError> {
        let Some(batch) = self.batches.front() else { return Ok(()) };
        self.event_bytes = batch.event_bytes().div_ceil(batch.len().max(1));
        let (len, settled) = (batch.len(), self.settled);
        for event in batch.events().skip(self.taken).take(room) {
            let delivery = Delivery::new(&event, self.metrics.as_ref());
            let message = Outgoing { tag: event.seq.into(), format: 0, settled };
            conn.send_with(id, message, |out| {
                delivery.write(out);
                Ok(())
            })?;
            self.taken += 1;
        }
        if self.taken >= len {
            self.taken = 0;
            self.batches.pop_front();
        }
        Ok(())
    }

    /// Before a wait of unknown length: makes sure to be woken when the reader is sent away, and lets go of memory that is
    /// shared with others.
    fn settle_down(&mut self) {
        if !self.fetch.is_away() {
            let _ = self.fetch.poll_ready(&mut Context::from_waker(&self.waker));
        }
        let Some(first) = self.batches.front() else { return };
        let bytes: usize = self.batches.iter().map(StoredBatch::event_bytes).sum();
        if bytes > KEPT_BYTES_MAX {
            self.fetch.seek(first.first_seq() + self.taken as u64);
            self.batches = VecDeque::new();
            self.taken = 0;
        } else {
            self.batches = self.batches.iter().map(StoredBatch::detached).collect();
        }
    }
}
