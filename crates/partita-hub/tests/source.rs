//! A hub in a directory keeps the contract of event sources, and its producer that of a durable log.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use futures_util::future::BoxFuture;
use partita_core::model::{
    Body, ConsumerGroup, Epoch, Event, EventBuilder, HubName, Offset, PartitionId, Position, SequenceNumber,
    Value,
};
use partita_core::source::{EventSource, GapCause, ReadRequest, SourceErrorKind};
use partita_core::testkit::source::SourceHarness;
use partita_hub::broker::{Broker, Hub, HubOptions, Route, partition_of};
use partita_hub::log::{AppendError, Clock, EncodedBatch, OsDisk, Retention, Settings};
use partita_hub::producer::{HubProducer, SendError};
use partita_hub::source::HubSource;

struct Directory {
    hub: Arc<Hub>,
    producer: HubProducer,
    broker: Option<Broker>,
    dir: tempfile::TempDir,
}

impl Directory {
    fn with(settings: Settings) -> Self {
        let dir = tempfile::tempdir().expect("dir");
        let (broker, _) =
            Broker::open_with(Arc::new(OsDisk), dir.path().join("data"), settings).expect("opens");
        let options = HubOptions { partitions: 2, ..HubOptions::default() };
        let hub = broker.create_hub(&HubName::new("hub"), options).expect("made");
        hub.create_group(&ConsumerGroup::new("second")).expect("made");
        Self { producer: HubProducer::new(hub.clone()), hub, broker: Some(broker), dir }
    }

    fn new() -> Self {
        Self::with(Settings::new(1))
    }

    /// Closes the directory and opens it again.
    fn reopened(self) -> Self {
        self.reopened_with(Settings::new(1))
    }

    fn reopened_with(self, settings: Settings) -> Self {
        let Self { hub, producer, broker, dir } = self;
        drop((hub, producer, broker));
        let opened = Broker::open_with(Arc::new(OsDisk), dir.path().join("data"), settings);
        let (broker, _) = opened.expect("opens again");
        let hub = broker.hub("hub").expect("still there");
        Self { producer: HubProducer::new(hub.clone()), hub, broker: Some(broker), dir }
    }

    fn source(&self) -> HubSource {
        HubSource::new(self.hub.clone())
    }
}

impl SourceHarness for Directory {
    fn open(&self) -> BoxFuture<'_, Arc<dyn EventSource>> {
        Box::pin(async { Arc::new(self.source()) as Arc<dyn EventSource> })
    }

    fn append<'a>(&'a self, partition: &'a PartitionId, events: Vec<EventBuilder>) -> BoxFuture<'a, ()> {
        Box::pin(async move {
            let partition = partition.as_str().parse().expect("a number");
            self.producer.send_batch(Route::Partition(partition), events).await.expect("durable");
        })
    }

    fn remove_before<'a>(
        &'a self,
        partition: &'a PartitionId,
        before: SequenceNumber,
    ) -> BoxFuture<'a, bool> {
        Box::pin(async move {
            let partition = partition.as_str().parse().expect("a number");
            let kept = self.hub.retention();
            self.hub.set_retention(Retention { bytes_max: Some(1 << 20), ..kept }).expect("set");
            let began = std::time::Instant::now();
            while self.hub.partition(partition).expect("there").first_seq.cast_signed() < before.0 {
                assert!(began.elapsed() < Duration::from_secs(30), "retention took too little");
                let filler = Event::builder(vec![7; 50_000]);
                self.producer.send(Route::Partition(partition), filler).await.expect("durable");
            }
            self.hub.set_retention(kept).expect("set");
            true
        })
    }
}

/// Segments and a memory so small that retention can remove what was written a moment ago.
fn small() -> Settings {
    Settings {
        segment_bytes_first: 512 << 10,
        segment_bytes_max: 512 << 10,
        batch_bytes_max: 256 << 10,
        group_bytes_max: 256 << 10,
        tail_bytes_max: 1,
        ..Settings::new(1)
    }
}

partita_core::testkit::source_conformance!(async || Directory::with(small()));

/// The same on a directory that was written, closed and opened again, with a memory so small that the disk is read.
mod reopened {
    use super::*;

    partita_core::testkit::source_conformance!(async || {
        let settings = small();
        let directory = Directory::with(settings.clone());
        let events = (0..500).map(|n| Event::builder(format!("before {n}")));
        directory.producer.send_batch(Route::Partition(0), events).await.expect("durable");
        directory.reopened_with(settings)
    });
}

fn request(partition: u32, from: Position) -> ReadRequest {
    ReadRequest {
        group: ConsumerGroup::default(),
        partition: partition.into(),
        from,
        owner_level: None,
        name: "test".into(),
        prefetch_events: 100,
        prefetch_bytes: 1 << 20,
    }
}

async fn read(source: &HubSource, partition: u32, from: Position, count: usize) -> Vec<Event> {
    let mut reader = source.open(request(partition, from)).await.expect("opens");
    let mut events = Vec::new();
    while events.len() < count {
        let rest = count - events.len();
        let read = tokio::time::timeout(Duration::from_secs(10), reader.read(rest, &mut events)).await;
        read.expect("in time").expect("events");
    }
    events
}

#[tokio::test]
async fn a_send_tells_the_positions_and_they_are_those_that_are_read() {
    let directory = Directory::new();
    let events = || ["a", "bb", "ccc"].map(Event::builder);
    directory.producer.send_batch(Route::Partition(1), events()).await.expect("durable");
    let sent = directory.producer.send_batch(Route::Partition(1), events()).await.expect("durable");
    assert_eq!((sent.partition(), sent.count()), (PartitionId::from(1), 3));
    let read = read(&directory.source(), 1, Position::at_sequence(SequenceNumber(3)), 3).await;
    assert_eq!(sent.positions().collect::<Vec<_>>(), read.iter().map(Event::position).collect::<Vec<_>>());
    assert!(read.iter().all(|event| event.enqueued_time() == sent.enqueued_time()));
}

#[tokio::test]
async fn routes_by_key_round_robin_and_the_events_own_key() {
    let directory = Directory::new();
    let producer = &directory.producer;
    for key in ["home-1", "home-2", "home-3"] {
        let partition = PartitionId::from(partition_of(key, 2));
        let sent = producer.send(Route::Key(key), Event::builder("x")).await.expect("durable");
        assert_eq!(sent.partition(), partition);
        let own = Event::builder("x").partition_key(key);
        let sent = producer.send(Route::RoundRobin, own).await.expect("durable");
        assert_eq!(sent.partition(), partition);
        let last = sent.positions().last().expect("one");
        let read = read(&directory.source(), partition_of(key, 2), Position::at_offset(last.offset), 1).await;
        assert_eq!(read[0].partition_key(), Some(key));
    }
    let mut partitions = Vec::new();
    for _ in 0..2 {
        let sent = producer.send(Route::RoundRobin, Event::builder("x")).await.expect("durable");
        partitions.push(sent.partition());
    }
    assert_ne!(partitions[0], partitions[1]);
}

#[tokio::test]
async fn what_cannot_be_sent_is_refused_for_good() {
    let directory = Directory::new();
    let keys = ["a", "b"].map(|key| Event::builder("x").partition_key(key));
    let big = Event::builder(vec![0; 2 << 20]);
    let mixed = Event::builder(Value::Array(vec![Value::Null, Value::from(1_i32)]));
    let producer = &directory.producer;
    let errors = [
        producer.send_batch(Route::RoundRobin, keys).await.expect_err("mixed keys"),
        producer.send_batch(Route::RoundRobin, []).await.expect_err("empty"),
        producer.send(Route::RoundRobin, big).await.expect_err("too large"),
        producer.send(Route::RoundRobin, mixed).await.expect_err("no AMQP"),
        producer.send(Route::Partition(7), Event::builder("x")).await.expect_err("no partition"),
    ];
    assert!(errors.iter().all(|error| !error.is_retriable() && !error.may_have_happened()), "{errors:?}");
    assert_eq!(errors[0], SendError::MixedKeys);
    assert!(SendError::from(AppendError::QueueFull).is_retriable());
    // Nothing of what was refused holds on to the producer's room.
    producer.send(Route::RoundRobin, Event::builder("x")).await.expect("durable");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn many_sends_fit_through_little_room() {
    let directory = Directory::new();
    let producer = HubProducer::with_outstanding_bytes(directory.hub.clone(), 2_000);
    let sends = (0..200).map(|n| producer.send(Route::Partition(0), Event::builder(vec![n as u8; 700])));
    let sent = futures_util::future::join_all(sends).await;
    assert!(sent.iter().all(Result::is_ok));
    assert_eq!(read(&directory.source(), 0, Position::Earliest, 200).await.len(), 200);
}

#[tokio::test]
async fn a_stream_is_the_same_after_a_restart_and_another_after_a_reset() {
    let first = Directory::new();
    let stream = first.source().stream();
    let sent = first.producer.send(Route::Partition(0), Event::builder("kept")).await.expect("durable");
    let first = first.reopened();
    assert_eq!(first.source().stream(), stream);
    let position = sent.positions().next().expect("one");
    let read = read(&first.source(), 0, Position::Earliest, 1).await;
    assert_eq!((read[0].position(), read[0].text().as_deref()), (position, Some("kept")));
    assert_ne!(Directory::new().source().stream(), stream);
}

#[tokio::test]
async fn errors_say_what_to_do() {
    let directory = Directory::new();
    let source = directory.source();
    let kind = async |request: ReadRequest| source.open(request).await.err().expect("refused").kind();
    let group = ConsumerGroup::new("nobody");
    assert_eq!(kind(ReadRequest { group, ..request(0, Position::Earliest) }).await, SourceErrorKind::Fatal);
    let text = Position::at_offset(Offset::parse("7:8:9"));
    assert_eq!(kind(request(0, text)).await, SourceErrorKind::PositionGone);
    for far in
        [Position::after_offset(Offset::number(u64::MAX)), Position::after_sequence(SequenceNumber(i64::MAX))]
    {
        assert_eq!(kind(request(0, far)).await, SourceErrorKind::PositionGone);
    }
    let mut readers = Vec::new();
    for _ in 0..5 {
        readers.push(source.open(request(1, Position::Latest)).await.expect("one of five"));
    }
    assert_eq!(kind(request(1, Position::Latest)).await, SourceErrorKind::Retriable);
    let exclusive = ReadRequest { owner_level: Some(Epoch(1)), ..request(1, Position::Latest) };
    let _reader = source.open(exclusive).await.expect("takes it");
    for reader in &mut readers {
        let error = reader.read(1, &mut Vec::new()).await.expect_err("evicted");
        assert_eq!(error.kind(), SourceErrorKind::OwnershipLost);
    }
}

#[tokio::test]
async fn bytes_that_are_no_message_are_told_by_number_and_can_be_passed() {
    let directory = Directory::new();
    directory.producer.send(Route::Partition(0), Event::builder("good")).await.expect("durable");
    let foreign = EncodedBatch::of(&["no message"]).expect("a batch");
    directory.hub.send_and_wait(Route::Partition(0), foreign).expect("durable");
    directory.producer.send(Route::Partition(0), Event::builder("good, too")).await.expect("durable");
    let source = directory.source();
    let mut reader = source.open(request(0, Position::Earliest)).await.expect("opens");
    let mut events = Vec::new();
    reader.read(10, &mut events).await.expect("what comes before");
    assert_eq!(events.len(), 1);
    let error = reader.read(10, &mut events).await.expect_err("no message");
    assert_eq!(error.kind(), SourceErrorKind::Fatal);
    assert!(error.to_string().contains("event 1 ") && error.to_string().contains("seek to 2"), "{error}");
    let after = read(&source, 0, Position::at_sequence(SequenceNumber(2)), 1).await;
    assert_eq!(*after[0].body(), Body::from("good, too"));
}

#[tokio::test]
async fn a_time_to_come_waits_for_it() {
    let directory = Directory::new();
    let sent = directory.producer.send(Route::Partition(0), Event::builder("early")).await.expect("durable");
    let time = partita_core::model::Timestamp(sent.enqueued_time().0 + 300);
    let mut reader = directory.source().open(request(0, Position::Time(time))).await.expect("opens");
    directory.producer.send(Route::Partition(0), Event::builder("still early")).await.expect("durable");
    tokio::time::sleep(Duration::from_millis(400)).await;
    directory.producer.send(Route::Partition(0), Event::builder("late")).await.expect("durable");
    let mut events = Vec::new();
    reader.read(10, &mut events).await.expect("an event");
    assert_eq!(events[0].text().as_deref(), Some("late"));
}

#[tokio::test]
async fn a_reader_behind_the_start_gets_the_oldest_event() {
    let mut directory = Directory::with(small());
    let broker = directory.broker.take().expect("open");
    let retention = Retention { bytes_max: Some(1 << 20), ..Retention::default() };
    let options = HubOptions { partitions: 1, retention };
    let hub = broker.create_hub(&HubName::new("small"), options).expect("made");
    let (source, producer) = (HubSource::new(hub.clone()), HubProducer::new(hub.clone()));
    producer.send(Route::Partition(0), Event::builder("the first one")).await.expect("durable");
    // It has read nothing yet when what it wants is gone.
    let mut overtaken = source.open(request(0, Position::Earliest)).await.expect("opens");
    let began = std::time::Instant::now();
    while hub.partition(0).expect("there").first_seq == 0 {
        assert!(began.elapsed() < Duration::from_secs(30), "retention took nothing");
        producer.send(Route::Partition(0), Event::builder(vec![7; 50_000])).await.expect("durable");
    }
    let mut events = Vec::new();
    overtaken.read(1, &mut events).await.expect("goes on");
    let first = events[0].sequence_number();
    assert!(first.0 > 0, "the first one is gone");
    let gap = overtaken.take_gap().expect("it is told");
    assert_eq!((&gap.from, gap.next), (&Position::at_sequence(SequenceNumber(0)), first));
    let words = format!("events 0 to {}: removed by retention before they were read", first.0 - 1);
    assert!(gap.to_string().starts_with(&words), "{gap}");
    assert_eq!(overtaken.take_gap(), None, "once");
    for gone in [Position::at_sequence(SequenceNumber(0)), Position::at_offset(Offset::number(0))] {
        let mut late = source.open(request(0, gone.clone())).await.expect("opens");
        assert_eq!(late.take_gap().expect("it is told").from, gone);
        let first = read(&source, 0, gone, 1).await.remove(0);
        assert!(first.sequence_number() >= events[0].sequence_number());
    }
}

#[tokio::test]
async fn a_lost_start_that_was_accepted_is_a_gap_with_its_range_and_cause_once_per_reader() {
    let dir = tempfile::tempdir().expect("dir");
    let data = dir.path().join("data");
    let open = |accept: &[String]| {
        Broker::open_accepting(Arc::new(OsDisk), &data, Settings::new(1), accept).expect("opens").0
    };
    let options = HubOptions { partitions: 1, ..HubOptions::default() };
    let hub = open(&[]).create_hub(&HubName::new("one"), options).expect("made");
    let producer = HubProducer::new(hub.clone());
    for n in 0..5 {
        producer.send(Route::Partition(0), Event::builder(format!("{n}"))).await.expect("durable");
    }
    drop((producer, hub));
    std::fs::remove_file(data.join("hubs/0000000000000001/0000000000000001.seg")).expect("there");
    let hub = open(&["one".to_owned()]).hub("one").expect("there");
    assert!(hub.log().readable_seqs(0).is_empty(), "nobody waits for what is lost");
    let producer = HubProducer::new(hub.clone());
    producer.send(Route::Partition(0), Event::builder("next")).await.expect("durable");
    assert_eq!(hub.log().readable_seqs(0), 5..6);
    let source = HubSource::new(hub);
    for (from, first) in [
        (Position::Earliest, 0),
        (Position::at_sequence(SequenceNumber(2)), 2),
        (Position::at_offset(Offset::number(1)), 0),
    ] {
        let mut reader = source.open(request(0, from)).await.expect("opens");
        let mut events = Vec::new();
        reader.read(10, &mut events).await.expect("goes on");
        assert_eq!(events[0].sequence_number(), SequenceNumber(5));
        let gap = reader.take_gap().expect("it is told");
        assert_eq!((gap.range(), gap.cause), (Some(first..5), GapCause::Damage));
        assert_eq!(reader.take_gap(), None, "once");
    }
}

#[tokio::test]
async fn plain_readers_see_all_events_each() {
    let directory = Directory::new();
    let source = directory.source();
    let mut readers = Vec::new();
    for _ in 0..3 {
        readers.push(source.open(request(0, Position::Latest)).await.expect("one of five"));
    }
    let events = (0..10).map(|n| Event::builder(format!("{n}")));
    directory.producer.send_batch(Route::Partition(0), events).await.expect("durable");
    for reader in &mut readers {
        let mut events = Vec::new();
        while events.len() < 10 {
            reader.read(10, &mut events).await.expect("events");
        }
        assert_eq!(
            events.iter().map(|event| event.sequence_number().0).collect::<Vec<_>>(),
            Vec::from_iter(0..10)
        );
    }
}

#[tokio::test]
async fn a_send_waits_for_room_in_the_queue_and_is_woken_when_there_is_some() {
    let settings = Settings { queue_bytes_max: 4 << 10, ..Settings::new(1) };
    let directory = Directory::with(settings);
    let broker = directory.broker.as_ref().expect("open");
    let hub = broker.create_hub(&HubName::new("narrow"), HubOptions::default()).expect("made");
    // Each alone may have more under way than the hub's queue takes.
    let sends = (0..400).map(|_| {
        let producer = HubProducer::new(hub.clone());
        async move { producer.send(Route::Partition(0), Event::builder(vec![7; 1_000])).await }
    });
    let all = futures_util::future::join_all(sends);
    let sent = tokio::time::timeout(Duration::from_secs(60), all).await.expect("nobody is forgotten");
    assert!(sent.iter().all(Result::is_ok));
    assert_eq!(hub.partition(0).expect("there").next_seq, 400);
}

/// Flips a bit of the first file below a directory that holds these bytes.
fn damage(dir: &std::path::Path, needle: &[u8]) -> bool {
    std::fs::read_dir(dir).expect("a directory").any(|entry| {
        let path = entry.expect("an entry").path();
        if path.is_dir() {
            return damage(&path, needle);
        }
        let mut bytes = std::fs::read(&path).expect("readable");
        let found = bytes.windows(needle.len()).position(|window| window == needle);
        if let Some(at) = found {
            bytes[at] ^= 1;
            std::fs::write(&path, bytes).expect("written");
        }
        found.is_some()
    })
}

#[tokio::test(flavor = "multi_thread")]
async fn damaged_events_end_every_reader_for_good_and_are_a_gap_once_they_are_given_up() {
    // With the tail cache and without: the damaged batch is in what recovery puts there, too.
    for tail_bytes_max in [1, 1 << 20] {
        // Every batch has a time of its own.
        let now = AtomicI64::new(1_000);
        let clock = Clock::new(move || now.fetch_add(1, Ordering::SeqCst));
        let settings = Settings { tail_bytes_max, clock, ..Settings::new(1) };
        let directory = Directory::with(settings.clone());
        for batch in 0..5 {
            let events = (0..3).map(|n| Event::builder(format!("batch {batch} event {n}")));
            directory.producer.send_batch(Route::Partition(0), events).await.expect("durable");
        }
        let all = read(&directory.source(), 0, Position::Earliest, 15).await;
        let Directory { hub, producer, broker, dir } = directory;
        drop((hub, producer, broker));
        assert!(damage(dir.path(), b"batch 2 event 1"));
        let opened = Broker::open_with(Arc::new(OsDisk), dir.path().join("data"), settings);
        let broker = opened.expect("opens again").0;
        let hub = broker.hub("hub").expect("still there");
        let source = HubSource::new(hub.clone());
        assert!(hub.log().is_damaged(), "known before anybody reads");
        let starts = [
            (Position::Earliest, 0),
            (Position::at_sequence(SequenceNumber(4)), 4),
            (Position::at_sequence(SequenceNumber(7)), 6),
            (Position::Offset { offset: all[4].position().offset, inclusive: true }, 4),
            (Position::Offset { offset: all[5].position().offset, inclusive: false }, 6),
            (Position::Offset { offset: all[7].position().offset, inclusive: true }, 6),
            (Position::Time(all[3].enqueued_time()), 3),
            (Position::Time(all[6].enqueued_time()), 6),
        ];
        for (from, first) in starts {
            let mut reader = source.open(request(0, from.clone())).await.expect("opens");
            let mut events = Vec::new();
            let error = loop {
                let read = reader.read(100, &mut events);
                match tokio::time::timeout(Duration::from_secs(10), read).await.expect("in time") {
                    Ok(()) => assert!(events.len() <= 6, "{from}: passed over damage"),
                    Err(error) => break error,
                }
            };
            assert_eq!(error.kind(), SourceErrorKind::Fatal, "{error}");
            assert!(
                error.to_string().contains("events 6 to 8 of partition 0 of hub 'hub' are damaged"),
                "{error}"
            );
            let seqs: Vec<_> = events.iter().map(|event| event.sequence_number().0).collect();
            assert_eq!(seqs, (first..6).collect::<Vec<_>>(), "{from}");
        }
        hub.log().accept_loss(0, 6, 8).expect("lost");
        let mut reader = source.open(request(0, Position::Earliest)).await.expect("opens");
        let (mut events, mut gaps) = (Vec::new(), Vec::new());
        while events.len() < 12 {
            let read = tokio::time::timeout(Duration::from_secs(10), reader.read(100, &mut events)).await;
            read.expect("in time").expect("events");
            gaps.extend(reader.take_gap());
        }
        let seqs: Vec<_> = events.iter().map(|event| event.sequence_number().0).collect();
        assert_eq!(seqs, (0..6).chain(9..15).collect::<Vec<_>>());
        let said: Vec<_> = gaps.iter().map(|gap| (gap.cause, gap.to_string())).collect();
        let words = "events 6 to 8: lost to damage, which was accepted; reading goes on at event 9";
        assert_eq!(said, [(GapCause::Damage, words.to_owned())]);
    }
}
