//! What a change costs a large group: cycles, moves, the time to plan, and what the store is asked meanwhile.

use std::hint::black_box;
use std::time::Duration;

use partita::model::Incarnation;
use partita::processor::{Builder, NoHandler, ProcessorHandle};
use partita::{Context, Event, InstanceId, MemoryHub, Pace, PartitionId, Policy, Timing};
use partita_core::balance::{Holding, Member, OwnerState, Snapshot, assign, plan};
use tokio::time::Instant;

use crate::clock::Stamp;
use crate::fleet::{Fleet, Start};
use crate::out;
use crate::report::{Figure, Section, Unit};
use crate::stats::Sample;
use crate::world::Clock;

const PARTITIONS: u32 = 1_024;
const INSTANCES: usize = 100;
/// What a call of the store takes on the simulated clock.
const CALL: Duration = Duration::from_millis(5);

const CYCLES_MAX: f64 = 3.0;
const PLAN_MS_MAX: f64 = 5.0;

/// Handles nothing: the hubs are empty.
struct Idle;

impl Start for Idle {
    async fn start(&self, _: &InstanceId, builder: Builder<NoHandler>) -> ProcessorHandle {
        let builder = builder.pace(Pace::Greedy).on_event(|_: Event, _: Context| async { Ok(()) });
        builder.build().expect("options that fit").start().await.expect("a store in memory")
    }
}

/// What may happen to a group.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Change {
    Join,
    Leave,
    Crash,
}

/// What one change came to.
struct Cost {
    cycles: f64,
    /// For a crash: from the crash on, the detection included.
    cycles_in_all: f64,
    moves: usize,
    moves_min: usize,
    moves_after: usize,
}

pub(crate) fn run(quick: bool) -> Section {
    let rounds = if quick { 1 } else { 3 };
    let mut figures = Vec::new();
    let costs = simulated(changes(rounds));
    for (change, costs) in costs {
        let name = match change {
            Change::Join => "one joins",
            Change::Leave => "one leaves",
            Change::Crash => "one crashes, from its burial",
        };
        let max = |of: fn(&Cost) -> f64| costs.iter().map(of).fold(0.0, f64::max);
        figures.push(Figure::limit(name, Unit::Cycles, max(|cost| cost.cycles), CYCLES_MAX));
        if change == Change::Crash {
            let whole = max(|cost| cost.cycles_in_all);
            figures.push(Figure::plain("one crashes, from the crash", Unit::Cycles, whole));
        }
        let worst = costs.iter().max_by_key(|cost| cost.moves - cost.moves_min.min(cost.moves));
        let worst = worst.expect("at least one round");
        let (moves, least) = (worst.moves as f64, worst.moves_min as f64);
        figures.push(Figure::limit(format!("{name}: moves"), Unit::Moves, moves, least));
        let after = max(|cost| cost.moves_after as f64);
        figures.push(Figure::limit(format!("{name}: moves in the next 10 s"), Unit::Moves, after, 0.0));
    }
    figures.extend(plan_times(if quick { 20 } else { 200 }));
    figures.extend(requests(if quick { 20 } else { 60 }));
    Section {
        title: "Rebalance",
        how: format!(
            "{PARTITIONS} partitions, {INSTANCES} instances, greedy pace, default timing, one memory store; the worst of {rounds} changes of each kind. \
             Whole processors on a simulated clock (it stands still while anybody works, so {INSTANCES} fit on this machine): cycles are \
             simulated time, from the call to the last change of an owner, divided by the cycle of 1 s; a store call takes {} ms of it. \
             A move is a partition that gets another owner; the limit is the least number possible. `plan` is timed by the CPU clock. Requests are counted on an \
             idle group of 8 instances in steady state, checkpoints not included (they follow the events: at most one per busy partition and second).",
            CALL.as_millis()
        ),
        figures,
    }
}

/// Runs on a paused clock.
fn simulated<T>(future: impl Future<Output = T>) -> T {
    let mut builder = tokio::runtime::Builder::new_current_thread();
    builder.enable_time().start_paused(true).build().expect("a runtime").block_on(future)
}

async fn changes(rounds: usize) -> Vec<(Change, Vec<Cost>)> {
    let mut fleet =
        Fleet::new(MemoryHub::new("rebalance", PARTITIONS), Clock::Simulated, Idle).calls_take(CALL);
    for _ in 0..INSTANCES {
        fleet.join().await;
    }
    fleet.until_balanced().await;
    // A burial needs a lease that is a little old.
    tokio::time::sleep(Duration::from_secs(5)).await;
    let mut random = fastrand::Rng::with_seed(1);
    let mut costs = vec![(Change::Join, vec![]), (Change::Leave, vec![]), (Change::Crash, vec![])];
    for round in 0..rounds {
        // A replacement after the crash keeps the group at its size.
        for (change, into) in &mut costs {
            out::note(format!("rebalance: round {} of {rounds}, {change:?}", round + 1));
            tokio::time::sleep(Duration::from_millis(random.u64(0..1_000))).await;
            into.push(measure(&mut fleet, *change, &mut random).await);
        }
        fleet.join().await;
        fleet.until_balanced().await;
        tokio::time::sleep(Duration::from_secs(5)).await;
    }
    costs
}

async fn measure(fleet: &mut Fleet<Idle>, change: Change, random: &mut fastrand::Rng) -> Cost {
    let cycle = Timing::FAST.cycle().as_secs_f64();
    let ids = fleet.ids();
    let one = ids[random.usize(..ids.len())].clone();
    let moves_min = match change {
        // The newcomer's share; the others only give.
        Change::Join => fleet.partitions() / (ids.len() + 1),
        Change::Leave | Change::Crash => fleet.owned_by(&one).await.len(),
    };
    let before = fleet.store.ledger().changes.len();
    let start = Instant::now();
    match change {
        Change::Join => drop(fleet.join().await),
        Change::Leave => fleet.leave(&one).await,
        Change::Crash => fleet.crash(&one),
    }
    let balanced = fleet.until_balanced().await;
    let (end, moves, buried) = {
        let ledger = fleet.store.ledger();
        let moves = ledger.changes[before..].iter().filter(|change| change.to.is_some()).count();
        (ledger.changes.last().map(|change| change.at), moves, ledger.burials.get(&one).copied())
    };
    let settled = fleet.store.ledger().changes.len();
    tokio::time::sleep(Duration::from_secs(10)).await;
    let end = end.filter(|_| balanced);
    let cycles = |from: Instant| end.map_or(f64::NAN, |end| (end - from).as_secs_f64() / cycle);
    Cost {
        cycles: cycles(buried.unwrap_or(start)),
        cycles_in_all: cycles(start),
        moves,
        moves_min,
        moves_after: fleet.store.ledger().changes.len() - settled,
    }
}

/// How long `plan` takes in the group that has just changed, for every instance.
fn plan_times(rounds: usize) -> Vec<Figure> {
    let members: Vec<Incarnation> =
        (0..=INSTANCES).map(|i| Incarnation::new(InstanceId::new(format!("i{i:04}")), i as u128)).collect();
    let (all, before) = (&members[..], &members[..INSTANCES]);
    let balanced = assign(&snapshot(before, None, |_| None), Policy::Count);
    let of = |partition: &PartitionId| balanced.get(partition).cloned();
    let dead = &members[7];
    let after_crash: Vec<Incarnation> = before.iter().filter(|member| *member != dead).cloned().collect();
    let cases = [
        ("at rest", snapshot(before, None, of)),
        ("after a join", snapshot(all, None, of)),
        ("after a crash", snapshot(&after_crash, Some(dead), of)),
        ("of a group that starts", snapshot(before, None, |_| None)),
    ];
    let mut figures = Vec::new();
    for (name, snapshot) in cases {
        let times = Sample::new((0..rounds).map(|round| {
            let me = &snapshot.members[round % snapshot.members.len()].incarnation;
            let start = Stamp::now();
            black_box(plan(black_box(&snapshot), me, Policy::Count, Pace::Greedy, true));
            start.until(Stamp::now()).cpu.as_secs_f64() * 1e3
        }));
        let median = times.median();
        figures.push(Figure::limit(
            format!("`plan` {name}, median"),
            Unit::Milliseconds,
            median,
            PLAN_MS_MAX,
        ));
        figures.push(Figure::limit(
            format!("`plan` {name}, longest of {}", times.len()),
            Unit::Milliseconds,
            times.max(),
            PLAN_MS_MAX,
        ));
    }
    figures
}

fn snapshot(
    members: &[Incarnation],
    dead: Option<&Incarnation>,
    owner: impl Fn(&PartitionId) -> Option<Incarnation>,
) -> Snapshot {
    let state = |owner: &Incarnation| if Some(owner) == dead { OwnerState::Dead } else { OwnerState::Live };
    let holding = |partition: PartitionId| Holding {
        owner: owner(&partition).map(|owner| (owner.clone(), state(&owner))),
        partition,
        next: None,
    };
    let member = |incarnation: &Incarnation| Member { incarnation: incarnation.clone(), declines: vec![] };
    Snapshot {
        members: members.iter().map(member).collect(),
        holdings: (0..PARTITIONS).map(PartitionId::from).map(holding).collect(),
    }
}

/// What the store is asked in steady state, per instance and second, and that it does not grow with the partitions.
fn requests(seconds: u64) -> Vec<Figure> {
    let sizes = [16, 256, PARTITIONS];
    let rates = sizes.map(|partitions| simulated(steady(partitions, seconds)));
    let mut figures = Vec::new();
    for (partitions, rate) in sizes.into_iter().zip(rates) {
        let what = format!("store requests per instance, {partitions} partitions");
        // A heartbeat and a view per cycle, at most a tenth more often than the cycle says.
        let most = 2.0 / (0.9 * Timing::FAST.cycle().as_secs_f64());
        figures.push(Figure::limit(what, Unit::PerSecond, rate, most));
    }
    figures
}

async fn steady(partitions: u32, seconds: u64) -> f64 {
    let mut fleet = Fleet::new(MemoryHub::new("steady", partitions), Clock::Simulated, Idle);
    for _ in 0..8 {
        fleet.join().await;
    }
    fleet.until_balanced().await;
    tokio::time::sleep(Duration::from_secs(10)).await;
    let calls = |fleet: &Fleet<Idle>| {
        let ledger = fleet.store.ledger();
        let kinds = ledger.calls.iter().filter(|(kind, _)| **kind != "checkpoint");
        kinds.map(|(_, count)| count).sum::<u64>()
    };
    let before = calls(&fleet);
    tokio::time::sleep(Duration::from_secs(seconds)).await;
    (calls(&fleet) - before) as f64 / (fleet.ids().len() as u64 * seconds) as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_in_steady_state_do_not_depend_on_the_number_of_partitions() {
        let few = simulated(steady(8, 20));
        let many = simulated(steady(64, 20));
        assert!((few - many).abs() < 0.2, "{few} and {many} per second");
    }
}
