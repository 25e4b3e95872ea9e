//! What a connection is for.

use super::raw::{Raw, begin};
use super::*;
use crate::performative::{DeliveryState, End, Error, Performative, Role};

#[test]
fn messages_go_both_ways_and_are_settled() {
    let (mut pair, client, server) = Pair::attached(Attach::sender("s", "hub"));
    let message = Outgoing::unsettled(1);
    let payload = Bytes::from_static(b"one");
    assert_eq!(pair.client.send(client, message.clone(), payload.clone()), Err(SendError::Credit));
    pair.server.set_credit(server, 2, false);
    pair.settle();
    let credit = Event::Credit { link: client, credit: 2, drain: false };
    assert_eq!(pair.client_events(), [credit]);
    assert_eq!(pair.client.sendable(client), 2);
    let first = pair.client.send(client, message.clone(), payload.clone()).unwrap();
    let second = pair.client.send_with(client, Outgoing::settled(2), |out| {
        out.extend(b"two");
        Ok(())
    });
    assert_eq!((first, second), (0, Ok(1)));
    assert_eq!(pair.client.send(client, message, payload.clone()), Err(SendError::Credit));
    pair.settle();
    let delivery = |id: u32, payload: &'static [u8], settled| {
        Event::Delivery(Delivery {
            link: server,
            id,
            tag: u64::from(id + 1).into(),
            format: 0,
            settled,
            payload: Bytes::from_static(payload),
        })
    };
    assert_eq!(pair.server_events(), [delivery(0, b"one", false), delivery(1, b"two", true)]);
    assert_eq!(pair.server.credit(server), 0);
    pair.server.settle(server, 0, DeliveryState::Accepted);
    pair.settle();
    let outcome =
        Event::Outcome { link: client, ids: 0.into(), state: Some(DeliveryState::Accepted), settled: true };
    assert_eq!(pair.client_events(), [outcome]);
}

#[test]
fn the_server_sends_to_a_receiver() {
    let (mut pair, client, server) = Pair::attached(Attach::receiver("r", "hub/Partitions/0"));
    assert_eq!(pair.server.role(server), Some(Role::Sender));
    pair.client.set_credit(client, 10, false);
    pair.settle();
    assert_eq!(pair.server.sendable(server), 10);
    let payload = Bytes::from(vec![7; 300_000]);
    pair.server.send(server, Outgoing::settled(1), payload.clone()).unwrap();
    pair.settle();
    let [Event::Delivery(delivery)] = &pair.client_events()[..] else { panic!() };
    assert_eq!(delivery.payload, payload);
    assert_eq!(pair.server.sendable(server), 9);
}

#[test]
fn links_sessions_and_connections_end() {
    let (mut pair, client, server) = Pair::attached(Attach::sender("s", "hub"));
    let error = Error::new("com.microsoft:server-busy", "try again");
    let events = |pair: &mut Pair| {
        pair.settle();
        (pair.client_events(), pair.server_events())
    };
    pair.server_events();
    pair.server.detach(server, Some(error.clone()));
    let detached = |link, error| vec![Event::Detached { link, error, closed: true }];
    assert_eq!(events(&mut pair), (detached(client, Some(error.clone())), detached(server, None)));
    let session = pair.client.begin().unwrap();
    pair.settle();
    let [Event::Begun(theirs)] = pair.server_events()[..] else { panic!() };
    pair.client_events();
    pair.client.end(session, None);
    let ended = |session| vec![Event::Ended { session, error: None }];
    assert_eq!(events(&mut pair), (ended(session), ended(theirs)));
    pair.client.close(Some(error.clone()));
    let closed = |error| vec![Event::Closed { error, by_peer: true }];
    assert_eq!(events(&mut pair), (closed(None), closed(Some(error))));
    assert!(pair.client.is_closed() && pair.server.is_closed());
    assert_eq!(pair.client.begin(), None);
}

#[test]
fn a_session_and_its_links_have_the_numbers_of_the_peer() {
    let mut raw = Raw::open(Options::new("server"));
    raw.frame(0, &begin());
    raw.frame(0, &End { error: None });
    // Not channel 0 again, though it is free: a client may still be busy with the end of that session.
    raw.frame(5, &begin());
    raw.events();
    let frames = raw.frames();
    let channels: Vec<u16> = frames.iter().map(|(channel, ..)| *channel).collect();
    assert_eq!(channels, [0, 0, 5]);
    raw.frame(5, &Attach { handle: 3, ..Attach::sender("s", "hub") });
    let [Event::Attaching { link, attach }] = &raw.events()[..] else { panic!() };
    raw.server.answer_attach(*link, attach.answer());
    let [(5, Performative::Attach(answer), _)] = &raw.frames()[..] else { panic!() };
    assert_eq!(answer.handle, 3);
}
