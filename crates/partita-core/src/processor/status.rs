//! What can be watched from outside: a snapshot, replaced as a whole.

use std::sync::Arc;
use std::time::Duration;

use crate::coordination::Phase;
use crate::model::{Epoch, Incarnation, InstanceId, PartitionId, Scope, SequenceNumber};
use crate::report::Moved;

/// How many moves a status remembers.
pub(crate) const MOVES_SHOWN_MAX: usize = 64;

/// The group and this instance's part in it, as last seen.
#[derive(Clone, PartialEq, Debug)]
#[non_exhaustive]
pub struct Status {
    /// Namespace, hub and consumer group.
    pub scope: Arc<Scope>,
    /// This instance.
    pub instance: Incarnation,
    /// Where it is in its life.
    pub phase: Phase,
    /// All partitions of the hub.
    pub partitions: Vec<PartitionStatus>,
    /// All live instances, those without partitions too.
    pub instances: Vec<InstanceStatus>,
    /// The last moves that were seen, oldest first.
    pub moves: Vec<Moved>,
}

/// A partition, as this instance sees it.
#[derive(Clone, PartialEq, Debug)]
#[non_exhaustive]
pub struct PartitionStatus {
    /// The partition.
    pub partition: PartitionId,
    /// Who owns it.
    pub owner: Option<Incarnation>,
    /// Who waits for a hand-off.
    pub next: Option<Incarnation>,
    /// At which epoch.
    pub epoch: Epoch,
    /// What this instance's pump has to say, if it has one.
    pub here: Option<Here>,
}

/// A partition that this instance reads.
#[derive(Clone, PartialEq, Debug)]
#[non_exhaustive]
pub struct Here {
    /// The last event handled here.
    pub handled: Option<SequenceNumber>,
    /// The last durable checkpoint.
    pub checkpoint: Option<SequenceNumber>,
    /// How many events are behind the last one handled, where the source tells.
    pub lag_events: Option<u64>,
    /// How many events the hub removed before they were read here, since the partition was opened here.
    pub missed_events: u64,
    /// Events per second, lately.
    pub rate: f64,
    /// Whether it is on its way to another owner.
    pub draining: bool,
}

/// An instance of the group.
#[derive(Clone, PartialEq, Debug)]
#[non_exhaustive]
pub struct InstanceStatus {
    /// Which.
    pub incarnation: Incarnation,
    /// The machine it runs on.
    pub host: Arc<str>,
    /// How many partitions it owns; none = a standby.
    pub partitions: usize,
    /// Time since its last heartbeat, by the store's clock, when last seen.
    pub age: Duration,
    /// Whether it is leaving.
    pub stopping: bool,
}

impl Status {
    /// The partitions that this instance owns.
    pub fn owned(&self) -> impl Iterator<Item = &PartitionStatus> {
        self.partitions.iter().filter(|p| p.owner.as_ref() == Some(&self.instance))
    }

    /// Live instances that own nothing.
    pub fn standbys(&self) -> impl Iterator<Item = &InstanceStatus> {
        self.instances.iter().filter(|i| i.partitions == 0 && !i.stopping)
    }

    /// The instance of this name.
    pub fn instance_named(&self, id: &InstanceId) -> Option<&InstanceStatus> {
        self.instances.iter().find(|i| i.incarnation.id() == id)
    }
}
