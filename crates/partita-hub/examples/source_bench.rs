//! Durable produce and consume through a processor, beside the log alone, in one run. Rough: one pass each.
//!
//! `cargo run --release -p partita-hub --example source_bench [DIR]`

#![allow(clippy::print_stdout)] // What a benchmark is for.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use partita_core::handler::Context;
use partita_core::model::{Event, HubName};
use partita_core::processor::{Checkpoint, Processor};
use partita_core::store::MemoryStore;
use partita_hub::broker::{Broker, Hub, HubOptions, Route};
use partita_hub::log::EncodedBatch;
use partita_hub::producer::HubProducer;
use partita_hub::source::HubSource;

const EVENTS: usize = 2_000_000;
const BATCH: usize = 100;
const PRODUCERS: usize = 64;

fn tell(what: &str, events: usize, took: Duration) {
    println!("{what:<44} {:>10.0} events/s", events as f64 / took.as_secs_f64());
}

async fn produce(hub: &Arc<Hub>) {
    let producer = HubProducer::new(hub.clone());
    let tasks: Vec<_> = (0..PRODUCERS)
        .map(|_| {
            let producer = producer.clone();
            tokio::spawn(async move {
                for _ in 0..EVENTS / BATCH / PRODUCERS {
                    let events = (0..BATCH).map(|_| Event::builder(vec![7; 256]));
                    producer.send_batch(Route::RoundRobin, events).await.expect("durable");
                }
            })
        })
        .collect();
    for task in tasks {
        task.await.expect("no panic");
    }
}

/// The log alone: batches that are encoded already, from as many blocking threads.
fn append(hub: &Arc<Hub>) {
    std::thread::scope(|scope| {
        for _ in 0..PRODUCERS {
            scope.spawn(|| {
                let batch = EncodedBatch::of(&vec![[7; 264]; BATCH]).expect("a batch");
                for _ in 0..EVENTS / BATCH / PRODUCERS {
                    hub.send_and_wait(Route::RoundRobin, batch.clone()).expect("durable");
                }
            });
        }
    });
}

#[tokio::main]
async fn main() {
    let temp = tempfile::tempdir().expect("dir");
    let dir = std::env::args().nth(1).map_or(temp.path().join("data"), Into::into);
    let (broker, _) = Broker::open(&dir).expect("opens");
    let options = HubOptions { partitions: 16, ..HubOptions::default() };
    let raw = broker.create_hub(&HubName::new("raw"), options).expect("made");
    let hub = broker.create_hub(&HubName::new("hub"), options).expect("made");
    let events = EVENTS / BATCH / PRODUCERS * BATCH * PRODUCERS;

    let began = Instant::now();
    tokio::task::spawn_blocking(move || append(&raw)).await.expect("no panic");
    tell("log alone, encoded batches, durable", events, began.elapsed());
    let began = Instant::now();
    produce(&hub).await;
    tell("producer: encode, send, durable", events, began.elapsed());

    let handled = Arc::new(AtomicUsize::new(0));
    let count = handled.clone();
    let processor = Processor::builder(HubSource::new(hub), MemoryStore::new())
        .checkpoint(Checkpoint::every(10_000).or_after(Duration::from_secs(1)))
        .on_batch(move |events: Vec<Event>, _: Context| {
            count.fetch_add(events.len(), Ordering::Relaxed);
            async { Ok(()) }
        })
        .build()
        .expect("options agree");
    let began = Instant::now();
    let running = processor.start().await.expect("starts");
    while handled.load(Ordering::Relaxed) < events {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    tell("processor on the source, from start to last", events, began.elapsed());
    running.shutdown().await.expect("stops");
}
