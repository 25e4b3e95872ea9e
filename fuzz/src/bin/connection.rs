//! Connections: whatever bytes a peer sends, in whatever cuts, either end goes on or ends in an error, and what it keeps for the
//! peer is bounded.
//!
//! The first byte says which end it is and where it begins, the second how what follows is cut.
#![no_main]

use std::time::{Duration, Instant};

use bytes::{Bytes, BytesMut};
use libfuzzer_sys::fuzz_target;
use partita_amqp::connection::{Connection, Event, Limits, Options, Outgoing};
use partita_amqp::frame::Protocol;
use partita_amqp::performative::{Attach, DeliveryState, Open, Performative};
use partita_amqp::{frame, sasl};

/// Small, so that a few bytes reach them.
const FRAME_BYTES_MAX: u32 = 512;
const OUTBOX_BYTES_MAX: usize = 1 << 10;
const EVENTS_MAX: usize = 4;
const MESSAGE_BYTES_MAX: u64 = 1_000;

/// What is written at most: the answers to events that were taken before the outbox was looked at, each less than two frames of
/// content and as many fields as there are, on top of what pauses the input.
const WRITTEN_BYTES_MAX: usize = OUTBOX_BYTES_MAX + EVENTS_MAX * 4 * FRAME_BYTES_MAX as usize;

fn options() -> Options {
    Options {
        frame_bytes_max: FRAME_BYTES_MAX,
        limits: Limits {
            sessions_max: 3,
            links_max: 4,
            handle_max: 7,
            session_window: 8,
            message_bytes_max: MESSAGE_BYTES_MAX,
            reassembly_bytes_max: 1_500,
            credit_overrun_max: 5,
            unsettled_max: 4,
            events_max: EVENTS_MAX,
            events_bytes_max: 8 << 10,
            outbox_bytes_max: OUTBOX_BYTES_MAX,
        },
        ..Options::new("fuzzed")
    }
}

/// A client that has said what it wants.
fn client(sasl: sasl::Client, now: Instant) -> Connection {
    let mut client = Connection::connect(options(), sasl, now);
    let session = client.begin().expect("a new connection has room");
    for attach in [Attach::receiver("r", "hub"), Attach::sender("s", "hub")] {
        let link = client.attach(session, attach).expect("a new session has room");
        client.set_credit(link, 5, false);
    }
    client
}

/// A header and an open, as the other end says them.
fn opening() -> Vec<u8> {
    let mut bytes = Protocol::Amqp.header().to_vec();
    let start = frame::begin(frame::FrameKind::Amqp, 0, &mut bytes);
    Performative::from(Open::new("peer")).encode(&mut bytes).expect("it has an encoding");
    frame::finish(start, 0, &mut bytes);
    bytes
}

/// Does what programs do about events.
fn act(connection: &mut Connection, settled: bool, event: Event) {
    match event {
        Event::Attaching { link, attach } => {
            connection.answer_attach(link, Attach { max_message_size: Some(MESSAGE_BYTES_MAX), ..attach.answer() });
            connection.set_credit(link, 3, false);
        }
        Event::Credit { link, drain, .. } => {
            let message = if settled { Outgoing::settled(7) } else { Outgoing::unsettled(7) };
            let _ = connection.send(link, message, Bytes::from_static(&[7; 700]));
            if drain {
                connection.drained(link);
            }
        }
        Event::Delivery(delivery) => {
            assert!(delivery.payload.len() as u64 <= MESSAGE_BYTES_MAX, "a message is larger than its link takes");
            connection.top_up(delivery.link, 3);
            connection.settle(delivery.link, delivery.id, DeliveryState::Accepted);
        }
        Event::Outcome { link, ids, .. } => {
            connection.settle(link, ids, DeliveryState::Accepted);
        }
        _ => {}
    }
}

fuzz_target!(|data: &[u8]| {
    let [role, cut, data @ ..] = data else { return };
    let mut now = Instant::now();
    let mut connection = match role & 3 {
        0 => Connection::accept(options(), sasl::Server::default(), now),
        1 => Connection::accept(options(), sasl::Server::default().check_plain(|_| true), now),
        2 => client(sasl::Client::None, now),
        _ => client(sasl::Client::plain("user", "password"), now),
    };
    let mut input = BytesMut::new();
    // Most of what can go wrong is after an open.
    if role & 4 != 0 {
        input.extend_from_slice(&opening());
        connection.receive(&mut input);
    }
    let (reads, keeps_time, settled) = (role & 8 != 0, role & 16 != 0, role & 32 != 0);
    let mut rest = data;
    let mut size = usize::from(*cut);
    while !rest.is_empty() && !connection.is_closed() {
        size = (size * 31 + 7) % 97 + 1;
        let (part, after) = rest.split_at(size.min(rest.len()));
        rest = after;
        input.extend_from_slice(part);
        let mut paused = connection.receive(&mut input);
        while let Some(event) = connection.poll() {
            act(&mut connection, settled, event);
        }
        let written = connection.outbox().len();
        assert!(written <= WRITTEN_BYTES_MAX, "{written} bytes wait for a peer that does not read");
        if reads {
            connection.outbox().advance(written);
            paused = paused && connection.receive(&mut input);
        }
        if !paused {
            assert!(input.len() <= FRAME_BYTES_MAX as usize, "{} bytes are kept of one frame", input.len());
        } else if written >= OUTBOX_BYTES_MAX && !reads {
            // It will not go on until somebody reads.
            return;
        }
        if keeps_time {
            now += Duration::from_secs(7);
            connection.on_time(now);
        }
    }
    // Whatever was said last is no reason to fall over.
    while let Some(event) = connection.poll() {
        act(&mut connection, settled, event);
    }
    connection.close(None);
});
