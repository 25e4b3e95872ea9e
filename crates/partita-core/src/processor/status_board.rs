//! Keeps the status that others watch: gathers changes and publishes a new snapshot now and then.

use std::collections::{BTreeMap, VecDeque};
use std::sync::atomic::Ordering;
use std::sync::{Arc, PoisonError};
use std::time::Duration;

use tokio::sync::watch;

use super::status::{Here, InstanceStatus, MOVES_SHOWN_MAX, PartitionStatus, Status};
use crate::coordination::CoordinationView;
use crate::model::{Incarnation, PartitionId, Scope, SequenceNumber, Tick};
use crate::pump::{Command, PumpState};
use crate::report::Moved;
use crate::store::InstanceState;

/// The least time between two snapshots after a change.
const AFTER_CHANGE: Duration = Duration::from_millis(50);

/// The time between two snapshots without a change, for rates and lag.
const WITHOUT_CHANGE: Duration = Duration::from_secs(1);

pub(super) struct StatusBoard {
    scope: Arc<Scope>,
    sender: watch::Sender<Arc<Status>>,
    moves: VecDeque<Moved>,
    rates: BTreeMap<PartitionId, Rate>,
    changed: bool,
    last: Tick,
}

#[derive(Default)]
struct Rate {
    count: u64,
    at: Tick,
    per_second: f64,
}

impl StatusBoard {
    pub(super) fn new(scope: Arc<Scope>, view: CoordinationView<'_>) -> (Self, watch::Receiver<Arc<Status>>) {
        let empty = Status {
            scope: Arc::clone(&scope),
            instance: view.me.clone(),
            phase: view.phase,
            partitions: Vec::new(),
            instances: Vec::new(),
            moves: Vec::new(),
        };
        let (sender, receiver) = watch::channel(Arc::new(empty));
        let board = Self {
            scope,
            sender,
            moves: VecDeque::new(),
            rates: BTreeMap::new(),
            changed: true,
            last: Tick(0),
        };
        (board, receiver)
    }

    /// Something changed that a snapshot would show.
    pub(super) fn touch(&mut self) {
        self.changed = true;
    }

    pub(super) fn moved(&mut self, moved: Moved) {
        if self.moves.len() == MOVES_SHOWN_MAX {
            self.moves.pop_front();
        }
        self.moves.push_back(moved);
    }

    /// When the next snapshot is due.
    pub(super) fn due(&self) -> Tick {
        self.last + if self.changed { AFTER_CHANGE } else { WITHOUT_CHANGE }
    }

    pub(super) fn publish(
        &mut self,
        now: Tick,
        view: CoordinationView<'_>,
        pumps: &BTreeMap<PartitionId, Arc<PumpState>>,
    ) {
        self.last = now;
        self.changed = false;
        self.rates.retain(|partition, _| pumps.contains_key(partition));
        let durable: BTreeMap<_, _> = view.durable.into_iter().collect();
        let ownerships: BTreeMap<_, _> = view
            .group
            .iter()
            .flat_map(|group| &group.ownerships)
            .map(|ownership| (&ownership.partition, ownership))
            .collect();
        let mut owned: BTreeMap<&Incarnation, usize> = BTreeMap::new();
        for owner in ownerships.values().filter_map(|ownership| ownership.owner.as_ref()) {
            *owned.entry(owner).or_default() += 1;
        }
        let partitions = view
            .partitions
            .iter()
            .map(|&partition| {
                let ownership = ownerships.get(partition);
                let checkpoint = durable.get(partition).map(|last| last.sequence);
                let pump = pumps.get(partition);
                PartitionStatus {
                    partition: partition.clone(),
                    owner: ownership.and_then(|o| o.owner.clone()),
                    next: ownership.and_then(|o| o.next.clone()),
                    epoch: ownership.map(|o| o.epoch).unwrap_or_default(),
                    here: pump.map(|pump| self.here(now, partition, pump, checkpoint)),
                }
            })
            .collect();
        let instances = view.group.iter().flat_map(|group| &group.instances);
        let instances = instances
            .filter(|seen| seen.record.state == InstanceState::Live)
            .map(|seen| InstanceStatus {
                incarnation: seen.record.incarnation.clone(),
                host: seen.record.host.clone(),
                partitions: owned.get(&seen.record.incarnation).copied().unwrap_or(0),
                age: seen.age,
                stopping: seen.record.stopping,
            })
            .collect();
        self.sender.send_replace(Arc::new(Status {
            scope: Arc::clone(&self.scope),
            instance: view.me.clone(),
            phase: view.phase,
            partitions,
            instances,
            moves: self.moves.iter().cloned().collect(),
        }));
    }

    fn here(
        &mut self,
        now: Tick,
        partition: &PartitionId,
        pump: &PumpState,
        checkpoint: Option<SequenceNumber>,
    ) -> Here {
        let handled = pump.handled.load(Ordering::Relaxed);
        let handled = (handled != i64::MIN).then_some(SequenceNumber(handled));
        let end = pump.last_enqueued.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let end = end.and_then(|end| end.position).map(|position| position.sequence.0);
        let lag = end.zip(handled.or(checkpoint)).map(|(end, at)| u64::try_from(end - at.0).unwrap_or(0));
        let count = pump.handled_count.load(Ordering::Relaxed);
        let rate = self.rates.entry(partition.clone()).or_insert(Rate { count, at: now, per_second: 0.0 });
        let span = now.since(rate.at);
        if span >= WITHOUT_CHANGE {
            let lately = count.saturating_sub(rate.count) as f64 / span.as_secs_f64();
            *rate = Rate { count, at: now, per_second: 0.5 * rate.per_second + 0.5 * lately };
        }
        Here {
            handled,
            checkpoint,
            lag_events: lag,
            missed_events: pump.missed_count.load(Ordering::Relaxed),
            rate: rate.per_second,
            draining: pump.command() != Command::Run,
        }
    }
}
