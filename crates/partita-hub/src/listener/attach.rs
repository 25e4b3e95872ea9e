//! A client attaches a link: what it wants, whether it may, and the answer.

use std::sync::Arc;
use std::task::Poll;
use std::time::Instant;

use partita_amqp::connection::{LinkId, SessionId};
use partita_amqp::message::Map;
use partita_amqp::performative::{Attach, ReceiverSettleMode, Role, SenderSettleMode, Source, Target};
use partita_core::model::{ConsumerGroup, Epoch, Position, Timestamp, Value};
use partita_dialect::names::annotation::{PRODUCER_EPOCH, PRODUCER_ID, PRODUCER_SEQUENCE};
use partita_dialect::names::link::{EPOCH, IDEMPOTENT, RECEIVER_NAME, RUNTIME_METRIC};
use partita_dialect::names::own::{LOST_FROM, LOST_NEXT};
use partita_dialect::selector::{is_selector, position};

use super::logic::{ConnectionLogic, Link, LinkKind, Pass, error_of};
use super::mailbox::Bell;
use super::node::{Node, REQUEST_CREDIT, Replies, Requests};
use super::receiver_link::{Finding, ReceiverLink};
use super::sender_link::{Credit, SenderLink};
use crate::broker::{self, Hub, HubReader};
use crate::fault::{Moment, Spot, Strike};
use crate::log::AppendError;
use crate::service::address::{Address, partition_number};
use crate::service::auth::Right;
use crate::service::condition::{ARGUMENT_ERROR, NOT_ALLOWED, NOT_IMPLEMENTED, Refusal};
use crate::service::ingest::ProducerNumbers;
use crate::service::selector;
use crate::source::attach_at_oldest;

/// The second one is the Rust client's.
const RECEIVER_NAMES: [&str; 2] = [RECEIVER_NAME, "com.microsoft.com:receiver-name"];

impl ConnectionLogic {
    pub(super) fn on_attach(&mut self, id: LinkId, attach: Attach, now: Instant) {
        if let Err(refusal) = self.admit(id, &attach, now) {
            tracing::debug!(connection = self.id(), link = %attach.name, %refusal, "link is refused");
            self.warn_refused(&refusal.condition, &refusal.description);
            self.refuse(id, &attach, &refusal);
        }
    }

    /// Clients wait for an attach before a detach: without termini, as from the service, which is how most of them know at
    /// once that they are refused.
    fn refuse(&mut self, id: LinkId, attach: &Attach, refusal: &Refusal) {
        if self.wants_termini {
            self.conn.answer_attach(id, answer_to(attach));
        }
        self.conn.detach(id, Some(error_of(refusal)));
    }

    fn admit(&mut self, id: LinkId, attach: &Attach, now: Instant) -> Result<(), Refusal> {
        if matches!(attach.target, Some(Target::Other(_))) {
            return Err(Refusal::new(NOT_IMPLEMENTED, "Transactions are not supported."));
        }
        let address = Address::parse(attach.address().unwrap_or_default())?;
        let node = match address {
            Address::Cbs => Some(Node::Cbs),
            // Each question is asked for its token; Java attaches before it has put one.
            Address::Management => Some(Node::Management),
            _ => None,
        };
        let pass = Pass { address, partition: None, right: None, until: None };
        match (node, attach.role) {
            (Some(Node::Cbs), Role::Sender) if self.puts_tokens() => {
                let text = format!("A link to connection '{}' $cbs node has already been opened.", self.id());
                return Err(Refusal::new(NOT_ALLOWED, text));
            }
            (Some(node), Role::Sender) => {
                self.attached(id, attach, pass, LinkKind::Requests(Requests { node }))?;
                self.conn.set_credit(id, REQUEST_CREDIT, false);
            }
            (Some(node), Role::Receiver) => {
                let name = attach.target.as_ref().and_then(Target::address).map(str::to_owned);
                self.attached(id, attach, pass, LinkKind::Replies(Replies::new(node, name)))?;
                self.conn.ignore_outcomes(id);
            }
            (None, Role::Sender) => self.admit_sender(id, attach, pass.address, now)?,
            (None, Role::Receiver) => self.admit_receiver(id, attach, pass.address, now)?,
        }
        Ok(())
    }

    /// Whether there is a link for tokens already.
    fn puts_tokens(&self) -> bool {
        let is_one = |link: &Link| matches!(link.kind, LinkKind::Requests(Requests { node: Node::Cbs }));
        self.links.values().any(is_one)
    }

    fn admit_sender(
        &mut self,
        id: LinkId,
        attach: &Attach,
        address: Address,
        now: Instant,
    ) -> Result<(), Refusal> {
        if let Address::Reader { .. } = address {
            let text = format!("'{address}' can only be received from.");
            return Err(Refusal::new(NOT_ALLOWED, text));
        }
        let (hub, pass) = self.find(address, Right::Send)?;
        self.strike(&hub, pass.partition, true, now)?;
        let producer = begin_producer(attach, &hub, pass.partition)?;
        let mut granted = attach.clone();
        let producer = producer.map(|(id, properties)| {
            granted.properties = properties;
            id
        });
        let credit = Credit::new(self.shared().options.credit, pass.partition);
        let kind = LinkKind::Sender(SenderLink { hub, partition: pass.partition, producer, credit });
        self.attached(id, &granted, pass, kind)?;
        self.conn.set_credit(id, credit.target, false);
        Ok(())
    }

    fn admit_receiver(
        &mut self,
        id: LinkId,
        attach: &Attach,
        address: Address,
        now: Instant,
    ) -> Result<(), Refusal> {
        let Address::Reader { group, .. } = &address else {
            let text = format!(
                "'{address}' can only be sent to: events are received from a partition of a consumer group."
            );
            return Err(Refusal::new(NOT_ALLOWED, text));
        };
        let group = group.clone();
        let (hub, pass) = self.find(address, Right::Listen)?;
        let partition = pass.partition.unwrap_or_default();
        self.strike(&hub, Some(partition), false, now)?;
        let wanted = self.wanted(attach, group, partition)?;
        let from = wanted.from.clone();
        if let Some(refusal) = selector::beyond_empty(&from, hub.partition(partition)) {
            return Err(refusal);
        }
        match from {
            // These places are found by reading.
            Position::Offset { .. } | Position::Time(_) => {
                let looked_in = hub.clone();
                let found = tokio::task::spawn_blocking(move || attach_at_oldest(&looked_in, wanted));
                let bell = Bell::new(id, &self.mailbox);
                let finding = Finding { attach: attach.clone(), hub, from, found, bell };
                let session = self.session_of(id)?;
                self.insert(id, Link { session, pass, kind: LinkKind::Finding(Box::new(finding)) });
                self.wake_reader(id, now);
            }
            _ => {
                let reader = attach_at_oldest(&hub, wanted);
                let reader =
                    reader.map_err(|error| selector::refusal(&from, error, hub.partition(partition)))?;
                let attach = &with_loss(attach, &reader);
                let link_kind = self.receiver_link(id, attach, reader, &from);
                self.attached(id, attach, pass, link_kind)?;
                self.begin_reading(id, now);
            }
        }
        Ok(())
    }

    /// A reader's place may have been found.
    pub(super) fn on_found(&mut self, id: LinkId, now: Instant) {
        let Some(LinkKind::Finding(finding)) = self.links.get_mut(&id).map(|link| &mut link.kind) else {
            return;
        };
        let Poll::Ready(found) = finding.poll() else { return };
        let (attach, hub, from) = (finding.attach.clone(), finding.hub.clone(), finding.from.clone());
        let Some(link) = self.links.get(&id) else { return };
        match found {
            Ok(reader) => {
                let attach = with_loss(&attach, &reader);
                let link_kind = self.receiver_link(id, &attach, reader, &from);
                if let Some(link) = self.links.get_mut(&id) {
                    link.kind = link_kind;
                }
                let answer = self.granted(&attach);
                self.conn.answer_attach(id, answer);
                self.begin_reading(id, now);
            }
            Err(error) => {
                let info = link.pass.partition.and_then(|partition| hub.partition(partition));
                let refusal = selector::refusal(&from, error, info);
                tracing::debug!(connection = self.id(), link = %attach.name, %refusal, "link is refused");
                self.warn_refused(&refusal.condition, &refusal.description);
                self.refuse(id, &attach, &refusal);
                self.remove(id);
            }
        }
    }

    fn receiver_link(&self, id: LinkId, attach: &Attach, reader: HubReader, from: &Position) -> LinkKind {
        let metrics = attach.desired_capabilities.iter().any(|wanted| **wanted == *RUNTIME_METRIC);
        LinkKind::Receiver(Box::new(ReceiverLink::new(id, reader, from, metrics, &self.mailbox)))
    }

    fn begin_reading(&mut self, id: LinkId, now: Instant) {
        // What clients say about events moves nothing here.
        self.conn.ignore_outcomes(id);
        // An event that its reader does not take would be in its way for ever; most take it, whatever they say.
        self.conn.send_any_size(id);
        self.wake_reader(id, now);
    }

    /// What a receiver asks of the hub.
    fn wanted(
        &self,
        attach: &Attach,
        group: ConsumerGroup,
        partition: u32,
    ) -> Result<broker::Attach, Refusal> {
        let filters = match attach.source.as_ref().map(|source| &source.filter) {
            Some(Value::Map(filters)) => &filters[..],
            _ => &[],
        };
        let epoch = match attach.property(EPOCH) {
            None | Some(Value::Null) => None,
            Some(value) => {
                let epoch = value.as_i64().and_then(|epoch| u64::try_from(epoch).ok());
                let bad = || {
                    Refusal::new(
                        ARGUMENT_ERROR,
                        format!("The epoch {value:?} is not a number of at least 0."),
                    )
                };
                Some(Epoch(epoch.ok_or_else(bad)?))
            }
        };
        let names = RECEIVER_NAMES.iter().filter_map(|name| attach.property(name)?.as_str());
        let name = names
            .filter(|name| !name.is_empty())
            .map(Arc::from)
            .next()
            .unwrap_or_else(|| attach.name.clone());
        Ok(broker::Attach { group, partition, from: position(filters)?, epoch, name })
    }

    /// The hub of an address, if the client has a token for what it wants there.
    fn find(&self, address: Address, right: Right) -> Result<(Arc<Hub>, Pass), Refusal> {
        let until = self.tokens.allow(&address.to_string(), right, Timestamp::now())?;
        let name = address.hub().unwrap_or_default();
        let hub = self.shared().broker.hub(name).ok_or_else(|| Refusal::not_found(name))?;
        if hub.is_disabled() {
            return Err(Refusal::disabled(hub.name()));
        }
        let partition =
            address.partition().map(|text| partition_number(text, hub.partitions())).transpose()?;
        Ok((hub, Pass { address, partition, right: Some(right), until }))
    }

    fn strike(
        &mut self,
        hub: &Hub,
        partition: Option<u32>,
        sends: bool,
        now: Instant,
    ) -> Result<(), Refusal> {
        let spot = Spot { hub: hub.name().as_str(), partition, sends, moment: Moment::Attach };
        match self.shared().faults.strike(&spot, now) {
            Some(Strike::Refuse(refusal)) => Err(refusal),
            Some(Strike::Cut) => {
                self.cut();
                Ok(())
            }
            _ => Ok(()),
        }
    }

    fn session_of(&self, id: LinkId) -> Result<SessionId, Refusal> {
        let gone = || Refusal::new(NOT_ALLOWED, "The session of the link is gone.");
        self.conn.session_of(id).ok_or_else(gone)
    }

    /// Answers, and keeps the link.
    fn attached(&mut self, id: LinkId, attach: &Attach, pass: Pass, kind: LinkKind) -> Result<(), Refusal> {
        let session = self.session_of(id)?;
        let mut answer = self.granted(attach);
        if matches!(kind, LinkKind::Requests(_) | LinkKind::Replies(_)) {
            answer.max_message_size = Some(u64::MAX);
        }
        self.conn.answer_attach(id, answer);
        self.insert(id, Link { session, pass, kind });
        Ok(())
    }

    /// The answer that grants what is known here, in the service's words: receivers get settled messages, senders settle
    /// first, and no capability is offered, whatever is desired.
    fn granted(&self, attach: &Attach) -> Attach {
        let mut answer = answer_to(attach);
        answer.max_message_size = Some(self.shared().options.message_bytes_max);
        match attach.role {
            Role::Receiver if answer.snd_settle_mode == SenderSettleMode::Unsettled => {
                answer.snd_settle_mode = SenderSettleMode::Settled;
            }
            Role::Receiver => {}
            Role::Sender => answer.rcv_settle_mode = ReceiverSettleMode::First,
        }
        answer.properties = attach.properties.clone();
        answer
    }
}

/// What a reader is told in answer to its attach if it starts with events that are lost, and that was accepted. It cannot find
/// out by itself: unless it started by a number, it has none to compare that of its first event with, and that may be long in coming.
fn with_loss(attach: &Attach, reader: &HubReader) -> Attach {
    let (mut answer, seq) = (attach.clone(), reader.next_seq());
    answer.properties.retain(|(key, _)| !matches!(key.as_str(), Some(LOST_FROM | LOST_NEXT)));
    if let Some(lost) = reader.hub().log().given_up_at(reader.partition(), seq) {
        let number = |name: &str, seq: u64| (Value::Symbol(name.into()), Value::Long(seq.cast_signed()));
        answer.properties.extend([number(LOST_FROM, seq), number(LOST_NEXT, lost.next)]);
    }
    answer
}

/// Ids that are given here are below this: JavaScript's client reads them as numbers of 53 bits.
const PRODUCER_ID_END: i64 = 1 << 53;

/// Who an idempotent producer is, and what it is told in answer to its attach: that, and where it stands. `None`: it is
/// none.
fn begin_producer(attach: &Attach, hub: &Hub, partition: Option<u32>) -> Result<Option<(i64, Map)>, Refusal> {
    if !attach.desired_capabilities.iter().any(|wanted| **wanted == *IDEMPOTENT) {
        return Ok(None);
    }
    let Some(partition) = partition else {
        let text = "An idempotent producer sends to a partition: events are numbered in each.";
        return Err(Refusal::new(ARGUMENT_ERROR, text));
    };
    let number = |name: &str| attach.property(name).and_then(Value::as_i64);
    let ProducerNumbers { id, epoch, sequence: claimed } =
        ProducerNumbers::new(number(PRODUCER_ID), number(PRODUCER_EPOCH), number(PRODUCER_SEQUENCE))?;
    let id = id.unwrap_or_else(|| fastrand::i64(1..PRODUCER_ID_END));
    let state = hub.begin_producer(partition, id, epoch).map_err(|error| match error {
        AppendError::ProducerStolen { id, epoch: current } => Refusal::producer_stolen(id, epoch, current),
        error => error.into(),
    })?;
    // What it says of itself comes first. If its last batch was stored and the answer was lost, it repeats that batch, under the
    // same numbers only if it is not told to go on from others.
    let last = claimed.or(state.last_sequence).unwrap_or(0);
    let ours = [
        (PRODUCER_EPOCH, Value::Short(state.epoch)),
        (PRODUCER_ID, Value::Long(id)),
        (PRODUCER_SEQUENCE, Value::Int(last)),
    ];
    let mut properties = attach.properties.clone();
    properties.retain(|(key, _)| !ours.iter().any(|(name, _)| key.as_str() == Some(name)));
    properties.extend(ours.map(|(name, value)| (Value::Symbol(name.into()), value)));
    Ok(Some((id, properties)))
}

/// An answer with the termini that the client named. Neither is missing: some clients take that for a refusal. Of the
/// filters those stay that are in force.
fn answer_to(attach: &Attach) -> Attach {
    let mut answer = attach.answer();
    let source = answer.source.get_or_insert_with(Source::default);
    if let Value::Map(filters) = &mut source.filter {
        filters.retain(|(name, filter)| is_selector(name, filter));
    }
    answer.target.get_or_insert_with(|| Target::Node(Box::default()));
    answer
}
