//! One partition's life on this instance: claimed or handed over, opened, drained, passed on.

use std::time::Duration;

use super::checkpoints::Checkpoints;
use super::retry::Retry;
use super::slot::{Pump, WriteKind};
use super::{Life, Native, Purpose, Timer};
use crate::coordination::{Effect, StoreCall, Target};
use crate::model::{CancelReason, DrainReason, Epoch, PartitionId, RevokeReason, Tick};
use crate::report::Operation;
use crate::store::{
    CheckpointOutcome, CheckpointRecord, CheckpointWrite, FailingPartition, MoveReason, MoveRecord,
    Ownership, StoreError,
};

impl Native {
    /// Whether the last record that we know names this incarnation as the owner. A write of ours that is under way or has no
    /// answer may have changed that.
    pub(super) fn owns(&self, partition: &PartitionId) -> bool {
        self.slots.get(partition).is_some_and(|slot| slot.is_owned_by(&self.me.incarnation))
    }

    /// Takes a record as the truth about a partition and tells of a change of owner.
    pub(super) fn learn(
        &mut self,
        partition: &PartitionId,
        record: Option<Ownership>,
        out: &mut Vec<Effect>,
    ) {
        let me = &self.me.incarnation;
        let slot = self.slots.entry(partition.clone()).or_default();
        if let Some(new) = &record {
            slot.highest = slot.highest.max(new.epoch);
            let from = slot.known.as_ref().and_then(|old| old.owner.clone());
            // The first look at an ownership is no move, unless it is our own doing.
            let known = slot.known.is_some() || new.op.by == *me;
            if known && new.owner != from {
                out.push(Effect::Moved(MoveRecord {
                    partition: partition.clone(),
                    from,
                    to: new.owner.clone(),
                    epoch: new.epoch,
                    reason: new.reason,
                    time: new.since,
                }));
            }
        }
        if slot.unknown.as_ref().is_some_and(|at| *at != record.as_ref().map(|new| new.version.clone())) {
            slot.unknown = None;
        }
        slot.known = record;
    }

    /// Goes through all partitions after a view.
    pub(super) fn reconcile_all(&mut self, now: Tick, sent: Tick, out: &mut Vec<Effect>) {
        let Some(latest) = &self.group.latest else { return };
        let records = latest.view.ownerships.clone();
        for record in records {
            let partition = record.partition.clone();
            let me = &self.me.incarnation;
            let names_me = record.owner.as_ref() == Some(me) || record.next.as_ref() == Some(me);
            if !names_me && !self.partitions.contains(&partition) && !self.slots.contains_key(&partition) {
                continue;
            }
            let slot = self.slots.entry(partition.clone()).or_default();
            // The answer to our own write is news; a view sent before it is not.
            if slot.write.is_some() || sent < slot.known_at {
                continue;
            }
            let turned_down = slot.awaits(me)
                && record.next.is_none()
                && slot.known.as_ref().is_some_and(|old| old.epoch == record.epoch);
            if turned_down {
                slot.refused_until = now + self.config.cool_down;
            }
            self.learn(&partition, Some(record), out);
            self.reconcile(now, &partition, self.lease.confirms(sent), out);
        }
    }

    /// Brings what runs here in line with what the record says: pumps that the record no longer covers end, a request for a hand-off starts a drain.
    pub(super) fn reconcile(
        &mut self,
        now: Tick,
        partition: &PartitionId,
        confirms: bool,
        out: &mut Vec<Effect>,
    ) {
        let owned = self.owns(partition);
        let Some(slot) = self.slots.get_mut(partition) else { return };
        let same_epoch = slot.known.as_ref().is_some_and(|known| known.epoch == slot.epoch);
        match slot.pump {
            Pump::Open | Pump::Draining { .. } if owned && same_epoch => {
                if confirms && !slot.confirmed && self.lease.is_valid(now) {
                    slot.confirmed = true;
                    out.push(Effect::Lease { partition: partition.clone(), until: self.lease.valid_until() });
                }
                let next = slot.known.as_ref().and_then(|known| known.next.as_ref());
                match (&slot.pump, next) {
                    (Pump::Open, Some(next))
                        if now >= slot.refused_until && self.group.can_take(next, partition) =>
                    {
                        self.start_drain(now, partition, DrainReason::HandOff, out);
                    }
                    (Pump::Draining { reason: DrainReason::HandOff, cut: None, .. }, None) => {
                        slot.pump = Pump::Open;
                        out.push(Effect::Undrain { partition: partition.clone() });
                    }
                    _ => {}
                }
            }
            Pump::Open | Pump::Draining { .. } => {
                self.abandon(now, partition, RevokeReason::OwnershipLost, out);
            }
            Pump::Drained { .. } if !owned => self.close(partition, None, out),
            Pump::Sealing if !(owned && same_epoch) => slot.pump = Pump::Absent,
            Pump::Absent | Pump::Sealing | Pump::Drained { .. } | Pump::Ending => {}
        }
        self.drive(now, partition, out);
    }

    /// Does what is due for a partition. Harmless to call at any time.
    pub(super) fn drive(&mut self, now: Tick, partition: &PartitionId, out: &mut Vec<Effect>) {
        if !matches!(self.life, Life::Running | Life::Stopping { .. }) {
            return;
        }
        self.check_drain(now, partition, out);
        self.write_checkpoint_if_due(now, partition, out);
        let (owned, stopping) = (self.owns(partition), self.is_stopping());
        let Some(slot) = self.slots.get(partition) else { return };
        if slot.write.is_some() || !slot.retry.is_due(now) {
            return;
        }
        let unwanted = stopping || slot.declines(now) || !self.partitions.contains(partition);
        let kind = match slot.pump {
            Pump::Absent if owned && unwanted => Some(WriteKind::Release),
            Pump::Absent if owned && !self.lease.is_valid(now) => None,
            Pump::Absent if owned => {
                let epoch = slot.known.as_ref().map(|known| known.epoch).unwrap_or_default();
                if slot.unknown.is_none() && epoch >= slot.highest {
                    self.seal(now, partition, epoch, out);
                    return;
                }
                Some(WriteKind::Retake)
            }
            Pump::Absent if stopping && slot.awaits(&self.me.incarnation) => Some(WriteKind::Withdraw),
            // Whether the last write took effect must be known before the instance leaves: a claim that lands
            // later would name it. Writing at the same version settles it.
            Pump::Absent if stopping && slot.unknown.is_some() => Some(WriteKind::Withdraw),
            Pump::Open if planted!(NextNeverCleared) => None,
            Pump::Open => {
                let next = slot.known.as_ref().and_then(|known| known.next.as_ref());
                let refused = now < slot.refused_until;
                next.filter(|next| refused || !self.group.can_take(next, partition)).map(|_| WriteKind::Clear)
            }
            Pump::Drained { .. } if slot.checkpoint.is_pending() && !planted!(TransferBeforeCheckpoint) => {
                None
            }
            Pump::Draining { .. } if !planted!(ReleaseBeforeDrain) => None,
            Pump::Drained { .. } | Pump::Draining { .. } => {
                let next = slot.known.as_ref().and_then(|known| known.next.as_ref());
                let taker = next.is_some_and(|next| self.group.can_take(next, partition));
                match (taker, unwanted) {
                    (true, _) => Some(WriteKind::Transfer),
                    (false, true) => Some(WriteKind::Release),
                    (false, false) if planted!(NextNeverCleared) && next.is_some() => None,
                    (false, false) => Some(WriteKind::Retake),
                }
            }
            Pump::Absent | Pump::Sealing | Pump::Ending => None,
        };
        if let Some(kind) = kind {
            self.write(now, partition, kind, out);
        }
    }

    fn seal(&mut self, now: Tick, partition: &PartitionId, epoch: Epoch, out: &mut Vec<Effect>) {
        let op = self.op();
        let Some(slot) = self.slots.get_mut(partition) else { return };
        slot.pump = Pump::Sealing;
        slot.epoch = epoch;
        let write = CheckpointWrite::Seal { partition: partition.clone(), epoch, op };
        self.call(now, Purpose::Seal(partition.clone(), epoch), StoreCall::Checkpoint(write), out);
    }

    pub(super) fn on_sealed(
        &mut self,
        now: Tick,
        partition: &PartitionId,
        epoch: Epoch,
        outcome: CheckpointOutcome,
        out: &mut Vec<Effect>,
    ) {
        let Some(slot) = self.slots.get_mut(partition) else { return };
        if !matches!(slot.pump, Pump::Sealing) || slot.epoch != epoch {
            return;
        }
        slot.retry.succeeded();
        slot.pump = Pump::Absent;
        match outcome {
            CheckpointOutcome::Applied(record) => self.open(now, partition, record, out),
            CheckpointOutcome::Fenced(record) | CheckpointOutcome::Behind(record) => {
                slot.highest = slot.highest.max(record.epoch);
                self.look(now, out);
            }
        }
    }

    pub(super) fn on_seal_failed(
        &mut self,
        now: Tick,
        partition: &PartitionId,
        epoch: Epoch,
        error: StoreError,
        out: &mut Vec<Effect>,
    ) {
        let cycle = self.config.timing.cycle();
        let Some(slot) = self.slots.get_mut(partition) else { return };
        if matches!(slot.pump, Pump::Sealing) && slot.epoch == epoch {
            slot.pump = Pump::Absent;
            let at = slot.retry.failed(now, cycle, &mut self.rng);
            self.timer(at, Timer::Slot(partition.clone()));
        }
        Self::report(Some(partition), Operation::Seal, error, out);
    }

    /// Starts a pump at the position of the seal, if that still makes sense; otherwise the next view brings it up.
    pub(super) fn open(
        &mut self,
        now: Tick,
        partition: &PartitionId,
        record: CheckpointRecord,
        out: &mut Vec<Effect>,
    ) {
        let wanted = self.life == Life::Running && self.lease.is_valid(now) && !self.group.lapsed;
        let Some(slot) = self.slots.get_mut(partition) else { return };
        if wanted && !slot.declines(now) && self.partitions.contains(partition) {
            slot.pump = Pump::Open;
            slot.confirmed = true;
            slot.checkpoint = Checkpoints::at(record.resume.clone());
            out.push(Effect::Open {
                partition: partition.clone(),
                epoch: slot.epoch,
                checkpoint: record,
                lease: self.lease.valid_until(),
            });
        }
        self.reconcile(now, partition, false, out);
    }

    pub(super) fn start_drain(
        &mut self,
        now: Tick,
        partition: &PartitionId,
        reason: DrainReason,
        out: &mut Vec<Effect>,
    ) {
        let deadline = now + self.config.drain_time;
        let Some(slot) = self.slots.get_mut(partition) else { return };
        if !matches!(slot.pump, Pump::Open) {
            return;
        }
        slot.pump = Pump::Draining { reason, deadline, cut: None };
        out.push(Effect::Drain { partition: partition.clone(), reason });
        self.timer(deadline, Timer::Slot(partition.clone()));
    }

    /// Cuts off a call that outlasts the drain time; gives the hand-off up if the call cannot be cut off.
    fn check_drain(&mut self, now: Tick, partition: &PartitionId, out: &mut Vec<Effect>) {
        let grace = self.grace();
        let Some(slot) = self.slots.get_mut(partition) else { return };
        let Pump::Draining { reason, deadline, cut } = &mut slot.pump else { return };
        match cut {
            None if now >= *deadline => {
                *cut = Some(now);
                let reason = CancelReason::DrainTime;
                out.push(Effect::Cancel { partition: partition.clone(), reason });
                self.timer(now + grace, Timer::Slot(partition.clone()));
            }
            Some(at)
                if now >= *at + grace && *reason == DrainReason::HandOff && self.life == Life::Running =>
            {
                slot.pump = Pump::Open;
                slot.refused_until = now + self.config.cool_down;
                out.push(Effect::Undrain { partition: partition.clone() });
                let error = "the handler neither returned nor could be cancelled in the drain time: \
                             the partition stays here until the cool-down is over";
                Self::report(Some(partition), Operation::Drain, error, out);
            }
            _ => {}
        }
    }

    /// The call has ended, perhaps because it was cut off: the handler's last word has a drain time of its own.
    pub(super) fn on_stopping(&mut self, now: Tick, partition: &PartitionId) {
        let at = now + self.config.drain_time;
        let Some(slot) = self.slots.get_mut(partition) else { return };
        if let Pump::Draining { deadline, cut, .. } = &mut slot.pump {
            *deadline = at;
            *cut = None;
            self.timer(at, Timer::Slot(partition.clone()));
            if let Life::Stopping { deadline } = &mut self.life {
                *deadline = (*deadline).max(at + self.config.timing.ttl());
                let deadline = *deadline;
                self.timer(deadline, Timer::Stop);
            }
        }
    }

    pub(super) fn on_drained(
        &mut self,
        now: Tick,
        partition: &PartitionId,
        last: Option<Target>,
        cancelled: bool,
        give_up: bool,
        out: &mut Vec<Effect>,
    ) {
        let Some(slot) = self.slots.get_mut(partition) else { return };
        match slot.pump {
            Pump::Open | Pump::Draining { .. } => {
                slot.pump = Pump::Drained { cancelled };
                if cancelled && self.is_stopping() {
                    self.failures.push(format!("partition {partition}: a call of the handler was cut off"));
                }
                if give_up {
                    self.decline(now, partition, out);
                }
                self.settle_last(partition, last);
                self.drive(now, partition, out);
            }
            // The revocation crossed the drain.
            Pump::Ending => self.on_ended(now, partition, out),
            Pump::Absent | Pump::Sealing | Pump::Drained { .. } => {}
        }
    }

    pub(super) fn on_ended(&mut self, now: Tick, partition: &PartitionId, out: &mut Vec<Effect>) {
        let Some(slot) = self.slots.get_mut(partition) else { return };
        if std::mem::take(&mut slot.stuck) {
            tracing::info!(%partition, "the call that went on has ended");
            self.beat_now(now, out);
        } else if !matches!(slot.pump, Pump::Ending) {
            // Nobody told it to: the runtime of the handlers is gone, or it panicked. Somebody else may do better.
            Self::report(Some(partition), Operation::Drain, "the pump ended unexpectedly: giving it up", out);
            self.decline(now, partition, out);
        }
        self.close(partition, None, out);
        self.drive(now, partition, out);
    }

    /// Keeps what is told of a partition that its pump cannot get on with, for the next heartbeat.
    pub(super) fn on_failing(&mut self, partition: &PartitionId, failing: Option<FailingPartition>) {
        let Some(slot) = self.slots.get_mut(partition) else { return };
        slot.failing = failing.filter(|_| matches!(slot.pump, Pump::Open | Pump::Draining { .. }));
    }

    /// Does not want the partition for a while, and tells the others.
    fn decline(&mut self, now: Tick, partition: &PartitionId, out: &mut Vec<Effect>) {
        let until = now + self.config.cool_down;
        let Some(slot) = self.slots.get_mut(partition) else { return };
        slot.declined_until = until;
        // Nobody else may have wanted it by then.
        self.timer(until, Timer::Slot(partition.clone()));
        self.beat_now(now, out);
    }

    /// Forgets the pump.
    pub(super) fn close(
        &mut self,
        partition: &PartitionId,
        moved: Option<MoveReason>,
        out: &mut Vec<Effect>,
    ) {
        let Some(slot) = self.slots.get_mut(partition) else { return };
        slot.pump = Pump::Absent;
        slot.failing = None;
        slot.checkpoint.forget();
        out.push(Effect::Closed { partition: partition.clone(), moved });
    }

    pub(super) fn close_if_drained(&mut self, partition: &PartitionId, out: &mut Vec<Effect>) {
        if matches!(self.slots[partition].pump, Pump::Drained { .. }) {
            self.close(partition, None, out);
        }
    }

    /// Gives up what runs here for a partition that is no longer ours.
    pub(super) fn abandon(
        &mut self,
        now: Tick,
        partition: &PartitionId,
        reason: RevokeReason,
        out: &mut Vec<Effect>,
    ) {
        let grace = self.grace();
        let me = &self.me.incarnation;
        let Some(slot) = self.slots.get_mut(partition) else { return };
        if reason == RevokeReason::Buried {
            // Whatever this incarnation still had or had under way is no longer its own to pass on.
            if slot.is_owned_by(me) || slot.awaits(me) {
                slot.known = None;
            }
            slot.write = None;
            slot.unknown = None;
            slot.retry = Retry::default();
            slot.refused_until = Tick(0);
        }
        match slot.pump {
            Pump::Open | Pump::Draining { .. } => {
                slot.pump = if planted!(TwoPumps) { Pump::Absent } else { Pump::Ending };
                slot.checkpoint.forget();
                slot.confirmed = false;
                out.push(Effect::Revoke { partition: partition.clone(), reason });
                self.timer(now + grace, Timer::Stuck(partition.clone()));
            }
            Pump::Drained { .. } => self.close(partition, None, out),
            Pump::Sealing => slot.pump = Pump::Absent,
            Pump::Absent | Pump::Ending => {}
        }
    }

    /// How long a call that was cut off may take to end.
    fn grace(&self) -> Duration {
        self.config.timing.cycle() / 4
    }

    /// A call that was cut off goes on, on a blocked thread for example. No other pump may start beside it: the others are
    /// told to do without this instance there.
    pub(super) fn on_stuck(&mut self, now: Tick, partition: &PartitionId, out: &mut Vec<Effect>) {
        let Some(slot) = self.slots.get_mut(partition) else { return };
        if !matches!(slot.pump, Pump::Ending) || std::mem::replace(&mut slot.stuck, true) {
            return;
        }
        let error = "a call of the handler goes on although the partition was lost: this instance does without the \
                     partition until the call has ended; do not block in a handler";
        Self::report(Some(partition), Operation::Drain, error, out);
        self.beat_now(now, out);
    }

    /// After a lapse no pump counts as confirmed.
    pub(super) fn unconfirm(&mut self) {
        for slot in self.slots.values_mut() {
            slot.confirmed = false;
        }
    }

    /// Passes a renewed lease on to all pumps that are confirmed.
    pub(super) fn extend_leases(&self, now: Tick, out: &mut Vec<Effect>) {
        if !self.lease.is_valid(now) {
            return;
        }
        let until = self.lease.valid_until();
        for (partition, slot) in &self.slots {
            if slot.confirmed && slot.has_pump() {
                out.push(Effect::Lease { partition: partition.clone(), until });
            }
        }
    }
}
