//! Positions, order and content.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;

use super::SourceHarness;
use super::stream::{Stream, is_silent, take, text, texts};
use crate::model::{Body, Event, PartitionId, Position, SequenceNumber, Timestamp, Value};
use crate::source::SourceErrorKind;

/// A hub has partitions, each once, and says the same of itself every time.
pub async fn describes_its_partitions(harness: &dyn SourceHarness) {
    let source = harness.open().await;
    let first = source.describe().await.expect("the hub describes itself");
    assert!(first.partitions.len() >= 2, "the suite needs two partitions: {:?}", first.partitions);
    let unique: BTreeSet<&PartitionId> = first.partitions.iter().collect();
    assert_eq!(unique.len(), first.partitions.len(), "a partition is told twice: {:?}", first.partitions);
    assert_eq!(source.describe().await.expect("the hub describes itself"), first);
    assert_eq!(harness.open().await.describe().await.expect("the hub describes itself"), first);
}

/// From every kind of position all events follow, in order, each once.
pub async fn reads_in_order_without_gaps(harness: &dyn SourceHarness) {
    let stream = Stream::new(harness).await;
    let written = stream.write(1_500).await;
    for pair in written.windows(2) {
        assert!(pair[0].sequence_number() < pair[1].sequence_number(), "sequence numbers rise: {pair:?}");
        assert_ne!(pair[0].offset(), pair[1].offset(), "each event has its own offset");
        assert!(pair[0].enqueued_time() <= pair[1].enqueued_time(), "times do not go back: {pair:?}");
    }
    let middle = &written[700];
    let positions = [
        (Position::at_sequence(middle.sequence_number()), 700),
        (Position::after_sequence(middle.sequence_number()), 701),
        (Position::at_offset(middle.offset().clone()), 700),
        (Position::after_offset(middle.offset().clone()), 701),
        (Position::at_sequence(written[1_499].sequence_number()), 1_499),
        (middle.next_position(), 701),
    ];
    for (position, first) in positions {
        let mut reader = stream.open(position.clone(), None).await;
        let expected = &written[first..];
        assert!(take(&mut reader, expected.len()).await == expected, "wrong events from {position} on");
    }
    let mut reader = stream.open(Position::after_sequence(written[1_499].sequence_number()), None).await;
    is_silent(&mut reader).await;

    let mut reader = stream.open(Position::Earliest, None).await;
    let mut events = take(&mut reader, written.len()).await;
    while events.last() != written.last() {
        events.extend(take(&mut reader, 1).await);
    }
    assert!(events.ends_with(&written), "wrong events from the earliest on");
}

/// A reader gets the events of its partition only.
pub async fn partitions_do_not_mix(harness: &dyn SourceHarness) {
    let first = Stream::new(harness).await;
    let mut second = Stream::new(harness).await;
    let description = second.source.describe().await.expect("the hub describes itself");
    second.partition = description.partitions[1].clone();
    let mut readers = [first.open(Position::Latest, None).await, second.open(Position::Latest, None).await];
    let (here, there) = (texts(3), texts(4));
    first.append(&here).await;
    second.append(&there).await;
    for (reader, expected) in readers.iter_mut().zip([here, there]) {
        assert_eq!(take(reader, expected.len()).await.iter().map(text).collect::<Vec<_>>(), expected);
        is_silent(reader).await;
    }
}

/// A time names the first event enqueued then or later.
pub async fn time_position(harness: &dyn SourceHarness) {
    let stream = Stream::new(harness).await;
    let mut events = stream.write(3).await;
    // Until the hub's clock has moved on.
    while events[0].enqueued_time() == events[events.len() - 1].enqueued_time() {
        tokio::time::sleep(Duration::from_millis(2)).await;
        events.extend(stream.write(1).await);
    }
    let time = events[events.len() - 1].enqueued_time();
    let expected = events.iter().find(|event| event.enqueued_time() >= time);
    let mut reader = stream.open(Position::Time(time), None).await;
    assert_eq!(take(&mut reader, 1).await.first(), expected);
    let mut reader = stream.open(Position::Time(Timestamp(events[0].enqueued_time().0)), None).await;
    let first = &take(&mut reader, 1).await[0];
    assert!(first.enqueued_time() >= events[0].enqueued_time(), "no event before the time: {first:?}");
    assert!(first.sequence_number() <= events[0].sequence_number(), "no event at the time is left out");
}

/// A read never gives more than it was asked for, nor nothing.
pub async fn events_max_is_honoured(harness: &dyn SourceHarness) {
    let stream = Stream::new(harness).await;
    let written = stream.write(40).await;
    let mut reader = stream.open(Position::at_sequence(written[0].sequence_number()), None).await;
    let mut events = Vec::new();
    for events_max in [1, 2, 7].into_iter().cycle() {
        let before = events.len();
        if before == written.len() {
            break;
        }
        let asked = events_max.min(written.len() - before);
        reader.read(asked, &mut events).await.expect("events are there");
        let got = events.len() - before;
        assert!((1..=asked).contains(&got), "asked for up to {asked} events, got {got}");
    }
    assert!(events == written, "events are appended to those there are, in order");
}

/// A reader that has read knows the end of the partition.
pub async fn last_enqueued_is_told(harness: &dyn SourceHarness) {
    if !harness.tells_last_enqueued() {
        return;
    }
    let stream = Stream::new(harness).await;
    let written = stream.write(20).await;
    let last = &written[19];
    let mut reader = stream.open(Position::at_sequence(written[0].sequence_number()), None).await;
    take(&mut reader, 20).await;
    let told = reader.last_enqueued().expect("the end is told after a read");
    assert_eq!(told.position, Some(last.position()));
    assert_eq!(told.enqueued_time, Some(last.enqueued_time()));
}

/// Whatever the harness is able to write is read as it was written.
pub async fn bodies_and_properties_survive(harness: &dyn SourceHarness) {
    let stream = Stream::new(harness).await;
    let list = vec![Value::from("x"), Value::Null, Value::from(-1_i64)];
    let bodies = [
        Body::Data(Bytes::from_static(b"\0\xff plain")),
        Body::Data(Bytes::new()),
        Body::Data(Bytes::from(vec![7; 100_000])),
        Body::DataSections(vec![Bytes::from_static(b"one"), Bytes::new(), Bytes::from_static(b"two")]),
        Body::Value(Value::from("text")),
        Body::Value(Value::Map(vec![(Value::from("key"), Value::List(list.clone()))])),
        Body::Sequence(vec![list, vec![Value::Boolean(true)]]),
    ];
    let properties = [
        ("string", Value::from("grüße")),
        ("empty", Value::from("")),
        ("int", Value::from(-5_i32)),
        ("long", Value::from(i64::MIN)),
        ("unsigned", Value::from(u64::MAX)),
        ("double", Value::from(0.1)),
        ("boolean", Value::from(true)),
        ("time", Value::from(Timestamp(1_700_000_000_123))),
        ("uuid", Value::Uuid(u128::MAX / 3)),
        ("symbol", Value::Symbol(Arc::from("symbol"))),
    ];
    let bodies: Vec<Body> = bodies.into_iter().filter(|body| harness.carries(body)).collect();
    let events = bodies.iter().map(|body| {
        let event = Event::builder(body.clone());
        properties.iter().fold(event, |event, (key, value)| event.property(key, value.clone()))
    });
    let mut reader = stream.open(Position::Latest, None).await;
    harness.append(&stream.partition, events.collect()).await;
    for (event, body) in take(&mut reader, bodies.len()).await.iter().zip(&bodies) {
        assert!(event.body() == body, "written {body:?}, read {:?}", event.body());
        for (key, value) in &properties {
            assert_eq!(event.properties().get(key), Some(value), "property {key:?}");
        }
        assert_eq!(event.properties().len(), properties.len());
    }
}

/// A partition that the hub does not have will not come by trying again.
pub async fn unknown_partition_is_fatal(harness: &dyn SourceHarness) {
    let stream = Stream { partition: PartitionId::new("4711"), ..Stream::new(harness).await };
    assert_eq!(stream.refusal(Position::Earliest, None).await, SourceErrorKind::Fatal);
}

/// A sequence number that the partition has not reached is an error of its own: the hub may have been reset.
pub async fn position_past_the_end_is_told(harness: &dyn SourceHarness) {
    let stream = Stream::new(harness).await;
    let written = stream.write(3).await;
    let far = SequenceNumber(written[2].sequence_number().0 + 1_000);
    for position in [Position::at_sequence(far), Position::after_sequence(far)] {
        assert_eq!(stream.refusal(position, None).await, SourceErrorKind::PositionGone);
    }
}
