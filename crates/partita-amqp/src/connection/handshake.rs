//! From the first byte to the open: protocol headers and SASL.

use bytes::Bytes;

use super::{Connection, Event, FRAME_OUT_BYTES_MAX};
use crate::frame::{self, FRAME_BYTES_MIN, FrameKind, HEADER_BYTES, Protocol};
use crate::performative::{Error, Open, condition};
use crate::sasl::{self, Response, SaslFrame};
use crate::types::Symbol;

/// Which end this is.
#[derive(Debug)]
pub(super) enum Side {
    Server(sasl::Server),
    Client(sasl::Client),
}

/// What is expected next from the peer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Phase {
    /// Its first header.
    Header,
    /// The choice of a client, or what a server offers.
    SaslFirst,
    /// The answer to a challenge, or a challenge or the outcome.
    SaslMore,
    /// The header after SASL, or of a server without it.
    AmqpHeader,
    /// Its open.
    Opening,
    /// Anything.
    Open,
    /// Its close.
    Closing,
    /// Nothing.
    Closed,
}

impl Phase {
    pub(super) fn is_sasl(self) -> bool {
        matches!(self, Self::SaslFirst | Self::SaslMore)
    }

    pub(super) fn is_over(self) -> bool {
        matches!(self, Self::Closing | Self::Closed)
    }
}

impl Connection {
    pub(super) fn start_client(&mut self) {
        match &self.side {
            Side::Client(sasl::Client::None) => self.start_amqp(),
            _ => self.outbox.small().extend(Protocol::Sasl.header()),
        }
    }

    /// A client says all that it has to say.
    fn start_amqp(&mut self) {
        self.outbox.small().extend(Protocol::Amqp.header());
        self.send_open();
        self.phase = Phase::AmqpHeader;
    }

    pub(super) fn on_header(&mut self, header: &[u8; HEADER_BYTES]) {
        let protocol = Protocol::of(header);
        match (&self.side, self.phase, protocol) {
            (Side::Server(sasl), Phase::Header, Some(Protocol::Sasl)) => {
                let offer = sasl.offer();
                self.outbox.small().extend(Protocol::Sasl.header());
                self.write_sasl(&offer);
                self.phase = Phase::SaslFirst;
            }
            (Side::Server(sasl), Phase::Header, Some(Protocol::Amqp)) if !sasl.is_required() => {
                self.outbox.small().extend(Protocol::Amqp.header());
                self.phase = Phase::Opening;
            }
            (Side::Server(_), Phase::AmqpHeader, Some(Protocol::Amqp)) => {
                self.outbox.small().extend(Protocol::Amqp.header());
                self.phase = Phase::Opening;
            }
            (Side::Client(_), Phase::Header, Some(Protocol::Sasl)) => self.phase = Phase::SaslFirst,
            (Side::Client(_), Phase::AmqpHeader, Some(Protocol::Amqp)) => self.phase = Phase::Opening,
            (side, phase, _) => {
                // A server says what it would understand, and both are done.
                if let Side::Server(_) = side {
                    let expected = if phase == Phase::Header { Protocol::Sasl } else { Protocol::Amqp };
                    self.outbox.small().extend(expected.header());
                }
                let text =
                    format!("the peer begins with {:?}, not AMQP 1.0", header.escape_ascii().to_string());
                self.fail(Error::new(condition::FRAMING_ERROR, text));
            }
        }
    }

    /// `Err` ends the connection.
    pub(super) fn on_sasl(&mut self, body: &Bytes) -> Result<(), Error> {
        let frame = SaslFrame::decode(body);
        let frame = frame.map_err(|error| Error::new(condition::DECODE_ERROR, error.to_string()))?;
        let refused = |text: &str| Error::new(condition::UNAUTHORIZED_ACCESS, text);
        match (&self.side, self.phase, frame) {
            (Side::Server(sasl), Phase::SaslFirst, SaslFrame::Init(init)) => {
                let answer = sasl.answer(&init.mechanism, init.initial_response.as_ref());
                self.answer_sasl(&answer)
            }
            (Side::Server(sasl), Phase::SaslMore, SaslFrame::Response(response)) => {
                let answer = sasl.answer(&Symbol::from(sasl::PLAIN), Some(&response.response));
                self.answer_sasl(&answer)
            }
            (Side::Client(sasl), Phase::SaslFirst, SaslFrame::Mechanisms(offer)) => {
                let Some(init) = sasl.choose(&offer, self.options.hostname.as_ref()) else {
                    let text = format!("the server does not offer the SASL mechanism {sasl:?}");
                    return Err(refused(&text));
                };
                self.write_sasl(&init);
                self.phase = Phase::SaslMore;
                Ok(())
            }
            (Side::Client(sasl), Phase::SaslMore, SaslFrame::Challenge(_)) => {
                let response = sasl.response();
                self.write_sasl(&SaslFrame::Response(Response { response }));
                Ok(())
            }
            (Side::Client(_), Phase::SaslMore, SaslFrame::Outcome(outcome)) => {
                if outcome.code != 0 {
                    return Err(refused("the server refuses user or password"));
                }
                self.start_amqp();
                Ok(())
            }
            _ => Err(Error::new(condition::ILLEGAL_STATE, "the SASL frame is out of place")),
        }
    }

    fn answer_sasl(&mut self, answer: &SaslFrame) -> Result<(), Error> {
        self.write_sasl(answer);
        match answer {
            SaslFrame::Outcome(outcome) if outcome.code == 0 => self.phase = Phase::AmqpHeader,
            SaslFrame::Challenge(_) => self.phase = Phase::SaslMore,
            _ => {
                let text = "the client's SASL response was refused";
                return Err(Error::new(condition::UNAUTHORIZED_ACCESS, text));
            }
        }
        Ok(())
    }

    fn write_sasl(&mut self, frame: &SaslFrame) {
        let out = self.outbox.small();
        let start = frame::begin(FrameKind::Sasl, 0, out);
        // All that is in it is short, and its symbols are of a known set.
        if frame.encode(out).is_ok() {
            frame::finish(start, 0, out);
        } else {
            out.truncate(start);
        }
    }

    /// Writes our open and what waited for it, once.
    pub(super) fn send_open(&mut self) {
        if !self.open_sent {
            self.open_sent = true;
            let open = self.options.open();
            self.write(0, &open);
            let held = std::mem::take(&mut self.held);
            self.outbox.small().extend(held);
        }
    }

    pub(super) fn on_open(&mut self, open: Open, size: usize) {
        self.send_open();
        let frame_max = open.max_frame_size.clamp(FRAME_BYTES_MIN, FRAME_OUT_BYTES_MAX);
        self.frame_out_bytes = frame_max as usize;
        self.channel_out_max = open.channel_max;
        self.phase = Phase::Open;
        // A client gives up on its server after once to one and a half times the timeout, to connect again. A server waits for
        // twice as long as it says, as the service does, and hardly longer.
        let checks = match self.side {
            Side::Client(_) => (2, 2),
            Side::Server(_) => (8, 16),
        };
        self.clock.opened(self.options.idle_timeout, checks, open.idle_timeout_ms);
        self.tell(size, Event::Opened(Box::new(open)));
    }
}
