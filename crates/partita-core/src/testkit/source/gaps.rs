//! Events that the hub no longer has when a reader gets to them.

use std::ops::Range;

use super::SourceHarness;
use super::stream::{Reader, Stream, take, texts};
use crate::model::{Event, Position};

/// About 4 MiB, more than a reader with a prefetch of 100 events and 1 MiB holds, here and at the hub.
const APPENDS: usize = 20;
const EVENTS_PER_APPEND: usize = 100;
const EVENTS: usize = APPENDS * EVENTS_PER_APPEND;
const EVENT_BYTES: usize = 2_000;

/// How many events are read before others are removed.
const READ_BEFORE: usize = 10;

fn number(event: &Event) -> i64 {
    event.sequence_number().0
}

/// Appends events and reads them.
async fn write(stream: &Stream<'_>) -> Vec<Event> {
    let mut reader = stream.open(Position::Latest, None).await;
    let mut written = Vec::new();
    for _ in 0..APPENDS {
        let texts = texts(EVENTS_PER_APPEND).into_iter().map(|text| format!("{text:x<EVENT_BYTES$}"));
        stream.append(&texts.collect::<Vec<_>>()).await;
        written.extend(take(&mut reader, EVENTS_PER_APPEND).await);
    }
    written
}

fn told(reader: &mut Reader) -> Vec<Range<i64>> {
    let gaps = std::iter::from_fn(|| reader.take_gap());
    gaps.map(|gap| gap.range().unwrap_or_else(|| panic!("the gap has no range: {gap}"))).collect()
}

/// Reads up to event `until`, asking for gaps only then; tells the numbers that came and the gaps.
async fn read_until(reader: &mut Reader, until: i64) -> (Vec<i64>, Vec<Range<i64>>) {
    let mut numbers = Vec::new();
    while numbers.last().is_none_or(|last| *last < until) {
        numbers.extend(take(reader, 1).await.iter().map(number));
    }
    (numbers, told(reader))
}

/// The numbers from `next` on that did not come.
fn missing(mut next: i64, numbers: &[i64]) -> Vec<Range<i64>> {
    let mut missing = Vec::new();
    for number in numbers {
        if *number > next {
            missing.push(next..*number);
        }
        next = number + 1;
    }
    missing
}

/// A reader that was to start at an event that is gone starts at the oldest one and tells what is missing.
pub async fn gap_at_the_start_is_told(harness: &dyn SourceHarness) {
    let stream = Stream::new(harness).await;
    let written = write(&stream).await;
    if !harness.remove_before(&stream.partition, written[EVENTS - 50].sequence_number()).await {
        return;
    }
    let first = &written[3];
    for from in [Position::at_sequence(first.sequence_number()), written[2].next_position()] {
        let mut reader = stream.open(from, None).await;
        let (numbers, gaps) = read_until(&mut reader, 0).await;
        assert_eq!(gaps, [number(first)..numbers[0]], "the gap is told with its range");
        assert_eq!(told(&mut reader), [], "once");
    }
    let mut reader = stream.open(Position::Earliest, None).await;
    take(&mut reader, 1).await;
    assert_eq!(told(&mut reader), [], "nothing is missing before the earliest");
}

/// A reader that retention overtakes, whatever it started with, tells what it did not get.
pub async fn gap_in_the_middle_is_told(harness: &dyn SourceHarness) {
    for start in 0..4 {
        let stream = Stream::new(harness).await;
        let written = write(&stream).await;
        let from = match start {
            0 => Position::at_sequence(written[0].sequence_number()),
            1 => Position::at_offset(written[0].offset().clone()),
            2 => Position::Time(written[0].enqueued_time()),
            _ => Position::Earliest,
        };
        let mut reader = stream.open(from.clone(), None).await;
        let read: Vec<i64> = take(&mut reader, READ_BEFORE).await.iter().map(number).collect();
        assert_eq!(told(&mut reader), [], "nothing is missing yet from {from} on");
        let until = written[EVENTS - 50].sequence_number();
        if !harness.remove_before(&stream.partition, until).await {
            return;
        }
        let (numbers, gaps) = read_until(&mut reader, until.0).await;
        let expected = missing(read[READ_BEFORE - 1] + 1, &numbers);
        assert!(!expected.is_empty(), "the suite removed too little: all events from {from} on were read");
        assert_eq!(gaps, expected, "every event from {from} on is read or told to be missing");
        assert_eq!(told(&mut reader), [], "once");
    }
}

/// Gaps that nobody asked for between them are told each with its range, oldest first.
pub async fn several_gaps_are_told_one_by_one(harness: &dyn SourceHarness) {
    let stream = Stream::new(harness).await;
    let mut written = write(&stream).await;
    let mut reader = stream.open(Position::at_sequence(written[0].sequence_number()), None).await;
    let mut numbers: Vec<i64> = take(&mut reader, READ_BEFORE).await.iter().map(number).collect();
    for _ in 0..3 {
        let until = written[EVENTS - 50].sequence_number();
        if !harness.remove_before(&stream.partition, until).await {
            return;
        }
        while numbers.last().is_none_or(|last| *last < until.0) {
            numbers.extend(take(&mut reader, 1).await.iter().map(number));
        }
        written = write(&stream).await;
    }
    let expected = missing(numbers[0], &numbers);
    assert_eq!(expected.len(), 3, "the suite made three gaps: {expected:?}");
    assert_eq!(told(&mut reader), expected);
}
