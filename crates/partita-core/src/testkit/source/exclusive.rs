//! Owner levels. Hubs that have none have nothing to show here, except that groups are independent.

use std::time::Duration;

use tokio::time::{Instant, sleep};

use super::SourceHarness;
use super::stream::{READ_MAX, Reader, Stream, end, take, text, texts};
use crate::model::Position;
use crate::source::SourceErrorKind::OwnershipLost;

/// A reader that waits and ends in `OwnershipLost` when one of level `by` attaches, which then reads.
async fn is_evicted(stream: &Stream<'_>, mut reader: Reader, by: u64) {
    let waiting = tokio::spawn(async move { end(&mut reader).await });
    tokio::task::yield_now().await;
    let mut winner = stream.open(Position::Latest, Some(by)).await;
    assert_eq!(waiting.await.expect("a reader that was evicted fails"), OwnershipLost);
    let new = texts(2);
    stream.append(&new).await;
    assert_eq!(take(&mut winner, 2).await.iter().map(text).collect::<Vec<_>>(), new);
}

/// A higher level takes the partition from a lower one, whether it waits or has events to read.
pub async fn higher_level_evicts(harness: &dyn SourceHarness) {
    if !harness.has_owner_levels() {
        return;
    }
    let stream = Stream::new(harness).await;
    let written = stream.write(5).await;
    let first = stream.open(Position::Latest, Some(3)).await;
    is_evicted(&stream, first, 4).await;

    let from = Position::at_sequence(written[0].sequence_number());
    let mut first = stream.open(from, Some(5)).await;
    take(&mut first, 1).await;
    let _second = stream.open(Position::Latest, Some(6)).await;
    assert_eq!(end(&mut first).await, OwnershipLost);
}

/// An equal level takes it too: the same owner came back and its former connection hangs.
pub async fn equal_level_evicts(harness: &dyn SourceHarness) {
    if !harness.has_owner_levels() {
        return;
    }
    let stream = Stream::new(harness).await;
    let first = stream.open(Position::Latest, Some(3)).await;
    is_evicted(&stream, first, 3).await;
}

/// A lower level is refused, and the reader that holds the partition reads on.
pub async fn lower_level_is_refused(harness: &dyn SourceHarness) {
    if !harness.has_owner_levels() {
        return;
    }
    let stream = Stream::new(harness).await;
    let mut holder = stream.open(Position::Latest, Some(3)).await;
    assert_eq!(stream.refusal(Position::Latest, Some(2)).await, OwnershipLost);
    let new = texts(2);
    stream.append(&new).await;
    assert_eq!(take(&mut holder, 2).await.iter().map(text).collect::<Vec<_>>(), new);
}

/// Any level takes the partition from readers without one.
pub async fn level_evicts_plain_readers(harness: &dyn SourceHarness) {
    if !harness.has_owner_levels() {
        return;
    }
    let stream = Stream::new(harness).await;
    let mut beside = stream.open(Position::Latest, None).await;
    let plain = stream.open(Position::Latest, None).await;
    is_evicted(&stream, plain, 0).await;
    assert_eq!(end(&mut beside).await, OwnershipLost);
}

/// A reader without a level does not come in beside one that has one.
pub async fn plain_reader_is_refused_beside_a_level(harness: &dyn SourceHarness) {
    if !harness.has_owner_levels() {
        return;
    }
    let stream = Stream::new(harness).await;
    let mut holder = stream.open(Position::Latest, Some(0)).await;
    assert_eq!(stream.refusal(Position::Latest, None).await, OwnershipLost);
    let new = texts(1);
    stream.append(&new).await;
    assert_eq!(take(&mut holder, 1).await.iter().map(text).collect::<Vec<_>>(), new);
}

/// A reader that was dropped holds nothing.
pub async fn dropped_reader_detaches(harness: &dyn SourceHarness) {
    if !harness.has_owner_levels() {
        return;
    }
    let stream = Stream::new(harness).await;
    drop(stream.open(Position::Latest, Some(9)).await);
    let began = Instant::now();
    // A hub elsewhere hears of it a little later.
    while let Err(error) = stream.try_open(Position::Latest, Some(1)).await {
        assert!(began.elapsed() < READ_MAX, "still held {READ_MAX:?} after the reader was dropped: {error}");
        sleep(Duration::from_millis(20)).await;
    }
}

/// Groups read the same events and do not evict one another.
pub async fn groups_are_independent(harness: &dyn SourceHarness) {
    let first = Stream::new(harness).await;
    let [_, group] = harness.groups();
    let second = Stream { group, ..Stream::new(harness).await };
    let levels = if harness.has_owner_levels() { [Some(5), Some(1)] } else { [None, None] };
    let mut readers =
        [first.open(Position::Latest, levels[0]).await, second.open(Position::Latest, levels[1]).await];
    let new = texts(4);
    first.append(&new).await;
    for reader in &mut readers {
        assert_eq!(take(reader, 4).await.iter().map(text).collect::<Vec<_>>(), new);
    }
}
