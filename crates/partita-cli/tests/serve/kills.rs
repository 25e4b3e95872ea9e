//! Kills with the real signal, under load, over the wire: what was accepted is there, once, and nothing is missing between.

use std::collections::HashMap;
use std::io;

use bytes::Bytes;
use partita_amqp::connection::{Connection, Event, LinkId, Options, Outgoing, SendError};
use partita_amqp::driver::{Driver, now};
use partita_amqp::message::{self, Message};
use partita_amqp::performative::{Attach, DeliveryState};
use partita_amqp::sasl;
use partita_core::model::{Body, Value};
use tokio::net::TcpStream;

use crate::support::{Hub, PATIENCE};

const PARTITIONS: usize = 4;
/// The message format of a batch: a data section per event, each an encoded message.
const BATCH: u32 = 0x8001_3700;
const BATCH_EVENTS: u64 = 20;
/// How many batches are accepted in a round at least, so that the kill comes under load.
const ROUND_BATCHES_MIN: usize = 20;

/// What became of the batches: each is known by its number.
#[derive(Default)]
struct Ledger {
    next: u64,
    accepted: Vec<u64>,
}

async fn connect(hub: &Hub) -> io::Result<Driver<TcpStream>> {
    let stream = TcpStream::connect(("127.0.0.1", hub.port("amqp_port"))).await?;
    let login = sasl::Client::plain("RootManageSharedAccessKey", "SAS_KEY_VALUE");
    Ok(Driver::new(stream, Connection::connect(Options::new("killer"), login, now())))
}

fn encoded(body: Body) -> Bytes {
    let mut out = Vec::new();
    message::encode(&Message::new(body), &mut out).expect("encodes");
    out.into()
}

fn batch(number: u64) -> Bytes {
    let event = |at| encoded(Body::Data(Bytes::from(format!("{number}/{at}"))));
    encoded(Body::DataSections((0..BATCH_EVENTS).map(event).collect()))
}

/// Sends batches for ever; ends with the connection, which is killed when enough were accepted.
async fn send(hub: &Hub, ledger: &mut Ledger, kill_after: usize) -> io::Result<()> {
    let mut client = connect(hub).await?;
    let session = client.connection().begin().expect("a session");
    let link = client.connection().attach(session, Attach::sender("sender", "eh1")).expect("a link");
    let mut under_way: HashMap<u32, u64> = HashMap::new();
    let mut accepted = 0;
    while let Some(event) = client.event().await? {
        match event {
            Event::Outcome { ids, state, .. } => {
                assert_eq!(state, Some(DeliveryState::Accepted));
                for id in ids.iter() {
                    ledger.accepted.push(under_way.remove(&id).expect("one of ours"));
                    accepted += 1;
                }
                if accepted >= kill_after {
                    hub.signal(rustix::process::Signal::KILL);
                }
            }
            Event::Detached { error, .. } | Event::Closed { error, .. } => {
                panic!("the hub refused: {error:?}")
            }
            _ => {}
        }
        loop {
            let message = Outgoing { format: BATCH, ..Outgoing::unsettled(ledger.next) };
            match client.connection().send(link, message, batch(ledger.next)) {
                Ok(id) => under_way.insert(id, ledger.next),
                Err(SendError::Credit | SendError::Window | SendError::Detached) => break,
                Err(error) => panic!("{error}"),
            };
            ledger.next += 1;
        }
    }
    Ok(())
}

/// All events of all partitions: sequence numbers and texts, in order.
async fn read_all(hub: &Hub) -> Vec<Vec<(i64, String)>> {
    let mut client = connect(hub).await.expect("the hub is there");
    let session = client.connection().begin().expect("a session");
    let links: Vec<LinkId> = (0..PARTITIONS)
        .map(|partition| {
            let address = format!("eh1/ConsumerGroups/$Default/Partitions/{partition}");
            client.connection().attach(session, Attach::receiver(address.clone(), &address)).expect("a link")
        })
        .collect();
    let mut found = vec![Vec::new(); PARTITIONS];
    let mut left = PARTITIONS;
    while left > 0 {
        match client.event().await.expect("reads").expect("the connection stays") {
            Event::Attached { link, .. } => client.connection().set_credit(link, 1_000_000, true),
            Event::Delivery(delivery) => {
                let at = links.iter().position(|link| *link == delivery.link).expect("one of ours");
                let message = Message::decode(&delivery.payload).expect("a message");
                let is_sequence = |(key, _): &&(Value, Value)| key.as_str() == Some("x-opt-sequence-number");
                let annotations = message.message_annotations.expect("annotations");
                let Some((_, Value::Long(sequence))) = annotations.iter().find(is_sequence) else {
                    panic!("no sequence number in {annotations:?}");
                };
                let Body::Data(text) = message.body else { panic!("{:?}", message.body) };
                found[at].push((*sequence, String::from_utf8(text.to_vec()).expect("text")));
            }
            Event::Drained(_) => left -= 1,
            Event::Detached { error, .. } | Event::Closed { error, .. } => {
                panic!("the hub refused: {error:?}")
            }
            _ => {}
        }
    }
    found
}

fn check(found: &[Vec<(i64, String)>], ledger: &Ledger) {
    let mut times: HashMap<&str, usize> = HashMap::new();
    for (partition, events) in found.iter().enumerate() {
        for (at, (sequence, text)) in events.iter().enumerate() {
            assert_eq!(*sequence, at as i64, "a hole in partition {partition}");
            *times.entry(text).or_default() += 1;
        }
    }
    if let Some((text, count)) = times.iter().find(|(_, count)| **count != 1) {
        panic!("event {text} is there {count} times");
    }
    for number in &ledger.accepted {
        for at in 0..BATCH_EVENTS {
            let text = format!("{number}/{at}");
            assert!(times.contains_key(&*text), "accepted event {text} is missing");
        }
    }
}

#[tokio::test]
async fn what_was_accepted_survives_kills_under_load_once_and_without_holes() {
    let long = std::env::var_os("PARTITA_LONG").is_some_and(|long| long == "1");
    let rounds = if long { 50 } else { 6 };
    let mut dir = tempfile::tempdir().expect("a directory");
    let mut ledger = Ledger::default();
    for round in 0..rounds {
        let mut hub = Hub::start_in(dir, &["--hub", "eh1:4"]);
        let kill_after = ROUND_BATCHES_MIN + fastrand::usize(..200);
        // However the connection ends, the hub is gone after that.
        let sent = tokio::time::timeout(PATIENCE, send(&hub, &mut ledger, kill_after)).await;
        let _ = sent.unwrap_or_else(|_| panic!("round {round}: the hub did not accept"));
        hub.wait();
        dir = hub.leave();
    }
    let hub = Hub::start_in(dir, &["--hub", "eh1:4"]);
    let found = tokio::time::timeout(PATIENCE, read_all(&hub)).await.expect("all is read");
    check(&found, &ledger);
    let events: usize = found.iter().map(Vec::len).sum();
    let accepted = ledger.accepted.len() as u64 * BATCH_EVENTS;
    // `./test` shows the line; what a print macro says, a test that passes keeps to itself.
    let line = format!(
        "counted: {rounds} kills: {accepted} events accepted, {events} found, each once, without holes\n"
    );
    io::Write::write_all(&mut io::stderr(), line.as_bytes()).expect("stderr");
}
