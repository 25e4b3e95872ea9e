//! Connections on streams: a client and a server of this crate, with tokio's pipes and sockets between them.
#![cfg(feature = "tokio")]

use std::io;
use std::time::Duration;

use bytes::Bytes;
use partita_amqp::connection::{Connection, Event, Options, Outgoing, SendError};
use partita_amqp::driver::{Driver, Progress, now};
use partita_amqp::performative::{Attach, DeliveryState};
use partita_amqp::sasl;
use tokio::io::{AsyncRead, AsyncWrite};

const PATIENCE: Duration = Duration::from_secs(30);

fn server<S: AsyncRead + AsyncWrite + Unpin>(stream: S, options: Options) -> Driver<S> {
    Driver::new(stream, Connection::accept(options, sasl::Server::default(), now()))
}

fn client<S: AsyncRead + AsyncWrite + Unpin>(stream: S, options: Options) -> Driver<S> {
    Driver::new(stream, Connection::connect(options, sasl::Client::Anonymous, now()))
}

/// The next event. Its future is dropped and made again whenever it has to wait: nothing is lost by that.
async fn next<S: AsyncRead + AsyncWrite + Unpin>(driver: &mut Driver<S>) -> io::Result<Option<Event>> {
    loop {
        tokio::select! {
            biased;
            event = driver.event() => return event,
            () = tokio::task::yield_now() => {}
        }
    }
}

/// Takes messages on every link, and keeps their payloads. Ends with the connection.
async fn sink<S: AsyncRead + AsyncWrite + Unpin>(mut server: Driver<S>) -> io::Result<Vec<Bytes>> {
    let mut payloads = Vec::new();
    while let Some(event) = next(&mut server).await? {
        let connection = server.connection();
        match event {
            Event::Attaching { link, attach } => {
                connection.answer_attach(link, attach.answer());
                connection.set_credit(link, 10, false);
            }
            Event::Delivery(delivery) => {
                connection.settle(delivery.link, delivery.id, DeliveryState::Accepted);
                connection.top_up(delivery.link, 10);
                payloads.push(delivery.payload);
            }
            Event::Closed { .. } => break,
            _ => {}
        }
    }
    server.finish(PATIENCE).await?;
    Ok(payloads)
}

/// Sends these messages and closes when all were accepted.
async fn send_all<S: AsyncRead + AsyncWrite + Unpin>(
    mut client: Driver<S>,
    payloads: &[Bytes],
) -> io::Result<()> {
    let connection = client.connection();
    let session = connection.begin().unwrap();
    let link = connection.attach(session, Attach::sender("sender", "hub")).unwrap();
    let (mut sent, mut accepted) = (0, 0);
    while let Some(event) = client.event().await? {
        let connection = client.connection();
        match event {
            Event::Outcome { ids, state: Some(DeliveryState::Accepted), .. } => {
                accepted += ids.iter().count()
            }
            Event::Closed { error, .. } => {
                assert_eq!(error, None);
                break;
            }
            _ => {}
        }
        while sent < payloads.len() {
            let message = Outgoing::unsettled(sent as u64);
            match connection.send(link, message, payloads[sent].clone()) {
                Ok(_) => sent += 1,
                Err(SendError::Credit | SendError::Window | SendError::Detached) => break,
                Err(error) => panic!("{error}"),
            }
        }
        if accepted == payloads.len() {
            connection.close(None);
        }
    }
    client.finish(PATIENCE).await
}

fn payloads() -> Vec<Bytes> {
    let sizes = [0, 1, 100, 4_095, 4_096, 65_000, 65_536, 200_000, 1_000_000];
    (0..200).map(|at| Bytes::from(vec![at as u8; sizes[at % sizes.len()]])).collect()
}

#[tokio::test]
async fn all_messages_arrive_in_order_through_a_narrow_pipe() {
    let mut tight = Options { frame_bytes_max: 512, ..Options::new("server") };
    tight.limits.events_max = 3;
    tight.limits.events_bytes_max = 700;
    tight.limits.outbox_bytes_max = 100;
    tight.limits.session_window = 2;
    let payloads = payloads();
    for (options, width) in [(Options::new("server"), 1_000), (tight, 100_000)] {
        let (one, other) = tokio::io::duplex(width);
        let server = server(one, options);
        let client = client(other, Options::new("client"));
        let (received, sent) = tokio::join!(sink(server), send_all(client, &payloads));
        sent.unwrap();
        assert!(received.unwrap() == payloads);
    }
}

#[tokio::test]
async fn all_messages_arrive_in_order_over_tcp() {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let payloads = payloads();
    let serve = async {
        let (stream, _) = listener.accept().await?;
        sink(server(stream, Options::new("server"))).await
    };
    let send = async {
        let stream = tokio::net::TcpStream::connect(address).await?;
        send_all(client(stream, Options::new("client")), &payloads).await
    };
    let (received, sent) = tokio::join!(serve, send);
    sent.unwrap();
    assert!(received.unwrap() == payloads);
}

/// With tokio's clock paused, waiting is free and times are exact.
#[tokio::test(start_paused = true)]
async fn a_silent_but_living_peer_is_kept_by_heartbeats_and_a_dead_one_is_not() {
    let (one, other) = tokio::io::duplex(1000);
    let idle = |name: &str| Options { idle_timeout: Duration::from_secs(10), ..Options::new(name) };
    let mut server = server(one, idle("server"));
    let mut client = client(other, idle("client"));
    let mut alive = async |seconds| {
        let until = tokio::time::sleep(Duration::from_secs(seconds));
        tokio::pin!(until);
        loop {
            tokio::select! {
                progress = server.turn() => assert_ne!(progress.unwrap(), Progress::End),
                progress = client.turn() => assert_ne!(progress.unwrap(), Progress::End),
                () = &mut until => return,
            }
        }
    };
    alive(1_000).await;
    assert!(client.connection().is_open());
    // The client is there, but does nothing any more. A server waits for twice its time, from the last heartbeat on.
    let start = tokio::time::Instant::now();
    while server.turn().await.unwrap() != Progress::End {}
    assert!((17..=22).contains(&start.elapsed().as_secs()), "{:?}", start.elapsed());
    let last = std::iter::from_fn(|| server.connection().poll()).last();
    let Some(Event::Closed { error: Some(error), by_peer: false }) = last else { panic!("{last:?}") };
    assert_eq!(error.condition, "amqp:connection:forced");
}

#[tokio::test(start_paused = true)]
async fn who_says_nothing_at_first_is_not_waited_for_long() {
    let (one, _other) = tokio::io::duplex(1000);
    let mut server = server(one, Options::new("server"));
    let start = tokio::time::Instant::now();
    let event = server.event().await.unwrap();
    assert!(matches!(event, Some(Event::Closed { error: Some(_), by_peer: false })), "{event:?}");
    assert_eq!(start.elapsed().as_secs(), 30);
}

#[tokio::test]
async fn a_peer_that_hangs_up_is_the_end() {
    let (one, other) = tokio::io::duplex(1000);
    let mut server = server(one, Options::new("server"));
    drop(other);
    assert_eq!(server.turn().await.unwrap(), Progress::End);
    assert_eq!(server.event().await.unwrap(), None);
}
