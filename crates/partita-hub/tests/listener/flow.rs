//! Credit, drain, and clients that do not keep up.

use std::io::{self, IoSlice};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use partita_amqp::connection::Event;
use partita_amqp::performative::DeliveryState;
use partita_amqp::sasl;
use partita_core::model::{Body, HubName};
use partita_hub::broker::{Broker, HubOptions, Route};
use partita_hub::log::{EncodedBatch, MemoryDisk, Settings};
use partita_hub::server::{Peer, ServerOptions};
use partita_hub::service::auth::{WELL_KNOWN_KEY, WELL_KNOWN_NAME};
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt, DuplexStream, ReadBuf};

use crate::client::{Client, EARLIEST, Hosted, encoded, soon, text};

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

/// A stream whose writer can be made to wait, and that remembers the most that was to be written at once.
struct Stalling {
    inner: DuplexStream,
    stalled: Arc<AtomicBool>,
    offered_max: Arc<AtomicUsize>,
}

impl AsyncRead for Stalling {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.inner).poll_read(cx, buf)
    }
}

impl AsyncWrite for Stalling {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        self.poll_write_vectored(cx, &[IoSlice::new(buf)])
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let offered = slices.iter().map(|slice| slice.len()).sum();
        self.offered_max.fetch_max(offered, Ordering::SeqCst);
        if self.stalled.load(Ordering::SeqCst) {
            return Poll::Pending;
        }
        Pin::new(&mut self.inner).poll_write_vectored(cx, slices)
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.inner).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.inner).poll_shutdown(cx)
    }
}

#[tokio::test]
async fn a_client_that_does_not_read_costs_little_and_holds_up_nobody() {
    let hosted = Hosted::new().await;
    let hub = hosted.server.broker().hub("eh1").expect("there");
    let events: Vec<_> = (0..100).map(|_| text("x".repeat(10_000))).collect();
    for n in 0..64 {
        let (hub, batch) = (hub.clone(), EncodedBatch::of(&events).expect("valid"));
        let send = move || hub.send_and_wait(Route::Partition(n % 4), batch).expect("durable");
        tokio::task::spawn_blocking(send).await.expect("done");
    }
    let (ours, theirs) = tokio::io::duplex(64 << 10);
    let (stalled, offered_max) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicUsize::new(0)));
    let stream = Stalling { inner: theirs, stalled: stalled.clone(), offered_max: offered_max.clone() };
    let server = hosted.server.clone();
    tokio::spawn(async move { server.serve(stream, Peer::new("stalls")).await });
    let mut slow = Client::over(ours, sasl::Client::plain(WELL_KNOWN_NAME, WELL_KNOWN_KEY), Vec::new());
    let mut readers = Vec::new();
    for partition in 0..4 {
        readers.push(slow.reader(partition, EARLIEST, 0).await);
    }
    stalled.store(true, Ordering::SeqCst);
    // Asks for all 64 MB, and takes nothing of it.
    for reader in readers {
        slow.wire.connection().set_credit(reader, 1_000_000, false);
    }
    soon("megabyte", async {
        while offered_max.load(Ordering::SeqCst) < 1 << 20 {
            let _ = tokio::time::timeout(Duration::from_millis(5), slow.wire.turn()).await;
        }
    })
    .await;

    let mut other = hosted.client().await;
    for partition in 0..4 {
        let reader = other.reader(partition, EARLIEST, 1_000_000).await;
        assert_eq!(other.receive(reader, 1_600).await.len(), 1_600);
    }
    let most = offered_max.load(Ordering::SeqCst);
    assert!((1 << 20..4 << 20).contains(&most), "{most} bytes waited for a client that does not read");
}

#[tokio::test]
async fn a_full_queue_holds_senders_back_and_nothing_is_lost_or_out_of_order() {
    let settings = Settings { queue_bytes_max: 3_000, ..Settings::new(1) };
    let disk = Arc::new(MemoryDisk::new(u64::MAX));
    let broker = Broker::open_with(disk, "/", settings).expect("opens").0;
    broker
        .create_hub(&HubName::new("eh1"), HubOptions { partitions: 1, ..HubOptions::default() })
        .expect("made");
    let hosted = Hosted::on(Arc::new(broker), ServerOptions::default()).await;
    let (mut one, mut two) = (hosted.client().await, hosted.client().await);
    let (to, other) = (one.sender("eh1").await, two.sender("eh1").await);
    let padding = "x".repeat(900);
    let mut ids = Vec::new();
    for n in 0..600 {
        ids.push(one.send_only(to, 0, text(format!("{n} {padding}"))).await);
        two.send_only(other, 0, text(format!("other {padding}"))).await;
    }
    for id in ids {
        assert_eq!(one.outcome(id).await, DeliveryState::Accepted);
    }
    let reader = one.reader(0, EARLIEST, 10_000).await;
    let mut next = 0;
    while next < 600 {
        let text = one.texts(reader, 1).await.remove(0);
        if let Some(number) = text.strip_suffix(&padding).filter(|_| !text.starts_with("other")) {
            assert_eq!(number, format!("{next} "));
            next += 1;
        }
        two.wire.connection().poll();
    }
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
