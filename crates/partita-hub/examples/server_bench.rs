//! How fast a hub on the network takes and gives events, over one connection each way:
//! `server_bench PORT HUB PARTITIONS EVENTS [BATCH]` beside the example `serve`.

use std::time::{Duration, Instant};

use bytes::Bytes;
use hdrhistogram::Histogram;
use partita_amqp::connection::{Connection, Event, LinkId, Options, Outgoing};
use partita_amqp::driver::{Driver, now};
use partita_amqp::message::{self, Message};
use partita_amqp::performative::{Attach, DeliveryState};
use partita_amqp::sasl;
use partita_core::model::{Body, Timestamp, Value};
use partita_hub::service::auth::{Key, WELL_KNOWN_KEY, WELL_KNOWN_NAME, sign};
use partita_hub::service::ingest::FORMAT_BATCH;
use tokio::net::TcpStream;

type Result<T> = std::result::Result<T, Box<dyn std::error::Error>>;
type Wire = Driver<TcpStream>;

const EVENT_BYTES: usize = 256;
const CREDIT: u32 = 20_000;

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<()> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let [port, hub, partitions, events, ..] = &args[..] else { return Err("see the first lines".into()) };
    let (port, partitions, events) = (port.parse()?, partitions.parse()?, events.parse()?);
    let batch = args.get(4).map_or(Ok(100), |batch| batch.parse())?;
    let rate: Option<f64> = args.get(5).map(|rate| rate.parse()).transpose()?;
    send(port, hub, partitions, events, batch, rate).await?;
    drain(port, hub, partitions, events).await
}

async fn connect(port: u16, hub: &str) -> Result<Wire> {
    let stream = TcpStream::connect(("127.0.0.1", port)).await?;
    stream.set_nodelay(true)?;
    let connection = Connection::connect(Options::new("bench"), sasl::Client::Anonymous, now());
    let mut wire = Driver::new(stream, connection);
    let session = wire.connection().begin().ok_or("no session")?;
    let requests = wire.connection().attach(session, Attach::sender("cbs-s", "$cbs")).ok_or("no link")?;
    let replies = wire.connection().attach(session, Attach::receiver("cbs-r", "$cbs")).ok_or("no link")?;
    wire.connection().set_credit(replies, 10, false);
    let end = Timestamp(Timestamp::now().millis() + 3_600_000);
    let audience = format!("sb://localhost/{hub}");
    let token = sign(&audience, WELL_KNOWN_NAME, &Key::new(WELL_KNOWN_KEY), end);
    let text = |key: &str, value: &str| (Value::from(key), Value::from(value));
    let request = Message {
        application_properties: Some(vec![
            text("operation", "put-token"),
            text("type", "servicebus.windows.net:sastoken"),
            text("name", &audience),
        ]),
        ..Message::new(Value::from(token))
    };
    loop {
        match wire.event().await?.ok_or("the connection ended")? {
            Event::Credit { link, .. } if link == requests => {
                let mut bytes = Vec::new();
                message::encode(&request, &mut bytes)?;
                wire.connection().send(link, Outgoing::settled(0), bytes.into())?;
            }
            Event::Delivery(_) => return Ok(wire),
            _ => {}
        }
    }
}

async fn send(
    port: u16,
    hub: &str,
    partitions: u32,
    events: usize,
    batch: usize,
    rate: Option<f64>,
) -> Result<()> {
    let mut wire = connect(port, hub).await?;
    let session = wire.connection().begin().ok_or("no session")?;
    let mut links = Vec::new();
    for partition in 0..partitions {
        let attach = Attach::sender(format!("s{partition}"), &format!("{hub}/Partitions/{partition}"));
        links.push(wire.connection().attach(session, attach).ok_or("no link")?);
    }
    let mut event = Vec::new();
    message::encode(&Message::new(Body::Data(vec![b'x'; EVENT_BYTES].into())), &mut event)?;
    let mut payload = Vec::new();
    let sections = vec![Bytes::from(event); batch];
    message::encode(&Message::new(Body::DataSections(sections)), &mut payload)?;
    let payload = Bytes::from(payload);

    let batches = events / batch;
    let (mut sent, mut accepted) = (0_usize, 0_usize);
    let mut sent_at = vec![Instant::now(); batches];
    let mut latency = Histogram::<u64>::new(3)?;
    // All links are attached before time counts.
    while links.iter().any(|link| wire.connection().sendable(*link) == 0) {
        wire.event().await?.ok_or("the connection ended")?;
    }
    let start = Instant::now();
    while accepted < batches {
        let due = match rate {
            Some(rate) => ((start.elapsed().as_secs_f64() * rate / batch as f64) as usize).min(batches),
            None => batches,
        };
        while sent < due && wire.connection().outbox().len() < 256 << 10 {
            let link: LinkId = links[sent % links.len()];
            let message = Outgoing { tag: (sent as u64).into(), format: FORMAT_BATCH, settled: false };
            if wire.connection().sendable(link) == 0
                || wire.connection().send(link, message, payload.clone()).is_err()
            {
                break;
            }
            sent_at[sent] = match rate {
                // Counted from when it should have gone.
                Some(rate) => start + Duration::from_secs_f64((sent * batch) as f64 / rate),
                None => Instant::now(),
            };
            sent += 1;
        }
        let pause = if rate.is_some() { Duration::from_micros(200) } else { Duration::from_secs(60) };
        let event = match wire.connection().poll() {
            Some(event) => event,
            None => {
                let _ = tokio::time::timeout(pause, wire.turn()).await;
                continue;
            }
        };
        if let Event::Outcome { ids, state, .. } = event {
            if state != Some(DeliveryState::Accepted) {
                return Err(format!("not accepted: {state:?}").into());
            }
            for id in ids.iter() {
                accepted += 1;
                latency.record(sent_at[id as usize].elapsed().as_micros() as u64)?;
            }
        }
    }
    let time = start.elapsed().as_secs_f64();
    report("sent", batches * batch, time);
    let at = |q| latency.value_at_quantile(q) as f64 / 1e3;
    print(&format!(
        "  latency of a batch: p50 {:.2} ms, p99 {:.2} ms, max {:.2} ms",
        at(0.5),
        at(0.99),
        at(1.0)
    ));
    Ok(())
}

async fn drain(port: u16, hub: &str, partitions: u32, events: usize) -> Result<()> {
    let mut wire = connect(port, hub).await?;
    let session = wire.connection().begin().ok_or("no session")?;
    let start = Instant::now();
    for partition in 0..partitions {
        let address = format!("{hub}/ConsumerGroups/$Default/Partitions/{partition}");
        let link = wire.connection().attach(session, Attach::receiver(format!("r{partition}"), &address));
        wire.connection().set_credit(link.ok_or("no link")?, CREDIT, false);
    }
    let (mut count, mut bytes) = (0, 0);
    while count < events {
        if let Event::Delivery(delivery) = wire.event().await?.ok_or("the connection ended")? {
            count += 1;
            bytes += delivery.payload.len();
            wire.connection().top_up(delivery.link, CREDIT);
        }
    }
    report("drained", count, start.elapsed().as_secs_f64());
    print(&format!("  {:.0} bytes per event", bytes as f64 / count as f64));
    Ok(())
}

fn report(what: &str, events: usize, seconds: f64) {
    print(&format!("{what} {events} events in {seconds:.2} s: {:.0}/s", events as f64 / seconds));
}

#[allow(clippy::print_stdout)] // It is what a benchmark is for.
fn print(text: &str) {
    println!("{text}");
}
