//! The records of a scope. Ownership and checkpoint records are never deleted: an epoch must not start over.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use crate::model::{
    Epoch, Incarnation, PartitionId, Position, SequenceNumber, StreamId, StreamPosition, Timestamp,
};

/// Changes at every write of a record: a counter, or a tag of the store's own making. Compared for equality only.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct Version(Repr);

#[derive(Clone, PartialEq, Eq, Hash)]
enum Repr {
    Number(u64),
    Tag(Arc<str>),
}

impl Version {
    /// A counter.
    pub const fn number(number: u64) -> Self {
        Self(Repr::Number(number))
    }

    /// A tag, such as an ETag.
    pub fn tag(tag: impl AsRef<str>) -> Self {
        Self(Repr::Tag(Arc::from(tag.as_ref())))
    }

    /// The counter, where the version is one.
    pub fn as_number(&self) -> Option<u64> {
        match self.0 {
            Repr::Number(number) => Some(number),
            Repr::Tag(_) => None,
        }
    }

    /// The tag, where the version is one.
    pub fn as_tag(&self) -> Option<&str> {
        match &self.0 {
            Repr::Number(_) => None,
            Repr::Tag(tag) => Some(tag),
        }
    }
}

impl fmt::Debug for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0 {
            Repr::Number(number) => write!(f, "v{number}"),
            Repr::Tag(tag) => f.write_str(tag),
        }
    }
}

/// Names one write of one incarnation, so that a writer that got no answer can recognise its own write.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Op {
    /// Who wrote.
    pub by: Incarnation,
    /// Counts the writes of `by`.
    pub number: u64,
}

/// Whether an incarnation may own anything.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum InstanceState {
    /// It may.
    Live,
    /// It may not, ever again.
    Dead,
}

/// What an instance tells the others about itself.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct InstanceRecord {
    /// Which life of which instance.
    pub incarnation: Incarnation,
    /// The machine and the process, as `host/pid`, for people. Former versions tell only the machine.
    pub host: Arc<str>,
    /// When this life began, for people.
    pub started: Timestamp,
    /// After how long without a heartbeat it may be declared dead, at the earliest: what it believes itself.
    pub ttl: Duration,
    /// Whether it is about to leave and takes nothing more.
    pub stopping: bool,
    /// Partitions that it does not want for now.
    pub declines: Vec<PartitionId>,
    /// Live, or dead for good.
    pub state: InstanceState,
    /// Counts the heartbeats of this life.
    pub beat: u64,
    /// What else it tells.
    pub details: InstanceDetails,
}

/// How many failing partitions an instance tells of, at most.
pub const FAILING_TOLD_MAX: usize = 16;

/// How many characters of an error an instance tells, at most.
pub const FAILING_ERROR_CHARS_MAX: usize = 200;

/// What an instance tells besides what the protocol needs. Written with every heartbeat, so it is bounded.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct InstanceDetails {
    /// Which life of the hub's data it reads, where the hub tells.
    pub stream: Option<StreamId>,
    /// Where it starts a partition that has no checkpoint.
    pub initial_position: Option<Position>,
    /// Partitions that it owns and cannot get on with, at most [`FAILING_TOLD_MAX`].
    pub failing: Vec<FailingPartition>,
}

/// A partition whose owner tries the same thing again and again, for people.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct FailingPartition {
    /// The partition.
    pub partition: PartitionId,
    /// When the first attempt failed, by the owner's wall clock.
    pub since: Timestamp,
    /// How many attempts have failed in a row.
    pub attempts: u32,
    /// When the next attempt is made, by the owner's wall clock.
    pub retry_at: Timestamp,
    /// The first event that is not handled, if one was delivered.
    pub sequence: Option<SequenceNumber>,
    /// What went wrong, in at most [`FAILING_ERROR_CHARS_MAX`] characters.
    pub error: Arc<str>,
}

/// An instance record as a view shows it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct InstanceSeen {
    /// The record.
    pub record: InstanceRecord,
    /// The record's version.
    pub version: Version,
    /// Time since the last heartbeat, by the store's clock.
    pub age: Duration,
}

/// Whether a live instance reads another life of the hub's data than `stream`, as far as both are known.
pub(crate) fn reads_another(seen: &InstanceSeen, stream: Option<&StreamId>) -> bool {
    let theirs = seen.record.details.stream.as_ref();
    seen.record.state == InstanceState::Live
        && theirs.zip(stream).is_some_and(|(theirs, ours)| theirs != ours)
}

/// Which incarnation reads a partition.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Ownership {
    /// The partition.
    pub partition: PartitionId,
    /// Who owns it, if anyone.
    pub owner: Option<Incarnation>,
    /// Rises at every change of owner.
    pub epoch: Epoch,
    /// Who asked the owner to hand it over, if anyone.
    pub next: Option<Incarnation>,
    /// When the owner last changed, by the store's clock, for people.
    pub since: Timestamp,
    /// Why the owner last changed.
    pub reason: MoveReason,
    /// The last write.
    pub op: Op,
    /// The record's version.
    pub version: Version,
}

/// Where the next owner starts.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Resume {
    /// After this event, which was the last one handled.
    After(StreamPosition),
    /// At a position that somebody sought and from which nothing has been handled yet.
    At(Position),
}

impl Resume {
    /// The position to read from.
    pub fn position(&self) -> Position {
        match self {
            Self::After(last) => Position::after_sequence(last.sequence),
            Self::At(position) => position.clone(),
        }
    }

    /// Whether a checkpoint of `last` may follow this one without a seek.
    pub fn allows(&self, last: &StreamPosition) -> bool {
        match self {
            Self::After(current) => last.sequence >= current.sequence,
            Self::At(_) => true,
        }
    }
}

/// How far a partition was processed.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct CheckpointRecord {
    /// The partition.
    pub partition: PartitionId,
    /// The owner's epoch that sealed the record: writes of any other are refused.
    pub epoch: Epoch,
    /// Where to resume, or none if nothing was ever checkpointed.
    pub resume: Option<Resume>,
    /// Which life of the hub the position belongs to, where the hub tells.
    pub stream: Option<StreamId>,
    /// When the position was written, by the store's clock, for people. A seal keeps it: it is the position's age.
    pub time: Timestamp,
    /// The last write.
    pub op: Op,
    /// The record's version.
    pub version: Version,
}

/// Why an owner changed.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[non_exhaustive]
pub enum MoveReason {
    /// Nobody owned it.
    Claimed,
    /// The owner drained, checkpointed and passed it on.
    HandedOff,
    /// The owner passed it on after cancelling a call that did not end in time.
    Stolen,
    /// The owner was declared dead.
    TakenFromDead,
    /// The owner stopped and left it free.
    Released,
    /// The owner gave it up, for example because its reader failed for good.
    GivenUp,
    /// The owner took it again to settle a write whose answer was lost.
    Retaken,
    /// Somebody moved the position by force.
    ForcedSeek,
}

impl MoveReason {
    /// All reasons.
    pub const ALL: &'static [Self] = &[
        Self::Claimed,
        Self::HandedOff,
        Self::Stolen,
        Self::TakenFromDead,
        Self::Released,
        Self::GivenUp,
        Self::Retaken,
        Self::ForcedSeek,
    ];

    /// The reason whose [`MoveReason::as_str`] this is: how a store reads what it wrote.
    pub fn parse(text: &str) -> Option<Self> {
        Self::ALL.iter().copied().find(|reason| reason.as_str() == text)
    }

    /// One or two words for a table.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Claimed => "claimed",
            Self::HandedOff => "hand-off",
            Self::Stolen => "steal",
            Self::TakenFromDead => "taken from dead",
            Self::Released => "released",
            Self::GivenUp => "given up",
            Self::Retaken => "retaken",
            Self::ForcedSeek => "forced seek",
        }
    }
}

impl fmt::Display for MoveReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

/// One change of owner, for people: nothing is decided by it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct MoveRecord {
    /// The partition.
    pub partition: PartitionId,
    /// The former owner.
    pub from: Option<Incarnation>,
    /// The new owner.
    pub to: Option<Incarnation>,
    /// The new epoch.
    pub epoch: Epoch,
    /// Why.
    pub reason: MoveReason,
    /// When, by the store's clock.
    pub time: Timestamp,
}

/// All of a scope that decisions need, read in one go.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct GroupView {
    /// All ownership records, sorted by partition, read first.
    pub ownerships: Vec<Ownership>,
    /// All instance records, dead ones too, sorted by incarnation, read second.
    pub instances: Vec<InstanceSeen>,
    /// Where in the store's changes this view stands; see [`changed`](super::CheckpointStore::changed).
    pub cursor: u64,
}
