//! What each write does to a record: the conditions of the protocol as pure functions.
//!
//! A store that reads a record, decides and replaces it by compare-and-set need not spell them out again; a store
//! that states them in its own language (SQL, Lua) is held to the same by the conformance suite. Records come back
//! without a version: giving them one is the store's business.

use std::sync::Arc;
use std::time::Duration;

use super::{
    Adoption, AtomicCheckpoint, CheckpointRecord, CheckpointWrite, GroupView, InstanceDetails,
    InstanceRecord, InstanceSeen, InstanceState, InstanceWrite, MoveRecord, Op, Ownership, OwnershipWrite,
    Resume, Version,
};
use crate::model::{Epoch, Incarnation, PartitionId, StreamId, StreamPosition, Timestamp};

/// How long the record of a dead incarnation is kept, so that the living see whom they may take from.
pub const DEAD_KEPT: Duration = Duration::from_secs(3_600);

/// Stands in a record until the store has written it.
pub const NOT_WRITTEN: Version = Version::number(0);

/// The instance record that `write` leaves, or none if it is refused.
pub fn instance(current: Option<&InstanceSeen>, write: &InstanceWrite) -> Option<InstanceRecord> {
    let live = |expect: &Version| {
        current.filter(|seen| seen.record.state == InstanceState::Live && seen.version == *expect)
    };
    match write {
        InstanceWrite::Register(record) => {
            current.is_none().then(|| InstanceRecord { state: InstanceState::Live, ..record.clone() })
        }
        InstanceWrite::Beat { record, expect } => {
            live(expect).map(|_| InstanceRecord { state: InstanceState::Live, ..record.clone() })
        }
        InstanceWrite::Bury { expect, age_min, .. } => {
            live(expect).filter(|seen| seen.age >= *age_min).map(|seen| dead(&seen.record))
        }
        InstanceWrite::BuryAbsent { victim } => current.is_none().then(|| tombstone(victim)),
        InstanceWrite::Leave { expect, .. } => live(expect).map(|seen| dead(&seen.record)),
    }
}

fn dead(record: &InstanceRecord) -> InstanceRecord {
    InstanceRecord { state: InstanceState::Dead, ..record.clone() }
}

fn tombstone(victim: &Incarnation) -> InstanceRecord {
    InstanceRecord {
        incarnation: victim.clone(),
        host: Arc::from(""),
        started: Timestamp::default(),
        stopping: false,
        ttl: Duration::ZERO,
        declines: Vec::new(),
        state: InstanceState::Dead,
        beat: 0,
        details: InstanceDetails::default(),
    }
}

/// Why the records of one scope cannot become those of another, or none if they can.
///
/// Records that this version of Partita wrote are of somebody who goes by that name now, so they are left alone.
///
/// `former` and `checkpoints` are all records of the scope to move, `to_is_empty` says whether the other has none, and
/// `stream` is the life of the hub that the other one reads, where the hub tells.
pub fn adoption(
    former: &GroupView,
    checkpoints: &[CheckpointRecord],
    to_is_empty: bool,
    stream: Option<&StreamId>,
) -> Option<Adoption> {
    let is_empty = former.ownerships.is_empty() && former.instances.is_empty() && checkpoints.is_empty();
    let is_recent = former.instances.iter().any(|seen| seen.record.details.initial_position.is_some())
        || checkpoints
            .iter()
            .any(|held| matches!(&held.resume, Some(Resume::After(last)) if last.enqueued_time.is_some()));
    if is_empty || is_recent || !to_is_empty {
        return Some(Adoption::Nothing);
    }
    let is_live =
        |seen: &&InstanceSeen| seen.record.state == InstanceState::Live && seen.age < seen.record.ttl;
    if let Some(live) = former.instances.iter().find(is_live) {
        return Some(Adoption::InUse(live.clone()));
    }
    let other = checkpoints.iter().find_map(|held| held.stream.as_ref().filter(|held| stream != Some(held)));
    other.filter(|_| stream.is_some()).map(|other| Adoption::OtherStream(other.clone()))
}

/// The ownership record that `write` leaves and the move to log, or none if it is refused.
///
/// A new epoch counts as a move even if the owner stays the same: it re-took the partition.
pub fn ownership(
    current: Option<&Ownership>,
    write: &OwnershipWrite,
    now: Timestamp,
) -> Option<(Ownership, Option<MoveRecord>)> {
    if current.map(|held| &held.version) != write.expect.as_ref() {
        return None;
    }
    let from = current.and_then(|held| held.owner.clone());
    let moved = from != write.owner || current.map_or(Epoch::default(), |held| held.epoch) != write.epoch;
    let (since, reason) = match current {
        Some(held) if !moved => (held.since, held.reason),
        _ => (now, write.reason),
    };
    let record = Ownership {
        partition: write.partition.clone(),
        owner: write.owner.clone(),
        epoch: write.epoch,
        next: write.next.clone(),
        since,
        reason,
        op: write.op.clone(),
        version: NOT_WRITTEN,
    };
    let logged = moved.then(|| MoveRecord {
        partition: write.partition.clone(),
        from,
        to: write.owner.clone(),
        epoch: write.epoch,
        reason: write.reason,
        time: now,
    });
    Some((record, logged))
}

/// What a [`CheckpointWrite`] does.
#[derive(Clone, PartialEq, Debug)]
pub enum CheckpointChange {
    /// It leaves this record.
    Write(CheckpointRecord),
    /// It was applied before; the record stays as it is.
    Keep(CheckpointRecord),
    /// It is refused: the record is sealed by another epoch.
    Fenced(CheckpointRecord),
    /// It is refused: the position would fall, or the same writer has written since.
    Behind(CheckpointRecord),
}

/// What `write` does to a checkpoint record. No record behaves as one that epoch 0 sealed without a position.
pub fn checkpoint(
    current: Option<&CheckpointRecord>,
    write: &CheckpointWrite,
    now: Timestamp,
) -> CheckpointChange {
    match write {
        CheckpointWrite::Seal { partition, epoch, op } => seal(current.cloned(), partition, *epoch, op, now),
        CheckpointWrite::Advance { partition, epoch, last, stream, op } => {
            advance(current, partition, *epoch, last, stream.as_ref(), op, now)
        }
        CheckpointWrite::Seek { partition, epoch, resume, stream, op } => {
            let held = current.cloned().unwrap_or_else(|| unsealed(partition, op));
            if held.epoch != *epoch {
                return CheckpointChange::Fenced(held);
            }
            if is_late(&held, op) {
                return CheckpointChange::Behind(held);
            }
            CheckpointChange::Write(CheckpointRecord {
                resume: Some(resume.clone()),
                stream: stream.clone(),
                time: now,
                op: op.clone(),
                version: NOT_WRITTEN,
                ..held
            })
        }
    }
}

/// What the checkpoint's part of an [`OwnershipWrite`] does; either refusal is [`CheckpointChange::Fenced`].
pub fn atomic(
    current: Option<&CheckpointRecord>,
    partition: &PartitionId,
    part: &AtomicCheckpoint,
    op: &Op,
    now: Timestamp,
) -> CheckpointChange {
    let advanced = match &part.last {
        None => current.cloned(),
        Some((epoch, last, stream)) => {
            match advance(current, partition, *epoch, last, stream.as_ref(), op, now) {
                CheckpointChange::Write(record) | CheckpointChange::Keep(record) => Some(record),
                CheckpointChange::Fenced(held) | CheckpointChange::Behind(held) => {
                    return CheckpointChange::Fenced(held);
                }
            }
        }
    };
    match seal(advanced, partition, part.seal, op, now) {
        // The seal found nothing to do, but the position before it may have moved.
        CheckpointChange::Keep(record) if record.version == NOT_WRITTEN => CheckpointChange::Write(record),
        // Refused as a whole, so the caller is shown what is stored and not the position before it.
        CheckpointChange::Fenced(advanced) => CheckpointChange::Fenced(current.cloned().unwrap_or(advanced)),
        change => change,
    }
}

fn seal(
    current: Option<CheckpointRecord>,
    partition: &PartitionId,
    epoch: Epoch,
    op: &Op,
    now: Timestamp,
) -> CheckpointChange {
    match current {
        Some(held) if held.epoch > epoch => CheckpointChange::Fenced(held),
        Some(held) if held.epoch == epoch => CheckpointChange::Keep(held),
        held => {
            let held = held.unwrap_or_else(|| unsealed(partition, op));
            CheckpointChange::Write(CheckpointRecord {
                epoch,
                // The age of a position must not begin anew because its partition has a new owner.
                time: if held.resume.is_some() { held.time } else { now },
                op: op.clone(),
                version: NOT_WRITTEN,
                ..held
            })
        }
    }
}

fn advance(
    current: Option<&CheckpointRecord>,
    partition: &PartitionId,
    epoch: Epoch,
    last: &StreamPosition,
    stream: Option<&StreamId>,
    op: &Op,
    now: Timestamp,
) -> CheckpointChange {
    let held = current.cloned().unwrap_or_else(|| unsealed(partition, op));
    if held.epoch != epoch && !planted!(FenceRemoved) {
        return CheckpointChange::Fenced(held);
    }
    if is_late(&held, op) && !planted!(MonotoneMissing) {
        return CheckpointChange::Behind(held);
    }
    if held.stream.as_ref() == stream
        && let Some(resume) = &held.resume
    {
        if !resume.allows(last) && !planted!(MonotoneMissing) {
            return CheckpointChange::Behind(held);
        }
        if matches!(resume, Resume::After(position) if position == last) {
            return CheckpointChange::Keep(held);
        }
    }
    CheckpointChange::Write(CheckpointRecord {
        resume: Some(Resume::After(last.clone())),
        stream: stream.cloned(),
        time: now,
        op: op.clone(),
        version: NOT_WRITTEN,
        ..held
    })
}

/// Whether a write was sent before the one that the record shows, and comes after it: a checkpoint must not undo a seek, nor
/// a seek what was handled since.
fn is_late(held: &CheckpointRecord, op: &Op) -> bool {
    held.op.by == op.by && op.number < held.op.number
}

fn unsealed(partition: &PartitionId, op: &Op) -> CheckpointRecord {
    CheckpointRecord {
        partition: partition.clone(),
        epoch: Epoch::default(),
        resume: None,
        stream: None,
        time: Timestamp::default(),
        op: op.clone(),
        version: NOT_WRITTEN,
    }
}
