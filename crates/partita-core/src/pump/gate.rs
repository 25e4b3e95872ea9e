//! What is asked before every call of user code.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use super::state::PumpState;
use crate::model::{Event, Tick};
use crate::runtime::Runtime;

/// How long a handler of single events goes through a batch before what it handled is accounted for: otherwise a slow
/// one would hold up its checkpoints for a whole batch.
const SLICE: Duration = Duration::from_millis(100);

/// Asked before every call of user code (invariant 1 in ARCHITECTURE.md), and told how far it came.
pub(crate) struct Gate {
    shared: Arc<PumpState>,
    runtime: Arc<dyn Runtime>,
    /// Atomic only to be shared with a handler that moves between threads: nobody else writes it.
    done: AtomicUsize,
    started: AtomicU64,
}

impl Gate {
    pub(crate) fn new(shared: Arc<PumpState>, runtime: Arc<dyn Runtime>) -> Self {
        Self { shared, runtime, done: AtomicUsize::new(0), started: AtomicU64::new(0) }
    }

    /// Whether a call may start at this moment: the lease is valid, nobody wants us to stop, and the batch has not
    /// gone on for long.
    #[inline]
    pub(crate) fn may_start(&self) -> bool {
        let now = self.runtime.now();
        if self.done() == 0 {
            self.started.store(now.0, Ordering::Relaxed);
        } else if now.since(self.started()) >= SLICE {
            return false;
        }
        self.shared.may_start(now)
    }

    pub(super) fn begin(&self, events: &[Event]) {
        if let Some(last) = events.last() {
            self.shared.set_delivered(last.sequence_number());
        }
    }

    #[inline]
    pub(super) fn handled(&self, events: usize) {
        self.done.store(self.done() + events, Ordering::Relaxed);
    }

    /// When the batch's first call was allowed to start.
    pub(crate) fn started(&self) -> Tick {
        Tick(self.started.load(Ordering::Relaxed))
    }

    /// How many events of the batch were handled.
    #[inline]
    pub(crate) fn done(&self) -> usize {
        self.done.load(Ordering::Relaxed)
    }

    /// For the next batch.
    pub(crate) fn reset(&mut self) {
        *self.done.get_mut() = 0;
    }

    pub(crate) fn now(&self) -> Tick {
        self.runtime.now()
    }
}
