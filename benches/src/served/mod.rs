//! The hub as clients see it: `partita serve` in one process and a client in another, over loopback.

mod bare;
pub(crate) mod hub;
pub(crate) mod wire;

use std::path::Path;
use std::time::Duration;

use crate::directory::Directory;
use crate::plain::Plain;
use crate::report::{Figure, Section, Unit};
use crate::stats::Sample;
use hub::{Binary, Hub, PARTITIONS};
use wire::{BATCH_EVENTS, CREDIT, Client, EVENT_BYTES, block_on};

/// Events per second over one connection, in millions.
const DRAIN_MIN: f64 = 1.5;
/// Events per second that are accepted once they are durable, in millions.
const SEND_MIN: f64 = 0.5;
/// Until a batch is accepted at half of that, p99.
const ACCEPT_MS_MAX: f64 = 10.0;
const IDLE_MB_MAX: f64 = 40.0;
/// An idle connection with its token and a sender.
const CONNECTION_KB_MAX: f64 = 64.0;
/// What a client costs that asks for everything and reads nothing.
const STALLED_MB_MAX: f64 = 16.0;
const READY_MS_MAX: f64 = 200.0;

const CONNECTIONS: usize = 1_000;

/// What the hub keeps of what is sent to it.
const KEPT: &str = "512MiB";

pub(crate) fn run(quick: bool) -> Section {
    let binary = Binary::build();
    let directory = Directory::new("served");
    let mut figures = Vec::new();
    let drained = if quick { 500_000 } else { 2_000_000 };
    let rounds = if quick { 3 } else { 9 };
    memory(&binary, directory.path(), &mut figures);
    drain(&binary, directory.path(), drained, rounds, &mut figures);
    send(&binary, directory.path(), rounds, quick, &mut figures);
    ready(&binary, directory.path(), quick, &mut figures);
    Section {
        title: "Served hub",
        how: format!(
            "`partita serve` in a process of its own, {PARTITIONS} partitions, one client in another process with one connection over loopback, on partita-amqp's own machine; events of \
             {EVENT_BYTES} bytes. The best of {rounds} rounds counts, each next to a round of what it is held against; the median is beside it. Drain: {drained} events from the beginning, credit {CREDIT} per partition; the \
             peer is framing alone, transfers of {EVENT_BYTES} bytes with no hub behind them. Send: batches of {BATCH_EVENTS}, each accepted once it is durable; the peer is plain 1 MiB writes, each with fdatasync, over an existing file \
             of the same disk. At half the load: one batch every 400 us whatever was answered, from the moment it was due, by a client whose timer ticks every millisecond. Memory is resident memory, in millions of bytes. An idle connection has put its token and attached a sender; the stalled client asks for {PARTITIONS} million events \
             and reads nothing. Ready: from the start of the process until its ready file is there."
        ),
        figures,
    }
}

/// Sends what readers shall find.
fn fill(hub: &Hub, events: usize) {
    block_on(async { Client::connect(hub.port).await.send(events / BATCH_EVENTS, None).await });
}

fn drain(binary: &Binary, dir: &Path, events: usize, rounds: usize, figures: &mut Vec<Figure>) {
    let hub = Hub::start(binary, dir, &[]);
    fill(&hub, events);
    let drain = || block_on(async { Client::connect(hub.port).await.drain(events).await }) / 1e6;
    let first = drain();
    let (mut speeds, mut bare) = (Vec::new(), Vec::new());
    for _ in 0..rounds {
        bare.push(bare::speed(Duration::from_millis(500)) / 1e6);
        speeds.push(drain());
    }
    let (speeds, bare) = (Sample::new(speeds), Sample::new(bare));
    let unit = Unit::MillionsPerSecond;
    figures.push(Figure::floor("drain, best", unit, speeds.max(), DRAIN_MIN));
    figures.push(Figure::peer("drain, best", unit, speeds.max(), bare.max(), "framing alone, best"));
    figures.push(Figure::peer(
        "drain, median",
        unit,
        speeds.median(),
        bare.median(),
        "framing alone, median",
    ));
    figures.push(Figure::plain("drain, the first, from the disk", unit, first));
    // A new process: what the drains before it needed does not count.
    hub.stop();
    let hub = Hub::start(binary, dir, &[]);
    let before = hub.settled_memory();
    let stalled = block_on(async {
        let mut client = Client::connect(hub.port).await;
        client.stall().await;
        let after = tokio::task::spawn_blocking(move || (hub.settled_memory(), hub)).await;
        after.expect("no panic").0
    });
    figures.push(Figure::limit(
        "memory for a stalled reader of all partitions",
        Unit::Megabytes,
        (stalled - before) / 1e6,
        STALLED_MB_MAX,
    ));
    remove_data(dir);
}

fn send(binary: &Binary, dir: &Path, rounds: usize, quick: bool, figures: &mut Vec<Figure>) {
    let plain = Plain::new(dir);
    let hub = Hub::start(binary, dir, &["--retention-size", KEPT]);
    // Until segments are recycled, as in a hub that has reached its retention.
    fill(&hub, if quick { 500_000 } else { 3_000_000 });
    let (mut speeds, mut plains) = (Vec::new(), Vec::new());
    for _ in 0..rounds {
        plains.push(plain.speed(Duration::from_millis(500)) / 1e9);
        let sent = block_on(async { Client::connect(hub.port).await.send(10_000, None).await });
        speeds.push(sent.events_per_second / 1e6);
    }
    let (speeds, plains) = (Sample::new(speeds), Sample::new(plains));
    let unit = Unit::MillionsPerSecond;
    figures.push(Figure::floor("durable send, best", unit, speeds.max(), SEND_MIN));
    figures.push(Figure::floor("durable send, median", unit, speeds.median(), SEND_MIN));
    figures.push(Figure::peer(
        "durable send, bytes, best",
        Unit::GigabytesPerSecond,
        speeds.max() * EVENT_BYTES as f64 / 1e3,
        plains.max(),
        "1 MiB writes + fdatasync",
    ));
    let batches = if quick { 2_500 } else { 12_500 };
    let pace = Duration::from_micros(400);
    let bare = plain.paced(BATCH_EVENTS * EVENT_BYTES, pace, batches as u64);
    let sent = block_on(async {
        Client::connect(hub.port).await.send(batches, Some(BATCH_EVENTS as f64 / pace.as_secs_f64())).await
    });
    let what = |part: &str| format!("accepted at {:.0} events/s, {part}", sent.events_per_second);
    let (p50, p99) = (sent.took_ms.percentile(50.0), sent.took_ms.percentile(99.0));
    let peer = "plain write + fdatasync";
    figures.push(Figure::peer(what("p50"), Unit::Milliseconds, p50, bare.percentile(50.0), peer));
    figures.push(Figure::limit(what("p99"), Unit::Milliseconds, p99, ACCEPT_MS_MAX));
    figures.push(Figure::peer(what("p99 beside"), Unit::Milliseconds, p99, bare.percentile(99.0), peer));
    drop(hub);
    remove_data(dir);
}

fn memory(binary: &Binary, dir: &Path, figures: &mut Vec<Figure>) {
    let hub = Hub::start(binary, dir, &[]);
    let idle = hub.settled_memory();
    figures.push(Figure::limit("memory, idle", Unit::Megabytes, idle / 1e6, IDLE_MB_MAX));
    let grown = block_on(async {
        let mut clients = Vec::new();
        for _ in 0..CONNECTIONS {
            let mut client = Client::connect(hub.port).await;
            client.sit_down().await;
            clients.push(client);
        }
        let grown = tokio::task::spawn_blocking(move || (hub.settled_memory() - idle, hub)).await;
        grown.expect("no panic").0
    });
    figures.push(Figure::plain(
        format!("memory for {CONNECTIONS} idle connections"),
        Unit::Megabytes,
        grown / 1e6,
    ));
    let each = grown / CONNECTIONS as f64 / 1e3;
    figures.push(Figure::limit("memory for each of them", Unit::Kilobytes, each, CONNECTION_KB_MAX));
    remove_data(dir);
}

fn ready(binary: &Binary, dir: &Path, quick: bool, figures: &mut Vec<Figure>) {
    let hub = Hub::start(binary, dir, &[]);
    figures.push(Figure::limit(
        "start to ready, nothing on disk",
        Unit::Milliseconds,
        hub.ready.as_secs_f64() * 1e3,
        READY_MS_MAX,
    ));
    let gib = (1_usize << 30) / EVENT_BYTES;
    fill(&hub, if quick { gib / 8 } else { gib });
    let mut times = [Vec::new(), Vec::new()];
    let mut hub = hub;
    for _ in 0..5 {
        hub.kill();
        hub = Hub::start(binary, dir, &[]);
        times[0].push(hub.ready.as_secs_f64() * 1e3);
        hub.stop();
        hub = Hub::start(binary, dir, &[]);
        times[1].push(hub.ready.as_secs_f64() * 1e3);
        // Something to look for at the next start.
        fill(&hub, 10_000);
    }
    drop(hub);
    let mib = size(&dir.join("data")) >> 20;
    for (after, times) in ["kill -9", "stop"].into_iter().zip(times) {
        let what = format!("start to ready after a {after}, {mib} MiB on disk, longest of 5");
        figures.push(Figure::limit(what, Unit::Milliseconds, Sample::new(times).max(), READY_MS_MAX));
    }
    remove_data(dir);
}

fn size(path: &Path) -> u64 {
    let Ok(entries) = std::fs::read_dir(path) else { return 0 };
    let entries = entries.filter_map(Result::ok);
    entries
        .map(|entry| {
            entry.metadata().map_or(0, |meta| if meta.is_dir() { size(&entry.path()) } else { meta.len() })
        })
        .sum()
}

pub(crate) fn remove_data(dir: &Path) {
    let _ = std::fs::remove_dir_all(dir.join("data"));
}
