//! The run itself: produce, follow the script, let the processors catch up, count.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::{Duration, Instant};

use partita::{CheckpointStore, InstanceId, shutdown_signal};
use tokio::time::{MissedTickBehavior, interval_at, sleep_until};

use super::Plan;
use super::duplicates;
use super::fleet::Fleet;
use super::ledger::{Ledger, Span};
use super::lines::{Lines, Owner, Snapshot};
use super::moves::{LoggedStore, Move, MoveLog};
use super::recount::{Recount, recount};
use super::report::Report;
use super::script::Action;
use super::sensors::{Producer, Sent};
use super::world::World;
use crate::Failure;
use crate::output::counted;
use crate::units::Time;

/// How often the run looks for news.
const LOOK_EVERY: Duration = Duration::from_millis(100);

/// How long nothing may be handled before the run gives up waiting: three times what a take-over needs.
const STALLED: Duration = Duration::from_secs(20);

/// What a run gives.
pub(crate) struct Outcome {
    pub(crate) report: Report,
    /// How many of the events are of former runs, if there were any.
    pub(crate) former: Option<u64>,
    pub(crate) moves: Vec<Move>,
    pub(crate) spans: Vec<Vec<Span>>,
    /// Why the counts themselves cannot be trusted.
    pub(crate) doubts: Option<String>,
}

struct Run {
    world: World,
    ledger: Arc<Ledger>,
    log: MoveLog,
    fleet: Fleet,
    producer: Option<Producer>,
    lines: Lines,
    ttl: Duration,
    moves_shown: usize,
    /// Who owns each partition, as far as shown.
    owner_of: BTreeMap<usize, Option<InstanceId>>,
    second: u64,
    calls_shown: (Duration, u64),
    /// Whether everybody left in good order.
    orderly: bool,
}

pub(crate) async fn run(plan: Plan, mut lines: Lines) -> Result<Outcome, Failure> {
    let events = plan.length.as_secs_f64() * f64::from(plan.rate);
    let world = World::open(&plan.place, plan.partitions, events as u64).await.map_err(Failure::Usage)?;
    lines.header(&plan, &world)?;
    let start = Instant::now();
    let ledger = Arc::new(Ledger::new(start, &world.former, world.journal.clone()));
    let log = MoveLog::new(start, world.former.moves.clone(), &world.moves, world.journal.clone());
    let store = LoggedStore { inner: Arc::clone(&world.store), log: log.clone() };
    let ttl = store.properties().timing.ttl();
    let fleet = Fleet::new(&world, store, Arc::clone(&ledger), plan.seed);
    let (owner_of, calls_shown) = (BTreeMap::new(), (Duration::ZERO, 0));
    let mut run = Run {
        world,
        ledger,
        log,
        fleet,
        producer: None,
        lines,
        ttl,
        moves_shown: 0,
        owner_of,
        second: 0,
        calls_shown,
        orderly: true,
    };
    run.fleet.add(plan.processors).await.map_err(Failure::Run)?;
    // Another run sends other events.
    let seed = plan.seed.wrapping_add(u64::from(run.ledger.run() - 1));
    let producer = Producer::start(&run.world.hub, plan.rate, seed)
        .map_err(|error| Failure::Run(format!("no thread for the producer: {error}")))?;
    run.producer = Some(producer);
    run.follow(&plan, start.into()).await?;
    run.look()?;
    let sent = run.producer.take().map(Producer::stop).transpose().map_err(Failure::Run)?;
    run.catch_up().await?;
    run.end().await?;
    run.count(sent).await
}

impl Run {
    /// Until the end of the stream: the script, and a line for everything that happens.
    async fn follow(&mut self, plan: &Plan, start: tokio::time::Instant) -> Result<(), Failure> {
        let mut steps = plan.script.steps().iter().copied().peekable();
        let mut look = looks();
        let mut interrupted = std::pin::pin!(shutdown_signal());
        let end = start + plan.length;
        loop {
            let next_step = steps.peek().map_or(end, |step| start + step.at);
            tokio::select! {
                biased;
                () = &mut interrupted => {
                    self.lines.note(self.ledger.now(), "interrupted: the rest is still handled; once more to stop at once")?;
                    tokio::spawn(async {
                        shutdown_signal().await;
                        std::process::exit(130);
                    });
                    return Ok(());
                }
                () = sleep_until(end) => return Ok(()),
                () = sleep_until(next_step) => {
                    if let Some(step) = steps.next() {
                        self.look()?;
                        self.act(step.action).await?;
                    }
                }
                _ = look.tick() => self.look()?,
            }
        }
    }

    async fn act(&mut self, action: Action) -> Result<(), Failure> {
        let now = self.ledger.now();
        let text = match action {
            Action::Add => {
                let new = self.fleet.add(1).await.map_err(Failure::Run)?;
                let ids: Vec<&str> = new.iter().map(InstanceId::as_str).collect();
                format!("{} has joined the group", ids.join(" "))
            }
            Action::Kill => {
                let id = self.fleet.kill().await.map_err(Failure::Run)?;
                let owned = counted(self.owned_by(&id), "partition");
                format!("{id} stops dead with {owned}; its ttl is {}", Time(self.ttl))
            }
            Action::Remove => {
                let id = self.fleet.remove().map_err(Failure::Run)?;
                let owned = counted(self.owned_by(&id), "partition");
                format!("{id} is asked to leave with {owned}")
            }
        };
        Ok(self.lines.did(now, action, &text)?)
    }

    fn owned_by(&self, id: &InstanceId) -> u64 {
        self.owner_of.values().filter(|owner| owner.as_ref() == Some(id)).count() as u64
    }

    /// Waits until all is handled, or nothing has been for too long.
    async fn catch_up(&mut self) -> Result<(), Failure> {
        self.look()?;
        let lag = self.lag();
        let left = if lag == 0 {
            "all handled".to_owned()
        } else {
            format!("{} still to handle", counted(lag, "event"))
        };
        self.lines.note(self.ledger.now(), &format!("the stream has ended: {left}"))?;
        let mut look = looks();
        let mut progress = (self.ledger.calls(), Instant::now());
        while self.lag() > 0 && progress.1.elapsed() < STALLED {
            look.tick().await;
            self.look()?;
            if self.ledger.calls() != progress.0 {
                progress = (self.ledger.calls(), Instant::now());
            }
        }
        match self.lag() {
            0 => Ok(()),
            lag => {
                let text =
                    format!("nothing was handled for {STALLED:?}: giving up on {}", counted(lag, "event"));
                Ok(self.lines.note(self.ledger.now(), &text)?)
            }
        }
    }

    /// Lets all processors leave.
    async fn end(&mut self) -> Result<(), Failure> {
        self.look()?;
        // Those that the script removed may take longer than the stream.
        let stayed: BTreeSet<InstanceId> = self.fleet.running().cloned().collect();
        let left = self.fleet.end().await;
        let now = self.ledger.now();
        for left in left.iter().filter(|left| left.failure.is_some() || !stayed.contains(&left.id)) {
            self.orderly &= left.failure.is_none();
            self.lines.left(now, left)?;
        }
        for error in self.fleet.problems() {
            self.lines.error(now, &error)?;
        }
        Ok(self.lines.note(now, "all processors have left; counting again from the source")?)
    }

    async fn count(&mut self, sent: Option<Sent>) -> Result<Outcome, Failure> {
        let all = self.ledger.spans();
        let moves = self.log.since(0);
        let world = &self.world;
        let source = world.hub.source();
        let counts = recount(&*source, &all, &world.former.since)
            .await
            .map_err(|why| Failure::Run(format!("cannot count again: {why}")))?;
        let taken: u64 = world.hub.taken().iter().sum();
        let before: u64 = world.taken.iter().sum();
        let doubts = self.doubts(counts, taken - before, sent);
        let crashed = self.fleet.crashed();
        let crashed_ever = world.former.crashed.union(crashed).cloned().collect();
        let moves_ever = [self.log.former(), &moves].concat();
        let duplicates = duplicates::attribute(&all, &moves_ever, &crashed_ever);
        let run = self.ledger.run();
        let of_this_run = |spans: &Vec<Span>| spans.iter().filter(|span| span.run == run).cloned().collect();
        let spans: Vec<Vec<Span>> = all.iter().map(of_this_run).collect();
        let report = Report::new(counts, duplicates, &spans, &moves, crashed.len());
        if let Some(journal) = self.world.journal.as_ref().filter(|_| self.orderly) {
            journal.ended();
        }
        let former = (run > 1).then(|| counts.produced.saturating_sub(taken - before));
        Ok(Outcome { report, former, moves, spans, doubts })
    }

    /// Why the counts themselves cannot be trusted. `taken`: how many events the hub says it took in this run.
    fn doubts(&self, counts: Recount, taken: u64, sent: Option<Sent>) -> Option<String> {
        if let Some(why) = self.world.journal.as_ref().and_then(|journal| journal.failure()) {
            return Some(format!("what was handled could not be written down: {why}"));
        }
        if let Some(Sent { acknowledged, unknown }) = sent
            && !(acknowledged..=acknowledged + unknown).contains(&taken)
        {
            return Some(format!("the producer sent {acknowledged} events, and the source took {taken}"));
        }
        if counts.produced < taken {
            return Some(format!("the source took {taken} events, and holds {}", counts.produced));
        }
        let made_up = counts.made_up;
        (made_up > 0)
            .then(|| format!("{} were handled that the source does not hold", counted(made_up, "event")))
    }

    /// Shows what is new.
    fn look(&mut self) -> Result<(), Failure> {
        let now = self.ledger.now();
        let moves = self.log.since(self.moves_shown);
        self.moves_shown += moves.len();
        for moved in &moves {
            self.owner_of.insert(moved.partition, moved.to.clone());
        }
        self.lines.moves(&moves)?;
        for left in std::iter::from_fn(|| self.fleet.left()) {
            self.orderly &= left.failure.is_none();
            self.lines.left(now, &left)?;
        }
        for error in self.fleet.problems() {
            self.lines.error(now, &error)?;
        }
        if let Some(why) = self.producer.as_ref().and_then(Producer::trouble) {
            self.lines.problem(now, &why)?;
        }
        if now.as_secs() > self.second {
            self.second = now.as_secs();
            let snapshot = self.snapshot(now);
            self.lines.snapshot(&snapshot)?;
        }
        Ok(())
    }

    fn lag(&self) -> u64 {
        self.ledger.lag(self.world.hub.taken())
    }

    fn snapshot(&mut self, now: Duration) -> Snapshot {
        let calls = self.ledger.calls();
        let (then, calls_then) = std::mem::replace(&mut self.calls_shown, (now, calls));
        let rate = (calls - calls_then) as f64 / now.saturating_sub(then).as_secs_f64().max(0.001);
        let mut partitions_of: BTreeMap<&InstanceId, usize> =
            self.fleet.running().map(|id| (id, 0)).collect();
        for owner in self.owner_of.values().flatten() {
            *partitions_of.entry(owner).or_default() += 1;
        }
        let crashed = self.fleet.crashed();
        let owners = partitions_of
            .into_iter()
            .map(|(id, partitions)| Owner { id: id.clone(), partitions, crashed: crashed.contains(id) })
            .collect();
        let owned = self.owner_of.values().flatten().count();
        Snapshot {
            at: now,
            events_per_second: rate.round() as u64,
            lag: self.lag(),
            owners,
            free: self.world.hub.partitions() - owned,
        }
    }
}

fn looks() -> tokio::time::Interval {
    let mut look = interval_at(tokio::time::Instant::now() + LOOK_EVERY, LOOK_EVERY);
    look.set_missed_tick_behavior(MissedTickBehavior::Delay);
    look
}
