//! Sees every write that reaches the store and every call of a handler, and checks the invariants at each.
//!
//! - `records`: what reaches the store: owners, epochs, burials, checkpoints.
//! - `calls`: what handlers are given, when, and in which order.
//! - `health`: what is left to do once faults have stopped.

mod calls;
mod health;
mod records;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use partita_core::model::{Epoch, Incarnation, InstanceId, PartitionId};
use partita_core::processor::Timing;
use partita_core::store::{CheckpointRecord, Ownership};
use tokio::time::Instant;

use self::calls::{Call, Open};
use crate::counts::Counts;

pub(crate) use self::calls::CallId;

/// An invariant that did not hold.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Violation {
    /// When, in simulated time.
    pub at: Duration,
    /// Which, and how. Numbers are those of ARCHITECTURE.md.
    pub what: String,
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "at {:?}: {}", self.at, self.what)
    }
}

/// What an oracle has to know about its world.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Rules {
    pub(crate) start: Instant,
    pub(crate) timing: Timing,
    /// Whether the store writes an ownership and its checkpoint in one step.
    pub(crate) atomic: bool,
    /// From when on nothing may move.
    pub(crate) still_from: Option<Instant>,
    /// Whether no event may be handled twice.
    pub(crate) once: bool,
    /// Whether clocks run fast or slow.
    pub(crate) drift: bool,
    /// Whether handlers say themselves what was handled: then only they know whether that is true.
    pub(crate) declared: bool,
    pub(crate) keep_trace: bool,
}

/// Why nobody reads a partition.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Gap {
    /// Its handler was closed, in good order so far.
    Closed,
    /// It was handed over.
    HandOff,
    /// Its owner was lost.
    Lost,
    /// Its owner left.
    Left,
}

/// The oracle, shared by everything in a world.
#[derive(Clone)]
pub(crate) struct SharedOracle(Arc<Mutex<Oracle>>);

impl SharedOracle {
    pub(crate) fn new(rules: Rules) -> Self {
        Self(Arc::new(Mutex::new(Oracle::new(rules))))
    }

    pub(crate) fn lock(&self) -> MutexGuard<'_, Oracle> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What is known, and what was ever wrong.
pub(crate) struct Oracle {
    rules: Rules,
    trace: Option<Vec<String>>,
    hasher: DefaultHasher,
    /// What happened.
    pub(crate) counts: Counts,
    violation: Option<Violation>,
    ownerships: BTreeMap<PartitionId, Ownership>,
    checkpoints: BTreeMap<PartitionId, CheckpointRecord>,
    live: BTreeSet<Incarnation>,
    dead: BTreeSet<Incarnation>,
    /// Instances whose process has ended.
    gone: BTreeSet<InstanceId>,
    /// When the last acknowledged heartbeat of each was sent.
    acknowledged: BTreeMap<Incarnation, Instant>,
    /// When each heartbeat was first sent, by its number.
    beats_sent: BTreeMap<(Incarnation, u64), Instant>,
    /// When the last heartbeat of each was sent from which its lease may count.
    renewed: BTreeMap<Incarnation, Instant>,
    calls: BTreeMap<CallId, Call>,
    next_call: CallId,
    /// Per partition: the first event not handled yet, and those handled beyond it.
    handled: BTreeMap<PartitionId, (i64, BTreeSet<i64>)>,
    /// Per partition: the last epoch in which something was handled, and the last event handled in it.
    handled_last: BTreeMap<PartitionId, (Epoch, i64)>,
    /// What each event says, as it was produced or, where its producer was not told, when it was first delivered.
    contents: BTreeMap<PartitionId, Vec<u64>>,
    /// What events say whose producer does not know whether they are there.
    unanswered: BTreeMap<PartitionId, BTreeSet<u64>>,
    /// Which handlers are open.
    open: BTreeMap<(InstanceId, PartitionId), Open>,
    /// Which instance opened which epoch.
    opened: BTreeMap<(PartitionId, Epoch), InstanceId>,
    highest_opened: BTreeMap<PartitionId, Epoch>,
    last_move: Instant,
    /// Since when nobody reads a partition, and why.
    unread_since: BTreeMap<PartitionId, (Instant, Gap)>,
    /// Since when there has been an instance that could read.
    somebody_since: Instant,
    /// How long nobody read a partition that was handed over, and one whose owner was lost.
    pub(crate) gaps: (Vec<Duration>, Vec<Duration>),
    /// What each instance could not read and leaves to others for a while, as its last heartbeat says.
    declines: BTreeMap<Incarnation, BTreeSet<PartitionId>>,
    /// Partitions whose reader was ever made to fail for good, without those that were declined while arrivals were counted.
    doomed: BTreeSet<PartitionId>,
    calm: bool,
    /// When the store's clock last jumped.
    clock_jumped: Option<Instant>,
    /// Once faults have stopped: the least number of arrivals that balance takes, and those there were.
    arrivals: Option<(usize, usize)>,
}

impl Oracle {
    fn new(rules: Rules) -> Self {
        Self {
            trace: rules.keep_trace.then(Vec::new),
            hasher: DefaultHasher::new(),
            counts: Counts::default(),
            violation: None,
            ownerships: BTreeMap::new(),
            checkpoints: BTreeMap::new(),
            live: BTreeSet::new(),
            dead: BTreeSet::new(),
            gone: BTreeSet::new(),
            acknowledged: BTreeMap::new(),
            beats_sent: BTreeMap::new(),
            renewed: BTreeMap::new(),
            calls: BTreeMap::new(),
            next_call: 0,
            handled: BTreeMap::new(),
            handled_last: BTreeMap::new(),
            contents: BTreeMap::new(),
            unanswered: BTreeMap::new(),
            open: BTreeMap::new(),
            opened: BTreeMap::new(),
            highest_opened: BTreeMap::new(),
            last_move: rules.start,
            unread_since: BTreeMap::new(),
            somebody_since: rules.start,
            gaps: (Vec::new(), Vec::new()),
            declines: BTreeMap::new(),
            doomed: BTreeSet::new(),
            calm: false,
            clock_jumped: None,
            arrivals: None,
            rules,
        }
    }

    /// Adds a line to the trace, which is hashed, and kept if somebody wants to read it.
    pub(crate) fn note(&mut self, what: fmt::Arguments<'_>) {
        let millis = self.rules.start.elapsed().as_millis();
        match &mut self.trace {
            Some(trace) => {
                let line = format!("{millis:>10} {what}");
                line.hash(&mut self.hasher);
                trace.push(line);
            }
            None => {
                millis.hash(&mut self.hasher);
                // Hashed as it is written: nobody reads it.
                let _ = fmt::write(&mut Hashing(&mut self.hasher), what);
            }
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
        let at = self.rules.start.elapsed();
        self.violation.get_or_insert(Violation { at, what });
    }

    fn require(&mut self, holds: bool, what: impl FnOnce() -> String) {
        if !holds {
            self.violate(what());
        }
    }

    pub(crate) fn is_calm(&self) -> bool {
        self.calm
    }

    pub(crate) fn last_move(&self) -> Instant {
        self.last_move
    }

    // What becomes of processes.

    pub(crate) fn frozen(&mut self, instance: &InstanceId) {
        self.counts.freezes += 1;
        self.note(format_args!("freeze {instance}"));
        for call in self.calls.values_mut().filter(|call| call.instance == *instance) {
            call.was_frozen = true;
            self.counts.frozen_calls += 1;
        }
    }

    /// The store's clock jumps: who has lapsed may be declared dead before its running calls are cut off.
    pub(crate) fn clock_jumped(&mut self) {
        self.counts.clock_jumps += 1;
        self.clock_jumped = Some(Instant::now());
    }

    pub(crate) fn ended(&mut self, instance: &InstanceId) {
        self.note(format_args!("end {instance}"));
        self.gone.insert(instance.clone());
        self.calls.retain(|_, call| call.instance != *instance);
        let now = Instant::now();
        let unread = &mut self.unread_since;
        self.open.retain(|(opened, partition), _| {
            if opened == instance {
                unread.entry(partition.clone()).or_insert((now, Gap::Lost));
            }
            opened != instance
        });
    }
}

struct Hashing<'a>(&'a mut DefaultHasher);

impl fmt::Write for Hashing<'_> {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        self.0.write(text.as_bytes());
        Ok(())
    }
}
