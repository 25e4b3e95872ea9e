//! Whatever a peer does, what is kept for it is bounded.

use super::raw::{Raw, begin, transfer};
use super::*;
use crate::performative::{Attach, Detach, End, Flow, Transfer};

fn options(change: impl FnOnce(&mut Limits)) -> Options {
    let mut options = Options::new("server");
    change(&mut options.limits);
    options
}

fn flow() -> Flow {
    Flow {
        next_incoming_id: Some(0),
        incoming_window: 100,
        next_outgoing_id: 0,
        outgoing_window: 100,
        handle: None,
        delivery_count: None,
        link_credit: None,
        available: None,
        drain: false,
        echo: false,
        properties: Vec::new(),
    }
}

#[test]
fn sessions_are_counted() {
    let mut raw = Raw::open(options(|limits| limits.sessions_max = 3));
    for channel in 0..3 {
        raw.frame(channel, &begin());
    }
    assert_eq!(raw.events().len(), 3);
    // A channel is free again after its session.
    raw.frame(1, &End { error: None });
    raw.frame(1, &begin());
    assert_eq!(raw.events().len(), 2);
    raw.frame(3, &begin());
    assert_eq!(raw.closed_with(), condition::FRAMING_ERROR);
}

#[test]
fn a_session_beyond_what_the_peer_can_count_is_refused() {
    let mut raw = Raw::new(options(|_| {}));
    raw.bytes(&crate::frame::Protocol::Amqp.header());
    raw.frame(0, &crate::performative::Open { channel_max: 0, ..crate::performative::Open::new("narrow") });
    let mut header = BytesMut::new();
    carry(&mut raw.server, &mut header, 8);
    raw.frame(0, &begin());
    raw.frame(1, &begin());
    assert_eq!(raw.closed_with(), condition::RESOURCE_LIMIT_EXCEEDED);
}

#[test]
fn links_are_counted() {
    let (mut raw, _) = Raw::begun(options(|limits| limits.links_max = 3));
    for handle in 0..3 {
        raw.attach(handle, Attach::sender(format!("s{handle}"), "hub"));
    }
    raw.frame(0, &Detach { handle: 1, closed: true, error: None });
    raw.events();
    raw.frames();
    raw.attach(1, Attach::sender("again", "hub"));
    raw.frame(0, &Attach { handle: 3, ..Attach::sender("one too many", "hub") });
    assert_eq!(raw.ended_with(), condition::RESOURCE_LIMIT_EXCEEDED);
    assert_eq!(raw.server.links.len(), 0);
}

#[test]
fn parts_of_messages_are_counted_over_all_links() {
    let (mut raw, _) = Raw::begun(options(|limits| limits.reassembly_bytes_max = 1_000));
    for handle in 0..3 {
        raw.attach(handle, Attach::sender(format!("s{handle}"), "hub"));
    }
    for handle in [2, 1, 0] {
        raw.frame_with(0, &Transfer { more: true, ..transfer(handle, 10 - handle) }, &[0; 400]);
    }
    assert_eq!(raw.server.reassembly_bytes, 800);
    assert_eq!(raw.detached_with(), condition::RESOURCE_LIMIT_EXCEEDED);
    raw.frame(0, &End { error: None });
    assert_eq!(raw.server.reassembly_bytes, 0);
}

#[test]
fn input_waits_while_nobody_takes_events() {
    let (mut raw, _) = Raw::sender(options(|limits| limits.events_max = 10), 1_000);
    for id in 0..25 {
        raw.frame(0, &transfer(0, id));
    }
    assert_eq!(raw.server.events.len(), 10);
    assert!(!raw.input.is_empty());
    let mut ids = Vec::new();
    loop {
        for event in raw.events() {
            let Event::Delivery(delivery) = event else { panic!() };
            ids.push(delivery.id);
        }
        if !raw.server.receive(&mut raw.input) && raw.server.events.is_empty() {
            break;
        }
    }
    assert_eq!(ids, Vec::from_iter(0..25));
}

#[test]
fn input_waits_while_the_events_hold_many_bytes() {
    let (mut raw, _) = Raw::sender(options(|limits| limits.events_bytes_max = 10_000), 1_000);
    for id in 0..25 {
        raw.frame_with(0, &transfer(0, id), &[0; 1_000]);
    }
    assert!((9..=10).contains(&raw.server.events.len()), "{}", raw.server.events.len());
    assert!(raw.server.receive(&mut raw.input));
    raw.events();
    assert_eq!(raw.server.events_bytes, 0);
}

#[test]
fn input_waits_while_the_peer_does_not_read() {
    let (mut raw, _) = Raw::begun(options(|limits| limits.outbox_bytes_max = 1_000));
    let echo = Flow { echo: true, ..flow() };
    for _ in 0..1_000 {
        raw.frame(0, &echo);
    }
    assert!(raw.server.outbox.len() < 1_100, "{}", raw.server.outbox.len());
    assert!(!raw.input.is_empty());
    let mut answers = 0;
    while !raw.input.is_empty() {
        answers += raw.frames().len();
        raw.server.receive(&mut raw.input);
    }
    assert_eq!(answers + raw.frames().len(), 1_000);
}

#[test]
fn a_link_in_the_middle_of_its_end_is_no_second_link() {
    // We detach, the peer does not answer and attaches on and on.
    let (mut raw, _) = Raw::begun(options(|limits| limits.links_max = 5));
    for handle in 0..5 {
        let link = raw.attach(handle, Attach::sender("s", "hub"));
        raw.server.detach(link, None);
        raw.server.detach(link, None);
        assert_eq!(raw.frames().len(), 1);
    }
    raw.frame(0, &Attach { handle: 5, ..Attach::sender("s", "hub") });
    assert_eq!(raw.ended_with(), condition::RESOURCE_LIMIT_EXCEEDED);
}

#[test]
fn a_name_can_be_attached_again_after_its_link() {
    let (mut raw, _) = Raw::begun(options(|_| {}));
    for _ in 0..3 {
        let link = raw.attach(0, Attach::sender("same", "hub"));
        raw.frame(0, &Detach { handle: 0, closed: false, error: None });
        assert_eq!(raw.events(), [Event::Detached { link, error: None, closed: false }]);
        let [(0, Performative::Detach(Detach { handle: 0, closed: false, .. }), _)] = &raw.frames()[..]
        else {
            panic!()
        };
    }
}

#[test]
fn what_was_detached_or_ended_may_be_so_again() {
    let (mut raw, _) = Raw::begun(options(|_| {}));
    raw.attach(0, Attach::sender("s", "hub"));
    let detach = Detach { handle: 0, closed: true, error: None };
    raw.frame(0, &detach);
    assert_eq!((raw.events().len(), raw.frames().len()), (1, 1));
    raw.frame(0, &detach);
    raw.frame(0, &Flow { handle: Some(0), echo: true, ..flow() });
    assert_eq!((raw.events(), raw.frames()), (vec![], vec![]));
    raw.frame(0, &End { error: None });
    assert_eq!((raw.events().len(), raw.frames().len()), (1, 1));
    raw.frame(0, &detach);
    raw.frame(0, &End { error: None });
    assert_eq!((raw.events(), raw.frames()), (vec![], vec![]));
    assert!(raw.server.is_open());
}

#[test]
fn a_link_is_refused_without_or_after_an_answer() {
    let (mut raw, _) = Raw::begun(options(|_| {}));
    let error = Error::new(condition::NOT_FOUND, "no such hub");
    for answered in [false, true] {
        raw.frame(0, &Attach::sender("s", "nothing"));
        let [Event::Attaching { link, attach }] = &raw.events()[..] else { panic!() };
        if answered {
            raw.server.answer_attach(*link, attach.answer());
        }
        raw.server.detach(*link, Some(error.clone()));
        let frames = raw.frames();
        let [(_, Performative::Attach(attach), _), (_, Performative::Detach(detach), _)] = &frames[..] else {
            panic!("{frames:?}")
        };
        assert_eq!((&*attach.name, attach.target.is_some()), ("s", answered));
        assert_eq!(detach.error.as_ref(), Some(&error));
        raw.frame(0, &Detach { handle: 0, closed: true, error: None });
        raw.events();
    }
}

#[test]
fn a_link_that_its_peer_gave_up_before_the_answer_is_answered_all_the_same() {
    let (mut raw, _) = Raw::begun(options(|_| {}));
    raw.frame(0, &Attach::sender("s", "hub"));
    raw.frame(0, &Detach { handle: 0, closed: true, error: None });
    let events = raw.events();
    let [Event::Attaching { link, attach }, Event::Detached { .. }] = &events[..] else {
        panic!("{events:?}")
    };
    let frames = raw.frames();
    let [(_, Performative::Attach(_), _), (_, Performative::Detach(_), _)] = &frames[..] else { panic!() };
    // Too late, and harmless.
    raw.server.answer_attach(*link, attach.answer());
    raw.server.set_credit(*link, 10, false);
    raw.server.detach(*link, None);
    assert_eq!(raw.frames(), []);
}

#[test]
fn a_link_that_we_gave_up_before_the_answer_is_gone_after_it() {
    let (mut pair, session, _) = Pair::begun();
    let link = pair.client.attach(session, Attach::receiver("r", "hub")).unwrap();
    pair.client.detach(link, None);
    pair.settle();
    assert_eq!(pair.client_events(), [Event::Detached { link, error: None, closed: true }]);
    assert_eq!((pair.client.links.len(), pair.server.links.len()), (0, 0));
}

#[test]
fn a_session_that_we_ended_before_the_answer_is_gone_after_it() {
    let mut pair = Pair::default();
    let session = pair.client.begin().unwrap();
    pair.client.end(session, None);
    pair.settle();
    let events = pair.client_events();
    let [Event::Opened(_), Event::Ended { .. }] = &events[..] else { panic!("{events:?}") };
    assert_eq!((pair.client.sessions.len(), pair.server.sessions.len()), (0, 0));
}
