//! From the first byte to the open.

use super::raw::{Raw, begin};
use super::*;
use crate::frame::Protocol;
use crate::performative::field::Composite;
use crate::performative::{Open, Source};
use crate::sasl::{Client, Init, SaslFrame, Secret, Server};

/// What a client sends that waits for nothing: SASL, open, begin and attach at once.
fn all_at_once() -> Vec<u8> {
    let mut out = Protocol::Sasl.header().to_vec();
    let start = frame::begin(FrameKind::Sasl, 0, &mut out);
    let init = Init {
        mechanism: "ANONYMOUS".into(),
        initial_response: Some(Secret(Bytes::new())),
        hostname: Some("localhost".into()),
    };
    SaslFrame::Init(init).encode(&mut out).unwrap();
    frame::finish(start, 0, &mut out);
    out.extend(Protocol::Amqp.header());
    let mut frame = |body: Performative| {
        let start = frame::begin(FrameKind::Amqp, 0, &mut out);
        body.encode(&mut out).unwrap();
        frame::finish(start, 0, &mut out);
    };
    frame(Open { max_frame_size: 1_048_576, ..Open::new("all at once") }.into());
    frame(begin().into());
    frame(Attach::sender("sender", "amqps://localhost/hub").into());
    out
}

#[test]
fn a_client_that_waits_for_nothing_is_understood_wherever_its_bytes_are_cut() {
    let bytes = all_at_once();
    for cut in 0..bytes.len() {
        let mut raw = Raw::new(Options::new("server"));
        raw.bytes(&bytes[..cut]);
        raw.bytes(&bytes[cut..]);
        let events = raw.events();
        let [Event::Opened(open), Event::Begun(_), Event::Attaching { attach, .. }] = &events[..] else {
            panic!("cut at {cut}: {events:?}")
        };
        assert_eq!(&*open.container_id, "all at once");
        assert_eq!(attach.address(), Some("amqps://localhost/hub"));
    }
}

#[test]
fn a_server_answers_with_these_bytes() {
    let mut raw = Raw::new(Options::new("hub"));
    raw.bytes(&all_at_once()[..8]);
    let mut out = BytesMut::new();
    carry(&mut raw.server, &mut out, usize::MAX);
    let expected = [
        b"AMQP\x03\x01\x00\x00".as_slice(),
        &[0, 0, 0, 51, 2, 1, 0, 0],       // a SASL frame
        &[0x00, 0x53, 0x40, 0xc0, 38, 1], // mechanisms: one field
        &[0xe0, 35, 4, 0xa3],             // an array of four symbols
        b"\x07MSSBCBS\x05PLAIN\x09ANONYMOUS\x08EXTERNAL",
    ];
    assert_eq!(out[..], expected.concat());
}

#[test]
fn a_client_may_skip_sasl_unless_it_is_required() {
    let pair = |server| {
        let (client, hub) = (Options::new("client"), Options::new("server"));
        let mut pair = Pair::with_sasl(client, Client::None, hub, server);
        pair.settle();
        pair
    };
    let mut allowed = pair(Server::default());
    assert!(allowed.client.is_open() && allowed.server.is_open());
    assert!(matches!(allowed.client_events()[..], [Event::Opened(_)]));
    let mut required = pair(Server::default().required());
    assert!(required.client.is_closed() && required.server.is_closed());
    let [Event::Closed { error: Some(error), by_peer: false }] = &required.server_events()[..] else {
        panic!()
    };
    assert_eq!(error.condition, condition::FRAMING_ERROR);
}

#[test]
fn a_user_is_let_in_by_password() {
    let check = || Server::default().check_plain(|login| (login.user, login.password) == ("u", "p"));
    let pair = |client| {
        let mut pair = Pair::with_sasl(Options::new("client"), client, Options::new("server"), check());
        pair.settle();
        pair
    };
    assert!(pair(Client::plain("u", "p")).client.is_open());
    assert!(pair(Client::Mssbcbs).client.is_open());
    assert!(pair(Client::External).server.is_open());
    let mut wrong = pair(Client::plain("u", "q"));
    for events in [wrong.client_events(), wrong.server_events()] {
        let [Event::Closed { error: Some(error), by_peer: false }] = &events[..] else {
            panic!("{events:?}")
        };
        assert_eq!(error.condition, condition::UNAUTHORIZED_ACCESS);
    }
}

#[test]
fn a_password_may_come_after_a_challenge() {
    let server = Server::default().check_plain(|login| (login.user, login.password) == ("u", "p"));
    let server = Connection::accept(Options::new("server"), server, Instant::now());
    let mut raw = Raw { server, input: BytesMut::new() };
    let sasl = |raw: &mut Raw, body: SaslFrame| {
        let mut out = Vec::new();
        let start = frame::begin(FrameKind::Sasl, 0, &mut out);
        body.encode(&mut out).unwrap();
        frame::finish(start, 0, &mut out);
        raw.bytes(&out);
    };
    raw.bytes(&Protocol::Sasl.header());
    sasl(
        &mut raw,
        SaslFrame::Init(Init { mechanism: "PLAIN".into(), initial_response: None, hostname: None }),
    );
    let response = Secret(Bytes::from_static(b"\0u\0p"));
    sasl(&mut raw, SaslFrame::Response(crate::sasl::Response { response }));
    raw.bytes(&Protocol::Amqp.header());
    raw.frame(0, &Open::new("client"));
    assert!(raw.server.is_open());
}

#[test]
fn a_mechanism_that_is_not_offered_is_not_used() {
    let server = Server::default().mechanisms(["PLAIN"]);
    let mut pair = Pair::with_sasl(Options::new("c"), Client::Anonymous, Options::new("s"), server);
    pair.settle();
    let [Event::Closed { error: Some(error), .. }] = &pair.client_events()[..] else { panic!() };
    assert_eq!(error.condition, condition::UNAUTHORIZED_ACCESS);
}

#[test]
fn who_speaks_something_else_is_told_what_is_spoken_here() {
    for hello in [&b"GET / HTTP/1.1\r\n"[..], b"AMQP\x02\x01\x00\x00", b"AMQP\x00\x00\x09\x01", &[0x16; 100]]
    {
        let mut raw = Raw::new(Options::new("server"));
        raw.bytes(hello);
        let mut out = BytesMut::new();
        carry(&mut raw.server, &mut out, usize::MAX);
        assert_eq!(out[..], Protocol::Sasl.header());
        let [Event::Closed { error: Some(error), by_peer: false }] = &raw.events()[..] else { panic!() };
        assert_eq!(error.condition, condition::FRAMING_ERROR);
        assert!(raw.input.is_empty());
    }
}

#[test]
fn sessions_and_links_may_be_started_before_the_connection_is_open() {
    let mut pair = Pair::default();
    let session = pair.client.begin().unwrap();
    let link = pair.client.attach(session, Attach::receiver("r", "hub")).unwrap();
    pair.client.set_credit(link, 5, false);
    pair.settle();
    let events = pair.server_events();
    let [
        Event::Opened(_),
        Event::Begun(_),
        Event::Attaching { link, attach },
        Event::Credit { credit: 5, .. },
    ] = &events[..]
    else {
        panic!("{events:?}")
    };
    assert_eq!(pair.server.sendable(*link), 0);
    pair.server.answer_attach(*link, attach.answer());
    assert_eq!(pair.server.sendable(*link), 5);
}

#[test]
fn what_an_open_says_is_kept_to() {
    let options = Options { frame_bytes_max: 512, ..Options::new("narrow") };
    let mut pair = Pair::new(options, Options::new("server"));
    pair.settle();
    assert_eq!(pair.server.frame_out_bytes, 512);
    // Less than the standard's least is taken for that.
    let mut raw = Raw::new(Options::new("server"));
    raw.bytes(&Protocol::Amqp.header());
    raw.frame(0, &Open { max_frame_size: 3, ..Open::new("absurd") });
    assert_eq!(raw.server.frame_out_bytes, 512);
}

#[test]
fn close_before_open_is_the_end_at_once() {
    let mut client = Connection::connect(Options::new("c"), Client::Anonymous, Instant::now());
    client.close(None);
    assert_eq!(client.poll(), Some(Event::Closed { error: None, by_peer: false }));
    assert!(client.is_closed());
}

#[test]
fn a_server_that_closes_before_it_was_opened_opens_first() {
    let mut raw = Raw::new(Options::new("server"));
    raw.bytes(&Protocol::Amqp.header());
    raw.server.close(Some(Error::new(condition::CONNECTION_FORCED, "not now")));
    let mut header = BytesMut::new();
    carry(&mut raw.server, &mut header, 8);
    let frames = raw.frames();
    let [(0, Performative::Open(_), _), (0, Performative::Close(_), _)] = &frames[..] else { panic!() };
}

#[test]
fn a_terminus_is_echoed_as_it_came() {
    let filter = partita_core::model::Value::Map(vec![(
        crate::types::Symbol::from("apache.org:selector-filter:string").into(),
        partita_core::model::Value::Described(
            Box::new(partita_core::model::Value::Ulong(0x468c_0000_0004)),
            Box::new("amqp.annotation.x-opt-offset >'-1'".into()),
        ),
    )]);
    let mut attach = Attach::receiver("r", "hub");
    attach.source = Some(Source { filter, ..Source::from("hub") });
    let mut asked = Vec::new();
    attach.source.as_ref().unwrap().encode(&mut asked).unwrap();
    let (mut raw, _) = Raw::begun(Options::new("server"));
    raw.frame(0, &attach);
    let [Event::Attaching { link, attach }] = &raw.events()[..] else { panic!() };
    raw.server.answer_attach(*link, attach.answer());
    let [(0, Performative::Attach(answer), _)] = &raw.frames()[..] else { panic!() };
    let mut answered = Vec::new();
    answer.source.as_ref().unwrap().encode(&mut answered).unwrap();
    assert_eq!(answered, asked);
}
