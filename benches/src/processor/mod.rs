//! A processor, a producer and the official SDKs as clients of a served hub: the hub in one process, each of them in another.

mod sdk;
pub(crate) mod worker;

use std::path::Path;
use std::time::{Duration, Instant};

use partita::eventhubs::{ConnectionString, EventHubs, Route};
use partita::{Event, PartitionId};
use partita_hub::service::auth::{WELL_KNOWN_KEY, WELL_KNOWN_NAME};

use crate::directory::Directory;
use crate::out;
use crate::plain::Plain;
use crate::report::{Figure, Section, Unit};
use crate::served::hub::{Binary, HUB, Hub, PARTITIONS};
use crate::served::wire::EVENT_BYTES;
use crate::stats::Sample;
use sdk::Sdk;
use worker::{BATCH_EVENTS, PREFETCH_BYTES, PREFETCH_EVENTS};

/// Events per second through a batch handler, in millions.
const PROCESS_MIN: f64 = 1.0;
/// How much more that is than the best SDK.
const SDK_RATIO_MIN: f64 = 5.0;
/// Durable events per second of a buffered producer, in millions.
const PRODUCE_MIN: f64 = 0.4;
/// What a processor may need for events that its handler has not taken: two queues for each partition, the link's and the
/// pump's, and some for connection, store and threads.
const SLOW_MB_MAX: f64 = PARTITIONS as f64 * 2.0 * PREFETCH_BYTES as f64 / 1e6 + 16.0;

/// How many events an SDK reads: enough for seconds.
const SDK_EVENTS: u64 = 150_000;

pub(crate) fn run(quick: bool) -> Section {
    let binary = Binary::build();
    let directory = Directory::new("processor");
    let (events, rounds) = if quick { (2_000_000, 2) } else { (3_000_000, 5) };
    let mut figures = Vec::new();
    produce(&binary, directory.path(), rounds, &mut figures);
    let hub = Hub::start(&binary, directory.path(), &[]);
    let connection = connection(hub.port);
    buffered(&connection, events, false);
    let ours: Vec<f64> = (0..rounds)
        .map(|_| worker::drain(&connection, events, directory.path()) / 1e6)
        .inspect(|speed| out::note(format!("processor: {speed:.2} M/s")))
        .collect();
    let ours = Sample::new(ours);
    let unit = Unit::MillionsPerSecond;
    figures.push(Figure::floor("events through a batch handler, best", unit, ours.max(), PROCESS_MIN));
    figures.push(Figure::plain("the same, median", unit, ours.median()));
    let tuned = peers(&hub, &connection, &ours, quick, &mut figures);
    let slow = worker::slow(&connection, directory.path());
    figures.push(Figure::limit(
        "memory for a handler that is slow",
        Unit::Megabytes,
        slow / 1e6,
        SLOW_MB_MAX,
    ));
    Section {
        title: "Processor over AMQP",
        how: format!(
            "`partita serve` in one process and a client in another, {PARTITIONS} partitions, events of {EVENT_BYTES} bytes. Processor: {events} events from the beginning through a batch handler that counts them, batches of \
             {BATCH_EVENTS}, {PREFETCH_EVENTS} events ahead per partition, checkpoints every second in SQLite, from the first event on; the best of {rounds} rounds counts. The official SDKs read the first {SDK_EVENTS} \
             events of the same hub in the same run, without checkpoints; for each the best of these settings counts: {tuned}. Producer: events handed over one by one to a buffered producer, in turn to all partitions, \
             accepted after fdatasync; its peer is plain 1 MiB writes, each with fdatasync, over an existing file of the same disk. Slow handler: 100 ms for every event, and the growth of the resident memory after 5 s; \
             the limit is what the two queues of each partition may hold, the link's and the pump's, {PREFETCH_BYTES} bytes each, and 16 MB for connection, store and threads."
        ),
        figures,
    }
}

fn connection(port: u16) -> String {
    format!(
        "Endpoint=sb://localhost:{port};SharedAccessKeyName={WELL_KNOWN_NAME};SharedAccessKey={WELL_KNOWN_KEY};\
         UseDevelopmentEmulator=true"
    )
}

fn hubs(connection: &str) -> EventHubs {
    let connection: ConnectionString = connection.parse().expect("a connection string");
    EventHubs::builder(&connection).hub(HUB).build().expect("a client")
}

/// Sends events one by one; how many per second were durable.
fn buffered(connection: &str, events: u64, idempotent: bool) -> f64 {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().expect("a runtime");
    runtime.block_on(async {
        let builder = hubs(connection).buffered_producer();
        let producer = if idempotent { builder.idempotent() } else { builder }.build();
        let partitions: Vec<PartitionId> = (0..PARTITIONS).map(PartitionId::from).collect();
        let body = bytes::Bytes::from(vec![7; EVENT_BYTES]);
        let began = Instant::now();
        for _ in 0..events / u64::from(PARTITIONS) {
            for partition in &partitions {
                let route = Route::Partition(partition.clone());
                drop(producer.send(route, Event::builder(body.clone())).await.expect("handed over"));
            }
        }
        producer.close().await.expect("durable");
        events as f64 / began.elapsed().as_secs_f64()
    })
}

fn produce(binary: &Binary, dir: &Path, rounds: usize, figures: &mut Vec<Figure>) {
    let plain = Plain::new(dir);
    let hub = Hub::start(binary, dir, &["--retention-size", "512MiB"]);
    let connection = connection(hub.port);
    let (mut plains, mut speeds, mut numbered) = (Vec::new(), Vec::new(), Vec::new());
    for _ in 0..rounds {
        plains.push(plain.speed(Duration::from_millis(500)) / 1e9);
        speeds.push(buffered(&connection, 800_000, false) / 1e6);
        numbered.push(buffered(&connection, 800_000, true) / 1e6);
    }
    drop(hub);
    let _ = std::fs::remove_dir_all(dir.join("data"));
    let _ = std::fs::remove_file(dir.join("plain"));
    let (speeds, plains) = (Sample::new(speeds), Sample::new(plains));
    let unit = Unit::MillionsPerSecond;
    figures.push(Figure::floor("buffered producer, durable, best", unit, speeds.max(), PRODUCE_MIN));
    figures.push(Figure::plain("the same, median", unit, speeds.median()));
    figures.push(Figure::plain("the same, idempotent, best", unit, Sample::new(numbered).max()));
    let bytes = speeds.max() * EVENT_BYTES as f64 / 1e3;
    let unit = Unit::GigabytesPerSecond;
    figures.push(Figure::peer("bytes of bodies in it", unit, bytes, plains.max(), "plain writes, best"));
}

/// The official SDKs on the same hub; what they were tried with.
fn peers(hub: &Hub, connection: &str, ours: &Sample, quick: bool, figures: &mut Vec<Figure>) -> String {
    let (mut best, mut tuned) = (f64::NAN, Vec::new());
    for sdk in Sdk::ALL {
        let what = format!("{} SDK", sdk.name());
        let program = match sdk.install() {
            Ok(program) => program,
            Err(advice) => {
                figures.push(Figure::missing(what, advice));
                continue;
            }
        };
        let mut speeds = Vec::new();
        let settings = sdk.settings();
        for setting in settings.iter().take(if quick { 2 } else { settings.len() }) {
            let Some(speed) = program.drain(connection, hub.port, SDK_EVENTS, *setting) else { continue };
            out::note(format!("{what}, {}: {speed:.0} /s", sdk.words(*setting)));
            speeds.push((speed, *setting));
        }
        let Some((speed, setting)) = speeds.into_iter().max_by(|a, b| a.0.total_cmp(&b.0)) else {
            figures.push(Figure::missing(what, "its program failed: see above"));
            continue;
        };
        tuned.push(format!(
            "{}: {} (best), of {}",
            sdk.name(),
            sdk.words(setting),
            settings.iter().map(|setting| sdk.words(*setting)).collect::<Vec<_>>().join(", ")
        ));
        best = speed.max(best);
        let unit = Unit::MillionsPerSecond;
        figures.push(Figure::peer("processor, best", unit, ours.max(), speed / 1e6, sdk.peer_name()));
    }
    if !best.is_nan() {
        let ratio = ours.max() * 1e6 / best;
        figures.push(Figure::floor("processor, of the best SDK", Unit::Times, ratio, SDK_RATIO_MIN));
    }
    tuned.join("; ")
}
