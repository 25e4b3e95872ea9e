//! Framing alone: transfers of the same bytes over one connection on loopback, with a thread for each end, and no hub.

use std::io;
use std::time::{Duration, Instant};

use partita_amqp::connection::{Connection, Event, LinkId, Options, Outgoing};
use partita_amqp::driver::{Driver, Progress, now};
use partita_amqp::performative::Attach;
use partita_amqp::sasl;
use tokio::net::{TcpListener, TcpStream};

use super::hub::PARTITIONS;
use super::wire::{CREDIT, EVENT_BYTES, block_on};

const OUTBOX_BYTES_MAX: usize = 256 << 10;

/// Transfers per second, for as long as told.
pub(super) fn speed(time: Duration) -> f64 {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a free port");
    let address = listener.local_addr().expect("a port");
    listener.set_nonblocking(true).expect("a socket");
    std::thread::scope(|scope| {
        let server = scope.spawn(|| block_on(serve(listener)));
        let speed = block_on(async {
            let stream = TcpStream::connect(address).await.expect("the other end listens");
            drain(stream, time).await.expect("loopback does not fail")
        });
        let _ = server.join();
        speed
    })
}

/// Sends on all links, in turn, as much as credit, windows and the outbox take.
async fn serve(listener: std::net::TcpListener) -> io::Result<()> {
    let (stream, _) = TcpListener::from_std(listener)?.accept().await?;
    stream.set_nodelay(true)?;
    let connection = Connection::accept(Options::new("server"), sasl::Server::default(), now());
    let mut driver = Driver::new(stream, connection);
    let mut links: Vec<LinkId> = Vec::new();
    while driver.turn().await? != Progress::End {
        let connection = driver.connection();
        while let Some(event) = connection.poll() {
            if let Event::Attaching { link, attach } = event {
                connection.answer_attach(link, attach.answer());
                connection.ignore_outcomes(link);
                links.push(link);
            }
        }
        let mut sent = true;
        while std::mem::take(&mut sent) && connection.outbox().len() < OUTBOX_BYTES_MAX {
            for link in &links {
                for _ in 0..connection.sendable(*link).min(64) {
                    let encoded = connection.send_with(*link, Outgoing::settled(0), |out| {
                        out.extend_from_slice(&[7; EVENT_BYTES]);
                        Ok(())
                    });
                    sent |= encoded.is_ok();
                }
            }
        }
    }
    Ok(())
}

async fn drain(stream: TcpStream, time: Duration) -> io::Result<f64> {
    stream.set_nodelay(true)?;
    let mut connection = Connection::connect(Options::new("client"), sasl::Client::Anonymous, now());
    let session = connection.begin().expect("a new connection has room");
    for at in 0..PARTITIONS {
        let attach = Attach::receiver(format!("r{at}"), "hub");
        let link = connection.attach(session, attach).expect("a new session has room");
        connection.set_credit(link, CREDIT, false);
    }
    let mut driver = Driver::new(stream, connection);
    let (mut count, start) = (0_u64, Instant::now());
    while start.elapsed() < time {
        driver.turn().await?;
        let connection = driver.connection();
        while let Some(event) = connection.poll() {
            if let Event::Delivery(delivery) = event {
                count += u64::from(delivery.payload.len() == EVENT_BYTES);
                connection.top_up(delivery.link, CREDIT);
            }
        }
    }
    Ok(count as f64 / start.elapsed().as_secs_f64())
}
