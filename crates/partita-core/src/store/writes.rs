//! The conditional writes and their outcomes. Losing a race is an outcome, not an error.

use std::time::Duration;

use super::{CheckpointRecord, InstanceRecord, InstanceSeen, MoveReason, Op, Ownership, Resume, Version};
use crate::model::{Epoch, Incarnation, PartitionId, StreamId, StreamPosition};

/// A write of an instance record.
#[derive(Clone, PartialEq, Debug)]
pub enum InstanceWrite {
    /// Creates the record; refused if there is one. A store also forgets here what died more than an hour ago.
    Register(InstanceRecord),
    /// Renews the lease: replaces the record and stamps it with the store's time, if it is live and still has the
    /// version.
    Beat {
        /// The record with its beat raised.
        record: InstanceRecord,
        /// The version that the last beat left.
        expect: Version,
    },
    /// Declares somebody else dead, if it is live, still has the version, and is at least this old by the store's
    /// clock.
    Bury {
        /// Whom.
        victim: Incarnation,
        /// The version that was watched.
        expect: Version,
        /// The least age.
        age_min: Duration,
    },
    /// Declares an incarnation dead that has no record, by creating a dead one; refused if there is one.
    BuryAbsent {
        /// Whom.
        victim: Incarnation,
    },
    /// Declares oneself dead, at the end of an orderly stop, if the record is live and still has the version.
    Leave {
        /// Oneself.
        incarnation: Incarnation,
        /// The version that the last beat left.
        expect: Version,
    },
}

impl InstanceWrite {
    /// Whose record is written.
    pub fn incarnation(&self) -> &Incarnation {
        match self {
            Self::Register(record) | Self::Beat { record, .. } => &record.incarnation,
            Self::Bury { victim, .. } | Self::BuryAbsent { victim } => victim,
            Self::Leave { incarnation, .. } => incarnation,
        }
    }
}

/// What became of an [`InstanceWrite`].
#[derive(Clone, PartialEq, Debug)]
pub enum InstanceOutcome {
    /// The record as it is now.
    Applied(InstanceSeen),
    /// Nothing was written; the record as it is, if there is one.
    Refused(Option<InstanceSeen>),
}

/// A write of an ownership record.
#[derive(Clone, PartialEq, Debug)]
pub struct OwnershipWrite {
    /// The partition.
    pub partition: PartitionId,
    /// The version that the record must have; none = there must be no record.
    pub expect: Option<Version>,
    /// The owner from now on.
    pub owner: Option<Incarnation>,
    /// The epoch from now on.
    pub epoch: Epoch,
    /// Who waits for a hand-off from now on.
    pub next: Option<Incarnation>,
    /// Why, if the owner changes.
    pub reason: MoveReason,
    /// Names the write.
    pub op: Op,
    /// What to do to the checkpoint in the same step; only for stores that are atomic. Others must answer with
    /// [`StoreError::permanent`](super::StoreError::permanent), an error without effect, and write nothing.
    pub checkpoint: Option<AtomicCheckpoint>,
}

/// The checkpoint's part of an [`OwnershipWrite`]: the former owner's last position, then the seal of the new epoch.
#[derive(Clone, PartialEq, Debug)]
pub struct AtomicCheckpoint {
    /// Written under the condition of [`CheckpointWrite::Advance`] before the seal.
    pub last: Option<(Epoch, StreamPosition, Option<StreamId>)>,
    /// The epoch that seals the record.
    pub seal: Epoch,
}

/// What became of an [`OwnershipWrite`].
#[derive(Clone, PartialEq, Debug)]
pub enum OwnershipOutcome {
    /// The records as they are now.
    Applied {
        /// The ownership.
        ownership: Ownership,
        /// The checkpoint, if it was part of the write.
        checkpoint: Option<CheckpointRecord>,
    },
    /// Nothing was written: the version is another one. The record as it is, if there is one.
    Refused(Option<Ownership>),
    /// Nothing was written: the checkpoint record is sealed by another epoch than the write's, or is already past
    /// its position.
    Fenced(CheckpointRecord),
}

/// A write of a checkpoint record. Where there is none, writes meet one that epoch 0 sealed without a position.
#[derive(Clone, PartialEq, Debug)]
pub enum CheckpointWrite {
    /// Stamps the epoch and keeps the position; creates the record if there is none. Fenced if the record has a
    /// higher epoch. Repeating it changes nothing.
    Seal {
        /// The partition.
        partition: PartitionId,
        /// The new owner's epoch.
        epoch: Epoch,
        /// Names the write.
        op: Op,
    },
    /// Moves the position forward. Fenced if the record's epoch is another one; behind if the position is lower and
    /// of the same life of the hub. Repeating it changes nothing.
    Advance {
        /// The partition.
        partition: PartitionId,
        /// The owner's epoch.
        epoch: Epoch,
        /// The last event handled.
        last: StreamPosition,
        /// The life of the hub that it belongs to.
        stream: Option<StreamId>,
        /// Names the write.
        op: Op,
    },
    /// Moves the position anywhere. Fenced if the record's epoch is another one.
    Seek {
        /// The partition.
        partition: PartitionId,
        /// The owner's epoch.
        epoch: Epoch,
        /// Where to resume.
        resume: Resume,
        /// The life of the hub that it belongs to.
        stream: Option<StreamId>,
        /// Names the write.
        op: Op,
    },
}

impl CheckpointWrite {
    /// Whose record is written.
    pub fn partition(&self) -> &PartitionId {
        match self {
            Self::Seal { partition, .. } | Self::Advance { partition, .. } | Self::Seek { partition, .. } => {
                partition
            }
        }
    }
}

/// What became of a [`CheckpointWrite`].
#[derive(Clone, PartialEq, Debug)]
pub enum CheckpointOutcome {
    /// The record as it is now.
    Applied(CheckpointRecord),
    /// Nothing was written: the record is sealed by another epoch.
    Fenced(CheckpointRecord),
    /// Nothing was written: the position would fall.
    Behind(CheckpointRecord),
}

/// What became of [`adopt_scope`](super::CheckpointStore::adopt_scope).
#[derive(Clone, PartialEq, Debug)]
pub enum Adoption {
    /// All records of the one scope are the other's now.
    Moved,
    /// There was nothing to move: the one has no records, or the other has some already.
    Nothing,
    /// Nothing was moved: this instance of the former scope is live.
    InUse(InstanceSeen),
    /// Nothing was moved: a checkpoint of the former scope belongs to another hub, or to a former life of this one.
    OtherStream(StreamId),
}
