//! A client written frame by frame, which may say anything.

use bytes::{Bytes, BytesMut};
use partita_amqp::frame::{self, FrameKind};
use partita_amqp::performative::{
    Attach, Begin, Close, DeliveryTag, Detach, End, Error, Flow, Open, Performative, Transfer,
};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::client::{Hosted, soon};

pub(crate) const SASL: &[u8] = b"AMQP\x03\x01\x00\x00";
pub(crate) const AMQP: &[u8] = b"AMQP\x00\x01\x00\x00";

/// A connection of bytes. Its open without SASL is what a client may do.
pub(crate) struct Raw {
    pub(crate) stream: TcpStream,
    input: BytesMut,
    /// The largest frame that came.
    pub(crate) largest: usize,
}

pub(crate) fn encoded(channel: u16, performative: impl Into<Performative>, payload: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    let start = frame::begin(FrameKind::Amqp, channel, &mut out);
    performative.into().encode(&mut out).expect("it has an encoding");
    out.extend_from_slice(payload);
    frame::finish(start, 0, &mut out);
    out
}

pub(crate) fn begin() -> Begin {
    Begin {
        remote_channel: None,
        next_outgoing_id: 0,
        incoming_window: 5_000,
        outgoing_window: 5_000,
        handle_max: u32::MAX,
        offered_capabilities: Vec::new(),
        desired_capabilities: Vec::new(),
        properties: Vec::new(),
    }
}

pub(crate) fn flow(handle: Option<u32>, credit: Option<u32>) -> Flow {
    Flow {
        next_incoming_id: Some(0),
        incoming_window: 5_000,
        next_outgoing_id: 0,
        outgoing_window: 5_000,
        handle,
        delivery_count: handle.map(|_| 0),
        link_credit: credit,
        available: None,
        drain: false,
        echo: false,
        properties: Vec::new(),
    }
}

pub(crate) fn transfer(handle: u32, id: u32) -> Transfer {
    Transfer {
        delivery_id: Some(id),
        delivery_tag: Some(DeliveryTag::from(u64::from(id))),
        message_format: Some(0),
        settled: Some(false),
        ..Transfer::part(handle)
    }
}

pub(crate) fn attach(handle: u32, attach: Attach) -> Attach {
    Attach { handle, ..attach }
}

pub(crate) fn detach(handle: u32) -> Detach {
    Detach { handle, closed: true, error: None }
}

impl Raw {
    /// One that has said nothing.
    pub(crate) async fn connect(hosted: &Hosted) -> Self {
        let stream = TcpStream::connect(hosted.address).await.expect("connects");
        stream.set_nodelay(true).expect("set");
        Self { stream, input: BytesMut::new(), largest: 0 }
    }

    /// One that is open.
    pub(crate) async fn open(hosted: &Hosted, open: Open) -> Self {
        let mut raw = Self::connect(hosted).await;
        raw.say(AMQP).await;
        raw.tell(0, open).await;
        assert_eq!(raw.header().await, AMQP);
        let (0, Performative::Open(_), _) = raw.frame().await else { panic!("no open came") };
        raw
    }

    /// One with a session on channel 0.
    pub(crate) async fn begun(hosted: &Hosted) -> Self {
        let mut raw = Self::open(hosted, Open::new("raw")).await;
        raw.tell(0, begin()).await;
        let (0, Performative::Begin(_), _) = raw.frame().await else { panic!("no begin came") };
        raw
    }

    /// Says it, if anybody listens.
    pub(crate) async fn say(&mut self, bytes: &[u8]) {
        let _ = soon("reader of our bytes", self.stream.write_all(bytes)).await;
    }

    pub(crate) async fn tell(&mut self, channel: u16, performative: impl Into<Performative>) {
        self.tell_with(channel, performative, &[]).await;
    }

    pub(crate) async fn tell_with(&mut self, channel: u16, what: impl Into<Performative>, payload: &[u8]) {
        self.say(&encoded(channel, what, payload)).await;
    }

    async fn header(&mut self) -> [u8; 8] {
        let mut header = [0; 8];
        soon("header", self.stream.read_exact(&mut header)).await.expect("a header");
        header
    }

    /// The next frame that says something; none after the end.
    pub(crate) async fn next(&mut self) -> Option<(u16, Performative, Bytes)> {
        loop {
            if let Some((frame, used)) = frame::decode(&self.input, u32::MAX).expect("a frame") {
                let (channel, body) = (frame.channel, Bytes::copy_from_slice(frame.body));
                self.largest = self.largest.max(used);
                let _ = self.input.split_to(used);
                if !body.is_empty() {
                    let (performative, payload) = Performative::decode(&body).expect("a performative");
                    return Some((channel, performative, payload));
                }
                continue;
            }
            match soon("frame", self.stream.read_buf(&mut self.input)).await {
                Ok(0) | Err(_) => return None,
                Ok(_) => {}
            }
        }
    }

    pub(crate) async fn frame(&mut self) -> (u16, Performative, Bytes) {
        self.next().await.expect("the connection did not end")
    }

    /// What the connection ends with: the error of its close, after which nothing comes.
    pub(crate) async fn closed(&mut self) -> Option<Error> {
        let mut error = None;
        while let Some((_, performative, _)) = self.next().await {
            if let Performative::Close(Close { error: told }) = performative {
                error = told;
            }
        }
        error
    }

    /// What the next session that the server ends is ended with. The connection goes on.
    pub(crate) async fn ended(&mut self) -> Error {
        loop {
            match self.frame().await {
                (_, Performative::End(End { error }), _) => return error.expect("a reason"),
                (_, Performative::Close(close), _) => panic!("{close:?}"),
                _ => {}
            }
        }
    }
}
