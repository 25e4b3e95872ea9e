//! Bugs that are planted in the engine are found.

#![cfg(feature = "planted")]

use partita_sim::planted::{Bug, Hunt, hunt};

/// So many seeds at most.
const SEEDS_MAX: u64 = 1_000;

#[test]
#[allow(clippy::print_stdout)] // What found them belongs in the test's log.
fn every_planted_bug_is_found() {
    let mut missed = Vec::new();
    for bug in Bug::ALL {
        match hunt(*bug, SEEDS_MAX, None) {
            Hunt::Found(found) => println!("{}: seed {}: {}", bug.name(), found.seed, found.what),
            Hunt::Missed { .. } => missed.push(bug.what()),
        }
    }
    assert_eq!(missed, [""; 0], "not found within {SEEDS_MAX} seeds");
    assert!(Bug::ALL.len() >= 12);
}
