//! Very much of what is allowed.

use partita_amqp::performative::{Attach, Close, End, Flow, Open, Performative};
use partita_hub::server::ServerOptions;
use tokio::io::AsyncWriteExt;

use super::{Memory, filled, still_served};
use crate::client::{Hosted, soon};
use crate::raw::{Raw, attach, begin, detach, encoded, flow};

/// What one connection asks for in each of these.
const TIMES: usize = 100_000;

#[tokio::test]
async fn attaching_for_ever_ends_the_session_and_others_are_served_meanwhile() {
    let memory = Memory::alone().await;
    let hosted = filled(0).await;
    let mut raw = Raw::open(&hosted, Open::new("raw")).await;
    // Sixteen sessions of 256 links are all that a connection has.
    for channel in 0..17_u16 {
        raw.tell(channel, begin()).await;
        let all: Vec<u8> = (0..256)
            .flat_map(|handle| {
                encoded(channel, attach(handle, Attach::sender(format!("s{handle}"), "$cbs")), &[])
            })
            .collect();
        raw.say(&all).await;
        if channel < 16 {
            let mut answers = 0;
            while answers < 256 {
                answers += usize::from(matches!(raw.frame().await.1, Performative::Attach(_)));
            }
        }
    }
    assert_eq!(&*raw.ended().await.condition, "amqp:resource-limit-exceeded");
    still_served(&hosted).await;
    memory.has_grown_by_at_most(64 << 20, "one connection that attaches for ever");
}

/// Attaches, is refused, detaches, and so on.
#[tokio::test]
async fn attaching_and_detaching_for_ever_leaves_nothing() {
    let memory = Memory::alone().await;
    let hosted = Hosted::new().await;
    let raw = Raw::begun(&hosted).await;
    let round: Vec<u8> = (0..250)
        .flat_map(|handle| {
            [
                encoded(0, attach(handle, Attach::sender(format!("s{handle}"), "nobody-has-this-hub")), &[]),
                encoded(0, detach(handle), &[]),
            ]
            .concat()
        })
        .collect();
    let (mut reading, mut writing) = raw.stream.into_split();
    let read = tokio::spawn(async move { tokio::io::copy(&mut reading, &mut tokio::io::sink()).await });
    for n in 0..TIMES / 250 {
        soon("reader of our bytes", writing.write_all(&round)).await.expect("the connection goes on");
        if n % 100 == 50 {
            still_served(&hosted).await;
        }
    }
    writing.write_all(&encoded(0, Close { error: None }, &[])).await.expect("the connection goes on");
    let said = soon("end", read).await.expect("done").expect("read");
    assert!(said > TIMES as u64 * 50, "{said} bytes were answered");
    memory.has_grown_by_at_most(64 << 20, "100,000 links attached, refused and detached");
    still_served(&hosted).await;
}

#[tokio::test]
async fn sessions_begun_and_ended_for_ever_leave_nothing() {
    let memory = Memory::alone().await;
    let hosted = Hosted::new().await;
    let raw = Raw::open(&hosted, Open::new("raw")).await;
    let round: Vec<u8> = (0..500)
        .flat_map(|n| [encoded(n % 7, begin(), &[]), encoded(n % 7, End { error: None }, &[])].concat())
        .collect();
    let (mut reading, mut writing) = raw.stream.into_split();
    let read = tokio::spawn(async move { tokio::io::copy(&mut reading, &mut tokio::io::sink()).await });
    for _ in 0..TIMES / 500 {
        soon("reader of our bytes", writing.write_all(&round)).await.expect("the connection goes on");
    }
    writing.write_all(&encoded(0, Close { error: None }, &[])).await.expect("the connection goes on");
    soon("end", read).await.expect("done").expect("read");
    memory.has_grown_by_at_most(64 << 20, "100,000 sessions begun and ended");
    still_served(&hosted).await;
}

/// Asks questions and does not listen to the answers: it is no longer listened to either.
#[tokio::test]
async fn who_asks_and_does_not_listen_is_not_listened_to() {
    let memory = Memory::alone().await;
    let hosted = Hosted::with(ServerOptions::default()).await;
    let mut raw = Raw::begun(&hosted).await;
    let round: Vec<u8> =
        (0..1_000).flat_map(|_| encoded(0, Flow { echo: true, ..flow(None, None) }, &[])).collect();
    let mut written = 0;
    // Until the server takes no more; the kernel's buffers are some megabytes in each direction.
    let asking = async {
        loop {
            let write = raw.stream.write_all(&round);
            if tokio::time::timeout(std::time::Duration::from_secs(2), write).await.is_err() {
                break;
            }
            written += round.len();
        }
    };
    soon("end of its patience", asking).await;
    memory.has_grown_by_at_most(64 << 20, "a client that asks and does not listen");
    still_served(&hosted).await;
}
