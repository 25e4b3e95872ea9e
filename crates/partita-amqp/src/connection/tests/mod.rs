//! Both ends of a connection against each other, in memory.

mod basics;
mod flow;
mod handshake;
mod limits;
mod pair;
mod python;
mod raw;
mod time;
mod violations;

use std::time::Instant;

use bytes::{Bytes, BytesMut};

use super::*;
use crate::performative::Attach;

/// A client and a server, and the bytes between them.
struct Pair {
    client: Connection,
    server: Connection,
    /// What arrived and was not taken yet.
    to_client: BytesMut,
    to_server: BytesMut,
}

impl Pair {
    fn new(client: Options, server: Options) -> Self {
        Self::with_sasl(client, sasl::Client::Anonymous, server, sasl::Server::default())
    }

    fn with_sasl(client: Options, theirs: sasl::Client, server: Options, ours: sasl::Server) -> Self {
        let now = Instant::now();
        Self {
            client: Connection::connect(client, theirs, now),
            server: Connection::accept(server, ours, now),
            to_client: BytesMut::new(),
            to_server: BytesMut::new(),
        }
    }

    fn default() -> Self {
        Self::new(Options::new("client"), Options::new("server"))
    }

    /// Moves all bytes both ways until there are none.
    fn settle(&mut self) {
        loop {
            let moved = carry(&mut self.client, &mut self.to_server, usize::MAX)
                + carry(&mut self.server, &mut self.to_client, usize::MAX);
            self.server.receive(&mut self.to_server);
            self.client.receive(&mut self.to_client);
            if moved == 0 {
                return;
            }
        }
    }

    fn client_events(&mut self) -> Vec<Event> {
        std::iter::from_fn(|| self.client.poll()).collect()
    }

    fn server_events(&mut self) -> Vec<Event> {
        std::iter::from_fn(|| self.server.poll()).collect()
    }

    /// An open pair with a session, as its two ends know it.
    fn begun() -> (Self, SessionId, SessionId) {
        let mut pair = Self::default();
        let client = pair.client.begin().unwrap();
        pair.settle();
        let [Event::Opened(_), Event::Begun(session)] = &pair.client_events()[..] else { panic!() };
        assert_eq!(*session, client);
        let [Event::Opened(_), Event::Begun(server)] = pair.server_events()[..] else { panic!() };
        (pair, client, server)
    }

    /// A pair with an attached link, on which the client has the role of `attach`; the link as each end knows it.
    fn attached(attach: Attach) -> (Self, LinkId, LinkId) {
        let (mut pair, session, _) = Self::begun();
        let client = pair.client.attach(session, attach).unwrap();
        pair.settle();
        let [Event::Attaching { link: server, attach }] = &pair.server_events()[..] else { panic!() };
        pair.server.answer_attach(*server, attach.answer());
        pair.settle();
        let [Event::Attached { link, .. }] = pair.client_events()[..] else { panic!() };
        assert_eq!(link, client);
        (pair, client, *server)
    }
}

/// Takes up to `max` bytes out of an outbox and returns how many there were.
fn carry(from: &mut Connection, to: &mut BytesMut, max: usize) -> usize {
    let outbox = from.outbox();
    let count = outbox.len().min(max);
    let mut left = count;
    for chunk in outbox.chunks() {
        let step = left.min(chunk.len());
        to.extend_from_slice(&chunk[..step]);
        left -= step;
    }
    outbox.advance(count);
    count
}
