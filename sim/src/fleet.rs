//! A world while it runs: the hub, the store, the instances, and the one who does to them what the plan says.

use std::collections::BTreeMap;
use std::num::NonZeroUsize;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use partita_core::balance::Pace;
use partita_core::model::{InstanceId, PartitionId, SequenceNumber};
use partita_core::processor::FailurePolicy;
use partita_core::processor::Processor;
use partita_core::processor::Timing;
use partita_core::source::{MemoryHub, PartitionReader};
use partita_core::store::{CheckpointStore, MemoryStore};
use tokio::sync::{Notify, oneshot};
use tokio::time::{Instant, sleep_until};

use crate::faults::Setup;
use crate::handler::SimHandler;
use crate::hub::SimHub;
use crate::oracle::{Rules, SharedOracle};
use crate::process::Process;
use crate::source::{SourceLink, SourceWeather};
use crate::store::{Link, Weather};
use crate::subject::{AnySubject, Produced, Subject};
use crate::world::{Report, World};

mod healing;
mod trouble;

/// How often the hub is asked for new partitions.
const DISCOVERY: Duration = Duration::from_secs(1);

struct Member {
    process: Process,
    cut_until: Arc<Mutex<Instant>>,
    /// Ask for a shutdown here.
    stop: Option<oneshot::Sender<()>>,
    /// Of how many freezes it is to be thawed.
    frozen: bool,
}

/// What is to be done later.
enum Deed {
    Thaw(InstanceId, Option<Duration>),
    Cut(InstanceId, Duration),
    Crash(InstanceId),
    Restart,
    StartHub,
}

pub(crate) struct Fleet<'a> {
    world: &'a World,
    start: Instant,
    timing: Timing,
    rng: fastrand::Rng,
    hub: Box<dyn SimHub>,
    store: Arc<dyn CheckpointStore>,
    subject: Arc<dyn AnySubject>,
    weather: Arc<Mutex<Weather>>,
    ordered: Arc<Notify>,
    source_weather: SourceWeather,
    oracle: SharedOracle,
    members: BTreeMap<InstanceId, Member>,
    /// Told when a member has shut down.
    left: Arc<Mutex<Vec<InstanceId>>>,
    names: u32,
    agenda: Vec<(Instant, Deed)>,
    thieves: Vec<(Instant, Box<dyn PartitionReader>)>,
    /// How far back the store's clock was set, all together.
    set_back: Duration,
    bodies: u64,
    /// For the subject; the rest of us counts.
    produced: Vec<Produced>,
    housekeeping_due: Instant,
    /// How long the next power cut takes.
    power_off_for: Duration,
}

/// What a world tries that has no subject of its own: Partita itself.
struct Itself {
    oracle: SharedOracle,
    world: World,
    rng: Mutex<fastrand::Rng>,
}

impl Subject for Itself {
    type Handler = SimHandler;

    fn handler(&self, instance: &InstanceId, partition: &PartitionId) -> SimHandler {
        let seed = self.rng.lock().unwrap_or_else(PoisonError::into_inner).u64(..);
        SimHandler::new(self.oracle.clone(), seed, &self.world.plan.setup, instance, partition)
    }
}

impl<'a> Fleet<'a> {
    pub(crate) fn new(world: &'a World) -> Self {
        let start = Instant::now();
        let setup = &world.plan.setup;
        let timing = Timing::FAST;
        let mut rng = fastrand::Rng::with_seed(world.seed ^ 0x5eed);
        let mut weather = Weather::new(fastrand::Rng::with_seed(rng.u64(..)), setup.latency);
        let ordered = Arc::clone(&weather.ordered);
        let extras = setup.extras;
        weather.silent = extras.silent_store;
        let store = world.subject.as_ref().and_then(|subject| subject.store()).unwrap_or_else(|| {
            Arc::new(if setup.atomic { MemoryStore::new() } else { MemoryStore::single_record() })
        });
        let oracle = SharedOracle::new(Rules {
            start,
            timing,
            atomic: store.properties().atomic,
            still_from: world.plan.still_from.map(|after| start + after),
            once: world.plan.once,
            drift: extras.drift,
            declared: world.subject.is_some(),
            keep_trace: world.keep_trace,
        });
        oracle.lock().counts.silent_stores += u64::from(extras.silent_store);
        oracle.lock().counts.relaxed_hubs += u64::from(extras.relaxed);
        let subject = world.subject.clone().unwrap_or_else(|| {
            let rng = Mutex::new(fastrand::Rng::with_seed(rng.u64(..)));
            Arc::new(Itself { oracle: oracle.clone(), world: world.clone(), rng })
        });
        Self {
            hub: hub(setup, rng.u64(..)),
            store,
            subject,
            weather: Arc::new(Mutex::new(weather)),
            ordered,
            source_weather: SourceWeather::default(),
            oracle,
            members: BTreeMap::new(),
            left: Arc::default(),
            names: 0,
            agenda: Vec::new(),
            thieves: Vec::new(),
            set_back: Duration::ZERO,
            bodies: 0,
            produced: Vec::new(),
            housekeeping_due: start,
            power_off_for: Duration::ZERO,
            world,
            start,
            timing,
            rng,
        }
    }

    pub(crate) async fn run(mut self) -> Report {
        for _ in 0..self.world.plan.setup.instances {
            self.join();
        }
        let mut faults = self.world.plan.faults.clone().into_iter().peekable();
        let calm_at = self.start + self.world.plan.calm_at;
        let mut next_event = self.start;
        while Instant::now() < calm_at && self.is_sound() {
            let fault_at = faults.peek().map_or(calm_at, |(at, _)| self.start + *at).min(calm_at);
            let deed_at =
                self.agenda.iter().map(|(at, _)| *at).chain(self.thieves.iter().map(|(at, _)| *at)).min();
            let wake =
                [Some(fault_at), deed_at, Some(next_event)].into_iter().flatten().min().unwrap_or(calm_at);
            tokio::select! {
                biased;
                () = self.ordered.notified() => {}
                () = sleep_until(wake) => {}
            }
            let now = Instant::now();
            self.carry_out();
            self.do_what_is_due(now);
            if now >= next_event {
                next_event = now + self.produce();
            }
            if faults.peek().is_some_and(|(at, _)| now >= self.start + *at)
                && let Some((_, fault)) = faults.next()
            {
                self.inflict(&fault).await;
            }
        }
        let healed_after = self.heal().await;
        let moves_after_healing = if healed_after.is_some() { self.keep_still().await } else { 0 };
        let mut lost = if self.is_sound() { self.catch_up().await } else { 0 };
        if lost == 0 && self.is_sound() {
            lost = self.outlive_retention().await;
        }
        self.report(healed_after, moves_after_healing, lost)
    }

    fn is_sound(&self) -> bool {
        self.oracle.lock().violation().is_none()
    }

    fn weather(&self) -> MutexGuard<'_, Weather> {
        self.weather.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Does what is due, and forgets those who left.
    fn do_what_is_due(&mut self, now: Instant) {
        while let Some(index) = self.agenda.iter().position(|(at, _)| *at <= now) {
            let (_, deed) = self.agenda.remove(index);
            self.act(deed);
        }
        self.thieves.retain(|(until, _)| *until > now);
        self.forget_left();
        if now >= self.housekeeping_due {
            self.housekeeping_due = now + Duration::from_secs(1);
            match self.hub.keep_house() {
                Ok(removed) => self.oracle.lock().counts.segments_removed += removed,
                Err(what) => self.oracle.lock().violate(what),
            }
        }
    }

    fn act(&mut self, deed: Deed) {
        match deed {
            Deed::Thaw(name, then_cut) => {
                let Some(member) = self.members.get_mut(&name) else { return };
                member.frozen = false;
                self.oracle.lock().note(format_args!("thaw {name}"));
                member.process.thaw();
                if let Some(time) = then_cut {
                    // An answer or two still get through.
                    let at = Instant::now() + Duration::from_millis(self.rng.u64(10..200));
                    self.agenda.push((at, Deed::Cut(name, time)));
                }
            }
            Deed::Cut(name, time) => self.cut_off(&name, time),
            Deed::Crash(name) => self.crash(&name, None),
            Deed::Restart => drop(self.join()),
            Deed::StartHub => {
                if let Err(what) = self.hub.start() {
                    self.oracle.lock().violate(what);
                }
                self.oracle.lock().note(format_args!("hub up"));
            }
        }
    }

    fn cut_off(&mut self, name: &InstanceId, time: Duration) {
        if let Some(member) = self.members.get(name) {
            let mut oracle = self.oracle.lock();
            oracle.counts.cut_offs += 1;
            oracle.note(format_args!("cut off {name} for {time:?}"));
            *member.cut_until.lock().unwrap_or_else(PoisonError::into_inner) = Instant::now() + time;
        }
    }

    fn forget_left(&mut self) {
        let left = std::mem::take(&mut *self.left.lock().unwrap_or_else(PoisonError::into_inner));
        for name in left {
            let member = self.members.remove(&name);
            self.oracle.lock().ended(&name);
            if let Some(member) = member {
                // Like a process that ends: whatever is left of it ends with it.
                member.process.kill();
                if member.stop.is_some() {
                    // It could not start: a supervisor would try again.
                    self.agenda.push((Instant::now() + Duration::from_millis(500), Deed::Restart));
                }
            }
        }
    }

    /// Produces an event or a few, and tells when the next ones are due.
    fn produce(&mut self) -> Duration {
        let partitions = self.hub.partitions();
        let partition = self.rng.u32(..partitions);
        let burst = if self.rng.u8(..10) == 0 { self.rng.u64(1..40) } else { 1 };
        for _ in 0..burst {
            self.bodies += 1;
            let body = format!("event {}", self.bodies);
            let place = PartitionId::from(partition);
            let Some(sequence) = self.hub.append(partition, body.clone()) else {
                self.oracle.lock().sent_in_vain(&place, &body);
                continue;
            };
            self.oracle.lock().produced(&place, sequence, &body);
            if self.world.subject.is_some() {
                let sequence = SequenceNumber(sequence as i64);
                self.produced.push(Produced { partition: place, sequence, body });
            }
        }
        if let Some(wrong) = self.hub.complaint() {
            self.oracle.lock().violate(wrong);
        }
        if self.hub.needs_restart() {
            self.hub_ends(self.power_off_for);
        }
        self.world.plan.setup.event_gap.mul_f64(2.0 * self.rng.f64()) / partitions + Duration::from_millis(1)
    }

    fn join(&mut self) -> InstanceId {
        self.names += 1;
        let name = InstanceId::new(format!("i{}", self.names));
        let setup = &self.world.plan.setup;
        let mut process = Process::new(self.start, &mut self.rng);
        if setup.extras.drift {
            process = process.drifting();
            self.oracle.lock().counts.drifting_clocks += 1;
        }
        let (link, cut_until) =
            Link::new(Arc::clone(&self.store), name.clone(), Arc::clone(&self.weather), self.oracle.clone());
        let source = SourceLink {
            hub: self.hub.source(),
            instance: name.clone(),
            weather: self.source_weather.clone(),
        };
        let pace = match setup.pace.and_then(NonZeroUsize::new) {
            Some(limit) => Pace::Balanced(limit),
            None => Pace::Greedy,
        };
        let retry =
            FailurePolicy::Retry { first: Duration::from_millis(50), longest: Duration::from_secs(1) };
        let builder = Processor::builder(source, link)
            .instance_id(name.clone())
            .runtime(process.clone())
            .timing(self.timing)
            .pace(pace)
            .drain_time(setup.drain_time)
            .cool_down(setup.cool_down)
            .discovery_interval(DISCOVERY)
            .on_failure(retry);
        let processor = Arc::clone(&self.subject)
            .build(builder, name.clone(), self.oracle.clone())
            .expect("the options are sound");
        let (stop, stopped) = oneshot::channel::<()>();
        let (left, myself) = (Arc::clone(&self.left), name.clone());
        process.run(async move {
            // A start that the store or the hub prevents ends the process.
            if let Ok(handle) = processor.start().await {
                let _ = stopped.await;
                let _ = handle.shutdown().await;
            }
            left.lock().unwrap_or_else(PoisonError::into_inner).push(myself);
        });
        let mut oracle = self.oracle.lock();
        oracle.counts.joins += 1;
        oracle.note(format_args!("join {name}"));
        drop(oracle);
        let member = Member { process, cut_until, stop: Some(stop), frozen: false };
        self.members.insert(name.clone(), member);
        name
    }

    fn report(mut self, healed_after: Option<Duration>, moves_after_healing: u64, lost: u64) -> Report {
        for member in self.members.values() {
            member.process.kill();
        }
        let mut oracle = self.oracle.lock();
        let sound = oracle.violation().is_none() && lost == 0;
        Report {
            seed: self.world.seed,
            theme: self.world.theme,
            counts: oracle.counts,
            violation: oracle.violation().cloned(),
            healed_after,
            moves_after_healing,
            moves_counted: oracle.counts_arrivals(),
            produced: (0..self.hub.partitions()).map(|partition| self.hub.end(partition)).sum(),
            lost,
            // Where nobody is told, a hand-off takes as long as it takes to look.
            handoff_gaps: match self.world.plan.setup.extras.silent_store {
                true => Vec::new(),
                false => std::mem::take(&mut oracle.gaps.0),
            },
            failover_gaps: std::mem::take(&mut oracle.gaps.1),
            complaint: sound.then(|| self.subject.check(&std::mem::take(&mut self.produced)).err()).flatten(),
            simulated: self.start.elapsed(),
            trace_hash: oracle.trace_hash(),
            trace: oracle.take_trace(),
        }
    }
}

fn hub(setup: &Setup, seed: u64) -> Box<dyn SimHub> {
    #[cfg(feature = "log")]
    if setup.log {
        return Box::new(crate::hub::LogHub::new(setup.partitions, seed, setup.extras.relaxed));
    }
    let _ = seed;
    Box::new(MemoryHub::new("simulated", setup.partitions))
}
