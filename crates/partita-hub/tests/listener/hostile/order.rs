//! Frames that are no frames, and performatives where they do not belong.

use std::time::Duration;

use partita_amqp::performative::{
    Attach, Close, DeliveryState, Disposition, End, Open, Performative, Role, Transfer,
};
use partita_hub::server::ServerOptions;

use super::still_served;
use crate::client::{Hosted, reader_of};
use crate::raw::{AMQP, Raw, attach, begin, detach, encoded, flow, transfer};

fn one(performative: impl Into<Performative>) -> Vec<u8> {
    encoded(0, performative, &[])
}

/// After an open.
#[tokio::test]
async fn what_breaks_the_connection_closes_it_with_the_reason() {
    let hosted = Hosted::new().await;
    let beyond = 70_000_u32.to_be_bytes();
    let sasl = [&[0, 0, 0, 16, 2, 1, 0, 0][..], &[0x00, 0x53, 0x41, 0xc0, 3, 1, 0xa3, 0]].concat();
    let cases: Vec<(&str, Vec<u8>, &str)> = vec![
        ("a second open", one(Open::new("again")), "amqp:illegal-state"),
        ("an attach without a session", one(Attach::sender("s", "eh1")), "amqp:not-allowed"),
        ("a transfer without a session", one(transfer(0, 0)), "amqp:not-allowed"),
        ("a flow without a session", one(flow(None, None)), "amqp:not-allowed"),
        ("an end without a session", one(End { error: None }), "amqp:not-allowed"),
        ("a channel beyond all", encoded(u16::MAX, begin(), &[]), "amqp:connection:framing-error"),
        ("a channel twice", [one(begin()), one(begin())].concat(), "amqp:not-allowed"),
        (
            "an answer to no begin",
            one(partita_amqp::performative::Begin { remote_channel: Some(7), ..begin() }),
            "amqp:not-allowed",
        ),
        (
            "a handle beyond all",
            [one(begin()), one(attach(256, Attach::sender("s", "eh1")))].concat(),
            "amqp:connection:framing-error",
        ),
        ("a SASL frame", sasl, "amqp:connection:framing-error"),
        (
            "a frame larger than agreed",
            [&beyond[..], &[2, 0, 0, 0]].concat(),
            "amqp:connection:framing-error",
        ),
        ("a frame smaller than its head", vec![0, 0, 0, 7, 2, 0, 0, 0], "amqp:connection:framing-error"),
        ("a data offset beyond the frame", vec![0, 0, 0, 8, 200, 0, 0, 0], "amqp:connection:framing-error"),
        ("a frame of an unknown kind", vec![0, 0, 0, 9, 2, 9, 0, 0, 0], "amqp:connection:framing-error"),
        ("a body that is cut off", vec![0, 0, 0, 11, 2, 0, 0, 0, 0x00, 0x53, 0x11], "amqp:decode-error"),
        (
            "a performative that nobody knows",
            vec![0, 0, 0, 12, 2, 0, 0, 0, 0x00, 0x53, 0x7f, 0x45],
            "amqp:decode-error",
        ),
    ];
    for (what, bytes, condition) in cases {
        let mut raw = Raw::open(&hosted, Open::new("raw")).await;
        raw.say(&bytes).await;
        let error = raw.closed().await.unwrap_or_else(|| panic!("{what}: no reason"));
        assert_eq!(&*error.condition, condition, "{what}: {error:?}");
        assert!(error.description.is_some_and(|text| !text.is_empty()), "{what}");
    }
    still_served(&hosted).await;
}

/// After a begin and a sender on handle 0.
#[tokio::test]
async fn what_breaks_a_session_ends_it_and_the_connection_goes_on() {
    let hosted = Hosted::new().await;
    let cases: Vec<(&str, Vec<u8>, &str)> = vec![
        ("a transfer on no link", one(transfer(9, 0)), "amqp:session:unattached-handle"),
        ("a flow of no link", one(flow(Some(9), Some(1))), "amqp:session:unattached-handle"),
        ("a detach of no link", one(detach(9)), "amqp:session:unattached-handle"),
        ("a handle twice", one(attach(0, Attach::sender("t", "$cbs"))), "amqp:session:handle-in-use"),
        ("a message without an id", one(Transfer::part(0)), "amqp:invalid-field"),
        (
            "a message within a message",
            [encoded(0, Transfer { more: true, ..transfer(0, 0) }, b"x"), one(transfer(0, 1))].concat(),
            "amqp:not-allowed",
        ),
        (
            "a transfer on a link that receives",
            [one(attach(1, Attach::receiver("r", "$cbs"))), one(transfer(1, 0))].concat(),
            "amqp:not-allowed",
        ),
    ];
    for (what, bytes, condition) in cases {
        let mut raw = Raw::begun(&hosted).await;
        raw.tell(0, Attach::sender("s", "$cbs")).await;
        raw.say(&bytes).await;
        assert_eq!(&*raw.ended().await.condition, condition, "{what}");
        // Late frames for the session mean nothing; after the answer it can be begun again.
        raw.tell(0, transfer(0, 5)).await;
        raw.tell(0, End { error: None }).await;
        raw.tell(0, begin()).await;
        let (0, Performative::Begin(_), _) = raw.frame().await else { panic!("{what}: no begin came") };
        raw.tell(0, Close { error: None }).await;
        assert_eq!(raw.closed().await, None, "{what}");
    }
    still_served(&hosted).await;
}

#[tokio::test]
async fn dispositions_of_everything_mean_nothing_and_take_no_time() {
    let hosted = Hosted::new().await;
    let mut raw = Raw::begun(&hosted).await;
    for role in [Role::Receiver, Role::Sender] {
        for _ in 0..100 {
            let all = Disposition {
                role,
                first: 0,
                last: Some(u32::MAX),
                settled: true,
                state: Some(DeliveryState::Accepted),
                batchable: false,
            };
            raw.tell(0, all).await;
        }
    }
    raw.tell(0, Close { error: None }).await;
    assert_eq!(raw.closed().await, None);
    still_served(&hosted).await;
}

#[tokio::test]
async fn who_is_silent_in_the_middle_of_a_frame_is_sent_away() {
    let options = ServerOptions { idle_timeout: Duration::from_millis(200), ..ServerOptions::default() };
    let hosted = Hosted::with(options).await;
    let mut raw = Raw::open(&hosted, Open::new("raw")).await;
    let frame = encoded(0, begin(), &[]);
    raw.say(&frame[..frame.len() / 2]).await;
    let error = raw.closed().await.expect("a reason");
    assert_eq!(&*error.condition, "amqp:connection:forced", "{error:?}");
    still_served(&hosted).await;
}

#[tokio::test]
async fn who_hangs_up_in_the_middle_leaves_nothing() {
    let hosted = Hosted::new().await;
    for cut in 0..40 {
        let mut raw = Raw::connect(&hosted).await;
        let all = [
            AMQP,
            &one(Open::new("raw")),
            &one(begin()),
            &one(attach(0, Attach::receiver("r", &reader_of(0)))),
        ];
        let all = all.concat();
        raw.say(&all[..all.len() * cut / 40]).await;
    }
    super::until_gone(&hosted).await;
    still_served(&hosted).await;
}
