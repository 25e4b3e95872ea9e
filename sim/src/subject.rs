//! What is tried in a world: a handler, a store, and what must be true in the end.

use std::sync::Arc;
use std::time::Duration;

use partita_core::handler::Handler;
use partita_core::model::{InstanceId, PartitionId, SequenceNumber};
use partita_core::processor::{Builder, Checkpoint, ConfigError, NoHandler, Processor};
use partita_core::store::CheckpointStore;

use crate::handler::Watched;
use crate::oracle::SharedOracle;

/// An event that was produced in a world.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Produced {
    /// The partition.
    pub partition: PartitionId,
    /// The sequence number.
    pub sequence: SequenceNumber,
    /// What the event says: its body as text, different for each event.
    pub body: String,
}

/// What is tried: your handler and, if you like, your store. One is made for every world, so that worlds share nothing.
///
/// Everything in it runs in one thread on a simulated clock: wait with `tokio::time`, and use no threads, sockets or files
/// that answer in their own time.
pub trait Subject: Send + Sync + 'static {
    /// The handler.
    type Handler: Handler;

    /// A handler of a partition on an instance, as the factory of a processor makes them.
    fn handler(&self, instance: &InstanceId, partition: &PartitionId) -> Self::Handler;

    /// The store that the instances share, if it is not one in memory. It must be fresh for every world.
    fn store(&self) -> Option<Arc<dyn CheckpointStore>> {
        None
    }

    /// When positions are checkpointed; every 20 events or half a second, unless told otherwise.
    fn checkpoint(&self) -> Checkpoint {
        Checkpoint::every(20).or_after(Duration::from_millis(500))
    }

    /// Asked when all faults are over and everything that was produced was delivered: whether what the handlers left is
    /// right. The error says what is not.
    fn check(&self, produced: &[Produced]) -> Result<(), String> {
        let _ = produced;
        Ok(())
    }
}

/// A subject of any type.
pub(crate) trait AnySubject: Send + Sync {
    fn build(
        self: Arc<Self>,
        builder: Builder<NoHandler>,
        instance: InstanceId,
        oracle: SharedOracle,
    ) -> Result<Processor, ConfigError>;
    fn store(&self) -> Option<Arc<dyn CheckpointStore>>;
    fn check(&self, produced: &[Produced]) -> Result<(), String>;
}

impl<S: Subject> AnySubject for S {
    fn build(
        self: Arc<Self>,
        builder: Builder<NoHandler>,
        instance: InstanceId,
        oracle: SharedOracle,
    ) -> Result<Processor, ConfigError> {
        let checkpoint = Subject::checkpoint(&*self);
        let factory = move |partition: &PartitionId| Watched {
            inner: Subject::handler(&*self, &instance, partition),
            oracle: oracle.clone(),
        };
        builder.handler(factory).checkpoint(checkpoint).build()
    }

    fn store(&self) -> Option<Arc<dyn CheckpointStore>> {
        Subject::store(self)
    }

    fn check(&self, produced: &[Produced]) -> Result<(), String> {
        Subject::check(self, produced)
    }
}
