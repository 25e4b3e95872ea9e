//! Fleets in simulation: what holds for every seed.

use std::time::Duration;

use partita_sim::{Counts, Fault, Plan, Report, Setup, World};

/// More seeds with `./test --long`.
fn seeds(short: u64, long: u64) -> std::ops::Range<u64> {
    0..if std::env::var_os("PARTITA_LONG").is_some() { long } else { short }
}

/// Runs worlds, and tells how to replay one that fails.
fn run_all(worlds: impl Iterator<Item = World>, how: &str) -> (Counts, Vec<Report>) {
    let (mut counts, mut reports) = (Counts::default(), Vec::new());
    for world in worlds {
        let report = world.run();
        if let Some(failure) = report.failure() {
            let seed = report.seed;
            panic!(
                "seed {seed}: {failure}\nreplay with: cargo run --release -p partita-sim -- {how}--seed {seed} --trace"
            );
        }
        counts.add(&report.counts);
        reports.push(report);
    }
    (counts, reports)
}

#[test]
#[allow(clippy::print_stdout)] // What happened belongs in the test's log.
fn the_invariants_hold_and_the_fleet_heals_whatever_happens() {
    let (counts, reports) = run_all(seeds(150, 10_000).map(World::seeded), "");
    println!("{} seeds: {counts:#?}", reports.len());
    // A simulation in which a fault never happens proves nothing about it.
    for (what, count) in [
        ("hand-offs", counts.handoffs),
        ("take-overs", counts.takeovers),
        ("cut calls", counts.cut_calls),
        ("burials", counts.burials),
        ("fenced checkpoints", counts.fenced),
        ("lost requests", counts.lost_requests),
        ("lost replies", counts.lost_replies),
        ("crashes", counts.crashes),
        ("freezes", counts.freezes),
        ("outages", counts.outages),
        ("joins", counts.joins),
        ("leaves", counts.leaves),
    ] {
        assert!(count > 0, "no {what} in the whole suite");
    }
}

#[test]
fn planned_moves_deliver_nothing_twice() {
    let worlds = seeds(100, 5_000).map(World::planned);
    let (counts, _) = run_all(worlds, "--planned ");
    assert_eq!(counts.duplicates, 0);
    assert!(counts.handoffs > 50, "only {} hand-offs", counts.handoffs);
}

#[test]
fn a_store_outage_of_any_length_moves_nothing() {
    for (seed, seconds) in [(1, 3), (2, 6), (3, 20), (4, 300)] {
        let mut setup = Setup::draw(&mut fastrand::Rng::with_seed(seed));
        setup.instances = 3;
        setup.slow_call = None;
        let outage = Duration::from_secs(seconds);
        let faults = vec![(Duration::from_secs(10), Fault::Outage { time: outage })];
        let calm_at = Duration::from_secs(20) + outage;
        let quiet = Plan { setup: setup.clone(), faults: Vec::new(), calm_at };
        let moves = |plan: Plan| {
            let (counts, _) = run_all(std::iter::once(World::with_plan(seed, plan)), "");
            (
                counts.claims + counts.handoffs + counts.steals + counts.takeovers + counts.releases,
                counts.burials,
            )
        };
        let (without, with) = (moves(quiet), moves(Plan { setup, faults, calm_at }));
        assert_eq!(without, with, "an outage of {seconds} s moved something");
    }
}

#[test]
fn the_same_seed_gives_the_same_trace() {
    for seed in seeds(20, 500) {
        let [first, second] = [0, 1].map(|_| World::seeded(seed).keep_trace().run());
        assert!(first.trace.len() > 50, "seed {seed} has hardly a trace");
        assert_eq!(first.trace, second.trace, "seed {seed} is not deterministic");
        assert_eq!(first.trace_hash, second.trace_hash);
    }
}

#[test]
fn different_seeds_give_different_traces() {
    assert_ne!(World::seeded(1).run().trace_hash, World::seeded(2).run().trace_hash);
}
