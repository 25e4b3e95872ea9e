//! A hub whose data were replaced under running checkpoints.

use std::sync::{Arc, Mutex};

use futures_util::future::BoxFuture;
use partita_core::model::{Event, EventBuilder, Position, SequenceNumber, Timestamp};
use partita_core::processor::ChangedPast;
use partita_core::processor::{Operation, Processor, ProcessorHandle};
use partita_core::source::{
    EventSource, HubDescription, MemoryHub, PartitionReader, ReadRequest, SourceError, SourceErrorKind,
};
use partita_core::store::{CheckpointStore, MemoryStore, Resume};

use crate::support::{Errors, HUB, Machine, partition, secs, soon};

/// One hub by name and stream id, whose data can be replaced.
#[derive(Clone)]
struct Restored {
    data: Arc<Mutex<MemoryHub>>,
    /// An event that cannot be read.
    damaged: Arc<Mutex<Option<i64>>>,
    description: HubDescription,
}

impl Restored {
    fn new(events: impl IntoIterator<Item = i64>) -> Self {
        let hub = hub(events);
        Self { description: hub.description(), data: Arc::new(Mutex::new(hub)), damaged: Arc::default() }
    }

    fn hub(&self) -> MemoryHub {
        self.data.lock().unwrap().clone()
    }

    /// The data are others from now on; whoever reads loses its connection.
    fn replace(&self, events: impl IntoIterator<Item = i64>) {
        let before = std::mem::replace(&mut *self.data.lock().unwrap(), hub(events));
        before.fail_readers(&partition(0), SourceErrorKind::Retriable, "connection lost");
    }
}

/// A hub of one partition, with an event for each of these times.
fn hub(times: impl IntoIterator<Item = i64>) -> MemoryHub {
    let hub = MemoryHub::new(HUB, 1);
    for time in times {
        hub.append_at(&partition(0), event(), Timestamp(time));
    }
    hub
}

fn event() -> EventBuilder {
    Event::builder("event")
}

impl EventSource for Restored {
    fn describe(&self) -> BoxFuture<'_, Result<HubDescription, SourceError>> {
        Box::pin(std::future::ready(Ok(self.description.clone())))
    }

    fn open(&self, request: ReadRequest) -> BoxFuture<'_, Result<Box<dyn PartitionReader>, SourceError>> {
        let damaged =
            self.damaged.lock().unwrap().map(|number| Position::at_sequence(SequenceNumber(number)));
        Box::pin(async move {
            if damaged.as_ref() == Some(&request.from) {
                return Err(SourceError::new(SourceErrorKind::Fatal, "the event is damaged"));
            }
            self.hub().source().open(request).await
        })
    }
}

#[derive(Clone, Default)]
struct Seen(Arc<Mutex<Vec<i64>>>);

impl Seen {
    fn all(&self) -> Vec<i64> {
        self.0.lock().unwrap().clone()
    }

    async fn until(&self, events: &[i64]) {
        soon(&format!("{events:?} handled"), async {
            while self.all() != events {
                tokio::time::sleep(secs(1)).await;
            }
        })
        .await;
    }
}

async fn start(
    source: &Restored,
    store: &MemoryStore,
    past: ChangedPast,
    seen: &Seen,
    errors: &Errors,
) -> ProcessorHandle {
    let seen = seen.clone();
    let processor = Processor::builder(source.clone(), store.clone())
        .instance_id("a")
        .runtime(Machine::new(3))
        .on_error(errors.listener())
        .changed_past(past)
        .on_event(move |event, _| {
            seen.0.lock().unwrap().push(event.enqueued_time().millis());
            async { Ok(()) }
        });
    soon("the start", processor.build().unwrap().start()).await.unwrap()
}

/// Handles all of `first`, then finds `second` in its place after a restart.
async fn restarted(
    first: &[i64],
    second: &[i64],
    past: ChangedPast,
) -> (Restored, Seen, Errors, ProcessorHandle) {
    let (source, store) = (Restored::new(first.to_vec()), MemoryStore::new());
    let (seen, errors) = (Seen::default(), Errors::default());
    let running = start(&source, &store, past, &seen, &errors).await;
    seen.until(first).await;
    running.shutdown().await.unwrap();
    seen.0.lock().unwrap().clear();
    source.replace(second.to_vec());
    let running = start(&source, &store, past, &seen, &errors).await;
    (source, seen, errors, running)
}

fn told(errors: &Errors, what: &str) -> bool {
    errors.of(Operation::Read).iter().any(|error| error.to_string().contains(what))
}

#[tokio::test(start_paused = true)]
async fn an_event_that_was_handled_is_not_handled_again_after_a_restart() {
    let (source, seen, errors, _running) = restarted(&[1, 2, 3], &[1, 2, 3], ChangedPast::Refuse).await;
    source.hub().append_at(&partition(0), event(), Timestamp(4));
    seen.until(&[4]).await;
    assert_eq!(errors.all().iter().map(ToString::to_string).collect::<Vec<_>>(), Vec::<String>::new());
}

#[tokio::test(start_paused = true)]
async fn another_event_at_the_checkpoint_is_refused_until_the_data_are_back() {
    let (source, seen, errors, running) = restarted(&[1, 2, 3], &[1, 7, 8, 9], ChangedPast::Refuse).await;
    soon("it is told", async {
        while !told(&errors, "event 2, the last one handled, is another event now") {
            tokio::time::sleep(secs(1)).await;
        }
    })
    .await;
    tokio::time::sleep(secs(60)).await;
    assert_eq!(seen.all(), Vec::<i64>::new(), "nothing is handled of a hub that is another one");
    source.replace([1, 2, 3, 4]);
    seen.until(&[4]).await;
    running.shutdown().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_hub_with_less_than_was_handled_is_refused() {
    for less in [&[1, 2][..], &[1]] {
        let (source, seen, errors, _running) = restarted(&[1, 2, 3], less, ChangedPast::Refuse).await;
        soon("it is told", async {
            while !told(&errors, "the hub has less than was handled: the partition ends before event 2") {
                tokio::time::sleep(secs(1)).await;
            }
        })
        .await;
        source.hub().append_at(&partition(0), event(), Timestamp(7));
        source.hub().append_at(&partition(0), event(), Timestamp(8));
        tokio::time::sleep(secs(60)).await;
        assert_eq!(seen.all(), Vec::<i64>::new());
    }
}

#[tokio::test(start_paused = true)]
async fn data_replaced_while_the_processor_runs_are_noticed() {
    let (source, store) = (Restored::new([1, 2, 3]), MemoryStore::new());
    let (seen, errors) = (Seen::default(), Errors::default());
    let _running = start(&source, &store, ChangedPast::Refuse, &seen, &errors).await;
    seen.until(&[1, 2, 3]).await;
    source.replace([1, 2, 7, 8]);
    tokio::time::sleep(secs(60)).await;
    assert_eq!(seen.all(), [1, 2, 3]);
    assert!(told(&errors, "is another event now"));
}

#[tokio::test(start_paused = true)]
async fn a_changed_past_is_accepted_when_told_to() {
    let (_, seen, errors, _running) = restarted(&[1, 2, 3], &[1, 7, 8, 9], ChangedPast::StartOver).await;
    seen.until(&[1, 7, 8, 9]).await;
    assert!(told(&errors, "starting over at the earliest event, as was asked for"));
    let (_, seen, errors, _running) = restarted(&[1, 2, 3], &[1, 7, 8, 9], ChangedPast::GoOn).await;
    seen.until(&[9]).await;
    assert!(told(&errors, "continuing anyway, as configured"));
    let (source, seen, _, _running) = restarted(&[1, 2, 3], &[1], ChangedPast::GoOn).await;
    tokio::time::sleep(secs(10)).await;
    source.hub().append_at(&partition(0), event(), Timestamp(7));
    seen.until(&[7]).await;
}

#[tokio::test(start_paused = true)]
async fn what_retention_removed_is_neither_another_past_nor_a_gap_of_its_own() {
    let (source, store) = (Restored::new([1, 2, 3]), MemoryStore::new());
    let (seen, errors) = (Seen::default(), Errors::default());
    let running = start(&source, &store, ChangedPast::Refuse, &seen, &errors).await;
    seen.until(&[1, 2, 3]).await;
    running.shutdown().await.unwrap();
    source.hub().append_at(&partition(0), event(), Timestamp(4));
    source.hub().trim(&partition(0), SequenceNumber(3));
    let _running = start(&source, &store, ChangedPast::Refuse, &seen, &errors).await;
    seen.until(&[1, 2, 3, 4]).await;
    assert_eq!(errors.all().len(), 0);
}

#[tokio::test(start_paused = true)]
async fn a_damaged_event_that_was_handled_does_not_keep_the_next_ones() {
    let (source, store) = (Restored::new([1, 2, 3]), MemoryStore::new());
    let (seen, errors) = (Seen::default(), Errors::default());
    let running = start(&source, &store, ChangedPast::Refuse, &seen, &errors).await;
    seen.until(&[1, 2, 3]).await;
    running.shutdown().await.unwrap();
    *source.damaged.lock().unwrap() = Some(2);
    source.hub().append_at(&partition(0), event(), Timestamp(4));
    let _running = start(&source, &store, ChangedPast::Refuse, &seen, &errors).await;
    seen.until(&[1, 2, 3, 4]).await;
    assert_eq!(errors.all().len(), 0);
}

#[tokio::test(start_paused = true)]
async fn a_checkpoint_keeps_the_time_of_its_event() {
    let (source, store) = (Restored::new([1, 2, 3]), MemoryStore::new());
    let (seen, errors) = (Seen::default(), Errors::default());
    let running = start(&source, &store, ChangedPast::Refuse, &seen, &errors).await;
    seen.until(&[1, 2, 3]).await;
    let scope = (*running.status().scope).clone();
    running.shutdown().await.unwrap();
    let record = store.checkpoints(&scope).await.unwrap().remove(0);
    let Some(Resume::After(last)) = record.resume else { panic!("{record:?}") };
    assert_eq!((last.sequence.0, last.enqueued_time), (2, Some(Timestamp(3))));
}
