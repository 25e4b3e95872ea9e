//! A source that remembers how many events each read of a partition brought.

use std::collections::BTreeMap;
use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};

use partita::source::{Gap, HubDescription, PartitionReader, ReadRequest, SourceError};
use partita::{Event, EventSource, MemorySource, PartitionId};

/// The sizes of the reads of one partition, in order.
pub(crate) type ReadSizes = Arc<Vec<usize>>;

type BoxFuture<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

#[derive(Clone)]
pub(crate) struct Recorder {
    source: MemorySource,
    sizes: Arc<Mutex<BTreeMap<PartitionId, Vec<usize>>>>,
}

impl Recorder {
    pub(crate) fn new(source: MemorySource) -> Self {
        Self { source, sizes: Arc::default() }
    }

    pub(crate) fn sizes(&self) -> Vec<(PartitionId, ReadSizes)> {
        let sizes = self.sizes.lock().unwrap_or_else(PoisonError::into_inner);
        sizes.iter().map(|(partition, sizes)| (partition.clone(), Arc::new(sizes.clone()))).collect()
    }
}

impl EventSource for Recorder {
    fn describe(&self) -> BoxFuture<'_, Result<HubDescription, SourceError>> {
        self.source.describe()
    }

    fn open(&self, request: ReadRequest) -> BoxFuture<'_, Result<Box<dyn PartitionReader>, SourceError>> {
        Box::pin(async move {
            let partition = request.partition.clone();
            let reader = self.source.open(request).await?;
            let sizes = Arc::clone(&self.sizes);
            Ok(Box::new(RecordingReader { reader, partition, sizes }) as Box<dyn PartitionReader>)
        })
    }
}

struct RecordingReader {
    reader: Box<dyn PartitionReader>,
    partition: PartitionId,
    sizes: Arc<Mutex<BTreeMap<PartitionId, Vec<usize>>>>,
}

impl PartitionReader for RecordingReader {
    fn read<'a>(
        &'a mut self,
        events_max: usize,
        out: &'a mut Vec<Event>,
    ) -> BoxFuture<'a, Result<(), SourceError>> {
        Box::pin(async move {
            let before = out.len();
            self.reader.read(events_max, out).await?;
            let mut sizes = self.sizes.lock().unwrap_or_else(PoisonError::into_inner);
            sizes.entry(self.partition.clone()).or_default().push(out.len() - before);
            Ok(())
        })
    }

    fn take_gap(&mut self) -> Option<Gap> {
        self.reader.take_gap()
    }
}
