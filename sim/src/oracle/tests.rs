//! What the oracle must notice, and what it must not mind.

use std::time::Duration;

use partita_core::model::{Event, Incarnation, Offset, SequenceNumber, Timestamp};
use partita_core::store::{MoveReason, Op, Version};
use tokio::time::advance;

use super::*;

fn event(sequence: i64, body: &str) -> Event {
    Event::builder(body.to_owned()).at(SequenceNumber(sequence), Offset::number(0), Timestamp(0))
}

/// An oracle that has just heard of `i1`, which owns partition 0 at epoch 1 and has opened it; events 0 to 9 were produced.
fn oracle(drift: bool) -> (Oracle, InstanceId, PartitionId) {
    let rules = Rules {
        start: Instant::now(),
        timing: Timing::FAST,
        atomic: true,
        still_from: None,
        once: false,
        drift,
        declared: false,
        keep_trace: false,
    };
    let (mut oracle, instance, partition) = (Oracle::new(rules), InstanceId::new("i1"), PartitionId::from(0));
    let owner = Incarnation::new(instance.clone(), 1);
    let ownership = Ownership {
        partition: partition.clone(),
        owner: Some(owner.clone()),
        epoch: Epoch(1),
        next: None,
        since: Timestamp(0),
        reason: MoveReason::Claimed,
        op: Op { by: owner.clone(), number: 1 },
        version: Version::number(1),
    };
    oracle.ownerships.insert(partition.clone(), ownership);
    oracle.acknowledged.insert(owner, Instant::now());
    oracle.opened(&instance, &partition, Epoch(1));
    (0..10).for_each(|sequence| oracle.produced(&partition, sequence, &format!("event {sequence}")));
    (oracle, instance, partition)
}

fn wrong(oracle: &Oracle) -> &str {
    oracle.violation().map_or("", |violation| &violation.what)
}

#[tokio::test(start_paused = true)]
async fn an_event_that_is_not_what_was_produced_is_noticed() {
    let (mut oracle, instance, partition) = oracle(false);
    let call = oracle.call_started(&instance, &partition, Epoch(1), &[event(0, "event 0")]);
    oracle.call_ended(call);
    assert_eq!(wrong(&oracle), "");
    oracle.call_started(&instance, &partition, Epoch(1), &[event(1, "event 2")]);
    assert!(
        wrong(&oracle).starts_with("4: event 1 of partition 0 is not what was produced"),
        "{}",
        wrong(&oracle)
    );
}

#[tokio::test(start_paused = true)]
async fn an_event_whose_producer_was_told_nothing_may_be_there_once() {
    let (mut oracle, _, partition) = oracle(false);
    oracle.sent_in_vain(&partition, "perhaps");
    let deliver = |oracle: &mut Oracle, sequence, body| {
        oracle.check_contents(&partition, &[event(sequence, body)]);
    };
    deliver(&mut oracle, 10, "perhaps");
    deliver(&mut oracle, 10, "perhaps");
    assert_eq!(wrong(&oracle), "");
    deliver(&mut oracle, 11, "perhaps");
    assert!(wrong(&oracle).starts_with("4: event 11"), "{}", wrong(&oracle));
}

#[tokio::test(start_paused = true)]
async fn a_number_that_is_given_twice_is_noticed() {
    let (mut oracle, _, partition) = oracle(false);
    oracle.produced(&partition, 9, "another");
    assert!(wrong(&oracle).starts_with("4: two events of partition 0"), "{}", wrong(&oracle));
}

#[tokio::test(start_paused = true)]
async fn a_call_after_the_end_of_the_lease_is_noticed_by_the_clock_of_its_machine() {
    for (drift, late, fine) in [
        (false, Duration::from_millis(0), false),
        (true, Duration::from_millis(0), true),
        (true, Duration::from_millis(2), false),
    ] {
        let (mut oracle, instance, partition) = oracle(drift);
        advance(Timing::FAST.lease() + late).await;
        oracle.call_started(&instance, &partition, Epoch(1), &[event(0, "event 0")]);
        assert_eq!(wrong(&oracle).is_empty(), fine, "{late:?}: {}", wrong(&oracle));
        assert!(
            fine || wrong(&oracle).starts_with("1: i1 starts a call on partition 0 with a lease of 3.5s")
        );
    }
}

#[tokio::test(start_paused = true)]
async fn after_a_seek_delivery_goes_on_there_and_nowhere_else() {
    for (first, fine) in [(2, true), (4, false)] {
        let (mut oracle, instance, partition) = oracle(false);
        let events: Vec<Event> =
            (0..4).map(|sequence| event(sequence, &format!("event {sequence}"))).collect();
        let call = oracle.call_started(&instance, &partition, Epoch(1), &events);
        oracle.sought(&instance, &partition, 2);
        oracle.call_ended(call);
        oracle.call_started(&instance, &partition, Epoch(1), &[event(first, &format!("event {first}"))]);
        assert_eq!(wrong(&oracle).is_empty(), fine, "{first}: {}", wrong(&oracle));
    }
}
