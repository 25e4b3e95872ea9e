//! The simulator for handlers and stores of one's own.

use std::fmt;
use std::num::NonZeroUsize;
use std::ops::Range;
use std::sync::{Arc, Mutex, PoisonError};

use crate::runs::run_all;
use crate::subject::{AnySubject, Subject};
use crate::summary::Summary;
use crate::theme::Theme;
use crate::world::{Report, World};

type Make = Box<dyn Fn() -> Arc<dyn AnySubject> + Send + Sync>;

/// Runs a subject of your own in worlds with faults, one world per seed.
///
/// In every world a few instances with your handler share a hub that events are produced to, while instances crash, freeze,
/// come and go and the ways to store and hub fail; [`Theme`]s are the kinds of trouble. In the end all faults stop, everything
/// is delivered, and [`Subject::check`] is asked. Partita's own invariants are checked along the way.
#[must_use = "a simulation does nothing until it is run"]
pub struct Simulation {
    make: Make,
    seeds: Range<u64>,
    theme: Option<Theme>,
    jobs: Option<NonZeroUsize>,
    trace: bool,
}

/// A seed that failed, the first one of those that did.
#[derive(Clone, Debug)]
pub struct Failure {
    /// The seed: run it again by [`Simulation::seeds`] with this one alone.
    pub seed: u64,
    /// What the world was about.
    pub theme: Option<Theme>,
    /// What was wrong.
    pub what: String,
    /// How many seeds failed.
    pub failed: usize,
    /// How many were run.
    pub seeds: u64,
    /// What happened in the world, line by line.
    pub trace: Vec<String>,
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let theme = self.theme.map_or("its own", Theme::name);
        write!(
            f,
            "seed {} ({theme}): {}; {} of {} seeds failed",
            self.seed, self.what, self.failed, self.seeds
        )
    }
}

impl std::error::Error for Failure {}

impl Simulation {
    /// Of the subject that `make` makes for every world: 100 seeds, all kinds of trouble.
    pub fn new<S: Subject>(make: impl Fn() -> S + Send + Sync + 'static) -> Self {
        let make: Make = Box::new(move || Arc::new(make()));
        Self { make, seeds: 0..100, theme: None, jobs: None, trace: false }
    }

    /// These seeds: more find more, the same find the same.
    pub fn seeds(mut self, seeds: Range<u64>) -> Self {
        self.seeds = seeds;
        self
    }

    /// Only this kind of trouble.
    pub fn theme(mut self, theme: Theme) -> Self {
        self.theme = Some(theme);
        self
    }

    /// So many seeds at a time; as many as there are cores unless told otherwise.
    pub fn jobs(mut self, jobs: NonZeroUsize) -> Self {
        self.jobs = Some(jobs);
        self
    }

    fn world(&self, seed: u64) -> World {
        let world = match self.theme {
            Some(theme) => World::of(theme, seed),
            None => World::seeded(seed),
        };
        World { subject: Some((self.make)()), keep_trace: self.trace, ..world }
    }

    /// Runs all seeds. The failure, if there is one, is that of the lowest seed that failed, with its trace.
    pub fn run(mut self) -> Result<Summary, Failure> {
        let count = self.seeds.end.saturating_sub(self.seeds.start);
        let first: Mutex<Option<Report>> = Mutex::new(None);
        let summary = run_all(
            self.seeds.start,
            count,
            self.jobs,
            |seed| self.world(seed),
            |report| {
                let mut first = first.lock().unwrap_or_else(PoisonError::into_inner);
                if report.failure().is_some() && first.as_ref().is_none_or(|known| report.seed < known.seed) {
                    *first = Some(report.clone());
                }
            },
        );
        let Some(report) = first.into_inner().unwrap_or_else(PoisonError::into_inner) else {
            return Ok(summary);
        };
        self.trace = true;
        let trace = self.world(report.seed).run().trace;
        let what = report.failure().unwrap_or_default();
        let failed = summary.failures.len();
        Err(Failure { seed: report.seed, theme: report.theme, what, failed, seeds: count, trace })
    }
}
