//! The event source: a hub's partitions and readers on them.
//!
//! Check a source of your own with the conformance suite in the testkit (feature `testkit`).

mod error;
mod gap;
mod memory;

use std::sync::Arc;

use futures_util::future::BoxFuture;

pub use error::{SourceError, SourceErrorKind};
pub use gap::{Gap, GapCause, Gaps};
pub use memory::{MemoryHub, MemorySource};

use crate::model::{
    ConsumerGroup, Epoch, Event, HubName, LastEnqueued, Namespace, PartitionId, Position, StreamId,
};

/// What a hub says about itself.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct HubDescription {
    /// The namespace.
    pub namespace: Namespace,
    /// The hub.
    pub hub: HubName,
    /// Which life of the hub's data this is, where the hub tells.
    pub stream: Option<StreamId>,
    /// The partitions there are now. More may come; none goes, unless the hub is made again.
    pub partitions: Vec<PartitionId>,
}

/// What a reader is asked for.
#[derive(Clone, PartialEq, Debug)]
pub struct ReadRequest {
    /// The consumer group to read in.
    pub group: ConsumerGroup,
    /// The partition.
    pub partition: PartitionId,
    /// Where to start.
    pub from: Position,
    /// Reads exclusively at this level: a reader of an equal or higher one evicts this one, and this one evicts
    /// those of an equal or lower one and those without. None = beside others.
    pub owner_level: Option<Epoch>,
    /// The reader's name, for the hub's messages.
    pub name: Arc<str>,
    /// How many events the reader may hold that were not yet taken.
    pub prefetch_events: usize,
    /// How many bytes of such events.
    pub prefetch_bytes: usize,
}

/// A partitioned stream of events.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not an event source",
    label = "not an `EventSource`",
    note = "give `EventHubs::connect(connection_string, hub)?`, `MemoryHub::new(name, partitions).source()`, or `HubSource::new(hub)` for a hub of this process",
    note = "for an `Arc<dyn EventSource>` use `Processor::builder_dyn(source, store)`"
)]
pub trait EventSource: Send + Sync + 'static {
    /// What the hub is and which partitions it has now.
    fn describe(&self) -> BoxFuture<'_, Result<HubDescription, SourceError>>;

    /// How [`HubDescription::namespace`] was spelled by former versions of the source: what a store has under such a name is
    /// this hub's.
    fn former_namespaces(&self) -> Vec<Namespace> {
        Vec::new()
    }

    /// Fails if the hub has no such consumer group, where the hub tells. A processor asks before it joins the group, so that a
    /// name that is not there prevents the start instead of failing every partition later.
    fn check_group<'a>(&'a self, _group: &'a ConsumerGroup) -> BoxFuture<'a, Result<(), SourceError>> {
        Box::pin(async { Ok(()) })
    }

    /// Attaches a reader to a partition.
    fn open(&self, request: ReadRequest) -> BoxFuture<'_, Result<Box<dyn PartitionReader>, SourceError>>;
}

/// Reads one partition in order. Dropping it detaches it.
pub trait PartitionReader: Send {
    /// Waits until there is at least one event and appends up to `events_max` of them to `out`, in order and without
    /// leaving one out, unless the hub no longer has it: then [`take_gap`](Self::take_gap) tells. Dropping the future loses no event: the next call goes on where the last one ended. After an error the
    /// reader is of no more use.
    fn read<'a>(
        &'a mut self,
        events_max: usize,
        out: &'a mut Vec<Event>,
    ) -> BoxFuture<'a, Result<(), SourceError>>;

    /// Events that were passed over because the hub no longer has them, at the start or between any two events; costs no
    /// call. Asked after every read until there is no more, so a reader keeps several ([`Gaps`] does). A gap may be told
    /// before the events in front of it are taken. Every source whose sequence numbers are consecutive can tell.
    fn take_gap(&mut self) -> Option<Gap> {
        None
    }

    /// The end of the partition as the reader last heard of it, where the hub tells; costs no call.
    fn last_enqueued(&self) -> Option<LastEnqueued> {
        None
    }
}
