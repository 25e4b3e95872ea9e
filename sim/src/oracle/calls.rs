//! What handlers are given, when, and in which order.

use std::hash::{DefaultHasher, Hash, Hasher};

use partita_core::model::{Epoch, Event, Incarnation, InstanceId, PartitionId};
use tokio::time::Instant;

use super::{Gap, Oracle};
use crate::extras::DRIFT_PPM_MAX;

/// Names a call of a handler.
pub(crate) type CallId = u64;

#[derive(Debug)]
pub(super) struct Call {
    pub(super) instance: InstanceId,
    /// Which life of it.
    incarnation: Option<Incarnation>,
    pub(super) partition: PartitionId,
    pub(super) epoch: Epoch,
    first: i64,
    last: i64,
    /// Whether the process stood still at some time during the call.
    pub(super) was_frozen: bool,
    /// Whether the call cannot be cut off.
    pub(super) blocks: bool,
}

/// An open handler.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Open {
    pub(super) epoch: Epoch,
    /// The event that it is to be given next.
    next: i64,
    /// Where it is to go on once its call has ended.
    sought: Option<i64>,
}

/// What an event says, in a number; never 0, which stands for one that is not known.
fn content_of(bytes: &[u8]) -> u64 {
    let mut hasher = DefaultHasher::new();
    bytes.hash(&mut hasher);
    hasher.finish() | 1
}

impl Oracle {
    pub(crate) fn opened(&mut self, instance: &InstanceId, partition: &PartitionId, epoch: Epoch) {
        self.note(format_args!("open {instance} {partition} {epoch}"));
        match self.unread_since.remove(partition) {
            Some((since, Gap::HandOff)) => self.gaps.0.push(since.elapsed()),
            Some((since, Gap::Lost)) => self.gaps.1.push(since.elapsed()),
            _ => {}
        }
        let next = self.checkpointed(partition) + 1;
        let twice =
            self.open.insert((instance.clone(), partition.clone()), Open { epoch, next, sought: None });
        self.require(twice.is_none(), || format!("2: {instance} has two handlers of partition {partition}"));
        let first = self.opened.entry((partition.clone(), epoch)).or_insert_with(|| instance.clone()).clone();
        self.require(first == *instance, || {
            format!("5: epoch {epoch} of partition {partition} was opened by {first} and by {instance}")
        });
        let highest = self.highest_opened.entry(partition.clone()).or_default();
        *highest = (*highest).max(epoch);
    }

    /// A handler hears that it is over, or is gone.
    pub(crate) fn closed(
        &mut self,
        instance: &InstanceId,
        partition: &PartitionId,
        epoch: Epoch,
        good: bool,
    ) {
        self.note(format_args!("close {instance} {partition} {epoch}"));
        let was = self.open.remove(&(instance.clone(), partition.clone())).map(|open| open.epoch);
        self.require(was == Some(epoch), || {
            format!("2: {instance} closed partition {partition} at epoch {epoch}, but had {was:?}")
        });
        let why = if good { Gap::Closed } else { Gap::Lost };
        self.unread_since.entry(partition.clone()).or_insert((Instant::now(), why));
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
        self.check_may_start(instance, partition, epoch);
        let in_order =
            events.windows(2).all(|pair| pair[1].sequence_number().0 == pair[0].sequence_number().0 + 1);
        self.require(in_order, || {
            format!("4: events of partition {partition} are out of order or have gaps")
        });
        let expected = self.open.get(&(instance.clone(), partition.clone())).map(|open| open.next);
        let declared = self.rules.declared || events.is_empty();
        self.require(declared || expected == Some(first), || {
            format!("4: {instance} was given event {first} of partition {partition}, not {expected:?}")
        });
        self.check_contents(partition, events);
        self.next_call += 1;
        let call = Call {
            instance: instance.clone(),
            incarnation: self.ownerships.get(partition).and_then(|known| known.owner.clone()),
            partition: partition.clone(),
            epoch,
            first,
            last,
            was_frozen: false,
            blocks: false,
        };
        self.calls.insert(self.next_call, call);
        self.next_call
    }

    /// Only the owner starts calls, with a valid lease, and only while no other call of the partition runs.
    fn check_may_start(&mut self, instance: &InstanceId, partition: &PartitionId, epoch: Epoch) {
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
        self.check_lease(instance, partition);
        // The call of a process that stood still, or that cannot be cut off, is nobody's fault; a second one in the same
        // process is. Nor is one that goes on for the margin of a lease after the store's clock has jumped.
        let jumped = self.clock_jumped.is_some_and(|at| at.elapsed() <= self.rules.timing.ttl());
        let overlap = self.calls.values().find(|call| {
            let excused = (call.was_frozen || call.blocks || jumped) && call.instance != *instance;
            call.partition == *partition && !excused
        });
        let other = overlap.map(|call| call.instance.clone());
        self.require(other.is_none(), || {
            format!("2: a call of {instance} on partition {partition} overlaps one of {other:?}")
        });
    }

    /// A lease ends so long after its last acknowledged heartbeat was sent, by the clock of its machine.
    fn check_lease(&mut self, instance: &InstanceId, partition: &PartitionId) {
        let owner = self.ownerships.get(partition).and_then(|known| known.owner.as_ref());
        let age = owner.and_then(|owner| self.acknowledged.get(owner)).map(Instant::elapsed);
        let lease = self.rules.timing.lease();
        let longest = if self.rules.drift { lease + lease * DRIFT_PPM_MAX as u32 / 1_000_000 } else { lease };
        self.require(age.is_some_and(|age| age < longest), || {
            format!(
                "1: {instance} starts a call on partition {partition} with a lease of {lease:?} from {age:?} ago"
            )
        });
    }

    /// A producer was told that its event has this number.
    pub(crate) fn produced(&mut self, partition: &PartitionId, sequence: u64, body: &str) {
        let content = content_of(body.as_bytes());
        let known = self.content(partition, sequence as usize);
        let other = *known != 0 && *known != content;
        *known = content;
        self.require(!other, || {
            format!("4: two events of partition {partition} were given the number {sequence}")
        });
    }

    /// A producer was told nothing, or that it failed: the event may be there all the same.
    pub(crate) fn sent_in_vain(&mut self, partition: &PartitionId, body: &str) {
        self.unanswered.entry(partition.clone()).or_default().insert(content_of(body.as_bytes()));
    }

    fn content(&mut self, partition: &PartitionId, index: usize) -> &mut u64 {
        let contents = self.contents.entry(partition.clone()).or_default();
        if contents.len() <= index {
            contents.resize(index + 1, 0);
        }
        &mut contents[index]
    }

    /// An event that is delivered says what was produced under its number, whenever that is.
    pub(super) fn check_contents(&mut self, partition: &PartitionId, events: &[Event]) {
        for event in events {
            let sequence = event.sequence_number().0;
            let content = event.bytes().map_or(0, |bytes| content_of(&bytes));
            let known = *self.content(partition, usize::try_from(sequence).unwrap_or_default());
            let unanswered = known == 0
                && self.unanswered.get_mut(partition).is_some_and(|unanswered| unanswered.remove(&content));
            if unanswered {
                *self.content(partition, usize::try_from(sequence).unwrap_or_default()) = content;
            }
            self.require(unanswered || known == content, || {
                format!(
                    "4: event {sequence} of partition {partition} is not what was produced: {:?}",
                    event.text()
                )
            });
        }
    }

    /// A handler asks to go on at this event once its call has ended.
    pub(crate) fn sought(&mut self, instance: &InstanceId, partition: &PartitionId, target: i64) {
        self.counts.seeks += 1;
        self.note(format_args!("seek {instance} {partition} to {target}"));
        if let Some(open) = self.open.get_mut(&(instance.clone(), partition.clone())) {
            open.sought = Some(target);
        }
    }

    /// However a call ends, a seek that was asked for in it follows.
    fn seek_follows(&mut self, call: &Call) {
        if let Some(open) = self.open.get_mut(&(call.instance.clone(), call.partition.clone()))
            && open.epoch == call.epoch
            && let Some(target) = open.sought.take()
        {
            open.next = target;
            // What was handled before says nothing about what is to be covered now.
            self.handled_last.remove(&call.partition);
        }
    }

    /// The call cannot be cut off.
    pub(crate) fn call_blocks(&mut self, instance: &InstanceId, partition: &PartitionId) {
        self.counts.blocking_calls += 1;
        let mut calls = self.calls.values_mut();
        if let Some(call) = calls.find(|call| call.instance == *instance && call.partition == *partition) {
            call.blocks = true;
        }
    }

    /// An instance in a call that cannot be cut off.
    pub(crate) fn busy(&self) -> Option<InstanceId> {
        self.calls.values().find(|call| call.blocks).map(|call| call.instance.clone())
    }

    /// An instance in a call, of those that satisfy a condition.
    pub(crate) fn in_call(&self, wanted: impl Fn(&InstanceId) -> bool) -> Option<InstanceId> {
        self.calls.values().map(|call| &call.instance).find(|name| wanted(name)).cloned()
    }

    /// A call came to its own end. It may do so only while nobody else can have the partition: whoever was frozen and goes
    /// on looks at its lease first. A call that blocks its thread cannot.
    fn check_went_on(&mut self, call: &Call) {
        let renewed = call.incarnation.as_ref().and_then(|who| self.renewed.get(who));
        let (late, ttl) = (renewed.map(Instant::elapsed), self.rules.timing.ttl());
        self.require(call.blocks || late.is_none_or(|late| late < ttl), || {
            format!(
                "13: a call of {} on partition {} went on {late:?} after its last heartbeat",
                call.instance, call.partition
            )
        });
    }

    pub(crate) fn call_ended(&mut self, id: CallId) {
        let Some(call) = self.calls.remove(&id) else { return };
        self.check_went_on(&call);
        let (first, beyond) = self.handled.entry(call.partition.clone()).or_default();
        let mut duplicates = 0;
        for sequence in call.first..=call.last {
            if sequence < *first || !beyond.insert(sequence) {
                duplicates += 1;
            }
        }
        while beyond.remove(first) {
            *first += 1;
        }
        // Declared handled in the call itself: that is not twice.
        let duplicates = if self.rules.declared { 0 } else { duplicates };
        self.counts.events_handled += (call.last - call.first + 1).unsigned_abs();
        self.counts.duplicates += duplicates;
        let last = self.handled_last.entry(call.partition.clone()).or_insert((call.epoch, call.last));
        *last = (*last).max((call.epoch, call.last));
        if let Some(open) = self.open.get_mut(&(call.instance.clone(), call.partition.clone()))
            && open.epoch == call.epoch
        {
            open.next = call.last + 1;
        }
        self.seek_follows(&call);
        self.note(format_args!("done {} {} {}..={}", call.instance, call.partition, call.first, call.last));
        let once = self.rules.once;
        self.require(!once || duplicates == 0, || {
            format!("6: {duplicates} events of partition {} were handled twice", call.partition)
        });
    }

    /// A handler says that everything up to here was handled.
    pub(super) fn declared(&mut self, partition: &PartitionId, last: i64) {
        let (first, beyond) = self.handled.entry(partition.clone()).or_default();
        *first = (*first).max(last + 1);
        *beyond = beyond.split_off(first);
        while beyond.remove(first) {
            *first += 1;
        }
    }

    pub(crate) fn call_failed(&mut self, id: CallId) {
        if let Some(call) = self.calls.remove(&id) {
            self.check_went_on(&call);
            self.counts.failed_calls += 1;
            self.note(format_args!("failed {} {}", call.instance, call.partition));
            self.seek_follows(&call);
        }
    }

    pub(crate) fn call_cut(&mut self, id: CallId) {
        if let Some(call) = self.calls.remove(&id) {
            self.counts.cut_calls += 1;
            self.note(format_args!("cut {} {}", call.instance, call.partition));
            self.seek_follows(&call);
        }
    }

    /// The first event of a partition that was never handled.
    pub(crate) fn first_unhandled(&self, partition: &PartitionId) -> i64 {
        self.handled.get(partition).map_or(0, |(first, _)| *first)
    }
}
