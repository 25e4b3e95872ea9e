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

#[cfg(feature = "hub")]
#[tokio::test(flavor = "multi_thread")]
async fn the_hub_in_the_box_is_a_source_and_has_a_producer() {
    use partita::Event;
    use partita::hub::broker::{Broker, HubOptions, Route};
    use partita::hub::{producer::Producer, source::HubSource};

    let dir = tempfile::tempdir().expect("dir");
    let (broker, _) = Broker::open(dir.path().join("data")).expect("opens");
    let hub = broker.create_hub(&"homes".into(), HubOptions::default()).expect("made");
    let sent = Producer::new(hub.clone()).send(Route::Key("home 7"), Event::builder("door opened")).await;
    assert_eq!(sent.expect("durable").count(), 1);
    assert_eq!(HubSource::new(hub).describe().await.expect("described").partitions.len(), 4);
}
