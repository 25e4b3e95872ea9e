//! What an [`EventSource`] must do.

mod exclusive;
mod gaps;
mod reading;
mod stream;
mod waiting;

use std::sync::Arc;

use futures_util::future::BoxFuture;

use crate::model::{Body, ConsumerGroup, EventBuilder, PartitionId, SequenceNumber};
use crate::source::{EventSource, MemoryHub};

/// What the suite needs of a source under test: a hub with at least two partitions to which nobody else writes, and
/// a way to write to it. It need not be empty, but a check reads all that it holds.
pub trait SourceHarness: Send + Sync {
    /// A source that reads the hub.
    fn open(&self) -> BoxFuture<'_, Arc<dyn EventSource>>;

    /// Appends events to a partition, in order, and waits until they are readable.
    fn append<'a>(&'a self, partition: &'a PartitionId, events: Vec<EventBuilder>) -> BoxFuture<'a, ()>;

    /// Removes the events of a partition that are older than `before`, at least, as retention does; other events may be
    /// appended for that. False if this hub cannot be made to: then nobody checks that gaps are told.
    fn remove_before<'a>(
        &'a self,
        partition: &'a PartitionId,
        before: SequenceNumber,
    ) -> BoxFuture<'a, bool> {
        let _ = (partition, before);
        Box::pin(async { false })
    }

    /// Two consumer groups of the hub.
    fn groups(&self) -> [ConsumerGroup; 2] {
        [ConsumerGroup::default(), ConsumerGroup::new("second")]
    }

    /// Whether [`SourceHarness::append`] is able to write such a body.
    fn carries(&self, body: &Body) -> bool {
        let _ = body;
        true
    }

    /// Whether the hub knows owner levels.
    fn has_owner_levels(&self) -> bool {
        true
    }

    /// Whether readers know the end of the partition.
    fn tells_last_enqueued(&self) -> bool {
        true
    }
}

impl SourceHarness for MemoryHub {
    fn open(&self) -> BoxFuture<'_, Arc<dyn EventSource>> {
        Box::pin(async { Arc::new(self.source()) as Arc<dyn EventSource> })
    }

    fn append<'a>(&'a self, partition: &'a PartitionId, events: Vec<EventBuilder>) -> BoxFuture<'a, ()> {
        Box::pin(async move {
            self.append_all(partition, events);
        })
    }

    fn remove_before<'a>(
        &'a self,
        partition: &'a PartitionId,
        before: SequenceNumber,
    ) -> BoxFuture<'a, bool> {
        Box::pin(async move {
            self.trim(partition, before);
            true
        })
    }
}

/// Makes a test of every property of a source. Takes a function or closure that gives a future of a fresh
/// [`SourceHarness`], and attributes for the tests before it:
/// `source_conformance!(#[ignore = "needs a server"] fresh)`.
#[macro_export]
macro_rules! source_conformance {
    ($(#[$attribute:meta])* $fresh:expr) => {
        $crate::__source_properties! { $crate::__source_tests { [$(#[$attribute])*] $fresh } }
    };
}

#[doc(hidden)]
#[macro_export]
macro_rules! __source_tests {
    ({ $attributes:tt $fresh:expr } $($module:ident { $($name:ident)* })*) => {
        $($($crate::__source_tests! { @one $attributes $fresh, $name })*)*
    };
    (@one [$(#[$attribute:meta])*] $fresh:expr, $name:ident) => {
        $(#[$attribute])*
        #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
        async fn $name() {
            let harness = ($fresh)().await;
            $crate::testkit::source::$name(&harness).await;
        }
    };
}

/// The one list of properties: tests, names and functions come from it.
#[doc(hidden)]
#[macro_export]
macro_rules! __source_properties {
    ($to:path { $($arguments:tt)* }) => {
        $to! {
            { $($arguments)* }
            reading {
                describes_its_partitions
                reads_in_order_without_gaps
                partitions_do_not_mix
                time_position
                events_max_is_honoured
                last_enqueued_is_told
                bodies_and_properties_survive
                unknown_partition_is_fatal
                position_past_the_end_is_told
            }
            gaps {
                gap_at_the_start_is_told
                gap_in_the_middle_is_told
                several_gaps_are_told_one_by_one
            }
            waiting {
                latest_sees_only_new_events
                waiting_reader_is_woken
                dropped_read_loses_nothing
            }
            exclusive {
                higher_level_evicts
                equal_level_evicts
                lower_level_is_refused
                level_evicts_plain_readers
                plain_reader_is_refused_beside_a_level
                dropped_reader_detaches
                groups_are_independent
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
        pub async fn check(property: &str, harness: &dyn SourceHarness) {
            match property {
                $($(stringify!($name) => $name(harness).await,)*)*
                _ => panic!("no property of sources is called {property:?}"),
            }
        }
    };
}

__source_properties! { functions {} }
