//! Hubs, groups and readers on a real file system.

use std::sync::Arc;
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use partita_core::model::{ConsumerGroup, Epoch, HubName, Offset, Position, SequenceNumber, Timestamp};
use partita_hub::broker::{
    Attach, AttachError, Broker, BrokerError, Hub, HubOptions, HubReadError, HubReader, Refused, Route,
    partition_of,
};
use partita_hub::log::{
    Ack, AckSink, AppendError, EncodedBatch, ProducerStamp, ProducerState, ReadError, StoredBatch,
};

fn broker(dir: &tempfile::TempDir) -> Broker {
    Broker::open(dir.path().join("data")).expect("opens").0
}

fn hub(broker: &Broker, partitions: u32) -> Arc<Hub> {
    let options = HubOptions { partitions, ..HubOptions::default() };
    broker.create_hub(&HubName::new("telemetry"), options).expect("made")
}

fn send(hub: &Hub, route: Route<'_>, text: &str) -> u32 {
    hub.send_and_wait(route, EncodedBatch::of(&[text]).expect("valid")).expect("durable").partition
}

fn attach(partition: u32, from: Position) -> Attach {
    Attach { group: ConsumerGroup::default(), partition, from, epoch: None, name: "test".into() }
}

fn read(reader: &mut HubReader) -> Vec<String> {
    let mut batches = Vec::new();
    reader.read(1 << 20, &mut batches).expect("read");
    let events = batches.iter().flat_map(StoredBatch::events);
    events.map(|event| String::from_utf8(event.data.to_vec()).expect("text")).collect()
}

#[test]
fn hubs_groups_and_events_are_there_after_a_restart() {
    let dir = tempfile::tempdir().expect("dir");
    let first = broker(&dir);
    let telemetry = hub(&first, 4);
    telemetry.create_group(&ConsumerGroup::new("Alerts")).expect("made");
    telemetry.create_group(&ConsumerGroup::new("alerts")).expect("the same");
    telemetry.add_partitions(6).expect("added");
    send(&telemetry, Route::Partition(5), "kept");
    let id = first.store_id();
    drop((telemetry, first));

    let (second, found) = Broker::open(dir.path().join("data")).expect("opens");
    assert_eq!(second.store_id(), id);
    assert!(found.len() == 1 && found[0].1.is_clean());
    let telemetry = second.hub("TELEMETRY").expect("names compare without case");
    assert_eq!(telemetry.partitions(), 6);
    assert_eq!(telemetry.groups(), [ConsumerGroup::default(), ConsumerGroup::new("alerts")]);
    let mut reader = telemetry.attach(attach(5, Position::Earliest)).expect("attached");
    assert_eq!(read(&mut reader), ["kept"]);
    let last = telemetry.last_enqueued(5).expect("there").position.expect("an event");
    assert_eq!((last.sequence, last.offset), (SequenceNumber(0), Offset::number(0)));
    assert_eq!(telemetry.last_enqueued(0).expect("there").position, None);
}

#[test]
fn names_and_sizes_that_cannot_be_are_refused() {
    let dir = tempfile::tempdir().expect("dir");
    let broker = broker(&dir);
    let telemetry = hub(&broker, 4);
    let again = broker.create_hub(&HubName::new("Telemetry"), HubOptions::default());
    assert!(matches!(again, Err(BrokerError::HubExists(_))));
    for name in ["", "a/b", ".hidden", "ends-"] {
        let made = broker.create_hub(&HubName::new(name), HubOptions::default());
        assert!(matches!(made, Err(BrokerError::BadName(_))), "{name}");
    }
    assert!(matches!(
        telemetry.add_partitions(3),
        Err(BrokerError::FewerPartitions { found: 4, asked: 3, .. })
    ));
    assert!(telemetry.add_partitions(1_025).is_err());
    assert_eq!(telemetry.partitions(), 4);
}

#[test]
fn batches_go_where_they_are_sent() {
    let dir = tempfile::tempdir().expect("dir");
    let broker = broker(&dir);
    let telemetry = hub(&broker, 16);
    assert_eq!(send(&telemetry, Route::Partition(9), "x"), 9);
    assert_eq!(send(&telemetry, Route::Key("house-17"), "x"), partition_of("house-17", 16));
    let turns: Vec<u32> = (0..3).map(|_| send(&telemetry, Route::RoundRobin, "x")).collect();
    assert_eq!(turns, [0, 1, 2]);
    let (acks, answers) = mpsc::sync_channel::<Ack>(64);
    let sink: Arc<dyn AckSink> = Arc::new(acks);
    let partition = telemetry
        .send(Route::RoundRobin, EncodedBatch::of(&["y"]).expect("valid"), 42, &sink)
        .expect("queued");
    let ack = answers.recv().expect("answered");
    assert_eq!((ack.token, ack.outcome.expect("durable").partition), (42, partition));
}

#[test]
fn each_plain_reader_sees_all_events_from_where_it_asked() {
    let dir = tempfile::tempdir().expect("dir");
    let broker = broker(&dir);
    let telemetry = hub(&broker, 1);
    for text in ["a", "bb", "ccc"] {
        send(&telemetry, Route::Partition(0), text);
    }
    let from = |position| read(&mut telemetry.attach(attach(0, position)).expect("attached"));
    assert_eq!(from(Position::Earliest), ["a", "bb", "ccc"]);
    assert_eq!(from(Position::Latest), Vec::<String>::new());
    assert_eq!(from(Position::at_sequence(SequenceNumber(1))), ["bb", "ccc"]);
    assert_eq!(from(Position::after_sequence(SequenceNumber(1))), ["ccc"]);
    assert_eq!(from(Position::after_sequence(SequenceNumber(-1))), ["a", "bb", "ccc"]);
    assert_eq!(from(Position::at_offset(Offset::number(1))), ["bb", "ccc"]);
    assert_eq!(from(Position::after_offset(Offset::number(1))), ["ccc"]);
    assert_eq!(from(Position::Time(Timestamp(0))), ["a", "bb", "ccc"]);
    let refused = |position| telemetry.attach(attach(0, position)).expect_err("refused");
    assert!(matches!(refused(Position::at_offset(Offset::parse("12:3"))), AttachError::BadPosition { .. }));
    let ahead = refused(Position::at_sequence(SequenceNumber(9)));
    assert!(matches!(ahead, AttachError::Position(ReadError::Ahead { next: 3, .. })), "{ahead}");
    let group = Attach { group: ConsumerGroup::new("nobody"), ..attach(0, Position::Earliest) };
    assert!(matches!(telemetry.attach(group), Err(AttachError::NoGroup { .. })));
}

#[test]
fn an_epoch_reader_sends_the_others_away_also_while_they_wait() {
    let dir = tempfile::tempdir().expect("dir");
    let broker = broker(&dir);
    let telemetry = hub(&broker, 1);
    let epoch = |epoch| Attach { epoch: Some(Epoch(epoch)), ..attach(0, Position::Latest) };
    let mut plain = telemetry.attach(attach(0, Position::Latest)).expect("attached");
    let waiter = thread::spawn(move || {
        assert!(plain.wait(Duration::from_secs(20)), "woken");
        plain.read(1, &mut Vec::new()).expect_err("evicted")
    });
    thread::sleep(Duration::from_millis(20));
    let mut first = telemetry.attach(epoch(1)).expect("attached");
    assert!(matches!(waiter.join().expect("no panic"), HubReadError::Evicted { .. }));
    let refused = telemetry.attach(attach(0, Position::Latest)).expect_err("refused");
    assert!(matches!(refused, AttachError::Refused(Refused::Exclusive { .. })));
    assert!(matches!(telemetry.attach(epoch(0)), Err(AttachError::Refused(Refused::LowerEpoch { .. }))));
    // One that cannot start sends nobody away.
    let nowhere = Attach { from: Position::at_sequence(SequenceNumber(99)), ..epoch(2) };
    assert!(telemetry.attach(nowhere).is_err());
    send(&telemetry, Route::Partition(0), "still mine");
    assert_eq!(read(&mut first), ["still mine"]);
    let second = telemetry.attach(epoch(1)).expect("attached");
    let error = first.read(1, &mut Vec::new()).expect_err("evicted").to_string();
    assert!(error.starts_with("New receiver 'test' with higher epoch of '1' is created"), "{error}");
    drop(first);
    assert!(telemetry.attach(attach(0, Position::Latest)).is_err(), "the second one is still there");
    drop(second);
    telemetry.attach(attach(0, Position::Latest)).expect("free again");
}

#[test]
fn an_idempotent_producer_sends_once_whatever_it_repeats_and_comes_back_after_a_restart() {
    let dir = tempfile::tempdir().expect("dir");
    let first = broker(&dir);
    let telemetry = hub(&first, 2);
    let (sender, answers) = mpsc::sync_channel::<Ack>(64);
    let sink: Arc<dyn AckSink> = Arc::new(sender);
    let send = |hub: &Hub, epoch, sequence, token| {
        let batch = EncodedBatch::of(&["a", "b", "c"]).expect("valid");
        let stamp = ProducerStamp { id: 11, epoch, sequence };
        hub.send_idempotent(Route::Partition(1), batch, stamp, token, &sink).expect("queued");
        let answer = answers.recv_timeout(Duration::from_secs(20)).expect("answered");
        assert_eq!(answer.token, token);
        answer.outcome
    };
    let began = telemetry.begin_producer(1, 11, None).expect("new");
    assert_eq!(began, ProducerState { epoch: 0, last_sequence: None });
    let placed = send(&telemetry, 0, 1, 1).expect("new");
    assert_eq!(send(&telemetry, 0, 1, 2), Ok(placed));
    assert_eq!(send(&telemetry, 0, 7, 3), Err(AppendError::OutOfOrder { id: 11, expected: 4, found: 7 }));
    assert!(telemetry.begin_producer(2, 11, None).is_err(), "no such partition");
    drop((telemetry, first));

    let second = broker(&dir);
    let telemetry = second.hub("telemetry").expect("there");
    let known = ProducerState { epoch: 0, last_sequence: Some(3) };
    assert_eq!(telemetry.producer_state(1, 11), Some(known));
    assert_eq!(telemetry.begin_producer(1, 11, Some(0)), Ok(known));
    assert_eq!(send(&telemetry, 0, 1, 4), Ok(placed));
    // Another incarnation takes over before it has sent anything.
    telemetry.begin_producer(1, 11, Some(1)).expect("higher");
    assert_eq!(send(&telemetry, 0, 4, 5), Err(AppendError::ProducerStolen { id: 11, epoch: 1 }));
    assert_eq!(send(&telemetry, 1, 1, 6).expect("new").first_seq, 3);
    assert_eq!(telemetry.partition(1).expect("there").next_seq, 6);
}
