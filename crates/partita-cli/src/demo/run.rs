//! The run itself: produce, follow the script, let the processors catch up, count.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use partita::store::Ownership;
use partita::{CheckpointStore, InstanceId, Timestamp, shutdown_signal};
use tokio::time::{MissedTickBehavior, interval_at, sleep_until};

use super::Plan;
use super::board::{Board, Row, Worker};
use super::duplicates;
use super::fleet::Fleet;
use super::gaps::gap_of;
use super::ledger::{Ledger, Span, number_of};
use super::moves::{Move, MoveLog, moved};
use super::recount::{Recount, recount};
use super::report::Report;
use super::script::Action;
use super::sensors::{Producer, Sent};
use super::show::{Order, Show};
use super::world::{self, World};
use crate::Failure;
use crate::output::counted;
use crate::units::Time;

/// How often the run looks for news.
const LOOK_EVERY: Duration = Duration::from_millis(100);

/// How long nothing may be handled before the run gives up waiting: three times what a take-over needs.
const STALLED: Duration = Duration::from_secs(20);

/// How many moves are shown at most.
const MOVES_SHOWN_MAX: usize = 64;

/// What a run gives.
pub(crate) struct Outcome {
    pub(crate) report: Report,
    /// How many of the events are of former runs, if there were any.
    pub(crate) former: Option<u64>,
    pub(crate) moves: Vec<Move>,
    pub(crate) spans: Vec<Vec<Span>>,
    /// How often a processor was frozen.
    pub(crate) freezes: usize,
    /// Why the counts themselves cannot be trusted.
    pub(crate) doubts: Option<String>,
}

struct Run {
    world: World,
    /// Where the hub listens.
    port: u16,
    ledger: Ledger,
    log: MoveLog,
    fleet: Fleet,
    producer: Option<Producer>,
    show: Show,
    ttl: Duration,
    length: Duration,
    moves_shown: usize,
    /// Who owns each partition, as far as shown.
    owner_of: BTreeMap<usize, Option<InstanceId>>,
    second: u64,
    calls_shown: (Duration, Vec<u64>),
    rates: Vec<u64>,
    freezes: usize,
    /// Whether everybody left in good order.
    orderly: bool,
}

/// What to do next.
enum Next {
    Go,
    End,
}

pub(crate) async fn run(plan: Plan, mut show: Show) -> Result<Outcome, Failure> {
    let events = plan.length.as_secs_f64() * f64::from(plan.rate);
    let world = World::open(&plan.place, plan.partitions, events as u64).await.map_err(Failure::Usage)?;
    let port = world.serve().await.map_err(|error| Failure::Run(format!("no port for the hub: {error}")))?;
    show.begin(&plan, &world, port)?;
    let ledger = Ledger::new(world.data.clone(), world.former.clone());
    let log = MoveLog::new(world.former.moves.clone(), &world.moves);
    let ttl = world.store.properties().timing.ttl();
    // What processors write to stderr must not fall into a picture.
    let errors = show.is_screen().then(|| world.data.join("processors.log"));
    let fleet = Fleet::new(&world, port, ledger.run(), errors).map_err(Failure::Run)?;
    let start = tokio::time::Instant::now();
    let partitions = world.partitions();
    let mut run = Run {
        world,
        port,
        ledger,
        log,
        fleet,
        producer: None,
        show,
        ttl,
        length: plan.length,
        moves_shown: 0,
        owner_of: BTreeMap::new(),
        second: 0,
        calls_shown: (Duration::ZERO, vec![0; partitions]),
        rates: vec![0; partitions],
        freezes: 0,
        orderly: true,
    };
    run.add(plan.processors).await?;
    // Another run sends other events.
    let seed = plan.seed.wrapping_add(u64::from(run.ledger.run() - 1));
    let producer = Producer::start(&run.world.hub, plan.rate, seed)
        .map_err(|error| Failure::Run(format!("no thread for the producer: {error}")))?;
    run.producer = Some(producer);
    run.follow(&plan, start).await?;
    run.look().await?;
    let sent = run.producer.take().map(Producer::stop).transpose().map_err(Failure::Run)?;
    run.catch_up().await?;
    run.end().await?;
    run.show.end()?;
    run.count(sent).await
}

impl Run {
    /// Until the end of the stream: the script, what the user asks for, and everything that happens.
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
                    self.interrupted()?;
                    return Ok(());
                }
                () = sleep_until(end) => return Ok(()),
                () = sleep_until(next_step) => {
                    if let Some(step) = steps.next() {
                        self.look().await?;
                        self.act(step.action, None).await?;
                    }
                }
                order = self.show.order() => {
                    if let Next::End = self.obey(order).await? {
                        self.interrupted()?;
                        return Ok(());
                    }
                }
                _ = look.tick() => self.look().await?,
            }
        }
    }

    fn interrupted(&mut self) -> Result<(), Failure> {
        let text = "interrupted: the rest is still handled; once more to stop at once";
        self.show.note(self.ledger.now(), text)?;
        tokio::spawn(async {
            shutdown_signal().await;
            super::show::restore();
            std::process::exit(130);
        });
        Ok(())
    }

    /// Does what somebody asked for at the keyboard.
    async fn obey(&mut self, order: Order) -> Result<Next, Failure> {
        match order {
            Order::Act(action, id) => {
                // Somebody at a keyboard is told why not; the demo goes on.
                if let Err(Failure::Run(why)) = self.act(action, id.as_ref()).await {
                    self.show.problem(self.ledger.now(), &why)?;
                }
                self.look().await?;
                let board = self.board(self.ledger.now()).await;
                self.show.board(board)?;
            }
            Order::Draw => self.show.draw()?,
            Order::End => return Ok(Next::End),
        }
        Ok(Next::Go)
    }

    async fn add(&mut self, count: u32) -> Result<Vec<InstanceId>, Failure> {
        let numbers = self.fleet.reserve(count);
        self.world.journal.started(self.fleet.started());
        self.fleet.add(numbers).await.map_err(Failure::Run)
    }

    async fn act(&mut self, action: Action, which: Option<&InstanceId>) -> Result<(), Failure> {
        let now = self.ledger.now();
        let text = match action {
            Action::Add => {
                let new = self.add(1).await?;
                let ids: Vec<&str> = new.iter().map(InstanceId::as_str).collect();
                format!("{} has joined the group", ids.join(" "))
            }
            Action::Kill => {
                let id = self.fleet.kill(which).await.map_err(Failure::Run)?;
                self.world.journal.crashed(&id);
                let owned = counted(self.owned_by(&id), "partition");
                format!("{id} is killed with {owned}; its ttl is {}", Time(self.ttl))
            }
            Action::Remove => {
                let id = self.fleet.remove(which).map_err(Failure::Run)?;
                let owned = counted(self.owned_by(&id), "partition");
                format!("{id} is asked to leave with {owned}")
            }
            Action::Freeze => {
                let id = self.fleet.freeze(which).map_err(Failure::Run)?;
                self.freezes += 1;
                self.world.journal.crashed(&id);
                let owned = counted(self.owned_by(&id), "partition");
                format!("{id} stands still with {owned}; its ttl is {}", Time(self.ttl))
            }
            Action::Thaw => {
                let id = self.fleet.thaw(which).map_err(Failure::Run)?;
                format!("{id} goes on, and does not know that it stood still")
            }
        };
        Ok(self.show.did(now, action, &text)?)
    }

    fn owned_by(&self, id: &InstanceId) -> u64 {
        self.owner_of.values().filter(|owner| owner.as_ref() == Some(id)).count() as u64
    }

    /// Waits until all is handled, or nothing has been for too long.
    async fn catch_up(&mut self) -> Result<(), Failure> {
        for (id, frozen) in self.fleet.running().collect::<Vec<_>>() {
            if frozen {
                self.act(Action::Thaw, Some(&id)).await?;
            }
        }
        self.look().await?;
        let left = match self.lag() {
            0 => "all handled".to_owned(),
            lag => format!("{} still to handle", counted(lag, "event")),
        };
        self.show.note(self.ledger.now(), &format!("the stream has ended: {left}"))?;
        let mut look = looks();
        let mut progress = (self.calls(), Instant::now());
        while self.lag() > 0 && progress.1.elapsed() < STALLED {
            tokio::select! {
                _ = look.tick() => {}
                order = self.show.order() => {
                    if let Next::End = self.obey(order).await? {
                        super::show::restore();
                        std::process::exit(130);
                    }
                }
            }
            self.look().await?;
            if self.calls() != progress.0 {
                progress = (self.calls(), Instant::now());
            }
        }
        match self.lag() {
            0 => Ok(()),
            lag => {
                let text =
                    format!("nothing was handled for {STALLED:?}: giving up on {}", counted(lag, "event"));
                Ok(self.show.note(self.ledger.now(), &text)?)
            }
        }
    }

    /// Lets all processors leave.
    async fn end(&mut self) -> Result<(), Failure> {
        self.look().await?;
        // Those that the script removed may take longer than the stream.
        let stayed: BTreeSet<InstanceId> = self.fleet.running().map(|(id, _)| id).collect();
        let left = self.fleet.end().await;
        let now = self.ledger.now();
        for left in left.iter().filter(|left| left.failure.is_some() || !stayed.contains(&left.id)) {
            self.orderly &= left.failure.is_none();
            self.show.left(now, left)?;
        }
        self.look().await?;
        Ok(self.show.note(now, "all processors have left; counting again from the source")?)
    }

    async fn count(&mut self, sent: Option<Sent>) -> Result<Outcome, Failure> {
        let spans = self.ledger.spans();
        let former = self.ledger.former();
        let all: Vec<Vec<Span>> = match former.spans.is_empty() {
            true => spans.clone(),
            false => former.spans.iter().zip(&spans).map(|(old, new)| [&old[..], new].concat()).collect(),
        };
        let moves = self.moves_with_openings();
        let world = &self.world;
        let source = world::source(self.port).map_err(Failure::Run)?;
        let counts = recount(&source, &world.taken(), &all, &former.since)
            .await
            .map_err(|why| Failure::Run(format!("cannot count again: {why}")))?;
        let taken: u64 = world.taken().iter().sum();
        let before: u64 = world.taken.iter().sum();
        let doubts = self.doubts(counts, taken - before, sent);
        let crashed = self.fleet.crashed();
        let unplanned: BTreeSet<InstanceId> =
            former.crashed.iter().chain(crashed).chain(self.fleet.frozen()).cloned().collect();
        let moves_ever = [&self.log.former[..], &moves].concat();
        let duplicates = duplicates::attribute(&all, &moves_ever, &unplanned);
        let report = Report::new(counts, duplicates, &spans, &moves, crashed.len());
        if self.orderly {
            world.journal.ended();
        }
        let former = (self.ledger.run() > 1).then(|| counts.produced.saturating_sub(taken - before));
        Ok(Outcome { report, former, moves, spans, freezes: self.freezes, doubts })
    }

    fn moves_with_openings(&self) -> Vec<Move> {
        let openings = self.ledger.openings();
        let opened = |m: &Move| openings.get(&(m.partition, m.epoch)).copied();
        self.log.moves.iter().map(|m| Move { opened: opened(m), ..m.clone() }).collect()
    }

    /// Why the counts themselves cannot be trusted. `taken`: how many events the hub says it took in this run.
    fn doubts(&self, counts: Recount, taken: u64, sent: Option<Sent>) -> Option<String> {
        if let Some(why) = self.world.journal.failure() {
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

    /// Reads and shows what is new.
    async fn look(&mut self) -> Result<(), Failure> {
        let now = self.ledger.now();
        while let Some(left) = self.fleet.left() {
            self.orderly &= left.failure.is_none();
            if self.fleet.crashed().contains(&left.id) {
                self.world.journal.crashed(&left.id);
            }
            self.show.left(now, &left)?;
        }
        self.ledger.look(self.fleet.started(), &self.fleet.live()).map_err(Failure::Run)?;
        self.log.add(self.ledger.moves());
        let World { store, scope, journal, .. } = &self.world;
        if let Ok(recorded) = store.moves(scope).await {
            let new = self.log.add(recorded.iter().map(|record| moved(record, now)));
            new.iter().for_each(|moved| journal.moved(moved));
        }
        let new = &self.log.moves[self.moves_shown..];
        for moved in new {
            self.owner_of.insert(moved.partition, moved.to.clone());
        }
        self.show.moves(new)?;
        self.moves_shown = self.log.moves.len();
        for error in self.fleet.problems() {
            self.show.error(now, &error)?;
        }
        if let Some(why) = self.producer.as_ref().and_then(Producer::trouble) {
            self.show.problem(now, &why)?;
        }
        if now.as_secs() > self.second {
            self.second = now.as_secs();
            self.measure(now);
            let board = self.board(now).await;
            self.show.board(board)?;
        }
        Ok(())
    }

    fn lag(&self) -> u64 {
        self.ledger.lags(&self.world.taken()).iter().sum()
    }

    fn calls(&self) -> u64 {
        self.ledger.calls().iter().sum()
    }

    /// How fast each partition was handled since the last time.
    fn measure(&mut self, now: Duration) {
        let calls = self.ledger.calls();
        let (then, before) = std::mem::replace(&mut self.calls_shown, (now, calls.clone()));
        let seconds = now.saturating_sub(then).as_secs_f64().max(0.001);
        let rate =
            |(now, before): (&u64, &u64)| (now.saturating_sub(*before) as f64 / seconds).round() as u64;
        self.rates = calls.iter().zip(&before).map(rate).collect();
    }

    /// How things stand.
    async fn board(&self, now: Duration) -> Board {
        let World { store, scope, .. } = &self.world;
        // A store that is busy shows what is known without it.
        let ownerships = store.view(scope).await.map(|view| view.ownerships).unwrap_or_default();
        let checkpoints = store.checkpoints(scope).await.unwrap_or_default();
        let clock = Timestamp::now();
        let ownership: BTreeMap<usize, &Ownership> =
            ownerships.iter().map(|ownership| (number_of(&ownership.partition), ownership)).collect();
        let written: BTreeMap<usize, Timestamp> =
            checkpoints.iter().map(|record| (number_of(&record.partition), record.time)).collect();
        let lags = self.ledger.lags(&self.world.taken());
        let rows = (0..self.world.partitions())
            .map(|partition| Row {
                partition,
                owner: self.owner_of.get(&partition).cloned().flatten(),
                epoch: ownership.get(&partition).map(|ownership| ownership.epoch),
                events_per_second: self.rates[partition],
                lag: lags[partition],
                checkpoint_age: written.get(&partition).map(|time| millis_between(*time, clock)),
            })
            .collect();
        let crashed = self.fleet.crashed();
        let running: BTreeMap<InstanceId, bool> = self.fleet.running().collect();
        let mut ids: Vec<InstanceId> = running.keys().cloned().collect();
        ids.extend(self.owner_of.values().flatten().filter(|id| !running.contains_key(*id)).cloned());
        ids.sort_by_key(super::slots::number);
        ids.dedup();
        let workers = ids
            .into_iter()
            .map(|id| {
                let owned: Vec<usize> = (self.owner_of.iter())
                    .filter(|(_, owner)| owner.as_ref() == Some(&id))
                    .map(|(partition, _)| *partition)
                    .collect();
                Worker {
                    crashed: crashed.contains(&id),
                    frozen: running.get(&id).copied().unwrap_or(false),
                    events_per_second: owned.iter().map(|partition| self.rates[*partition]).sum(),
                    lag: owned.iter().map(|partition| lags[*partition]).sum(),
                    partitions: owned.len(),
                    id,
                }
            })
            .collect();
        let moves = self.moves_with_openings();
        let spans = self.ledger.spans();
        let last = &moves[moves.len().saturating_sub(MOVES_SHOWN_MAX)..];
        let moves = last.iter().rev().map(|m| (m.clone(), gap_of(m, &spans[m.partition]))).collect();
        Board { at: now, length: self.length, rows, workers, moves }
    }
}

fn looks() -> tokio::time::Interval {
    let mut look = interval_at(tokio::time::Instant::now() + LOOK_EVERY, LOOK_EVERY);
    look.set_missed_tick_behavior(MissedTickBehavior::Delay);
    look
}

fn millis_between(earlier: Timestamp, later: Timestamp) -> Duration {
    Duration::from_millis(u64::try_from(later.millis() - earlier.millis()).unwrap_or(0))
}
