//! A processor in a process of its own: this binary, started again. It notes the first and the last call of each
//! partition and epoch, and writes them down when its standard input ends.

use std::collections::BTreeMap;
use std::io::Read;
use std::path::Path;
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use partita::model::{HubName, Namespace, Scope, StreamId};
use partita::processor::{Processor, Runtime, TokioRuntime};
use partita::source::{EventSource, HubDescription, PartitionReader, ReadRequest, SourceError};
use partita::sqlite::SqliteStore;
use partita::{ConsumerGroup, Context, Event, Offset, PartitionId, Position, SequenceNumber, Timestamp};

use crate::world::lock;

pub(crate) const PARTITIONS: u32 = 64;

/// What a call takes, so that there is always one running or waiting.
pub(crate) const CALL: Duration = Duration::from_millis(5);

/// The first argument of a process that is a worker; its directory and name follow.
pub(crate) const ARGUMENT: &str = "--sqlite-worker";

type BoxFuture<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

pub(crate) fn scope() -> Scope {
    let hub = description();
    Scope { namespace: hub.namespace, hub: hub.hub, group: ConsumerGroup::default() }
}

/// The start of the first call and the end of the last one, on the machine's clock.
type Calls = BTreeMap<(PartitionId, u64), (u64, u64)>;

pub(crate) fn main(directory: &Path, name: &str) {
    let store = SqliteStore::open(directory.join("checkpoints.db")).expect("a store");
    let mut threads = tokio::runtime::Builder::new_multi_thread();
    let runtime = threads.worker_threads(1).enable_all().build().expect("a runtime");
    let calls = Arc::new(Mutex::new(Calls::new()));
    runtime.block_on(async {
        let (clock, calls) = (TokioRuntime::current(), Arc::clone(&calls));
        let processor = Processor::builder(Endless, store)
            .instance_id(name)
            .on_event(move |_: Event, cx: Context| {
                let (clock, calls) = (clock.clone(), Arc::clone(&calls));
                async move {
                    let start = clock.now().0;
                    tokio::time::sleep(CALL).await;
                    let call = (cx.partition().clone(), cx.epoch().0);
                    lock(&calls).entry(call).or_insert((start, start)).1 = clock.now().0;
                    Ok(())
                }
            })
            .build()
            .expect("options that fit");
        let running = processor.start().await.expect("a start");
        let told = tokio::task::spawn_blocking(|| std::io::stdin().read_to_end(&mut Vec::new()));
        let _ = told.await;
        running.shutdown().await.expect("a good end");
    });
    let lines: String = lock(&calls)
        .iter()
        .map(|((partition, epoch), (start, end))| format!("{partition} {epoch} {start} {end}\n"))
        .collect();
    std::fs::write(directory.join(format!("{name}.calls")), lines).expect("a place for the notes");
}

fn description() -> HubDescription {
    HubDescription {
        namespace: Namespace::new("bench"),
        hub: HubName::new("endless"),
        stream: Some(StreamId::new("only")),
        partitions: (0..PARTITIONS).map(PartitionId::from).collect(),
    }
}

/// A hub without a hub: every process generates the same events, without end.
struct Endless;

impl EventSource for Endless {
    fn describe(&self) -> BoxFuture<'_, Result<HubDescription, SourceError>> {
        Box::pin(std::future::ready(Ok(description())))
    }

    fn open(&self, request: ReadRequest) -> BoxFuture<'_, Result<Box<dyn PartitionReader>, SourceError>> {
        let next = match request.from {
            Position::Sequence { sequence, inclusive } => sequence.0 + i64::from(!inclusive),
            _ => 0,
        };
        Box::pin(std::future::ready(Ok(Box::new(EndlessReader(next)) as Box<dyn PartitionReader>)))
    }
}

struct EndlessReader(i64);

impl PartitionReader for EndlessReader {
    fn read<'a>(&'a mut self, _: usize, out: &'a mut Vec<Event>) -> BoxFuture<'a, Result<(), SourceError>> {
        let n = self.0;
        out.push(Event::builder("more").at(SequenceNumber(n), Offset::number(n as u64), Timestamp(n)));
        self.0 += 1;
        Box::pin(std::future::ready(Ok(())))
    }
}
