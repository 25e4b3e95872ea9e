//! The fence and the position.

use std::sync::Arc;

use futures_util::future::join_all;

use super::StoreHarness;
use super::group::{Group, after, applied, incarnation, position};
use crate::model::{
    Epoch, Offset, PartitionId, Position, SequenceNumber, StreamId, StreamPosition, Timestamp,
};
use crate::store::{CheckpointOutcome, CheckpointRecord, CheckpointWrite, Resume};

/// A fresh scope with a record that `epoch` sealed and advanced to `to`.
async fn sealed(harness: &dyn StoreHarness, epoch: u64, to: i64) -> (Group, PartitionId, CheckpointRecord) {
    let group = Group::new(harness).await;
    let p = PartitionId::from(0);
    applied(group.seal(&p, epoch).await);
    let record = applied(group.advance(&p, epoch, to).await);
    assert_eq!((record.epoch, &record.resume), (Epoch(epoch), &after(to)));
    assert_eq!(group.stored(&p).await.as_ref(), Some(&record));
    (group, p, record)
}

#[track_caller]
fn is_fenced(outcome: CheckpointOutcome) -> CheckpointRecord {
    match outcome {
        CheckpointOutcome::Fenced(record) => record,
        other => panic!("a write of another epoch than the record's must be fenced: {other:?}"),
    }
}

/// Only the epoch that sealed the record moves its position: neither a former nor a later one does.
pub async fn fenced_checkpoint_is_refused(harness: &dyn StoreHarness) {
    let (group, p, record) = sealed(harness, 3, 10).await;
    for epoch in [2, 4] {
        assert_eq!(is_fenced(group.advance(&p, epoch, 20).await), record);
    }
    let sealed = applied(group.seal(&p, 4).await);
    assert_eq!(is_fenced(group.advance(&p, 3, 20).await), sealed);
    assert_eq!(group.stored(&p).await, Some(sealed));
}

/// A position without a seal is refused: nobody opened the partition.
pub async fn unsealed_checkpoint_is_refused(harness: &dyn StoreHarness) {
    let group = Group::new(harness).await;
    let p = PartitionId::from(0);
    is_fenced(group.advance(&p, 3, 20).await);
    is_fenced(group.seek(&p, 3, Resume::At(Position::Earliest)).await);
    assert!(group.stored(&p).await.is_none_or(|record| record.resume.is_none()));
    applied(group.seal(&p, 1).await);
}

/// A seal stamps the epoch on what is there, also if nothing is.
pub async fn seal_keeps_the_position(harness: &dyn StoreHarness) {
    let group = Group::new(harness).await;
    let p = PartitionId::from(0);
    let first = applied(group.seal(&p, 1).await);
    assert_eq!((first.epoch, &first.resume), (Epoch(1), &None));
    let moved = applied(group.advance(&p, 1, 10).await);
    harness.pass(std::time::Duration::from_millis(5)).await;
    let next = applied(group.seal(&p, 7).await);
    assert_eq!(next.epoch, Epoch(7));
    assert_eq!((&next.resume, &next.stream), (&moved.resume, &moved.stream));
    assert_eq!(next.time, moved.time, "the position is as old as it was");
    assert_ne!(next.version, moved.version, "a seal must change the version");
    assert_eq!(group.stored(&p).await, Some(next));
}

/// A seal that is repeated, because its answer was lost, is applied and changes nothing.
pub async fn seal_is_idempotent(harness: &dyn StoreHarness) {
    let (group, p, record) = sealed(harness, 3, 10).await;
    for _ in 0..3 {
        let again = applied(group.seal(&p, 3).await);
        assert_eq!((again.epoch, again.resume, again.stream), (Epoch(3), after(10), record.stream.clone()));
    }
    applied(group.advance(&p, 3, 11).await);
}

/// A seal of a former epoch is refused.
pub async fn seal_below_is_fenced(harness: &dyn StoreHarness) {
    let (group, p, record) = sealed(harness, 3, 10).await;
    assert_eq!(is_fenced(group.seal(&p, 2).await), record);
    assert_eq!(group.stored(&p).await, Some(record));
}

/// Within one life of the hub a position falls by a seek only, also after a new owner's seal.
pub async fn checkpoint_never_falls(harness: &dyn StoreHarness) {
    let (group, p, record) = sealed(harness, 3, 10).await;
    assert_eq!(group.advance(&p, 3, 9).await, CheckpointOutcome::Behind(record));
    let sealed = applied(group.seal(&p, 4).await);
    assert_eq!(group.advance(&p, 4, 9).await, CheckpointOutcome::Behind(sealed.clone()));
    assert_eq!(group.stored(&p).await, Some(sealed));
    // Numbers, not text: 9 is before 10, and 100 is after it.
    assert_eq!(applied(group.advance(&p, 4, 100).await).resume, after(100));
}

/// A checkpoint that is repeated, because its answer was lost, is applied and changes nothing.
pub async fn checkpoint_repeats_are_harmless(harness: &dyn StoreHarness) {
    let (group, p, record) = sealed(harness, 3, 10).await;
    for _ in 0..3 {
        let again = applied(group.advance(&p, 3, 10).await);
        assert_eq!((again.epoch, again.resume, again.stream), (Epoch(3), after(10), record.stream.clone()));
    }
    assert_eq!(applied(group.advance(&p, 3, 11).await).resume, after(11));
}

/// After the hub was reset its sequence numbers start over, and so may the position.
pub async fn checkpoint_of_a_new_stream_may_start_over(harness: &dyn StoreHarness) {
    let (group, p, _) = sealed(harness, 3, 1_000).await;
    let record = applied(group.advance_in(&p, 3, 0, Some("another-life")).await);
    assert_eq!((record.resume, record.stream), (after(0), Some(StreamId::new("another-life"))));
    applied(group.advance_in(&p, 3, 5, Some("another-life")).await);
    let outcome = group.advance_in(&p, 3, 4, Some("another-life")).await;
    assert!(matches!(outcome, CheckpointOutcome::Behind(_)), "monotone in the new life too: {outcome:?}");

    let untold = PartitionId::from(1);
    applied(group.seal(&untold, 1).await);
    applied(group.advance_in(&untold, 1, 5, None).await);
    let outcome = group.advance_in(&untold, 1, 4, None).await;
    assert!(matches!(outcome, CheckpointOutcome::Behind(_)), "no life told is one life: {outcome:?}");
}

/// Of positions written at once the highest stays.
pub async fn concurrent_checkpoints_keep_the_highest(harness: &dyn StoreHarness) {
    let (group, p, _) = sealed(harness, 3, 0).await;
    let group = Arc::new(group);
    for round in 0..8 {
        let tasks = (0..16).map(|n| {
            let (group, p) = (Arc::clone(&group), p.clone());
            // Not in order, so that some are behind.
            tokio::spawn(async move { group.advance(&p, 3, round * 16 + (n * 7) % 16).await })
        });
        for outcome in join_all(tasks.collect::<Vec<_>>()).await {
            let outcome = outcome.expect("a writer ended");
            assert!(!matches!(outcome, CheckpointOutcome::Fenced(_)), "{outcome:?}");
        }
        let stored = group.stored(&p).await.expect("the record is there");
        assert_eq!(stored.resume, after(round * 16 + 15));
    }
}

/// The owner's seek moves the position back, and checkpoints go on from there.
pub async fn seek_goes_back(harness: &dyn StoreHarness) {
    let (group, p, _) = sealed(harness, 3, 1_000).await;
    let back = Resume::At(Position::at_sequence(SequenceNumber(5)));
    let record = applied(group.seek(&p, 3, back.clone()).await);
    assert_eq!((record.epoch, &record.resume), (Epoch(3), &Some(back)));
    assert_eq!(group.stored(&p).await, Some(record));
    assert_eq!(applied(group.advance(&p, 3, 5).await).resume, after(5));
    assert_eq!(applied(group.seek(&p, 3, Resume::After(position(2))).await).resume, after(2));
    assert_eq!(applied(group.advance(&p, 3, 3).await).resume, after(3));
}

/// A checkpoint that was sent before a seek and comes after it does not undo the seek, nor what was handled since.
pub async fn late_checkpoint_does_not_undo_a_seek(harness: &dyn StoreHarness) {
    let (group, p, _) = sealed(harness, 3, 10).await;
    let owner = incarnation("owner");
    let advance = |to, op| CheckpointWrite::Advance {
        partition: p.clone(),
        epoch: Epoch(3),
        last: position(to),
        stream: None,
        op,
    };
    let (late, later) = (group.op(&owner), group.op(&owner));
    let resume = Resume::At(Position::at_sequence(SequenceNumber(2)));
    let seek = CheckpointWrite::Seek {
        partition: p.clone(),
        epoch: Epoch(3),
        resume,
        stream: None,
        op: group.op(&owner),
    };
    let sought = applied(group.checkpoint(seek).await);
    for to in [5, 20] {
        let outcome = group.checkpoint(advance(to, late.clone())).await;
        assert!(matches!(outcome, CheckpointOutcome::Behind(_)), "it was sent before the seek: {outcome:?}");
    }
    assert_eq!(group.stored(&p).await, Some(sought));
    let handled = applied(group.checkpoint(advance(3, group.op(&owner))).await);
    let outcome = group.checkpoint(advance(20, later)).await;
    assert!(matches!(outcome, CheckpointOutcome::Behind(_)), "it was sent before the seek: {outcome:?}");
    let resume = Resume::At(Position::Earliest);
    let seek =
        CheckpointWrite::Seek { partition: p.clone(), epoch: Epoch(3), resume, stream: None, op: late };
    let outcome = group.checkpoint(seek).await;
    assert!(matches!(outcome, CheckpointOutcome::Behind(_)), "a seek can be late, too: {outcome:?}");
    assert_eq!(group.stored(&p).await, Some(handled));
}

/// A seek of an epoch that did not seal the record is refused.
pub async fn seek_of_a_former_epoch_is_fenced(harness: &dyn StoreHarness) {
    let (group, p, record) = sealed(harness, 3, 10).await;
    for epoch in [2, 4] {
        let outcome = group.seek(&p, epoch, Resume::At(Position::Earliest)).await;
        assert_eq!(is_fenced(outcome), record);
    }
    assert_eq!(group.stored(&p).await, Some(record));
}

/// All that can be sought or checkpointed is read back as it was written.
pub async fn positions_keep_their_form(harness: &dyn StoreHarness) {
    let group = Group::new(harness).await;
    let p = PartitionId::from(0);
    applied(group.seal(&p, u64::from(u32::MAX) + 1).await);
    let sequence = SequenceNumber(i64::MAX);
    let resumes = [
        Resume::At(Position::Earliest),
        Resume::At(Position::Latest),
        Resume::At(Position::at_offset(Offset::number(1 << 40))),
        Resume::At(Position::after_offset(Offset::parse("007 a/b"))),
        Resume::At(Position::at_sequence(SequenceNumber(0))),
        Resume::At(Position::after_sequence(sequence)),
        Resume::At(Position::Time(Timestamp(-1))),
        Resume::At(Position::Time(Timestamp(1_700_000_000_123))),
        Resume::After(StreamPosition::new(sequence, Offset::parse("12:3:4"))),
        Resume::After(position(0)),
        Resume::After(StreamPosition { enqueued_time: Some(Timestamp(1_700_000_000_123)), ..position(1) }),
    ];
    for (number, resume) in (0..).zip(resumes) {
        let write = CheckpointWrite::Seek {
            partition: p.clone(),
            epoch: Epoch(u64::from(u32::MAX) + 1),
            resume: resume.clone(),
            stream: (number % 2 == 0).then(|| StreamId::new("a life, ä/b")),
            op: group.op(&incarnation("seeker")),
        };
        let record = applied(group.checkpoint(write.clone()).await);
        let CheckpointWrite::Seek { stream, op, .. } = write else { unreachable!() };
        assert_eq!((&record.resume, &record.stream, &record.op), (&Some(resume), &stream, &op));
        let stored = group.stored(&p).await;
        assert_eq!(stored.as_ref(), Some(&record));
        // Positions are equal whatever the time of their event.
        let time = |record: &CheckpointRecord| match &record.resume {
            Some(Resume::After(last)) => last.enqueued_time,
            _ => None,
        };
        assert_eq!(stored.as_ref().and_then(time), time(&record), "the event's time is kept");
        assert_eq!(time(&record).is_some(), number == 10);
    }
}
