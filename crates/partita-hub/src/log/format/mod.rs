//! The bytes on disk, little endian. `docs/log-format.md` draws them. Nothing here does I/O.

mod acknowledged;
mod batch;
mod damage;
mod group;
mod index;
mod producer;
mod segment;
mod store;

use std::fmt;

pub(crate) use acknowledged::{ACKNOWLEDGED_BYTES_MAX, Acknowledged};
pub(crate) use batch::{BATCH_HEADER, BatchHeader, parse_batch};
pub use batch::{BatchBuilder, EncodeError, EncodedBatch, StoredBatch, StoredEvent};
pub(crate) use damage::{decode_damage, encode_damage};
pub(crate) use group::{
    FLAG_MARK, FLAG_RELAXED, GROUP_HEADER, GROUP_MAGIC, GroupHeader, GroupView, parse_group,
};
pub(crate) use index::{IndexEntry, SealedIndex};
pub use producer::ProducerStamp;
pub(crate) use producer::{PRODUCER_BLOCK, PRODUCER_ENTRY, ProducerEntry, REMEMBERED, SentBatch};
pub(crate) use segment::{NewSegment, SegmentHeader, Table, TableEntry};
pub(crate) use store::{StoreRecord, StoreRecordError};

/// The unit in which the log writes, and to which headers are padded.
pub(crate) const BLOCK: usize = 4096;

/// Format of everything under the data directory. A change of the major number means that older programs must not
/// touch the data; of the minor one, that they can.
pub(crate) const FORMAT_MAJOR: u16 = 1;
pub(crate) const FORMAT_MINOR: u16 = 1;
/// From this minor number on, every hub has a record of what it acknowledged.
pub(crate) const MINOR_WITNESSED: u16 = 1;

/// The largest batch on disk, header included. Group magics read as lengths are above it, so the first four bytes
/// tell a batch from a group.
pub(crate) const BATCH_BYTES_LIMIT: usize = 48 << 20;

/// Identifies one data directory: 128 random bits chosen when it is created. A hub that was reset has another one.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct StoreId(pub [u8; 16]);

impl StoreId {
    /// A new random id.
    pub fn generate() -> Self {
        Self(fastrand::u128(..).to_le_bytes())
    }
}

impl fmt::Display for StoreId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:032x}", u128::from_be_bytes(self.0))
    }
}

impl fmt::Debug for StoreId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// Where the checksums of one segment's groups and batches start from. Bytes of another store, or of the segment that a
/// recycled file held before, therefore never validate.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Seed(u32);

impl Seed {
    pub(crate) fn new(store: StoreId, segment: u64) -> Self {
        let mut hasher = crc32fast::Hasher::new();
        hasher.update(&store.0);
        hasher.update(&segment.to_le_bytes());
        Self(hasher.finalize())
    }

    pub(crate) fn hasher(self) -> crc32fast::Hasher {
        crc32fast::Hasher::new_with_initial(self.0)
    }
}

pub(crate) fn u16_at(bytes: &[u8], at: usize) -> u16 {
    u16::from_le_bytes(array(bytes, at))
}

pub(crate) fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(array(bytes, at))
}

pub(crate) fn u64_at(bytes: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(array(bytes, at))
}

pub(crate) fn i64_at(bytes: &[u8], at: usize) -> i64 {
    i64::from_le_bytes(array(bytes, at))
}

pub(crate) fn array<const N: usize>(bytes: &[u8], at: usize) -> [u8; N] {
    let mut out = [0; N];
    out.copy_from_slice(&bytes[at..at + N]);
    out
}

pub(crate) fn put(bytes: &mut [u8], at: usize, value: &[u8]) {
    bytes[at..at + value.len()].copy_from_slice(value);
}
