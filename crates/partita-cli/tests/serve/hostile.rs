//! Very many clients that begin and do not go on: the hub's memory is bounded, and others are served.
#![cfg(target_os = "linux")]

use std::io::Write;
use std::time::Duration;

use bytes::Bytes;
use partita_amqp::connection::{Connection, Event, LinkId, Options, Outgoing};
use partita_amqp::driver::{Driver, now};
use partita_amqp::message::{self, Message};
use partita_amqp::performative::{Attach, DeliveryState};
use partita_amqp::sasl;
use partita_core::model::Body;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::support::{Hub, PATIENCE};

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
        let sent = async {
            while self.wire.connection().sendable(self.link) == 0 {
                self.wire.event().await.expect("a connection").expect("it goes on");
            }
            let mut event = Vec::new();
            message::encode(&Message::new(Body::from("still here")), &mut event).expect("encodes");
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
