//! Idempotent sends to one partition: every event has a number, so that the hub knows what it has already.
//!
//! One batch is under way at a time. Its number stays with it through all attempts; only when it is known to be in the hub,
//! or to be nowhere, the next one gets one. Where a send is given up and may still arrive, we come back as a later incarnation
//! of ourselves: the hub shuts the former one out, so that nothing of it arrives between what comes after.

use bytes::Bytes;
use partita_amqp::performative::{Attach, condition};
use partita_core::model::{PartitionId, Value};
use partita_dialect::event::batch::{self, FORMAT};
use partita_dialect::names::annotation::{PRODUCER_EPOCH, PRODUCER_ID, PRODUCER_SEQUENCE};
use partita_dialect::names::link::IDEMPOTENT;

use super::links::address;
use crate::eventhubs::EventHubsError;
use crate::eventhubs::client::{Client, SenderEnd};

/// How a hub may refuse a link because of the numbers.
const NOT_TAKEN: [&str; 3] = [condition::NOT_IMPLEMENTED, condition::NOT_ALLOWED, condition::INVALID_FIELD];

/// The most that numbers add to a batch.
pub(super) const HEAD_BYTES_MAX: usize = 128;

/// Who we are to the hub, which said so.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Identity {
    id: i64,
    epoch: i16,
}

/// A producer's place in one partition.
#[derive(Debug)]
pub(super) struct Numbered {
    partition: PartitionId,
    identity: Option<Identity>,
    /// The number of the next event; `None` if the hub is to say.
    next: Option<i32>,
    link: Option<SenderEnd>,
    /// Whether a batch was begun and not settled.
    under_way: bool,
    /// Whether the hub said that it takes no numbers.
    refused: bool,
}

/// Whether events are numbered.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Numbering {
    Never,
    /// Where the hub takes numbers; elsewhere they go without.
    IfTaken,
    Always,
}

/// The number that follows `count` events from `sequence` on: after the last one comes 0.
fn after(sequence: i32, count: u32) -> i32 {
    (sequence.cast_unsigned().wrapping_add(count) & i32::MAX.cast_unsigned()).cast_signed()
}

fn before(sequence: i32) -> i32 {
    after(sequence, i32::MAX.cast_unsigned())
}

impl Numbered {
    pub(super) fn new(partition: PartitionId) -> Self {
        Self { partition, identity: None, next: None, link: None, under_way: false, refused: false }
    }

    /// Whether the hub takes no numbers. Nothing was sent, then.
    pub(super) fn is_refused(&self) -> bool {
        self.refused
    }

    /// Begins another batch. If the last one was not settled, because whoever sent it went away, it is in doubt.
    pub(super) fn begin(&mut self) {
        if std::mem::replace(&mut self.under_way, true) {
            self.start_over();
        }
    }

    /// Sends encoded events, which have `key` in common, once. After a retriable error it can be called again with the same
    /// ones; [`settle`](Self::settle) comes last.
    pub(super) async fn send(
        &mut self,
        client: &Client,
        key: Option<&str>,
        events: &[u8],
    ) -> Result<(), EventHubsError> {
        let (link, identity, sequence) = self.attached(client).await?;
        let mut payload = Vec::with_capacity(HEAD_BYTES_MAX + events.len());
        let head = [
            (PRODUCER_EPOCH, Value::Short(identity.epoch)),
            (PRODUCER_ID, Value::Long(identity.id)),
            (PRODUCER_SEQUENCE, Value::Int(sequence)),
        ];
        batch::begin(key, &head, &mut payload)
            .map_err(|error| EventHubsError::fatal(format!("the events cannot be written: {error}")))?;
        payload.extend_from_slice(events);
        link.send(FORMAT, Bytes::from(payload)).await
    }

    /// Says what became of a batch in the end.
    pub(super) fn settle(&mut self, count: usize, result: &Result<(), EventHubsError>) {
        self.under_way = false;
        match result {
            Ok(()) => self.next = self.next.map(|next| after(next, count as u32)),
            // It certainly is nowhere, and the number is free again.
            Err(error) if error.is_retriable() && !error.may_have_happened() => {}
            Err(_) => self.start_over(),
        }
    }

    /// Another incarnation: the hub takes nothing from this one any more.
    fn start_over(&mut self) {
        self.identity = self.identity.and_then(|Identity { id, epoch }| {
            let epoch = epoch.checked_add(1)?;
            Some(Identity { id, epoch })
        });
        self.next = None;
        self.link = None;
    }

    /// The link, attached if there is none; who we are; and the number of the next event.
    async fn attached(&mut self, client: &Client) -> Result<(&SenderEnd, Identity, i32), EventHubsError> {
        if self.link.as_ref().is_none_or(SenderEnd::is_closed) {
            self.link = None;
            self.attach(client).await?;
        }
        match (&self.link, self.identity, self.next) {
            (Some(link), Some(identity), Some(next)) => Ok((link, identity, next)),
            _ => Err(EventHubsError::fatal("the hub did not say who this producer is: it is not idempotent")),
        }
    }

    async fn attach(&mut self, client: &Client) -> Result<(), EventHubsError> {
        let mut attach = Attach::sender("", &address(client, Some(&self.partition)));
        attach.desired_capabilities = vec![IDEMPOTENT.into()];
        let symbol = |name: &str| Value::Symbol(name.into());
        if let Some(Identity { id, epoch }) = self.identity {
            attach.properties.push((symbol(PRODUCER_EPOCH), Value::Short(epoch)));
            attach.properties.push((symbol(PRODUCER_ID), Value::Long(id)));
        }
        if let Some(next) = self.next {
            attach.properties.push((symbol(PRODUCER_SEQUENCE), Value::Int(before(next))));
        }
        let first = self.identity.is_none();
        let link = client.produce(attach).await.inspect_err(|error| {
            self.refused = first && error.condition().is_some_and(|condition| NOT_TAKEN.contains(&condition));
        })?;
        let number = |name: &str| link.granted.property(name).and_then(Value::as_i64);
        let epoch = number(PRODUCER_EPOCH).and_then(|epoch| i16::try_from(epoch).ok());
        let last = number(PRODUCER_SEQUENCE).and_then(|last| i32::try_from(last).ok());
        let (Some(id), Some(epoch), Some(last)) = (number(PRODUCER_ID), epoch, last) else {
            self.refused = first;
            let text = format!("the hub '{}' takes no idempotent producers", client.config().hub);
            return Err(EventHubsError::fatal(text));
        };
        self.identity = Some(Identity { id, epoch });
        // What is being tried again keeps its number, whether the hub has it or not.
        self.next.get_or_insert(after(last, 1));
        self.link = Some(link);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_go_on_at_zero_after_the_last() {
        assert_eq!(after(7, 3), 10);
        assert_eq!(after(i32::MAX, 1), 0);
        assert_eq!((before(0), before(1)), (i32::MAX, 0));
    }

    #[test]
    fn a_number_is_used_again_only_if_its_events_are_certainly_nowhere() {
        let mut numbered = Numbered::new(0.into());
        numbered.next = Some(7);
        numbered.settle(3, &Ok(()));
        assert_eq!(numbered.next, Some(10));
        numbered.settle(3, &Err(EventHubsError::retriable("busy")));
        assert_eq!(numbered.next, Some(10));
        numbered.identity = Some(Identity { id: 5, epoch: 1 });
        numbered.settle(3, &Err(EventHubsError::retriable("lost").uncertain()));
        assert_eq!((numbered.next, numbered.identity), (None, Some(Identity { id: 5, epoch: 2 })));
    }

    #[test]
    fn a_batch_whose_sender_went_away_is_in_doubt() {
        let mut numbered = Numbered::new(0.into());
        (numbered.next, numbered.identity) = (Some(7), Some(Identity { id: 5, epoch: 1 }));
        numbered.begin();
        numbered.settle(1, &Ok(()));
        numbered.begin();
        assert_eq!(numbered.next, Some(8));
        numbered.begin();
        assert_eq!((numbered.next, numbered.identity), (None, Some(Identity { id: 5, epoch: 2 })));
    }
}
