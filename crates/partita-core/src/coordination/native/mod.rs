//! Partita's own protocol: one heartbeat per instance, burial of the dead, sealed checkpoints, hand-offs.
//!
//! - `instance`: this instance's record: register, heartbeat, being buried, leaving.
//! - `group`: views of the group: watching the others, who may be buried.
//! - `membership`: who takes part in the plan, and when the members have settled.
//! - `act`: the plan's part that is ours: bury, claim, request, withdraw.
//! - `slot`: what is known of one partition and what runs here for it.
//! - `partition`: one partition's life here: reconciled with the record, opened, drained.
//! - `ownership`: writes of ownership records and what follows from their outcomes.
//! - `checkpoints`: coalesced, monotone writes of positions.

mod act;
mod checkpoints;
mod group;
mod instance;
mod membership;
mod ownership;
mod partition;
mod retry;
mod slot;
#[cfg(test)]
mod tests;

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, BinaryHeap};
use std::sync::Arc;
use std::time::Duration;

use self::group::Group;
use self::instance::Me;
use self::slot::Slot;
use super::lease::Lease;
use super::{
    CallId, Coordination, CoordinationView, Effect, Input, Phase, PumpEvent, StoreAnswer, StoreCall,
};
use crate::balance::{Pace, Policy};
use crate::model::{
    BoxError, Epoch, Incarnation, InstanceId, PartitionId, Position, StreamId, Tick, Timestamp,
};
use crate::report::{ErrorReport, Operation};
use crate::store::{InstanceState, Op, Resume, StoreError};
use crate::timing::Timing;

/// What the protocol needs to know.
#[derive(Clone, Debug)]
pub(crate) struct Config {
    pub(crate) id: InstanceId,
    pub(crate) host: Arc<str>,
    pub(crate) started: Timestamp,
    pub(crate) timing: Timing,
    /// Whether ownership and checkpoint can be written in one step.
    pub(crate) atomic: bool,
    /// Whether the store tells of changes; otherwise views are read more often while something is awaited.
    pub(crate) notifies: bool,
    /// The resolution of ages.
    pub(crate) stamp_step: Duration,
    pub(crate) policy: Policy,
    pub(crate) pace: Pace,
    pub(crate) drain_time: Duration,
    pub(crate) cool_down: Duration,
    /// Where partitions without a checkpoint start: told to whoever counts the lag.
    pub(crate) initial_position: Position,
    /// Of jitter and of incarnations.
    pub(crate) seed: u64,
}

/// Where the instance is in its life.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Life {
    Joining,
    Running,
    /// Declared dead; joins again as another incarnation.
    Buried,
    Stopping {
        /// When it leaves whatever is left.
        deadline: Tick,
    },
    Stopped,
}

/// What an unanswered call is for.
#[derive(Clone, PartialEq, Debug)]
enum Purpose {
    Register,
    Beat,
    View,
    Bury(Incarnation),
    Leave,
    Ownership(PartitionId),
    Seal(PartitionId, Epoch),
    Checkpoint(PartitionId, Epoch),
}

/// Something to look at again at a certain time. A timer that fires too often does no harm.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
enum Timer {
    Beat,
    View,
    Lapse,
    HardStop,
    Stop,
    Slot(PartitionId),
    /// A revoked pump should have ended by then.
    Stuck(PartitionId),
}

pub(crate) struct Native {
    config: Config,
    rng: fastrand::Rng,
    life: Life,
    me: Me,
    lease: Lease,
    group: Group,
    slots: BTreeMap<PartitionId, Slot>,
    /// The partitions that the hub has. Records may be of others: those are nobody's.
    partitions: BTreeSet<PartitionId>,
    /// Which life of the hub's data positions belong to.
    stream: Option<StreamId>,
    pending: BTreeMap<CallId, (Tick, Purpose)>,
    calls: u64,
    timers: BinaryHeap<Reverse<(Tick, Timer)>>,
    /// What could not be done in good order while stopping.
    failures: Vec<String>,
}

impl Native {
    pub(crate) fn new(config: Config) -> Self {
        let mut rng = fastrand::Rng::with_seed(config.seed);
        let me = Me::new(&config.id, &mut rng);
        let mut timers = BinaryHeap::new();
        timers.push(Reverse((Tick(0), Timer::Beat)));
        Self {
            lease: Lease::new(config.timing),
            config,
            rng,
            life: Life::Joining,
            me,
            group: Group::default(),
            slots: BTreeMap::new(),
            partitions: BTreeSet::new(),
            stream: None,
            pending: BTreeMap::new(),
            calls: 0,
            timers,
            failures: Vec::new(),
        }
    }

    fn call(&mut self, now: Tick, purpose: Purpose, call: StoreCall, out: &mut Vec<Effect>) {
        self.calls += 1;
        let id = CallId(self.calls);
        self.pending.insert(id, (now, purpose));
        out.push(Effect::Call(id, call));
    }

    /// Names a write.
    fn op(&mut self) -> Op {
        self.me.ops += 1;
        Op { by: self.me.incarnation.clone(), number: self.me.ops }
    }

    fn timer(&mut self, at: Tick, timer: Timer) {
        self.timers.push(Reverse((at, timer)));
    }

    fn is_stopping(&self) -> bool {
        matches!(self.life, Life::Stopping { .. } | Life::Stopped)
    }

    fn report(
        partition: Option<&PartitionId>,
        operation: Operation,
        error: impl Into<BoxError>,
        out: &mut Vec<Effect>,
    ) {
        out.push(Effect::Report(ErrorReport {
            partition: partition.cloned(),
            operation,
            error: error.into(),
        }));
    }

    fn on_time(&mut self, now: Tick, out: &mut Vec<Effect>) {
        while let Some(Reverse((at, _))) = self.timers.peek() {
            if *at > now {
                break;
            }
            let Some(Reverse((_, timer))) = self.timers.pop() else { break };
            match timer {
                Timer::Beat => self.beat_if_due(now, out),
                Timer::View => self.look_if_due(now, out),
                Timer::Lapse => self.on_lapse(now, out),
                Timer::HardStop => self.on_hard_stop(now, out),
                Timer::Stop => self.on_stop_deadline(now, out),
                Timer::Slot(partition) => self.drive(now, &partition, out),
                Timer::Stuck(partition) => self.on_stuck(now, &partition, out),
            }
        }
    }

    fn on_answer(
        &mut self,
        now: Tick,
        id: CallId,
        answer: Result<StoreAnswer, StoreError>,
        out: &mut Vec<Effect>,
    ) {
        // An answer to a former incarnation's call is of no interest.
        let Some((sent, purpose)) = self.pending.remove(&id) else { return };
        match (purpose, answer) {
            (Purpose::Register, Ok(StoreAnswer::Instance(outcome))) => {
                self.on_registered(now, sent, outcome, out);
            }
            (Purpose::Register, Err(error)) => self.on_register_failed(now, error, out),
            (Purpose::Beat, Ok(StoreAnswer::Instance(outcome))) => self.on_beat(now, sent, outcome, out),
            (Purpose::Beat, Err(error)) => self.on_beat_failed(now, error, out),
            (Purpose::View, Ok(StoreAnswer::View(view))) => self.on_view(now, sent, view, out),
            (Purpose::View, Err(error)) => self.on_view_failed(now, error, out),
            (Purpose::Bury(victim), answer) => self.on_buried(now, &victim, answer, out),
            (Purpose::Leave, answer) => self.on_left(now, answer, out),
            (Purpose::Ownership(partition), Ok(StoreAnswer::Ownership(outcome))) => {
                self.on_ownership(now, &partition, outcome, out);
            }
            (Purpose::Ownership(partition), Err(error)) => {
                self.on_ownership_failed(now, &partition, error, out);
            }
            (Purpose::Seal(partition, epoch), Ok(StoreAnswer::Checkpoint(outcome))) => {
                self.on_sealed(now, &partition, epoch, outcome, out);
            }
            (Purpose::Seal(partition, epoch), Err(error)) => {
                self.on_seal_failed(now, &partition, epoch, error, out);
            }
            (Purpose::Checkpoint(partition, epoch), Ok(StoreAnswer::Checkpoint(outcome))) => {
                self.on_checkpoint(now, &partition, epoch, outcome, out);
            }
            (Purpose::Checkpoint(partition, epoch), Err(error)) => {
                self.on_checkpoint_failed(now, &partition, epoch, error, out);
            }
            (purpose, Ok(answer)) => unreachable!("{purpose:?} was answered with {answer:?}"),
        }
    }

    fn on_pump(
        &mut self,
        now: Tick,
        partition: &PartitionId,
        epoch: Epoch,
        event: PumpEvent,
        out: &mut Vec<Effect>,
    ) {
        if self.slots.get(partition).is_none_or(|slot| slot.epoch != epoch) {
            return;
        }
        match event {
            PumpEvent::Checkpoint(target) => self.want_checkpoint(now, partition, target, out),
            PumpEvent::Suspect => self.look(now, out),
            PumpEvent::AskHub => out.push(Effect::AskHub),
            PumpEvent::Failing(failing) => self.on_failing(partition, failing),
            PumpEvent::Stopping => self.on_stopping(now, partition),
            PumpEvent::Drained { last, cancelled, give_up } => {
                self.on_drained(now, partition, last, cancelled, give_up, out);
            }
            PumpEvent::Ended => self.on_ended(now, partition, out),
        }
    }
}

impl Coordination for Native {
    fn apply(&mut self, now: Tick, input: Input, out: &mut Vec<Effect>) {
        if self.life == Life::Stopped {
            return;
        }
        match input {
            Input::Time => {}
            Input::Changed => self.on_changed(now, out),
            Input::Hub(hub) => {
                let is_another = self.stream.is_some() && self.stream != hub.stream;
                self.stream = hub.stream;
                if is_another && self.life == Life::Running {
                    // Those that see another hub than we do must hear of it soon.
                    self.beat_now(now, out);
                }
                if planted!(GrowthIgnored) && !self.slots.is_empty() {
                    return;
                }
                let news = hub.partitions.iter().any(|partition| !self.slots.contains_key(partition));
                self.partitions = hub.partitions.iter().cloned().collect();
                for partition in hub.partitions {
                    self.slots.entry(partition).or_default();
                }
                if news && self.life == Life::Running {
                    self.look(now, out);
                }
            }
            Input::Answer(id, answer) => self.on_answer(now, id, answer, out),
            Input::Pump(partition, epoch, event) => self.on_pump(now, &partition, epoch, event, out),
            Input::Stop => self.on_stop(now, out),
        }
        self.on_time(now, out);
        self.progress(now, out);
    }

    fn deadline(&self) -> Option<Tick> {
        self.timers.peek().map(|Reverse((at, _))| *at)
    }

    fn listens_as(&self) -> Option<(&Incarnation, u64, Tick)> {
        let latest = self.group.latest.as_ref()?;
        Some((&self.me.incarnation, latest.view.cursor, latest.sent))
    }

    fn hard_stop(&self) -> Tick {
        self.lease.hard_stop()
    }

    fn view(&self) -> CoordinationView<'_> {
        let phase = match self.life {
            Life::Joining => Phase::Joining,
            Life::Running if self.group.lapsed => Phase::Lapsed,
            Life::Running => Phase::Running,
            Life::Buried => Phase::Buried,
            Life::Stopping { .. } => Phase::Stopping,
            Life::Stopped => Phase::Stopped,
        };
        CoordinationView {
            me: &self.me.incarnation,
            phase,
            group: self.group.latest.as_ref().map(|seen| &seen.view),
            partitions: self.partitions.iter().collect(),
            durable: self
                .slots
                .iter()
                .filter_map(|(partition, slot)| match slot.checkpoint.durable.as_ref()? {
                    Resume::After(last) => Some((partition, last)),
                    Resume::At(_) => None,
                })
                .collect(),
        }
    }
}

/// Whether a record shows a live instance.
fn is_live(state: InstanceState) -> bool {
    state == InstanceState::Live
}
