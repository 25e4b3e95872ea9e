//! Positions on their way to the store: one write at a time per partition, the newest position wins.

use super::retry::Retry;
use super::slot::Pump;
use super::{Native, Purpose, Timer};
use crate::coordination::{Effect, StoreCall, Target};
use crate::model::{Epoch, PartitionId, RevokeReason, Tick};
use crate::report::Operation;
use crate::store::{CheckpointOutcome, CheckpointWrite, Resume, StoreError};

#[derive(Default)]
pub(super) struct Checkpoints {
    /// What the store has confirmed.
    pub(super) durable: Option<Resume>,
    /// How often the pump had sought when the newest target was asked for.
    pub(super) seeks: u64,
    wanted: Option<Target>,
    writing: Option<Target>,
    retry: Retry,
    /// The drained pump's last position: part of the write that passes the partition on.
    pub(super) last: Option<Target>,
}

impl Checkpoints {
    /// Nothing to write yet.
    pub(super) fn at(durable: Option<Resume>) -> Self {
        Self { durable, ..Self::default() }
    }

    /// Whether something is still to be written before the partition may be passed on.
    pub(super) fn is_pending(&self) -> bool {
        self.wanted.is_some() || self.writing.is_some()
    }

    /// Drops what the pump wanted; what is durable stays known.
    pub(super) fn forget(&mut self) {
        *self = Self::at(self.durable.take());
    }
}

impl Native {
    pub(super) fn want_checkpoint(
        &mut self,
        now: Tick,
        partition: &PartitionId,
        target: Target,
        out: &mut Vec<Effect>,
    ) {
        let Some(slot) = self.slots.get_mut(partition) else { return };
        // A revoked pump writes nothing more, and a position from before a seek must not undo it.
        let current = target.seeks >= slot.checkpoint.seeks;
        if !matches!(slot.pump, Pump::Open | Pump::Draining { .. }) || !current {
            return;
        }
        slot.checkpoint.seeks = target.seeks;
        let held = slot.checkpoint.wanted.take();
        slot.checkpoint.wanted = Some(Target::merge(held, target));
        self.write_checkpoint_if_due(now, partition, out);
    }

    /// Decides how a drained pump's last position gets to the store: with the ownership where that is one step, in
    /// a write of its own before it otherwise.
    pub(super) fn settle_last(&mut self, partition: &PartitionId, last: Option<Target>) {
        let atomic = self.config.atomic;
        let Some(slot) = self.slots.get_mut(partition) else { return };
        let checkpoint = &mut slot.checkpoint;
        let held = checkpoint.wanted.take();
        let target = match last {
            Some(last) => Some(Target::merge(held, last)),
            None => held,
        };
        let one_step = target.as_ref().is_none_or(|target| atomic && !target.seek);
        if one_step {
            checkpoint.last = target;
        } else {
            checkpoint.wanted = target;
        }
    }

    pub(super) fn write_checkpoint_if_due(
        &mut self,
        now: Tick,
        partition: &PartitionId,
        out: &mut Vec<Effect>,
    ) {
        let Some(slot) = self.slots.get_mut(partition) else { return };
        let checkpoint = &mut slot.checkpoint;
        if checkpoint.writing.is_some() || !checkpoint.retry.is_due(now) {
            return;
        }
        let Some(target) = checkpoint.wanted.take() else { return };
        checkpoint.writing = Some(target.clone());
        let epoch = slot.epoch;
        let (op, stream, partition) = (self.op(), self.stream.clone(), partition.clone());
        let purpose = Purpose::Checkpoint(partition.clone(), epoch);
        let write = match target.resume {
            Resume::After(last) if !target.seek => {
                CheckpointWrite::Advance { partition, epoch, last, stream, op }
            }
            resume => CheckpointWrite::Seek { partition, epoch, resume, stream, op },
        };
        self.call(now, purpose, StoreCall::Checkpoint(write), out);
    }

    pub(super) fn on_checkpoint(
        &mut self,
        now: Tick,
        partition: &PartitionId,
        epoch: Epoch,
        outcome: CheckpointOutcome,
        out: &mut Vec<Effect>,
    ) {
        let Some(slot) = self.slots.get_mut(partition) else { return };
        if slot.epoch != epoch {
            return;
        }
        let Some(Target { seeks, .. }) = slot.checkpoint.writing.take() else { return };
        slot.checkpoint.retry.succeeded();
        match outcome {
            CheckpointOutcome::Applied(record) | CheckpointOutcome::Behind(record) => {
                slot.checkpoint.durable = record.resume.clone();
                if let Some(resume) = record.resume {
                    out.push(Effect::Durable { partition: partition.clone(), resume, seeks });
                }
                self.drive(now, partition, out);
            }
            CheckpointOutcome::Fenced(record) => {
                tracing::warn!(%partition, %epoch, by = %record.epoch, "checkpoint refused: a newer owner sealed it");
                self.abandon(now, partition, RevokeReason::Fenced, out);
                self.look(now, out);
            }
        }
    }

    pub(super) fn on_checkpoint_failed(
        &mut self,
        now: Tick,
        partition: &PartitionId,
        epoch: Epoch,
        error: StoreError,
        out: &mut Vec<Effect>,
    ) {
        let cycle = self.config.timing.cycle();
        let Some(slot) = self.slots.get_mut(partition) else { return };
        if slot.epoch == epoch
            && let Some(failed) = slot.checkpoint.writing.take()
        {
            let checkpoint = &mut slot.checkpoint;
            let newer = checkpoint.wanted.take();
            checkpoint.wanted = Some(match newer {
                Some(newer) => Target::merge(Some(failed), newer),
                None => failed,
            });
            let at = checkpoint.retry.failed(now, cycle, &mut self.rng);
            self.timer(at, Timer::Slot(partition.clone()));
        }
        Self::report(Some(partition), Operation::Checkpoint, error, out);
    }
}
