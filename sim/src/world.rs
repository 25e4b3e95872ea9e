//! A world: a hub, a store, a fleet, and what happens to them.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use partita_core::balance::Pace;
use partita_core::coordination::Timing;
use partita_core::model::{Event, InstanceId, PartitionId, SequenceNumber};
use partita_core::processor::{Checkpoint, Processor};
use partita_core::source::MemoryHub;
use partita_core::store::MemoryStore;
use tokio::sync::oneshot;
use tokio::time::{Instant, sleep, sleep_until};

use crate::faults::{Fault, Plan};
use crate::handler::SimHandler;
use crate::oracle::{Counts, Oracle, SharedOracle, Violation};
use crate::process::Process;
use crate::store::{Link, Weather};

/// How long a healed group is watched: it must keep still.
const STILL: Duration = Duration::from_secs(10);

/// What a run came to.
#[derive(Clone, Debug)]
pub struct Report {
    /// The seed that it was run with.
    pub seed: u64,
    /// What happened.
    pub counts: Counts,
    /// The first invariant that did not hold.
    pub violation: Option<Violation>,
    /// How long healing took after the faults had stopped.
    pub healed_after: Option<Duration>,
    /// Moves after the group was healed.
    pub moves_after_healing: u64,
    /// How many events the hub had in the end.
    pub produced: u64,
    /// Of those, how many were never handled.
    pub lost: u64,
    /// Simulated time.
    pub simulated: Duration,
    /// Of the whole trace.
    pub trace_hash: u64,
    /// The trace, if it was asked for.
    pub trace: Vec<String>,
}

impl Report {
    /// What was wrong with the run, in a sentence.
    pub fn failure(&self) -> Option<String> {
        if let Some(violation) = &self.violation {
            return Some(violation.to_string());
        }
        if self.lost > 0 {
            return Some(format!("{} of {} events were never handled", self.lost, self.produced));
        }
        (self.moves_after_healing > 0)
            .then(|| format!("{} moves after the group was balanced", self.moves_after_healing))
    }
}

/// A world to run.
#[derive(Clone, Debug)]
pub struct World {
    seed: u64,
    plan: Plan,
    keep_trace: bool,
}

impl World {
    /// A world with faults of all kinds.
    pub fn seeded(seed: u64) -> Self {
        let plan = Plan::draw(&mut fastrand::Rng::with_seed(seed));
        Self { seed, plan, keep_trace: false }
    }

    /// A world in which instances only come and go in good order.
    pub fn planned(seed: u64) -> Self {
        let plan = Plan::draw_planned(&mut fastrand::Rng::with_seed(seed));
        Self { seed, plan, keep_trace: false }
    }

    /// A world with a fate of one's own.
    pub fn with_plan(seed: u64, plan: Plan) -> Self {
        Self { seed, plan, keep_trace: false }
    }

    /// Keeps the trace for reading.
    pub fn keep_trace(mut self) -> Self {
        self.keep_trace = true;
        self
    }

    /// What will happen.
    pub fn plan(&self) -> &Plan {
        &self.plan
    }

    /// Runs the world to its end, in a runtime of its own.
    pub fn run(&self) -> Report {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_time()
            .start_paused(true)
            .build()
            .expect("a runtime without I/O can always be built");
        // Inside, so that the fleet is made on the paused clock, too.
        runtime.block_on(async { Fleet::new(self).run().await })
    }
}

struct Member {
    process: Process,
    cut_until: Arc<Mutex<Instant>>,
    /// Ask for a shutdown here.
    stop: Option<oneshot::Sender<()>>,
    thaw_at: Option<Instant>,
}

struct Fleet<'a> {
    world: &'a World,
    start: Instant,
    timing: Timing,
    rng: fastrand::Rng,
    hub: MemoryHub,
    store: MemoryStore,
    weather: Arc<Mutex<Weather>>,
    oracle: SharedOracle,
    members: BTreeMap<InstanceId, Member>,
    /// Told when a member has shut down.
    left: Arc<Mutex<Vec<InstanceId>>>,
    names: u32,
    restarts: Vec<Instant>,
    produced: BTreeMap<PartitionId, u64>,
}

impl<'a> Fleet<'a> {
    fn new(world: &'a World) -> Self {
        let start = Instant::now();
        let setup = &world.plan.setup;
        let timing = Timing::FAST;
        let mut rng = fastrand::Rng::with_seed(world.seed ^ 0x5eed);
        let weather = Weather {
            rng: fastrand::Rng::with_seed(rng.u64(..)),
            latency: setup.latency,
            loss_percent: 0,
            loss_until: start,
            outage_until: start,
        };
        Self {
            world,
            start,
            timing,
            rng,
            hub: MemoryHub::new("simulated", setup.partitions),
            store: if setup.atomic { MemoryStore::new() } else { MemoryStore::single_record() },
            weather: Arc::new(Mutex::new(weather)),
            oracle: SharedOracle::new(Oracle::new(start, timing, setup.atomic, world.keep_trace)),
            members: BTreeMap::new(),
            left: Arc::default(),
            names: 0,
            restarts: Vec::new(),
            produced: BTreeMap::new(),
        }
    }

    async fn run(mut self) -> Report {
        for _ in 0..self.world.plan.setup.instances {
            self.join();
        }
        let mut faults = self.world.plan.faults.clone().into_iter().peekable();
        let calm_at = self.start + self.world.plan.calm_at;
        let mut next_event = self.start;
        while Instant::now() < calm_at && self.is_sound() {
            let fault_at = faults.peek().map_or(calm_at, |(at, _)| self.start + *at).min(calm_at);
            let thaw_at = self.members.values().filter_map(|member| member.thaw_at).min();
            let restart_at = self.restarts.iter().min().copied();
            let wake = [Some(fault_at), thaw_at, restart_at, Some(next_event)].into_iter().flatten().min();
            sleep_until(wake.unwrap_or(calm_at)).await;
            let now = Instant::now();
            self.bring_back(now);
            if now >= next_event {
                next_event = now + self.produce();
            }
            if faults.peek().is_some_and(|(at, _)| now >= self.start + *at)
                && let Some((_, fault)) = faults.next()
            {
                self.inflict(&fault);
            }
        }
        let healed_after = self.heal().await;
        let moves_after_healing = if healed_after.is_some() { self.keep_still().await } else { 0 };
        let lost = if self.is_sound() { self.catch_up().await } else { 0 };
        self.report(healed_after, moves_after_healing, lost)
    }

    fn is_sound(&self) -> bool {
        self.oracle.lock().violation().is_none()
    }

    /// Thaws and restarts what is due, and forgets those who left.
    fn bring_back(&mut self, now: Instant) {
        let mut thawed = Vec::new();
        for (name, member) in &mut self.members {
            if member.thaw_at.is_some_and(|at| at <= now) {
                member.thaw_at = None;
                thawed.push((name.clone(), member.process.clone()));
            }
        }
        for (name, process) in thawed {
            self.oracle.lock().note(format_args!("thaw {name}"));
            process.thaw();
        }
        let due = self.restarts.iter().filter(|at| **at <= now).count();
        self.restarts.retain(|at| *at > now);
        (0..due).for_each(|_| self.join());
        self.forget_left();
    }

    fn forget_left(&mut self) {
        let left = std::mem::take(&mut *self.left.lock().unwrap_or_else(PoisonError::into_inner));
        for name in left {
            let member = self.members.remove(&name);
            self.oracle.lock().ended(&name);
            if member.is_some_and(|member| member.stop.is_some()) {
                // It could not start: a supervisor would try again.
                self.restarts.push(Instant::now() + Duration::from_millis(500));
            }
        }
    }

    fn produce(&mut self) -> Duration {
        let partitions = self.world.plan.setup.partitions;
        let partition = PartitionId::from(self.rng.u32(..partitions));
        let burst = if self.rng.u8(..10) == 0 { self.rng.u64(1..40) } else { 1 };
        for _ in 0..burst {
            self.hub.append(&partition, Event::builder("tick"));
        }
        *self.produced.entry(partition).or_default() += burst;
        self.world.plan.setup.event_gap.mul_f64(2.0 * self.rng.f64()) / partitions + Duration::from_millis(1)
    }

    fn join(&mut self) {
        self.names += 1;
        let name = InstanceId::new(format!("i{}", self.names));
        let setup = &self.world.plan.setup;
        let process = Process::new(self.start, self.rng.u64(..));
        let (link, cut_until) = Link::new(self.store.clone(), Arc::clone(&self.weather), self.oracle.clone());
        let (oracle, handler_setup) = (self.oracle.clone(), setup.clone());
        let handler_seed = self.rng.u64(..);
        let pace = match setup.pace.and_then(std::num::NonZeroUsize::new) {
            Some(limit) => Pace::Balanced(limit),
            None => Pace::Greedy,
        };
        let processor = Processor::builder(self.hub.source(), link)
            .instance_id(name.clone())
            .runtime(process.clone())
            .timing(self.timing)
            .pace(pace)
            .checkpoint(Checkpoint::every(20).or_after(Duration::from_millis(500)))
            .handler(move |partition: &PartitionId| {
                SimHandler::new(oracle.clone(), handler_seed, &handler_setup, partition.clone())
            })
            .build()
            .expect("the options are sound");
        let (stop, stopped) = oneshot::channel::<()>();
        let (left, myself) = (Arc::clone(&self.left), name.clone());
        process.run(async move {
            // A start that the store prevents ends the process; the fleet is one smaller then.
            if let Ok(handle) = processor.start().await {
                let _ = stopped.await;
                let _ = handle.shutdown().await;
            }
            left.lock().unwrap_or_else(PoisonError::into_inner).push(myself);
        });
        let mut oracle = self.oracle.lock();
        oracle.counts.joins += 1;
        oracle.note(format_args!("join {name}"));
        self.members.insert(name, Member { process, cut_until, stop: Some(stop), thaw_at: None });
    }

    fn pick(&self, index: usize) -> Option<InstanceId> {
        let names: Vec<_> = self.members.keys().cloned().collect();
        (!names.is_empty()).then(|| names[index % names.len()].clone())
    }

    fn inflict(&mut self, fault: &Fault) {
        let now = Instant::now();
        self.oracle.lock().note(format_args!("fault: {fault}"));
        match *fault {
            Fault::Crash { instance, restart } => {
                let Some(name) = self.pick(instance) else { return };
                if let Some(member) = self.members.remove(&name) {
                    let mut oracle = self.oracle.lock();
                    oracle.counts.crashes += 1;
                    oracle.ended(&name);
                    drop(oracle);
                    member.process.kill();
                }
                self.restarts.extend(restart.map(|after| now + after));
            }
            Fault::Freeze { instance, time } => {
                let Some(name) = self.pick(instance) else { return };
                if let Some(member) = self.members.get_mut(&name) {
                    member.process.freeze();
                    member.thaw_at = Some(now + time);
                    self.oracle.lock().frozen(&name);
                }
            }
            Fault::Join => self.join(),
            Fault::Leave { instance } => {
                let Some(name) = self.pick(instance) else { return };
                if let Some(stop) = self.members.get_mut(&name).and_then(|member| member.stop.take()) {
                    self.oracle.lock().counts.leaves += 1;
                    let _ = stop.send(());
                }
            }
            Fault::Loss { percent, time } => {
                let mut weather = self.weather.lock().unwrap_or_else(PoisonError::into_inner);
                weather.loss_percent = percent;
                weather.loss_until = now + time;
            }
            Fault::Outage { time } => {
                self.oracle.lock().counts.outages += 1;
                let mut weather = self.weather.lock().unwrap_or_else(PoisonError::into_inner);
                weather.outage_until = weather.outage_until.max(now + time);
            }
            Fault::CutOff { instance, time } => {
                let Some(name) = self.pick(instance) else { return };
                if let Some(member) = self.members.get(&name) {
                    *member.cut_until.lock().unwrap_or_else(PoisonError::into_inner) = now + time;
                }
            }
        }
    }

    /// Ends all faults and waits until the group is whole again.
    async fn heal(&mut self) -> Option<Duration> {
        let calm = Instant::now();
        {
            let mut weather = self.weather.lock().unwrap_or_else(PoisonError::into_inner);
            weather.loss_until = calm;
            weather.outage_until = calm;
        }
        for member in self.members.values_mut() {
            *member.cut_until.lock().unwrap_or_else(PoisonError::into_inner) = calm;
            member.thaw_at = member.thaw_at.map(|_| calm);
        }
        self.bring_back(calm);
        self.oracle.lock().set_calm();
        if self.members.values().all(|member| member.stop.is_none()) {
            self.join();
        }
        // Those who are on their way out may take their drain time, which is not what is measured here.
        let drain = Duration::from_secs(10);
        let timing = self.timing;
        let mut bound = timing.ttl() + 3 * timing.cycle();
        if self.members.values().any(|member| member.stop.is_none()) {
            bound += drain;
        }
        // So may calls that began before.
        bound += self.world.plan.setup.slow_call.map_or(Duration::ZERO, |slow| slow.min(drain));
        // What was under way when the faults stopped may still cause moves: healed is what is healed in the end.
        let mut healed = None;
        loop {
            self.bring_back(Instant::now());
            let alive: BTreeSet<InstanceId> = self.members.keys().cloned().collect();
            let unhealed = match self.members.iter().find(|(_, member)| member.stop.is_none()) {
                Some((name, _)) => Some(format!("{name} is still leaving")),
                None => self.oracle.lock().unhealed(self.world.plan.setup.partitions, &alive),
            };
            match &unhealed {
                Some(_) => healed = None,
                None => {
                    healed.get_or_insert(calm.elapsed());
                }
            }
            if calm.elapsed() >= bound || !self.is_sound() {
                if let Some(unhealed) = unhealed {
                    let what = format!("9: not healed {bound:?} after the faults stopped: {unhealed}");
                    self.oracle.lock().violate(what);
                }
                return healed;
            }
            sleep(Duration::from_millis(10)).await;
        }
    }

    async fn keep_still(&mut self) -> u64 {
        let healed = Instant::now();
        let mut moves = 0;
        let mut last = self.oracle.lock().last_move();
        while healed.elapsed() < STILL && self.is_sound() {
            self.produce();
            sleep(Duration::from_millis(100)).await;
            let latest = self.oracle.lock().last_move();
            moves += u64::from(latest > last.max(healed));
            last = latest;
        }
        moves
    }

    /// Waits until everything that was produced was handled; tells how much was not.
    async fn catch_up(&mut self) -> u64 {
        let deadline = Instant::now() + Duration::from_secs(60);
        loop {
            let unhandled: u64 = self
                .produced
                .keys()
                .map(|partition| {
                    let first = self.oracle.lock().first_unhandled(partition);
                    self.hub.events(partition, SequenceNumber(first), usize::MAX).len() as u64
                })
                .sum();
            if unhandled == 0 || Instant::now() > deadline {
                return unhandled;
            }
            sleep(Duration::from_millis(50)).await;
        }
    }

    fn report(self, healed_after: Option<Duration>, moves_after_healing: u64, lost: u64) -> Report {
        for member in self.members.values() {
            member.process.kill();
        }
        let mut oracle = self.oracle.lock();
        Report {
            seed: self.world.seed,
            counts: oracle.counts,
            violation: oracle.violation().cloned(),
            healed_after,
            moves_after_healing,
            produced: self.produced.values().sum(),
            lost,
            simulated: self.start.elapsed(),
            trace_hash: oracle.trace_hash(),
            trace: oracle.take_trace(),
        }
    }
}
