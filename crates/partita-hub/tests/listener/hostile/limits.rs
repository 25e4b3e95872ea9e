//! Clients that agree to absurd limits: they are served within them, or told.

use std::time::Duration;

use partita_amqp::performative::{Attach, Begin, Close, Flow, Open, Performative};
use partita_hub::broker::Route;
use partita_hub::log::EncodedBatch;
use partita_hub::server::ServerOptions;
use partita_hub::service::auth::Rules;
use tokio::time::Instant;

use super::still_served;
use crate::client::{Hosted, reader_of, text};
use crate::raw::{Raw, attach, begin, encoded, flow};

/// A server whose hub needs no token, with events in partition 0.
async fn filled(events: usize, bytes: usize) -> Hosted {
    let hosted = Hosted::with(ServerOptions { auth: Rules::open(), ..ServerOptions::default() }).await;
    let hub = hosted.server.broker().hub("eh1").expect("there");
    let batch = EncodedBatch::of(&vec![text("x".repeat(bytes)); events]).expect("valid");
    let send = move || hub.send_and_wait(Route::Partition(0), batch).expect("durable");
    tokio::task::spawn_blocking(send).await.expect("done");
    hosted
}

fn reader(handle: u32) -> Attach {
    attach(handle, Attach::receiver(format!("r{handle}"), &reader_of(0)))
}

#[tokio::test]
async fn frames_are_as_small_as_the_client_says_and_no_smaller_than_the_standard() {
    let hosted = filled(1, 5_000).await;
    for (said, largest) in [(0, 512), (511, 512), (512, 512), (1_000, 1_000), (u32::MAX, usize::MAX)] {
        let mut raw = Raw::open(&hosted, Open { max_frame_size: said, ..Open::new("raw") }).await;
        raw.tell(0, begin()).await;
        raw.tell(0, reader(0)).await;
        raw.tell(0, flow(Some(0), Some(1))).await;
        let mut bytes = 0;
        loop {
            if let (_, Performative::Transfer(transfer), payload) = raw.frame().await {
                bytes += payload.len();
                if !transfer.more {
                    break;
                }
            }
        }
        assert!(bytes > 5_000 && raw.largest <= largest, "{said}: {bytes} bytes, frames of {}", raw.largest);
    }
    still_served(&hosted).await;
}

#[tokio::test]
async fn as_many_channels_as_the_client_can_count_and_no_more() {
    let hosted = filled(1, 1).await;
    // With one channel the second session has no number in our direction.
    let mut raw = Raw::open(&hosted, Open { channel_max: 0, ..Open::new("raw") }).await;
    raw.tell(0, begin()).await;
    raw.tell(1, begin()).await;
    assert_eq!(&*raw.closed().await.expect("a reason").condition, "amqp:resource-limit-exceeded");
    // With all of them it may begin what we said we take.
    let mut raw = Raw::open(&hosted, Open { channel_max: u16::MAX, ..Open::new("raw") }).await;
    let all: Vec<u8> = (0..4_096).flat_map(|channel| encoded(channel, begin(), &[])).collect();
    raw.say(&all).await;
    for _ in 0..4_096 {
        let (_, Performative::Begin(_), _) = raw.frame().await else { panic!("no begin came") };
    }
    raw.tell(4_096, begin()).await;
    assert_eq!(&*raw.closed().await.expect("a reason").condition, "amqp:connection:framing-error");
    still_served(&hosted).await;
}

#[tokio::test]
async fn as_many_handles_as_the_client_can_count_and_no_more() {
    let hosted = filled(1, 1).await;
    let mut raw = Raw::open(&hosted, Open::new("raw")).await;
    raw.tell(0, Begin { handle_max: 0, ..begin() }).await;
    raw.tell(0, reader(0)).await;
    raw.tell(0, reader(1)).await;
    assert_eq!(&*raw.ended().await.condition, "amqp:resource-limit-exceeded");
    still_served(&hosted).await;
}

#[tokio::test]
async fn a_shut_window_lets_nothing_through_until_it_opens() {
    let hosted = filled(10, 100).await;
    let mut raw = Raw::open(&hosted, Open::new("raw")).await;
    raw.tell(0, Begin { incoming_window: 0, ..begin() }).await;
    raw.tell(0, reader(0)).await;
    // Credit for more than there will ever be, and no window.
    raw.tell(0, Flow { incoming_window: 0, ..flow(Some(0), Some(u32::MAX)) }).await;
    // Answers to questions show that nothing came before them; the second is asked when the server has had its turn.
    for ping in 1..3 {
        raw.tell(0, attach(ping, Attach::sender(format!("ping {ping}"), "$cbs"))).await;
        loop {
            match raw.frame().await.1 {
                Performative::Attach(attach) if *attach.name == format!("ping {ping}") => break,
                Performative::Transfer(transfer) => panic!("{transfer:?}"),
                _ => {}
            }
        }
    }
    for window in [3, u32::MAX] {
        raw.tell(
            0,
            Flow {
                incoming_window: window,
                next_incoming_id: Some(if window == 3 { 0 } else { 3 }),
                ..flow(None, None)
            },
        )
        .await;
        for _ in 0..window.min(7) {
            while !matches!(raw.frame().await.1, Performative::Transfer(_)) {}
        }
    }
    still_served(&hosted).await;
}

#[tokio::test]
async fn heartbeats_as_often_as_anybody_could_want_do_not_keep_the_server_busy() {
    let hosted = filled(1, 1).await;
    let mut raw = Raw::open(&hosted, Open { idle_timeout_ms: Some(1), ..Open::new("raw") }).await;
    let mut bytes = 0;
    let until = Instant::now() + Duration::from_millis(500);
    while let Ok(read) = tokio::time::timeout_at(until, raw.stream.readable()).await {
        read.expect("open");
        bytes += raw.stream.try_read(&mut [0; 4_096]).unwrap_or(0);
    }
    // Of 8 bytes each.
    assert!((8..=8 * 60).contains(&bytes), "{bytes} bytes");
    raw.tell(0, Close { error: None }).await;
    still_served(&hosted).await;
}
