//! Fleets in simulation: what holds for every seed.

use std::time::Duration;

use partita_sim::{Fault, Plan, Report, Setup, Summary, Theme, World};

/// More seeds with `./test --long`.
fn seeds(short: u64, long: u64) -> std::ops::Range<u64> {
    0..if std::env::var_os("PARTITA_LONG").is_some_and(|long| long == "1") { long } else { short }
}

/// Runs a world, and tells how to replay it if it fails.
fn run(world: &World, how: &str) -> Report {
    let report = world.run();
    if let Some(failure) = report.failure() {
        let seed = report.seed;
        panic!(
            "seed {seed}: {failure}\nreplay with: cargo run --release -p partita-sim -- {how}--seed {seed} --trace"
        );
    }
    report
}

fn run_theme(theme: Theme, seeds: std::ops::Range<u64>) -> Summary {
    let mut summary = Summary::default();
    for seed in seeds {
        summary.add(&run(&World::of(theme, seed), &format!("--theme {} ", theme.name())));
    }
    summary
}

#[test]
#[allow(clippy::print_stdout)] // What happened belongs in the test's log.
fn the_invariants_hold_in_every_kind_of_world_and_every_fault_happens() {
    let mut all = Summary::default();
    for theme in Theme::ALL {
        for seed in seeds(12, 600) {
            all.add(&run(&World::of(*theme, seed), &format!("--theme {} ", theme.name())));
        }
    }
    println!("{all}");
    // A simulation in which a fault never happens proves nothing about it. Re-takes are rare: the thousands of seeds of
    // `tests.d/simulation` have some.
    assert!(
        all.moves_uncounted * 10 < all.seeds,
        "needless moves were not counted in {}",
        all.moves_uncounted
    );
    let mut never = all.never_happened();
    never.retain(|what| *what != "re-takes");
    assert_eq!(never, [""; 0]);
}

#[test]
fn planned_moves_deliver_nothing_twice() {
    let counts = run_theme(Theme::Planned, seeds(60, 5_000)).counts;
    assert_eq!(counts.duplicates, 0);
    assert!(counts.handoffs > 50, "only {} hand-offs", counts.handoffs);
}

/// Each line of `seeds.txt` is a world that once failed.
#[test]
fn seeds_that_once_failed_pass() {
    for line in include_str!("seeds.txt").lines().filter(|line| !line.starts_with('#')) {
        let mut words = line.split_whitespace();
        let theme = words.next().and_then(Theme::parse).unwrap_or_else(|| panic!("no theme in {line:?}"));
        let seed =
            words.next().and_then(|seed| seed.parse().ok()).unwrap_or_else(|| panic!("no seed in {line:?}"));
        run(&World::of(theme, seed), &format!("--theme {} ", theme.name()));
        let plain = run(&World::of(theme, seed).plain(), &format!("--plain --theme {} ", theme.name()));
        assert_eq!(
            (plain.counts.drifting_clocks, plain.counts.seeks),
            (0, 0),
            "it is what it was when it failed"
        );
    }
}

#[test]
fn a_store_outage_of_any_length_moves_nothing() {
    for (seed, seconds) in [(1, 3), (2, 6), (3, 20), (4, 300)] {
        let mut setup = Setup::draw(&mut fastrand::Rng::with_seed(seed));
        setup.instances = 3;
        (setup.slow_call, setup.blocking_call, setup.failing_calls) = (None, None, 0);
        let outage = Duration::from_secs(seconds);
        let faults = vec![(Duration::from_secs(10), Fault::Outage { refuses: false, time: outage })];
        let calm_at = Duration::from_secs(20) + outage;
        let quiet = Plan { setup, faults: Vec::new(), calm_at, still_from: None, once: false };
        let moves = |plan: Plan| {
            let counts = run(&World::with_plan(seed, plan), "").counts;
            (
                counts.claims + counts.handoffs + counts.steals + counts.takeovers + counts.releases,
                counts.burials,
            )
        };
        let with_outage = Plan { faults, ..quiet.clone() };
        assert_eq!(moves(quiet), moves(with_outage), "an outage of {seconds} s moved something");
    }
}

#[test]
fn the_same_seed_gives_the_same_trace() {
    for theme in Theme::ALL {
        for seed in seeds(2, 40) {
            let [first, second] = [0, 1].map(|_| World::of(*theme, seed).keep_trace().run());
            assert!(first.trace.len() > 50, "seed {seed} of {theme:?} has hardly a trace");
            let differs = first.trace.iter().zip(&second.trace).find(|(one, other)| one != other);
            assert_eq!(differs, None, "seed {seed} of {theme:?} is not deterministic");
            assert_eq!(first.trace_hash, second.trace_hash);
        }
    }
}

#[test]
fn different_seeds_give_different_traces() {
    assert_ne!(World::seeded(1).run().trace_hash, World::seeded(2).run().trace_hash);
}
