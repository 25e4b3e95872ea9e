//! Connections belong to their client: they outlive whoever needed them first, and there are as many as links need.

mod support;

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use futures_util::future::{join_all, try_join_all};
use partita_core::model::{Event, PartitionId, Position};
use partita_core::processor::{Operation, Processor, ProcessorError, ProcessorHandle};
use partita_core::source::EventSource;
use partita_core::store::MemoryStore;
use partita_hub::broker::Route;
use partita_sources::eventhubs::EventHubs;
use support::{PATIENCE, Served, counted, open, request, take};

/// As many as a hub may have.
const PARTITIONS: u32 = 1_024;

fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().expect("a runtime")
}

#[test]
fn a_connection_outlives_the_runtime_that_needed_it_first() {
    let serving = runtime();
    let served = serving.block_on(Served::new(1));
    let client = served.client();
    let first = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    first.block_on(client.properties()).expect("answers");
    let second = runtime();
    let mut reader = second.block_on(open(&client.source(), 0, Position::Earliest));
    drop(first);
    serving.block_on(served.append(0, [Event::builder("after the first one ended")]));
    let events = second.block_on(take(&mut reader, 1));
    assert_eq!(events[0].text().as_deref(), Some("after the first one ended"));
    assert_eq!(serving.block_on(async { served.server.connections().len() }), 1, "the same connection");
}

#[derive(Clone, Default)]
struct Seen {
    events: Arc<AtomicUsize>,
    numbers: Arc<Mutex<BTreeSet<(PartitionId, i64)>>>,
    errors: Arc<Mutex<Vec<ProcessorError>>>,
}

impl Seen {
    async fn start(&self, client: &EventHubs, group: &str) -> ProcessorHandle {
        let (seen, told) = (self.clone(), self.errors.clone());
        let processor = Processor::builder(client.source(), MemoryStore::new())
            .consumer_group(group)
            .on_event(move |event: Event, cx: partita_core::handler::Context| {
                let key = (cx.partition().clone(), event.sequence_number().0);
                seen.numbers.lock().expect("no panic").insert(key);
                seen.events.fetch_add(1, Ordering::SeqCst);
                async { Ok(()) }
            })
            .on_error(move |error| told.lock().expect("no panic").push(error))
            .build()
            .expect("builds");
        tokio::time::timeout(PATIENCE, processor.start()).await.expect("in time").expect("starts")
    }

    async fn until(&self, events: usize) {
        let began = Instant::now();
        while self.numbers.lock().expect("no panic").len() < events {
            let (seen, errors) =
                (self.events.load(Ordering::SeqCst), self.errors.lock().expect("no panic").len());
            assert!(began.elapsed() < 3 * PATIENCE, "{seen} of {events} events came, {errors} errors");
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }
}

#[test]
fn a_processor_that_stops_with_its_runtime_takes_no_reader_of_another_with_it() {
    let serving = runtime();
    let served = serving.block_on(Served::new(2));
    let client = served.client();
    let (first, second) = (Seen::default(), Seen::default());
    let (ending, going_on) = (runtime(), runtime());
    let one = ending.block_on(first.start(&client, "$Default"));
    let other = going_on.block_on(second.start(&client, "second"));
    serving.block_on(served.append(0, [Event::builder("a")]));
    ending.block_on(first.until(1));
    going_on.block_on(second.until(1));
    ending.block_on(one.shutdown()).expect("stops");
    drop(ending);
    serving.block_on(served.append(0, [Event::builder("b")]));
    serving.block_on(served.append(1, [Event::builder("c")]));
    going_on.block_on(second.until(3));
    let errors = second.errors.lock().expect("no panic").clone();
    let reading = errors.iter().filter(|e| matches!(e.operation, Operation::Read | Operation::OpenReader));
    assert_eq!(reading.count(), 0, "{errors:?}");
    going_on.block_on(other.shutdown()).expect("stops");
}

async fn fill(served: &Served, each: usize) {
    for partition in 0..PARTITIONS {
        let events = (0..each).map(|n| Event::builder(format!("{partition} {n}")));
        served.producer.send_batch(Route::Partition(partition), events).await.expect("durable");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_processor_handles_all_events_of_1024_partitions() {
    let served = Served::new(PARTITIONS).await;
    fill(&served, 2).await;
    let client = served.client();
    let seen = Seen::default();
    let began = Instant::now();
    let processor = seen.start(&client, "$Default").await;
    seen.until(2 * PARTITIONS as usize).await;
    let errors = seen.errors.lock().expect("no panic").clone();
    assert!(errors.is_empty(), "{} errors, such as {:?}", errors.len(), errors.first());
    counted(&format!("2,048 events of 1,024 partitions were handled after {:?}", began.elapsed()));
    processor.shutdown().await.expect("stops");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn requests_about_all_partitions_at_once_wait_their_turn() {
    let served = Served::new(PARTITIONS).await;
    let client = served.client();
    let partitions: Vec<PartitionId> = (0..PARTITIONS).map(PartitionId::from).collect();
    let asked = try_join_all(partitions.iter().map(|partition| client.partition(partition))).await;
    assert_eq!(asked.expect("all are answered").len(), PARTITIONS as usize);
}

/// Opens readers of all partitions at once and takes an event of each.
async fn read_all(served: &Served, client: &EventHubs) {
    let source = client.source();
    let readers = (0..PARTITIONS).map(|p| source.open(request(p, Position::Earliest)));
    let mut readers = try_join_all(readers).await.expect("all are opened");
    let events = join_all(readers.iter_mut().map(|reader| take(reader, 1))).await;
    for (partition, events) in events.iter().enumerate() {
        assert_eq!(events[0].text().as_deref(), Some(&*format!("{partition} 0")));
    }
    assert!(served.server.connections().len() >= 2, "one connection does not take them all");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn four_hubs_of_1024_partitions_are_read_from_one_process() {
    let began = Instant::now();
    let hubs = join_all((0..4).map(|_| async {
        let served = Served::new(PARTITIONS).await;
        fill(&served, 1).await;
        served
    }))
    .await;
    join_all(hubs.iter().map(|served| async {
        let client = served.client();
        read_all(served, &client).await;
        // What was given back can be used again.
        read_all(served, &client).await;
    }))
    .await;
    counted(&format!("4,096 partitions of four hubs read twice in {:?}", began.elapsed()));
}
