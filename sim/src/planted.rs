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

/// Looks for the first of `seeds` seeds that finds the bug, on several threads.
pub fn hunt(bug: Bug, seeds: u64, jobs: Option<NonZeroUsize>) -> Option<Found> {
    let (next, best) = (AtomicU64::new(0), Mutex::new(None::<Found>));
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
                    if let Some(found) = try_seed(bug, seed) {
                        let mut best = best.lock().unwrap_or_else(PoisonError::into_inner);
                        if best.as_ref().is_none_or(|known| seed < known.seed) {
                            *best = Some(found);
                        }
                    }
                }
            });
        }
    });
    best.into_inner().unwrap_or_else(PoisonError::into_inner)
}

/// How many of `seeds` seeds find the bug.
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
                    if try_seed(bug, seed).is_some() {
                        found.fetch_add(1, Ordering::Relaxed);
                    }
                }
            });
        }
    });
    found.into_inner()
}
