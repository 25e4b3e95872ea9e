//! A hub of this process on a port of its own.
#![allow(dead_code)] // Each test uses a part of it.

pub(crate) mod proxy;
pub(crate) mod service;
pub(crate) mod tls;

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use partita_core::model::{
    ConsumerGroup, Event, EventBuilder, HubName, PartitionId, Position, SequenceNumber,
};
use partita_core::source::{EventSource, PartitionReader, ReadRequest};
use partita_hub::broker::{Broker, Hub, HubOptions, Route};
use partita_hub::listener::transport::Transport;
use partita_hub::log::{OsDisk, Retention, Settings};
use partita_hub::producer::HubProducer;
use partita_hub::server::{Server, ServerOptions};
use partita_sources::eventhubs::{ConnectionString, EventHubs, EventHubsBuilder};
use tokio::net::TcpListener;

/// How long anything may take that is waited for.
pub(crate) const PATIENCE: Duration = Duration::from_secs(20);

/// The hub's name.
pub(crate) const HUB: &str = "homes";

pub(crate) struct Served {
    pub(crate) server: Server,
    pub(crate) hub: Arc<Hub>,
    pub(crate) producer: HubProducer,
    pub(crate) address: SocketAddr,
    pub(crate) dir: tempfile::TempDir,
}

impl Served {
    pub(crate) async fn new(partitions: u32) -> Self {
        Self::with(partitions, ServerOptions::default()).await
    }

    pub(crate) async fn with(partitions: u32, options: ServerOptions) -> Self {
        let dir = tempfile::tempdir().expect("dir");
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
        Self::start(dir, partitions, listener, options, Transport::Plain)
    }

    /// With segments and a memory so small that retention can remove what was written a moment ago.
    pub(crate) async fn small(partitions: u32) -> Self {
        let dir = tempfile::tempdir().expect("dir");
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
        let settings = Settings {
            segment_bytes_first: 512 << 10,
            segment_bytes_max: 512 << 10,
            batch_bytes_max: 256 << 10,
            group_bytes_max: 256 << 10,
            tail_bytes_max: 1,
            ..Settings::new(1)
        };
        let opened = Broker::open_with(Arc::new(OsDisk), dir.path().join("data"), settings);
        Self::serve(
            dir,
            opened.expect("opens").0,
            partitions,
            listener,
            ServerOptions::default(),
            Transport::Plain,
        )
    }

    /// Removes the events before this one by retention, for which others are appended.
    pub(crate) async fn remove_before(&self, partition: u32, before: SequenceNumber) {
        let kept = self.hub.retention();
        self.hub.set_retention(Retention { bytes_max: Some(1 << 20), ..kept }).expect("set");
        let began = tokio::time::Instant::now();
        while self.hub.partition(partition).expect("there").first_seq.cast_signed() < before.0 {
            assert!(began.elapsed() < PATIENCE, "retention took too little");
            self.append(partition, [Event::builder(vec![7; 50_000])]).await;
        }
        self.hub.set_retention(kept).expect("set");
    }

    /// Over another transport than plain TCP.
    pub(crate) async fn over(partitions: u32, transport: Transport) -> Self {
        Self::of(partitions, ServerOptions::default(), transport).await
    }

    pub(crate) async fn of(partitions: u32, options: ServerOptions, transport: Transport) -> Self {
        let dir = tempfile::tempdir().expect("dir");
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
        Self::start(dir, partitions, listener, options, transport)
    }

    fn start(
        dir: tempfile::TempDir,
        partitions: u32,
        listener: TcpListener,
        options: ServerOptions,
        transport: Transport,
    ) -> Self {
        let (broker, _) = Broker::open(dir.path().join("data")).expect("opens");
        Self::serve(dir, broker, partitions, listener, options, transport)
    }

    fn serve(
        dir: tempfile::TempDir,
        broker: Broker,
        partitions: u32,
        listener: TcpListener,
        options: ServerOptions,
        transport: Transport,
    ) -> Self {
        let hub = broker.hub(HUB).unwrap_or_else(|| {
            let options = HubOptions { partitions, ..HubOptions::default() };
            let hub = broker.create_hub(&HubName::new(HUB), options).expect("made");
            hub.create_group(&ConsumerGroup::new("second")).expect("made");
            hub
        });
        let address = listener.local_addr().expect("bound");
        let server = Server::new(Arc::new(broker), options);
        let listening = server.clone();
        tokio::spawn(async move { listening.listen(listener, transport).await });
        Self { producer: HubProducer::new(hub.clone()), server, hub, address, dir }
    }

    /// Ends the hub, without its data.
    pub(crate) async fn stop(self) -> Stopped {
        let Self { server, hub, producer, address, dir } = self;
        server.shutdown(Duration::ZERO).await;
        let partitions = hub.partitions();
        drop((server, hub, producer));
        Stopped { dir, partitions, address }
    }

    pub(crate) fn connection(&self) -> ConnectionString {
        let text = format!(
            "Endpoint=sb://{};SharedAccessKeyName=RootManageSharedAccessKey;SharedAccessKey=SAS_KEY_VALUE;\
             UseDevelopmentEmulator=true;EntityPath={HUB}",
            self.address
        );
        text.parse().expect("a connection string")
    }

    pub(crate) fn builder(&self) -> EventHubsBuilder {
        EventHubs::builder(&self.connection())
    }

    pub(crate) fn client(&self) -> EventHubs {
        self.builder().build().expect("a client")
    }

    pub(crate) async fn append(&self, partition: u32, events: impl IntoIterator<Item = EventBuilder>) {
        self.producer.send_batch(Route::Partition(partition), events).await.expect("durable");
    }
}

/// A hub that is not there for a while.
pub(crate) struct Stopped {
    dir: tempfile::TempDir,
    partitions: u32,
    address: SocketAddr,
}

impl Stopped {
    /// Starts it again where it was.
    pub(crate) async fn start(self) -> Served {
        // The data directory is free when the last task of the old server is gone.
        let began = tokio::time::Instant::now();
        while let Err(error) = Broker::open(self.dir.path().join("data")) {
            assert!(began.elapsed() < PATIENCE, "{error}");
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        let listener = TcpListener::bind(self.address).await.expect("the same port");
        Served::start(self.dir, self.partitions, listener, ServerOptions::default(), Transport::Plain)
    }
}

pub(crate) fn request(partition: u32, from: Position) -> ReadRequest {
    ReadRequest {
        group: ConsumerGroup::default(),
        partition: partition.into(),
        from,
        owner_level: None,
        name: "test".into(),
        prefetch_events: 300,
        prefetch_bytes: 1 << 20,
    }
}

pub(crate) async fn open(
    source: &dyn EventSource,
    partition: u32,
    from: Position,
) -> Box<dyn PartitionReader> {
    match tokio::time::timeout(PATIENCE, source.open(request(partition, from))).await.expect("in time") {
        Ok(reader) => reader,
        Err(error) => panic!("no reader: {error}"),
    }
}

pub(crate) async fn take(reader: &mut Box<dyn PartitionReader>, count: usize) -> Vec<Event> {
    let mut events = Vec::new();
    while events.len() < count {
        let rest = count - events.len();
        let read = tokio::time::timeout(PATIENCE, reader.read(rest, &mut events)).await;
        read.expect("in time").expect("events");
    }
    events
}

/// A line that `./test` shows.
#[allow(clippy::print_stderr)]
pub(crate) fn counted(what: &str) {
    // Past the test harness, which keeps what a test prints.
    use std::io::Write as _;
    let _ = writeln!(std::io::stderr(), "counted: {what}");
}

pub(crate) fn partition(number: u32) -> PartitionId {
    number.into()
}
