//! Writes of ownership records and what follows from their outcomes.

use super::slot::{Pump, WriteKind};
use super::{Native, Purpose, Timer};
use crate::coordination::{Effect, StoreCall, Target};
use crate::model::{PartitionId, Tick};
use crate::store::{
    AtomicCheckpoint, Certainty, CheckpointRecord, MoveReason, OwnershipOutcome, OwnershipWrite, Resume,
    StoreError,
};

impl Native {
    /// Starts a write that the plan asks for, unless something else is going on.
    pub(super) fn write_if_idle(
        &mut self,
        now: Tick,
        partition: &PartitionId,
        kind: WriteKind,
        out: &mut Vec<Effect>,
    ) {
        let Some(slot) = self.slots.get(partition) else { return };
        let refused = kind == WriteKind::Request && now < slot.refused_until;
        let unwanted = matches!(kind, WriteKind::Claim | WriteKind::Request) && slot.declines(now);
        let idle = slot.write.is_none() && slot.retry.is_due(now) && matches!(slot.pump, Pump::Absent);
        if idle && !refused && !unwanted {
            self.write(now, partition, kind, out);
        }
    }

    pub(super) fn write(
        &mut self,
        now: Tick,
        partition: &PartitionId,
        kind: WriteKind,
        out: &mut Vec<Effect>,
    ) {
        let op = self.op();
        let me = self.me.incarnation.clone();
        let (atomic, stream) = (self.config.atomic, self.stream.clone());
        let Some(slot) = self.slots.get_mut(partition) else { return };
        let known = slot.known.as_ref();
        let owner = known.and_then(|known| known.owner.clone());
        let next = known.and_then(|known| known.next.clone());
        let epoch = known.map(|known| known.epoch).unwrap_or_default();
        let raised = if planted!(EpochNotRaised) { epoch } else { epoch.max(slot.highest).next() };
        let taken_from_dead = owner.is_some();
        let cancelled = matches!(slot.pump, Pump::Drained { cancelled: true });
        let (owner, epoch, next, reason) = match kind {
            WriteKind::Claim => {
                let reason = if taken_from_dead { MoveReason::TakenFromDead } else { MoveReason::Claimed };
                (Some(me), raised, None, reason)
            }
            WriteKind::Retake => (Some(me), raised, None, MoveReason::Retaken),
            WriteKind::Request => (owner, epoch, Some(me), MoveReason::HandedOff),
            WriteKind::Withdraw | WriteKind::Clear => (owner, epoch, None, MoveReason::HandedOff),
            WriteKind::Transfer => {
                (next, raised, None, if cancelled { MoveReason::Stolen } else { MoveReason::HandedOff })
            }
            WriteKind::Release => {
                let reason = if slot.declines(now) { MoveReason::GivenUp } else { MoveReason::Released };
                (None, raised, None, reason)
            }
        };
        let changes_owner = !matches!(kind, WriteKind::Request | WriteKind::Withdraw | WriteKind::Clear);
        let checkpoint = (atomic && changes_owner).then(|| AtomicCheckpoint {
            last: match &slot.checkpoint.last {
                Some(Target { resume: Resume::After(last), .. }) => Some((slot.epoch, last.clone(), stream)),
                _ => None,
            },
            seal: epoch,
        });
        let expect = known.map(|known| known.version.clone());
        slot.write = Some((kind, expect.clone()));
        let write = OwnershipWrite {
            partition: partition.clone(),
            expect,
            owner,
            epoch,
            next,
            reason,
            op,
            checkpoint,
        };
        self.call(now, Purpose::Ownership(partition.clone()), StoreCall::Ownership(write), out);
    }

    pub(super) fn on_ownership(
        &mut self,
        now: Tick,
        partition: &PartitionId,
        outcome: OwnershipOutcome,
        out: &mut Vec<Effect>,
    ) {
        let Some(slot) = self.slots.get_mut(partition) else { return };
        let Some((kind, _)) = slot.write.take() else { return };
        slot.known_at = now;
        slot.retry.succeeded();
        match outcome {
            OwnershipOutcome::Applied { ownership, checkpoint } => {
                slot.unknown = None;
                let reason = ownership.reason;
                self.learn(partition, Some(ownership), out);
                self.on_written(now, partition, kind, reason, checkpoint, out);
            }
            OwnershipOutcome::Refused(current) => {
                slot.unknown = None;
                self.learn(partition, current, out);
                self.reconcile(now, partition, true, out);
            }
            OwnershipOutcome::Fenced(record) => {
                slot.highest = slot.highest.max(record.epoch);
                let last = slot.checkpoint.last.take();
                let drained = matches!(slot.pump, Pump::Drained { .. });
                if drained && last.is_some() && record.epoch == slot.epoch {
                    // Still sealed by us: only already past the last position. Pass the partition on without it.
                    slot.checkpoint.durable = record.resume;
                    self.drive(now, partition, out);
                    return;
                }
                // The checkpoint has a newer owner than we know of; the pump's last position cannot be written.
                if drained {
                    self.close(partition, None, out);
                }
                self.look(now, out);
            }
        }
    }

    fn on_written(
        &mut self,
        now: Tick,
        partition: &PartitionId,
        kind: WriteKind,
        reason: MoveReason,
        checkpoint: Option<CheckpointRecord>,
        out: &mut Vec<Effect>,
    ) {
        if let (Some(slot), Some(record)) = (self.slots.get_mut(partition), &checkpoint) {
            slot.checkpoint.durable = record.resume.clone();
            if let (Pump::Drained { .. }, Some(resume)) = (&slot.pump, &record.resume) {
                let seeks = slot.checkpoint.seeks;
                out.push(Effect::Durable { partition: partition.clone(), resume: resume.clone(), seeks });
            }
        }
        match kind {
            WriteKind::Claim | WriteKind::Retake => {
                self.close_if_drained(partition, out);
                let Some(slot) = self.slots.get_mut(partition) else { return };
                slot.epoch = slot.known.as_ref().map(|known| known.epoch).unwrap_or_default();
                match checkpoint {
                    Some(record) => self.open(now, partition, record, out),
                    None => self.drive(now, partition, out),
                }
            }
            WriteKind::Transfer | WriteKind::Release => {
                if matches!(self.slots[partition].pump, Pump::Drained { .. }) {
                    self.close(partition, Some(reason), out);
                }
                self.drive(now, partition, out);
            }
            WriteKind::Request | WriteKind::Withdraw | WriteKind::Clear => self.drive(now, partition, out),
        }
    }

    pub(super) fn on_ownership_failed(
        &mut self,
        now: Tick,
        partition: &PartitionId,
        error: StoreError,
        out: &mut Vec<Effect>,
    ) {
        let cycle = self.config.timing.cycle();
        let Some(slot) = self.slots.get_mut(partition) else { return };
        let Some((kind, expect)) = slot.write.take() else { return };
        slot.known_at = now;
        let at = slot.retry.failed(now, cycle, &mut self.rng);
        if error.certainty() == Certainty::Unknown {
            slot.unknown = Some(expect);
        }
        if planted!(LostReplyAsRefusal) {
            slot.unknown = None;
            self.close_if_drained(partition, out);
        }
        self.timer(at, Timer::Slot(partition.clone()));
        self.look_at(at);
        Self::report(Some(partition), kind.operation(), error, out);
    }
}
