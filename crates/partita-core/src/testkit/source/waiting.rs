//! Readers that wait, and reads that are dropped.

use std::time::Duration;

use tokio::time::timeout;

use super::super::poll_once;
use super::SourceHarness;
use super::stream::{READ_MAX, Stream, is_silent, take, text, texts};
use crate::model::Position;

/// `Latest` skips what is there and misses nothing that comes after the reader attached.
pub async fn latest_sees_only_new_events(harness: &dyn SourceHarness) {
    let stream = Stream::new(harness).await;
    stream.write(5).await;
    let mut reader = stream.open(Position::Latest, None).await;
    is_silent(&mut reader).await;
    let new = texts(3);
    stream.append(&new).await;
    assert_eq!(take(&mut reader, 3).await.iter().map(text).collect::<Vec<_>>(), new);
}

/// A reader that waits gets an event when it comes, again and again.
pub async fn waiting_reader_is_woken(harness: &dyn SourceHarness) {
    let stream = Stream::new(harness).await;
    let mut reader = stream.open(Position::Latest, None).await;
    for _ in 0..5 {
        let mut events = Vec::new();
        let new = texts(1);
        {
            let mut read = reader.read(10, &mut events);
            assert!(poll_once(&mut read).await.is_pending(), "there is nothing to read yet");
            stream.append(&new).await;
            let read = timeout(READ_MAX, read).await.expect("a waiting reader is woken");
            read.expect("an event is there");
        }
        assert_eq!(events.iter().map(text).collect::<Vec<_>>(), new);
    }
}

/// Reads that are dropped while they wait, or just before they would give something, lose and repeat nothing.
pub async fn dropped_read_loses_nothing(harness: &dyn SourceHarness) {
    let stream = Stream::new(harness).await;
    let mut reader = stream.open(Position::Latest, None).await;
    let mut expected = Vec::new();
    let mut events = Vec::new();
    for round in 0..40_u32 {
        let new = texts(3);
        if round % 2 == 0 {
            // Dropped while the events arrive.
            let mut read = reader.read(2, &mut events);
            let _ = poll_once(&mut read).await;
            stream.append(&new).await;
            for _ in 0..round % 5 {
                tokio::task::yield_now().await;
            }
        } else {
            stream.append(&new).await;
            drop(reader.read(2, &mut events));
            let _ = timeout(Duration::from_micros(u64::from(round) * 20), reader.read(2, &mut events)).await;
        }
        expected.extend(new);
    }
    while events.len() < expected.len() {
        let rest = expected.len() - events.len();
        let read = timeout(READ_MAX, reader.read(rest, &mut events)).await;
        read.expect("no event was lost").expect("events are there");
    }
    assert_eq!(events.iter().map(text).collect::<Vec<_>>(), expected);
}
