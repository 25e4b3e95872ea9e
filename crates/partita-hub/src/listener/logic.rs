//! What a connection does about what happens: one owner of its links, tokens and batches under way. Nothing here waits.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::fmt;
use std::io;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::Context;
use std::time::{Duration, Instant};

use bytes::BytesMut;
use partita_amqp::connection::{Connection, DeliveryRange, Event, LinkId, Options, Outbox, SessionId};
use partita_amqp::performative::{self, DeliveryState};
use partita_amqp::sasl;
use partita_core::model::Timestamp;

use super::habits;
use super::mailbox::{Bell, Mailbox};
use super::node::{Replies, Requests};
use super::receiver_link::{Finding, ReceiverLink, Turn};
use super::sender_link::{Append, SenderLink, Stuck};
use super::strangers::Stake;
use super::trust;
use crate::fault::{Moment, Spot, Strike};
use crate::log::{Ack, AckSink};
use crate::server::{LinkInfo, LinkRole, Seat, ServerState};
use crate::service::address::Address;
use crate::service::auth::{Grant, Right, Tokens};
use crate::service::condition::{CONNECTION_FORCED, Refusal};

/// Readers stop adding to what is to be written beyond this.
const OUTBOX_BYTES_MAX: usize = 1 << 20;

/// Beyond this nothing is read from the client either: it asks, and does not listen.
pub(super) const OUTBOX_BYTES_LIMIT: usize = 4 << 20;

/// How much of a client's name is kept.
const CONTAINER_ID_CHARS_MAX: usize = 256;

/// How often senders look whether their hub is still there: who sends is told at once.
const HUB_CHECK: Duration = Duration::from_secs(1);

/// The calendar is looked at again after this, whatever it said: it can be set.
const EXPIRY_CHECK_MS_MAX: i64 = 60_000;

/// How long a client has to answer our close.
const CLOSE_TIME_MAX: Duration = Duration::from_secs(5);

/// How a connection ended.
#[derive(Debug)]
pub(super) enum End {
    /// By a close of either side; what is in the outbox is still to be written.
    Closed,
    /// The client went away without a close.
    Gone,
    /// The stream failed.
    Lost(io::Error),
    /// On purpose, without a word.
    Cut,
}

impl fmt::Display for End {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Closed => f.write_str("closed"),
            Self::Gone => f.write_str("the client went away"),
            Self::Lost(error) => write!(f, "{error}"),
            Self::Cut => f.write_str("cut"),
        }
    }
}

/// A link that is attached, or about to be.
pub(super) struct Link {
    pub(super) session: SessionId,
    pub(super) pass: Pass,
    pub(super) kind: LinkKind,
}

/// Where a link goes, and what it is allowed to go there by.
pub(super) struct Pass {
    pub(super) address: Address,
    /// The partition that it goes to, if it goes to one.
    pub(super) partition: Option<u32>,
    /// What it needs a token for, and until when it has one.
    pub(super) right: Option<Right>,
    pub(super) until: Option<Timestamp>,
}

pub(super) enum LinkKind {
    Sender(SenderLink),
    /// A reader whose place is being looked for.
    Finding(Box<Finding>),
    Receiver(Box<ReceiverLink>),
    Requests(Requests),
    Replies(Replies),
}

impl Link {
    fn role(&self) -> LinkRole {
        match self.kind {
            LinkKind::Sender(_) | LinkKind::Requests(_) => LinkRole::Sender,
            LinkKind::Finding(_) | LinkKind::Receiver(_) | LinkKind::Replies(_) => LinkRole::Receiver,
        }
    }

    pub(super) fn spot(&self, moment: Moment) -> Spot<'_> {
        Spot {
            hub: self.pass.address.hub().unwrap_or_default(),
            partition: self.pass.partition,
            sends: self.role() == LinkRole::Sender,
            moment,
        }
    }
}

/// What is done at a later time, because a fault says so.
enum Later {
    Settle(LinkId, DeliveryRange, DeliveryState),
    Turn(LinkId),
}

pub(super) struct ConnectionLogic {
    seat: Seat,
    pub(super) conn: Connection,
    pub(super) mailbox: Arc<Mailbox>,
    pub(super) sink: Arc<dyn AckSink>,
    pub(super) tokens: Tokens,
    /// What a name and key of SASL grant, until the connection is open.
    login: Arc<Mutex<Vec<Grant>>>,
    pub(super) links: HashMap<LinkId, Link>,
    /// Readers that have something to do, each once.
    runnable: VecDeque<LinkId>,
    pub(super) appends: HashMap<u64, Append>,
    pub(super) next_token: u64,
    pub(super) stuck: Option<Stuck>,
    later: BTreeMap<(Instant, u64), Later>,
    later_count: u64,
    /// How much later than at once the client is to be told anything.
    pub(super) distance: Duration,
    /// Whether it hears of a refusal only if that names the termini.
    pub(super) wants_termini: bool,
    /// When the next token that a link needs is over, by the calendar and by the clock.
    expiry: Option<(Timestamp, Instant)>,
    hub_check: Option<Instant>,
    /// Until when the connection may take to end.
    ending: Option<Instant>,
    end: Option<End>,
    acks: Vec<Ack>,
    rung: Vec<Arc<Bell>>,
    /// What it holds as long as it has no token, and until when it must have one.
    pub(super) stake: Option<Stake>,
    pub(super) token_until: Option<Instant>,
}

impl ConnectionLogic {
    pub(super) fn new(seat: Seat, now: Instant) -> Self {
        let options = &seat.shared.options;
        let login: Arc<Mutex<Vec<Grant>>> = Arc::default();
        let sasl = {
            let (shared, login) = (seat.shared.clone(), login.clone());
            sasl::Server::default().check_plain(move |given| {
                let grants = shared.options.auth.verify_key(given.user, given.password);
                *login.lock().unwrap_or_else(PoisonError::into_inner) = grants;
                // A wrong key is not refused here: clients that know only tokens say anything.
                true
            })
        };
        let is_open = options.auth.is_open();
        let limits = if is_open { trust::limits(options) } else { trust::strangers_limits(options) };
        let machine = Options {
            idle_timeout: options.idle_timeout,
            handshake_timeout: options.handshake_timeout,
            close_timeout: CLOSE_TIME_MAX,
            limits,
            ..Options::new(&*options.container_id)
        };
        let tokens = if is_open { Tokens::all() } else { Tokens::default() };
        seat.trusted.store(is_open, Ordering::Release);
        let stake = (!is_open).then(|| Stake::new(seat.shared.strangers.clone(), seat.id));
        let token_until = (!is_open).then(|| now + options.token_timeout);
        let mailbox = Arc::new(Mailbox::default());
        Self {
            conn: Connection::accept(machine, sasl, now),
            sink: mailbox.clone(),
            mailbox,
            tokens,
            login,
            links: HashMap::new(),
            runnable: VecDeque::new(),
            appends: HashMap::new(),
            next_token: 0,
            stuck: None,
            later: BTreeMap::new(),
            later_count: 0,
            distance: Duration::ZERO,
            wants_termini: false,
            expiry: None,
            hub_check: None,
            ending: None,
            end: None,
            acks: Vec::new(),
            rung: Vec::new(),
            stake,
            token_until,
            seat,
        }
    }

    pub(super) fn id(&self) -> u64 {
        self.seat.id
    }

    pub(super) fn seat(&self) -> &Seat {
        &self.seat
    }

    pub(super) fn shared(&self) -> &Arc<ServerState> {
        &self.seat.shared
    }

    pub(super) fn outbox(&mut self) -> &mut Outbox {
        self.conn.outbox()
    }

    /// The task to be woken when something comes from elsewhere.
    pub(super) fn register(&self, cx: &Context<'_>) {
        self.mailbox.register(cx);
        if let Some(stake) = &self.stake {
            stake.register(cx);
        }
    }

    /// Whether more of what the client says can be taken now.
    pub(super) fn listens(&mut self) -> bool {
        self.stuck.is_none() && self.conn.outbox().len() < OUTBOX_BYTES_LIMIT
    }

    /// Takes what the client said; true if it did not take all that it could read.
    pub(super) fn receive(&mut self, input: &mut BytesMut) -> bool {
        self.conn.receive(input)
    }

    /// How the connection ended, once it has.
    pub(super) fn end(&mut self) -> Option<End> {
        self.end.take()
    }

    pub(super) fn cut(&mut self) {
        self.finish(End::Cut);
    }

    pub(super) fn finish(&mut self, end: End) {
        self.end = Some(end);
    }

    /// Does what is to be done; true if that was anything.
    pub(super) fn work(&mut self, now: Instant) -> bool {
        let mut worked = self.take_mail(now);
        worked |= self.retry_stuck(now);
        while self.stuck.is_none() && self.end.is_none() {
            let Some(event) = self.conn.poll() else { break };
            self.on_event(event, now);
            worked = true;
        }
        worked |= self.run_readers(now);
        self.go_on_ending(now);
        worked
    }

    fn take_mail(&mut self, now: Instant) -> bool {
        let (mut acks, mut rung) = (std::mem::take(&mut self.acks), std::mem::take(&mut self.rung));
        self.mailbox.take(&mut acks, &mut rung);
        let worked = !(acks.is_empty() && rung.is_empty());
        self.on_acks(&mut acks, now);
        for bell in rung.drain(..) {
            self.wake_reader(bell.link, now);
        }
        (self.acks, self.rung) = (acks, rung);
        worked
    }

    fn on_event(&mut self, event: Event, now: Instant) {
        match event {
            Event::Opened(open) => {
                // Shown, and kept as long as the connection: no more of it than anybody reads.
                let name = open.container_id.chars().take(CONTAINER_ID_CHARS_MAX).collect();
                self.seat.update(|info| info.container_id = name);
                self.distance = habits::distance(&open);
                self.wants_termini = habits::wants_termini(&open);
                let grants = std::mem::take(&mut *self.login.lock().unwrap_or_else(PoisonError::into_inner));
                if !grants.is_empty() {
                    self.tokens = Tokens::standing(grants);
                }
            }
            Event::Attaching { link, attach } => self.on_attach(link, *attach, now),
            Event::Credit { link, .. } => self.wake_reader(link, now),
            Event::Window(session) => {
                let links = self.links.iter().filter(|(_, link)| link.session == session);
                let links: Vec<LinkId> = links.map(|(id, _)| *id).collect();
                links.into_iter().for_each(|link| self.wake_reader(link, now));
            }
            Event::Delivery(delivery) => self.on_delivery(&delivery, now),
            Event::TooLarge { link, id, settled, size } => self.on_too_large(link, id, settled, size, now),
            Event::Detached { link, error, .. } => {
                if let Some(error) = error {
                    tracing::debug!(connection = self.seat.id, %error, "client detached a link");
                }
                self.remove(link);
            }
            Event::Ended { session, error } => {
                if let Some(error) = error {
                    tracing::debug!(connection = self.seat.id, %error, "session ended");
                }
                let gone = self.links.iter().filter(|(_, link)| link.session == session);
                let gone: Vec<LinkId> = gone.map(|(id, _)| *id).collect();
                gone.into_iter().for_each(|link| self.remove(link));
            }
            Event::Closed { error, by_peer } => {
                if let Some(error) = error {
                    tracing::debug!(connection = self.seat.id, %error, by_peer, "connection closes");
                }
                self.links.clear();
                self.end = Some(End::Closed);
            }
            _ => {}
        }
    }

    // ---- links ------------------------------------------------------------------------------------------------

    pub(super) fn insert(&mut self, id: LinkId, link: Link) {
        self.expect_expiry(link.pass.until, Timestamp::now());
        if matches!(link.kind, LinkKind::Sender(_)) && self.hub_check.is_none() {
            self.hub_check = Some(Instant::now() + HUB_CHECK);
        }
        let info = LinkInfo { address: link.pass.address.to_string(), role: link.role() };
        self.seat.update(|seat| seat.links.push(info));
        self.links.insert(id, link);
    }

    pub(super) fn remove(&mut self, id: LinkId) {
        if let Some(link) = self.links.remove(&id) {
            let info = LinkInfo { address: link.pass.address.to_string(), role: link.role() };
            self.seat.update(|seat| {
                if let Some(at) = seat.links.iter().position(|held| *held == info) {
                    seat.links.swap_remove(at);
                }
            });
        }
    }

    /// What the client calls itself.
    pub(super) fn client(&self) -> String {
        self.seat.client().1
    }

    /// Says in the log what was refused, if whoever runs the hub should know.
    pub(super) fn warn_refused(&self, condition: &str, description: &str) {
        self.seat.warn_refused(condition, description);
    }

    /// Ends a link from here.
    pub(super) fn detach(&mut self, id: LinkId, refusal: &Refusal) {
        if let Some(link) = self.links.get(&id) {
            let address = &link.pass.address;
            tracing::debug!(connection = self.seat.id, %address, %refusal, "link is detached");
        }
        self.conn.detach(id, Some(error_of(refusal)));
        self.remove(id);
    }

    // ---- readers ----------------------------------------------------------------------------------------------

    pub(super) fn wake_reader(&mut self, id: LinkId, now: Instant) {
        match self.links.get_mut(&id).map(|link| &mut link.kind) {
            Some(LinkKind::Receiver(outlet)) if outlet.queued => {}
            Some(LinkKind::Receiver(outlet)) => {
                outlet.queued = true;
                self.runnable.push_back(id);
            }
            Some(LinkKind::Finding(_)) => self.on_found(id, now),
            Some(LinkKind::Replies(replies)) => replies.send(id, &mut self.conn),
            _ => {}
        }
    }

    /// Gives each reader its turn, in order, as long as there is room for what they say.
    fn run_readers(&mut self, now: Instant) -> bool {
        let mut worked = false;
        while self.conn.outbox().len() < OUTBOX_BYTES_MAX {
            let Some(id) = self.runnable.pop_front() else { break };
            let Some(link) = self.links.get_mut(&id) else { continue };
            let spot_parts = (link.pass.partition, link.pass.address.hub().unwrap_or_default());
            let LinkKind::Receiver(outlet) = &mut link.kind else { continue };
            let faults = &self.seat.shared.faults;
            let strike = || {
                let (partition, hub) = spot_parts;
                match faults.strike(&Spot { hub, partition, sends: false, moment: Moment::Answer }, now) {
                    Some(Strike::Delay(delay)) => Some(now + delay),
                    _ => None,
                }
            };
            outlet.queued = false;
            match outlet.turn(id, &mut self.conn, OUTBOX_BYTES_MAX, strike) {
                Turn::Done => {}
                Turn::More => {
                    outlet.queued = true;
                    self.runnable.push_back(id);
                }
                Turn::Wait(at) => self.put_off(at, Later::Turn(id)),
                Turn::Failed(refusal) => self.detach(id, &refusal),
            }
            worked = true;
        }
        worked
    }

    fn put_off(&mut self, at: Instant, what: Later) {
        self.later_count += 1;
        self.later.insert((at, self.later_count), what);
    }

    /// Says what became of deliveries, at once or later if a fault says so.
    pub(super) fn settle(&mut self, id: LinkId, ids: DeliveryRange, state: DeliveryState, now: Instant) {
        let Some(link) = self.links.get(&id) else { return };
        match self.seat.shared.faults.strike(&link.spot(Moment::Answer), now) {
            Some(Strike::Delay(delay)) => self.put_off(now + delay, Later::Settle(id, ids, state)),
            _ => self.conn.settle(id, ids, state),
        }
    }

    // ---- time -------------------------------------------------------------------------------------------------

    /// When [`ConnectionLogic::on_time`] is due.
    pub(super) fn deadline(&self) -> Option<Instant> {
        let expiry = self.expiry.map(|(_, at)| at);
        let later = self.later.first_key_value().map(|((at, _), _)| *at);
        let stuck = self.stuck.as_ref().map(|stuck| stuck.retry);
        [self.conn.deadline(), expiry, later, stuck, self.hub_check, self.ending, self.token_until]
            .into_iter()
            .flatten()
            .min()
    }

    /// Does what is due.
    pub(super) fn on_time(&mut self, now: Instant) {
        if self.conn.deadline().is_some_and(|at| at <= now) {
            self.conn.on_time(now);
        }
        while let Some(entry) = self.later.first_entry()
            && entry.key().0 <= now
        {
            match entry.remove() {
                Later::Settle(link, ids, state) => self.conn.settle(link, ids, state),
                Later::Turn(link) => self.wake_reader(link, now),
            }
        }
        if self.expiry.is_some_and(|(_, at)| at <= now) {
            self.check_tokens();
        }
        if self.hub_check.is_some_and(|at| at <= now) {
            self.check_hubs(now);
        }
    }

    fn expect_expiry(&mut self, until: Option<Timestamp>, now: Timestamp) {
        let Some(until) = until.filter(|until| self.expiry.is_none_or(|(known, _)| known > *until)) else {
            return;
        };
        let left = until.millis().saturating_sub(now.millis()).clamp(1, EXPIRY_CHECK_MS_MAX);
        self.expiry = Some((until, Instant::now() + Duration::from_millis(left.unsigned_abs())));
    }

    /// Detaches links whose tokens are over.
    fn check_tokens(&mut self) {
        let now = Timestamp::now();
        let (mut over, mut next) = (Vec::new(), None::<Timestamp>);
        for (id, link) in &mut self.links {
            let (Some(right), Some(until)) = (link.pass.right, link.pass.until) else { continue };
            if until <= now {
                match self.tokens.allow(&link.pass.address.to_string(), right, now) {
                    Ok(until) => link.pass.until = until,
                    Err(refusal) => over.push((*id, refusal)),
                }
            }
            let until = link.pass.until.filter(|until| *until > now);
            next = next.into_iter().chain(until).min();
        }
        self.expiry = None;
        self.expect_expiry(next, now);
        for (id, refusal) in over {
            let text = format!("The token of the link has expired. {}", refusal.description);
            self.detach(id, &Refusal { description: text, ..refusal });
        }
    }

    /// Detaches senders whose hub was deleted or disabled; readers hear of it themselves.
    fn check_hubs(&mut self, now: Instant) {
        let intakes = self.links.iter().filter_map(|(id, link)| match &link.kind {
            LinkKind::Sender(intake) => Some((*id, &intake.hub)),
            _ => None,
        });
        let (mut any, mut gone) = (false, Vec::new());
        for (id, hub) in intakes {
            any = true;
            if hub.is_deleted() {
                gone.push((id, Refusal::not_found(hub.name())));
            } else if hub.is_disabled() {
                gone.push((id, Refusal::disabled(hub.name())));
            }
        }
        self.hub_check = any.then(|| now + HUB_CHECK);
        for (id, refusal) in gone {
            self.detach(id, &refusal);
        }
    }

    // ---- faults and the end -----------------------------------------------------------------------------------

    /// A fault was added: it strikes links that are there.
    pub(super) fn look_at_faults(&mut self, now: Instant) {
        let hubs = self.links.iter().filter(|(_, link)| link.pass.address.hub().is_some());
        let faults = &self.seat.shared.faults;
        let struck =
            hubs.filter_map(|(id, link)| Some((*id, faults.strike(&link.spot(Moment::Attached), now)?)));
        // A connection that is cut is cut once.
        let mut strikes = Vec::new();
        for (id, strike) in struck {
            let cut = strike == Strike::Cut;
            strikes.push((id, strike));
            if cut {
                break;
            }
        }
        for (id, strike) in strikes {
            match strike {
                Strike::Refuse(refusal) => self.detach(id, &refusal),
                Strike::Cut => self.cut(),
                Strike::Delay(_) => {}
            }
        }
    }

    /// Begins the end: no more of anything, but what senders wait for.
    pub(super) fn shut_down(&mut self, until: Instant) {
        self.ending = Some(until);
    }

    /// Closes when nobody waits for an answer any more. The links end with the connection: an error on each of them would
    /// be the last word to some clients, which a closed connection is not.
    fn go_on_ending(&mut self, now: Instant) {
        let Some(until) = self.ending else { return };
        if (self.appends.is_empty() && self.later.is_empty()) || now >= until {
            self.ending = None;
            self.links.clear();
            let forced = Refusal::new(CONNECTION_FORCED, "The hub is shutting down.");
            self.conn.close(Some(error_of(&forced)));
        }
    }
}

/// A refusal as AMQP writes it.
pub(super) fn error_of(refusal: &Refusal) -> performative::Error {
    performative::Error::new(&refusal.condition, &*refusal.description)
}
