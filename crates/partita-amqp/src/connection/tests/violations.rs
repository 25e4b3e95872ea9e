//! What a peer may not do, and how it is told.

use proptest::prelude::*;

use super::raw::{Raw, begin, transfer};
use super::*;
use crate::performative::{Detach, Disposition, Flow, Open, Role, Transfer};

fn options() -> Options {
    Options::new("server")
}

fn flow(handle: Option<u32>) -> Flow {
    Flow {
        next_incoming_id: Some(0),
        incoming_window: 100,
        next_outgoing_id: 0,
        outgoing_window: 100,
        handle,
        delivery_count: Some(0),
        link_credit: Some(1),
        available: None,
        drain: false,
        echo: false,
        properties: Vec::new(),
    }
}

#[test]
fn a_frame_that_is_too_large_ends_the_connection_after_those_before_it() {
    let mut raw = Raw::open(options());
    let mut bytes = vec![0, 0, 0, 8, 2, 0, 0, 0];
    bytes.extend(70_000u32.to_be_bytes());
    raw.bytes(&bytes);
    assert_eq!(raw.closed_with(), condition::FRAMING_ERROR);
}

#[test]
fn a_malformed_frame_ends_the_connection() {
    for head in [[0, 0, 0, 7, 2, 0, 0, 0], [0, 0, 0, 8, 1, 0, 0, 0], [0, 0, 0, 8, 2, 9, 0, 0]] {
        let mut raw = Raw::open(options());
        raw.bytes(&head);
        assert_eq!(raw.closed_with(), condition::FRAMING_ERROR);
    }
}

#[test]
fn a_sasl_frame_is_out_of_place_after_the_open() {
    let mut raw = Raw::open(options());
    raw.bytes(&[0, 0, 0, 8, 2, 1, 0, 0]);
    assert_eq!(raw.closed_with(), condition::FRAMING_ERROR);
}

#[test]
fn a_body_that_is_no_performative_ends_the_connection() {
    let mut raw = Raw::open(options());
    raw.bytes(&[0, 0, 0, 12, 2, 0, 0, 0, 0x00, 0x53, 0x99, 0x45]);
    assert_eq!(raw.closed_with(), condition::DECODE_ERROR);
}

#[test]
fn a_second_open_ends_the_connection() {
    let mut raw = Raw::open(options());
    raw.frame(0, &Open::new("again"));
    assert_eq!(raw.closed_with(), condition::ILLEGAL_STATE);
}

#[test]
fn nothing_comes_before_the_open() {
    let mut raw = Raw::new(options());
    raw.bytes(&crate::frame::Protocol::Amqp.header());
    raw.frame(0, &begin());
    let mut header = BytesMut::new();
    carry(&mut raw.server, &mut header, 8);
    assert_eq!(raw.closed_with(), condition::ILLEGAL_STATE);
}

#[test]
fn a_channel_without_session_ends_the_connection() {
    let mut raw = Raw::open(options());
    raw.frame(3, &flow(None));
    assert_eq!(raw.closed_with(), condition::NOT_ALLOWED);
}

#[test]
fn a_channel_is_begun_once() {
    let (mut raw, _) = Raw::begun(options());
    raw.frame(0, &begin());
    assert_eq!(raw.closed_with(), condition::NOT_ALLOWED);
}

#[test]
fn a_channel_beyond_the_agreed_ones_ends_the_connection() {
    let mut raw = Raw::open(options());
    raw.frame(4096, &begin());
    assert_eq!(raw.closed_with(), condition::FRAMING_ERROR);
}

#[test]
fn an_answer_to_no_begin_ends_the_connection() {
    let mut raw = Raw::open(options());
    raw.frame(0, &crate::performative::Begin { remote_channel: Some(5), ..begin() });
    assert_eq!(raw.closed_with(), condition::NOT_ALLOWED);
}

#[test]
fn a_handle_beyond_the_agreed_ones_ends_the_connection() {
    let (mut raw, _) = Raw::begun(options());
    raw.frame(0, &Attach { handle: 256, ..Attach::sender("s", "hub") });
    assert_eq!(raw.closed_with(), condition::FRAMING_ERROR);
}

#[test]
fn a_handle_has_one_link() {
    let (mut raw, _) = Raw::sender(options(), 1);
    raw.frame(0, &Attach::sender("other", "hub"));
    assert_eq!(raw.ended_with(), condition::HANDLE_IN_USE);
}

#[test]
fn a_handle_without_link_ends_the_session() {
    let mut raw = Raw::begun(options()).0;
    raw.frame(0, &transfer(0, 0));
    assert_eq!(raw.ended_with(), condition::UNATTACHED_HANDLE);
    raw.frame(0, &flow(Some(7)));
    assert_eq!(raw.ended_with(), condition::UNATTACHED_HANDLE);
    raw.frame(0, &Detach { handle: 7, closed: true, error: None });
    assert_eq!(raw.ended_with(), condition::UNATTACHED_HANDLE);
}

#[test]
fn a_session_window_is_not_exceeded() {
    // No room for a flow that would open it: the limit is 0 from the start.
    let mut options = options();
    options.limits.session_window = 0;
    let (mut raw, _) = Raw::sender(options, 100);
    raw.frame(0, &transfer(0, 0));
    assert_eq!(raw.ended_with(), condition::WINDOW_VIOLATION);
}

#[test]
fn a_message_has_an_id_and_a_tag() {
    let (mut raw, _) = Raw::sender(options(), 10);
    raw.frame(0, &Transfer { delivery_id: None, ..transfer(0, 0) });
    assert_eq!(raw.ended_with(), condition::INVALID_FIELD);
}

#[test]
fn messages_of_a_link_do_not_overlap() {
    let (mut raw, _) = Raw::sender(options(), 10);
    raw.frame(0, &Transfer { more: true, ..transfer(0, 0) });
    raw.frame(0, &transfer(0, 1));
    assert_eq!(raw.ended_with(), condition::NOT_ALLOWED);
}

#[test]
fn a_receiver_sends_nothing() {
    let (mut raw, _) = Raw::receiver(options());
    raw.frame(0, &transfer(0, 0));
    assert_eq!(raw.ended_with(), condition::NOT_ALLOWED);
}

#[test]
fn a_message_that_is_too_large_is_told_and_nothing_of_it_is_kept() {
    let (mut raw, _) = Raw::begun(options());
    raw.frame(0, &Attach::sender("s", "hub"));
    let [Event::Attaching { link, attach }] = &raw.events()[..] else { panic!() };
    raw.server.answer_attach(*link, Attach { max_message_size: Some(1_000), ..attach.answer() });
    raw.server.set_credit(*link, 10, false);
    raw.frame_with(0, &transfer(0, 0), &[0; 1_000]);
    raw.frame_with(0, &Transfer { more: true, ..transfer(0, 1) }, &[0; 600]);
    assert_eq!(raw.events().len(), 1);
    raw.frame_with(0, &Transfer { more: true, ..Transfer::part(0) }, &[0; 401]);
    assert_eq!(raw.server.reassembly_bytes, 0);
    assert_eq!(raw.events(), []);
    raw.frame_with(0, &Transfer::part(0), &[0; 600]);
    assert_eq!(raw.events(), [Event::TooLarge { link: *link, id: 1, settled: false, size: 1_601 }]);
    assert_eq!(raw.server.reassembly_bytes, 0);
    raw.frame_with(0, &transfer(0, 2), &[0; 1_000]);
    assert!(matches!(raw.events()[..], [Event::Delivery(_)]), "the link goes on");
}

#[test]
fn a_message_too_large_that_goes_on_under_another_id_is_one_message() {
    let mut options = options();
    options.limits.message_bytes_max = 1_000;
    let (mut raw, link) = Raw::sender(options, 10);
    raw.frame_with(0, &Transfer { more: true, ..transfer(0, 0) }, &[0; 1_000]);
    raw.frame_with(0, &transfer(0, 1), &[0; 1]);
    assert_eq!(raw.events(), [Event::TooLarge { link, id: 0, settled: false, size: 1_001 }]);
    assert_eq!(raw.server.reassembly_bytes, 0);
    raw.frame_with(0, &transfer(0, 2), &[0; 1_000]);
    assert!(matches!(raw.events()[..], [Event::Delivery(_)]), "the link goes on");
}

#[test]
fn a_message_in_one_frame_that_is_too_large_is_told() {
    let mut options = options();
    options.limits.message_bytes_max = 999;
    let (mut raw, link) = Raw::sender(options, 1);
    raw.frame_with(0, &transfer(0, 0), &[0; 1_000]);
    assert_eq!(raw.events(), [Event::TooLarge { link, id: 0, settled: false, size: 1_000 }]);
}

#[test]
fn sending_far_beyond_the_credit_detaches_the_link() {
    let (mut raw, link) = Raw::sender(options(), 5);
    for id in 0..10_005 {
        raw.frame(0, &transfer(0, id));
        assert!(matches!(raw.events()[..], [Event::Delivery(_)]), "{id}");
    }
    assert_eq!(raw.server.credit(link), 0);
    raw.frame(0, &transfer(0, 10_005));
    assert_eq!(raw.detached_with(), condition::TRANSFER_LIMIT_EXCEEDED);
}

#[test]
fn dispositions_of_what_was_never_sent_are_ignored() {
    let (mut raw, _) = Raw::receiver(options());
    for (first, last) in [(0, None), (5, Some(2)), (0, Some(u32::MAX))] {
        for role in [Role::Receiver, Role::Sender] {
            raw.frame(0, &Disposition { role, first, last, settled: true, state: None, batchable: false });
        }
    }
    assert_eq!((raw.frames(), raw.events()), (vec![], vec![]));
}

#[test]
fn after_our_close_only_the_peers_close_counts() {
    let (mut raw, _) = Raw::sender(options(), 5);
    raw.server.close(None);
    let [(0, Performative::Close(_), _)] = &raw.frames()[..] else { panic!() };
    raw.frame(0, &transfer(0, 0));
    raw.bytes(&[0, 0, 0, 12, 2, 0, 0, 0, 0x00, 0x53, 0x99, 0x45]);
    assert_eq!((raw.frames(), raw.events()), (vec![], vec![]));
    raw.frame(0, &Close { error: None });
    assert_eq!(raw.events(), [Event::Closed { error: None, by_peer: true }]);
    assert_eq!(raw.frames(), []);
}

proptest! {
    #[test]
    fn whatever_a_peer_sends_the_connection_goes_on_or_ends_in_an_error(
        performatives in prop::collection::vec(
            (0..3u16, crate::performative::tests::performative(), prop::collection::vec(any::<u8>(), 0..20)),
            0..40,
        ),
        garbage in prop::collection::vec(any::<u8>(), 0..40),
        cut in 1..300usize,
    ) {
        let (mut raw, _) = Raw::sender(options(), 10);
        let mut bytes = Vec::new();
        for (channel, body, payload) in performatives {
            let start = frame::begin(FrameKind::Amqp, channel, &mut bytes);
            match body {
                // What ends it at once tells little.
                Performative::Close(_) | Performative::Open(_) => {}
                body => body.encode(&mut bytes).unwrap(),
            }
            bytes.extend(payload);
            frame::finish(start, 0, &mut bytes);
        }
        bytes.extend(garbage);
        for bytes in bytes.chunks(cut) {
            raw.bytes(bytes);
            for event in raw.events() {
                if let Event::Attaching { link, attach } = event {
                    raw.server.answer_attach(link, attach.answer());
                    raw.server.set_credit(link, 3, false);
                    let _ = raw.server.send(link, Outgoing::unsettled(0), Bytes::from_static(b"x"));
                }
            }
        }
        raw.frames();
        prop_assert!(raw.server.events.is_empty());
    }
}
