//! The source and the producers on a real service, for `./test azure`: what is in EVENT_HUB_CONNECTION_STRING. It needs a hub with
//! the group `$Default` that nobody else reads meanwhile, and leaves a few thousand small events in it.
#![allow(clippy::print_stdout)]

use std::collections::BTreeMap;
use std::process::ExitCode;
use std::time::Duration;

use partita_core::handler::Context;
use partita_core::model::{ConsumerGroup, Epoch, Event, InstanceId, PartitionId, Position};
use partita_core::processor::Processor;
use partita_core::source::{EventSource, PartitionReader, ReadRequest, SourceErrorKind};
use partita_core::store::MemoryStore;
use partita_dialect::event::partition_of;
use partita_sources::eventhubs::{ConnectionString, Credential, EventHubs, Route, Secret};

type Outcome = Result<(), Box<dyn std::error::Error + Send + Sync>>;

const PATIENCE: Duration = Duration::from_secs(60);

#[tokio::main]
async fn main() -> ExitCode {
    let text = std::env::var("EVENT_HUB_CONNECTION_STRING").unwrap_or_default();
    let connected = match text.parse::<ConnectionString>() {
        Ok(connection) => {
            let connected = EventHubs::builder(&connection).connect().await;
            connected.map(|hubs| (connection, hubs)).map_err(|error| error.to_string())
        }
        Err(error) => Err(error.to_string()),
    };
    let (connection, hubs) = match connected {
        Ok(connected) => connected,
        Err(error) => {
            println!("EVENT_HUB_CONNECTION_STRING: {error}\n0 passed, 1 failed, 0 skipped");
            return ExitCode::FAILURE;
        }
    };
    let mut counts = [0, 0];
    let mut tell = |case: &str, outcome: Result<Outcome, tokio::time::error::Elapsed>| {
        let outcome = outcome.unwrap_or_else(|_| Err("it does not end".into()));
        match &outcome {
            Ok(()) => println!("case {case} passed"),
            Err(error) => println!("case {case} FAILED: {error}"),
        }
        counts[usize::from(outcome.is_err())] += 1;
    };
    macro_rules! case {
        ($words:literal, $call:expr) => {
            tell($words, tokio::time::timeout(PATIENCE, $call).await);
        };
    }
    case!("the hub and its partitions are described", described(&hubs));
    case!("batches to a partition arrive in order, with their properties", batches(&hubs));
    case!("a key leads to the partition that its hash says", keys(&hubs));
    case!("a buffered producer's events arrive in order", buffered(&hubs, false));
    case!("an idempotent producer's events arrive in order, once", buffered(&hubs, true));
    case!("a higher owner level takes the partition", levels(&hubs));
    case!("a processor handles what comes", processor(&hubs));
    case!("a wrong key is said in a sentence", wrong_key(&connection, &hubs));
    println!("checkpoints in EPHTESTSTORAGE are not tried: there is no store for blobs yet");
    println!("{} passed, {} failed, 0 skipped", counts[0], counts[1]);
    if counts[1] == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

fn check(holds: bool, words: impl Into<String>) -> Outcome {
    if holds { Ok(()) } else { Err(words.into().into()) }
}

/// Where a partition ends now.
async fn end(
    hubs: &EventHubs,
    partition: &PartitionId,
) -> Result<Position, Box<dyn std::error::Error + Send + Sync>> {
    let last = hubs.partition(partition).await?.end.position;
    Ok(last.map_or(Position::Earliest, |last| Position::after_sequence(last.sequence)))
}

async fn open(
    hubs: &EventHubs,
    partition: &PartitionId,
    from: Position,
    level: Option<u64>,
) -> Result<Box<dyn PartitionReader>, Box<dyn std::error::Error + Send + Sync>> {
    let request = ReadRequest {
        group: ConsumerGroup::default(),
        partition: partition.clone(),
        from,
        owner_level: level.map(Epoch),
        name: "partita-test".into(),
        prefetch_events: 300,
        prefetch_bytes: 1 << 20,
    };
    Ok(hubs.source().open(request).await?)
}

async fn take(
    reader: &mut Box<dyn PartitionReader>,
    count: usize,
) -> Result<Vec<Event>, Box<dyn std::error::Error + Send + Sync>> {
    let mut events = Vec::new();
    while events.len() < count {
        reader.read(count - events.len(), &mut events).await?;
    }
    Ok(events)
}

async fn described(hubs: &EventHubs) -> Outcome {
    let partitions = hubs.properties().await?.partitions;
    check(!partitions.is_empty(), "it has no partitions")?;
    for partition in &partitions {
        hubs.partition(partition).await?;
    }
    Ok(())
}

async fn batches(hubs: &EventHubs) -> Outcome {
    let partition = hubs.properties().await?.partitions.remove(0);
    let from = end(hubs, &partition).await?;
    let events = (0..200).map(|n| Event::builder(format!("{n:0>6000}")).property("n", n));
    hubs.producer().send_all(Route::Partition(partition.clone()), events).await?;
    let read = take(&mut open(hubs, &partition, from, None).await?, 200).await?;
    let right = |(n, event): (usize, &Event)| {
        event.properties().get("n").and_then(|value| value.as_i64()) == Some(n as i64)
            && event.text().is_some_and(|text| text.len() == 6_000)
    };
    check(read.iter().enumerate().all(right), "they are not in order, or not whole")
}

async fn keys(hubs: &EventHubs) -> Outcome {
    let partitions = hubs.properties().await?.partitions;
    for key in ["7", "FWfAT", "é", "twelve-chars"] {
        let partition = &partitions[partition_of(key, partitions.len() as u32) as usize];
        let from = end(hubs, partition).await?;
        hubs.producer().send_event(Route::key(key), Event::builder("by key")).await?;
        let mut reader = open(hubs, partition, from, None).await?;
        let arrived = tokio::time::timeout(Duration::from_secs(10), take(&mut reader, 1)).await;
        let event =
            arrived.map_err(|_| format!("'{key}' did not arrive in partition {partition}"))??.remove(0);
        check(event.partition_key() == Some(key), format!("'{key}' arrived as {:?}", event.partition_key()))?;
    }
    Ok(())
}

async fn buffered(hubs: &EventHubs, idempotent: bool) -> Outcome {
    let partitions = hubs.properties().await?.partitions;
    let mut from = BTreeMap::new();
    for partition in &partitions {
        from.insert(partition.clone(), end(hubs, partition).await?);
    }
    let builder = hubs.buffered_producer();
    let producer = if idempotent { builder.idempotent() } else { builder }.build();
    for n in 0..500 {
        for partition in &partitions {
            drop(producer.send(Route::Partition(partition.clone()), Event::builder(n.to_string())).await?);
        }
    }
    producer.close().await?;
    for (partition, from) in from {
        let events = take(&mut open(hubs, &partition, from, None).await?, 500).await?;
        let in_order =
            events.iter().enumerate().all(|(n, event)| event.text().as_deref() == Some(&*n.to_string()));
        check(in_order, format!("not in order in partition {partition}"))?;
    }
    Ok(())
}

async fn levels(hubs: &EventHubs) -> Outcome {
    let partition = hubs.properties().await?.partitions.remove(0);
    let mut first = open(hubs, &partition, Position::Latest, Some(1)).await?;
    let _second = open(hubs, &partition, Position::Latest, Some(2)).await?;
    let error = first.read(1, &mut Vec::new()).await.err().ok_or("the first reader goes on")?;
    check(error.kind() == SourceErrorKind::OwnershipLost, error.to_string())?;
    let refused = open(hubs, &partition, Position::Latest, Some(1)).await.err();
    check(refused.is_some(), "a lower level was let in")
}

async fn processor(hubs: &EventHubs) -> Outcome {
    let (sender, mut handled) = tokio::sync::mpsc::channel(64);
    let processor = Processor::builder(hubs.source(), MemoryStore::new())
        .instance_id(InstanceId::generate("partita-test"))
        .initial_position(Position::Latest)
        .on_event(move |event: Event, cx: Context| {
            let sender = sender.clone();
            async move { Ok(sender.send((cx.partition().clone(), event)).await?) }
        })
        .on_error(|error| println!("  {error}"))
        .build()?;
    let running = processor.start().await?;
    // It starts at the end of each partition, so events are sent until one of each has come.
    let mut missing: Vec<PartitionId> = hubs.properties().await?.partitions;
    let producer = hubs.producer();
    while !missing.is_empty() {
        for partition in &missing {
            producer
                .send_event(Route::Partition(partition.clone()), Event::builder("for the processor"))
                .await?;
        }
        while let Ok(Some((partition, _))) =
            tokio::time::timeout(Duration::from_secs(1), handled.recv()).await
        {
            missing.retain(|other| *other != partition);
        }
    }
    running.shutdown().await?;
    Ok(())
}

async fn wrong_key(connection: &ConnectionString, hubs: &EventHubs) -> Outcome {
    let Credential::Key { name, .. } = connection.credential() else { return Ok(()) };
    let credential = Credential::Key { name: name.clone(), key: Secret::from("bm90IHRoZSBrZXk=") };
    let mut wrong = ConnectionString::builder(connection.host(), credential)
        .service(connection.service())
        .hub(hubs.hub().clone());
    if let Some(port) = connection.port() {
        wrong = wrong.port(port);
    }
    let asked = match EventHubs::builder(&wrong.build()).connect().await {
        Ok(hubs) => hubs.properties().await.map(|_| ()).map_err(|error| error.to_string()),
        Err(error) => Err(error.to_string()),
    };
    let error = asked.err().ok_or("it was let in")?;
    println!("  {error}");
    check(!error.contains('\n') && !error.contains("bm90"), error)
}
