//! The records of one scope and what writes do to them. Synchronous: the mutex around it is the transaction.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use tokio::time::Instant;

use super::super::rules::{self, CheckpointChange};
use super::super::{
    Adoption, CheckpointOutcome, CheckpointRecord, CheckpointWrite, GroupView, InstanceOutcome,
    InstanceRecord, InstanceSeen, InstanceState, InstanceWrite, MOVES_KEPT_MAX, MoveRecord, Ownership,
    OwnershipOutcome, OwnershipWrite, Version,
};
use super::changes::{Changes, Concerns};
use crate::model::{Incarnation, PartitionId, StreamId, Timestamp};

#[derive(Debug, Default)]
pub(super) struct Records {
    /// Sorted. Behind an `Arc`, so that a view copies it after the lock is released.
    ownerships: Arc<Vec<Ownership>>,
    instances: BTreeMap<Incarnation, Instance>,
    checkpoints: BTreeMap<PartitionId, CheckpointRecord>,
    moves: VecDeque<MoveRecord>,
    /// One counter for all records: a record that is forgotten and made anew gets no version twice.
    version_last: u64,
    pub(super) changes: Changes,
}

#[derive(Debug)]
struct Instance {
    record: InstanceRecord,
    version: Version,
    beat_at: Instant,
    died_at: Option<Instant>,
}

impl Instance {
    fn seen(&self, now: Instant) -> InstanceSeen {
        InstanceSeen {
            record: self.record.clone(),
            version: self.version.clone(),
            age: now.saturating_duration_since(self.beat_at),
        }
    }
}

impl Records {
    pub(super) fn write_instance(&mut self, write: &InstanceWrite) -> (InstanceOutcome, Concerns) {
        let now = Instant::now();
        let registers = matches!(write, InstanceWrite::Register(_));
        if registers {
            self.forget_the_dead(now);
        }
        let incarnation = write.incarnation();
        let current = self.instances.get(incarnation).map(|instance| instance.seen(now));
        let Some(record) = rules::instance(current.as_ref(), write) else {
            return (InstanceOutcome::Refused(current), Concerns::Nobody);
        };
        let same_membership = matches!(write, InstanceWrite::Beat { .. })
            && current.as_ref().is_some_and(|before| {
                before.record.stopping == record.stopping && before.record.declines == record.declines
            });
        let beats = registers || matches!(write, InstanceWrite::Beat { .. });
        let beat_before = self.instances.get(incarnation).map(|instance| instance.beat_at);
        let instance = Instance {
            died_at: (record.state == InstanceState::Dead).then_some(now),
            record,
            version: self.next_version(),
            beat_at: if beats { now } else { beat_before.unwrap_or(now) },
        };
        let outcome = InstanceOutcome::Applied(instance.seen(now));
        self.instances.insert(incarnation.clone(), instance);
        (outcome, if same_membership { Concerns::Nobody } else { Concerns::All })
    }

    pub(super) fn write_ownership(&mut self, write: &OwnershipWrite) -> (OwnershipOutcome, Concerns) {
        let now = Timestamp::now();
        let place = self.ownerships.binary_search_by(|held| held.partition.cmp(&write.partition));
        let current = place.ok().map(|index| &self.ownerships[index]);
        let Some((mut ownership, logged)) = rules::ownership(current, write, now) else {
            return (OwnershipOutcome::Refused(current.cloned()), Concerns::Nobody);
        };
        let concerns = concerns(current, &ownership);
        let checkpoint = match &write.checkpoint {
            None => None,
            Some(part) => {
                let held = self.checkpoints.get(&write.partition);
                match rules::atomic(held, &write.partition, part, &write.op, now) {
                    CheckpointChange::Write(record) => Some(self.put_checkpoint(record)),
                    CheckpointChange::Keep(held) => Some(held),
                    CheckpointChange::Fenced(held) | CheckpointChange::Behind(held) => {
                        return (OwnershipOutcome::Fenced(held), Concerns::Nobody);
                    }
                }
            }
        };
        ownership.version = self.next_version();
        let ownerships = Arc::make_mut(&mut self.ownerships);
        match place {
            Ok(index) => ownerships[index] = ownership.clone(),
            Err(index) => ownerships.insert(index, ownership.clone()),
        }
        if let Some(logged) = logged {
            if self.moves.len() == MOVES_KEPT_MAX {
                self.moves.pop_front();
            }
            self.moves.push_back(logged);
        }
        (OwnershipOutcome::Applied { ownership, checkpoint }, concerns)
    }

    pub(super) fn write_checkpoint(&mut self, write: &CheckpointWrite) -> CheckpointOutcome {
        let current = self.checkpoints.get(write.partition());
        match rules::checkpoint(current, write, Timestamp::now()) {
            CheckpointChange::Write(record) => CheckpointOutcome::Applied(self.put_checkpoint(record)),
            CheckpointChange::Keep(held) => CheckpointOutcome::Applied(held),
            CheckpointChange::Fenced(held) => CheckpointOutcome::Fenced(held),
            CheckpointChange::Behind(held) => CheckpointOutcome::Behind(held),
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.ownerships.is_empty() && self.instances.is_empty() && self.checkpoints.is_empty()
    }

    /// Why these records cannot become another scope's.
    pub(super) fn adoption(&self, to_is_empty: bool, stream: Option<&StreamId>) -> Option<Adoption> {
        let view = GroupView {
            ownerships: self.ownerships.to_vec(),
            instances: self.instances(),
            cursor: self.changes.cursor(),
        };
        rules::adoption(&view, &self.checkpoints(), to_is_empty, stream)
    }

    pub(super) fn ownerships(&self) -> Arc<Vec<Ownership>> {
        Arc::clone(&self.ownerships)
    }

    pub(super) fn instances(&self) -> Vec<InstanceSeen> {
        let now = Instant::now();
        self.instances.values().map(|instance| instance.seen(now)).collect()
    }

    pub(super) fn checkpoints(&self) -> Vec<CheckpointRecord> {
        self.checkpoints.values().cloned().collect()
    }

    pub(super) fn moves(&self) -> Vec<MoveRecord> {
        self.moves.iter().cloned().collect()
    }

    fn put_checkpoint(&mut self, mut record: CheckpointRecord) -> CheckpointRecord {
        record.version = self.next_version();
        self.checkpoints.insert(record.partition.clone(), record.clone());
        record
    }

    fn next_version(&mut self) -> Version {
        self.version_last += 1;
        Version::number(self.version_last)
    }

    fn forget_the_dead(&mut self, now: Instant) {
        self.instances.retain(|_, instance| {
            instance.died_at.is_none_or(|died_at| now.saturating_duration_since(died_at) < rules::DEAD_KEPT)
        });
        let instances = &self.instances;
        self.changes.forget(|name| instances.get(name).is_none_or(|instance| instance.died_at.is_some()));
    }
}

fn concerns(before: Option<&Ownership>, after: &Ownership) -> Concerns {
    let was_free = before.is_some_and(|held| held.owner.is_none());
    if after.owner.is_none() && !was_free {
        return Concerns::All;
    }
    let before = before.into_iter().flat_map(|held| [&held.owner, &held.next]);
    let mut names: Vec<Incarnation> = before.chain([&after.owner, &after.next]).flatten().cloned().collect();
    names.sort_unstable();
    names.dedup();
    Concerns::Named(names)
}
