//! Credit, windows, drains, and messages in parts.

use super::raw::{Raw, transfer};
use super::*;
use crate::performative::{
    DeliveryState, Detach, Disposition, Flow, ReceiverSettleMode, Role, SenderSettleMode, Transfer,
};

fn options() -> Options {
    Options::new("server")
}

/// The flow of a peer that has seen so many of our transfers and messages.
fn flow(seen: u32, window: u32, credit: u32) -> Flow {
    Flow {
        next_incoming_id: Some(seen),
        incoming_window: window,
        next_outgoing_id: 0,
        outgoing_window: 100,
        handle: Some(0),
        delivery_count: Some(seen),
        link_credit: Some(credit),
        available: None,
        drain: false,
        echo: false,
        properties: Vec::new(),
    }
}

fn send(raw: &mut Raw, link: LinkId, tag: u64, len: usize) -> Result<DeliveryId, SendError> {
    raw.server.send(link, Outgoing::unsettled(tag), Bytes::from(vec![tag as u8; len]))
}

fn transfers(raw: &mut Raw) -> Vec<(Transfer, Bytes)> {
    let of = |(_, body, payload)| match body {
        Performative::Transfer(transfer) => Some((transfer, payload)),
        _ => None,
    };
    raw.frames().into_iter().filter_map(of).collect()
}

#[test]
fn credit_is_set_and_never_added() {
    let (mut raw, link) = Raw::receiver(options());
    raw.frame(0, &flow(0, 100, 10));
    raw.frame(0, &flow(0, 100, 10));
    assert_eq!(raw.server.sendable(link), 10);
    (0..4).for_each(|tag| assert_eq!(send(&mut raw, link, tag, 1), Ok(tag as u32)));
    assert_eq!(raw.server.sendable(link), 6);
    // The peer has seen two of the four, and wants ten after those.
    raw.frame(0, &flow(2, 100, 10));
    assert_eq!(raw.server.sendable(link), 8);
    raw.frame(0, &flow(4, 100, 0));
    assert_eq!(send(&mut raw, link, 4, 1), Err(SendError::Credit));
    // Less credit than is under way already is none, not a very large number.
    raw.frame(0, &flow(0, 100, 1));
    assert_eq!(raw.server.sendable(link), 0);
}

#[test]
fn a_flow_that_does_not_know_the_count_counts_from_the_start() {
    let (mut raw, link) = Raw::receiver(options());
    raw.frame(0, &Flow { delivery_count: None, next_incoming_id: None, ..flow(0, 100, 10) });
    assert_eq!(raw.server.sendable(link), 10);
    send(&mut raw, link, 0, 1).unwrap();
    raw.frame(0, &Flow { delivery_count: None, next_incoming_id: None, ..flow(0, 100, 10) });
    assert_eq!(raw.server.sendable(link), 9);
}

#[test]
fn the_sessions_window_is_respected_and_told_when_it_opens() {
    let (mut raw, link) = Raw::receiver(options());
    raw.frame(0, &flow(0, 2, 100));
    raw.events();
    assert_eq!(raw.server.sendable(link), 2);
    send(&mut raw, link, 0, 1).unwrap();
    send(&mut raw, link, 1, 1).unwrap();
    assert_eq!(send(&mut raw, link, 2, 1), Err(SendError::Window));
    raw.frame(0, &Flow { handle: None, ..flow(1, 2, 0) });
    let session = raw.server.session_of(link).unwrap();
    assert_eq!(raw.events(), [Event::Window(session)]);
    assert_eq!(raw.server.sendable(link), 1);
}

#[test]
fn a_large_message_waits_for_the_window_in_order() {
    let (mut raw, link) = Raw::receiver(options());
    raw.server.frame_out_bytes = 512;
    raw.frame(0, &flow(0, 2, 100));
    raw.events();
    assert_eq!(send(&mut raw, link, 7, 2_000), Ok(0));
    assert_eq!(send(&mut raw, link, 8, 1), Err(SendError::Window));
    let first = transfers(&mut raw);
    assert_eq!(first.len(), 2);
    raw.frame(0, &flow(2, 2, 99));
    assert_eq!(send(&mut raw, link, 8, 1), Err(SendError::Window));
    let then = transfers(&mut raw);
    assert_eq!(then.len(), 2);
    raw.frame(0, &flow(4, 2, 99));
    let last = transfers(&mut raw);
    assert_eq!(last.len(), 1);
    assert!(matches!(raw.events().last(), Some(Event::Window(_))));
    assert_eq!(send(&mut raw, link, 8, 1), Ok(1));
    let all = [first, then, last].concat();
    let ids: Vec<_> = all.iter().map(|(transfer, _)| transfer.delivery_id).collect();
    assert_eq!(ids, [Some(0), None, None, None, None]);
    let more: Vec<_> = all.iter().map(|(transfer, _)| transfer.more).collect();
    assert_eq!(more, [true, true, true, true, false]);
    let payload: Vec<u8> = all.iter().flat_map(|(_, payload)| payload.to_vec()).collect();
    assert_eq!(payload, [7; 2_000]);
}

#[test]
fn frames_are_as_large_as_the_peer_takes_and_no_larger() {
    for (with, len) in [(true, 100_000), (false, 100_000), (true, 430), (false, 430), (true, 470)] {
        let (mut raw, link) = Raw::receiver(options());
        raw.server.frame_out_bytes = 512;
        raw.frame(0, &flow(0, 1_000, 100));
        let payload = vec![1; len];
        let sent = match with {
            true => raw.server.send_with(link, Outgoing::settled(1), |out| {
                out.extend_from_slice(&payload);
                Ok(())
            }),
            false => raw.server.send(link, Outgoing::settled(1), Bytes::from(payload.clone())),
        };
        assert_eq!(sent, Ok(0));
        let mut bytes = BytesMut::new();
        carry(&mut raw.server, &mut bytes, usize::MAX);
        let (mut rest, mut received) = (&bytes[..], Vec::new());
        while let Some((frame, used)) = frame::decode(rest, 512).unwrap() {
            let (_, payload) = Performative::decode(&Bytes::copy_from_slice(frame.body)).unwrap();
            received.extend_from_slice(&payload);
            rest = &rest[used..];
            assert!(used == 512 || rest.is_empty());
        }
        assert_eq!(received, payload);
    }
}

#[test]
fn the_link_of_a_waiting_message_can_go() {
    let (mut raw, link) = Raw::receiver(options());
    let other = raw.attach(1, Attach::receiver("other", "hub"));
    raw.server.frame_out_bytes = 512;
    raw.frame(0, &flow(0, 2, 100));
    raw.frame(0, &Flow { handle: Some(1), ..flow(0, 2, 100) });
    send(&mut raw, link, 7, 2_000).unwrap();
    raw.frame(0, &Detach { handle: 0, closed: true, error: None });
    raw.frame(0, &Flow { handle: Some(1), ..flow(2, 10, 100) });
    raw.frames();
    assert_eq!(send(&mut raw, other, 9, 3), Ok(1));
    assert_eq!(transfers(&mut raw).len(), 1);
}

#[test]
fn numbers_go_on_after_the_highest() {
    let (mut raw, link) = Raw::receiver(options());
    let session = raw.server.session_of(link).unwrap();
    let top = u32::MAX - 2;
    raw.server.links.get_mut(link).unwrap().delivery_count = Some(top);
    let known = raw.server.sessions.get_mut(session).unwrap();
    (known.next_outgoing_id, known.next_delivery_id) = (top, top);
    raw.frame(0, &flow(top, 100, 10));
    for tag in 0..6u32 {
        assert_eq!(send(&mut raw, link, tag.into(), 1), Ok(top.wrapping_add(tag)));
    }
    raw.frame(0, &flow(top.wrapping_add(3), 100, 10));
    assert_eq!(raw.server.sendable(link), 7);
    let accepted = Disposition {
        role: Role::Receiver,
        first: top,
        last: Some(top.wrapping_add(5)),
        settled: true,
        state: Some(DeliveryState::Accepted),
        batchable: false,
    };
    raw.events();
    raw.frame(0, &accepted);
    let [Event::Outcome { ids, .. }] = &raw.events()[..] else { panic!() };
    assert_eq!(ids.iter().count(), 6);
}

#[test]
fn an_echo_is_answered() {
    let (mut raw, _) = Raw::receiver(options());
    raw.frame(0, &Flow { echo: true, ..flow(0, 100, 10) });
    let frames = raw.frames();
    let [(0, Performative::Flow(answer), _)] = &frames[..] else { panic!("{frames:?}") };
    assert_eq!((answer.handle, answer.link_credit, answer.delivery_count), (Some(0), Some(10), Some(0)));
    raw.frame(0, &Flow { echo: true, handle: None, ..flow(0, 100, 10) });
    let [(0, Performative::Flow(answer), _)] = &raw.frames()[..] else { panic!() };
    assert_eq!((answer.handle, answer.next_incoming_id), (None, Some(0)));
}

#[test]
fn a_drain_is_answered_with_all_credit_given_up() {
    let (mut raw, link) = Raw::receiver(options());
    raw.server.drained(link);
    assert_eq!(raw.frames(), [], "nobody asked");
    raw.frame(0, &Flow { drain: true, ..flow(0, 100, 10) });
    assert_eq!(raw.events(), [Event::Credit { link, credit: 10, drain: true }]);
    send(&mut raw, link, 0, 1).unwrap();
    raw.frames();
    raw.server.drained(link);
    let [(0, Performative::Flow(answer), _)] = &raw.frames()[..] else { panic!() };
    assert_eq!((answer.delivery_count, answer.link_credit, answer.drain), (Some(10), Some(0), true));
    assert_eq!(send(&mut raw, link, 1, 1), Err(SendError::Credit));
}

#[test]
fn a_receiver_that_drains_is_told_when_it_is_done() {
    let (mut pair, client, server) = Pair::attached(Attach::receiver("r", "hub"));
    pair.client.set_credit(client, 10, true);
    pair.settle();
    pair.server.send(server, Outgoing::settled(1), Bytes::new()).unwrap();
    pair.server.drained(server);
    pair.settle();
    let events = pair.client_events();
    let [Event::Delivery(_), Event::Drained(link)] = events[..] else { panic!("{events:?}") };
    assert_eq!((link, pair.client.credit(client)), (client, 0));
    // Both count the same afterwards.
    pair.client.set_credit(client, 3, false);
    pair.settle();
    assert_eq!(pair.server.sendable(server), 3);

    // Messages use it up as well.
    pair.client.set_credit(client, 2, true);
    pair.settle();
    for tag in 0..2 {
        pair.server.send(server, Outgoing::settled(tag), Bytes::new()).unwrap();
    }
    pair.settle();
    let events = pair.client_events();
    assert_eq!(events.last(), Some(&Event::Drained(client)));
}

#[test]
fn flows_on_the_links_of_senders_change_nothing() {
    let (mut raw, link) = Raw::sender(options(), 10);
    raw.frame(0, &flow(0, 100, 10_000));
    raw.frame(0, &Flow { delivery_count: Some(77), ..flow(0, 100, 0) });
    assert_eq!((raw.frames(), raw.events()), (vec![], vec![]));
    assert_eq!(raw.server.credit(link), 10);
}

#[test]
fn messages_before_any_credit_are_taken() {
    let (mut raw, _) = Raw::begun(options());
    raw.frame(0, &Attach::sender("s", "hub"));
    raw.frame_with(0, &transfer(0, 0), b"early");
    let [Event::Attaching { link, attach }, Event::Delivery(delivery)] = &raw.events()[..] else { panic!() };
    assert_eq!(&delivery.payload[..], b"early");
    raw.server.answer_attach(*link, attach.answer());
    raw.server.set_credit(*link, 5, false);
    let frames = raw.frames();
    let [_, (0, Performative::Flow(told), _)] = &frames[..] else { panic!("{frames:?}") };
    assert_eq!((told.delivery_count, told.link_credit), (Some(1), Some(5)));
}

#[test]
fn credit_given_before_the_answer_is_told_after_it() {
    let (mut raw, _) = Raw::begun(options());
    raw.frame(0, &Attach::sender("s", "hub"));
    let [Event::Attaching { link, attach }] = &raw.events()[..] else { panic!() };
    raw.server.set_credit(*link, 5, false);
    assert_eq!(raw.frames(), []);
    raw.server.answer_attach(*link, attach.answer());
    let frames = raw.frames();
    let [(_, Performative::Attach(_), _), (_, Performative::Flow(flow), _)] = &frames[..] else { panic!() };
    assert_eq!(flow.link_credit, Some(5));
}

#[test]
fn credit_is_topped_up_at_half() {
    let (mut raw, link) = Raw::sender(options(), 10);
    for id in 0..4 {
        raw.frame(0, &transfer(0, id));
        raw.server.top_up(link, 10);
    }
    assert_eq!(raw.frames(), []);
    raw.frame(0, &transfer(0, 4));
    raw.server.top_up(link, 10);
    let [(0, Performative::Flow(flow), _)] = &raw.frames()[..] else { panic!() };
    assert_eq!((flow.delivery_count, flow.link_credit), (Some(5), Some(10)));
}

#[test]
fn the_window_is_opened_again_when_half_of_it_is_used() {
    let mut options = options();
    options.limits.session_window = 10;
    let (mut raw, _) = Raw::sender(options, 100);
    for id in 0..20 {
        raw.frame(0, &transfer(0, id));
    }
    let flows = raw.frames().into_iter().map(|(_, body, _)| match body {
        Performative::Flow(flow) => (flow.next_incoming_id, flow.incoming_window),
        other => panic!("{other:?}"),
    });
    let expected: Vec<_> = [5, 10, 15, 20].map(|id| (Some(id), 10)).into();
    assert_eq!(flows.collect::<Vec<_>>(), expected);
}

#[test]
fn parts_are_put_together_and_aborted_messages_are_not_told() {
    let (mut raw, link) = Raw::sender(options(), 10);
    raw.frame_with(0, &Transfer { more: true, ..transfer(0, 0) }, b"one ");
    raw.frame_with(0, &Transfer { more: true, ..Transfer::part(0) }, b"two ");
    assert_eq!((raw.server.reassembly_bytes, raw.events()), (8, vec![]));
    raw.frame_with(0, &Transfer { settled: Some(true), ..Transfer::part(0) }, b"three");
    raw.frame_with(0, &Transfer { more: true, ..transfer(0, 1) }, b"nothing");
    raw.frame_with(0, &Transfer { aborted: true, ..Transfer::part(0) }, b"");
    raw.frame_with(0, &Transfer { aborted: true, ..transfer(0, 2) }, b"");
    raw.frame_with(0, &transfer(0, 3), b"four");
    let events = raw.events();
    let [Event::Delivery(first), Event::Delivery(second)] = &events[..] else { panic!("{events:?}") };
    assert_eq!((first.id, first.settled, &first.payload[..]), (0, true, &b"one two three"[..]));
    assert_eq!((second.id, second.settled, &second.payload[..]), (3, false, &b"four"[..]));
    assert_eq!((raw.server.credit(link), raw.server.reassembly_bytes), (6, 0));
}

#[test]
fn links_of_one_session_may_interleave_their_parts() {
    let (mut raw, one) = Raw::sender(options(), 10);
    let two = raw.attach(1, Attach::sender("two", "hub"));
    raw.frame_with(0, &Transfer { more: true, ..transfer(0, 0) }, b"a");
    raw.frame_with(0, &Transfer { more: true, ..transfer(1, 1) }, b"x");
    raw.frame_with(0, &Transfer::part(0), b"b");
    raw.frame_with(0, &Transfer::part(1), b"y");
    let events = raw.events();
    let [Event::Delivery(first), Event::Delivery(second)] = &events[..] else { panic!("{events:?}") };
    assert_eq!((first.link, &first.payload[..]), (one, &b"ab"[..]));
    assert_eq!((second.link, &second.payload[..]), (two, &b"xy"[..]));
}

#[test]
fn a_payload_in_one_frame_is_not_copied() {
    let (mut raw, _) = Raw::sender(options(), 10);
    let mut out = Vec::new();
    let start = frame::begin(FrameKind::Amqp, 0, &mut out);
    Performative::from(transfer(0, 0)).encode(&mut out).unwrap();
    out.extend([7; 100]);
    frame::finish(start, 0, &mut out);
    raw.input.extend_from_slice(&out);
    let range = raw.input.as_ptr_range();
    raw.server.receive(&mut raw.input);
    let [Event::Delivery(delivery)] = &raw.events()[..] else { panic!() };
    assert!(range.contains(&delivery.payload.as_ptr()));
}

#[test]
fn the_mode_of_the_link_decides_what_is_settled() {
    use SenderSettleMode::{Mixed, Settled, Unsettled};
    for (mode, asked, expected) in
        [(Settled, false, true), (Unsettled, true, false), (Mixed, true, true), (Mixed, false, false)]
    {
        let (mut raw, _) = Raw::begun(options());
        let attach = Attach { snd_settle_mode: mode, ..Attach::receiver("r", "hub") };
        let link = raw.attach(0, attach);
        raw.frame(0, &flow(0, 100, 10));
        let message = Outgoing { settled: asked, ..Outgoing::settled(1) };
        raw.server.send(link, message, Bytes::new()).unwrap();
        assert_eq!(transfers(&mut raw)[0].0.settled, Some(expected));
    }
}

#[test]
fn outcomes_are_told_per_link_and_once() {
    let (mut raw, one) = Raw::receiver(options());
    let two = raw.attach(1, Attach::receiver("two", "hub"));
    raw.frame(0, &flow(0, 100, 10));
    raw.frame(0, &Flow { handle: Some(1), ..flow(0, 100, 10) });
    for (tag, link) in [one, two, one, two, two].into_iter().enumerate() {
        send(&mut raw, link, tag as u64, 1).unwrap();
    }
    raw.events();
    let disposition = |first, last, settled| Disposition {
        role: Role::Receiver,
        first,
        last: Some(last),
        settled,
        state: Some(DeliveryState::Released),
        batchable: false,
    };
    let outcome = |link, first, last, settled| Event::Outcome {
        link,
        ids: DeliveryRange { first, last },
        state: Some(DeliveryState::Released),
        settled,
    };
    raw.frame(0, &disposition(0, 3, true));
    assert_eq!(raw.events(), [outcome(one, 0, 2, true), outcome(two, 1, 3, true)]);
    raw.frame(0, &disposition(0, 4, false));
    assert_eq!(raw.events(), [outcome(two, 4, 4, false)]);
    // The peer did not settle; we do, and then nothing is left.
    raw.server.settle(two, 4, DeliveryState::Released);
    raw.frame(0, &disposition(0, 4, true));
    assert_eq!(raw.events(), []);
}

#[test]
fn outcomes_that_nobody_wants_cost_nothing_and_block_nothing() {
    let mut options = options();
    options.limits.unsettled_max = 3;
    let (mut raw, link) = Raw::receiver(options);
    raw.frame(0, &flow(0, 100, 50));
    (0..3).for_each(|tag| assert!(send(&mut raw, link, tag, 1).is_ok()));
    assert_eq!(raw.server.sendable(link), 0);
    assert_eq!(send(&mut raw, link, 3, 1), Err(SendError::Unsettled));
    raw.server.ignore_outcomes(link);
    (3..20).for_each(|tag| assert!(send(&mut raw, link, tag, 1).is_ok()));
    raw.events();
    let state = Some(DeliveryState::Accepted);
    let all = Disposition {
        role: Role::Receiver,
        first: 0,
        last: Some(19),
        settled: true,
        state,
        batchable: false,
    };
    raw.frame(0, &all);
    assert_eq!(raw.events(), []);
}

#[test]
fn a_receiver_that_settles_second_is_settled_for() {
    let (mut raw, _) = Raw::begun(options());
    let attach = Attach { rcv_settle_mode: ReceiverSettleMode::Second, ..Attach::receiver("r", "hub") };
    let link = raw.attach(0, attach);
    raw.server.ignore_outcomes(link);
    raw.frame(0, &flow(0, 100, 10));
    send(&mut raw, link, 0, 1).unwrap();
    raw.frames();
    let state = Some(DeliveryState::Accepted);
    let theirs =
        Disposition { role: Role::Receiver, first: 0, last: None, settled: false, state, batchable: false };
    raw.frame(0, &theirs);
    let ours = Disposition { role: Role::Sender, last: Some(0), settled: true, ..theirs };
    assert_eq!(raw.frames(), [(0, ours.into(), Bytes::new())]);
}

#[test]
fn what_a_receiver_says_is_final_also_where_it_is_to_settle_second() {
    let (mut raw, _) = Raw::begun(options());
    let attach = Attach { rcv_settle_mode: ReceiverSettleMode::Second, ..Attach::sender("s", "hub") };
    let link = raw.attach(0, attach);
    raw.frame(0, &transfer(0, 0));
    raw.server.settle(link, 0, DeliveryState::Accepted);
    let [(0, Performative::Disposition(ours), _)] = &raw.frames()[..] else { panic!() };
    assert_eq!((ours.role, ours.settled), (Role::Receiver, true));
}

#[test]
fn a_message_that_the_peer_does_not_take_is_refused_here() {
    let (mut raw, _) = Raw::begun(options());
    let link = raw.attach(0, Attach { max_message_size: Some(100), ..Attach::receiver("r", "hub") });
    raw.frame(0, &flow(0, 100, 10));
    let refused = Err(SendError::TooLarge { size: 101, max: 100 });
    assert_eq!(send(&mut raw, link, 0, 101), refused);
    let with = raw.server.send_with(link, Outgoing::settled(0), |out| {
        out.extend([0; 101]);
        Ok(())
    });
    assert_eq!(with, refused);
    let failed = raw.server.send_with(link, Outgoing::settled(0), |out| {
        out.extend([0; 50]);
        Err(crate::types::EncodeError::TooLarge)
    });
    assert_eq!(failed, Err(SendError::Encode(crate::types::EncodeError::TooLarge)));
    assert_eq!(raw.frames(), []);
    assert_eq!(send(&mut raw, link, 0, 100), Ok(0));
}
