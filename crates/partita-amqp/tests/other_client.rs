//! Another implementation's client against our server role: it judges what we write.
#![cfg(feature = "tokio")]

use std::collections::VecDeque;
use std::io;
use std::time::Duration;

use bytes::Bytes;
use fe2o3_amqp::connection::ConnectionHandle;
use fe2o3_amqp::link::receiver::CreditMode;
use fe2o3_amqp::sasl_profile::SaslProfile;
use fe2o3_amqp::types::definitions::{ReceiverSettleMode, SenderSettleMode};
use fe2o3_amqp::types::messaging::Outcome;
use fe2o3_amqp::types::primitives::Binary;
use fe2o3_amqp::{Connection as TheirConnection, Receiver, Sender, Session};
use partita_amqp::connection::{Connection, Event, LinkId, Options, Outgoing};
use partita_amqp::driver::{Driver, now};
use partita_amqp::performative::{DeliveryState, Error, Role, condition};
use partita_amqp::sasl;
use tokio::io::DuplexStream;
use tokio::task::JoinHandle;

const PATIENCE: Duration = Duration::from_secs(30);

/// A queue: what is sent to it is received from it. Messages of more than 1 MB, and whatever is sent to `nowhere`, it
/// refuses. Ends with the connection.
struct Queue {
    driver: Driver<DuplexStream>,
    messages: VecDeque<Bytes>,
    receivers: Vec<LinkId>,
    tags: u64,
}

impl Queue {
    async fn run(mut self) -> io::Result<Option<Error>> {
        while let Some(event) = self.driver.event().await? {
            if let Event::Closed { error, .. } = event {
                self.driver.finish(PATIENCE).await?;
                return Ok(error);
            }
            self.on_event(event);
            self.deliver();
        }
        Ok(None)
    }

    fn on_event(&mut self, event: Event) {
        let connection = self.driver.connection();
        match event {
            Event::Attaching { link, attach } => {
                connection.answer_attach(link, attach.answer());
                match attach.role {
                    _ if attach.address() == Some("nowhere") => {
                        let error = Error::new(condition::NOT_FOUND, "there is no such queue");
                        connection.detach(link, Some(error));
                    }
                    Role::Sender => connection.set_credit(link, 20, false),
                    Role::Receiver => self.receivers.push(link),
                }
            }
            Event::Delivery(delivery) => {
                let state = match delivery.payload.len() {
                    0..1_000_000 => {
                        self.messages.push_back(delivery.payload);
                        DeliveryState::Accepted
                    }
                    _ => DeliveryState::rejected(Error::new(condition::MESSAGE_SIZE_EXCEEDED, "too large")),
                };
                if !delivery.settled {
                    connection.settle(delivery.link, delivery.id, state);
                }
                connection.top_up(delivery.link, 20);
            }
            Event::Outcome { link, ids, state: Some(state), settled: false } => {
                connection.settle(link, ids, state);
            }
            Event::Detached { link, .. } => self.receivers.retain(|other| *other != link),
            _ => {}
        }
    }

    fn deliver(&mut self) {
        let connection = self.driver.connection();
        for link in &self.receivers {
            while connection.sendable(*link) > 0
                && let Some(message) = self.messages.pop_front()
            {
                connection.send(*link, Outgoing::unsettled(self.tags), message).unwrap();
                self.tags += 1;
            }
            if self.messages.is_empty() {
                connection.drained(*link);
            }
        }
    }
}

/// Their client, connected to a queue.
async fn connect(
    sasl: Option<SaslProfile>,
    max_frame_size: u32,
) -> (ConnectionHandle<()>, JoinHandle<io::Result<Option<Error>>>) {
    let (ours, theirs) = tokio::io::duplex(5_000);
    let server = sasl::Server::default().check_plain(|login| (login.user, login.password) == ("u", "p"));
    let options = Options { frame_bytes_max: max_frame_size, ..Options::new("queue") };
    let driver = Driver::new(ours, Connection::accept(options, server, now()));
    let queue = Queue { driver, messages: VecDeque::new(), receivers: Vec::new(), tags: 0 };
    let queue = tokio::spawn(queue.run());
    let builder = TheirConnection::builder().container_id("theirs").max_frame_size(max_frame_size);
    let builder = match sasl {
        Some(profile) => builder.sasl_profile(profile),
        None => builder,
    };
    (builder.open_with_stream(theirs).await.expect("open"), queue)
}

async fn closes(mut connection: ConnectionHandle<()>, queue: JoinHandle<io::Result<Option<Error>>>) {
    connection.close().await.expect("close");
    assert_eq!(queue.await.expect("no panic").expect("no error of I/O"), None);
}

fn payload(len: usize, at: usize) -> Binary {
    Binary::from((0..len).map(|byte| (byte + at) as u8).collect::<Vec<u8>>())
}

#[tokio::test]
async fn messages_of_all_sizes_go_through_the_server() {
    let plain = SaslProfile::Plain { username: "u".into(), password: "p".into() };
    for (sasl, frame) in [(None, 512), (Some(plain), 4_096), (Some(SaslProfile::Anonymous), 65_536)] {
        let (mut connection, queue) = connect(sasl, frame).await;
        let mut session = Session::begin(&mut connection).await.expect("begin");
        let mut sender = Sender::attach(&mut session, "sender", "queue").await.expect("attach");
        let mut receiver = Receiver::attach(&mut session, "receiver", "queue").await.expect("attach");
        let sizes = [0, 1, 255, 256, 400, 512, 5_000, 70_000, 300_000];
        for (at, len) in sizes.into_iter().cycle().take(60).enumerate() {
            let sent = payload(len, at);
            let outcome = sender.send(sent.clone()).await.expect("send");
            assert!(matches!(outcome, Outcome::Accepted(_)), "{outcome:?}");
            let delivery = receiver.recv::<Binary>().await.expect("recv");
            assert!(*delivery.body() == sent, "message {at} of {len} bytes changed");
            receiver.accept(&delivery).await.expect("accept");
        }
        sender.close().await.expect("detach");
        receiver.close().await.expect("detach");
        session.end().await.expect("end");
        closes(connection, queue).await;
    }
}

#[tokio::test]
async fn many_messages_keep_their_order_and_credit_flows() {
    let (mut connection, queue) = connect(None, 65_536).await;
    let mut session = Session::begin(&mut connection).await.expect("begin");
    let mut sender = Sender::attach(&mut session, "sender", "queue").await.expect("attach");
    let mut outcomes = Vec::new();
    for at in 0..2_000u32 {
        outcomes.push(sender.send_batchable(at).await.expect("send"));
    }
    for outcome in outcomes {
        assert!(matches!(outcome.await.expect("outcome"), Outcome::Accepted(_)));
    }
    // In another session, with little credit, and settled by the receiver second.
    let mut session = Session::begin(&mut connection).await.expect("begin");
    let mut receiver = Receiver::builder()
        .name("receiver")
        .source("queue")
        .credit_mode(CreditMode::Auto(3))
        .sender_settle_mode(SenderSettleMode::Unsettled)
        .receiver_settle_mode(ReceiverSettleMode::Second)
        .attach(&mut session)
        .await
        .expect("attach");
    for at in 0..2_000u32 {
        let delivery = receiver.recv::<u32>().await.expect("recv");
        assert_eq!(*delivery.body(), at);
        receiver.accept(&delivery).await.expect("accept");
    }
    closes(connection, queue).await;
}

#[tokio::test]
async fn refusals_are_understood() {
    let (mut connection, queue) = connect(None, 65_536).await;
    let mut session = Session::begin(&mut connection).await.expect("begin");
    let mut sender = Sender::attach(&mut session, "sender", "queue").await.expect("attach");
    let Outcome::Rejected(rejected) = sender.send(payload(1_000_000, 0)).await.expect("send") else {
        panic!("not rejected")
    };
    assert_eq!(rejected.error.expect("an error").description.as_deref(), Some("too large"));
    // The link goes on.
    assert!(matches!(sender.send(payload(10, 0)).await.expect("send"), Outcome::Accepted(_)));
    let lost = match Sender::attach(&mut session, "lost", "nowhere").await {
        Ok(mut sender) => format!("{:?}", sender.send(1).await.expect_err("there is no such queue")),
        Err(error) => format!("{error:?}"),
    };
    assert!(lost.contains("NotFound") && lost.contains("there is no such queue"), "{lost}");
    closes(connection, queue).await;
}
