//! One partition of the hub under test, and reads that do not wait for ever.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::timeout;

use super::SourceHarness;
use crate::model::{ConsumerGroup, Epoch, Event, PartitionId, Position};
use crate::source::{EventSource, PartitionReader, ReadRequest, SourceError, SourceErrorKind};

/// How long an event or an error may take.
pub(super) const READ_MAX: Duration = Duration::from_secs(10);

/// How long to listen before nothing counts as silence.
pub(super) const SILENCE: Duration = Duration::from_millis(200);

pub(super) type Reader = Box<dyn PartitionReader>;

pub(super) struct Stream<'a> {
    pub(super) harness: &'a dyn SourceHarness,
    pub(super) source: Arc<dyn EventSource>,
    pub(super) partition: PartitionId,
    pub(super) group: ConsumerGroup,
}

impl<'a> Stream<'a> {
    /// The hub's first partition.
    pub(super) async fn new(harness: &'a dyn SourceHarness) -> Self {
        let source = harness.open().await;
        let description = source.describe().await.expect("the hub describes itself");
        let partition = description.partitions.first().expect("the hub has partitions").clone();
        let [group, _] = harness.groups();
        Self { harness, source, partition, group }
    }

    pub(super) async fn try_open(&self, from: Position, level: Option<u64>) -> Result<Reader, SourceError> {
        self.source
            .open(ReadRequest {
                group: self.group.clone(),
                partition: self.partition.clone(),
                from,
                owner_level: level.map(Epoch),
                name: Arc::from("conformance"),
                prefetch_events: 100,
                prefetch_bytes: 1 << 20,
            })
            .await
    }

    pub(super) async fn open(&self, from: Position, level: Option<u64>) -> Reader {
        match self.try_open(from.clone(), level).await {
            Ok(reader) => reader,
            Err(error) => panic!("no reader at {from}, owner level {level:?}: {error}"),
        }
    }

    /// How a reader fails that must not be: when it is opened, or at its first read where a hub tells it late.
    pub(super) async fn refusal(&self, from: Position, level: Option<u64>) -> SourceErrorKind {
        match self.try_open(from, level).await {
            Err(error) => error.kind(),
            Ok(mut reader) => end(&mut reader).await,
        }
    }

    /// Appends events with these texts.
    pub(super) async fn append(&self, texts: &[String]) {
        let events = texts.iter().map(|text| Event::builder(text.clone())).collect();
        self.harness.append(&self.partition, events).await;
    }

    /// Appends `count` events and reads them.
    pub(super) async fn write(&self, count: usize) -> Vec<Event> {
        let mut reader = self.open(Position::Latest, None).await;
        let texts = texts(count);
        self.append(&texts).await;
        let events = take(&mut reader, count).await;
        assert_eq!(events.iter().map(text).collect::<Vec<_>>(), texts, "events come as they were appended");
        events
    }
}

pub(super) fn texts(count: usize) -> Vec<String> {
    let tag = fastrand::u32(..);
    (0..count).map(|n| format!("{tag:08x}-{n}")).collect()
}

pub(super) fn text(event: &Event) -> String {
    event.text().map(String::from).unwrap_or_default()
}

/// The next `count` events.
pub(super) async fn take(reader: &mut Reader, count: usize) -> Vec<Event> {
    let mut events = Vec::new();
    while events.len() < count {
        let rest = count - events.len();
        match timeout(READ_MAX, reader.read(rest, &mut events)).await {
            Ok(Ok(())) => {}
            Ok(Err(error)) => panic!("a read failed after {} of {count} events: {error}", events.len()),
            Err(_) => panic!("only {} of {count} events came within {READ_MAX:?}", events.len()),
        }
    }
    events
}

/// Reads until the reader fails, and tells how.
pub(super) async fn end(reader: &mut Reader) -> SourceErrorKind {
    let failure = async {
        loop {
            if let Err(error) = reader.read(10, &mut Vec::new()).await {
                return error.kind();
            }
        }
    };
    timeout(READ_MAX, failure).await.unwrap_or_else(|_| panic!("no error came within {READ_MAX:?}"))
}

/// No event comes for a while.
pub(super) async fn is_silent(reader: &mut Reader) {
    let mut events = Vec::new();
    let read = timeout(SILENCE, reader.read(10, &mut events)).await;
    assert!(read.is_err() && events.is_empty(), "nothing was to be read, but there was {events:?}");
}
