//! A world: what it is made of, what happens to it, and what came of it.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use fastrand::Rng;

use crate::counts::Counts;
use crate::extras::Extras;
use crate::faults::Plan;
use crate::fleet::Fleet;
use crate::oracle::Violation;
use crate::subject::AnySubject;
use crate::theme::Theme;

/// What a run came to.
#[derive(Clone, Debug)]
pub struct Report {
    /// The seed that it was run with.
    pub seed: u64,
    /// What the world was about, if that was drawn.
    pub theme: Option<Theme>,
    /// What happened.
    pub counts: Counts,
    /// The first invariant that did not hold.
    pub violation: Option<Violation>,
    /// How long healing took after the faults had stopped.
    pub healed_after: Option<Duration>,
    /// Moves after the group was healed.
    pub moves_after_healing: u64,
    /// Whether moves that balance did not take were counted: only where the membership settled.
    pub moves_counted: bool,
    /// How many events the hub had in the end.
    pub produced: u64,
    /// Of those, how many were never handled.
    pub lost: u64,
    /// How long nobody read a partition that was handed over.
    pub handoff_gaps: Vec<Duration>,
    /// How long nobody read a partition whose owner was lost.
    pub failover_gaps: Vec<Duration>,
    /// What the subject had to say in the end, if it was not content.
    pub complaint: Option<String>,
    /// Simulated time.
    pub simulated: Duration,
    /// Of the whole trace.
    pub trace_hash: u64,
    /// The trace, if it was asked for.
    pub trace: Vec<String>,
}

impl Report {
    /// What was wrong with the run, in a sentence.
    pub fn failure(&self) -> Option<String> {
        if let Some(violation) = &self.violation {
            return Some(violation.to_string());
        }
        if self.lost > 0 {
            return Some(format!("4: {} of {} events were never handled", self.lost, self.produced));
        }
        if self.moves_after_healing > 0 {
            return Some(format!("8: {} moves after the group was balanced", self.moves_after_healing));
        }
        self.complaint.clone()
    }
}

/// A world to run.
#[derive(Clone)]
pub struct World {
    pub(crate) seed: u64,
    pub(crate) theme: Option<Theme>,
    pub(crate) plan: Plan,
    pub(crate) keep_trace: bool,
    pub(crate) subject: Option<Arc<dyn AnySubject>>,
}

impl fmt::Debug for World {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("World")
            .field("seed", &self.seed)
            .field("theme", &self.theme)
            .field("plan", &self.plan)
            .finish()
    }
}

impl World {
    /// The world of this seed, of any kind.
    pub fn seeded(seed: u64) -> Self {
        Self::of(Theme::draw(&mut Rng::with_seed(seed)), seed)
    }

    /// The world of this seed and kind.
    pub fn of(theme: Theme, seed: u64) -> Self {
        let mut plan = theme.plan(&mut Rng::with_seed(seed ^ 0x7e3e));
        plan.setup.extras = Extras::draw(theme, &mut Rng::with_seed(seed ^ 0xe872));
        Self { theme: Some(theme), ..Self::with_plan(seed, plan) }
    }

    /// A world with a fate of one's own.
    pub fn with_plan(seed: u64, plan: Plan) -> Self {
        Self { seed, theme: None, plan, keep_trace: false, subject: None }
    }

    /// The world with nothing besides the trouble that it is about.
    pub fn plain(mut self) -> Self {
        self.plan.setup.extras = Extras::default();
        self
    }

    /// Keeps the trace for reading.
    pub fn keep_trace(mut self) -> Self {
        self.keep_trace = true;
        self
    }

    /// What will happen.
    pub fn plan(&self) -> &Plan {
        &self.plan
    }

    /// Runs the world to its end, in a runtime of its own.
    pub fn run(&self) -> Report {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_time()
            .start_paused(true)
            .build()
            .expect("a runtime without I/O can always be built");
        // Inside, so that the fleet is made on the paused clock, too.
        runtime.block_on(async { Fleet::new(self).run().await })
    }
}
