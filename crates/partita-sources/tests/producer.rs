//! What is sent arrives, whole, in order and where it belongs.

mod support;

use partita_core::model::{Event, Position};
use partita_hub::broker::partition_of;
use partita_sources::eventhubs::{AddError, EncodedEvent, Route, SendError};
use support::{Served, open, take};

#[tokio::test]
async fn batches_go_to_their_partition_in_order_and_as_large_as_the_hub_takes() {
    let served = Served::new(4).await;
    let producer = served.client().producer();
    let event = |n: usize| Event::builder(format!("{n:0>10000}")).property("n", n as i64);
    producer.send_all(Route::partition(2), (0..500).map(event)).await.expect("sent");
    let mut reader = open(&served.client().source(), 2, Position::Earliest).await;
    let events = take(&mut reader, 500).await;
    for (n, received) in events.iter().enumerate() {
        assert_eq!(received.text().and_then(|text| text.parse().ok()), Some(n));
        assert_eq!(received.properties().get("n").and_then(|value| value.as_i64()), Some(n as i64));
    }
    // Five megabytes in messages of at most one.
    assert!(events.windows(2).all(|pair| pair[0].sequence_number().0 + 1 == pair[1].sequence_number().0));
}

#[tokio::test]
async fn a_key_chooses_the_partition_and_stays_with_the_event() {
    let served = Served::new(4).await;
    let producer = served.client().producer();
    for key in ["home-1", "home-2", "home-3"] {
        let by_route = producer.send_event(Route::key(key), Event::builder("route"));
        by_route.await.expect("sent");
        let own = Event::builder("own").partition_key(key);
        producer.send_event(Route::Any, own).await.expect("sent");
        let mut reader = open(&served.client().source(), partition_of(key, 4), Position::Earliest).await;
        let mut found = 0;
        while found < 2 {
            found += usize::from(take(&mut reader, 1).await[0].partition_key() == Some(key));
        }
    }
}

#[tokio::test]
async fn without_a_key_batches_go_round() {
    let served = Served::new(4).await;
    let producer = served.client().producer();
    for n in 0..4 {
        producer.send_event(Route::Any, Event::builder(n.to_string())).await.expect("sent");
    }
    let source = served.client().source();
    for partition in 0..4 {
        assert_eq!(take(&mut open(&source, partition, Position::Earliest).await, 1).await.len(), 1);
    }
}

#[tokio::test]
async fn what_cannot_be_sent_is_told_at_once_and_for_good() {
    let served = Served::new(2).await;
    let producer = served.client().producer();
    let large =
        producer.send_event(Route::Any, Event::builder(vec![0; 2 << 20])).await.expect_err("too large");
    assert!(matches!(large, SendError::Event { index: 0, source: AddError::TooLarge { .. } }), "{large}");
    let nowhere =
        producer.send_event(Route::partition(9), Event::builder("x")).await.expect_err("no partition");
    assert!(!nowhere.is_retriable() && !nowhere.may_have_happened(), "{nowhere}");
    // The producer goes on.
    let mut batch = producer.batch(Route::partition(1)).await.expect("a batch");
    batch.add_encoded(&EncodedEvent::new(Event::builder("x")).expect("encodes")).expect("fits");
    producer.send(batch).await.expect("sent");
}
