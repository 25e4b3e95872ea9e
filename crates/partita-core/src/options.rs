//! The options and their defaults. docs/options.md is compared with this file by a test.

use std::num::NonZeroU64;
use std::time::Duration;

use crate::balance::{Pace, Policy};
use crate::model::{ConsumerGroup, Position};
use crate::timing::{Timing, TimingError};

/// When positions are checkpointed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Checkpoint {
    /// By the pump, after so many events or so much time, whichever comes first, and always before a partition is
    /// handed over.
    Auto {
        /// After this many events.
        events: Option<NonZeroU64>,
        /// After this time, if anything was handled.
        after: Option<Duration>,
    },
    /// Only by [`Context::checkpoint`](crate::handler::Context::checkpoint).
    Manual,
}

impl Checkpoint {
    /// After this many events; 0 counts as 1.
    pub const fn every(events: u64) -> Self {
        let events = match NonZeroU64::new(events) {
            Some(events) => events,
            None => NonZeroU64::MIN,
        };
        Self::Auto { events: Some(events), after: None }
    }

    /// After this time, if anything was handled.
    pub const fn after(time: Duration) -> Self {
        Self::Auto { events: None, after: Some(time) }
    }

    /// Also after this time.
    pub const fn or_after(self, time: Duration) -> Self {
        match self {
            Self::Auto { events, .. } => Self::Auto { events, after: Some(time) },
            Self::Manual => Self::after(time),
        }
    }
}

/// What happens after a handler's error or panic.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum FailurePolicy {
    /// Deliver again from the first event not yet handled, after a pause that doubles, for ever. Other partitions
    /// go on meanwhile.
    Retry {
        /// The first pause.
        first: Duration,
        /// The longest pause.
        longest: Duration,
    },
    /// Pass the rest of the batch over and report it, as the EventProcessorHost did. The batch is what was taken from the
    /// queue, up to `batch_size` events, also under `on_event`: there, events behind the one that failed are passed over
    /// without a call. A `batch_size` of 1 passes over the failing event alone.
    SkipRest,
}

impl Default for FailurePolicy {
    fn default() -> Self {
        Self::Retry { first: Duration::from_millis(100), longest: Duration::from_secs(30) }
    }
}

/// What happens when the hub does not have the event that was handled last: another one is in its place, or the partition ends
/// before it. A hub that says that it was reset is another matter: that is always started over.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
#[non_exhaustive]
pub enum ChangedPast {
    /// Handle nothing of the partition, say so, and look again after a pause.
    #[default]
    Refuse,
    /// Start over at the hub's earliest event: what it has was not handled, or is handled again.
    StartOver,
    /// Go on after the number of the event that was handled last; where the partition ends before it, with what comes next.
    GoOn,
}

/// All options of a processor but its source, store and handler.
#[derive(Clone, PartialEq, Debug)]
pub struct Options {
    pub(crate) group: ConsumerGroup,
    pub(crate) batch_size: usize,
    pub(crate) max_wait: Duration,
    pub(crate) call_on_empty: bool,
    pub(crate) prefetch_events: usize,
    pub(crate) prefetch_bytes: usize,
    pub(crate) drain_time: Duration,
    pub(crate) cool_down: Duration,
    pub(crate) discovery_interval: Duration,
    pub(crate) policy: Policy,
    pub(crate) pace: Pace,
    pub(crate) initial_position: Position,
    pub(crate) checkpoint: Checkpoint,
    pub(crate) on_failure: FailurePolicy,
    pub(crate) changed_past: ChangedPast,
    /// None = what suits the store.
    pub(crate) timing: Option<Timing>,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            group: ConsumerGroup::default(),
            batch_size: 10,
            max_wait: Duration::from_secs(1),
            call_on_empty: false,
            prefetch_events: 300,
            prefetch_bytes: 4 * 1024 * 1024,
            drain_time: Duration::from_secs(10),
            cool_down: Duration::from_secs(10),
            discovery_interval: Duration::from_secs(10),
            policy: Policy::Count,
            pace: Pace::Greedy,
            initial_position: Position::Earliest,
            checkpoint: Checkpoint::every(1_000).or_after(Duration::from_secs(1)),
            on_failure: FailurePolicy::default(),
            changed_past: ChangedPast::default(),
            timing: None,
        }
    }
}

impl Options {
    pub(crate) fn check(&self) -> Result<(), ConfigError> {
        let counts = [
            ("batch_size", self.batch_size),
            ("prefetch_events", self.prefetch_events),
            ("prefetch_bytes", self.prefetch_bytes),
        ];
        if let Some((option, _)) = counts.into_iter().find(|(_, count)| *count == 0) {
            return Err(ConfigError::Zero { option });
        }
        let mut times = vec![
            ("max_wait", self.max_wait),
            ("drain_time", self.drain_time),
            ("cool_down", self.cool_down),
            ("discovery_interval", self.discovery_interval),
        ];
        if let Checkpoint::Auto { after: Some(after), .. } = self.checkpoint {
            times.push(("checkpoint", after));
        }
        if let Some((option, _)) = times.into_iter().find(|(_, time)| time.is_zero()) {
            return Err(ConfigError::ZeroTime { option });
        }
        if self.checkpoint == (Checkpoint::Auto { events: None, after: None }) {
            return Err(ConfigError::NeverCheckpoints);
        }
        if self.batch_size > self.prefetch_events {
            return Err(ConfigError::BatchOverPrefetch {
                batch_size: self.batch_size,
                prefetch_events: self.prefetch_events,
            });
        }
        if self.group.as_str().is_empty() {
            return Err(ConfigError::EmptyName { option: "consumer_group" });
        }
        if let FailurePolicy::Retry { first, longest } = self.on_failure
            && first > longest
        {
            return Err(ConfigError::RetryPauses { first, longest });
        }
        Ok(())
    }
}

/// Why a processor cannot be built as asked.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ConfigError {
    /// An option that must be positive is zero.
    #[error("{option} must be at least 1")]
    Zero {
        /// The option.
        option: &'static str,
    },
    /// A duration that must pass is zero.
    #[error("{option} must be longer than zero")]
    ZeroTime {
        /// The option.
        option: &'static str,
    },
    /// A batch that could never fill.
    #[error(
        "batch_size {batch_size} is more than prefetch_events {prefetch_events}: a batch could never fill; raise prefetch_events or lower batch_size"
    )]
    BatchOverPrefetch {
        /// The batch size asked for.
        batch_size: usize,
        /// The prefetch asked for.
        prefetch_events: usize,
    },
    /// Calls without events, for a handler that takes one event at a time.
    #[error("call_on_empty needs on_batch or a full handler: on_event has no event to pass")]
    EmptyCallOnEvent,
    /// Automatic checkpoints that never come.
    #[error(
        "checkpoints need a number of events or a time: use Checkpoint::every, Checkpoint::after or Checkpoint::Manual"
    )]
    NeverCheckpoints,
    /// A retry whose first pause is longer than its longest.
    #[error("the first retry pause {first:?} is longer than the longest {longest:?}")]
    RetryPauses {
        /// The first pause.
        first: Duration,
        /// The longest pause.
        longest: Duration,
    },
    /// A name that must not be empty.
    #[error("{option} must not be empty")]
    EmptyName {
        /// The option.
        option: &'static str,
    },
    /// Times that are not safe together.
    #[error(transparent)]
    Timing(#[from] TimingError),
}
