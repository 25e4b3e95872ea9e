//! The suite for sources is able to fail: each fault is found by the properties it breaks, and there is no property
//! that no fault breaks.

mod broken;

use std::collections::BTreeSet;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;

use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use partita_core::model::{EventBuilder, PartitionId, SequenceNumber};
use partita_core::source::{EventSource, MemoryHub};
use partita_core::testkit::source::{PROPERTIES, SourceHarness, check};

use self::broken::{Broken, Fault};

const FAULTS: &[(Fault, &[&str])] = &[
    (Fault::PartitionToldTwice, &["describes_its_partitions"]),
    (Fault::EventSkipped, &["reads_in_order_without_gaps"]),
    (Fault::EventRepeated, &["reads_in_order_without_gaps"]),
    (Fault::AlwaysInclusive, &["reads_in_order_without_gaps"]),
    (Fault::OnePartition, &["partitions_do_not_mix", "unknown_partition_is_fatal"]),
    (Fault::TimeIgnored, &["time_position"]),
    (Fault::LimitIgnored, &["events_max_is_honoured"]),
    (Fault::EndNotTold, &["last_enqueued_is_told"]),
    (Fault::PropertiesLost, &["bodies_and_properties_survive"]),
    (Fault::EndIsTheLimit, &["position_past_the_end_is_told"]),
    (
        Fault::GapNotTold,
        &["gap_at_the_start_is_told", "gap_in_the_middle_is_told", "several_gaps_are_told_one_by_one"],
    ),
    (Fault::GapToldAtStartOnly, &["gap_in_the_middle_is_told", "several_gaps_are_told_one_by_one"]),
    (Fault::LastGapOnly, &["several_gaps_are_told_one_by_one"]),
    (Fault::LatestIsEarliest, &["latest_sees_only_new_events"]),
    (Fault::NeverWoken, &["waiting_reader_is_woken"]),
    (Fault::DroppedReadLoses, &["dropped_read_loses_nothing"]),
    (
        Fault::LevelsIgnored,
        &[
            "higher_level_evicts",
            "equal_level_evicts",
            "lower_level_is_refused",
            "level_evicts_plain_readers",
            "plain_reader_is_refused_beside_a_level",
        ],
    ),
    (Fault::DropKeepsLevel, &["dropped_reader_detaches"]),
    (Fault::GroupIgnored, &["groups_are_independent"]),
];

struct Harness {
    hub: MemoryHub,
    fault: Fault,
}

impl SourceHarness for Harness {
    fn open(&self) -> BoxFuture<'_, Arc<dyn EventSource>> {
        let source = Broken { inner: self.hub.source(), fault: self.fault };
        Box::pin(async { Arc::new(source) as Arc<dyn EventSource> })
    }

    fn append<'a>(&'a self, partition: &'a PartitionId, events: Vec<EventBuilder>) -> BoxFuture<'a, ()> {
        SourceHarness::append(&self.hub, partition, events)
    }

    fn remove_before<'a>(
        &'a self,
        partition: &'a PartitionId,
        before: SequenceNumber,
    ) -> BoxFuture<'a, bool> {
        SourceHarness::remove_before(&self.hub, partition, before)
    }
}

/// The properties that do not hold.
async fn failures(fault: Fault) -> BTreeSet<&'static str> {
    let mut failed = BTreeSet::new();
    for property in PROPERTIES {
        let harness = Harness { hub: MemoryHub::new("hub", 2), fault };
        if AssertUnwindSafe(check(property, &harness)).catch_unwind().await.is_err() {
            failed.insert(*property);
        }
    }
    failed
}

#[tokio::test(start_paused = true)]
async fn a_source_without_fault_passes() {
    assert_eq!(failures(Fault::None).await, BTreeSet::new());
}

#[tokio::test(start_paused = true)]
async fn every_fault_is_found_and_every_property_can_fail() {
    let mut can_fail: BTreeSet<&str> = BTreeSet::new();
    for (fault, expected) in FAULTS {
        let failed = failures(*fault).await;
        for property in *expected {
            assert!(failed.contains(property), "{fault:?} was not found by {property}, but by {failed:?}");
        }
        can_fail.extend(*expected);
    }
    let all: BTreeSet<&str> = PROPERTIES.iter().copied().collect();
    assert_eq!(all.difference(&can_fail).collect::<Vec<_>>(), Vec::<&&str>::new(), "these never fail");
}
