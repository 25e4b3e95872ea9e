//! What users ask the hub to do wrong.

use std::time::{Duration, Instant};

use partita_amqp::connection::Event;
use partita_amqp::performative::{Attach, DeliveryState};
use partita_hub::fault::{Fault, FaultKind, FaultRole};

use crate::client::{EARLIEST, Hosted, reader_of, receiver, soon, text};

fn detach() -> Fault {
    let kind =
        FaultKind::Detach { condition: "amqp:link:detach-forced".into(), description: "as asked".into() };
    Fault::new(kind)
}

#[tokio::test]
async fn links_that_are_there_are_detached_as_the_fault_says() {
    let hosted = Hosted::new().await;
    let mut client = hosted.client().await;
    let sender = client.sender("eh1").await;
    let reader = client.reader(0, EARLIEST, 1).await;
    let other = client.reader(1, EARLIEST, 1).await;
    let faults = hosted.server.faults();
    faults.add(Fault { partition: Some(0), role: FaultRole::Receiver, count: Some(2), ..detach() });
    assert_eq!(client.detached(reader).await.to_string(), "amqp:link:detach-forced: as asked");
    let again = client.attach(receiver("r", &reader_of(0), EARLIEST)).await;
    assert_eq!(&*again.expect_err("the second strike").condition, "amqp:link:detach-forced");
    client.attach(receiver("r", &reader_of(0), EARLIEST)).await.expect("it is over");
    assert_eq!(client.send(sender, text("unharmed")).await, DeliveryState::Accepted);
    assert!(!client.stashed().any(|event| matches!(event, Event::Detached { link, .. } if *link == other)));
}

#[tokio::test]
async fn a_busy_hub_rejects_sends_and_refuses_links_until_it_is_not() {
    let hosted = Hosted::new().await;
    let mut client = hosted.client().await;
    let sender = client.sender("eh1").await;
    let id = hosted.server.faults().add(Fault { hub: Some("EH1".into()), ..Fault::new(FaultKind::Busy) });
    let state = client.send(sender, text("x")).await;
    let DeliveryState::Rejected(Some(error)) = state else { panic!("{state:?}") };
    assert_eq!(&*error.condition, "com.microsoft:server-busy");
    let error = client.attach(Attach::sender("s", "eh1")).await.expect_err("busy");
    assert_eq!(&*error.condition, "com.microsoft:server-busy");
    let listed = hosted.server.faults().list();
    assert_eq!((listed[0].0, listed[0].2), (id, 2));
    assert!(hosted.server.faults().remove(id));
    assert_eq!(client.send(sender, text("x")).await, DeliveryState::Accepted);
}

#[tokio::test]
async fn a_delay_holds_answers_and_events_back() {
    let hosted = Hosted::new().await;
    let mut client = hosted.client().await;
    let sender = client.sender("eh1/Partitions/0").await;
    let reader = client.reader(0, EARLIEST, 10).await;
    let delay = Duration::from_millis(300);
    let fault = Fault { role: FaultRole::Sender, ..Fault::new(FaultKind::Delay(delay)) };
    let id = hosted.server.faults().add(fault);
    let start = Instant::now();
    assert_eq!(client.send(sender, text("a")).await, DeliveryState::Accepted);
    assert!(start.elapsed() >= delay, "the answer came after {:?}", start.elapsed());
    assert_eq!(client.texts(reader, 1).await, ["a"]);
    hosted.server.faults().remove(id);
    hosted.server.faults().add(Fault { role: FaultRole::Receiver, ..Fault::new(FaultKind::Delay(delay)) });
    let start = Instant::now();
    assert_eq!(client.send(sender, text("b")).await, DeliveryState::Accepted);
    assert_eq!(client.texts(reader, 1).await, ["b"]);
    assert!(start.elapsed() >= delay, "the event came after {:?}", start.elapsed());
}

#[tokio::test]
async fn a_dropped_connection_is_cut_without_a_word_and_others_are_not() {
    let hosted = Hosted::new().await;
    let mut client = hosted.client().await;
    let mut other = hosted.client().await;
    client.reader(2, EARLIEST, 1).await;
    let sender = other.sender("eh1").await;
    hosted.server.faults().add(Fault { partition: Some(2), count: Some(1), ..Fault::new(FaultKind::Drop) });
    let end = async {
        loop {
            match client.wire.event().await {
                Ok(None) | Err(_) => break,
                Ok(Some(Event::Closed { .. })) => panic!("a word was said"),
                Ok(Some(_)) => {}
            }
        }
    };
    soon("end", end).await;
    assert_eq!(other.send(sender, text("x")).await, DeliveryState::Accepted);
    assert!(hosted.server.faults().list().is_empty());
}
