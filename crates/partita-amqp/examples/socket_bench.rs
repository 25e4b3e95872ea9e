//! How many messages of 256 bytes go from a server to a client per second, over one connection on loopback with a thread
//! for each end: `cargo run --release -p partita-amqp --features tokio --example socket_bench`. Of many short spans the
//! best counts, and the median is beside it.
#![allow(clippy::print_stdout)]

use std::io;
use std::time::{Duration, Instant};

use partita_amqp::connection::{Connection, Event, LinkId, Options, Outgoing};
use partita_amqp::driver::{Driver, Progress, now};
use partita_amqp::performative::Attach;
use partita_amqp::sasl;
use tokio::net::{TcpListener, TcpStream};

const PAYLOAD: [u8; 256] = [7; 256];
const LINKS: usize = 16;
const CREDIT: u32 = 5_000;
const OUTBOX_BYTES: usize = 256 * 1024;
const SPAN: Duration = Duration::from_millis(50);
const SPANS: usize = 100;

fn main() -> io::Result<()> {
    let listener = std::net::TcpListener::bind("127.0.0.1:0")?;
    let address = listener.local_addr()?;
    listener.set_nonblocking(true)?;
    std::thread::spawn(move || runtime()?.block_on(serve(listener)));
    let mut rates = runtime()?.block_on(drain(TcpStream::connect(address)))?;
    rates.sort_by(f64::total_cmp);
    println!("best {:.2}, median {:.2} million messages/s", rates[rates.len() - 1], rates[rates.len() / 2]);
    Ok(())
}

fn runtime() -> io::Result<tokio::runtime::Runtime> {
    tokio::runtime::Builder::new_current_thread().enable_all().build()
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
        while std::mem::take(&mut sent) && connection.outbox().len() < OUTBOX_BYTES {
            for link in &links {
                for _ in 0..connection.sendable(*link).min(64) {
                    let encoded = connection.send_with(*link, Outgoing::settled(0), |out| {
                        out.extend_from_slice(&PAYLOAD);
                        Ok(())
                    });
                    sent |= encoded.is_ok();
                }
            }
        }
    }
    Ok(())
}

/// Receives on all links, and returns the rates of the spans in millions per second.
async fn drain(stream: impl Future<Output = io::Result<TcpStream>>) -> io::Result<Vec<f64>> {
    let stream = stream.await?;
    stream.set_nodelay(true)?;
    let mut connection = Connection::connect(Options::new("client"), sasl::Client::Anonymous, now());
    for at in 0..LINKS {
        let session = connection.begin().expect("a new connection has room");
        let attach = Attach::receiver(format!("r{at}"), "hub");
        let link = connection.attach(session, attach).expect("a new session has room");
        connection.set_credit(link, CREDIT, false);
    }
    let mut driver = Driver::new(stream, connection);
    let (mut rates, mut count, mut start) = (Vec::new(), 0u64, Instant::now());
    while rates.len() < SPANS {
        driver.turn().await?;
        let connection = driver.connection();
        while let Some(event) = connection.poll() {
            if let Event::Delivery(delivery) = event {
                count += u64::from(delivery.payload.len() == PAYLOAD.len());
                connection.top_up(delivery.link, CREDIT);
            }
        }
        let took = start.elapsed();
        if took >= SPAN {
            rates.push(count as f64 / took.as_secs_f64() / 1e6);
            (count, start) = (0, Instant::now());
        }
    }
    Ok(rates)
}
