//! Where a producer sends an event.

use std::sync::Arc;

use super::PartitionId;

/// How a producer chooses the partition.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub enum Route {
    /// This partition.
    Partition(PartitionId),
    /// The one that the key belongs to: events of a key stay in order. The events get the key.
    Key(Arc<str>),
    /// The hub's choice, for each batch another one; or the one of the key that the events have, if they have one.
    Any,
}

impl Route {
    /// The partition that the key belongs to.
    pub fn key(key: impl AsRef<str>) -> Self {
        Self::Key(Arc::from(key.as_ref()))
    }

    /// This partition.
    pub fn partition(partition: impl Into<PartitionId>) -> Self {
        Self::Partition(partition.into())
    }
}
