//! A disk that is really full, through the whole path: producer, hub, processor, SQLite store. Needs a small file system of
//! its own, whose place `PARTITA_SMALL_DISK` names; `tests.d/disk-full` makes one, runs this and counts it. Without one
//! nothing is run, and nothing is counted.

#![expect(clippy::print_stdout, reason = "it has no harness to speak for it")]

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use partita::model::HubName;
use partita::source::ReadRequest;
use partita::sqlite::SqliteStore;
use partita::{Checkpoint, ConsumerGroup, Context, Event, EventSource, Position, Processor, ProcessorError};
use partita_hub::broker::{Broker, Hub, HubOptions, Route};
use partita_hub::log::{OsDisk, Settings};
use partita_hub::producer::{HubProducer, SendError};
use partita_hub::source::HubSource;

const PATIENCE: Duration = Duration::from_secs(60);
/// Text of an event, apart from its number.
const FILLER: &str = "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef";

fn main() {
    let Some(disk) = std::env::var_os("PARTITA_SMALL_DISK").map(PathBuf::from) else {
        println!("disk_full: nothing is run without PARTITA_SMALL_DISK, see tests.d/disk-full");
        return;
    };
    let runtime = tokio::runtime::Runtime::new().expect("a runtime");
    for (name, case) in CASES {
        let dir = disk.join(name);
        fs::create_dir(&dir).expect("an empty disk");
        println!("case {name}");
        runtime.block_on(case(dir.clone()));
        println!("case {name} passed");
        fs::remove_dir_all(&dir).expect("removed");
    }
}

type Case = fn(PathBuf) -> futures_util::future::BoxFuture<'static, ()>;

const CASES: [(&str, Case); 3] = [
    ("producers_wait_readers_go_on", |dir| Box::pin(producers_wait_readers_go_on(dir))),
    ("a_hub_opens_on_a_full_disk", |dir| Box::pin(a_hub_opens_on_a_full_disk(dir))),
    ("a_processor_goes_on_when_space_returns", |dir| Box::pin(a_processor_goes_on_when_space_returns(dir))),
];

/// Takes all the space there is until it is dropped.
struct Ballast(PathBuf);

impl Ballast {
    fn fill(dir: &Path) -> Self {
        let path = dir.join("ballast");
        let mut file = File::create(&path).expect("created");
        for size in [256 << 10, 4 << 10, 512] {
            while file.write_all(&vec![7; size]).and_then(|()| file.sync_data()).is_ok() {}
        }
        Self(path)
    }
}

impl Drop for Ballast {
    fn drop(&mut self) {
        fs::remove_file(&self.0).expect("removed");
    }
}

fn open(dir: &Path) -> (Broker, Arc<Hub>) {
    let settings = Settings { segment_bytes_max: 4 << 20, ..Settings::new(1) };
    let (broker, found) = Broker::open_with(Arc::new(OsDisk), dir.join("hub"), settings).expect("opens");
    assert!(found.iter().all(|(_, recovery)| recovery.is_clean()), "{found:?}");
    let options = HubOptions { partitions: 2, ..HubOptions::default() };
    let hub = broker.hub("telemetry");
    let hub = hub.unwrap_or_else(|| broker.create_hub(&HubName::new("telemetry"), options).expect("made"));
    (broker, hub)
}

/// Sends batches of events numbered from `from` on until one is refused; the next number, and why.
async fn send_until_refused(producer: &HubProducer, from: u64) -> (u64, SendError) {
    let begun = Instant::now();
    let mut next = from;
    loop {
        assert!(begun.elapsed() < PATIENCE, "the disk is not full");
        match send(producer, next).await {
            Ok(()) => next += 100,
            Err(error) => return (next, error),
        }
    }
}

async fn send(producer: &HubProducer, from: u64) -> Result<(), SendError> {
    let events = (from..from + 100).map(|n| Event::builder(format!("{n} {FILLER}")));
    producer.send_batch(Route::Partition(0), events).await.map(drop)
}

/// Sends until the hub takes it, as a program would that was told to come back.
async fn send_patiently(producer: &HubProducer, from: u64) {
    let begun = Instant::now();
    while let Err(error) = send(producer, from).await {
        assert!(error.is_retriable(), "{error}");
        assert!(begun.elapsed() < PATIENCE, "{error}");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

async fn numbers(hub: &Arc<Hub>) -> Vec<u64> {
    let request = ReadRequest {
        group: ConsumerGroup::default(),
        partition: 0.into(),
        from: Position::Earliest,
        owner_level: None,
        name: Arc::from("test"),
        prefetch_events: 1_000,
        prefetch_bytes: 1 << 20,
    };
    let mut reader = HubSource::new(hub.clone()).open(request).await.expect("opens");
    let end = hub.partition(0).expect("there").next_seq as usize;
    let (mut events, mut numbers) = (Vec::new(), Vec::new());
    while numbers.len() < end {
        let read = tokio::time::timeout(PATIENCE, reader.read(1_000, &mut events)).await;
        read.expect("readers go on").expect("nothing is damaged");
        numbers.extend(events.drain(..).map(|event| number(&event)));
    }
    numbers
}

fn number(event: &Event) -> u64 {
    let text = event.text().expect("text").to_string();
    text.split(' ').next().and_then(|n| n.parse().ok()).expect("a number")
}

async fn producers_wait_readers_go_on(dir: PathBuf) {
    let (broker, hub) = open(&dir);
    let producer = HubProducer::new(hub.clone());
    send(&producer, 0).await.expect("there is space");
    let ballast = Ballast::fill(&dir);
    let (end, refused) = send_until_refused(&producer, 100).await;
    assert!(refused.is_retriable(), "{refused}");
    assert!(refused.to_string().contains("no space for more events"), "{refused}");
    println!("  refused after {end} events: {refused}");
    assert_eq!(numbers(&hub).await, (0..end).collect::<Vec<_>>());
    assert!(hub.create_group(&ConsumerGroup::new("late")).is_err() || hub.groups().len() == 2);

    drop(ballast);
    send_patiently(&producer, end).await;
    assert!(!hub.log().is_read_only());
    assert_eq!(numbers(&hub).await, (0..end + 100).collect::<Vec<_>>());
    drop((producer, hub, broker));
    let (_broker, hub) = open(&dir);
    assert_eq!(numbers(&hub).await, (0..end + 100).collect::<Vec<_>>());
}

async fn a_hub_opens_on_a_full_disk(dir: PathBuf) {
    let (broker, hub) = open(&dir);
    let producer = HubProducer::new(hub.clone());
    let ballast = Ballast::fill(&dir);
    let (end, _) = send_until_refused(&producer, 0).await;
    drop((producer, hub, broker));

    let (broker, hub) = open(&dir);
    assert_eq!(numbers(&hub).await, (0..end).collect::<Vec<_>>());
    let producer = HubProducer::new(hub.clone());
    let (end, refused) = send_until_refused(&producer, end).await;
    assert!(refused.is_retriable(), "{refused}");
    drop(ballast);
    send_patiently(&producer, end).await;
    assert_eq!(numbers(&hub).await, (0..end + 100).collect::<Vec<_>>());
    drop(broker);
}

async fn a_processor_goes_on_when_space_returns(dir: PathBuf) {
    let (_broker, hub) = open(&dir);
    let producer = HubProducer::new(hub.clone());
    let store = SqliteStore::open(dir.join("checkpoints.db")).expect("opens");
    let handled: Arc<Mutex<BTreeSet<u64>>> = Arc::default();
    let errors: Arc<Mutex<Vec<String>>> = Arc::default();
    let (seen, told) = (handled.clone(), errors.clone());
    let processor = Processor::builder(HubSource::new(hub.clone()), store)
        .checkpoint(Checkpoint::every(100).or_after(Duration::from_millis(100)))
        .on_event(move |event: Event, _: Context| {
            let seen = seen.clone();
            async move {
                seen.lock().expect("unpoisoned").insert(number(&event));
                Ok(())
            }
        })
        .on_error(move |error: ProcessorError| told.lock().expect("unpoisoned").push(error.to_string()))
        .build()
        .expect("possible");
    let running = processor.start().await.expect("starts");
    send(&producer, 0).await.expect("there is space");
    until("the first events are handled", || handled.lock().expect("unpoisoned").len() == 100).await;

    let ballast = Ballast::fill(&dir);
    let (end, refused) = send_until_refused(&producer, 100).await;
    assert!(refused.is_retriable(), "{refused}");
    let full = |error: &String| error.contains("full");
    until("the store's error is told", || errors.lock().expect("unpoisoned").iter().any(full)).await;
    let first = errors.lock().expect("unpoisoned").iter().find(|error| full(error)).cloned();
    println!("  refused after {end} events; on_error: {}", first.unwrap_or_default());

    drop(ballast);
    send_patiently(&producer, end).await;
    let all = end + 100;
    until("all is handled", || handled.lock().expect("unpoisoned").len() as u64 == all).await;
    let status = running.status();
    running.shutdown().await.unwrap_or_else(|error| panic!("{error}: {status:?}"));

    // The last checkpoints are there: a second processor has nothing left to do.
    let store = SqliteStore::open(dir.join("checkpoints.db")).expect("opens");
    let again: Arc<Mutex<Vec<u64>>> = Arc::default();
    let seen = again.clone();
    let processor = Processor::builder(HubSource::new(hub.clone()), store)
        .on_event(move |event: Event, _: Context| {
            let seen = seen.clone();
            async move {
                seen.lock().expect("unpoisoned").push(number(&event));
                Ok(())
            }
        })
        .build()
        .expect("possible");
    let running = processor.start().await.expect("starts");
    send(&producer, all).await.expect("there is space");
    until("the new events are handled", || again.lock().expect("unpoisoned").len() >= 100).await;
    assert_eq!(*again.lock().expect("unpoisoned"), (all..all + 100).collect::<Vec<_>>());
    running.shutdown().await.expect("ends");
}

async fn until(what: &str, condition: impl Fn() -> bool) {
    let begun = Instant::now();
    while !condition() {
        assert!(begun.elapsed() < PATIENCE, "{what}");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}
