//! Very many clients that begin and do not go on, and take all there is: the hub's memory is bounded and goes back, its log
//! goes on, and others are served.
#![cfg(target_os = "linux")]

use std::io::Write;
use std::time::Duration;

use bytes::Bytes;
use partita_amqp::connection::{Connection, Event, LinkId, Options, Outgoing};
use partita_amqp::driver::{Driver, now};
use partita_amqp::frame::{self, FrameKind};
use partita_amqp::message::{self, Message};
use partita_amqp::performative::{Attach, Begin, DeliveryState, DeliveryTag, Open, Performative, Transfer};
use partita_amqp::sasl;
use partita_core::model::Body;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::support::{Hub, PATIENCE, serve, wait_for};

/// How many there shall be.
const WANTED: usize = 10_000;

/// Files of this process that are not for them.
const OWN_FILES: usize = 1_000;

/// What one of them may cost the hub.
const EACH_BYTES_MAX: u64 = 32 << 10;

/// What they say before they say nothing more: nothing, parts of all that may come first, and all of a header.
const BEGINNINGS: [&[u8]; 5] = [
    b"",
    b"AM",
    b"AMQP\x03\x01\x00\x00",
    b"GET /$servicebus/websocket HTTP/1.1\r\nHost:",
    b"\x16\x03\x01\x02\x00\x01",
];

/// A client that means well.
struct Client {
    wire: Driver<TcpStream>,
    link: LinkId,
}

impl Client {
    async fn connect(hub: &Hub) -> Self {
        let stream = TcpStream::connect(("127.0.0.1", hub.port("amqp_port"))).await.expect("the hub listens");
        let login = sasl::Client::plain("RootManageSharedAccessKey", "SAS_KEY_VALUE");
        let mut wire = Driver::new(stream, Connection::connect(Options::new("good"), login, now()));
        let session = wire.connection().begin().expect("a session");
        let link = wire.connection().attach(session, Attach::sender("sender", "eh1")).expect("a link");
        Self { wire, link }
    }

    async fn sends(&mut self) {
        self.sends_bytes(10).await;
    }

    async fn sends_bytes(&mut self, count: usize) {
        let sent = async {
            while self.wire.connection().sendable(self.link) == 0 {
                self.wire.event().await.expect("a connection").expect("it goes on");
            }
            let mut event = Vec::new();
            message::encode(&Message::new(Body::from("x".repeat(count))), &mut event).expect("encodes");
            let message = Outgoing::unsettled(0);
            self.wire.connection().send(self.link, message, Bytes::from(event)).expect("sent");
            loop {
                if let Some(Event::Outcome { state, .. }) = self.wire.event().await.expect("a connection") {
                    return assert_eq!(state, Some(DeliveryState::Accepted));
                }
            }
        };
        tokio::time::timeout(PATIENCE, sent).await.expect("the hub answers others");
    }
}

#[tokio::test]
async fn ten_thousand_half_open_connections_cost_little_and_hold_up_nobody() {
    let Rlimit { maximum, .. } = getrlimit(Resource::Nofile);
    let _ = setrlimit(Resource::Nofile, Rlimit { current: maximum, maximum });
    let allowed = maximum.map_or(usize::MAX, |max| max as usize);
    let count = WANTED.min((allowed / 4 * 3).saturating_sub(OWN_FILES));

    // With a certificate, so that parts of a TLS handshake are waited for, too.
    let hub = Hub::start(&["--memory", "--hub", "eh1:4", "--tls-self-signed"]);
    let mut client = Client::connect(&hub).await;
    client.sends().await;
    let before = hub.memory();
    let mut half = Vec::new();
    for n in 0..count {
        let mut stream =
            TcpStream::connect(("127.0.0.1", hub.port("amqp_port"))).await.expect("the hub listens");
        stream.write_all(BEGINNINGS[n % BEGINNINGS.len()]).await.expect("written");
        half.push(stream);
        if n % 1_000 == 0 {
            client.sends().await;
        }
    }
    client.sends().await;
    Client::connect(&hub).await.sends().await;
    let grown = hub.memory().saturating_sub(before);
    let each = grown / count as u64;
    assert!(each <= EACH_BYTES_MAX, "{grown} bytes for {count} connections");

    // The hub sends them away.
    let ends = async {
        for stream in &mut half {
            let mut rest = Vec::new();
            let _ = stream.read_to_end(&mut rest).await;
        }
    };
    tokio::time::timeout(PATIENCE + Duration::from_secs(20), ends).await.expect("half-open connections end");
    client.sends().await;
    let line = format!("counted: {count} half-open connections, {each} bytes of the hub's memory for each\n");
    std::io::stderr().write_all(line.as_bytes()).expect("stderr");
}

fn encoded(performative: impl Into<Performative>, payload: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    let start = frame::begin(FrameKind::Amqp, 0, &mut out);
    performative.into().encode(&mut out).expect("it has an encoding");
    out.extend_from_slice(payload);
    frame::finish(start, 0, &mut out);
    out
}

/// All that a client says which opens a connection, puts no token, and begins messages of 60 kB parts on so many links.
fn unfinished(links: u32, parts: usize) -> Vec<u8> {
    let part = vec![0; 55_000];
    let begin = Begin {
        remote_channel: None,
        next_outgoing_id: 0,
        incoming_window: 5_000,
        outgoing_window: 5_000,
        handle_max: u32::MAX,
        offered_capabilities: Vec::new(),
        desired_capabilities: Vec::new(),
        properties: Vec::new(),
    };
    let mut bytes = b"AMQP\x00\x01\x00\x00".to_vec();
    bytes.extend(encoded(Open::new("stranger"), &[]));
    bytes.extend(encoded(begin, &[]));
    for handle in 0..links {
        let attach = Attach { handle, ..Attach::sender(format!("s{handle}"), "$cbs") };
        bytes.extend(encoded(attach, &[]));
        let first = Transfer {
            delivery_id: Some(handle),
            delivery_tag: Some(DeliveryTag::from(u64::from(handle))),
            message_format: Some(0),
            more: true,
            ..Transfer::part(handle)
        };
        bytes.extend(encoded(first, &part));
        (1..parts)
            .for_each(|_| bytes.extend(encoded(Transfer { more: true, ..Transfer::part(handle) }, &part)));
    }
    bytes
}

/// What hostile clients without a token may cost the hub, all together, and what of it may stay when they are gone.
const STRANGERS_BYTES_MAX: u64 = 192 << 20;
const LEFT_BYTES_MAX: u64 = 24 << 20;

#[tokio::test]
async fn clients_without_a_token_cost_little_and_what_they_cost_goes_back() {
    let hub = Hub::start(&["--memory", "--hub", "eh1:4"]);
    let mut client = Client::connect(&hub).await;
    client.sends().await;
    let before = hub.memory();
    // Sixty that take all they can; a thousand that stay just below what one may.
    for (count, bytes) in [(60, unfinished(16, 16)), (1_000, unfinished(1, 1))] {
        let mut held = Vec::new();
        for _ in 0..count {
            let mut stream =
                TcpStream::connect(("127.0.0.1", hub.port("amqp_port"))).await.expect("the hub listens");
            let _ = tokio::time::timeout(PATIENCE, stream.write_all(&bytes)).await.expect("taken or refused");
            held.push(stream);
        }
        client.sends().await;
        let during = hub.memory().saturating_sub(before);
        assert!(during <= STRANGERS_BYTES_MAX, "{count} strangers: {during} bytes");
        drop(held);
        let after = wait_for("memory to go back", || {
            let after = hub.memory().saturating_sub(before);
            (after <= LEFT_BYTES_MAX).then_some(after)
        });
        client.sends().await;
        let line = format!(
            "counted: {count} connections without a token, {} kB of the hub's memory, {} kB when they were gone\n",
            during >> 10,
            after >> 10
        );
        std::io::stderr().write_all(line.as_bytes()).expect("stderr");
    }
}

#[tokio::test]
async fn strangers_that_take_all_descriptors_leave_the_log_its_own() {
    let dir = tempfile::tempdir().unwrap();
    // The limit of the hub alone: this process needs more.
    let plain = serve(dir.path(), &["--hub", "eh1:1"]);
    let mut command = std::process::Command::new("sh");
    command.args(["-c", "ulimit -n 160; exec \"$@\"", "sh"]).arg(plain.get_program()).args(plain.get_args());
    command.arg("--data").arg(dir.path().join("data"));
    for (name, value) in plain.get_envs() {
        match value {
            Some(value) => command.env(name, value),
            None => command.env_remove(name),
        };
    }
    let hub = Hub::run(command, dir);
    let mut client = Client::connect(&hub).await;
    client.sends().await;
    let mut strangers = Vec::new();
    for port in ["amqp_port", "http_port"] {
        for _ in 0..200 {
            strangers.push(TcpStream::connect(("127.0.0.1", hub.port(port))).await.expect("the hub listens"));
        }
    }
    // The first segments have 1 and 2 MB: this takes four of them.
    for _ in 0..120 {
        client.sends_bytes(100_000).await;
    }
    let hubs = tokio::task::spawn_blocking(move || {
        assert_eq!(hub.get("/health").0, 200);
        (hub.get_json("/api/v1/hubs"), hub)
    });
    let (hubs, hub) = hubs.await.unwrap();
    assert_eq!(hubs["hubs"][0]["read_only"], false, "{hubs}");
    drop((strangers, client));
    let (_, said) = hub.stop();
    let warnings = said.lines().filter(|line| line.contains("WARN")).count();
    assert!(warnings <= 6, "400 strangers are not 400 warnings: {said}");
}
