//! A checkpoint store of one's own: records as text files in a directory, for processors on one machine.
//!
//! `store.rs` is the store, `text.rs` the form of its files. What the writes mean is not its business: the rules come
//! from `store::rules`, and `tests/custom_store_conformance.rs` holds it to the contract with one line. This program
//! plays a hand-off between two instances by hand and shows the files; then it runs a processor on the store, as a user
//! would.

#![allow(clippy::print_stdout)] // It is for reading.

mod store;
mod text;

use std::sync::Arc;

use partita_core::handler::Context;
use partita_core::model::{
    ConsumerGroup, Epoch, Event, HubName, Incarnation, InstanceId, Namespace, Offset, PartitionId, Scope,
    SequenceNumber, StreamPosition, Timestamp,
};
use partita_core::processor::Processor;
use partita_core::source::MemoryHub;
use partita_core::store::{
    BoxError, CheckpointOutcome, CheckpointStore, CheckpointWrite, InstanceOutcome, InstanceRecord,
    InstanceState, InstanceWrite, MoveReason, Op, OwnershipOutcome, OwnershipWrite,
};

use self::store::DirectoryStore;

#[tokio::main]
async fn main() -> Result<(), BoxError> {
    let directory = std::env::temp_dir().join(format!("partita-custom-store-{}", std::process::id()));
    let store = DirectoryStore::open(&directory)?;
    let scope = Scope {
        namespace: Namespace::new("example"),
        hub: HubName::new("doors"),
        group: ConsumerGroup::default(),
    };
    let (first, second) =
        (register(&store, &scope, "first").await?, register(&store, &scope, "second").await?);
    let partition = PartitionId::from(0);

    let claim = OwnershipWrite {
        partition: partition.clone(),
        expect: None,
        owner: Some(first.clone()),
        epoch: Epoch(1),
        next: None,
        reason: MoveReason::Claimed,
        op: Op { by: first.clone(), number: 1 },
        checkpoint: None,
    };
    let OwnershipOutcome::Applied { ownership, .. } = store.write_ownership(&scope, claim.clone()).await?
    else {
        return Err("the directory was new, so the claim wins".into());
    };
    println!("{first} claimed partition {partition} at epoch {}", ownership.epoch);
    let lost = OwnershipWrite { owner: Some(second.clone()), ..claim.clone() };
    println!("{second} claims it too: {:?}", store.write_ownership(&scope, lost).await?);

    checkpoint(&store, &scope, &partition, &first, 1, 41).await?;
    let hand_off = OwnershipWrite {
        expect: Some(ownership.version),
        owner: Some(second.clone()),
        epoch: Epoch(2),
        reason: MoveReason::HandedOff,
        op: Op { by: first.clone(), number: 2 },
        ..claim
    };
    store.write_ownership(&scope, hand_off).await?;
    checkpoint(&store, &scope, &partition, &second, 2, 57).await?;
    checkpoint(&store, &scope, &partition, &first, 1, 99).await?;

    for moved in store.moves(&scope).await? {
        println!("moved: partition {} to {:?} because {}", moved.partition, moved.to, moved.reason);
    }
    for file in store.files(&scope)? {
        println!("\n{}\n{}", file.display(), std::fs::read_to_string(&file)?);
    }
    process(store).await?;
    std::fs::remove_dir_all(directory)?;
    Ok(())
}

async fn register(store: &dyn CheckpointStore, scope: &Scope, id: &str) -> Result<Incarnation, BoxError> {
    let incarnation = Incarnation::new(InstanceId::new(id), fastrand::u128(..));
    let record = InstanceRecord {
        incarnation: incarnation.clone(),
        host: Arc::from("this machine"),
        started: Timestamp::now(),
        stopping: false,
        ttl: std::time::Duration::from_secs(5),
        declines: Vec::new(),
        state: InstanceState::Live,
        beat: 0,
        details: Default::default(),
    };
    match store.write_instance(scope, InstanceWrite::Register(record)).await? {
        InstanceOutcome::Applied(_) => Ok(incarnation),
        InstanceOutcome::Refused(by) => Err(format!("already registered: {by:?}").into()),
    }
}

/// Seals the record for the owner's epoch, as a new owner does, and checkpoints.
async fn checkpoint(
    store: &dyn CheckpointStore,
    scope: &Scope,
    partition: &PartitionId,
    owner: &Incarnation,
    epoch: u64,
    sequence: i64,
) -> Result<(), BoxError> {
    let (partition, epoch) = (partition.clone(), Epoch(epoch));
    let op = Op { by: owner.clone(), number: 3 };
    let last = StreamPosition::new(SequenceNumber(sequence), Offset::number(0));
    let seal = CheckpointWrite::Seal { partition: partition.clone(), epoch, op: op.clone() };
    store.write_checkpoint(scope, seal).await?;
    let advance = CheckpointWrite::Advance { partition, epoch, last, stream: None, op };
    match store.write_checkpoint(scope, advance).await? {
        CheckpointOutcome::Applied(_) => println!("{owner} checkpointed {sequence} at epoch {epoch}"),
        CheckpointOutcome::Fenced(by) => println!("{owner} is fenced: epoch {} sealed the record", by.epoch),
        CheckpointOutcome::Behind(_) => println!("{owner} is behind"),
    }
    Ok(())
}

/// Handles a few events with the store behind a processor, and shows where the next one would go on.
async fn process(store: DirectoryStore) -> Result<(), BoxError> {
    const EVENTS: usize = 6;
    let hub = MemoryHub::new("windows", 2);
    for number in 0..EVENTS {
        hub.append(
            &hub.description().partitions[number % 2],
            Event::builder(format!("window {number} opened")),
        );
    }
    let (sender, mut handled) = tokio::sync::mpsc::channel(EVENTS);
    let processor = Processor::builder(hub.source(), store.clone())
        .on_event(move |event: Event, cx: Context| {
            let sender = sender.clone();
            async move {
                let text = event.text().unwrap_or_default();
                sender.send(format!("partition {}: {text}", cx.partition())).await?;
                Ok(())
            }
        })
        .on_error(|error| println!("{error}"))
        .build()?;
    let running = processor.start().await?;
    let scope = running.status().scope.clone();
    for _ in 0..EVENTS {
        println!("handled in {}", handled.recv().await.ok_or("the processor ended early")?);
    }
    running.shutdown().await?;
    for checkpoint in store.checkpoints(&scope).await? {
        println!("partition {} goes on at {:?}", checkpoint.partition, checkpoint.resume);
    }
    Ok(())
}
