//! Heartbeats and patience.

use std::time::Duration;

use super::*;

const SECOND: Duration = Duration::from_secs(1);

/// Tells the time at every deadline until `until`, and returns when bytes were written.
fn run(connection: &mut Connection, start: Instant, until: Duration) -> Vec<Duration> {
    let mut written = Vec::new();
    while let Some(deadline) = connection.deadline().filter(|deadline| *deadline <= start + until) {
        connection.on_time(deadline);
        let len = connection.outbox().len();
        if len > 0 {
            connection.outbox().advance(len);
            written.push(deadline - start);
        }
    }
    written
}

/// A pair with these idle timeouts, and when it was opened.
fn opened(client: Duration, server: Duration) -> (Pair, Instant) {
    let options = |name: &str, idle| Options { idle_timeout: idle, ..Options::new(name) };
    let mut pair = Pair::new(options("client", client), options("server", server));
    pair.settle();
    let now = Instant::now();
    pair.client.on_time(now);
    pair.server.on_time(now);
    pair.settle();
    pair.client_events();
    pair.server_events();
    (pair, now)
}

#[test]
fn heartbeats_come_at_half_of_the_peers_time_at_the_latest() {
    let (mut pair, start) = opened(60 * SECOND, Duration::ZERO);
    let written = run(&mut pair.server, start, 600 * SECOND);
    let gaps = written.windows(2).map(|pair| pair[1] - pair[0]);
    assert!(written.len() >= 20 && gaps.max().unwrap() <= 30 * SECOND, "{written:?}");
}

#[test]
fn who_writes_anyway_writes_no_heartbeats() {
    let (mut pair, start) = opened(60 * SECOND, Duration::ZERO);
    let mut at = start;
    for _ in 0..100 {
        pair.server.begin().unwrap();
        let len = pair.server.outbox().len();
        pair.server.outbox().advance(len);
        at += 10 * SECOND;
        pair.server.on_time(at);
        assert_eq!(pair.server.outbox().len(), 0);
    }
}

#[test]
fn a_peer_that_asks_for_none_gets_no_heartbeats() {
    let (mut pair, start) = opened(Duration::ZERO, Duration::ZERO);
    assert_eq!(pair.server.deadline(), None);
    assert_eq!(run(&mut pair.server, start, 600 * SECOND), []);
}

#[test]
fn a_silent_server_is_closed_between_its_time_and_one_and_a_half_times_that() {
    let (mut pair, start) = opened(60 * SECOND, Duration::ZERO);
    let written = run(&mut pair.client, start, 600 * SECOND);
    let [at] = written[..] else { panic!("{written:?}") };
    assert!((60 * SECOND..=90 * SECOND).contains(&at), "{at:?}");
    let [Event::Closed { error: Some(error), by_peer: false }] = &pair.client_events()[..] else { panic!() };
    assert_eq!(error.condition, condition::CONNECTION_FORCED);
    assert_eq!(pair.client.deadline(), None);
}

#[test]
fn a_silent_client_hears_of_the_end_of_each_link_and_session_after_twice_its_time() {
    let (mut pair, start) = opened(Duration::ZERO, 120 * SECOND);
    let session = pair.client.begin().expect("a session");
    let link = pair.client.attach(session, Attach::sender("s", "hub")).expect("a link");
    pair.settle();
    for event in pair.server_events() {
        if let Event::Attaching { link, attach } = event {
            pair.server.answer_attach(link, attach.answer());
        }
    }
    pair.settle();
    pair.client_events();
    let mut at = start;
    while !pair.server.is_closed() {
        at = pair.server.deadline().expect("it watches");
        pair.server.on_time(at);
    }
    // From its last frame on; a little more, because nobody looks at the clock when a frame comes.
    assert!((240 * SECOND..=256 * SECOND).contains(&(at - start)), "{:?}", at - start);
    pair.settle();
    let text = "The connection was inactive for more than the allowed 240000 milliseconds and is closed by container 'server'.";
    let error = Some(Error::new(condition::CONNECTION_FORCED, text));
    assert_eq!(
        pair.client_events(),
        [
            Event::Detached { link, error: error.clone(), closed: true },
            Event::Ended { session, error: error.clone() },
            Event::Closed { error, by_peer: true },
        ]
    );
}

#[test]
fn a_peer_that_beats_is_kept() {
    let (mut pair, start) = opened(60 * SECOND, 60 * SECOND);
    for step in 1..100 {
        let now = start + step * 14 * SECOND;
        pair.client.on_time(now);
        pair.server.on_time(now);
        pair.settle();
    }
    assert!(pair.client.is_open() && pair.server.is_open());
}

#[test]
fn who_does_not_open_or_close_in_time_is_not_waited_for() {
    let start = Instant::now();
    let mut server = Connection::accept(Options::new("server"), sasl::Server::default(), start);
    assert_eq!(server.deadline(), Some(start + 30 * SECOND));
    server.on_time(start + 29 * SECOND);
    assert_eq!(server.poll(), None);
    server.on_time(start + 30 * SECOND);
    assert!(matches!(server.poll(), Some(Event::Closed { error: Some(_), by_peer: false })));

    // The time to close runs from when it is first looked at, not from some time before.
    let (mut pair, start) = opened(Duration::ZERO, Duration::ZERO);
    pair.server.close(None);
    let later = start + 1_000 * SECOND;
    pair.server.on_time(later);
    assert!(!pair.server.is_closed());
    pair.server.on_time(later + 5 * SECOND);
    assert!(pair.server.is_closed());
}

#[test]
fn an_idle_connection_keeps_no_memory_for_writing() {
    let (mut pair, client, server) = Pair::attached(Attach::receiver("r", "hub"));
    pair.client.set_credit(client, 1_000, false);
    pair.settle();
    for tag in 0..1_000u64 {
        pair.server.send(server, Outgoing::settled(tag), Bytes::from_static(&[0; 500])).unwrap();
    }
    pair.settle();
    let now = Instant::now();
    (0..10).for_each(|step| pair.server.on_time(now + step * 100 * SECOND));
    assert!(pair.server.outbox.capacity() < 1_000);
}
