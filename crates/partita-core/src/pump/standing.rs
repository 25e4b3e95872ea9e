//! How a whole instance stands: what every pump of it has to look at.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use tokio::sync::Notify;

use crate::model::Tick;

/// Shared by the run loop, the processor's handle and all pumps.
#[derive(Debug, Default)]
pub(crate) struct Standing {
    /// The processor's handle was dropped: nothing more is delivered.
    abandoned: AtomicBool,
    /// The tick from which on no call may go on: after it, others may have declared this instance dead.
    hard_stop: AtomicU64,
    /// Wakes the run loop when a pump is gone and there was no room to say so.
    pub(crate) pump_gone: Notify,
}

impl Standing {
    pub(crate) fn abandon(&self) {
        self.abandoned.store(true, Ordering::Release);
    }

    #[inline]
    pub(crate) fn is_abandoned(&self) -> bool {
        self.abandoned.load(Ordering::Acquire)
    }

    pub(crate) fn set_hard_stop(&self, at: Tick) {
        self.hard_stop.store(at.0, Ordering::Release);
    }

    /// Whether the instance's time is over, by its own clock.
    #[inline]
    pub(crate) fn is_over(&self, now: Tick) -> bool {
        now.0 >= self.hard_stop.load(Ordering::Acquire)
    }
}
