//! The suite for stores is able to fail: each fault is found by the properties it breaks, and there is no property
//! that no fault breaks.

mod broken;

use std::collections::BTreeSet;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;

use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use partita_core::store::{CheckpointStore, MemoryStore};
use partita_core::testkit::store::{PROPERTIES, StoreHarness, check};

use self::broken::{Broken, Fault};

const FAULTS: &[(Fault, &[&str])] = &[
    (Fault::InstanceVersionIgnored, &["heartbeat_bumps_version", "late_bury_loses_to_a_heartbeat"]),
    (
        Fault::OwnershipVersionIgnored,
        &["stale_version_loses", "claim_of_an_absent_record_is_won_once", "concurrent_writers_one_winner"],
    ),
    (Fault::RegisterOverwrites, &["register_twice_is_refused"]),
    (
        Fault::DeadRevived,
        &["heartbeat_of_the_dead_is_refused", "dead_is_terminal", "absent_instance_is_buried_by_tombstone"],
    ),
    (Fault::AgeIgnored, &["young_instance_cannot_be_buried"]),
    (Fault::AlwaysYoung, &["silent_instance_is_buried", "heartbeat_makes_young"]),
    (Fault::BeatOnlyCounts, &["heartbeat_carries_the_record"]),
    (
        Fault::FenceIgnored,
        &[
            "fenced_checkpoint_is_refused",
            "unsealed_checkpoint_is_refused",
            "seek_of_a_former_epoch_is_fenced",
        ],
    ),
    (Fault::SealForgetsPosition, &["seal_keeps_the_position"]),
    (Fault::SealBelowApplied, &["seal_below_is_fenced"]),
    (Fault::SealOnce, &["seal_is_idempotent"]),
    (Fault::MonotoneMissing, &["checkpoint_never_falls", "concurrent_checkpoints_keep_the_highest"]),
    (Fault::StreamIgnored, &["checkpoint_of_a_new_stream_may_start_over"]),
    (Fault::RepeatRefused, &["checkpoint_repeats_are_harmless"]),
    (Fault::LateCheckpointTaken, &["late_checkpoint_does_not_undo_a_seek"]),
    (Fault::SeekIgnored, &["seek_goes_back", "positions_keep_their_form"]),
    (Fault::TwoStepTransfer, &["refused_transfer_changes_nothing"]),
    (Fault::TransferWithoutCheckpoint, &["transfer_with_last_checkpoint_is_one_step"]),
    (Fault::StaleView, &["release_is_seen_at_once"]),
    (Fault::MovesRepeated, &["request_is_no_move", "moves_are_logged_and_bounded"]),
    (Fault::GroupIgnored, &["scopes_do_not_mix"]),
    (Fault::GroupCaseKept, &["scopes_do_not_mix"]),
    (Fault::Forgetful, &["records_survive_reopening", "release_is_seen_at_once"]),
    (Fault::ViewUnsorted, &["view_is_sorted_and_complete"]),
    (Fault::NamesFolded, &["long_and_odd_names"]),
    (Fault::DroppedCallKeepsLock, &["dropped_futures_do_no_harm"]),
    (
        Fault::NotificationLost,
        &["change_wakes_the_one_it_concerns", "change_before_the_question_is_told", "membership_wakes_all"],
    ),
    (Fault::OnlyLaterChanges, &["change_before_the_question_is_told"]),
    (Fault::WakesAlways, &["heartbeats_wake_nobody"]),
    (
        Fault::AdoptionPretended,
        &[
            "adopted_scope_has_all_records",
            "scope_in_use_is_not_adopted",
            "scope_of_another_stream_is_not_adopted",
            "scope_with_records_adopts_none",
        ],
    ),
];

struct Harness {
    fault: Fault,
    store: Arc<dyn CheckpointStore>,
}

impl Harness {
    fn new(fault: Fault) -> Self {
        Self { fault, store: Arc::new(Broken::new(fault)) }
    }
}

impl StoreHarness for Harness {
    fn open(&self) -> BoxFuture<'_, Arc<dyn CheckpointStore>> {
        let store = match self.fault {
            Fault::Forgetful => Arc::new(MemoryStore::new()) as Arc<dyn CheckpointStore>,
            _ => Arc::clone(&self.store),
        };
        Box::pin(std::future::ready(store))
    }
}

/// The properties that do not hold.
async fn failures(fault: Fault) -> BTreeSet<&'static str> {
    let mut failed = BTreeSet::new();
    for property in PROPERTIES {
        let harness = Harness::new(fault);
        if AssertUnwindSafe(check(property, &harness)).catch_unwind().await.is_err() {
            failed.insert(*property);
        }
    }
    failed
}

#[tokio::test(start_paused = true)]
async fn a_store_without_fault_passes() {
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
