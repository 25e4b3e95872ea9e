//! Two ends, bytes cut anywhere, small windows and frames: every message arrives once and in order, and neither end ever
//! finds fault with the other.

use std::collections::VecDeque;

use proptest::prelude::*;

use super::*;
use crate::performative::{DeliveryState, Role};

/// What may happen next.
#[derive(Clone, Debug)]
enum Step {
    /// A message of this size is to be sent on a link.
    Send { link: usize, len: usize, settled: bool, with: bool },
    /// The receiver of a link gives credit.
    Credit { link: usize, credit: u32, drain: bool },
    /// Bytes move, to the server or to the client.
    Carry { to_server: bool, count: usize },
    /// An end takes its events.
    Poll { server: bool },
}

fn step() -> impl Strategy<Value = Step> {
    let len = prop_oneof![4 => 0..300usize, 2 => 300..2_000usize, 1 => 4_000..9_000usize];
    prop_oneof![
        4 => (0..4usize, len, any::<bool>(), any::<bool>())
            .prop_map(|(link, len, settled, with)| Step::Send { link, len, settled, with }),
        1 => (0..4usize, 0..6u32, prop::bool::weighted(0.1))
            .prop_map(|(link, credit, drain)| Step::Credit { link, credit, drain }),
        4 => (any::<bool>(), 1..3_000usize).prop_map(|(to_server, count)| Step::Carry { to_server, count }),
        3 => any::<bool>().prop_map(|server| Step::Poll { server }),
    ]
}

/// What is known about a link at its two ends.
#[derive(Default)]
struct Line {
    sender: Option<LinkId>,
    receiver: Option<LinkId>,
    to_send: VecDeque<(u64, Vec<u8>, bool, bool)>,
    /// In the order in which they were sent.
    sent: Vec<Sent>,
    received: usize,
    /// The highest delivery-count that any credit allowed.
    allowed: u32,
}

struct Sent {
    id: DeliveryId,
    tag: u64,
    payload: Vec<u8>,
    settled: bool,
    has_outcome: bool,
}

struct World {
    pair: Pair,
    /// The first half goes to the server, the second to the client; each session has some of both.
    lines: [Line; 4],
    tags: u64,
}

fn options(name: &str, frame_bytes_max: u32, window: u32) -> Options {
    let mut options = Options { frame_bytes_max, ..Options::new(name) };
    options.limits.session_window = window;
    options.limits.events_max = 16;
    options.limits.events_bytes_max = 8_000;
    options.limits.unsettled_max = 8;
    options.limits.reassembly_bytes_max = 40_000;
    options
}

impl World {
    fn new(frames: (u32, u32), windows: (u32, u32)) -> Self {
        let client = options("client", frames.0, windows.0);
        let mut pair = Pair::new(client, options("server", frames.1, windows.1));
        let mut lines: [Line; 4] = Default::default();
        let sessions = [pair.client.begin().unwrap(), pair.client.begin().unwrap()];
        for (at, line) in lines.iter_mut().enumerate() {
            let name = at.to_string();
            let session = sessions[at % 2];
            if at < 2 {
                line.sender = pair.client.attach(session, Attach::sender(name, "hub"));
            } else {
                line.receiver = pair.client.attach(session, Attach::receiver(name, "hub"));
            }
        }
        Self { pair, lines, tags: 0 }
    }

    fn end(&mut self, server: bool) -> &mut Connection {
        if server { &mut self.pair.server } else { &mut self.pair.client }
    }

    fn apply(&mut self, step: Step) {
        match step {
            Step::Send { link, len, settled, with } => {
                let tag = self.tags;
                self.tags += 1;
                let payload = (0..len).map(|at| (at as u64 * 7 + tag) as u8).collect();
                self.lines[link].to_send.push_back((tag, payload, settled, with));
                self.send(link);
            }
            Step::Credit { link, credit, drain } => {
                self.credit(link, credit, drain);
            }
            Step::Carry { to_server: true, count } => {
                carry(&mut self.pair.client, &mut self.pair.to_server, count);
                self.pair.server.receive(&mut self.pair.to_server);
            }
            Step::Carry { to_server: false, count } => {
                carry(&mut self.pair.server, &mut self.pair.to_client, count);
                self.pair.client.receive(&mut self.pair.to_client);
            }
            Step::Poll { server } => self.poll(server),
        }
        self.check();
    }

    fn credit(&mut self, at: usize, credit: u32, drain: bool) {
        if let Some(receiver) = self.lines[at].receiver {
            let end = self.end(at < 2);
            let count = end.links.get(receiver).and_then(|link| link.delivery_count).unwrap_or(0);
            end.set_credit(receiver, credit, drain);
            let line = &mut self.lines[at];
            line.allowed = line.allowed.max(count + credit);
        }
    }

    fn send(&mut self, at: usize) {
        let Line { sender: Some(sender), .. } = self.lines[at] else { return };
        while let Some((tag, payload, settled, with)) = self.lines[at].to_send.pop_front() {
            let message = Outgoing { settled, ..Outgoing::settled(tag) };
            let end = self.end(at >= 2);
            let sendable = end.sendable(sender);
            let result = match with {
                true => end.send_with(sender, message, |out| {
                    out.extend_from_slice(&payload);
                    Ok(())
                }),
                false => end.send(sender, message, payload.clone().into()),
            };
            match result {
                Ok(id) => self.lines[at].sent.push(Sent { id, tag, payload, settled, has_outcome: false }),
                Err(error) => {
                    assert!(error.is_temporary() || error == SendError::Detached, "{error}");
                    assert_eq!(sendable, 0);
                    self.lines[at].to_send.push_front((tag, payload, settled, with));
                    return;
                }
            }
        }
        self.end(at >= 2).drained(sender);
    }

    fn poll(&mut self, server: bool) {
        while let Some(event) = self.end(server).poll() {
            match event {
                Event::Attaching { link, attach } => {
                    let line = &mut self.lines[attach.name.parse::<usize>().unwrap()];
                    match attach.role {
                        Role::Sender => line.receiver = Some(link),
                        Role::Receiver => line.sender = Some(link),
                    }
                    self.end(server).answer_attach(link, attach.answer());
                }
                Event::Delivery(delivery) => self.received(server, delivery),
                Event::Outcome { link, ids, state, settled } => {
                    assert_eq!((state, settled), (Some(DeliveryState::Accepted), true));
                    let line = self.lines.iter_mut().find(|line| line.sender == Some(link)).unwrap();
                    for sent in line.sent.iter_mut().filter(|sent| !sent.settled && ids.contains(sent.id)) {
                        assert!(!sent.has_outcome, "a second outcome");
                        sent.has_outcome = true;
                    }
                }
                Event::Detached { .. } | Event::Ended { .. } | Event::Closed { .. } => panic!("{event:?}"),
                _ => {}
            }
        }
        // What was read before and waited for room.
        let Pair { client, server: hub, to_client, to_server } = &mut self.pair;
        if server {
            hub.receive(to_server)
        } else {
            client.receive(to_client)
        };
        (0..4).for_each(|at| self.send(at));
    }

    fn received(&mut self, server: bool, delivery: Delivery) {
        let ends = if server { 0..2 } else { 2..4 };
        let line = self.lines[ends].iter_mut().find(|line| line.receiver == Some(delivery.link)).unwrap();
        let sent = &line.sent[line.received];
        assert_eq!((delivery.id, delivery.tag, delivery.settled), (sent.id, sent.tag.into(), sent.settled));
        assert!(delivery.payload == sent.payload[..], "the payload of {} changed", sent.tag);
        line.received += 1;
        if !delivery.settled {
            self.end(server).settle(delivery.link, delivery.id, DeliveryState::Accepted);
        }
    }

    /// What holds at every moment.
    fn check(&mut self) {
        for end in [&self.pair.client, &self.pair.server] {
            // A frame may cause an event per link, and one more for its session.
            assert!(end.events.len() <= 16 + 5, "{} events", end.events.len());
            // What was put together counts to the one and then to the other.
            let bytes = end.events_bytes + end.reassembly_bytes;
            assert!(bytes <= 8_000 + 40_000, "{bytes} bytes of messages");
        }
        let Pair { client, server, .. } = &self.pair;
        for channel in 0..2 {
            let ours = client.by_local_channel.get(channel).and_then(|id| client.sessions.get(id));
            let theirs = server.by_remote_channel.get(channel).and_then(|id| server.sessions.get(id));
            for (from, to) in [(ours, theirs), (theirs, ours)] {
                let (Some(from), Some(to)) = (from, to) else { continue };
                let allowed = to.next_incoming_id.unwrap_or(0) + to.incoming_window;
                assert!(from.next_outgoing_id <= allowed, "more was sent than the window allows");
            }
        }
        for (at, line) in self.lines.iter().enumerate() {
            let sending = if at < 2 { &self.pair.client } else { &self.pair.server };
            if let Some(link) = line.sender.and_then(|link| sending.links.get(link)) {
                assert!(link.outgoing.unsettled.len() <= 8);
                assert!(link.delivery_count.unwrap() <= line.allowed, "more was sent than the credit allows");
            }
        }
    }

    /// Lets everything happen until nothing is left to be sent.
    fn finish(&mut self) {
        for _ in 0..20_000 {
            for server in [true, false] {
                self.apply(Step::Poll { server });
                self.apply(Step::Carry { to_server: server, count: usize::MAX });
            }
            for at in 0..4 {
                let receiver = self.lines[at].receiver;
                if receiver.is_some_and(|receiver| self.end(at < 2).credit(receiver) <= 5) {
                    self.credit(at, 10, false);
                }
            }
            let is_done = |line: &Line| line.to_send.is_empty() && line.received == line.sent.len();
            if self.lines.iter().all(is_done) {
                return;
            }
        }
        panic!("something waits for ever");
    }
}

proptest! {
    #[test]
    fn every_message_arrives_once_and_in_order(
        steps in prop::collection::vec(step(), 1..200),
        frames in (512..3_000u32, 512..70_000u32),
        windows in (1..6u32, 1..30u32),
    ) {
        let mut world = World::new(frames, windows);
        steps.into_iter().for_each(|step| world.apply(step));
        world.finish();
        // The last outcomes are still on their way.
        for _ in 0..4 {
            for server in [true, false] {
                world.apply(Step::Carry { to_server: server, count: usize::MAX });
                world.apply(Step::Poll { server });
            }
        }
        for line in &world.lines {
            prop_assert!(line.sent.iter().all(|sent| sent.settled != sent.has_outcome), "an outcome is missing");
        }
        prop_assert_eq!(world.pair.client.reassembly_bytes + world.pair.server.reassembly_bytes, 0);
    }
}
