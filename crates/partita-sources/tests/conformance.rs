//! A hub that is reached over the network keeps the contract of event sources, as the same hub within a process does.

mod support;

use std::sync::Arc;

use futures_util::future::BoxFuture;
use partita_core::model::{EventBuilder, PartitionId, SequenceNumber};
use partita_core::source::EventSource;
use partita_core::testkit::source::SourceHarness;
use support::Served;

impl SourceHarness for Served {
    fn open(&self) -> BoxFuture<'_, Arc<dyn EventSource>> {
        // A client is a source, by way of the one that it gives.
        Box::pin(async { Arc::new(self.client()) as Arc<dyn EventSource> })
    }

    fn append<'a>(&'a self, partition: &'a PartitionId, events: Vec<EventBuilder>) -> BoxFuture<'a, ()> {
        let partition = partition.as_str().parse().expect("a number");
        Box::pin(self.append(partition, events))
    }

    fn remove_before<'a>(
        &'a self,
        partition: &'a PartitionId,
        before: SequenceNumber,
    ) -> BoxFuture<'a, bool> {
        let partition = partition.as_str().parse().expect("a number");
        Box::pin(async move {
            Self::remove_before(self, partition, before).await;
            true
        })
    }
}

partita_core::testkit::source_conformance!(async || Served::small(2).await);
