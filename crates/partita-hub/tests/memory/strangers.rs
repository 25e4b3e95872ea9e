//! What clients cost that have no token: little each, whatever they begin.

use partita_amqp::performative::{Attach, Open, Transfer};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use super::{Memory, still_served};
use crate::client::{Hosted, soon};
use crate::raw::{Raw, attach, begin, encoded, flow, transfer};

/// How many there are.
const COUNT: usize = 60;

/// Messages to `$cbs` of which parts are missing, on so many links: 15 MB of them, if anybody took them.
fn unfinished(links: u32, parts: usize) -> Vec<u8> {
    let part = vec![0; 60_000];
    let mut bytes = Vec::new();
    for handle in 0..links {
        bytes.extend(encoded(0, attach(handle, Attach::sender(format!("s{handle}"), "$cbs")), &[]));
        bytes.extend(encoded(0, Transfer { more: true, ..transfer(handle, handle) }, &part));
        let rest = encoded(0, Transfer { more: true, ..Transfer::part(handle) }, &part);
        (1..parts).for_each(|_| bytes.extend(&rest));
    }
    bytes
}

#[tokio::test]
async fn messages_begun_without_a_token_cost_little_and_end_their_connections() {
    let memory = Memory::alone().await;
    let hosted = Hosted::new().await;
    still_served(&hosted).await;
    let bytes = unfinished(16, 16);
    let mut held = Vec::new();
    for _ in 0..COUNT {
        let mut raw = Raw::begun(&hosted).await;
        // The hub stops listening long before the end.
        let _ = soon("reader of our bytes", raw.stream.write_all(&bytes)).await;
        held.push(raw);
    }
    still_served(&hosted).await;
    memory.settled().await;
    memory.has_grown_by_at_most(32 << 20, "60 connections that begin 15 MB of messages each without a token");
    for mut raw in held {
        let mut rest = Vec::new();
        let _ = soon("end", raw.stream.read_to_end(&mut rest)).await;
    }
}

/// A request's id comes back in its reply; a client that gives no credit lets them wait.
#[tokio::test]
async fn replies_that_nobody_reads_end_a_connection_without_a_token() {
    let memory = Memory::alone().await;
    let hosted = Hosted::new().await;
    let mut raw = Raw::begun(&hosted).await;
    raw.tell(0, attach(0, Attach::sender("requests", "$cbs"))).await;
    raw.tell(0, attach(1, Attach::receiver("replies", "$cbs"))).await;
    let mut message = Vec::new();
    // A message whose properties have an id of 10,000 characters, and no body.
    message.extend([0x00, 0x53, 0x73, 0xd0]);
    message.extend((4_u32 + 5 + 10_000).to_be_bytes());
    message.extend(1_u32.to_be_bytes());
    message.push(0xb1);
    message.extend(10_000_u32.to_be_bytes());
    message.extend([b'i'; 10_000]);
    for id in 0..90 {
        raw.tell_with(0, transfer(0, id), &message).await;
    }
    let error = raw.closed().await.expect("a reason");
    assert_eq!(&*error.condition, "amqp:resource-limit-exceeded", "{error}");
    memory.has_grown_by_at_most(16 << 20, "replies that nobody reads");
    still_served(&hosted).await;
}

#[tokio::test]
async fn links_without_a_token_are_few() {
    let memory = Memory::alone().await;
    let hosted = Hosted::new().await;
    let mut raw = Raw::open(&hosted, Open::new("x".repeat(10_000))).await;
    raw.tell(0, begin()).await;
    raw.tell(0, flow(None, None)).await;
    let all: Vec<u8> = (0..200)
        .flat_map(|handle| encoded(0, attach(handle, Attach::sender(format!("s{handle}"), "$cbs")), &[]))
        .collect();
    raw.say(&all).await;
    let error = raw.closed().await.expect("a reason");
    assert_eq!(&*error.condition, "amqp:resource-limit-exceeded", "{error}");
    memory.has_grown_by_at_most(16 << 20, "200 links without a token");
    still_served(&hosted).await;
}

/// A WebSocket's message is seen when all of it is there; until then it is kept.
#[tokio::test]
async fn a_websockets_message_without_a_token_is_small() {
    let memory = Memory::alone().await;
    let hosted = Hosted::new().await;
    let mut held = Vec::new();
    for _ in 0..COUNT {
        let mut stream = TcpStream::connect(hosted.address).await.expect("connects");
        let ask = "GET /$servicebus/websocket HTTP/1.1\r\nHost: localhost\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\
                   Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\n\
                   Sec-WebSocket-Protocol: AMQPWSB10\r\n\r\n";
        stream.write_all(ask.as_bytes()).await.expect("written");
        let mut answer = [0; 12];
        soon("answer", stream.read_exact(&mut answer)).await.expect("read");
        assert_eq!(&answer, b"HTTP/1.1 101");
        // A binary frame of 4,000,000 bytes, masked, of which the last byte never comes.
        let mut frame = vec![0x82, 0xff];
        frame.extend(4_000_000_u64.to_be_bytes());
        frame.extend([0; 4]);
        frame.resize(frame.len() + 3_999_999, 0);
        let _ = soon("reader of our bytes", stream.write_all(&frame)).await;
        held.push(stream);
    }
    still_served(&hosted).await;
    memory.settled().await;
    memory.has_grown_by_at_most(32 << 20, "60 WebSockets with a message of 4 MB each that never ends");
    for mut stream in held {
        let mut rest = Vec::new();
        let _ = soon("end", stream.read_to_end(&mut rest)).await;
    }
}
