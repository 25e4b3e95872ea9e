//! The handler without a network: alone, and under the real engine on a hub and a store in memory.

use partita::{Event, MemoryHub, MemoryStore, Offset, Processor, SequenceNumber, Timestamp};
use tokio::sync::mpsc;

use super::{alert, handle};

fn reading(home: &str, degrees: &'static str) -> Event {
    let event = Event::builder(degrees).partition_key(home);
    event.at(SequenceNumber(0), Offset::number(0), Timestamp::now())
}

#[test]
fn hot_homes_are_told_and_nonsense_is_passed_over() {
    assert_eq!(alert(&reading("home-7", "30.5")).as_deref(), Some("home-7 is hot: 30.5"));
    assert_eq!(alert(&reading("home-7", "21")), None);
    assert_eq!(alert(&reading("home-7", "warm")), None);
}

#[tokio::test]
async fn every_event_is_handled_in_order() {
    let hub = MemoryHub::new("eh1", 1);
    for degrees in ["19", "31", "nonsense"] {
        hub.append(&"0".into(), Event::builder(degrees).partition_key("home-1"));
    }
    let (tell, mut handled) = mpsc::channel(8);
    let processor = Processor::builder(hub.source(), MemoryStore::new())
        .on_event(move |event: Event, cx| {
            let tell = tell.clone();
            async move {
                let number = event.sequence_number();
                handle(event, cx).await?;
                tell.send(number.0).await?;
                Ok(())
            }
        })
        .build()
        .expect("valid options");
    let running = processor.start().await.expect("it starts");
    for number in 0..3 {
        assert_eq!(handled.recv().await, Some(number));
    }
    running.shutdown().await.expect("it stops in good order");
}
