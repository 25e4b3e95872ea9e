//! Many worlds, on several threads: they know nothing of one another.

use std::num::NonZeroUsize;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::thread;
use std::time::Instant;

use crate::summary::Summary;
use crate::world::{Report, World};

/// How many threads there are if nobody says.
pub(crate) fn default_jobs() -> NonZeroUsize {
    thread::available_parallelism().unwrap_or(NonZeroUsize::MIN)
}

/// Runs the worlds that `world` makes of `count` seeds from `first` on, `jobs` at a time (as many as there are cores if
/// none). `ran` hears of each.
pub fn run_all(
    first: u64,
    count: u64,
    jobs: Option<NonZeroUsize>,
    world: impl Fn(u64) -> World + Sync,
    ran: impl Fn(&Report) + Sync,
) -> Summary {
    let started = Instant::now();
    let (next, summary) = (AtomicU64::new(0), Mutex::new(Summary::default()));
    thread::scope(|scope| {
        for _ in 0..jobs.unwrap_or_else(default_jobs).get() {
            scope.spawn(|| {
                loop {
                    let index = next.fetch_add(1, Ordering::Relaxed);
                    if index >= count {
                        return;
                    }
                    let report = world(first.saturating_add(index)).run();
                    ran(&report);
                    summary.lock().unwrap_or_else(PoisonError::into_inner).add(&report);
                }
            });
        }
    });
    let mut summary = summary.into_inner().unwrap_or_else(PoisonError::into_inner);
    summary.failures.sort();
    summary.took = started.elapsed();
    summary
}
