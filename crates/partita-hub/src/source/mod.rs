//! A hub of this process as an event source: what a processor reads from when both run in one program.
//!
//! What is in memory is read at once; the disk is read on the runtime's blocking threads. A reader that waits holds no
//! thread: it is woken once per commit that has events for it.
//!
//! **A reader behind the start** (retention took what it asks for, or overtook it) goes on at the oldest event there is, as
//! on the service; the processor tells `on_error` and the handler the range that is gone. Damaged events are never passed over unasked: the
//! reader fails for good, and its error names the events and what to do. Once their loss was accepted they are a gap, too.

mod error;
pub(crate) mod fetch;
mod reader;

use std::sync::Arc;

use futures_util::future::BoxFuture;
use partita_core::model::{ConsumerGroup, Namespace, PartitionId, Position, StreamId};
use partita_core::source::{
    EventSource, GapCause, HubDescription, PartitionReader, ReadRequest, SourceError,
};

use crate::broker::{Attach, AttachError, Hub, HubReader};
use crate::log::ReadError;
use reader::Reader;

/// Reads a hub. Cloning it, or making several, is cheap.
#[derive(Clone, Debug)]
pub struct HubSource {
    hub: Arc<Hub>,
    namespace: Namespace,
}

impl HubSource {
    /// The namespace of hubs in the same process.
    pub const NAMESPACE: &'static str = "localhost";

    /// Reads this hub.
    pub fn new(hub: Arc<Hub>) -> Self {
        Self { hub, namespace: Namespace::new(Self::NAMESPACE) }
    }

    /// Under this namespace, which is part of the key of ownerships and checkpoints.
    pub fn namespace(mut self, namespace: impl Into<Namespace>) -> Self {
        self.namespace = namespace.into();
        self
    }

    /// Which life of the hub's data this is: another one after a reset, the same after a restart.
    pub fn stream(&self) -> StreamId {
        self.hub.stream()
    }
}

impl EventSource for HubSource {
    fn describe(&self) -> BoxFuture<'_, Result<HubDescription, SourceError>> {
        Box::pin(async {
            Ok(HubDescription {
                namespace: self.namespace.clone(),
                hub: self.hub.name().clone(),
                stream: Some(self.stream()),
                partitions: (0..self.hub.partitions()).map(PartitionId::from).collect(),
            })
        })
    }

    fn check_group<'a>(&'a self, group: &'a ConsumerGroup) -> BoxFuture<'a, Result<(), SourceError>> {
        Box::pin(async move {
            let (hub, groups) = (self.hub.name().clone(), self.hub.groups());
            match groups.contains(group) {
                true => Ok(()),
                false => Err(error::of_attach(AttachError::NoGroup { hub, group: group.clone(), groups })),
            }
        })
    }

    fn open(&self, request: ReadRequest) -> BoxFuture<'_, Result<Box<dyn PartitionReader>, SourceError>> {
        Box::pin(async move {
            let bytes_max = request.prefetch_bytes;
            let not_before = match request.from {
                Position::Time(time) => Some(time.millis()),
                _ => None,
            };
            let attach = Attach {
                partition: number(&request.partition)
                    .ok_or_else(|| error::no_partition(&request.partition, self.hub.name()))?,
                group: request.group,
                from: request.from,
                epoch: request.owner_level,
                name: request.name,
            };
            let attached = match attach.from {
                // These places are found by reading.
                Position::Offset { .. } | Position::Time(_) if !self.hub.log().is_single_threaded() => {
                    let hub = self.hub.clone();
                    let attached = tokio::task::spawn_blocking(move || attach_at_oldest(&hub, attach));
                    attached.await.map_err(error::interrupted)?
                }
                _ => attach_at_oldest(&self.hub, attach),
            };
            let reader = Reader::new(attached.map_err(error::of_attach)?, bytes_max, not_before);
            Ok(Box::new(reader) as Box<dyn PartitionReader>)
        })
    }
}

/// Attaches a reader at its position or, if that is gone, at the oldest event.
pub(crate) fn attach_at_oldest(hub: &Arc<Hub>, mut attach: Attach) -> Result<HubReader, AttachError> {
    match hub.attach(attach.clone()) {
        Err(AttachError::Position(gone @ (ReadError::Gone { .. } | ReadError::OffsetGone { .. }))) => {
            tracing::warn!(hub = %hub.name(), reader = %attach.name, %gone, "reader starts at the oldest event");
            let from = std::mem::replace(&mut attach.from, Position::Earliest);
            let mut reader = hub.attach(attach)?;
            reader.pass_over(from, reader.next_seq(), GapCause::Retention);
            Ok(reader)
        }
        other => other,
    }
}

/// Partitions are numbers here, written as one writes numbers.
fn number(partition: &PartitionId) -> Option<u32> {
    let number: u32 = partition.as_str().parse().ok()?;
    (PartitionId::from(number) == *partition).then_some(number)
}
