//! What can go wrong, one sentence each, and what to do about it.

use std::io;
use std::path::PathBuf;

use thiserror::Error;

use super::lost_ranges::Events;
use super::missing_events::Loss;

/// Why a data directory or a hub's log was not opened. Nothing was changed on disk, except after [`OpenError::Io`].
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum OpenError {
    /// The directory holds something else.
    #[error("{} is not a Partita data directory: choose an empty or new one", path.display())]
    Foreign {
        /// The directory.
        path: PathBuf,
    },
    /// The file that makes it a data directory is missing, while hubs are there.
    #[error(
        "the file STORE is missing from the data directory {}: restore it from a copy of this directory",
        path.display()
    )]
    NoStore {
        /// The directory.
        path: PathBuf,
    },
    /// A newer program wrote it.
    #[error("{} has data format {found}, this program knows up to {known}: use a newer program", path.display())]
    NewerFormat {
        /// The directory.
        path: PathBuf,
        /// The format's major number there.
        found: u16,
        /// The one known here.
        known: u16,
    },
    /// Another process has it open.
    #[error("{} is in use by another process: stop that one or choose another directory", path.display())]
    InUse {
        /// The directory.
        path: PathBuf,
    },
    /// The directory cannot be written.
    #[error("{} cannot be written ({source}): make it writable or choose another directory", path.display())]
    ReadOnly {
        /// The directory.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// `STORE` itself is damaged.
    #[error("{} is damaged: restore it from a copy, the segments beside it were not touched", path.display())]
    Damaged {
        /// The file.
        path: PathBuf,
    },
    /// The disk has no room for the first segment.
    #[error("no space left for {}: free some and start again", path.display())]
    Full {
        /// The directory.
        path: PathBuf,
    },
    /// The log holds partitions that the hub's settings do not.
    #[error(
        "the log of hub {hub} has {found} partitions, {asked} were asked for: partitions are never removed"
    )]
    FewerPartitions {
        /// The hub.
        hub: u64,
        /// How many the log has.
        found: u32,
        /// How many were asked for.
        asked: u32,
    },
    /// Events that were acknowledged are missing. [`Settings::accept_loss`] goes on without them.
    ///
    /// [`Settings::accept_loss`]: super::Settings::accept_loss
    #[error("{} lacks {loss}, which {} acknowledged: restore its newest copy", dir.display(), loss.were())]
    Lost {
        /// The hub's directory.
        dir: PathBuf,
        /// What is missing.
        loss: Loss,
    },
    /// A file that cannot be a segment has a segment's name.
    #[error("{} cannot be a segment of this hub: move it away", path.display())]
    Stray {
        /// The file.
        path: PathBuf,
    },
    /// Settings that contradict one another.
    #[error("{0}")]
    Settings(String),
    /// Any other failure.
    #[error("{} failed for {}: {source}", op, path.display())]
    Io {
        /// What was tried.
        op: &'static str,
        /// On which file.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
}

impl OpenError {
    /// Sorts a system error by what the user can do about it.
    pub(crate) fn io(op: &'static str, path: impl Into<PathBuf>, source: io::Error) -> Self {
        let path = path.into();
        match source.kind() {
            io::ErrorKind::PermissionDenied | io::ErrorKind::ReadOnlyFilesystem => {
                Self::ReadOnly { path, source }
            }
            io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => Self::Full { path },
            _ => Self::Io { op, path, source },
        }
    }
}

/// Why a batch was not acknowledged.
#[derive(Clone, PartialEq, Eq, Debug, Error)]
#[non_exhaustive]
pub enum AppendError {
    /// The queue is full; the committer will make room.
    #[error("the hub's queue is full: try again")]
    QueueFull,
    /// There is no room on the disk for another segment, or no descriptor for its file.
    #[error("the hub has no space for more events ({reason}): try again later")]
    NoSpace {
        /// What the system said.
        reason: String,
    },
    /// Two writes in a row failed, so the hub takes no more events until it is opened again.
    #[error("the hub takes no events since a write failed ({reason}): check the disk and restart the hub")]
    ReadOnly {
        /// What the system said.
        reason: String,
    },
    /// The hub's files are no longer where it writes, so nothing is acknowledged any more.
    #[error("the hub takes no events since {reason}: put its data directory back and restart the hub")]
    Displaced {
        /// Which file, and what happened to it.
        reason: String,
    },
    /// A batch must fit into the hub's limit.
    #[error("the batch has {bytes} bytes, the hub takes up to {max}")]
    TooLarge {
        /// Its size on disk.
        bytes: usize,
        /// The limit.
        max: usize,
    },
    /// There is no such partition.
    #[error("the hub has no partition {partition}, it has {partitions}")]
    NoPartition {
        /// The one asked for.
        partition: u32,
        /// How many there are.
        partitions: u32,
    },
    /// An idempotent producer left out a number, or repeats what was appended too long ago.
    #[error("producer {id} sent event {found}, and its next one is {expected}")]
    OutOfOrder {
        /// The producer.
        id: i64,
        /// The number that comes next.
        expected: i32,
        /// The number of the batch.
        found: i32,
    },
    /// A later incarnation of an idempotent producer took over.
    #[error("producer {id} was replaced by one of epoch {epoch}")]
    ProducerStolen {
        /// The producer.
        id: i64,
        /// The epoch that counts.
        epoch: i16,
    },
    /// The log was closed.
    #[error("the hub's log is closed")]
    Closed,
    /// The hub was deleted.
    #[error("the hub was deleted")]
    Deleted,
}

impl AppendError {
    /// Whether sending the batch again, later, may succeed.
    pub fn is_retriable(&self) -> bool {
        matches!(
            self,
            Self::QueueFull | Self::NoSpace { .. } | Self::ReadOnly { .. } | Self::Displaced { .. }
        )
    }

    /// Whether the batch may come to light after a restart although it was not acknowledged: its write was tried.
    pub fn may_have_happened(&self) -> bool {
        matches!(self, Self::NoSpace { .. } | Self::ReadOnly { .. })
    }
}

/// Why a loss was not accepted. Nothing was changed.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum AcceptError {
    /// There is no such partition.
    #[error("the hub has no partition {partition}, it has {partitions}")]
    NoPartition {
        /// The one asked for.
        partition: u32,
        /// How many there are.
        partitions: u32,
    },
    /// No event is named.
    #[error("{first} to {last} names no event: give the first and the last lost event")]
    Empty {
        /// The first one.
        first: u64,
        /// The last one.
        last: u64,
    },
    /// An event of the range is not lost.
    #[error(
        "event {event} of partition {partition} is not lost ({}): name lost events only",
        if lost.is_empty() { "none is".to_owned() } else { format!("lost are {lost}") }
    )]
    Readable {
        /// The partition.
        partition: u32,
        /// The first event of the range that is not lost.
        event: u64,
        /// What is lost of the partition.
        lost: String,
    },
    /// There is no room for another range.
    #[error("too many separate ranges are lost: accept larger ones")]
    TooMany,
    /// A segment could not be read.
    #[error("reading segment {segment:016x} failed: {source}")]
    Read {
        /// The segment.
        segment: u64,
        /// What the system said.
        source: io::Error,
    },
    /// It could not be written down.
    #[error("writing {} failed: {source}", path.display())]
    Write {
        /// Where.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
}

/// Why events were not read. A reader keeps its place after an error.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum ReadError {
    /// Retention removed the events.
    #[error(
        "{} of partition {partition} {} gone: the oldest one left is {first}",
        Events(*from, *first),
        Events(*from, *first).are()
    )]
    Gone {
        /// The partition.
        partition: u32,
        /// The event asked for.
        from: u64,
        /// The oldest one there is.
        first: u64,
    },
    /// Retention removed the event at the offset.
    #[error(
        "offset {offset} of partition {partition} is gone: the oldest one left is {first_offset}, event {first}"
    )]
    OffsetGone {
        /// The partition.
        partition: u32,
        /// The offset asked for.
        offset: u64,
        /// The oldest offset there is.
        first_offset: u64,
        /// The oldest event there is.
        first: u64,
    },
    /// The position is beyond the end.
    #[error("partition {partition} has no position {asked} yet: its next event will be {next}")]
    Ahead {
        /// The partition.
        partition: u32,
        /// The position asked for.
        asked: u64,
        /// The next sequence number, or offset where one was asked for.
        next: u64,
    },
    /// The bytes on disk are not those that were written. Trying again does not help: nothing is passed over until the loss is
    /// accepted, see [`HubLog::accept_loss`](super::HubLog::accept_loss).
    #[error(
        "{events} of partition {partition} of hub '{hub}' {are} damaged{}: restore its data from a copy, or give {them} up with \
         'partita hub accept-loss {hub} --partition {partition} --from {from} --to {last}'",
        match *certain {
            true => "",
            false => " (at most these)",
        },
        events = Events(*from, *resume),
        are = Events(*from, *resume).are(),
        them = Events(*from, *resume).them(),
        last = resume - 1
    )]
    Corrupt {
        /// The hub: its name, or its number where it has none.
        hub: String,
        /// The partition.
        partition: u32,
        /// The segment.
        segment: u64,
        /// The first event that cannot be read.
        from: u64,
        /// The next one that is readable, or the next to be appended.
        resume: u64,
        /// Whether all these numbers were given to events; if not, there were at most as many.
        certain: bool,
    },
    /// The events were damaged, and their loss was accepted.
    #[error(
        "{} of partition {partition} {} lost to damage, which was accepted",
        Events(*from, *next),
        Events(*from, *next).are()
    )]
    Lost {
        /// The partition.
        partition: u32,
        /// The event asked for.
        from: u64,
        /// The event to go on with.
        next: u64,
    },
    /// There is no such partition.
    #[error("the hub has no partition {partition}, it has {partitions}")]
    NoPartition {
        /// The one asked for.
        partition: u32,
        /// How many there are.
        partitions: u32,
    },
    /// The log was closed, and all that is in it was read.
    #[error("the hub's log is closed")]
    Closed,
    /// The system failed to read.
    #[error("reading segment {segment:016x} failed: {source}")]
    Io {
        /// The segment.
        segment: u64,
        /// What the system said.
        source: io::Error,
    },
}
