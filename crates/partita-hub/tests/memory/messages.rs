//! What is asked for and never read, and what is begun and never completed.

use partita_amqp::performative::{Attach, Begin, Detach, Flow, Open, Performative, Transfer};

use super::{Memory, filled, still_served};
use crate::client::{reader_of, soon};
use crate::raw::{Raw, attach, begin, encoded, flow, transfer};

fn reader(handle: u32) -> Attach {
    attach(handle, Attach::receiver(format!("r{handle}"), &reader_of(0)))
}

/// Asks for everything there will ever be on many links, and reads none of it.
#[tokio::test]
async fn credit_without_end_costs_no_more_than_what_is_sent_ahead() {
    let mut memory = Memory::alone().await;
    let hosted = filled(100).await;
    memory.forget();
    let mut stalled = Vec::new();
    for _ in 0..5 {
        let mut raw = Raw::open(&hosted, Open::new("raw")).await;
        raw.tell(0, Begin { incoming_window: u32::MAX, ..begin() }).await;
        raw.tell(0, reader(0)).await;
        raw.tell(0, Flow { incoming_window: u32::MAX, ..flow(Some(0), Some(u32::MAX)) }).await;
        stalled.push(raw);
    }
    memory.settled().await;
    still_served(&hosted).await;
    memory.has_grown_by_at_most(40 << 20, "5 readers that ask for everything and read nothing");
}

/// A message in parts that goes on and on: nothing of it is kept once it is too large, and then its link ends.
#[tokio::test]
async fn a_message_without_end_ends_its_link() {
    let memory = Memory::alone().await;
    let hosted = filled(0).await;
    let mut raw = Raw::begun(&hosted).await;
    raw.tell(0, attach(0, Attach::sender("s", "eh1"))).await;
    let part = vec![0; 60_000];
    raw.tell_with(0, Transfer { more: true, ..transfer(0, 0) }, &part).await;
    let rest = encoded(0, Transfer { more: true, ..Transfer::part(0) }, &part);
    let endless = async {
        loop {
            raw.say(&rest).await;
            // What the server says is read only now and then, as a client would.
            let mut seen = [0; 4_096];
            if let Ok(read) = raw.stream.try_read(&mut seen)
                && (read == 0
                    || seen[..read].windows(31).any(|part| part == b"amqp:link:message-size-exceeded"))
            {
                return read;
            }
        }
    };
    assert!(soon("end of the link", endless).await > 0, "the connection ended");
    memory.has_grown_by_at_most(32 << 20, "a message without end");
    still_served(&hosted).await;
}

/// Large messages on many links at once, none of them completed.
#[tokio::test]
async fn messages_that_are_never_completed_are_bounded_together() {
    let memory = Memory::alone().await;
    let hosted = filled(0).await;
    let mut raw = Raw::begun(&hosted).await;
    let part = vec![0; 60_000];
    for handle in 0..40 {
        raw.tell(0, attach(handle, Attach::sender(format!("s{handle}"), "eh1"))).await;
        raw.tell_with(0, Transfer { more: true, ..transfer(handle, handle) }, &part).await;
        for _ in 0..15 {
            raw.tell_with(0, Transfer { more: true, ..Transfer::part(handle) }, &part).await;
        }
    }
    let (_, Detach { error, .. }) = loop {
        match raw.frame().await {
            (channel, Performative::Detach(detach), _) => break (channel, detach),
            (_, what @ (Performative::Close(_) | Performative::End(_)), _) => panic!("{what:?}"),
            _ => {}
        }
    };
    assert_eq!(&*error.expect("a reason").condition, "amqp:resource-limit-exceeded");
    memory.has_grown_by_at_most(64 << 20, "40 messages that are never completed");
    still_served(&hosted).await;
}
