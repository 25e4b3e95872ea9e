//! Sees every write that reaches the store and every call of a handler, and checks the invariants at each.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use partita_core::coordination::Timing;
use partita_core::model::{Epoch, Event, Incarnation, InstanceId, PartitionId, StreamPosition};
use partita_core::store::{
    CheckpointOutcome, CheckpointRecord, CheckpointWrite, InstanceOutcome, InstanceState, InstanceWrite,
    MoveReason, Op, Ownership, OwnershipOutcome, OwnershipWrite, Resume,
};
use tokio::time::Instant;

/// An invariant that did not hold.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Violation {
    /// When, in simulated time.
    pub at: Duration,
    /// Which, and how.
    pub what: String,
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "at {:?}: {}", self.at, self.what)
    }
}

/// What happened, counted.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[allow(missing_docs)] // The names say it.
pub struct Counts {
    pub calls: u64,
    pub events_handled: u64,
    pub duplicates: u64,
    pub cut_calls: u64,
    pub claims: u64,
    pub handoffs: u64,
    pub steals: u64,
    pub takeovers: u64,
    pub releases: u64,
    pub retakes: u64,
    pub burials: u64,
    pub fenced: u64,
    pub checkpoints: u64,
    pub lost_requests: u64,
    pub lost_replies: u64,
    pub crashes: u64,
    pub freezes: u64,
    pub outages: u64,
    pub joins: u64,
    pub leaves: u64,
}

impl Counts {
    /// Adds what happened elsewhere.
    pub fn add(&mut self, other: &Self) {
        let pairs: [(&mut u64, u64); 20] = [
            (&mut self.calls, other.calls),
            (&mut self.events_handled, other.events_handled),
            (&mut self.duplicates, other.duplicates),
            (&mut self.cut_calls, other.cut_calls),
            (&mut self.claims, other.claims),
            (&mut self.handoffs, other.handoffs),
            (&mut self.steals, other.steals),
            (&mut self.takeovers, other.takeovers),
            (&mut self.releases, other.releases),
            (&mut self.retakes, other.retakes),
            (&mut self.burials, other.burials),
            (&mut self.fenced, other.fenced),
            (&mut self.checkpoints, other.checkpoints),
            (&mut self.lost_requests, other.lost_requests),
            (&mut self.lost_replies, other.lost_replies),
            (&mut self.crashes, other.crashes),
            (&mut self.freezes, other.freezes),
            (&mut self.outages, other.outages),
            (&mut self.joins, other.joins),
            (&mut self.leaves, other.leaves),
        ];
        for (mine, theirs) in pairs {
            *mine += theirs;
        }
    }
}

/// Names a call of a handler.
pub(crate) type CallId = u64;

#[derive(Debug)]
struct Call {
    instance: InstanceId,
    partition: PartitionId,
    epoch: Epoch,
    first: i64,
    last: i64,
    /// Whether the process stood still at some time during the call.
    was_frozen: bool,
}

/// The oracle, shared by everything in a world.
#[derive(Clone)]
pub(crate) struct SharedOracle(Arc<Mutex<Oracle>>);

impl SharedOracle {
    pub(crate) fn new(oracle: Oracle) -> Self {
        Self(Arc::new(Mutex::new(oracle)))
    }

    pub(crate) fn lock(&self) -> MutexGuard<'_, Oracle> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What is known, and what was ever wrong.
pub struct Oracle {
    start: Instant,
    timing: Timing,
    atomic: bool,
    trace: Option<Vec<String>>,
    hasher: DefaultHasher,
    /// What happened.
    pub counts: Counts,
    violation: Option<Violation>,
    ownerships: BTreeMap<PartitionId, Ownership>,
    checkpoints: BTreeMap<PartitionId, CheckpointRecord>,
    dead: BTreeSet<Incarnation>,
    /// When the last acknowledged heartbeat of each was sent.
    acknowledged: BTreeMap<Incarnation, Instant>,
    calls: BTreeMap<CallId, Call>,
    next_call: CallId,
    /// Per partition: the first event not handled yet, and those handled beyond it.
    handled: BTreeMap<PartitionId, (i64, BTreeSet<i64>)>,
    /// Per partition: the last epoch in which something was handled, and the last event handled in it.
    handled_last: BTreeMap<PartitionId, (Epoch, i64)>,
    /// Which handlers are open.
    open: BTreeMap<(InstanceId, PartitionId), Epoch>,
    /// Which incarnation opened which epoch.
    opened: BTreeMap<(PartitionId, Epoch), InstanceId>,
    highest_opened: BTreeMap<PartitionId, Epoch>,
    last_move: Instant,
    calm: bool,
}

impl Oracle {
    pub(crate) fn new(start: Instant, timing: Timing, atomic: bool, keep_trace: bool) -> Self {
        Self {
            start,
            timing,
            atomic,
            trace: keep_trace.then(Vec::new),
            hasher: DefaultHasher::new(),
            counts: Counts::default(),
            violation: None,
            ownerships: BTreeMap::new(),
            checkpoints: BTreeMap::new(),
            dead: BTreeSet::new(),
            acknowledged: BTreeMap::new(),
            calls: BTreeMap::new(),
            next_call: 0,
            handled: BTreeMap::new(),
            handled_last: BTreeMap::new(),
            open: BTreeMap::new(),
            opened: BTreeMap::new(),
            highest_opened: BTreeMap::new(),
            last_move: start,
            calm: false,
        }
    }

    /// Adds a line to the trace, which is hashed, and kept if somebody wants to read it.
    pub(crate) fn note(&mut self, what: fmt::Arguments<'_>) {
        let line = format!("{:>10} {what}", self.start.elapsed().as_millis());
        line.hash(&mut self.hasher);
        if let Some(trace) = &mut self.trace {
            trace.push(line);
        }
    }

    pub(crate) fn trace_hash(&self) -> u64 {
        self.hasher.finish()
    }

    pub(crate) fn take_trace(&mut self) -> Vec<String> {
        self.trace.take().unwrap_or_default()
    }

    pub(crate) fn violation(&self) -> Option<&Violation> {
        self.violation.as_ref()
    }

    /// Keeps the first violation: later ones follow from it.
    pub(crate) fn violate(&mut self, what: String) {
        self.note(format_args!("VIOLATION {what}"));
        let at = self.start.elapsed();
        self.violation.get_or_insert(Violation { at, what });
    }

    fn require(&mut self, holds: bool, what: impl FnOnce() -> String) {
        if !holds {
            self.violate(what());
        }
    }

    /// Faults have stopped.
    pub(crate) fn set_calm(&mut self) {
        self.calm = true;
        self.note(format_args!("calm"));
    }

    pub(crate) fn is_calm(&self) -> bool {
        self.calm
    }

    pub(crate) fn last_move(&self) -> Instant {
        self.last_move
    }

    pub(crate) fn lost_request(&mut self) {
        self.counts.lost_requests += 1;
    }

    pub(crate) fn lost_reply(&mut self) {
        self.counts.lost_replies += 1;
    }

    // What reaches the store.

    pub(crate) fn instance_written(&mut self, write: &InstanceWrite, outcome: &InstanceOutcome) {
        let InstanceOutcome::Applied(seen) = outcome else { return };
        let who = write.incarnation().clone();
        match write {
            InstanceWrite::Register(_) => self.note(format_args!("register {who}")),
            InstanceWrite::Beat { .. } => {}
            InstanceWrite::Bury { .. } | InstanceWrite::BuryAbsent { .. } => {
                self.counts.burials += 1;
                self.note(format_args!("bury {who}"));
                if let Some(sent) = self.acknowledged.get(&who) {
                    let (age, least) = (sent.elapsed(), self.timing.lease());
                    self.require(age >= least, || {
                        format!("8: {who} was buried {age:?} after its last acknowledged heartbeat was sent")
                    });
                }
            }
            InstanceWrite::Leave { .. } => self.note(format_args!("leave {who}")),
        }
        if seen.record.state == InstanceState::Dead {
            self.dead.insert(who);
        } else {
            let risen = self.dead.contains(&who);
            self.require(!risen, || format!("7: {who} was dead and is live"));
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
    }

    pub(crate) fn ownership_written(&mut self, write: &OwnershipWrite, outcome: &OwnershipOutcome) {
        let OwnershipOutcome::Applied { ownership, checkpoint } = outcome else { return };
        let partition = &write.partition;
        let before = self.ownerships.get(partition).cloned();
        let old_owner = before.as_ref().and_then(|old| old.owner.clone());
        let old_epoch = before.as_ref().map(|old| old.epoch).unwrap_or_default();
        let by = &write.op.by;
        if ownership.owner != old_owner {
            self.last_move = Instant::now();
            let name = |who: &Option<Incarnation>| who.as_ref().map_or("-".to_owned(), ToString::to_string);
            let (from, to) = (name(&old_owner), name(&ownership.owner));
            self.note(format_args!(
                "move {partition} {from} > {to} {} {}",
                ownership.epoch, ownership.reason
            ));
            let counter = match ownership.reason {
                MoveReason::Claimed => &mut self.counts.claims,
                MoveReason::HandedOff => &mut self.counts.handoffs,
                MoveReason::Stolen => &mut self.counts.steals,
                MoveReason::TakenFromDead => &mut self.counts.takeovers,
                MoveReason::Retaken => &mut self.counts.retakes,
                _ => &mut self.counts.releases,
            };
            *counter += 1;
            self.require(ownership.epoch > old_epoch, || {
                format!("5: partition {partition} went to {to} without a higher epoch than {old_epoch}")
            });
            let allowed = old_owner.as_ref().is_none_or(|old| old == by || self.dead.contains(old));
            self.require(allowed, || {
                format!("7: partition {partition} was taken from {from}, which is not dead, by {by}")
            });
        } else {
            let next = ownership.next.as_ref().map_or("-".to_owned(), ToString::to_string);
            self.note(format_args!("next {partition} {next} {} by {by}", ownership.epoch));
            self.counts.retakes += u64::from(ownership.epoch > old_epoch);
            self.require(ownership.epoch >= old_epoch, || {
                format!("5: the epoch of partition {partition} fell")
            });
        }
        self.ownerships.insert(partition.clone(), ownership.clone());
        let passed_on =
            matches!(ownership.reason, MoveReason::HandedOff | MoveReason::Stolen | MoveReason::Released);
        let passed_on = passed_on && ownership.owner != old_owner;
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
        if passed_on {
            self.check_passed_on(partition, old_epoch);
        }
    }

    /// An owner that passes a partition on has no call running, and its checkpoint covers all that it handled.
    fn check_passed_on(&mut self, partition: &PartitionId, epoch: Epoch) {
        let running = self.calls.values().any(|call| call.partition == *partition && call.epoch == epoch);
        self.require(!running, || {
            format!("12: partition {partition} was passed on while a call was running")
        });
        let handled = self.handled_last.get(partition).filter(|(at, _)| *at == epoch).map(|(_, last)| *last);
        let covered = match self.checkpoints.get(partition).and_then(|record| record.resume.as_ref()) {
            Some(Resume::After(last)) => last.sequence.0,
            _ => -1,
        };
        self.require(handled.is_none_or(|handled| covered >= handled), || {
            format!("6: partition {partition} was passed on at {covered}, but {handled:?} had been handled")
        });
    }

    pub(crate) fn checkpoint_written(&mut self, write: &CheckpointWrite, outcome: &CheckpointOutcome) {
        let record = match outcome {
            CheckpointOutcome::Applied(record) => record,
            CheckpointOutcome::Fenced(_) => {
                self.counts.fenced += 1;
                return;
            }
            CheckpointOutcome::Behind(_) => return,
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
                self.note(format_args!("seek {partition} {epoch}"));
                self.check_owner(partition, *epoch, op);
            }
        }
        self.checkpoints.insert(partition.clone(), record.clone());
    }

    fn check_owner(&mut self, partition: &PartitionId, epoch: Epoch, op: &Op) {
        if self.atomic {
            let owner = self
                .ownerships
                .get(partition)
                .is_some_and(|known| known.owner.as_ref() == Some(&op.by) && known.epoch == epoch);
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
        let before = self.checkpoints.get(partition).and_then(|record| match &record.resume {
            Some(Resume::After(before)) => Some(before.sequence),
            _ => None,
        });
        self.require(before.is_none_or(|before| last.sequence >= before), || {
            format!("3: the checkpoint of partition {partition} fell to {}", last.sequence)
        });
        let first_unhandled = self.handled.get(partition).map_or(0, |(first, _)| *first);
        self.require(last.sequence.0 < first_unhandled, || {
            format!(
                "4: partition {partition} was checkpointed at {}, but {first_unhandled} was not handled",
                last.sequence
            )
        });
    }

    // What handlers do.

    pub(crate) fn opened(&mut self, instance: &InstanceId, partition: &PartitionId, epoch: Epoch) {
        self.note(format_args!("open {instance} {partition} {epoch}"));
        let twice = self.open.insert((instance.clone(), partition.clone()), epoch);
        self.require(twice.is_none(), || format!("two handlers of {instance} for partition {partition}"));
        let first = self.opened.entry((partition.clone(), epoch)).or_insert_with(|| instance.clone()).clone();
        self.require(first == *instance, || {
            format!("5: epoch {epoch} of partition {partition} was opened by {first} and by {instance}")
        });
        let highest = self.highest_opened.entry(partition.clone()).or_default();
        *highest = (*highest).max(epoch);
    }

    pub(crate) fn closed(&mut self, instance: &InstanceId, partition: &PartitionId, epoch: Epoch) {
        self.note(format_args!("close {instance} {partition} {epoch}"));
        let was = self.open.remove(&(instance.clone(), partition.clone()));
        self.require(was == Some(epoch), || {
            format!("{instance} closed partition {partition} at epoch {epoch}, but had {was:?}")
        });
    }

    pub(crate) fn call_started(
        &mut self,
        instance: &InstanceId,
        partition: &PartitionId,
        epoch: Epoch,
        events: &[Event],
    ) -> CallId {
        let first = events.first().map_or(0, |event| event.sequence_number().0);
        let last = events.last().map_or(-1, |event| event.sequence_number().0);
        self.note(format_args!("call {instance} {partition} {epoch} {first}..={last}"));
        self.counts.calls += 1;
        let owner = self.ownerships.get(partition);
        let owns = owner.is_some_and(|o| {
            o.owner.as_ref().is_some_and(|owner| owner.id() == instance) && o.epoch == epoch
        });
        let record = owner.map(|o| format!("{:?} at {}", o.owner, o.epoch)).unwrap_or_default();
        self.require(owns, || {
            format!(
                "1: {instance} starts a call on partition {partition} at epoch {epoch}; the owner is {record}"
            )
        });
        let other = self.calls.values().find(|call| call.partition == *partition && !call.was_frozen);
        let other = other.map(|call| call.instance.clone());
        self.require(other.is_none(), || {
            format!("2: a call of {instance} on partition {partition} overlaps one of {other:?}")
        });
        let in_order =
            events.windows(2).all(|pair| pair[1].sequence_number().0 == pair[0].sequence_number().0 + 1);
        self.require(in_order, || format!("events of partition {partition} are out of order or have gaps"));
        self.next_call += 1;
        let call = Call {
            instance: instance.clone(),
            partition: partition.clone(),
            epoch,
            first,
            last,
            was_frozen: false,
        };
        self.calls.insert(self.next_call, call);
        self.next_call
    }

    pub(crate) fn call_ended(&mut self, id: CallId) {
        let Some(call) = self.calls.remove(&id) else { return };
        let (first, beyond) = self.handled.entry(call.partition.clone()).or_default();
        let mut duplicates = 0;
        for sequence in call.first..=call.last {
            self.counts.events_handled += 1;
            if sequence < *first || !beyond.insert(sequence) {
                duplicates += 1;
            }
        }
        while beyond.remove(first) {
            *first += 1;
        }
        self.counts.duplicates += duplicates;
        let last = self.handled_last.entry(call.partition.clone()).or_insert((call.epoch, call.last));
        *last = (*last).max((call.epoch, call.last));
        self.note(format_args!("done {} {} {}..={}", call.instance, call.partition, call.first, call.last));
    }

    pub(crate) fn call_cut(&mut self, id: CallId) {
        if let Some(call) = self.calls.remove(&id) {
            self.counts.cut_calls += 1;
            self.note(format_args!("cut {} {}", call.instance, call.partition));
        }
    }

    // What becomes of processes.

    pub(crate) fn frozen(&mut self, instance: &InstanceId) {
        self.counts.freezes += 1;
        self.note(format_args!("freeze {instance}"));
        for call in self.calls.values_mut().filter(|call| call.instance == *instance) {
            call.was_frozen = true;
        }
    }

    pub(crate) fn ended(&mut self, instance: &InstanceId) {
        self.note(format_args!("end {instance}"));
        self.calls.retain(|_, call| call.instance != *instance);
        self.open.retain(|(opened, _), _| opened != instance);
    }

    /// What keeps the group from being healed: every partition has a live owner with an open handler, nobody waits
    /// for a hand-off, and the numbers differ by one at most.
    pub(crate) fn unhealed(&self, partitions: u32, alive: &BTreeSet<InstanceId>) -> Option<String> {
        let mut counts: BTreeMap<&InstanceId, u32> = alive.iter().map(|instance| (instance, 0)).collect();
        for number in 0..partitions {
            let partition = PartitionId::from(number);
            let Some(ownership) = self.ownerships.get(&partition) else {
                return Some(format!("partition {partition} was never owned"));
            };
            let Some(owner) = &ownership.owner else {
                return Some(format!("partition {partition} has no owner"));
            };
            if self.dead.contains(owner) || !alive.contains(owner.id()) {
                return Some(format!("the owner {owner} of partition {partition} is gone"));
            }
            if let Some(next) = &ownership.next {
                return Some(format!("{next} waits for partition {partition}"));
            }
            if self.open.get(&(owner.id().clone(), partition.clone())) != Some(&ownership.epoch) {
                return Some(format!(
                    "{owner} has not opened partition {partition} at epoch {}",
                    ownership.epoch
                ));
            }
            *counts.entry(owner.id()).or_default() += 1;
        }
        let (least, most) = (counts.values().min()?, counts.values().max()?);
        (most - least > 1).then(|| format!("not balanced: {counts:?}"))
    }

    /// The first event of a partition that was never handled.
    pub(crate) fn first_unhandled(&self, partition: &PartitionId) -> i64 {
        self.handled.get(partition).map_or(0, |(first, _)| *first)
    }
}
