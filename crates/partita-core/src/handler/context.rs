//! What a handler is told with every call, and what it can ask for.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{self, Poll};

use futures_util::future::BoxFuture;

use crate::model::{
    ConsumerGroup, Epoch, Event, HubName, InstanceId, LastEnqueued, PartitionId, Position, Scope,
    StreamPosition,
};

/// An owned partition as its handler sees it. The pump is behind it.
pub(crate) trait OwnedPartition: Send + Sync {
    fn scope(&self) -> &Scope;
    fn instance(&self) -> &InstanceId;
    fn partition(&self) -> &PartitionId;
    fn epoch(&self) -> Epoch;
    fn last_enqueued(&self) -> Option<LastEnqueued>;
    fn is_stopping(&self) -> bool;
    fn stopped(&self) -> BoxFuture<'_, ()>;
    fn checkpoint(self: Arc<Self>, event: &Event) -> CheckpointFuture;
    fn seek(&self, position: Position);
}

/// Given to every call of a handler: where it is, and what it can ask for. Cheap to clone.
#[derive(Clone)]
pub struct Context {
    owned: Arc<dyn OwnedPartition>,
}

impl Context {
    pub(crate) fn new(owned: Arc<dyn OwnedPartition>) -> Self {
        Self { owned }
    }

    /// The partition.
    pub fn partition(&self) -> &PartitionId {
        self.owned.partition()
    }

    /// The hub.
    pub fn hub(&self) -> &HubName {
        &self.owned.scope().hub
    }

    /// The consumer group.
    pub fn consumer_group(&self) -> &ConsumerGroup {
        &self.owned.scope().group
    }

    /// The instance that this is.
    pub fn instance(&self) -> &InstanceId {
        self.owned.instance()
    }

    /// The epoch at which this instance owns the partition: it rises with every owner, so that it can fence writes
    /// of one's own, too.
    pub fn epoch(&self) -> Epoch {
        self.owned.epoch()
    }

    /// The end of the partition as the reader last heard of it.
    pub fn last_enqueued(&self) -> Option<LastEnqueued> {
        self.owned.last_enqueued()
    }

    /// Whether no further call will be made: the partition is being handed over, given up or was lost. A long call
    /// should come to an end.
    pub fn is_stopping(&self) -> bool {
        self.owned.is_stopping()
    }

    /// Completes when [`is_stopping`](Self::is_stopping) becomes true.
    pub async fn stopped(&self) {
        self.owned.stopped().await;
    }

    /// Declares this event and all before it handled, and asks for a durable checkpoint there. The request is made at
    /// once; await the future to learn when a checkpoint at or past the event is durable, or why there will be none.
    /// Requests are coalesced: what is written is the newest position. Positions never fall; see [`seek`](Self::seek).
    pub fn checkpoint(&self, event: &Event) -> CheckpointFuture {
        Arc::clone(&self.owned).checkpoint(event)
    }

    /// Goes back, or forward, to a position: once the current call has ended, delivery and checkpoint go on from
    /// there. The only way in which a checkpoint can fall.
    pub fn seek(&self, position: Position) {
        self.owned.seek(position);
    }
}

impl fmt::Debug for Context {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Context")
            .field("scope", self.owned.scope())
            .field("partition", self.owned.partition())
            .field("epoch", &self.owned.epoch())
            .field("instance", self.owned.instance())
            .finish_non_exhaustive()
    }
}

/// Resolves when a checkpoint at or past an event is durable. Dropping it does not take the request back.
#[must_use = "await it to learn whether the checkpoint is durable, or drop it explicitly"]
pub struct CheckpointFuture(pub(crate) BoxFuture<'static, Result<(), CheckpointError>>);

impl Future for CheckpointFuture {
    type Output = Result<(), CheckpointError>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut task::Context<'_>) -> Poll<Self::Output> {
        self.0.as_mut().poll(cx)
    }
}

impl fmt::Debug for CheckpointFuture {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("CheckpointFuture")
    }
}

/// Why a checkpoint will not become durable.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CheckpointError {
    /// Somebody else owns the partition; the events since the last durable checkpoint are delivered to it again.
    #[error("not checkpointed: the partition was lost to another owner")]
    OwnershipLost,
    /// The partition was handed over at a lower position than this.
    #[error("not checkpointed: the partition has been passed on")]
    PassedOn,
    /// The position was moved by a seek since.
    #[error("not checkpointed: a seek has moved the position since")]
    Sought,
    /// No event of this number was delivered here, or not since the last seek. (An event of another partition whose
    /// number was delivered here, too, cannot be told from this partition's own: do not mix them up.)
    #[error("not checkpointed: the event was not delivered to this handler since it was opened or sought")]
    NotDelivered,
    /// The processor is gone.
    #[error("not checkpointed: the processor has stopped")]
    Stopped,
}

/// Given to a handler whose partition was lost: it tells where, and can ask for nothing.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct RevokedContext {
    /// The partition.
    pub partition: PartitionId,
    /// The scope: namespace, hub and consumer group.
    pub scope: Arc<Scope>,
    /// The instance that this is.
    pub instance: InstanceId,
    /// The epoch at which it owned the partition.
    pub epoch: Epoch,
    /// The last event that was handled here, if any.
    pub last_handled: Option<StreamPosition>,
}
