//! One instance's way to the hub, with faults to order and a record of what was asked for.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use futures_util::future::BoxFuture;
use partita_core::model::{Event, LastEnqueued, PartitionId};
use partita_core::source::{
    EventSource, Gap, HubDescription, MemorySource, PartitionReader, ReadRequest, SourceError,
    SourceErrorKind,
};

#[derive(Clone)]
pub struct TestSource {
    inner: MemorySource,
    state: Arc<Mutex<State>>,
    read: Arc<AtomicUsize>,
}

#[derive(Default)]
struct State {
    opening_fails: BTreeMap<PartitionId, SourceErrorKind>,
    requests: Vec<ReadRequest>,
    describing_hangs: bool,
    reads_that_panic: usize,
}

impl TestSource {
    pub fn new(inner: MemorySource) -> Self {
        Self { inner, state: Arc::default(), read: Arc::default() }
    }

    /// From now on this partition cannot be read from here; or, with none, it can.
    pub fn fail_opening(&self, partition: &PartitionId, kind: Option<SourceErrorKind>) {
        let fails = &mut self.state.lock().unwrap().opening_fails;
        match kind {
            Some(kind) => fails.insert(partition.clone(), kind),
            None => fails.remove(partition),
        };
    }

    /// From now on the hub is never described.
    pub fn hang_describing(&self) {
        self.state.lock().unwrap().describing_hangs = true;
    }

    /// The next reads panic.
    pub fn panic_reads(&self, reads: usize) {
        self.state.lock().unwrap().reads_that_panic = reads;
    }

    pub fn requests(&self) -> Vec<ReadRequest> {
        self.state.lock().unwrap().requests.clone()
    }

    /// How many events were read.
    pub fn events_read(&self) -> usize {
        self.read.load(Ordering::SeqCst)
    }
}

impl EventSource for TestSource {
    fn describe(&self) -> BoxFuture<'_, Result<HubDescription, SourceError>> {
        if self.state.lock().unwrap().describing_hangs {
            return Box::pin(std::future::pending());
        }
        self.inner.describe()
    }

    fn open(&self, request: ReadRequest) -> BoxFuture<'_, Result<Box<dyn PartitionReader>, SourceError>> {
        Box::pin(async move {
            let fails = {
                let mut state = self.state.lock().unwrap();
                state.requests.push(request.clone());
                state.opening_fails.get(&request.partition).copied()
            };
            if let Some(kind) = fails {
                return Err(SourceError::new(kind, "not from here"));
            }
            let inner = self.inner.open(request).await?;
            Ok(Box::new(CountingReader { inner, source: self.clone() }) as Box<dyn PartitionReader>)
        })
    }
}

struct CountingReader {
    inner: Box<dyn PartitionReader>,
    source: TestSource,
}

impl PartitionReader for CountingReader {
    fn read<'a>(
        &'a mut self,
        events_max: usize,
        out: &'a mut Vec<Event>,
    ) -> BoxFuture<'a, Result<(), SourceError>> {
        Box::pin(async move {
            let panics = {
                let mut state = self.source.state.lock().unwrap();
                state.reads_that_panic.checked_sub(1).inspect(|left| state.reads_that_panic = *left).is_some()
            };
            if panics {
                // As a panic, but without the message in the test's log.
                std::panic::resume_unwind(Box::new("the reader panics"));
            }
            let before = out.len();
            self.inner.read(events_max, out).await?;
            self.source.read.fetch_add(out.len() - before, Ordering::SeqCst);
            Ok(())
        })
    }

    fn take_gap(&mut self) -> Option<Gap> {
        self.inner.take_gap()
    }

    fn last_enqueued(&self) -> Option<LastEnqueued> {
        self.inner.last_enqueued()
    }
}
