//! This instance's own record: register, heartbeat, being buried, leaving.

use super::retry::Retry;
use super::slot::Pump;
use super::{Life, Native, Purpose, Timer, is_live};
use crate::coordination::{Effect, StoreAnswer, StoreCall};
use crate::model::{
    CancelReason, DrainReason, Incarnation, InstanceId, PartitionId, RevokeReason, Tick, Timestamp,
};
use crate::report::Operation;
use crate::store::{
    FAILING_TOLD_MAX, FailingPartition, InstanceDetails, InstanceOutcome, InstanceRecord, InstanceSeen,
    InstanceState, InstanceWrite, StoreError, Version,
};

pub(super) struct Me {
    pub(super) incarnation: Incarnation,
    /// The version that the last heartbeat left.
    version: Option<Version>,
    /// The number of the last acknowledged heartbeat.
    beat: u64,
    /// What the last heartbeat said that we decline.
    declines: Vec<PartitionId>,
    /// Counts the writes of this incarnation.
    pub(super) ops: u64,
    /// When the heartbeat after `beat` was first sent, if it was.
    first_sent: Option<Tick>,
    due: Tick,
    /// Whether a call on the own record is under way.
    busy: bool,
    retry: Retry,
}

impl Me {
    pub(super) fn new(id: &InstanceId, rng: &mut fastrand::Rng) -> Self {
        Self {
            incarnation: Incarnation::new(id.clone(), rng.u128(..)),
            version: None,
            beat: 0,
            declines: Vec::new(),
            ops: 0,
            first_sent: None,
            due: Tick(0),
            busy: false,
            retry: Retry::default(),
        }
    }
}

impl Native {
    fn my_record(&self, now: Tick, beat: u64) -> InstanceRecord {
        InstanceRecord {
            incarnation: self.me.incarnation.clone(),
            host: self.config.host.clone(),
            started: self.stamp(now),
            ttl: self.config.timing.ttl(),
            stopping: self.is_stopping(),
            declines: self.declined(now),
            state: InstanceState::Live,
            beat,
            details: InstanceDetails {
                stream: self.stream.clone(),
                initial_position: Some(self.config.initial_position.clone()),
                failing: self.failing(),
            },
        }
    }

    /// The partitions that have failed for longest, as many as may be told of.
    fn failing(&self) -> Vec<FailingPartition> {
        let mut failing: Vec<_> = self.slots.values().filter_map(|slot| slot.failing.clone()).collect();
        failing.sort_by_key(|one| one.since);
        failing.truncate(FAILING_TOLD_MAX);
        failing
    }

    fn declined(&self, now: Tick) -> Vec<PartitionId> {
        let declined = self.slots.iter().filter(|(_, slot)| slot.declines(now));
        declined.map(|(partition, _)| partition.clone()).collect()
    }

    /// Whether it is in the store's hands that this incarnation takes part.
    fn is_joining(&self) -> bool {
        matches!(self.life, Life::Joining | Life::Buried)
    }

    /// When this life began, for people.
    fn stamp(&self, now: Tick) -> Timestamp {
        if planted!(RemoteTimestamp) { Timestamp((now.0 / 1_000_000) as i64) } else { self.config.started }
    }

    /// Heartbeats, or registers first.
    pub(super) fn beat_if_due(&mut self, now: Tick, out: &mut Vec<Effect>) {
        if self.me.busy || now < self.me.due || self.life == Life::Stopped {
            return;
        }
        self.me.declines = self.declined(now);
        match self.me.version.clone() {
            None if !self.is_joining() => {}
            None => {
                self.me.busy = true;
                let write = InstanceWrite::Register(self.my_record(now, 0));
                self.call(now, Purpose::Register, StoreCall::Instance(write), out);
            }
            Some(expect) => {
                self.me.busy = true;
                self.me.first_sent.get_or_insert(now);
                let write = InstanceWrite::Beat { record: self.my_record(now, self.me.beat + 1), expect };
                self.call(now, Purpose::Beat, StoreCall::Instance(write), out);
            }
        }
    }

    pub(super) fn beat_at(&mut self, at: Tick) {
        self.me.due = at;
        self.timer(at, Timer::Beat);
    }

    /// Something that others should know has changed: tell them without waiting for the cycle.
    pub(super) fn beat_now(&mut self, now: Tick, out: &mut Vec<Effect>) {
        self.beat_at(now);
        self.beat_if_due(now, out);
    }

    pub(super) fn on_registered(
        &mut self,
        now: Tick,
        sent: Tick,
        outcome: InstanceOutcome,
        out: &mut Vec<Effect>,
    ) {
        self.me.busy = false;
        match outcome {
            InstanceOutcome::Applied(seen) => self.join(now, sent, seen, out),
            // The answer to an earlier try was lost: nobody else knows this incarnation. The record's age counts
            // from that try, so the lease has to begin with a heartbeat.
            InstanceOutcome::Refused(Some(seen)) if is_live(seen.record.state) => {
                self.life = if self.is_joining() { Life::Running } else { self.life };
                out.push(Effect::Registered);
                self.me.version = Some(seen.version);
                self.me.beat = seen.record.beat;
                self.beat_now(now, out);
            }
            InstanceOutcome::Refused(_) => {
                self.me = Me::new(&self.config.id, &mut self.rng);
                self.beat_now(now, out);
            }
        }
    }

    fn join(&mut self, now: Tick, sent: Tick, seen: InstanceSeen, out: &mut Vec<Effect>) {
        if self.is_joining() {
            self.life = Life::Running;
        }
        out.push(Effect::Registered);
        self.acknowledge(now, sent, seen, out);
    }

    pub(super) fn on_register_failed(&mut self, now: Tick, error: StoreError, out: &mut Vec<Effect>) {
        self.me.busy = false;
        let at = self.me.retry.failed(now, self.config.timing.cycle(), &mut self.rng);
        self.beat_at(at);
        Self::report(None, Operation::Register, error, out);
    }

    pub(super) fn on_beat(&mut self, now: Tick, sent: Tick, outcome: InstanceOutcome, out: &mut Vec<Effect>) {
        self.me.busy = false;
        match outcome {
            InstanceOutcome::Applied(seen) => self.acknowledge(now, sent, seen, out),
            // An earlier heartbeat of this number was applied and its answer lost. It counts from the first moment
            // at which it can have been sent.
            InstanceOutcome::Refused(Some(seen))
                if is_live(seen.record.state) && seen.record.beat == self.me.beat + 1 =>
            {
                let sent = self.me.first_sent.unwrap_or(sent);
                self.acknowledge(now, sent, seen, out);
                self.beat_now(now, out);
            }
            InstanceOutcome::Refused(Some(seen)) if is_live(seen.record.state) => {
                self.me.version = Some(seen.version);
                self.me.beat = seen.record.beat;
                self.me.first_sent = None;
                self.beat_now(now, out);
            }
            InstanceOutcome::Refused(_) => self.buried(now, out),
        }
    }

    fn acknowledge(&mut self, now: Tick, sent: Tick, seen: InstanceSeen, out: &mut Vec<Effect>) {
        self.me.version = Some(seen.version);
        self.me.beat = seen.record.beat;
        self.me.first_sent = None;
        self.me.retry.succeeded();
        if self.lease.acknowledge(now, sent) {
            self.unconfirm();
        }
        self.group.lapsed = !self.lease.is_valid(now);
        self.extend_leases(now, out);
        self.timer(self.lease.valid_until(), Timer::Lapse);
        self.timer(self.lease.hard_stop(), Timer::HardStop);
        let jitter = self.rng.f64();
        // The first heartbeat comes early: with it a newcomer counts.
        let cycles = if self.me.beat == 0 { 0.4 + 0.05 * jitter } else { 0.9 + 0.2 * jitter };
        let cycle = self.config.timing.cycle().mul_f64(cycles);
        let told_all = seen.record.stopping == self.is_stopping() && self.me.declines == self.declined(now);
        self.beat_at(if told_all { (sent + cycle).max(now) } else { now });
        self.look(now, out);
    }

    pub(super) fn on_beat_failed(&mut self, now: Tick, error: StoreError, out: &mut Vec<Effect>) {
        self.me.busy = false;
        self.lease.disturb();
        let at = self.me.retry.failed(now, self.config.timing.cycle(), &mut self.rng);
        self.beat_at(at);
        Self::report(None, Operation::Heartbeat, error, out);
    }

    /// The lease has run out, unless a heartbeat was acknowledged in the meantime.
    pub(super) fn on_lapse(&mut self, now: Tick, out: &mut Vec<Effect>) {
        if self.lease.is_valid(now) || self.group.lapsed || self.is_joining() {
            return;
        }
        self.group.lapsed = true;
        self.unconfirm();
        Self::report(
            None,
            Operation::Lease,
            "no heartbeat was acknowledged in time: nothing is delivered until one is",
            out,
        );
    }

    pub(super) fn on_hard_stop(&mut self, now: Tick, out: &mut Vec<Effect>) {
        if now < self.lease.hard_stop() {
            return;
        }
        for (partition, slot) in &self.slots {
            // The last word of a handler that has lost its partition is not bound by the lease.
            if matches!(slot.pump, Pump::Open | Pump::Draining { .. }) {
                out.push(Effect::Cancel { partition: partition.clone(), reason: CancelReason::Lost });
            }
        }
    }

    /// Others have declared this incarnation dead: whatever it owned may be somebody else's by now.
    pub(super) fn buried(&mut self, now: Tick, out: &mut Vec<Effect>) {
        Self::report(
            None,
            Operation::Heartbeat,
            "the others declared this instance dead; it joins again",
            out,
        );
        self.pending.clear();
        self.group.forget();
        let partitions: Vec<_> = self.slots.keys().cloned().collect();
        for partition in &partitions {
            self.abandon(now, partition, RevokeReason::Buried, out);
        }
        if self.is_stopping() {
            self.failures.push("declared dead by the others while stopping".to_owned());
            self.me.version = None;
            self.me.busy = false;
        } else {
            // At once: a call that does not end keeps its own partition from being opened here, and nothing else.
            self.life = Life::Buried;
            self.me = Me::new(&self.config.id, &mut self.rng);
            self.lease = super::Lease::new(self.config.timing);
            self.beat_now(now, out);
        }
        self.progress(now, out);
    }

    pub(super) fn on_stop(&mut self, now: Tick, out: &mut Vec<Effect>) {
        if self.is_stopping() {
            return;
        }
        if self.me.version.is_none() && !self.slots.values().any(super::Slot::has_pump) {
            self.stopped(out);
            return;
        }
        let deadline = now + self.config.drain_time + self.config.timing.ttl();
        self.life = Life::Stopping { deadline };
        self.timer(deadline, Timer::Stop);
        if self.me.version.is_some() {
            self.beat_now(now, out);
        }
        let partitions: Vec<_> = self.slots.keys().cloned().collect();
        for partition in &partitions {
            self.start_drain(now, partition, DrainReason::Shutdown, out);
            self.drive(now, partition, out);
        }
    }

    pub(super) fn on_stop_deadline(&mut self, now: Tick, out: &mut Vec<Effect>) {
        let Life::Stopping { deadline } = self.life else { return };
        if now < deadline {
            return;
        }
        for (partition, slot) in &self.slots {
            if let Some(left) = slot.left_undone(&self.me.incarnation) {
                self.failures.push(format!("partition {partition}: {left}"));
            }
        }
        if self.failures.is_empty() {
            self.failures.push("the store did not confirm the leave".to_owned());
        }
        self.stopped(out);
    }

    /// Goes on where waiting for everything else has ended: leaves at the end of a stop.
    pub(super) fn progress(&mut self, now: Tick, out: &mut Vec<Effect>) {
        let stopping = matches!(self.life, Life::Stopping { .. });
        if !stopping || !self.slots.values().all(|slot| slot.is_done(&self.me.incarnation)) {
            return;
        }
        if self.me.version.is_none() {
            self.stopped(out);
        } else if let Some(expect) = self
            .group
            .nothing_names(&self.me.incarnation, self.settled_at())
            .then(|| self.me.version.clone())
            .flatten()
        {
            if !self.me.busy {
                self.me.busy = true;
                let write = InstanceWrite::Leave { incarnation: self.me.incarnation.clone(), expect };
                self.call(now, Purpose::Leave, StoreCall::Instance(write), out);
            }
        } else if !self.group.is_looking() {
            self.look(now, out);
        }
    }

    /// When the last answer about any partition arrived: only a view sent later tells that nothing names us.
    fn settled_at(&self) -> Tick {
        self.slots.values().map(|slot| slot.known_at).max().unwrap_or_default()
    }

    pub(super) fn on_left(
        &mut self,
        now: Tick,
        answer: Result<StoreAnswer, StoreError>,
        out: &mut Vec<Effect>,
    ) {
        self.me.busy = false;
        match answer {
            Ok(StoreAnswer::Instance(InstanceOutcome::Refused(Some(seen)))) if is_live(seen.record.state) => {
                self.me.version = Some(seen.version);
                self.progress(now, out);
            }
            Ok(_) => self.stopped(out),
            Err(error) => {
                let at = self.me.retry.failed(now, self.config.timing.cycle(), &mut self.rng);
                // The view that allows the leave is asked for again, after a pause.
                self.group.latest = None;
                self.look_at(at);
                Self::report(None, Operation::Leave, error, out);
            }
        }
    }

    fn stopped(&mut self, out: &mut Vec<Effect>) {
        self.life = Life::Stopped;
        self.timers.clear();
        out.push(Effect::Stopped { failures: std::mem::take(&mut self.failures) });
    }
}
