//! One end of a connection, in either role, with its sessions and links: bytes go in, events come out, verbs are called,
//! bytes come out. There is no socket, runtime or clock in it; times are passed in.
//!
//! ```text
//! receive(bytes) -> poll() events -> verbs (answer, send, settle, ...) -> outbox() bytes; on_time(now) at deadline()
//! ```
//!
//! Whatever the peer does is bounded by [`Limits`]. What it does wrong ends the link, session or connection that it
//! belongs to, with the condition that the standard has for it; after an error that ends the connection, input is ignored.

mod event;
mod handshake;
mod incoming;
mod link;
mod options;
mod outbox;
mod outgoing;
mod session;
mod slots;
mod time;
mod unsettled;

#[cfg(test)]
mod tests;

use std::collections::VecDeque;
use std::time::Instant;

use bytes::{Buf, Bytes, BytesMut};
pub use event::{Delivery, DeliveryId, DeliveryRange, Event, Outgoing};
pub use options::{Limits, Options};
pub use outbox::{Outbox, SHARED_BYTES_MIN};
pub use outgoing::SendError;
pub use slots::{LinkId, SessionId};

use self::handshake::{Phase, Side};
use self::link::Link;
use self::session::{Session, SessionState};
use self::slots::{Numbered, Slots};
use self::time::Clock;
use crate::frame::{self, FRAME_BYTES_MIN, FrameKind, HEADER_BYTES};
use crate::performative::field::Composite;
use crate::performative::{Close, Error, Performative, Transfer, condition};
use crate::sasl;

/// The largest frame that we write, whatever the peer takes.
const FRAME_OUT_BYTES_MAX: u32 = 1024 * 1024;

/// About what a session and a link take, with their places in tables.
const SESSION_BYTES: usize = 1024;
const LINK_BYTES: usize = 1024;

/// One end of a connection.
#[derive(Debug)]
pub struct Connection {
    options: Options,
    side: Side,
    phase: Phase,
    /// Whether our open is written.
    open_sent: bool,
    outbox: Outbox,
    /// Frames that wait for our open.
    held: Vec<u8>,
    events: VecDeque<(usize, Event)>,
    /// The bytes of the frames whose events are in the queue.
    events_bytes: usize,
    sessions: Slots<SessionId, Session>,
    by_local_channel: Numbered<SessionId>,
    by_remote_channel: Numbered<SessionId>,
    /// The peer's channels whose sessions it ended.
    ended_channels: Numbered<()>,
    links: Slots<LinkId, Link>,
    /// The bytes of messages that are not complete, on all links.
    reassembly_bytes: usize,
    /// The largest frame that we write.
    frame_out_bytes: usize,
    channel_out_max: u16,
    clock: Clock,
}

impl Connection {
    /// The end of a server, which waits for a client.
    pub fn accept(options: Options, sasl: sasl::Server, now: Instant) -> Self {
        Self::new(options, Side::Server(sasl), now)
    }

    /// The end of a client. Sessions and links may be started at once; they go out when they may.
    pub fn connect(options: Options, sasl: sasl::Client, now: Instant) -> Self {
        let mut connection = Self::new(options, Side::Client(sasl), now);
        connection.start_client();
        connection
    }

    fn new(options: Options, side: Side, now: Instant) -> Self {
        let clock = Clock::new(options.handshake_timeout, now);
        Self {
            options,
            side,
            phase: Phase::Header,
            open_sent: false,
            outbox: Outbox::default(),
            held: Vec::new(),
            events: VecDeque::new(),
            events_bytes: 0,
            sessions: Slots::default(),
            by_local_channel: Numbered::default(),
            by_remote_channel: Numbered::default(),
            ended_channels: Numbered::default(),
            links: Slots::default(),
            reassembly_bytes: 0,
            frame_out_bytes: FRAME_BYTES_MIN as usize,
            channel_out_max: u16::MAX,
            clock,
        }
    }

    /// Takes complete frames off `input`; payloads share its memory. Returns whether it stopped before the end of what it
    /// could take, because events are to be polled or bytes written first: call it again after that.
    pub fn receive(&mut self, input: &mut BytesMut) -> bool {
        while !input.is_empty() {
            match self.phase {
                Phase::Closed => input.clear(),
                Phase::Header | Phase::AmqpHeader => {
                    let Some(header) = input.first_chunk::<HEADER_BYTES>().copied() else { return false };
                    input.advance(HEADER_BYTES);
                    self.on_header(&header);
                }
                _ => {
                    if self.is_full() {
                        return true;
                    }
                    match self.complete(input) {
                        Ok(0) => return false,
                        Ok(len) => {
                            let frames = input.split_to(len).freeze();
                            self.on_frames(&frames);
                        }
                        Err(error) => self.fail(Error::new(condition::FRAMING_ERROR, error.to_string())),
                    }
                }
            }
            self.clock.heard();
        }
        false
    }

    /// Sets how much the peer may do from now on. What it was told when the connection or a session began stays as it was told:
    /// sessions, handles, windows.
    pub fn set_limits(&mut self, limits: Limits) {
        self.options.limits = limits;
    }

    /// About how many bytes the peer makes us keep: parts of messages, events that nobody took, what it does not read, and
    /// what its sessions and links take.
    pub fn held_bytes(&self) -> usize {
        self.reassembly_bytes
            + self.events_bytes
            + self.outbox.len()
            + self.held.len()
            + self.sessions.len() * SESSION_BYTES
            + self.links.len() * LINK_BYTES
    }

    /// What is to be written.
    pub fn outbox(&mut self) -> &mut Outbox {
        &mut self.outbox
    }

    /// The next event.
    pub fn poll(&mut self) -> Option<Event> {
        let (bytes, event) = self.events.pop_front()?;
        self.events_bytes -= bytes;
        Some(event)
    }

    /// Ends the connection. [`Event::Closed`] follows when the peer has answered, or did not in time.
    pub fn close(&mut self, error: Option<Error>) {
        match self.phase {
            Phase::Closing | Phase::Closed => {}
            Phase::Opening | Phase::Open => {
                self.send_open();
                self.write(0, &Close { error });
                self.forget();
                self.phase = Phase::Closing;
                self.clock.closing(self.options.close_timeout);
            }
            // Nobody would understand a close.
            _ => self.finish(error, false),
        }
    }

    /// Whether both ends are open and neither closes.
    pub fn is_open(&self) -> bool {
        self.phase == Phase::Open
    }

    /// Whether the connection is gone: what is in the outbox is all that is still to be written.
    pub fn is_closed(&self) -> bool {
        self.phase == Phase::Closed
    }

    // ---- within -----------------------------------------------------------------------------------------------

    fn is_full(&self) -> bool {
        let limits = &self.options.limits;
        self.events.len() >= limits.events_max
            || self.events_bytes >= limits.events_bytes_max
            || self.outbox.len() >= limits.outbox_bytes_max
    }

    /// The length of the complete frames at the start of `input`, of as many as there is room for their events.
    fn complete(&self, input: &[u8]) -> Result<usize, frame::FrameError> {
        let limits = &self.options.limits;
        // After a SASL frame may come a header.
        let frames = if self.phase.is_sasl() { 1 } else { limits.events_max - self.events.len() };
        let bytes = limits.events_bytes_max - self.events_bytes;
        let mut len = 0;
        for _ in 0..frames {
            match frame::size(&input[len..], self.options.frame_bytes_max) {
                Ok(Some(size)) if len + size <= input.len() && (len == 0 || len + size <= bytes) => {
                    len += size
                }
                Ok(_) => break,
                // What is before it counts first.
                Err(_) if len > 0 => break,
                Err(error) => return Err(error),
            }
        }
        Ok(len)
    }

    fn on_frames(&mut self, frames: &Bytes) {
        let mut rest = &frames[..];
        while !rest.is_empty() && self.phase != Phase::Closed {
            let (frame, used) = match frame::decode(rest, self.options.frame_bytes_max) {
                Ok(Some(decoded)) => decoded,
                Ok(None) => return,
                Err(error) => return self.fail(Error::new(condition::FRAMING_ERROR, error.to_string())),
            };
            rest = &rest[used..];
            let result = match frame.kind {
                FrameKind::Sasl if self.phase.is_sasl() => self.on_sasl(&frames.slice_ref(frame.body)),
                FrameKind::Amqp if self.phase.is_sasl() => {
                    Err(Error::new(condition::FRAMING_ERROR, "a SASL frame belongs here"))
                }
                FrameKind::Sasl => Err(Error::new(condition::FRAMING_ERROR, "an AMQP frame belongs here")),
                FrameKind::Amqp if frame.body.is_empty() => Ok(()),
                FrameKind::Amqp => self.on_body(frames, frame.channel, frame.body),
            };
            if let Err(error) = result {
                self.fail(error);
            }
        }
    }

    /// `Err` ends the connection.
    #[inline]
    fn on_body(&mut self, frames: &Bytes, channel: u16, body: &[u8]) -> Result<(), Error> {
        // Most frames are transfers.
        if self.phase == Phase::Open
            && let Some(id) = self.by_remote_channel.get(channel.into())
            && let Some(session) = self.sessions.get(id)
            && session.state == SessionState::Begun
            && let Some((transfer, payload)) = Transfer::decode_usual(frames, body)
        {
            self.on_transfer(id, &transfer, frames, payload);
            return Ok(());
        }
        let (performative, payload) = match Performative::decode_within(frames, body) {
            Ok(decoded) => decoded,
            // A peer that was told to go may say what it likes.
            Err(_) if self.phase == Phase::Closing => return Ok(()),
            Err(error) => return Err(Error::new(condition::DECODE_ERROR, error.to_string())),
        };
        match (performative, self.phase) {
            (Performative::Close(Close { error }), _) => {
                if self.phase == Phase::Opening {
                    return Err(Error::new(condition::ILLEGAL_STATE, "an open belongs before a close"));
                }
                if self.phase != Phase::Closing {
                    self.write(0, &Close { error: None });
                }
                self.finish(error, true);
                Ok(())
            }
            (_, Phase::Closing) => Ok(()),
            (Performative::Open(open), Phase::Opening) => {
                self.on_open(*open, body.len());
                Ok(())
            }
            (Performative::Open(_), _) => {
                Err(Error::new(condition::ILLEGAL_STATE, "the connection is open already"))
            }
            (_, Phase::Opening) => Err(Error::new(condition::ILLEGAL_STATE, "an open belongs here")),
            (Performative::Begin(begin), _) => self.on_begin(channel, &begin),
            (performative, _) => {
                let Some(id) = self.by_remote_channel.get(channel.into()) else {
                    // Some clients end a session first and detach its links then.
                    if self.ended_channels.get(channel.into()).is_some() {
                        return Ok(());
                    }
                    let text = format!("no session was begun on channel {channel}");
                    return Err(Error::new(condition::NOT_ALLOWED, text));
                };
                self.on_session_frame(id, performative, frames, payload, body.len())
            }
        }
    }

    /// `Err` ends the connection.
    #[inline]
    fn on_session_frame(
        &mut self,
        id: SessionId,
        performative: Performative,
        frames: &Bytes,
        payload: &[u8],
        size: usize,
    ) -> Result<(), Error> {
        let ending = self.sessions.get(id).is_none_or(|session| session.state == SessionState::Ending);
        match performative {
            Performative::End(end) => self.on_end(id, end.error),
            // What the peer sent before it heard of the end.
            _ if ending => {}
            Performative::Transfer(transfer) => self.on_transfer(id, &transfer, frames, payload),
            Performative::Flow(flow) => self.on_flow(id, &flow),
            Performative::Disposition(disposition) => self.on_disposition(id, disposition),
            Performative::Attach(attach) => return self.on_attach(id, attach, size),
            Performative::Detach(detach) => self.on_detach(id, detach),
            Performative::Open(_) | Performative::Begin(_) | Performative::Close(_) => {}
        }
        Ok(())
    }

    /// Queues an event of a frame of so many bytes.
    #[inline]
    fn tell(&mut self, bytes: usize, event: Event) {
        self.events_bytes += bytes;
        self.events.push_back((bytes, event));
    }

    /// Writes a frame. Content of ours that has no encoding ends the connection: the peer could not make sense of it.
    fn write<B: Composite>(&mut self, channel: u16, body: &B) {
        let out = if self.open_sent { self.outbox.small() } else { &mut self.held };
        let start = frame::begin(FrameKind::Amqp, channel, out);
        match body.encode(out) {
            Ok(()) => frame::finish(start, 0, out),
            Err(error) => {
                out.truncate(start);
                self.fail(Error::new(condition::INTERNAL_ERROR, error.to_string()));
            }
        }
    }

    /// Ends the connection because of an error that the peer is told.
    fn fail(&mut self, error: Error) {
        match self.phase {
            Phase::Closed => return,
            Phase::Opening | Phase::Open => {
                self.send_open();
                self.write(0, &Close { error: Some(error.clone()) });
            }
            _ => {}
        }
        self.finish(Some(error), false);
    }

    /// Nothing more is read or said.
    fn finish(&mut self, error: Option<Error>, by_peer: bool) {
        if self.phase != Phase::Closed {
            self.forget();
            self.phase = Phase::Closed;
            self.clock.closed();
            self.tell(0, Event::Closed { error, by_peer });
        }
    }

    fn forget(&mut self) {
        self.sessions.clear();
        self.links.clear();
        self.by_local_channel = Numbered::default();
        self.by_remote_channel = Numbered::default();
        self.ended_channels = Numbered::default();
        self.reassembly_bytes = 0;
        self.held = Vec::new();
    }
}
