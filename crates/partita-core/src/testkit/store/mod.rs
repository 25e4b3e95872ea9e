//! What a [`CheckpointStore`] must do.

mod adoption;
mod changes;
mod checkpoints;
mod group;
mod instances;
mod ownerships;
mod records;
mod transfers;

use std::sync::Arc;
use std::time::Duration;

use futures_util::future::BoxFuture;

use crate::store::CheckpointStore;

/// What the suite needs of a store under test. An `Arc<dyn CheckpointStore>` is one, for stores that need no more.
///
/// The records need not be empty: every check works in a scope of its own.
pub trait StoreHarness: Send + Sync {
    /// A handle on the records. Calls give handles on the same records, as instances in several processes have.
    fn open(&self) -> BoxFuture<'_, Arc<dyn CheckpointStore>>;

    /// Lets `time` pass by the store's clock.
    fn pass(&self, time: Duration) -> BoxFuture<'_, ()> {
        Box::pin(tokio::time::sleep(time))
    }
}

impl StoreHarness for Arc<dyn CheckpointStore> {
    fn open(&self) -> BoxFuture<'_, Arc<dyn CheckpointStore>> {
        Box::pin(std::future::ready(Arc::clone(self)))
    }
}

/// Makes a test of every property of a store. Takes a function or closure that gives a future of a fresh
/// [`StoreHarness`], and attributes for the tests before it:
/// `store_conformance!(#[ignore = "needs a server"] fresh)`.
#[macro_export]
macro_rules! store_conformance {
    ($(#[$attribute:meta])* $fresh:expr) => {
        $crate::__store_properties! { $crate::__store_tests { [$(#[$attribute])*] $fresh } }
    };
}

#[doc(hidden)]
#[macro_export]
macro_rules! __store_tests {
    ({ $attributes:tt $fresh:expr } $($module:ident { $($name:ident)* })*) => {
        $($($crate::__store_tests! { @one $attributes $fresh, $name })*)*
    };
    (@one [$(#[$attribute:meta])*] $fresh:expr, $name:ident) => {
        $(#[$attribute])*
        #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
        async fn $name() {
            let harness = ($fresh)().await;
            $crate::testkit::store::$name(&harness).await;
        }
    };
}

/// The one list of properties: tests, names and functions come from it.
#[doc(hidden)]
#[macro_export]
macro_rules! __store_properties {
    ($to:path { $($arguments:tt)* }) => {
        $to! {
            { $($arguments)* }
            instances {
                register_twice_is_refused
                heartbeat_bumps_version
                heartbeat_carries_the_record
                heartbeat_makes_young
                heartbeat_of_the_dead_is_refused
                dead_is_terminal
                young_instance_cannot_be_buried
                silent_instance_is_buried
                absent_instance_is_buried_by_tombstone
                late_bury_loses_to_a_heartbeat
            }
            ownerships {
                stale_version_loses
                claim_of_an_absent_record_is_won_once
                concurrent_writers_one_winner
                release_is_seen_at_once
                request_is_no_move
                moves_are_logged_and_bounded
            }
            transfers {
                transfer_with_last_checkpoint_is_one_step
                refused_transfer_changes_nothing
            }
            checkpoints {
                fenced_checkpoint_is_refused
                unsealed_checkpoint_is_refused
                seal_keeps_the_position
                seal_is_idempotent
                seal_below_is_fenced
                checkpoint_never_falls
                checkpoint_repeats_are_harmless
                checkpoint_of_a_new_stream_may_start_over
                concurrent_checkpoints_keep_the_highest
                seek_goes_back
                late_checkpoint_does_not_undo_a_seek
                seek_of_a_former_epoch_is_fenced
                positions_keep_their_form
            }
            records {
                scopes_do_not_mix
                records_survive_reopening
                view_is_sorted_and_complete
                long_and_odd_names
                dropped_futures_do_no_harm
            }
            adoption {
                adopted_scope_has_all_records
                scope_in_use_is_not_adopted
                scope_of_another_stream_is_not_adopted
                scope_with_records_adopts_none
            }
            changes {
                change_wakes_the_one_it_concerns
                change_before_the_question_is_told
                membership_wakes_all
                heartbeats_wake_nobody
            }
        }
    };
}

macro_rules! functions {
    ({} $($module:ident { $($name:ident)* })*) => {
        $(pub use self::$module::{$($name),*};)*

        /// The names of all properties.
        pub const PROPERTIES: &[&str] = &[$($(stringify!($name)),*),*];

        /// Checks the property of this name; panics if it does not hold or if there is none.
        pub async fn check(property: &str, harness: &dyn StoreHarness) {
            match property {
                $($(stringify!($name) => $name(harness).await,)*)*
                _ => panic!("no property of stores is called {property:?}"),
            }
        }
    };
}

__store_properties! { functions {} }
