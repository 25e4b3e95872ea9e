//! One instance's way to the hub, with faults to order and a record of what was asked for.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use futures_util::future::BoxFuture;
use partita_core::model::{Event, LastEnqueued, PartitionId};
use partita_core::source::{
    EventSource, HubDescription, MemorySource, PartitionReader, ReadRequest, SourceError, SourceErrorKind,
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
            Ok(Box::new(CountingReader { inner, read: Arc::clone(&self.read) }) as Box<dyn PartitionReader>)
        })
    }
}

struct CountingReader {
    inner: Box<dyn PartitionReader>,
    read: Arc<AtomicUsize>,
}

impl PartitionReader for CountingReader {
    fn read<'a>(
        &'a mut self,
        events_max: usize,
        out: &'a mut Vec<Event>,
    ) -> BoxFuture<'a, Result<(), SourceError>> {
        Box::pin(async move {
            let before = out.len();
            self.inner.read(events_max, out).await?;
            self.read.fetch_add(out.len() - before, Ordering::SeqCst);
            Ok(())
        })
    }

    fn last_enqueued(&self) -> Option<LastEnqueued> {
        self.inner.last_enqueued()
    }
}
