//! Shows that the simulation would find bugs: switches them on in the engine, one at a time, and looks for a seed that
//! finds them.

use std::num::NonZeroUsize;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};
use std::thread;

pub use partita_core::planted::Bug;
use partita_core::planted::with;

use crate::runs::default_jobs;
use crate::theme::Theme;
use crate::world::World;

/// The invariants that a bug breaks: those of ARCHITECTURE.md by number, and L for what the log has acknowledged. A bug that is found by
/// another one says nothing about its own.
pub fn invariants(bug: Bug) -> &'static [&'static str] {
    match bug.name() {
        "ThawedGoesOn" | "LeaseFromAnswer" => &["1"],
        // Whoever takes a write for refused may call under an ownership that it has passed on. So far it is only found by what it forgets
        // with that: the last position of a partition that it has drained.
        "LostReplyAsRefusal" => &["1", "6"],
        "ReleaseBeforeDrain" | "TwoPumps" => &["2"],
        "FenceRemoved" | "MonotoneMissing" => &["3"],
        "CheckpointBeforeHandling" | "FailedCallCounted" => &["4"],
        "EpochNotRaised" => &["5"],
        "TransferBeforeCheckpoint" => &["6"],
        "NoBurial" | "StoreClockTrusted" => &["7"],
        // It declares the living dead, or never the dead, as clocks have it.
        "RemoteTimestamp" => &["7", "8"],
        "NextNeverCleared" | "PlanByInputOrder" | "GrowthIgnored" => &["8"],
        "NoQuietRule" => &["9"],
        "FrozenCallGoesOn" => &["13"],
        "UnsealedRetention" | "AcknowledgedTooEarly" => &["L"],
        _ => &[],
    }
}

/// The invariant that a failure is about.
fn invariant(what: &str) -> &str {
    let after_time = what.strip_prefix("at ").and_then(|rest| rest.split_once(": ")).map(|(_, rest)| rest);
    after_time.unwrap_or(what).split(':').next().unwrap_or_default()
}

/// What became of a hunt.
#[derive(Clone, Debug)]
pub enum Hunt {
    /// The bug was found by an invariant that it breaks.
    Found(Found),
    /// It was not.
    Missed {
        /// How many seeds failed by another invariant.
        by_others: usize,
    },
}

/// How a bug was found.
#[derive(Clone, Debug)]
pub struct Found {
    /// The bug.
    pub bug: Bug,
    /// By which seed.
    pub seed: u64,
    /// In what kind of world.
    pub theme: Option<Theme>,
    /// By which invariant.
    pub what: String,
}

impl Found {
    /// Whether it was found by an invariant that it breaks.
    pub fn is_own(&self) -> bool {
        invariants(self.bug).contains(&invariant(&self.what))
    }
}

/// Runs the world of a seed with a bug; tells how it failed, if it did.
pub fn try_seed(bug: Bug, seed: u64) -> Option<Found> {
    let world = World::seeded(seed);
    let ran = catch_unwind(AssertUnwindSafe(|| with(Some(bug), || world.run())));
    let what = match ran {
        Ok(report) => report.failure()?,
        Err(_) => "the engine panicked".to_owned(),
    };
    Some(Found { bug, seed, theme: world.theme, what })
}

/// Looks for the first of `seeds` seeds that finds the bug by an invariant that it breaks, on several threads.
pub fn hunt(bug: Bug, seeds: u64, jobs: Option<NonZeroUsize>) -> Hunt {
    let (next, best) = (AtomicU64::new(0), Mutex::new(None::<Found>));
    let by_others = AtomicUsize::new(0);
    thread::scope(|scope| {
        for _ in 0..jobs.unwrap_or_else(default_jobs).get() {
            scope.spawn(|| {
                loop {
                    let seed = next.fetch_add(1, Ordering::Relaxed);
                    let found_lower = || {
                        let best = best.lock().unwrap_or_else(PoisonError::into_inner);
                        best.as_ref().is_some_and(|found| found.seed < seed)
                    };
                    if seed >= seeds || found_lower() {
                        return;
                    }
                    let Some(found) = try_seed(bug, seed) else { continue };
                    if !found.is_own() {
                        by_others.fetch_add(1, Ordering::Relaxed);
                    } else {
                        let mut best = best.lock().unwrap_or_else(PoisonError::into_inner);
                        if best.as_ref().is_none_or(|known| seed < known.seed) {
                            *best = Some(found);
                        }
                    }
                }
            });
        }
    });
    match best.into_inner().unwrap_or_else(PoisonError::into_inner) {
        Some(found) => Hunt::Found(found),
        None => Hunt::Missed { by_others: by_others.into_inner() },
    }
}

/// How many of `seeds` seeds find the bug by an invariant that it breaks.
pub fn count(bug: Bug, seeds: u64) -> usize {
    let (next, found) = (AtomicU64::new(0), AtomicUsize::new(0));
    thread::scope(|scope| {
        for _ in 0..default_jobs().get() {
            scope.spawn(|| {
                loop {
                    let seed = next.fetch_add(1, Ordering::Relaxed);
                    if seed >= seeds {
                        return;
                    }
                    if try_seed(bug, seed).is_some_and(|found| found.is_own()) {
                        found.fetch_add(1, Ordering::Relaxed);
                    }
                }
            });
        }
    });
    found.into_inner()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_bug_breaks_an_invariant() {
        let without: Vec<&Bug> = Bug::ALL.iter().filter(|bug| invariants(**bug).is_empty()).collect();
        assert!(without.is_empty(), "say in `invariants` what {without:?} breaks");
    }

    #[test]
    fn a_failure_by_another_invariant_does_not_find_a_bug() {
        let found =
            |what: &str| Found { bug: Bug::ThawedGoesOn, seed: 0, theme: None, what: what.to_owned() };
        assert!(found("at 5.5s: 1: i1 starts a call on partition 0").is_own());
        for what in [
            "at 5.5s: 6: partition 8 was passed on",
            "4: 2 of 9 events were never handled",
            "the engine panicked",
        ] {
            assert!(!found(what).is_own(), "{what}");
        }
    }
}
