//! The connection's end of a link that receives: deliveries of a turn are handed over as one batch.

use std::sync::Arc;

use bytes::{Bytes, BytesMut};
use partita_amqp::connection::{Connection, Delivery, DeliveryRange, LinkId, SessionId};
use partita_amqp::performative::{Attach, DeliveryState, Error, condition};
use partita_core::model::Value;
use partita_dialect::names::own::{LOST_FROM, LOST_NEXT};
use tokio::sync::{Notify, mpsc};

use super::command::Reply;
use super::credit::Credit;
use super::slot::Room;
use super::window::{Batch, ReaderEnd, Window};
use crate::eventhubs::EventHubsError;

/// From this size on, a batch shares the memory that it was read into; a smaller one is copied, so that what waits in a
/// queue holds no more than a few times its own size. What is read at once is at most four times this.
const SHARED_BYTES_MIN: usize = 64 * 1024;

/// Batches beyond the credit: a hub may send a little more than it may.
const BATCHES_EXTRA: usize = 64;

#[derive(Debug)]
pub(super) struct Receiver {
    pub(super) session: SessionId,
    /// What to call it in an error.
    pub(super) what: String,
    /// Until it is attached.
    opening: Option<(ReaderEnd, Reply<ReaderEnd>)>,
    granted: Option<Box<Attach>>,
    window: Arc<Window>,
    batches: mpsc::Sender<Batch>,
    /// Its place on the connection, until the hub has let it go.
    _room: Room,
    credit: Credit,
    /// What arrived in this turn.
    batch: Batch,
    batch_bytes: usize,
    largest: usize,
    /// What of it wants to be settled.
    unsettled: Option<DeliveryRange>,
}

impl Receiver {
    pub(super) fn new(
        session: SessionId,
        what: String,
        (events_max, bytes_max): (usize, usize),
        wake: Arc<Notify>,
        room: Room,
        reply: Reply<ReaderEnd>,
    ) -> Self {
        // A batch has at least one event, so that batches are never more than events.
        let (batches, taker) = mpsc::channel(events_max + BATCHES_EXTRA);
        let window = Arc::new(Window::new(wake));
        let end = ReaderEnd::new(taker, window.clone(), events_max, bytes_max);
        Self {
            session,
            what,
            opening: Some((end, reply)),
            granted: None,
            window,
            batches,
            _room: room,
            credit: Credit::new(events_max, bytes_max),
            batch: Vec::new(),
            batch_bytes: 0,
            largest: 0,
            unsettled: None,
        }
    }

    pub(super) fn attached(&mut self, granted: Box<Attach>) {
        self.granted = Some(granted);
    }

    /// Hands the reader its end, if the hub granted the link.
    pub(super) fn settle_opening(&mut self) {
        if let Some(granted) = self.granted.take().filter(|granted| granted.source.is_some())
            && let Some((mut end, reply)) = self.opening.take()
        {
            let number = |name| granted.property(name).and_then(Value::as_i64);
            if let (Some(from), Some(next)) = (number(LOST_FROM), number(LOST_NEXT)) {
                end.starts_lost(from..next);
            }
            // If nobody waits any more, dropping the end detaches the link.
            let _ = reply.send(Ok(end));
        }
    }

    pub(super) fn is_gone(&self) -> bool {
        self.window.is_gone()
    }

    /// Takes a delivery; tells whether it is the first of this turn.
    #[inline]
    pub(super) fn delivered(&mut self, delivery: Delivery) -> bool {
        let size = delivery.payload.len();
        self.batch_bytes += size;
        self.largest = self.largest.max(size);
        if !delivery.settled {
            self.unsettled = Some(match self.unsettled {
                Some(range) => DeliveryRange { last: delivery.id, ..range },
                None => delivery.id.into(),
            });
        }
        self.batch.push(delivery.payload);
        self.batch.len() == 1
    }

    /// Hands over what arrived in this turn.
    pub(super) fn hand_over(&mut self, link: LinkId, connection: &mut Connection) {
        if let Some(range) = self.unsettled.take() {
            connection.settle(link, range, DeliveryState::Accepted);
        }
        if self.batch.is_empty() {
            return;
        }
        let (bytes, largest) = (std::mem::take(&mut self.batch_bytes), std::mem::take(&mut self.largest));
        self.credit.arrived(self.batch.len(), bytes, largest);
        let room = self.batch.len();
        let mut batch = std::mem::replace(&mut self.batch, Vec::with_capacity(room));
        if bytes < SHARED_BYTES_MIN {
            compact(&mut batch, bytes);
        }
        if let Err(mpsc::error::TrySendError::Full(_)) = self.batches.try_send(batch) {
            let text = "far more messages came than the link's credit allows";
            self.window.end(EventHubsError::retriable(format!("{} was ended here: {text}", self.what)));
            connection.detach(link, Some(Error::new(condition::TRANSFER_LIMIT_EXCEEDED, text)));
        }
    }

    /// Gives the link credit for what was taken.
    pub(super) fn renew_credit(&self, link: LinkId, connection: &mut Connection) {
        let (events, bytes) = self.window.taken();
        if let Some(credit) = self.credit.wanted(events, bytes, connection.credit(link)) {
            connection.set_credit(link, credit, false);
        }
    }

    /// Tells the reader that nothing more comes, and why.
    pub(super) fn end(mut self, error: EventHubsError) {
        // What came with the end, in the same turn, was sent before it: the reader gets it first.
        self.settle_opening();
        if !self.batch.is_empty() {
            let mut batch = std::mem::take(&mut self.batch);
            compact(&mut batch, self.batch_bytes);
            // Where there is no room the hub has sent more than it may, which ends the reader all the same.
            let _ = self.batches.try_send(batch);
        }
        match self.opening {
            Some((_, reply)) => {
                let _ = reply.send(Err(error));
            }
            None => self.window.end(error),
        }
    }
}

/// Copies payloads into memory of their own.
fn compact(batch: &mut [Bytes], bytes: usize) {
    let mut memory = BytesMut::with_capacity(bytes);
    for payload in batch {
        memory.extend_from_slice(payload);
        *payload = memory.split().freeze();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_copied_batch_is_the_same_and_shares_one_piece_of_memory() {
        let read = Bytes::from((0..=255).collect::<Vec<u8>>());
        let mut batch: Batch = [3..10, 50..50, 100..200].map(|range| read.slice(range)).to_vec();
        let before = batch.clone();
        compact(&mut batch, 107);
        assert_eq!(batch, before);
        assert_eq!(batch[0].as_ptr() as usize + 7, batch[2].as_ptr() as usize);
        assert_ne!(batch[0].as_ptr(), before[0].as_ptr());
    }
}
