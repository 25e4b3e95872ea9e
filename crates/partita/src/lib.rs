//! Balanced, resumable processing of partitioned event streams.
//!
//! Write one handler, run as many copies of the program as you like. Partita decides who reads which partition,
//! spreads the load as copies come and go, hands partitions over without loss and, on planned moves, without
//! duplicates, resumes where the last owner stopped, and keeps the events of a partition in order.
//!
//! ```
//! use partita::{Checkpoint, Context, Event, InstanceId, MemoryHub, MemoryStore, Processor};
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
//!     .on_event(move |event: Event, cx: Context| {
//!         let sender = sender.clone();
//!         async move {
//!             sender.send(format!("partition {}: {}", cx.partition(), event.text().unwrap_or_default())).await?;
//!             Ok(())
//!         }
//!     })
//!     .on_error(|error| eprintln!("{error}"))
//!     .build()?;
//!
//! let running = processor.start().await?;
//! assert_eq!(handled.recv().await.as_deref(), Some("partition 0: door opened"));
//! running.shutdown().await?;
//! # Ok(())
//! # }
//! ```

pub use partita_core::{balance, coordination, handler, model, processor, pump, source, store};

#[cfg(feature = "hub")]
pub use partita_hub as hub;
#[cfg(feature = "sim")]
pub use partita_sim as sim;
#[cfg(feature = "eventhubs")]
pub use partita_sources::eventhubs;
#[cfg(feature = "sqlite")]
pub use partita_stores::sqlite;

#[cfg(feature = "testkit")]
pub use partita_core::testkit;

pub use partita_core::balance::{Pace, Policy};
pub use partita_core::coordination::{Phase, RevokeReason, StopReason, Timing};
pub use partita_core::handler::{CheckpointError, Context, Handler, HandlerResult, RevokedContext};
pub use partita_core::model::{
    Body, ConsumerGroup, Epoch, Event, InstanceId, Offset, PartitionId, Position, SequenceNumber, Timestamp,
    Value,
};
#[cfg(feature = "signal")]
pub use partita_core::processor::shutdown_signal;
pub use partita_core::processor::{
    Checkpoint, Hooks, Operation, Processor, ProcessorError, ProcessorHandle, Status,
};
pub use partita_core::pump::{ChangedPast, FailurePolicy};
pub use partita_core::source::{EventSource, MemoryHub, MemorySource};
pub use partita_core::store::{CheckpointStore, MemoryStore};
