//! A user depends on `partita` alone: what the engine's words are must be reachable through it.

use partita::balance::{Holding, Member, Pace, Policy, Snapshot, plan};
use partita::coordination::Timing;
use partita::model::{Incarnation, InstanceId, PartitionId, Position};
use partita::source::EventSource;
use partita::store::CheckpointStore;

#[test]
fn the_engines_words_are_reachable_through_the_facade() {
    let me = Incarnation::new(InstanceId::generate("examplehost"), 1);
    let snapshot = Snapshot {
        members: vec![Member { incarnation: me.clone(), declines: Vec::new() }],
        holdings: vec![Holding { partition: PartitionId::from(0), owner: None, next: None }],
    };
    assert_eq!(plan(&snapshot, &me, Policy::default(), Pace::default(), true).actions.len(), 1);
    assert_eq!(Position::default(), Position::Earliest);
    assert!(Timing::FAST.lease() < Timing::FAST.ttl());
}

#[test]
fn stores_and_sources_are_usable_as_trait_objects() {
    fn take(_: Option<(&dyn CheckpointStore, &dyn EventSource)>) {}
    take(None);
}

#[cfg(feature = "sqlite")]
#[test]
fn the_store_in_a_file_is_reachable_through_the_facade() {
    let nowhere = partita::sqlite::SqliteStore::open("no/such/directory/checkpoints.db");
    assert!(matches!(nowhere, Err(partita::sqlite::OpenError::NoDirectory { .. })), "{nowhere:?}");
}
