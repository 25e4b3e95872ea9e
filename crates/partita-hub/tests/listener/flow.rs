//! Credit, drain, and clients that do not keep up.

use std::time::Duration;

use partita_amqp::connection::Event;
use partita_core::model::Body;
use partita_hub::broker::Route;
use partita_hub::log::EncodedBatch;
use tokio::io::AsyncWriteExt;

use crate::client::{EARLIEST, Hosted, encoded, soon, text};

#[tokio::test]
async fn no_more_comes_than_there_is_credit_for() {
    let hosted = Hosted::new().await;
    let mut client = hosted.client().await;
    let sender = client.sender("eh1/Partitions/0").await;
    client.send_batch(sender, (0..100).map(|n| text(n.to_string()))).await;
    let reader = client.reader(0, EARLIEST, 7).await;
    assert_eq!(client.texts(reader, 7).await, ["0", "1", "2", "3", "4", "5", "6"]);
    // A second message shows that none came before it beyond the credit.
    let other = client.reader(0, EARLIEST, 1).await;
    client.texts(other, 1).await;
    assert!(!client.stashed().any(|event| matches!(event, Event::Delivery(_))));
    // Credit is absolute, however often it is said.
    client.wire.connection().set_credit(reader, 2, false);
    client.wire.connection().set_credit(reader, 2, false);
    assert_eq!(client.texts(reader, 2).await, ["7", "8"]);
    client.wire.connection().set_credit(other, 1, false);
    client.texts(other, 1).await;
    assert!(!client.stashed().any(|event| matches!(event, Event::Delivery(_))));
    client.wire.connection().set_credit(reader, 1_000, false);
    assert_eq!(client.texts(reader, 91).await.last().map(String::as_str), Some("99"));
}

#[tokio::test]
async fn a_drain_brings_what_there_is_and_gives_the_rest_back() {
    let hosted = Hosted::new().await;
    let mut client = hosted.client().await;
    let sender = client.sender("eh1/Partitions/0").await;
    client.send_batch(sender, (0..5).map(|n| text(n.to_string()))).await;
    let reader = client.reader(0, EARLIEST, 0).await;
    client.wire.connection().set_credit(reader, 100, true);
    assert_eq!(client.texts(reader, 5).await, ["0", "1", "2", "3", "4"]);
    client
        .until("drained", |event| matches!(event, Event::Drained(link) if *link == reader).then_some(()))
        .await;
    assert_eq!(client.wire.connection().credit(reader), 0);
    client.send(sender, text("later")).await;
    client.wire.connection().set_credit(reader, 1, false);
    assert_eq!(client.texts(reader, 1).await, ["later"]);
    // Nothing to give: drained at once.
    client.wire.connection().set_credit(reader, 3, true);
    client
        .until("drained", |event| matches!(event, Event::Drained(link) if *link == reader).then_some(()))
        .await;
}

#[tokio::test]
async fn many_readers_of_a_connection_all_get_on() {
    let hosted = Hosted::new().await;
    let mut client = hosted.client().await;
    let hub = hosted.server.broker().hub("eh1").expect("there");
    let events: Vec<_> = (0..500)
        .map(|n| encoded(&partita_amqp::message::Message::new(Body::from(n.to_string().repeat(40)))))
        .collect();
    for partition in 0..4 {
        for _ in 0..10 {
            let (hub, batch) = (hub.clone(), EncodedBatch::of(&events).expect("valid"));
            let send = move || hub.send_and_wait(Route::Partition(partition), batch).expect("durable");
            tokio::task::spawn_blocking(send).await.expect("done");
        }
    }
    let mut readers = Vec::new();
    for partition in 0..4 {
        readers.push(client.reader(partition, EARLIEST, 5_000).await);
    }
    for reader in readers {
        assert_eq!(client.receive(reader, 5_000).await.len(), 5_000);
    }
}

#[tokio::test]
async fn a_client_that_does_not_read_costs_little_and_holds_up_nobody() {
    let hosted = Hosted::new().await;
    let hub = hosted.server.broker().hub("eh1").expect("there");
    let events: Vec<_> = (0..100).map(|_| text("x".repeat(10_000))).collect();
    for _ in 0..64 {
        let (hub, batch) = (hub.clone(), EncodedBatch::of(&events).expect("valid"));
        let send = move || hub.send_and_wait(Route::Partition(0), batch).expect("durable");
        tokio::task::spawn_blocking(send).await.expect("done");
    }
    // Asks for 64 MB and takes none of it: bytes go out only while this client is polled.
    let mut stalled = hosted.client().await;
    let reader = stalled.reader(0, EARLIEST, 1_000_000).await;
    stalled.wire.stream().writable().await.expect("open");
    let _ = tokio::time::timeout(Duration::from_millis(50), stalled.delivery(reader)).await;
    let mut other = hosted.client().await;
    let reader = other.reader(0, EARLIEST, 1_000_000).await;
    assert_eq!(other.receive(reader, 6_400).await.len(), 6_400);
    drop(stalled);
}

#[tokio::test]
async fn a_client_in_small_pieces_is_understood() {
    let hosted = Hosted::new().await;
    let mut stream = tokio::net::TcpStream::connect(hosted.address).await.expect("connects");
    stream.set_nodelay(true).expect("set");
    // A header, byte by byte: the answer is the server's header.
    for byte in b"AMQP\x03\x01\x00\x00" {
        stream.write_all(&[*byte]).await.expect("written");
        tokio::task::yield_now().await;
    }
    let mut answer = [0; 8];
    soon("header", tokio::io::AsyncReadExt::read_exact(&mut stream, &mut answer)).await.expect("read");
    assert_eq!(&answer, b"AMQP\x03\x01\x00\x00");
}
