//! Machines that can crash, on the machine's clock or on a simulated one, and a store that keeps a ledger.

use std::collections::BTreeMap;
use std::future::Future;
use std::pin::Pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use partita::model::{Incarnation, Scope, Tick};
use partita::processor::{Runtime, TokioRuntime};
use partita::store::{
    CheckpointOutcome, CheckpointRecord, CheckpointWrite, GroupView, InstanceOutcome, InstanceState,
    InstanceWrite, MoveReason, MoveRecord, Op, OwnershipOutcome, OwnershipWrite, StoreProperties,
    StoreResult,
};
use partita::{CheckpointStore, ConsumerGroup, Epoch, InstanceId, MemoryHub, MemoryStore, PartitionId};
use tokio::sync::watch;
use tokio::task::AbortHandle;
use tokio::time::Instant;

type BoxFuture<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// Which clock a world runs on.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Clock {
    /// Tokio's paused clock: time passes only while nobody has anything to do.
    Simulated,
    /// The machine's; the coordination has a thread of its own, as it has by default.
    Real,
}

/// A process that runs one instance, and can crash.
#[derive(Clone)]
pub(crate) struct Machine(Arc<Inner>);

struct Inner {
    clock: Clock,
    tokio: TokioRuntime,
    handle: tokio::runtime::Handle,
    started: Instant,
    seed: u64,
    tasks: Mutex<Vec<AbortHandle>>,
    crashed: watch::Sender<bool>,
}

impl Machine {
    /// On the runtime of the caller.
    pub(crate) fn new(clock: Clock, seed: u64) -> Self {
        Self(Arc::new(Inner {
            clock,
            tokio: TokioRuntime::current(),
            handle: tokio::runtime::Handle::current(),
            started: Instant::now(),
            seed,
            tasks: Mutex::default(),
            crashed: watch::Sender::new(false),
        }))
    }

    /// Everything that ran here ends where it is, without a word to anybody.
    pub(crate) fn crash(&self) {
        self.0.crashed.send_replace(true);
        for task in lock(&self.0.tasks).drain(..) {
            task.abort();
        }
    }
}

impl Runtime for Machine {
    fn now(&self) -> Tick {
        match self.0.clock {
            // An hour ahead, so that subtracting a ttl never saturates.
            Clock::Simulated => Tick(3_600_000_000_000) + self.0.started.elapsed(),
            Clock::Real => self.0.tokio.now(),
        }
    }

    fn seed(&self) -> u64 {
        self.0.seed
    }

    fn spawn(&self, task: BoxFuture<'static, ()>) {
        let task = self.0.handle.spawn(task).abort_handle();
        let mut tasks = lock(&self.0.tasks);
        tasks.retain(|task| !task.is_finished());
        tasks.push(task);
    }

    fn spawn_coordination(&self, task: BoxFuture<'static, ()>) -> std::io::Result<()> {
        if self.0.clock == Clock::Simulated {
            self.spawn(task);
            return Ok(());
        }
        let mut crashed = self.0.crashed.subscribe();
        self.0.tokio.spawn_coordination(Box::pin(async move {
            tokio::select! {
                biased;
                _ = crashed.wait_for(|crashed| *crashed) => {}
                () = task => {}
            }
        }))
    }
}

/// A change of owner as the store saw it.
#[derive(Clone, Debug)]
pub(crate) struct Change {
    pub(crate) at: Instant,
    pub(crate) partition: PartitionId,
    pub(crate) to: Option<Incarnation>,
}

/// What the store was asked, and when.
#[derive(Clone, Debug, Default)]
pub(crate) struct Ledger {
    /// How many calls there were, by kind.
    pub(crate) calls: BTreeMap<&'static str, u64>,
    pub(crate) changes: Vec<Change>,
    /// The last heartbeat of each instance.
    pub(crate) beats: BTreeMap<InstanceId, Instant>,
    /// When each instance was declared dead by another.
    pub(crate) burials: BTreeMap<InstanceId, Instant>,
}

/// The memory store, with a ledger.
#[derive(Clone)]
pub(crate) struct LedgerStore {
    store: MemoryStore,
    ledger: Arc<Mutex<Ledger>>,
    slowest_ns: Arc<AtomicU64>,
    call_time: Duration,
}

impl LedgerStore {
    pub(crate) fn new() -> Self {
        Self {
            store: MemoryStore::new(),
            ledger: Arc::default(),
            slowest_ns: Arc::default(),
            call_time: Duration::ZERO,
        }
    }

    /// Makes every call take this long.
    pub(crate) fn calls_take(self, call_time: Duration) -> Self {
        Self { call_time, ..self }
    }

    pub(crate) fn ledger(&self) -> MutexGuard<'_, Ledger> {
        lock(&self.ledger)
    }

    /// The longest that a call took.
    pub(crate) fn slowest(&self) -> Duration {
        Duration::from_nanos(self.slowest_ns.load(Ordering::Relaxed))
    }

    /// A view that the ledger does not count.
    pub(crate) async fn look(&self, scope: &Scope) -> GroupView {
        self.store.view(scope).await.expect("a view of memory does not fail")
    }

    async fn count<T>(&self, kind: &'static str, call: impl Future<Output = T>) -> T {
        *self.ledger().calls.entry(kind).or_default() += 1;
        let start = Instant::now();
        if !self.call_time.is_zero() {
            tokio::time::sleep(self.call_time).await;
        }
        let answer = call.await;
        let took = u64::try_from(start.elapsed().as_nanos()).unwrap_or(u64::MAX);
        self.slowest_ns.fetch_max(took, Ordering::Relaxed);
        answer
    }
}

impl CheckpointStore for LedgerStore {
    fn properties(&self) -> StoreProperties {
        self.store.properties()
    }

    fn write_instance<'a>(
        &'a self,
        scope: &'a Scope,
        write: InstanceWrite,
    ) -> BoxFuture<'a, StoreResult<InstanceOutcome>> {
        Box::pin(async move {
            let id = write.incarnation().id().clone();
            let is_burial = matches!(write, InstanceWrite::Bury { .. } | InstanceWrite::BuryAbsent { .. });
            let outcome = self.count("instance", self.store.write_instance(scope, write)).await?;
            if let InstanceOutcome::Applied(_) = &outcome {
                let mut ledger = self.ledger();
                if is_burial {
                    ledger.burials.insert(id, Instant::now());
                } else {
                    ledger.beats.insert(id, Instant::now());
                }
            }
            Ok(outcome)
        })
    }

    fn write_ownership<'a>(
        &'a self,
        scope: &'a Scope,
        write: OwnershipWrite,
    ) -> BoxFuture<'a, StoreResult<OwnershipOutcome>> {
        Box::pin(async move {
            // A write that changes the owner raises the epoch and, here, seals the checkpoint in the same step.
            let changes_owner = write.checkpoint.is_some();
            let outcome = self.count("ownership", self.store.write_ownership(scope, write)).await?;
            if let (true, OwnershipOutcome::Applied { ownership, .. }) = (changes_owner, &outcome) {
                self.ledger().changes.push(Change {
                    at: Instant::now(),
                    partition: ownership.partition.clone(),
                    to: ownership.owner.clone(),
                });
            }
            Ok(outcome)
        })
    }

    fn write_checkpoint<'a>(
        &'a self,
        scope: &'a Scope,
        write: CheckpointWrite,
    ) -> BoxFuture<'a, StoreResult<CheckpointOutcome>> {
        Box::pin(self.count("checkpoint", self.store.write_checkpoint(scope, write)))
    }

    fn view<'a>(&'a self, scope: &'a Scope) -> BoxFuture<'a, StoreResult<GroupView>> {
        Box::pin(self.count("view", self.store.view(scope)))
    }

    fn checkpoints<'a>(&'a self, scope: &'a Scope) -> BoxFuture<'a, StoreResult<Vec<CheckpointRecord>>> {
        self.store.checkpoints(scope)
    }

    fn moves<'a>(&'a self, scope: &'a Scope) -> BoxFuture<'a, StoreResult<Vec<MoveRecord>>> {
        self.store.moves(scope)
    }

    fn changed<'a>(&'a self, scope: &'a Scope, me: &'a Incarnation, cursor: u64) -> BoxFuture<'a, ()> {
        self.store.changed(scope, me, cursor)
    }
}

/// Whether exactly these instances own everything, none of them two partitions more than another, and nobody waits
/// for a hand-off.
pub(crate) fn is_balanced(view: &GroupView, partitions: usize, instances: &[InstanceId]) -> bool {
    let mut counts: BTreeMap<&InstanceId, usize> = instances.iter().map(|id| (id, 0)).collect();
    for ownership in &view.ownerships {
        let count = ownership.owner.as_ref().and_then(|owner| counts.get_mut(owner.id()));
        match count {
            Some(count) if ownership.next.is_none() => *count += 1,
            _ => return false,
        }
    }
    let live = view.instances.iter().filter(|seen| seen.record.state == InstanceState::Live);
    let most = counts.values().max().copied().unwrap_or(0);
    let fewest = counts.values().min().copied().unwrap_or(0);
    view.ownerships.len() == partitions && live.count() >= instances.len() && most - fewest <= 1
}

/// The default group's scope on a hub.
pub(crate) fn scope(hub: &MemoryHub) -> Scope {
    let hub = hub.description();
    Scope { namespace: hub.namespace, hub: hub.hub, group: ConsumerGroup::default() }
}

/// The first record of a partition that nobody owns.
pub(crate) fn free_ownership(partition: PartitionId) -> OwnershipWrite {
    OwnershipWrite {
        partition,
        expect: None,
        owner: None,
        epoch: Epoch(1),
        next: None,
        reason: MoveReason::Released,
        op: Op { by: Incarnation::new(InstanceId::new("nobody"), 0), number: 1 },
        checkpoint: None,
    }
}

pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
