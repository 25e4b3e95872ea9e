//! Balanced, resumable processing of partitioned event streams.
//!
//! Write one handler, run as many copies of the program as you like. Partita decides who reads which partition,
//! spreads the load as copies come and go, hands partitions over without loss and, on planned moves, without
//! duplicates, resumes where the last owner stopped, and keeps the events of a partition in order.
//!
//! # A program
//!
//! ```no_run
//! # #[cfg(all(feature = "eventhubs", feature = "signal", feature = "sqlite"))]
//! # mod program {
//! use partita::{Processor, eventhubs::EventHubs, shutdown_signal, sqlite::SqliteStore};
//!
//! # async fn program(connection_string: String) -> Result<(), Box<dyn std::error::Error>> {
//! let hub = EventHubs::connect(&connection_string, "eh1")?;
//! Processor::builder(hub, SqliteStore::open("checkpoints.db")?)
//!     .on_event(|event, cx| async move {
//!         println!("{} {}", cx.partition(), event.text().unwrap_or_default());
//!         Ok(())
//!     })
//!     .run_until(shutdown_signal())
//!     .await?;
//! # Ok(())
//! # }
//! # }
//! ```
//!
//! `partita serve` of the command line is a hub to try it with; it prints its connection string. Start the program
//! twice: each copy reads half of the partitions. End one with Ctrl-C, or kill it: the other one takes over where its
//! checkpoints were.
//!
//! Delivery is at least once. After a crash the events since the last checkpoint are delivered again, so the effect of
//! an event must be the same when it is applied twice.
//!
//! # Handlers
//!
//! There are three ways to handle events: a closure per event ([`on_event`]), a closure per batch ([`on_batch`]), and a
//! [`Handler`] per partition, made by a factory ([`handler`](processor::Builder::handler)). A handler has state of its
//! own, and is told when its partition comes and goes:
//!
//! ```
//! use partita::{Context, Event, Handler, HandlerResult, MemoryHub, MemoryStore, Processor, StopReason};
//!
//! struct Counter {
//!     events: usize,
//! }
//!
//! impl Handler for Counter {
//!     async fn events(&mut self, events: &[Event], _: &Context) -> HandlerResult {
//!         self.events += events.len();
//!         Ok(())
//!     }
//!
//!     async fn stopping(&mut self, reason: StopReason, cx: &Context) -> HandlerResult {
//!         println!("partition {}: {} events, then {reason}", cx.partition(), self.events);
//!         Ok(())
//!     }
//! }
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let hub = MemoryHub::new("homes", 4); // for tests; so is MemoryStore
//! hub.append(&"0".into(), Event::builder("door opened"));
//! Processor::builder(hub.source(), MemoryStore::new())
//!     .handler(|_partition| Counter { events: 0 }) // one for each partition
//!     .on_error(|error| eprintln!("{error}")) // for information: Partita deals with it
//!     .run_until(async { /* until this future completes */ })
//!     .await?;
//! # Ok(())
//! # }
//! ```
//!
//! # Producers
//!
//! ```no_run
//! # #[cfg(feature = "eventhubs")]
//! # mod program {
//! use partita::{Event, Route, eventhubs::EventHubs};
//!
//! # async fn program(connection_string: String) -> Result<(), Box<dyn std::error::Error>> {
//! let hub = EventHubs::connect(&connection_string, "eh1")?;
//!
//! // A call ends when the hub has the events for good.
//! let producer = hub.producer();
//! producer.send_event(Route::key("home 7"), Event::builder("door opened")).await?;
//!
//! // Many events, one by one, sent in batches; numbered, so that the hub takes none twice.
//! let producer = hub.buffered_producer().idempotent().build();
//! for degrees in 18..30 {
//!     let _receipt = producer.send(Route::Any, Event::builder(degrees.to_string())).await?;
//! }
//! producer.close().await?; // all are there, or this says which are not
//! # Ok(())
//! # }
//! # }
//! ```
//!
//! # More control
//!
//! `build` and `start` give a [`ProcessorHandle`], which shows the [`Status`] of the group and shuts down:
//!
//! ```
//! use partita::{Checkpoint, Event, InstanceId, MemoryHub, MemoryStore, Processor};
//! use std::time::Duration;
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let hub = MemoryHub::new("homes", 4);
//! hub.append(&"0".into(), Event::builder("door opened"));
//!
//! let (sender, mut handled) = tokio::sync::mpsc::channel(16);
//! let processor = Processor::builder(hub.source(), MemoryStore::new())
//!     .instance_id(InstanceId::generate("example"))
//!     .checkpoint(Checkpoint::every(1_000).or_after(Duration::from_secs(1)))
//!     .on_event(move |event, cx| {
//!         let sender = sender.clone();
//!         async move {
//!             sender.send(format!("partition {}: {}", cx.partition(), event.text().unwrap_or_default())).await?;
//!             Ok(())
//!         }
//!     })
//!     .build()?;
//!
//! let running = processor.start().await?;
//! assert_eq!(handled.recv().await.as_deref(), Some("partition 0: door opened"));
//! running.shutdown().await?;
//! # Ok(())
//! # }
//! ```
//!
//! # Features
//!
//! | feature | default | what it adds |
//! | --- | --- | --- |
//! | `eventhubs` | yes | `eventhubs`: Azure Event Hubs, its emulator, IoT Hub and Partita's hub, over AMQP |
//! | `entra` | | credentials of the Azure SDK for Microsoft Entra ID, for `eventhubs` |
//! | `hub` | yes | `hub`: the hub in the box, durable, in this process |
//! | `server` | | `hub::server`: the hub on the network, for clients of Event Hubs |
//! | `tls` | yes | TLS, for `eventhubs` and `server` |
//! | `websocket` | yes | AMQP in WebSockets, for `eventhubs` and `server` |
//! | `sqlite` | yes | `sqlite::SqliteStore`: checkpoints in a file that the processes of one machine share |
//! | `json` | yes | `Event::json`: the body of an event as a type of yours that serde reads |
//! | `signal` | yes | `shutdown_signal()`: SIGINT and SIGTERM as a future |
//! | `testkit` | | conformance suites for a store or a source of your own |
//! | `sim` | | `sim`: your handler and your store in whole fleets with faults, on a simulated clock |
//!
//! The library reads no environment variables and starts no processes.
//!
//! [`on_event`]: processor::Builder::on_event
//! [`on_batch`]: processor::Builder::on_batch

#[cfg(feature = "hub")]
pub mod hub;

#[cfg(all(doctest, feature = "eventhubs", feature = "json", feature = "signal"))]
mod pages;

pub use partita_core::{handler, model, processor, source, store};

#[cfg(feature = "sim")]
pub use partita_sim as sim;
#[cfg(feature = "eventhubs")]
pub use partita_sources::eventhubs;
#[cfg(feature = "sqlite")]
pub use partita_stores::sqlite;

#[cfg(feature = "testkit")]
pub use partita_core::testkit;

pub use partita_core::handler::{CheckpointError, Context, Handler, HandlerResult, RevokedContext};
pub use partita_core::model::{
    Body, ConsumerGroup, Epoch, Event, InstanceId, Offset, PartitionId, Position, Route, SequenceNumber,
    Timestamp, Value,
};
#[cfg(feature = "signal")]
pub use partita_core::processor::shutdown_signal;
pub use partita_core::processor::{
    ChangedPast, Checkpoint, FailurePolicy, Hooks, Operation, Pace, Phase, Policy, Processor, ProcessorError,
    ProcessorHandle, RevokeReason, RunError, Status, StopReason, Timing,
};
pub use partita_core::source::{EventSource, MemoryHub, MemorySource};
pub use partita_core::store::{CheckpointStore, MemoryStore};
