//! A processor on a durable hub: every event once, over a hand-off and a restart of the hub.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use partita_core::handler::Context;
use partita_core::model::{Event, HubName, InstanceId};
use partita_core::processor::Timing;
use partita_core::processor::{Checkpoint, Processor, ProcessorError, ProcessorHandle};
use partita_core::store::MemoryStore;
use partita_hub::broker::{Broker, Hub, HubOptions, Route};
use partita_hub::log::{OsDisk, Retention, Settings};
use partita_hub::producer::HubProducer;
use partita_hub::source::HubSource;

const EVENTS: usize = 100_000;
const PARTITIONS: u32 = 4;
const BATCH: usize = 125;

/// Who handled what: by partition, the sequence numbers in the order of their handling.
#[derive(Default)]
struct Ledger {
    handled: Mutex<BTreeMap<String, Vec<i64>>>,
    count: AtomicUsize,
}

impl Ledger {
    async fn wait_for(&self, count: usize) {
        let began = Instant::now();
        while self.count.load(Ordering::Relaxed) < count {
            let handled = self.count.load(Ordering::Relaxed);
            assert!(
                began.elapsed() < Duration::from_secs(60),
                "only {handled} of {count} events were handled"
            );
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
    }
}

async fn start(name: &str, hub: &Arc<Hub>, store: &MemoryStore, ledger: &Arc<Ledger>) -> ProcessorHandle {
    let ledger = ledger.clone();
    let processor = Processor::builder(HubSource::new(hub.clone()), store.clone())
        .instance_id(InstanceId::generate(name))
        .timing(Timing::FAST)
        .checkpoint(Checkpoint::every(1_000).or_after(Duration::from_secs(1)))
        .on_batch(move |events: Vec<Event>, cx: Context| {
            let ledger = ledger.clone();
            async move {
                let mut handled = ledger.handled.lock().expect("no panic");
                let list = handled.entry(cx.partition().to_string()).or_default();
                list.extend(events.iter().map(|event| event.sequence_number().0));
                ledger.count.fetch_add(events.len(), Ordering::Relaxed);
                Ok(())
            }
        })
        .build()
        .expect("options agree");
    processor.start().await.expect("starts")
}

async fn produce(hub: &Arc<Hub>, events: usize) {
    let producer = HubProducer::new(hub.clone());
    let tasks = (0..8).map(|_| {
        let producer = producer.clone();
        tokio::spawn(async move {
            for _ in 0..events / BATCH / 8 {
                let batch = (0..BATCH).map(|_| Event::builder(vec![7; 256]));
                producer.send_batch(Route::RoundRobin, batch).await.expect("durable");
            }
        })
    });
    for task in tasks.collect::<Vec<_>>() {
        task.await.expect("no panic");
    }
}

/// Reopens the directory once the last reader of the hub's former life is gone.
async fn reopen(path: &std::path::Path) -> (Broker, Arc<Hub>) {
    for _ in 0..200 {
        if let Ok((broker, _)) = Broker::open(path) {
            let hub = broker.hub("telemetry").expect("still there");
            return (broker, hub);
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    panic!("the directory is still in use");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_event_once_over_a_hand_off_and_a_restart() {
    let dir = tempfile::tempdir().expect("dir");
    let path = dir.path().join("data");
    let (store, ledger) = (MemoryStore::new(), Arc::new(Ledger::default()));
    let (broker, _) = Broker::open(&path).expect("opens");
    let options = HubOptions { partitions: PARTITIONS, ..HubOptions::default() };
    let hub = broker.create_hub(&HubName::new("telemetry"), options).expect("made");

    // The second processor comes while the first one is at work, so two partitions are handed over.
    let first = start("first", &hub, &store, &ledger).await;
    produce(&hub, EVENTS / 4).await;
    let second = start("second", &hub, &store, &ledger).await;
    produce(&hub, EVENTS / 4).await;
    ledger.wait_for(EVENTS / 2).await;
    first.shutdown().await.expect("stops");
    second.shutdown().await.expect("stops");
    produce(&hub, EVENTS / 2).await;
    drop((hub, broker));

    let (broker, hub) = reopen(&path).await;
    let third = start("third", &hub, &store, &ledger).await;
    ledger.wait_for(EVENTS).await;
    third.shutdown().await.expect("stops");
    drop((hub, broker));

    let handled = ledger.handled.lock().expect("no panic");
    assert_eq!(handled.len(), PARTITIONS as usize);
    let mut total = 0;
    for (partition, numbers) in handled.iter() {
        let expected: Vec<i64> = (0..numbers.len() as i64).collect();
        assert!(*numbers == expected, "partition {partition}: events are missing, repeated or out of order");
        total += numbers.len();
    }
    assert_eq!(total, EVENTS);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn events_that_retention_took_before_they_were_read_are_told_with_their_range() {
    let dir = tempfile::tempdir().expect("dir");
    let settings = Settings {
        segment_bytes_first: 256 << 10,
        segment_bytes_max: 256 << 10,
        batch_bytes_max: 64 << 10,
        group_bytes_max: 128 << 10,
        ..Settings::new(1)
    };
    let (broker, _) = Broker::open_with(Arc::new(OsDisk), dir.path(), settings).expect("opens");
    let retention = Retention { bytes_max: Some(1 << 20), ..Retention::default() };
    let options = HubOptions { partitions: 1, retention };
    let hub = broker.create_hub(&HubName::new("telemetry"), options).expect("made");
    let (store, ledger) = (MemoryStore::new(), Arc::new(Ledger::default()));
    let producer = HubProducer::new(hub.clone());
    producer.send(Route::Partition(0), Event::builder("handled")).await.expect("durable");
    let first = start("first", &hub, &store, &ledger).await;
    ledger.wait_for(1).await;
    first.shutdown().await.expect("ends");
    let began = Instant::now();
    while hub.partition(0).expect("there").first_seq < 10 {
        assert!(began.elapsed() < Duration::from_secs(30), "retention took nothing");
        producer.send(Route::Partition(0), Event::builder(vec![7; 50_000])).await.expect("durable");
    }

    let (told, mut errors) = tokio::sync::mpsc::channel(16);
    let processor = Processor::builder(HubSource::new(hub.clone()), store)
        .on_event(|_: Event, _: Context| async { Ok(()) })
        .on_error(move |error: ProcessorError| {
            let _ = told.try_send(error.to_string());
        })
        .build()
        .expect("options agree");
    let second = processor.start().await.expect("starts");
    let error = tokio::time::timeout(Duration::from_secs(30), errors.recv()).await;
    let error = error.expect("told").expect("a processor that runs");
    assert!(error.contains("partition 0") && error.contains("events 1 to "), "{error}");
    assert!(error.contains("removed by retention before they were read"), "{error}");
    second.shutdown().await.expect("ends");
}

#[tokio::test]
async fn a_consumer_group_that_the_hub_does_not_have_prevents_the_start() {
    let broker = Broker::in_memory(16 << 20).expect("opens");
    let hub = broker.create_hub(&HubName::new("eh1"), HubOptions::default()).expect("is made");
    hub.create_group(&"cg1".into()).expect("is made");
    let start = async |group: &str| {
        let processor = Processor::builder(HubSource::new(hub.clone()), MemoryStore::new())
            .consumer_group(group)
            .timing(Timing::FAST)
            .on_event(|_: Event, _: Context| async { Ok(()) })
            .build()
            .expect("options agree");
        processor.start().await
    };
    let said = start("cg2").await.expect_err("does not start").to_string();
    assert!(
        said.contains("'cg2' could not be found: hub 'eh1' has the consumer groups $Default, cg1"),
        "{said}"
    );
    start("cg1").await.expect("starts").shutdown().await.expect("stops");
}
