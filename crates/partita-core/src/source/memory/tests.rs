//! What is particular to this hub; what all sources do is the conformance suite's.

use std::time::Duration;

use super::*;
use crate::model::{ConsumerGroup, Offset, Position};

fn request(partition: u32, from: Position) -> ReadRequest {
    ReadRequest {
        group: ConsumerGroup::default(),
        partition: PartitionId::from(partition),
        from,
        owner_level: None,
        name: Arc::from("test"),
        prefetch_events: 100,
        prefetch_bytes: 100_000,
    }
}

async fn read(reader: &mut Box<dyn PartitionReader>, events_max: usize) -> Vec<i64> {
    let mut events = Vec::new();
    reader.read(events_max, &mut events).await.unwrap();
    events.iter().map(|event| event.sequence_number().0).collect()
}

#[tokio::test]
async fn offsets_are_byte_positions_and_an_empty_event_takes_one() {
    let hub = MemoryHub::new("hub", 1);
    let p = PartitionId::from(0);
    let offsets = ["abc", "", "", "x"].map(|body| hub.append(&p, Event::builder(body)).offset);
    assert_eq!(offsets, [0, 3, 4, 5].map(Offset::number));
}

#[tokio::test]
async fn times_never_go_back() {
    let hub = MemoryHub::new("hub", 1);
    let p = PartitionId::from(0);
    for time in [5, 3, 9] {
        hub.append_at(&p, Event::builder("x"), Timestamp(time));
    }
    let times: Vec<i64> =
        hub.events(&p, SequenceNumber(0), 9).iter().map(|event| event.enqueued_time().0).collect();
    assert_eq!(times, [5, 5, 9]);
}

#[tokio::test]
async fn a_time_to_come_waits_for_it() {
    let hub = MemoryHub::new("hub", 1);
    let p = PartitionId::from(0);
    let mut reader = hub.source().open(request(0, Position::Time(Timestamp(100)))).await.unwrap();
    for time in [50, 99, 100, 101] {
        hub.append_at(&p, Event::builder("x"), Timestamp(time));
    }
    assert_eq!(read(&mut reader, 9).await, [2, 3]);
}

#[tokio::test]
async fn trimmed_events_are_skipped_by_new_and_old_readers() {
    let hub = MemoryHub::new("hub", 1);
    let p = PartitionId::from(0);
    let many = 3 * CHUNK_EVENTS as i64;
    hub.append_all(&p, (0..many).map(|_| Event::builder("x")));
    let mut old = hub.source().open(request(0, Position::Earliest)).await.unwrap();
    assert_eq!(read(&mut old, 2).await, [0, 1]);
    let first = CHUNK_EVENTS as i64 + 7;
    hub.trim(&p, SequenceNumber(first));
    assert_eq!(hub.len(&p), (many - first) as u64);
    assert_eq!(read(&mut old, 2).await, [first, first + 1]);
    let mut new = hub.source().open(request(0, Position::at_sequence(SequenceNumber(3)))).await.unwrap();
    assert_eq!(read(&mut new, 1).await, [first]);
    let by_offset = Position::after_offset(Offset::number(first as u64 + 1));
    let mut new = hub.source().open(request(0, by_offset)).await.unwrap();
    assert_eq!(read(&mut new, 1).await, [first + 2]);
    hub.trim(&p, SequenceNumber(many + 99));
    assert_eq!(hub.len(&p), 0);
    hub.append(&p, Event::builder("x"));
    assert_eq!(read(&mut old, 2).await, [many]);
}

#[tokio::test]
async fn a_recount_crosses_chunks() {
    let hub = MemoryHub::new("hub", 1);
    let p = PartitionId::from(0);
    hub.append_all(&p, (0..2_500).map(|n: u32| Event::builder(n.to_string())));
    let events = hub.events(&p, SequenceNumber(10), 2_000);
    assert_eq!(events.len(), 2_000);
    assert!(events.iter().enumerate().all(|(n, event)| *event.text().unwrap() == (n + 10).to_string()));
}

#[tokio::test]
async fn a_reset_changes_the_stream_and_detaches_readers() {
    let hub = MemoryHub::new("hub", 1);
    let p = PartitionId::from(0);
    hub.append_all(&p, ["a", "b"].map(Event::builder));
    let stream = hub.description().stream;
    let mut reader = hub.source().open(request(0, Position::Earliest)).await.unwrap();
    hub.reset();
    assert_ne!(hub.description().stream, stream);
    let error = reader.read(1, &mut Vec::new()).await.unwrap_err();
    assert_eq!(error.kind(), SourceErrorKind::Retriable);
    assert_eq!(hub.append(&p, Event::builder("c")).sequence, SequenceNumber(0));
    let gone = hub.source().open(request(0, Position::after_sequence(SequenceNumber(1)))).await;
    assert_eq!(gone.err().unwrap().kind(), SourceErrorKind::PositionGone);
}

#[tokio::test]
async fn an_unreachable_hub_fails_all_calls_and_waiting_readers() {
    let hub = MemoryHub::new("hub", 1);
    let source = hub.source();
    let mut reader = source.open(request(0, Position::Earliest)).await.unwrap();
    let waiting = tokio::spawn(async move { reader.read(1, &mut Vec::new()).await });
    tokio::task::yield_now().await;
    hub.set_reachable(false);
    assert_eq!(waiting.await.unwrap().unwrap_err().kind(), SourceErrorKind::Retriable);
    assert_eq!(source.describe().await.unwrap_err().kind(), SourceErrorKind::Retriable);
    let open = source.open(request(0, Position::Earliest)).await;
    assert_eq!(open.err().unwrap().kind(), SourceErrorKind::Retriable);
    hub.set_reachable(true);
    hub.append(&PartitionId::from(0), Event::builder("x"));
    let mut reader = source.open(request(0, Position::Earliest)).await.unwrap();
    assert_eq!(read(&mut reader, 1).await, [0]);
}

#[tokio::test]
async fn ordered_failures_reach_the_readers_attached() {
    let hub = MemoryHub::new("hub", 2);
    let (p, other) = (PartitionId::from(0), PartitionId::from(1));
    hub.append(&p, Event::builder("x"));
    hub.append(&other, Event::builder("x"));
    let mut hit = hub.source().open(request(0, Position::Earliest)).await.unwrap();
    let mut spared = hub.source().open(request(1, Position::Earliest)).await.unwrap();
    hub.fail_readers(&p, SourceErrorKind::Fatal, "on order");
    let error = hit.read(1, &mut Vec::new()).await.unwrap_err();
    assert_eq!((error.kind(), error.to_string().contains("on order")), (SourceErrorKind::Fatal, true));
    assert_eq!(read(&mut spared, 1).await, [0]);
    let mut after = hub.source().open(request(0, Position::Earliest)).await.unwrap();
    assert_eq!(read(&mut after, 1).await, [0]);
}

#[tokio::test]
async fn new_partitions_continue_the_numbers() {
    let hub = MemoryHub::new("hub", 9);
    hub.add_partitions(2);
    let ids: Vec<String> =
        hub.description().partitions.iter().map(|partition| partition.to_string()).collect();
    assert_eq!(ids, ["0", "1", "2", "3", "4", "5", "6", "7", "8", "9", "10"]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_reader_sees_every_event_of_a_writer_on_another_thread() {
    let hub = MemoryHub::new("hub", 1);
    let mut reader = hub.source().open(request(0, Position::Earliest)).await.unwrap();
    let writer = std::thread::spawn({
        let hub = hub.clone();
        move || {
            for n in 0..50_000_u32 {
                hub.append(&PartitionId::from(0), Event::builder(n.to_string()));
            }
        }
    });
    let mut events = Vec::new();
    while events.len() < 50_000 {
        let wait = tokio::time::timeout(Duration::from_secs(10), reader.read(300, &mut events));
        wait.await.expect("a wake-up was lost").unwrap();
    }
    assert!(events.iter().enumerate().all(|(n, event)| event.sequence_number().0 == n as i64));
    writer.join().unwrap();
}
