//! From a crash to the first call of the next owner, part by part.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use partita::processor::{Builder, NoHandler, ProcessorHandle};
use partita::{Context, Epoch, Event, Hooks, InstanceId, MemoryHub, PartitionId, Timing};
use tokio::time::Instant;

use crate::fleet::{Fleet, Start};
use crate::out;
use crate::report::{Figure, Section, Unit};
use crate::stats::Sample;
use crate::world::{Clock, lock};

const PARTITIONS: u32 = 16;
const INSTANCES: usize = 4;

/// What a call of the store takes on the simulated clock.
const SIMULATED_CALL: Duration = Duration::from_millis(5);

/// When pumps were opened and when they made a first call, by partition.
#[derive(Default)]
struct Seen {
    opened: BTreeMap<PartitionId, Instant>,
    called: BTreeMap<PartitionId, Instant>,
}

#[derive(Clone, Default)]
struct Watcher(Arc<Mutex<Seen>>);

impl Hooks for Watcher {
    fn opened(&self, partition: &PartitionId, _: Epoch) {
        lock(&self.0).opened.insert(partition.clone(), Instant::now());
    }
}

impl Start for Watcher {
    async fn start(&self, _: &InstanceId, builder: Builder<NoHandler>) -> ProcessorHandle {
        let watcher = self.clone();
        let handler = move |_: Event, cx: Context| {
            // The first call after a crash counts, and it must follow an opening.
            let mut seen = lock(&watcher.0);
            if seen.opened.contains_key(cx.partition()) {
                seen.called.entry(cx.partition().clone()).or_insert_with(Instant::now);
            }
            async { Ok(()) }
        };
        let processor = builder.hooks(self.clone()).on_event(handler).build().expect("options that fit");
        processor.start().await.expect("a store in memory")
    }
}

/// The parts of one failover: those of the partition that waited longest.
#[derive(Clone, Copy, Debug)]
struct Parts {
    /// From the crash until the last heartbeat is a ttl old.
    age: Duration,
    /// From there until the burial is written: the rest of the watch, and the wait for a view.
    watch: Duration,
    claim: Duration,
    open: Duration,
    first_call: Duration,
}

impl Parts {
    fn total(&self) -> Duration {
        self.age + self.watch + self.claim + self.open + self.first_call
    }
}

pub(crate) fn run(quick: bool) -> Section {
    let (real, simulated) = if quick { (1, 5) } else { (3, 40) };
    let mut figures = Vec::new();
    // Before any clock is paused: Tokio's clock is dearer afterwards.
    let mut threads = tokio::runtime::Builder::new_multi_thread();
    let runtime = threads.worker_threads(2).enable_time().build().expect("a runtime");
    let (parts, call) = runtime.block_on(crashes(Clock::Real, real));
    figures.extend(table(&format!("{real} crashes, real time"), &parts, call));
    let mut paused = tokio::runtime::Builder::new_current_thread();
    let runtime = paused.enable_time().start_paused(true).build().expect("a runtime");
    let (parts, call) = runtime.block_on(crashes(Clock::Simulated, simulated));
    figures.extend(table(&format!("{simulated} crashes, simulated"), &parts, call));
    Section {
        title: "Failover",
        how: format!(
            "{INSTANCES} instances, {PARTITIONS} partitions, memory store, default timing: ttl T 5 s, cycle c 1 s (c+ = 1.1 s with jitter), call deadline r 0.4 s, margin \
             m 1.5 s, no stamp step g. An instance crashes at a random moment (its tasks end where they are), then an event is appended to each \
             of its partitions; of these, the one whose first call comes last counts. The bound is max(T+g, T-m+c+ +r) + c+ + 4 calls. \
             *By age*: until the last heartbeat is T old. *Watch*: until the burial is written. Then claim, opening of the pump, first call. On the simulated \
             clock a store call takes {} ms; in real time the longest call of the run stands for it in the bound.",
            SIMULATED_CALL.as_millis()
        ),
        figures,
    }
}

fn table(name: &str, crashes: &[Parts], call: Duration) -> Vec<Figure> {
    let t = Timing::FAST;
    let detection = t.ttl().max(t.lease() + t.cycle_max() + t.call_deadline());
    let bound = detection + t.cycle_max() + 4 * call;
    let sample =
        |of: fn(&Parts) -> Duration| Sample::new(crashes.iter().map(|parts| of(parts).as_secs_f64()));
    let part = |what: &str, of: fn(&Parts) -> Duration, limit: Duration| {
        let limit = limit.as_secs_f64();
        Figure::limit(format!("{name}: {what}, longest"), Unit::Seconds, sample(of).max(), limit)
    };
    let short = |what: &str, of: fn(&Parts) -> Duration| {
        let (ms, call) = (sample(of).max() * 1e3, call.as_secs_f64() * 1e3);
        Figure::peer(format!("{name}: {what}, longest"), Unit::Milliseconds, ms, call, "one call")
    };
    vec![
        part("by age", |parts| parts.age, t.ttl()),
        part("watch", |parts| parts.watch, detection - t.ttl() + t.cycle_max() + 2 * call),
        short("claim", |parts| parts.claim),
        short("open", |parts| parts.open),
        short("first call", |parts| parts.first_call),
        part("crash to first call", Parts::total, bound),
        Figure::peer(
            format!("{name}: crash to first call, median"),
            Unit::Seconds,
            sample(Parts::total).median(),
            t.ttl().as_secs_f64(),
            "ttl",
        ),
    ]
}

/// Crashes an instance so many times; tells the parts and how long a store call took at most.
async fn crashes(clock: Clock, count: usize) -> (Vec<Parts>, Duration) {
    let watcher = Watcher::default();
    let call = if clock == Clock::Simulated { SIMULATED_CALL } else { Duration::ZERO };
    let mut fleet =
        Fleet::new(MemoryHub::new("failover", PARTITIONS), clock, watcher.clone()).calls_take(call);
    let mut random = fastrand::Rng::with_seed(2);
    let mut all = Vec::new();
    for number in 1..=count {
        if clock == Clock::Real {
            out::note(format!("failover: crash {number} of {count} in real time"));
        }
        while fleet.ids().len() < INSTANCES {
            fleet.join().await;
        }
        assert!(fleet.until_balanced().await, "the group did not come to rest");
        // Long enough for all leases to count as unbroken, and any part of a cycle more.
        tokio::time::sleep(Duration::from_millis(2_500 + random.u64(0..1_100))).await;
        let ids = fleet.ids();
        all.push(crash(&mut fleet, &watcher, &ids[random.usize(..ids.len())]).await);
    }
    (all, fleet.store.slowest())
}

async fn crash(fleet: &mut Fleet<Watcher>, watcher: &Watcher, victim: &InstanceId) -> Parts {
    let partitions = fleet.owned_by(victim).await;
    *lock(&watcher.0) = Seen::default();
    let changes_before = fleet.store.ledger().changes.len();
    let crashed = Instant::now();
    fleet.crash(victim);
    for partition in &partitions {
        fleet.hub.append(partition, Event::builder("after the crash"));
    }
    loop {
        tokio::time::sleep(Duration::from_millis(10)).await;
        let called = &lock(&watcher.0).called;
        if partitions.iter().all(|partition| called.contains_key(partition)) {
            break;
        }
        assert!(crashed.elapsed() < Duration::from_secs(60), "nobody took over from {victim}");
    }
    let ledger = fleet.store.ledger();
    let seen = lock(&watcher.0);
    let last = partitions.iter().max_by_key(|partition| seen.called[*partition]).expect("a partition");
    let old = (ledger.beats[victim] + Timing::FAST.ttl()).max(crashed);
    let buried = ledger.burials[victim];
    let mut claims = ledger.changes[changes_before..].iter().filter(|change| change.partition == *last);
    let claimed = claims.next().expect("a change of owner").at;
    Parts {
        age: old - crashed,
        watch: buried.saturating_duration_since(old),
        claim: claimed - buried,
        open: seen.opened[last].saturating_duration_since(claimed),
        first_call: seen.called[last].saturating_duration_since(seen.opened[last]),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_crash_is_taken_over_within_the_bound_and_the_parts_add_up() {
        let (parts, call) = crashes(Clock::Simulated, 2).await;
        let bound = Duration::from_millis(6_100) + 4 * call;
        assert!(parts.iter().all(|parts| parts.total() <= bound), "{parts:?}");
        assert!(parts.iter().all(|parts| parts.total() > Duration::from_secs(3)), "{parts:?}");
    }
}
