//! A server against a peer that is written frame by frame, and may say anything.

use super::*;
use crate::frame::Protocol;
use crate::performative::field::Composite;
use crate::performative::{Begin, DeliveryTag, Detach, End, Open, Transfer};

/// A server, and what its peer writes and reads.
pub(super) struct Raw {
    pub(super) server: Connection,
    pub(super) input: BytesMut,
}

impl Raw {
    /// A server that was told nothing yet.
    pub(super) fn new(options: Options) -> Self {
        let server = Connection::accept(options, sasl::Server::default(), Instant::now());
        Self { server, input: BytesMut::new() }
    }

    /// A server with an open connection, without SASL.
    pub(super) fn open(options: Options) -> Self {
        let mut raw = Self::new(options);
        raw.bytes(&Protocol::Amqp.header());
        raw.frame(0, &Open::new("raw"));
        let [Event::Opened(_)] = &raw.events()[..] else { panic!() };
        let mut header = BytesMut::new();
        carry(&mut raw.server, &mut header, 8);
        assert_eq!(header[..], Protocol::Amqp.header());
        let [(0, Performative::Open(_), _)] = &raw.frames()[..] else { panic!() };
        raw
    }

    /// A server with a session on channel 0.
    pub(super) fn begun(options: Options) -> (Self, SessionId) {
        let mut raw = Self::open(options);
        raw.frame(0, &begin());
        let [Event::Begun(session)] = raw.events()[..] else { panic!() };
        let [(0, Performative::Begin(_), _)] = &raw.frames()[..] else { panic!() };
        (raw, session)
    }

    /// A server with a link of handle 0, on which the peer sends and has this credit.
    pub(super) fn sender(options: Options, credit: u32) -> (Self, LinkId) {
        let (mut raw, _) = Self::begun(options);
        let link = raw.attach(0, Attach::sender("s", "hub"));
        raw.server.set_credit(link, credit, false);
        raw.frames();
        (raw, link)
    }

    /// A server with a link of handle 0, on which the peer receives.
    pub(super) fn receiver(options: Options) -> (Self, LinkId) {
        let (mut raw, _) = Self::begun(options);
        let link = raw.attach(0, Attach::receiver("r", "hub"));
        (raw, link)
    }

    /// Attaches on channel 0, and is granted what it asks for.
    pub(super) fn attach(&mut self, handle: u32, attach: Attach) -> LinkId {
        self.frame(0, &Attach { handle, ..attach });
        let [Event::Attaching { link, attach }] = &self.events()[..] else { panic!() };
        self.server.answer_attach(*link, attach.answer());
        let [(0, Performative::Attach(_), _)] = &self.frames()[..] else { panic!() };
        *link
    }

    pub(super) fn bytes(&mut self, bytes: &[u8]) {
        self.input.extend_from_slice(bytes);
        self.server.receive(&mut self.input);
    }

    pub(super) fn frame<B: Composite>(&mut self, channel: u16, body: &B) {
        self.frame_with(channel, body, &[]);
    }

    pub(super) fn frame_with<B: Composite>(&mut self, channel: u16, body: &B, payload: &[u8]) {
        let mut out = Vec::new();
        let start = frame::begin(FrameKind::Amqp, channel, &mut out);
        body.encode(&mut out).unwrap();
        out.extend_from_slice(payload);
        frame::finish(start, 0, &mut out);
        self.bytes(&out);
    }

    /// The frames that the server wrote.
    pub(super) fn frames(&mut self) -> Vec<(u16, Performative, Bytes)> {
        let mut all = BytesMut::new();
        carry(&mut self.server, &mut all, usize::MAX);
        let mut frames = Vec::new();
        let mut rest = &all[..];
        while let Some((frame, used)) = frame::decode(rest, u32::MAX).unwrap() {
            if !frame.body.is_empty() {
                let (body, payload) = Performative::decode(&Bytes::copy_from_slice(frame.body)).unwrap();
                frames.push((frame.channel, body, payload));
            }
            rest = &rest[used..];
        }
        assert!(rest.is_empty());
        frames
    }

    pub(super) fn events(&mut self) -> Vec<Event> {
        std::iter::from_fn(|| self.server.poll()).collect()
    }

    /// The condition with which the server closed the connection, which is the last that it says.
    pub(super) fn closed_with(&mut self) -> String {
        let frames = self.frames();
        let Some((0, Performative::Close(Close { error: Some(error) }), _)) = frames.last() else {
            panic!("{frames:?}")
        };
        let events = self.events();
        let closed = Event::Closed { error: Some(error.clone()), by_peer: false };
        assert_eq!(events.last(), Some(&closed));
        assert!(self.server.is_closed());
        // It is over: nothing is answered any more.
        self.frame(0, &begin());
        assert_eq!((self.frames(), self.events()), (vec![], vec![]));
        error.condition.to_string()
    }

    /// The condition with which the server ended the session on channel 0, while the connection goes on.
    pub(super) fn ended_with(&mut self) -> String {
        let frames = self.frames();
        let Some((0, Performative::End(End { error: Some(error) }), _)) = frames.last() else {
            panic!("{frames:?}")
        };
        let events = self.events();
        let Some(Event::Ended { error: Some(told), .. }) = events.last() else { panic!("{events:?}") };
        assert_eq!(told, error);
        // What comes late is ignored; the answer makes the channel free again.
        self.frame(0, &transfer(9, 77));
        assert_eq!((self.frames(), self.events()), (vec![], vec![]));
        self.frame(0, &End { error: None });
        assert_eq!((self.frames(), self.events()), (vec![], vec![]));
        self.frame(0, &begin());
        assert!(matches!(self.events()[..], [Event::Begun(_)]));
        self.frames();
        error.condition.to_string()
    }

    /// The condition with which the server detached the link of handle 0, while its session goes on.
    pub(super) fn detached_with(&mut self) -> String {
        let frames = self.frames();
        let Some((0, Performative::Detach(Detach { handle: 0, closed: true, error: Some(error) }), _)) =
            frames.last()
        else {
            panic!("{frames:?}")
        };
        let events = self.events();
        let Some(Event::Detached { error: Some(told), closed: true, .. }) = events.last() else {
            panic!("{events:?}")
        };
        assert_eq!(told, error);
        // What comes late is ignored; the answer makes the handle free again.
        self.frame_with(0, &transfer(0, 78), b"late");
        assert_eq!((self.frames(), self.events()), (vec![], vec![]));
        self.frame(0, &Detach { handle: 0, closed: true, error: None });
        assert_eq!((self.frames(), self.events()), (vec![], vec![]));
        self.attach(0, Attach::sender("again", "hub"));
        error.condition.to_string()
    }
}

pub(super) fn begin() -> Begin {
    Begin {
        remote_channel: None,
        next_outgoing_id: 0,
        incoming_window: 100,
        outgoing_window: 100,
        handle_max: u32::MAX,
        offered_capabilities: Vec::new(),
        desired_capabilities: Vec::new(),
        properties: Vec::new(),
    }
}

/// A whole message's transfer.
pub(super) fn transfer(handle: u32, id: u32) -> Transfer {
    Transfer {
        delivery_id: Some(id),
        delivery_tag: Some(DeliveryTag::from(u64::from(id))),
        message_format: Some(0),
        settled: Some(false),
        ..Transfer::part(handle)
    }
}
