//! The log: durable storage of a hub's partitions.
//!
//! One shared log per hub, because the cost of a commit then does not depend on the number of partitions. One committer
//! writes all that waits as one group, with one durable write; readers see each partition as its own commit log.
//! `docs/log-format.md` draws the files.
//!
//! - [`Store`] is a data directory, [`HubLog`] the log of one hub in it, [`LogReader`] reads one partition.
//! - Events are opaque bytes; [`EncodedBatch`] carries those that are sent together.
//! - An acknowledged batch survives a power cut, unless [`Durability`] says otherwise.
//! - All file access goes through [`Disk`], so that tests can fail any call and cut the power at each.
//!
//! Nothing here depends on a runtime: producers are called back ([`AckSink`]) and readers woken by a
//! [`std::task::Waker`].

mod aligned;
mod book;
mod check;
mod committer;
mod core;
mod disk;
mod error;
mod examine;
mod format;
mod housekeeper;
mod hub_log;
mod index;
mod lost_ranges;
mod missing_events;
pub(crate) mod park;
pub(crate) mod peek;
mod place;
mod position;
mod producers;
mod reader;
mod recovery;
pub(crate) mod removal;
mod retention;
mod scan;
mod segment;
mod settings;
mod spares;
pub(crate) mod store;
mod tail;
pub(crate) mod witness;
mod writer;

#[cfg(test)]
mod tests;

pub(crate) use core::Core;
pub(crate) use disk::{OverlayDisk, read_whole};
pub(crate) use format::{StoreRecord, StoreRecordError};

pub use check::{LogCheck, PartitionCheck};
pub use committer::{Ack, AckSink};
pub use disk::{Access, Disk, DiskFile, Held, MemoryDisk, OsDisk, WriteMode};
#[cfg(any(test, feature = "testkit"))]
pub use disk::{Fault, SimDisk, When};
pub use error::{AcceptError, AppendError, OpenError, ReadError};
pub use format::{BatchBuilder, EncodeError, EncodedBatch, ProducerStamp, StoreId, StoredBatch, StoredEvent};
pub use hub_log::{HubLog, PartitionInfo};
pub use lost_ranges::LostRange;
pub use missing_events::{Loss, LostEvents};
pub use position::LogPosition;
pub use producers::ProducerState;
pub use reader::LogReader;
pub use recovery::{Damage, Recovery};
pub use retention::{Retention, RetentionError};
pub use settings::{Clock, Durability, PARTITIONS_MAX, Settings};
pub use store::Store;
pub use writer::Placed;
