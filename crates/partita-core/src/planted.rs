//! Bugs on purpose, so that the simulation can show that it would find them. Only in builds with the feature `planted`;
//! without it the checks are the constant `false` and leave nothing behind.
//!
//! A bug is switched on for what runs on the calling thread, by [`with`]: a simulated world is one thread, so worlds with
//! different bugs can run side by side, and nothing has to be passed through the engine for the sake of the switch.

/// Whether a bug is switched on here. One line where the engine would go wrong: `if planted!(EpochNotRaised) { .. }`.
#[cfg(feature = "planted")]
#[macro_export]
#[doc(hidden)]
macro_rules! planted {
    ($bug:ident) => {
        $crate::planted::is_on($crate::planted::Bug::$bug)
    };
}

/// Without the feature nothing is planted.
#[cfg(not(feature = "planted"))]
#[macro_export]
#[doc(hidden)]
macro_rules! planted {
    ($bug:ident) => {
        false
    };
}

#[cfg(feature = "planted")]
pub use switch::{Bug, is_on, with};

#[cfg(feature = "planted")]
mod switch {
    use std::cell::Cell;

    macro_rules! bugs {
        ($($bug:ident: $what:literal,)*) => {
            /// What can be wrong on purpose.
            #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
            #[allow(missing_docs)] // `what` says it.
            pub enum Bug { $($bug,)* }

            impl Bug {
                /// All of them.
                pub const ALL: &'static [Self] = &[$(Self::$bug,)*];

                /// What is wrong, in a few words.
                pub fn what(self) -> &'static str {
                    match self { $(Self::$bug => $what,)* }
                }

                /// Its name.
                pub fn name(self) -> &'static str {
                    match self { $(Self::$bug => stringify!($bug),)* }
                }
            }
        };
    }

    bugs! {
        FenceRemoved: "a checkpoint is accepted from any epoch",
        EpochNotRaised: "a change of owner keeps the epoch",
        ReleaseBeforeDrain: "a partition is passed on while its handler still runs",
        LostReplyAsRefusal: "a write without an answer counts as not done",
        CheckpointBeforeHandling: "events count as handled when they are delivered",
        RemoteTimestamp: "the age of an instance is its own stamp against the observer's clock",
        ThawedGoesOn: "a call starts without a look at the lease",
        NextNeverCleared: "an owner waits for ever for a next owner that is gone",
        MonotoneMissing: "a delayed checkpoint moves the position back",
        PlanByInputOrder: "the plan depends on the order in which members are listed",
        TwoPumps: "a partition that was lost and regained is opened while its old call still runs",
        UnsealedRetention: "retention drops the segment that is being written",
        NoBurial: "a partition is taken from an owner that was not declared dead",
        LeaseFromAnswer: "a lease counts from the answer of the heartbeat",
        NoQuietRule: "after an outage the first one back declares the others dead",
        StoreClockTrusted: "an instance is declared dead by the store's clock alone",
        TransferBeforeCheckpoint: "a partition is passed on before its last checkpoint is confirmed",
        GrowthIgnored: "partitions that are added later are not noticed",
        FailedCallCounted: "events of a call that failed count as handled",
        FrozenCallGoesOn: "a call that stood still with its process goes on although the lease is over",
        AcknowledgedTooEarly: "the log acknowledges before the write is durable",
    }

    thread_local! {
        static ON: Cell<Option<Bug>> = const { Cell::new(None) };
    }

    /// Whether this bug is switched on for this thread.
    #[inline]
    pub fn is_on(bug: Bug) -> bool {
        ON.get() == Some(bug)
    }

    /// Runs something with this bug, on this thread.
    pub fn with<T>(bug: Option<Bug>, run: impl FnOnce() -> T) -> T {
        struct Restore(Option<Bug>);
        impl Drop for Restore {
            fn drop(&mut self) {
                ON.set(self.0);
            }
        }
        let _restore = Restore(ON.replace(bug));
        run()
    }
}

#[cfg(all(test, feature = "planted"))]
mod tests {
    use super::*;

    #[test]
    fn a_bug_is_on_only_where_it_was_switched_on() {
        assert!(!planted!(FenceRemoved));
        with(Some(Bug::FenceRemoved), || {
            assert!(planted!(FenceRemoved) && !planted!(EpochNotRaised));
            std::thread::spawn(|| assert!(!planted!(FenceRemoved))).join().unwrap();
        });
        assert!(!planted!(FenceRemoved));
    }
}
