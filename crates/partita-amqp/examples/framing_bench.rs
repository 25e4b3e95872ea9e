//! How many transfers of 256 bytes go through the codec and through whole connections per second, on one core and
//! without a socket: `cargo run --release -p partita-amqp --example framing_bench`. Of many short runs the best counts:
//! what else the machine does is not the question.
#![allow(clippy::print_stdout)]

use std::time::{Duration, Instant};

use bytes::{Bytes, BytesMut};
use partita_amqp::connection::{Connection, Event, LinkId, Options, Outgoing};
use partita_amqp::performative::{Attach, DeliveryTag, Performative, Transfer};
use partita_amqp::{frame, sasl};

const PAYLOAD: [u8; 256] = [7; 256];
const BATCH: u64 = 512;
const RUNS: usize = 2_000;

fn main() {
    codec();
    connections();
}

/// The shortest time that a batch took.
struct Best(Duration);

impl Best {
    fn new() -> Self {
        Self(Duration::MAX)
    }

    fn run<T>(&mut self, run: impl FnOnce() -> T) -> T {
        let start = Instant::now();
        let result = run();
        self.0 = self.0.min(start.elapsed());
        result
    }
}

fn report(what: &str, took: Duration) {
    let per_frame = took.as_nanos() as f64 / BATCH as f64;
    println!("{what:<25} {per_frame:6.0} ns  {:6.2} million/s", 1_000.0 / per_frame);
}

/// Transfers alone.
fn codec() {
    let mut out = Vec::new();
    let write = |out: &mut Vec<u8>, number: u64| {
        let start = frame::begin(frame::FrameKind::Amqp, 1, out);
        let transfer = Transfer {
            delivery_id: Some(number as u32),
            delivery_tag: Some(DeliveryTag::from(number)),
            message_format: Some(0),
            settled: Some(true),
            ..Transfer::part(1)
        };
        Performative::from(transfer).encode(out).expect("a transfer has an encoding");
        out.extend_from_slice(&PAYLOAD);
        frame::finish(start, 0, out);
    };
    let mut best = Best::new();
    for _ in 0..RUNS {
        out.clear();
        best.run(|| (0..BATCH).for_each(|number| write(&mut out, number)));
    }
    report("transfer, written", best.0);

    let input = Bytes::from(out);
    let mut best = Best::new();
    for _ in 0..RUNS {
        let bytes = best.run(|| {
            let (mut rest, mut bytes) = (&input[..], 0);
            while let Ok(Some((frame, used))) = frame::decode(rest, 1 << 16) {
                let body = input.slice_ref(frame.body);
                let (performative, payload) = Performative::decode(&body).expect("written by us");
                assert!(matches!(performative, Performative::Transfer(_)));
                bytes += payload.len();
                rest = &rest[used..];
            }
            bytes
        });
        assert_eq!(bytes as u64, BATCH * PAYLOAD.len() as u64);
    }
    report("transfer, read", best.0);
}

/// All of it: a server sends, a client receives, credit and windows go back.
fn connections() {
    let now = Instant::now();
    let mut server = Connection::accept(Options::new("server"), sasl::Server::default(), now);
    let mut client = Connection::connect(Options::new("client"), sasl::Client::Anonymous, now);
    let session = client.begin().expect("a new connection has room");
    let receiver = client.attach(session, Attach::receiver("r", "hub")).expect("a new session has room");
    let mut pipes = (BytesMut::new(), BytesMut::new());
    let mut sender = None;
    while client.credit(receiver) == 0 || sender.is_none() {
        exchange(&mut client, &mut server, &mut pipes);
        while let Some(event) = server.poll() {
            if let Event::Attaching { link, attach } = event {
                server.answer_attach(link, attach.answer());
                sender = Some(link);
            }
        }
        while let Some(event) = client.poll() {
            if let Event::Attached { link, .. } = event {
                client.set_credit(link, 2_000, false);
            }
        }
    }
    exchange(&mut client, &mut server, &mut pipes);
    let sender = sender.expect("the loop ended");
    let (mut writing, mut reading, mut both) = (Best::new(), Best::new(), Best::new());
    for _ in 0..RUNS {
        both.run(|| {
            writing.run(|| send(&mut server, sender, BATCH));
            carry(&mut server, &mut pipes.1);
            let received = reading.run(|| {
                client.receive(&mut pipes.1);
                let deliveries = std::iter::from_fn(|| client.poll()).filter(|event| {
                    matches!(event, Event::Delivery(delivery) if delivery.payload.len() == PAYLOAD.len())
                });
                let count = deliveries.count();
                client.top_up(receiver, 2_000);
                count
            });
            assert_eq!(received as u64, BATCH);
            exchange(&mut client, &mut server, &mut pipes);
            while server.poll().is_some() {}
        });
    }
    report("connection, sent", writing.0);
    report("connection, received", reading.0);
    report("both, and copied between", both.0);
}

fn send(server: &mut Connection, link: LinkId, count: u64) {
    for number in 0..count {
        let sent = server.send_with(link, Outgoing::settled(number), |out| {
            out.extend_from_slice(&PAYLOAD);
            Ok(())
        });
        sent.expect("credit and window were topped up");
    }
}

fn exchange(client: &mut Connection, server: &mut Connection, pipes: &mut (BytesMut, BytesMut)) {
    carry(client, &mut pipes.0);
    server.receive(&mut pipes.0);
    carry(server, &mut pipes.1);
    client.receive(&mut pipes.1);
}

fn carry(from: &mut Connection, to: &mut BytesMut) {
    let outbox = from.outbox();
    outbox.chunks().for_each(|chunk| to.extend_from_slice(chunk));
    outbox.advance(outbox.len());
}
