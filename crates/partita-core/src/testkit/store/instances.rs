//! Heartbeats and burials.

use std::time::Duration;

use super::StoreHarness;
use super::group::{Group, incarnation, record};
use crate::model::{PartitionId, Position, SequenceNumber, StreamId, Timestamp};
use crate::store::{
    FailingPartition, InstanceDetails, InstanceOutcome, InstanceRecord, InstanceSeen, InstanceState,
    InstanceWrite, Version,
};

fn bury(seen: &InstanceSeen, expect: &Version, age_min: Duration) -> InstanceWrite {
    let victim = seen.record.incarnation.clone();
    InstanceWrite::Bury { victim, expect: expect.clone(), age_min }
}

#[track_caller]
fn is_applied(outcome: InstanceOutcome) -> InstanceSeen {
    match outcome {
        InstanceOutcome::Applied(seen) => seen,
        refused => panic!("a write whose condition holds was refused: {refused:?}"),
    }
}

/// The record that refused a write.
#[track_caller]
fn is_refused(outcome: InstanceOutcome) -> InstanceSeen {
    match outcome {
        InstanceOutcome::Refused(Some(seen)) => seen,
        InstanceOutcome::Refused(None) => panic!("a refusal must show the record that there is"),
        applied => panic!("a write whose condition does not hold was applied: {applied:?}"),
    }
}

/// An incarnation registers once; a second time it is shown the record that there is.
pub async fn register_twice_is_refused(harness: &dyn StoreHarness) {
    let group = Group::new(harness).await;
    let seen = group.join("one").await;
    let again = InstanceRecord { stopping: true, ..seen.record.clone() };
    let current = is_refused(group.instance(InstanceWrite::Register(again)).await);
    assert_eq!((&current.record, &current.version), (&seen.record, &seen.version));
    assert_eq!(group.seen(&seen.record.incarnation).await.map(|seen| seen.record), Some(seen.record));
}

/// A heartbeat leaves another version, and the version before it is good for nothing.
pub async fn heartbeat_bumps_version(harness: &dyn StoreHarness) {
    let group = Group::new(harness).await;
    let first = group.join("one").await;
    let second = is_applied(group.beat(&first).await);
    assert_ne!(first.version, second.version, "a heartbeat must change the version");
    assert_eq!(second.record.beat, first.record.beat + 1);
    let current = is_refused(group.beat(&first).await);
    assert_eq!(current.version, second.version, "a refusal must show the current version");
    is_applied(group.beat(&second).await);
}

/// A heartbeat replaces all that an instance tells about itself.
pub async fn heartbeat_carries_the_record(harness: &dyn StoreHarness) {
    let group = Group::new(harness).await;
    let first = group.join("one").await;
    let record = InstanceRecord {
        stopping: true,
        ttl: std::time::Duration::from_millis(12_345),
        declines: ["10", "2", "a/b"].map(PartitionId::from).to_vec(),
        beat: 1,
        details: InstanceDetails {
            stream: Some(StreamId::new("a life, ä/b")),
            initial_position: Some(Position::Time(Timestamp(1_700_000_000_123))),
            failing: vec![
                FailingPartition {
                    partition: PartitionId::from("a/b"),
                    since: Timestamp(1),
                    attempts: u32::MAX,
                    retry_at: Timestamp(2),
                    sequence: Some(SequenceNumber(i64::MAX)),
                    error: "1:2|3, \"ä\"\n4 5".into(),
                },
                FailingPartition {
                    partition: PartitionId::from(2),
                    since: Timestamp(3),
                    attempts: 1,
                    retry_at: Timestamp(4),
                    sequence: None,
                    error: "".into(),
                },
            ],
        },
        ..first.record.clone()
    };
    let beat = InstanceWrite::Beat { record: record.clone(), expect: first.version };
    let second = is_applied(group.instance(beat).await);
    assert_eq!(second.record, record);
    let seen = group.seen(&record.incarnation).await.expect("the instance is in the view");
    assert_eq!((seen.record, seen.version), (record, second.version));
}

/// Ages grow with the store's clock and start over at a heartbeat.
pub async fn heartbeat_makes_young(harness: &dyn StoreHarness) {
    let group = Group::new(harness).await;
    let step = group.store.properties().stamp_step;
    let (one, other) = (group.join("one").await, group.join("other").await);
    let silence = Duration::from_millis(300);
    harness.pass(silence + step).await;
    is_applied(group.beat(&one).await);
    let beaten = group.seen(&one.record.incarnation).await.expect("the instance is in the view");
    let silent = group.seen(&other.record.incarnation).await.expect("the instance is in the view");
    assert!(silent.age >= silence, "silent for {silence:?}, but seen as {:?} old", silent.age);
    assert!(beaten.age < silent.age, "a heartbeat must make young: {:?} < {:?}", beaten.age, silent.age);
}

/// Who was buried learns it by its next heartbeat.
pub async fn heartbeat_of_the_dead_is_refused(harness: &dyn StoreHarness) {
    let group = Group::new(harness).await;
    let seen = group.join("one").await;
    let dead = is_applied(group.instance(bury(&seen, &seen.version, Duration::ZERO)).await);
    assert_eq!(dead.record.state, InstanceState::Dead);
    for expect in [&seen, &dead] {
        assert_eq!(is_refused(group.beat(expect).await).record.state, InstanceState::Dead);
    }
    let gone = record(&incarnation("never registered"));
    let beat = InstanceWrite::Beat { record: gone, expect: seen.version };
    assert_eq!(group.instance(beat).await, InstanceOutcome::Refused(None));
}

/// No write makes a dead incarnation live.
pub async fn dead_is_terminal(harness: &dyn StoreHarness) {
    let group = Group::new(harness).await;
    let seen = group.join("one").await;
    let dead = group.leave(&seen).await;
    let incarnation = seen.record.incarnation;
    let writes = [
        InstanceWrite::Register(record(&incarnation)),
        InstanceWrite::Beat { record: record(&incarnation), expect: dead.version.clone() },
        bury(&dead, &dead.version, Duration::ZERO),
        InstanceWrite::BuryAbsent { victim: incarnation.clone() },
        InstanceWrite::Leave { incarnation: incarnation.clone(), expect: dead.version.clone() },
    ];
    for write in writes {
        assert_eq!(is_refused(group.instance(write).await).record.state, InstanceState::Dead);
    }
    let seen = group.seen(&incarnation).await.expect("the dead stay in the view for an hour");
    assert_eq!((seen.record.state, seen.version), (InstanceState::Dead, dead.version));
}

/// Nobody is buried below the age that the write names, by the store's own clock.
pub async fn young_instance_cannot_be_buried(harness: &dyn StoreHarness) {
    let group = Group::new(harness).await;
    let seen = group.join("one").await;
    let outcome = group.instance(bury(&seen, &seen.version, Duration::from_secs(600))).await;
    assert_eq!(is_refused(outcome).record.state, InstanceState::Live);
    is_applied(group.beat(&seen).await);
}

/// Who was silent for long enough is buried.
pub async fn silent_instance_is_buried(harness: &dyn StoreHarness) {
    let group = Group::new(harness).await;
    let step = group.store.properties().stamp_step;
    let seen = group.join("one").await;
    let age_min = Duration::from_millis(100);
    harness.pass(age_min * 2 + step).await;
    let dead = is_applied(group.instance(bury(&seen, &seen.version, age_min)).await);
    assert_eq!(dead.record, InstanceRecord { state: InstanceState::Dead, ..seen.record.clone() });
    let view = group.seen(&seen.record.incarnation).await.expect("the dead stay in the view");
    assert_eq!((view.record, view.version), (dead.record, dead.version));
}

/// An incarnation without a record is buried by a record that says so, which also stops a registration that comes
/// late; one with a record is not.
pub async fn absent_instance_is_buried_by_tombstone(harness: &dyn StoreHarness) {
    let group = Group::new(harness).await;
    let absent = incarnation("absent");
    let dead = is_applied(group.instance(InstanceWrite::BuryAbsent { victim: absent.clone() }).await);
    assert_eq!((&dead.record.incarnation, dead.record.state), (&absent, InstanceState::Dead));
    assert_eq!(group.seen(&absent).await.map(|seen| seen.record.state), Some(InstanceState::Dead));
    let late = group.instance(InstanceWrite::Register(record(&absent))).await;
    assert_eq!(is_refused(late).record.state, InstanceState::Dead);

    let present = group.join("present").await;
    let victim = present.record.incarnation.clone();
    let outcome = group.instance(InstanceWrite::BuryAbsent { victim }).await;
    assert_eq!(is_refused(outcome).record.state, InstanceState::Live);
    is_applied(group.beat(&present).await);

    let nobody = incarnation("nobody");
    let expect = present.version;
    let outcome =
        group.instance(InstanceWrite::Bury { victim: nobody, expect, age_min: Duration::ZERO }).await;
    assert_eq!(outcome, InstanceOutcome::Refused(None), "an absent record has no version");
}

/// A heartbeat between the look and the burial saves the instance.
pub async fn late_bury_loses_to_a_heartbeat(harness: &dyn StoreHarness) {
    let group = Group::new(harness).await;
    let watched = group.join("one").await;
    let alive = is_applied(group.beat(&watched).await);
    let outcome = group.instance(bury(&watched, &watched.version, Duration::ZERO)).await;
    let current = is_refused(outcome);
    assert_eq!((current.record.state, &current.version), (InstanceState::Live, &alive.version));
    is_applied(group.beat(&alive).await);
}
