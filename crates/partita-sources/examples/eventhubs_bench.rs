//! Fills a hub elsewhere and reads it through a processor with a batch handler:
//! `cargo run --release -p partita-sources --example eventhubs_bench -- CONNECTION_STRING EVENTS [BATCH] [PREFETCH]`
#![allow(clippy::print_stdout)]

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use partita_core::handler::Context;
use partita_core::model::{ConsumerGroup, Event, InstanceId, Position};
use partita_core::processor::{Checkpoint, Processor};
use partita_core::store::MemoryStore;
use partita_sources::eventhubs::{ConnectionString, EventHubs, Route};

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let connection: ConnectionString = args[0].parse()?;
    let events: u64 = args[1].parse()?;
    let number = |at: usize, default| args.get(at).map_or(Ok(default), |text| text.parse::<usize>());
    let (batch, prefetch) = (number(2, 1_000)?, number(3, 4_000)?);
    let hubs = EventHubs::new(&connection)?;
    let partitions = hubs.properties().await?.partitions;
    let mut held = 0;
    for partition in &partitions {
        held += hubs.partition(partition).await?.end.position.map_or(0, |last| last.sequence.0 + 1) as u64;
    }
    if held < events {
        let began = Instant::now();
        let producer = hubs.producer();
        let each = (events - held).div_ceil(partitions.len() as u64);
        let sends = partitions.iter().map(|partition| {
            let (producer, route) = (producer.clone(), Route::partition(partition.clone()));
            let body = bytes::Bytes::from(vec![7; 256]);
            tokio::spawn(async move {
                producer.send_all(route, (0..each).map(|_| Event::builder(body.clone()))).await
            })
        });
        for send in sends.collect::<Vec<_>>() {
            send.await??;
        }
        let rate = (events - held) as f64 / began.elapsed().as_secs_f64();
        println!("sent {} events, {rate:.0}/s", each * partitions.len() as u64);
        held += each * partitions.len() as u64;
    }
    let count = Arc::new(AtomicU64::new(0));
    let counted = count.clone();
    let began = Instant::now();
    let processor = Processor::builder(hubs.source(), MemoryStore::new())
        .consumer_group(ConsumerGroup::default())
        .instance_id(InstanceId::generate("bench"))
        .initial_position(Position::Earliest)
        .batch_size(batch)
        .prefetch_events(prefetch)
        .checkpoint(Checkpoint::after(Duration::from_secs(1)))
        .on_batch(move |events: Vec<Event>, _: Context| {
            let counted = counted.clone();
            async move {
                counted.fetch_add(events.len() as u64, Ordering::Relaxed);
                Ok(())
            }
        })
        .on_error(|error| println!("{error}"))
        .build()?;
    let running = processor.start().await?;
    let mut first = None;
    while count.load(Ordering::Relaxed) < held {
        tokio::time::sleep(Duration::from_millis(5)).await;
        if first.is_none() && count.load(Ordering::Relaxed) > 0 {
            first = Some((Instant::now(), count.load(Ordering::Relaxed)));
        }
    }
    let (since, before) = first.unwrap_or((began, 0));
    let rate = (held - before) as f64 / since.elapsed().as_secs_f64();
    println!("read {held} events in {:?}, {rate:.0}/s from the first on", began.elapsed());
    running.shutdown().await?;
    Ok(())
}
