//! What reaches the store.

use partita_core::model::{Epoch, Incarnation, PartitionId, Position, StreamPosition};
use partita_core::store::{
    CheckpointOutcome, CheckpointWrite, InstanceOutcome, InstanceState, InstanceWrite, MoveReason, Op,
    Ownership, OwnershipOutcome, OwnershipWrite, Resume,
};
use tokio::time::Instant;

use super::{Gap, Oracle};

fn name(who: Option<&Incarnation>) -> String {
    who.map_or_else(|| "-".to_owned(), |who| format!("{}/{:04x}", who.id(), who.nonce() as u16))
}

impl Oracle {
    fn check_still(&mut self, what: impl FnOnce() -> String) {
        let still = self.rules.still_from.is_some_and(|from| Instant::now() >= from);
        self.require(!still, || format!("9: all processes live, and yet {}", what()));
    }

    pub(crate) fn instance_written(&mut self, write: &InstanceWrite, outcome: &InstanceOutcome) {
        let InstanceOutcome::Applied(seen) = outcome else { return };
        let who = write.incarnation().clone();
        let short = name(Some(&who));
        match write {
            InstanceWrite::Register(_) => {
                self.note(format_args!("register {short}"));
                self.live.insert(who.clone());
                if self.members_here() == 1 {
                    // Nobody was there who could have read.
                    self.unread_since.clear();
                    self.somebody_since = Instant::now();
                }
            }
            InstanceWrite::Beat { .. } => {}
            InstanceWrite::Bury { .. } | InstanceWrite::BuryAbsent { .. } => {
                self.counts.burials += 1;
                self.note(format_args!("bury {short}"));
                self.check_still(|| format!("{short} was declared dead"));
                if let Some(sent) = self.acknowledged.get(&who) {
                    let (age, least) = (sent.elapsed(), self.rules.timing.lease());
                    self.require(age >= least, || {
                        format!(
                            "7: {short} was buried {age:?} after its last acknowledged heartbeat was sent"
                        )
                    });
                }
            }
            InstanceWrite::Leave { .. } => self.note(format_args!("leave {short}")),
        }
        if matches!(write, InstanceWrite::Register(_) | InstanceWrite::Beat { .. }) {
            self.declined(&who, seen.record.declines.iter().cloned().collect());
        }
        if seen.record.state == InstanceState::Dead {
            self.live.remove(&who);
            self.dead.insert(who);
        } else {
            let risen = self.dead.contains(&who);
            self.require(!risen, || format!("7: {short} was dead and is live"));
        }
    }

    /// How many of those that the store takes for live really are.
    fn members_here(&self) -> usize {
        self.live.iter().filter(|who| !self.gone.contains(who.id())).count()
    }

    /// A heartbeat is on its way, perhaps not for the first time.
    pub(crate) fn beat_sent(&mut self, write: &InstanceWrite) {
        if let InstanceWrite::Beat { record, .. } = write {
            let beat = (record.incarnation.clone(), record.beat);
            self.beats_sent.entry(beat).or_insert_with(Instant::now);
        }
    }

    /// A reply arrived at the instance.
    pub(crate) fn instance_answered(
        &mut self,
        write: &InstanceWrite,
        outcome: &InstanceOutcome,
        sent: Instant,
    ) {
        let own = matches!(write, InstanceWrite::Register(_) | InstanceWrite::Beat { .. });
        if own && matches!(outcome, InstanceOutcome::Applied(_)) {
            self.acknowledged.insert(write.incarnation().clone(), sent);
        }
        // An earlier one of this number was applied, and its answer was lost: it counts from when it was first sent.
        if let (InstanceWrite::Beat { record, .. }, InstanceOutcome::Refused(Some(seen))) = (write, outcome)
            && (seen.record.state, seen.record.beat) == (InstanceState::Live, record.beat)
            && let Some(sent) = self.beats_sent.get(&(record.incarnation.clone(), record.beat))
        {
            let known = self.acknowledged.entry(record.incarnation.clone()).or_insert(*sent);
            *known = (*known).max(*sent);
        }
        // The answer to an earlier try may have been lost: what the store has is that try then.
        let live = match outcome {
            InstanceOutcome::Applied(_) => true,
            InstanceOutcome::Refused(seen) => {
                seen.as_ref().is_some_and(|seen| seen.record.state == InstanceState::Live)
            }
        };
        if own && live {
            self.renewed.insert(write.incarnation().clone(), sent);
        }
    }

    pub(crate) fn ownership_written(&mut self, write: &OwnershipWrite, outcome: &OwnershipOutcome) {
        let OwnershipOutcome::Applied { ownership, checkpoint } = outcome else { return };
        let partition = &write.partition;
        let before = self.ownerships.get(partition).cloned();
        let old_owner = before.as_ref().and_then(|old| old.owner.clone());
        let old_epoch = before.as_ref().map(|old| old.epoch).unwrap_or_default();
        let by = &write.op.by;
        if ownership.owner == old_owner {
            let next = name(ownership.next.as_ref());
            self.note(format_args!("next {partition} {next} {} by {}", ownership.epoch, by.id()));
            self.counts.retakes += u64::from(ownership.epoch > old_epoch);
            self.require(ownership.epoch >= old_epoch, || {
                format!("5: the epoch of partition {partition} fell")
            });
        } else {
            self.moved(partition, old_owner.as_ref(), old_epoch, ownership, by);
        }
        self.ownerships.insert(partition.clone(), ownership.clone());
        let passed_on =
            matches!(ownership.reason, MoveReason::HandedOff | MoveReason::Stolen | MoveReason::Released);
        if let (Some(record), Some(part)) = (checkpoint, &write.checkpoint) {
            if let Some((epoch, last, _)) = &part.last {
                // The last checkpoint of the former owner is part of the step: judged by the former record.
                let owner = old_owner.as_ref() == Some(by) && old_epoch == *epoch;
                self.require(owner, || {
                    format!("3: {by} checkpointed partition {partition} without owning it")
                });
                self.check_position(partition, last);
            }
            self.checkpoints.insert(partition.clone(), record.clone());
        }
        if passed_on && ownership.owner != old_owner {
            self.check_passed_on(partition, old_epoch);
        }
    }

    fn moved(
        &mut self,
        partition: &PartitionId,
        old_owner: Option<&Incarnation>,
        old_epoch: Epoch,
        ownership: &Ownership,
        by: &Incarnation,
    ) {
        self.last_move = Instant::now();
        let (from, to) = (name(old_owner), name(ownership.owner.as_ref()));
        let (epoch, reason) = (ownership.epoch, ownership.reason);
        self.note(format_args!("move {partition} {from} > {to} {epoch} {reason}"));
        self.check_still(|| format!("partition {partition} moved from {from} to {to}"));
        // Nobody reads since the owner was last heard of, if it was lost.
        let heard = old_owner.filter(|_| reason == MoveReason::TakenFromDead);
        let heard = heard.and_then(|owner| self.acknowledged.get(owner)).copied();
        let since = heard.map_or(self.last_move, |heard| heard.max(self.somebody_since));
        let unread = self.unread_since.entry(partition.clone()).or_insert((since, Gap::Closed));
        unread.1 = match (reason, unread.1) {
            (MoveReason::HandedOff, Gap::Closed) => Gap::HandOff,
            (MoveReason::TakenFromDead, _) => Gap::Lost,
            // An owner that was lost is not made good by what happens after.
            (MoveReason::Claimed, why) => why,
            _ => Gap::Left,
        };
        let counter = match reason {
            MoveReason::Claimed => &mut self.counts.claims,
            MoveReason::HandedOff => &mut self.counts.handoffs,
            MoveReason::Stolen => &mut self.counts.steals,
            MoveReason::TakenFromDead => &mut self.counts.takeovers,
            MoveReason::Retaken => &mut self.counts.retakes,
            MoveReason::GivenUp => &mut self.counts.given_up,
            _ => &mut self.counts.releases,
        };
        *counter += 1;
        if let (Some((_, arrived)), true) = (&mut self.arrivals, ownership.owner.is_some()) {
            *arrived += 1;
        }
        self.require(epoch > old_epoch, || {
            format!("5: partition {partition} went to {to} without a higher epoch than {old_epoch}")
        });
        let allowed = old_owner.is_none_or(|old| old == by || self.dead.contains(old));
        self.require(allowed, || {
            format!("7: partition {partition} was taken from {from}, which is not dead, by {by}")
        });
    }

    /// An owner that passes a partition on has no call running, and its checkpoint covers all that it handled.
    fn check_passed_on(&mut self, partition: &PartitionId, epoch: Epoch) {
        let running = self.calls.values().any(|call| call.partition == *partition && call.epoch == epoch);
        self.require(!running, || format!("2: partition {partition} was passed on while a call was running"));
        let handled = self.handled_last.get(partition).filter(|(at, _)| *at == epoch).map(|(_, last)| *last);
        let covered = self.checkpointed(partition);
        let declared = self.rules.declared;
        self.require(declared || handled.is_none_or(|handled| covered >= handled), || {
            format!("6: partition {partition} was passed on at {covered}, but {handled:?} had been handled")
        });
    }

    /// The last event that a partition's checkpoint covers.
    pub(super) fn checkpointed(&self, partition: &PartitionId) -> i64 {
        match self.checkpoints.get(partition).and_then(|record| record.resume.as_ref()) {
            Some(Resume::After(last)) => last.sequence.0,
            Some(Resume::At(Position::Sequence { sequence, inclusive })) => {
                sequence.0 - i64::from(*inclusive)
            }
            _ => -1,
        }
    }

    pub(crate) fn checkpoint_written(&mut self, write: &CheckpointWrite, outcome: &CheckpointOutcome) {
        let record = match outcome {
            CheckpointOutcome::Applied(record) => record,
            CheckpointOutcome::Fenced(_) => {
                self.counts.fenced += 1;
                return;
            }
            CheckpointOutcome::Behind(_) => {
                self.counts.behind += 1;
                return;
            }
        };
        let partition = write.partition();
        match write {
            CheckpointWrite::Seal { epoch, .. } => self.note(format_args!("seal {partition} {epoch}")),
            CheckpointWrite::Advance { epoch, last, op, .. } => {
                self.counts.checkpoints += 1;
                self.note(format_args!("checkpoint {partition} {epoch} {}", last.sequence));
                self.check_owner(partition, *epoch, op);
                self.check_position(partition, last);
            }
            CheckpointWrite::Seek { epoch, op, .. } => {
                self.note(format_args!("sought {partition} {epoch}"));
                self.check_owner(partition, *epoch, op);
            }
        }
        self.checkpoints.insert(partition.clone(), record.clone());
    }

    fn check_owner(&mut self, partition: &PartitionId, epoch: Epoch, op: &Op) {
        if self.rules.atomic {
            let known = self.ownerships.get(partition);
            let owner =
                known.is_some_and(|known| known.owner.as_ref() == Some(&op.by) && known.epoch == epoch);
            self.require(owner, || {
                format!("3: {} checkpointed partition {partition} at epoch {epoch} without owning it", op.by)
            });
        } else {
            let highest = self.highest_opened.get(partition).copied().unwrap_or_default();
            self.require(epoch >= highest, || {
                format!(
                    "3: a checkpoint of partition {partition} at epoch {epoch} after {highest} was opened"
                )
            });
        }
    }

    fn check_position(&mut self, partition: &PartitionId, last: &StreamPosition) {
        let before = self.checkpointed(partition);
        self.require(last.sequence.0 >= before, || {
            format!("3: the checkpoint of partition {partition} fell from {before} to {}", last.sequence)
        });
        if self.rules.declared {
            self.declared(partition, last.sequence.0);
        }
        let first_unhandled = self.first_unhandled(partition);
        let declared = self.rules.declared;
        self.require(declared || last.sequence.0 < first_unhandled, || {
            format!(
                "4: partition {partition} was checkpointed at {}, but {first_unhandled} was not handled",
                last.sequence
            )
        });
    }
}
