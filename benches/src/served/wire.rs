//! A client of the hub on partita-amqp's own machine: sends with answers, and drains.

use std::time::{Duration, Instant};

use bytes::Bytes;
use partita::Timestamp;
use partita::model::{Body, Value};
use partita_amqp::connection::{Connection, Event, LinkId, Options, Outgoing, SessionId};
use partita_amqp::driver::{Driver, now};
use partita_amqp::message::{self, Message};
use partita_amqp::performative::{Attach, DeliveryState};
use partita_amqp::sasl;
use partita_hub::service::auth::{Key, WELL_KNOWN_KEY, WELL_KNOWN_NAME, sign};
use partita_hub::service::ingest::FORMAT_BATCH;
use tokio::net::TcpStream;

use super::hub::{HUB, PARTITIONS};
use crate::stats::Sample;

pub(crate) const EVENT_BYTES: usize = 256;
pub(crate) const BATCH_EVENTS: usize = 100;

/// What a drain lets each partition send ahead.
pub(super) const CREDIT: u32 = 5_000;

/// What a sender has unwritten at most.
const OUTBOX_BYTES_MAX: usize = 256 << 10;

/// How often a sender that keeps a pace looks whether it is time.
const PACE_PAUSE: Duration = Duration::from_micros(200);

/// A thread's own runtime.
pub(crate) fn block_on<T>(work: impl Future<Output = T>) -> T {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    runtime.expect("a runtime for the client").block_on(work)
}

/// A connection that has put its token.
pub(crate) struct Client {
    wire: Driver<TcpStream>,
}

/// What became of batches.
pub(crate) struct Sent {
    pub(crate) events_per_second: f64,
    /// Milliseconds from when a batch was due until it was accepted.
    pub(crate) took_ms: Sample,
}

impl Client {
    pub(crate) async fn connect(port: u16) -> Self {
        let stream = TcpStream::connect(("127.0.0.1", port)).await.expect("the hub listens");
        stream.set_nodelay(true).expect("a socket");
        let connection = Connection::connect(Options::new("bench"), sasl::Client::Anonymous, now());
        let mut client = Self { wire: Driver::new(stream, connection) };
        let session = client.begin();
        let requests = client.attach(session, Attach::sender("cbs-s", "$cbs"));
        let replies = client.attach(session, Attach::receiver("cbs-r", "$cbs"));
        client.wire.connection().set_credit(replies, 10, false);
        loop {
            match client.event().await {
                Event::Credit { link, .. } if link == requests => {
                    let connection = client.wire.connection();
                    let sent = connection.send(link, Outgoing::settled(0), token_request());
                    sent.expect("there is credit");
                }
                Event::Delivery(_) => return client,
                _ => {}
            }
        }
    }

    async fn event(&mut self) -> Event {
        self.wire.event().await.expect("a connection").expect("the hub does not hang up")
    }

    fn begin(&mut self) -> SessionId {
        self.wire.connection().begin().expect("there is room for a session")
    }

    fn attach(&mut self, session: SessionId, attach: Attach) -> LinkId {
        self.wire.connection().attach(session, attach).expect("there is room for a link")
    }

    /// Sends batches to all partitions in turn, as fast as they are taken or at a pace in events per second, and waits
    /// until all are accepted.
    pub(crate) async fn send(&mut self, batches: usize, pace: Option<f64>) -> Sent {
        // Of one session, so that the numbers of deliveries tell their order.
        let session = self.begin();
        let senders: Vec<LinkId> = (0..PARTITIONS)
            .map(|n| self.attach(session, Attach::sender(format!("s{n}"), &format!("{HUB}/Partitions/{n}"))))
            .collect();
        // All links are there before time counts.
        while senders.iter().any(|link| self.wire.connection().sendable(*link) == 0) {
            self.event().await;
        }
        let payload = batch();
        let start = Instant::now();
        let due_at = |n: usize| match pace {
            Some(pace) => start + Duration::from_secs_f64((n * BATCH_EVENTS) as f64 / pace),
            None => Instant::now(),
        };
        let mut due: Vec<Instant> = Vec::with_capacity(batches);
        let mut took_ms = Vec::with_capacity(batches);
        let mut first = None;
        while took_ms.len() < batches {
            let connection = self.wire.connection();
            while due.len() < batches && connection.outbox().len() < OUTBOX_BYTES_MAX {
                let (link, at) = (senders[due.len() % senders.len()], due_at(due.len()));
                if at > Instant::now() || connection.sendable(link) == 0 {
                    break;
                }
                let message =
                    Outgoing { tag: (due.len() as u64).into(), format: FORMAT_BATCH, settled: false };
                let id = connection.send(link, message, payload.clone()).expect("there is credit");
                first.get_or_insert(id);
                due.push(at);
            }
            match (connection.poll(), first) {
                (Some(Event::Outcome { ids, state, .. }), Some(first)) => {
                    assert_eq!(state, Some(DeliveryState::Accepted), "a batch was not accepted");
                    let sent = ids.iter().map(|id| due[id.wrapping_sub(first) as usize]);
                    took_ms.extend(sent.map(|due| due.elapsed().as_secs_f64() * 1e3));
                }
                (Some(_), _) => {}
                (None, _) => {
                    let pause = if pace.is_some() { PACE_PAUSE } else { Duration::from_secs(60) };
                    let _ = tokio::time::timeout(pause, self.wire.turn()).await;
                }
            }
        }
        let seconds = start.elapsed().as_secs_f64();
        self.wire.connection().end(session, None);
        Sent { events_per_second: (batches * BATCH_EVENTS) as f64 / seconds, took_ms: Sample::new(took_ms) }
    }

    /// Readers of all partitions from their beginnings.
    fn readers(&mut self, credit: u32) -> SessionId {
        let session = self.begin();
        for partition in 0..PARTITIONS {
            let address = format!("{HUB}/ConsumerGroups/$Default/Partitions/{partition}");
            let link = self.attach(session, Attach::receiver(format!("r{partition}"), &address));
            self.wire.connection().set_credit(link, credit, false);
        }
        session
    }

    /// Reads so many events from the beginnings of all partitions; events per second.
    pub(crate) async fn drain(&mut self, events: usize) -> f64 {
        let start = Instant::now();
        let session = self.readers(CREDIT);
        let mut count = 0;
        while count < events {
            self.wire.turn().await.expect("a connection");
            let connection = self.wire.connection();
            while let Some(event) = connection.poll() {
                if let Event::Delivery(delivery) = event {
                    assert!(delivery.payload.len() > EVENT_BYTES, "an event came in parts");
                    count += 1;
                    connection.top_up(delivery.link, CREDIT);
                }
            }
        }
        let seconds = start.elapsed().as_secs_f64();
        self.wire.connection().end(session, None);
        count as f64 / seconds
    }

    /// Asks for all there is, and says nothing more: what it asked for is written, and nothing is read.
    pub(crate) async fn stall(&mut self) {
        self.readers(1_000_000);
        while !self.wire.connection().outbox().is_empty() {
            self.wire.turn().await.expect("a connection");
        }
    }

    /// Attaches a sender, and sends nothing.
    pub(crate) async fn sit_down(&mut self) {
        let session = self.begin();
        let link = self.attach(session, Attach::sender("idle", HUB));
        while self.wire.connection().sendable(link) == 0 {
            self.event().await;
        }
    }
}

/// A token of the well-known key for the hub, as clients put it.
fn token_request() -> Bytes {
    let end = Timestamp(Timestamp::now().millis() + 3_600_000);
    let audience = format!("sb://localhost/{HUB}");
    let token = sign(&audience, WELL_KNOWN_NAME, &Key::new(WELL_KNOWN_KEY), end);
    let text = |key: &str, value: &str| (Value::from(key), Value::from(value));
    let properties = vec![
        text("operation", "put-token"),
        text("type", "servicebus.windows.net:sastoken"),
        text("name", &audience),
    ];
    encoded(&Message { application_properties: Some(properties), ..Message::new(Value::from(token)) })
}

/// A message of as many events as SDKs would put into one.
fn batch() -> Bytes {
    let event = encoded(&Message::new(Body::Data(vec![b'x'; EVENT_BYTES].into())));
    encoded(&Message::new(Body::DataSections(vec![event; BATCH_EVENTS])))
}

fn encoded(message: &Message) -> Bytes {
    let mut bytes = Vec::new();
    message::encode(message, &mut bytes).expect("it has an encoding");
    bytes.into()
}
