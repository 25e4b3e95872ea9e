//! A user depends on `partita` alone: what a user needs must be reachable through it.

use partita::model::Position;
use partita::source::EventSource;
use partita::store::CheckpointStore;
use partita::{Pace, Policy, Timing};

#[test]
fn the_words_of_a_processors_options_are_reachable_through_the_facade() {
    assert_eq!((Policy::default(), Pace::default()), (Policy::Count, Pace::Greedy));
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
    use partita::hub::{Broker, HubOptions, HubProducer, HubSource, SendError};
    use partita::{Event, Route};

    let dir = tempfile::tempdir().expect("dir");
    let (broker, _) = Broker::open(dir.path().join("data")).expect("opens");
    let hub = broker.create_hub(&"homes".into(), HubOptions::default()).expect("made");
    let producer = HubProducer::new(hub.clone());
    let sent = producer.send(Route::key("home 7"), Event::builder("door opened")).await;
    assert_eq!(sent.expect("durable").count(), 1);
    let nowhere = producer.send(Route::partition("seven"), Event::builder("door opened")).await;
    let nowhere = nowhere.expect_err("partitions are numbered");
    assert!(matches!(nowhere, SendError::NoPartition { .. }), "{nowhere:?}");
    assert_eq!(nowhere.to_string(), "the hub has no partition seven, it has 4");
    assert_eq!(HubSource::new(hub).describe().await.expect("described").partitions.len(), 4);
}
