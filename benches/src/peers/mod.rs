//! What a user would pick instead, in the same run: Redis Streams, PostgreSQL, NATS JetStream.

mod nats;
mod postgres;
mod redis;
mod server;

use std::path::Path;
use std::time::Duration;

use crate::directory::Directory;
use crate::report::{Figure, Section, Unit};
use crate::served::hub::{Binary, Hub};
use crate::served::wire::{BATCH_EVENTS, Client, EVENT_BYTES, block_on};
use crate::stats::Sample;
use nats::Nats;
use postgres::Postgres;
use redis::Redis;

/// Events that each side reads.
const DRAINED: usize = 100_000;

/// Another system, as far as it is measured.
trait Peer {
    /// What it is called.
    const NAME: &'static str;
    /// What to install where it is missing.
    const ADVICE: &'static str;
    /// What the hub is told, to be compared with it.
    const HUB: &'static [&'static str];

    /// Starts it with its data in `dir`; none if it is not installed.
    fn start(dir: &Path) -> Option<Self>
    where
        Self: Sized;
    /// Events per second that it answers.
    fn send(&self, time: Duration) -> f64;
    /// Events per second that are read from it, up to so many.
    fn drain(&self, events: usize) -> f64;
}

pub(crate) fn run(quick: bool) -> Section {
    let binary = Binary::build();
    let rounds = if quick { 2 } else { 5 };
    let mut figures = Vec::new();
    compare::<Redis>(&binary, rounds, &mut figures);
    compare::<Postgres>(&binary, rounds, &mut figures);
    compare::<Nats>(&binary, rounds, &mut figures);
    Section {
        title: "Instead of the hub",
        how: format!(
            "The served hub beside what else could take events, on the same disk, rounds of 1 s in turn; the best of {rounds} counts for each, and a ratio above 1 is the hub's favour. Events of {EVENT_BYTES} bytes, batches of \
             {BATCH_EVENTS}. The hub: one connection. Redis Streams with `appendfsync always`: 16 connections, a stream each, {} batches of XADD in each pipeline; read by XRANGE of 1,000. PostgreSQL with `synchronous_commit=on`: {} connections, a batch is \
             one insert and one transaction; read by one binary COPY. NATS JetStream, file storage: {} connections with {} messages outstanding each; read by a pull consumer without acknowledgements. The packaged nats-server \
             cannot sync before it answers, so it is held against `partita serve --fsync interval`, which answers when the system has the events and syncs every second.",
            redis::PIPELINED,
            postgres::CONNECTIONS,
            nats::CONNECTIONS,
            nats::OUTSTANDING
        ),
        figures,
    }
}

fn compare<P: Peer>(binary: &Binary, rounds: usize, figures: &mut Vec<Figure>) {
    let directory = Directory::new("peer");
    let synced = if P::HUB.is_empty() { "durable send" } else { "send, synced later" };
    let Some(peer) = P::start(directory.path()) else {
        figures.push(Figure::missing(format!("{synced}, beside {}", P::NAME), P::ADVICE));
        return;
    };
    let hub = Hub::start(binary, directory.path(), &[&["--retention-size", "512MiB"], P::HUB].concat());
    let send = |batches| block_on(async { Client::connect(hub.port).await.send(batches, None).await });
    let (mut ours, mut theirs) = (Vec::new(), Vec::new());
    for _ in 0..rounds {
        theirs.push(peer.send(Duration::from_secs(1)) / 1e6);
        ours.push(send(10_000).events_per_second / 1e6);
    }
    let best = |speeds| Sample::new(speeds).max();
    let unit = Unit::MillionsPerSecond;
    figures.push(Figure::peer(
        format!("{synced}, beside {}", P::NAME),
        unit,
        best(ours),
        best(theirs),
        P::NAME,
    ));
    let drain = || block_on(async { Client::connect(hub.port).await.drain(DRAINED).await });
    let (mut ours, mut theirs) = (Vec::new(), Vec::new());
    for _ in 0..rounds {
        theirs.push(peer.drain(DRAINED) / 1e6);
        ours.push(drain() / 1e6);
    }
    figures.push(Figure::peer(format!("drain, beside {}", P::NAME), unit, best(ours), best(theirs), P::NAME));
}
