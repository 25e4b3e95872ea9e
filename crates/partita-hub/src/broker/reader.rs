//! A reader of a partition in a consumer group.

use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use partita_core::model::{ConsumerGroup, Epoch, HubName, Position, SequenceNumber};
use partita_core::source::{Gap, GapCause, Gaps};
use thiserror::Error;

use super::admission::Refused;
use super::hub::Hub;
use crate::log::park::park_until;
use crate::log::{LogPosition, LogReader, ReadError, StoredBatch};

/// What a reader asks for.
#[derive(Clone, PartialEq, Debug)]
pub struct Attach {
    /// The consumer group.
    pub group: ConsumerGroup,
    /// The partition.
    pub partition: u32,
    /// Where to start.
    pub from: Position,
    /// Reads alone, at this level; `None` = beside others.
    pub epoch: Option<Epoch>,
    /// The reader's name, for messages.
    pub name: Arc<str>,
}

impl Attach {
    pub(crate) fn log_position(&self) -> Result<LogPosition, AttachError> {
        let bad = || AttachError::BadPosition { position: self.from.to_string() };
        Ok(match &self.from {
            Position::Earliest => LogPosition::Earliest,
            Position::Latest => LogPosition::Latest,
            Position::Time(time) => LogPosition::Time(time.millis()),
            Position::Offset { offset, inclusive } => {
                let offset = offset.as_number().ok_or_else(bad)?;
                LogPosition::Offset(offset.saturating_add(u64::from(!inclusive)))
            }
            // After event -1 is before the first one.
            Position::Sequence { sequence, inclusive } => {
                let seq = sequence.0.saturating_add(i64::from(!inclusive));
                LogPosition::Seq(u64::try_from(seq).map_err(|_| bad())?)
            }
        })
    }
}

/// Why a reader was not attached.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum AttachError {
    /// The hub was deleted.
    #[error("The messaging entity '{hub}' could not be found")]
    NoHub {
        /// The hub.
        hub: HubName,
    },
    /// The hub is disabled.
    #[error("Messaging entity '{hub}' is currently disabled")]
    Disabled {
        /// The hub.
        hub: HubName,
    },
    /// There is no such group.
    #[error("The messaging entity '{group}' could not be found: hub '{hub}' has the consumer groups {}", listed(.groups))]
    NoGroup {
        /// The hub.
        hub: HubName,
        /// The group.
        group: ConsumerGroup,
        /// Those that the hub has.
        groups: Vec<ConsumerGroup>,
    },
    /// The offset or number is none of this hub.
    #[error("{position} is not a position in this hub")]
    BadPosition {
        /// What was asked for.
        position: String,
    },
    /// Others read there.
    #[error(transparent)]
    Refused(#[from] Refused),
    /// The position is not there, or the partition.
    #[error(transparent)]
    Position(#[from] ReadError),
}

/// How many names a sentence lists.
const LISTED_MAX: usize = 20;

/// Names in a sentence, the first of them if there are many.
pub(crate) fn listed(names: &[impl fmt::Display]) -> String {
    let mut text = names.iter().take(LISTED_MAX).map(ToString::to_string).collect::<Vec<_>>().join(", ");
    if let Some(more) = names.len().checked_sub(LISTED_MAX).filter(|more| *more > 0) {
        text.push_str(&format!(" and {more} more"));
    }
    text
}

/// Why a reader ends, or what it cannot read.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum HubReadError {
    /// A reader with an equal or higher epoch took the partition.
    #[error("{reason}")]
    Evicted {
        /// Who took it.
        reason: String,
    },
    /// The hub or the consumer group was deleted. The words are the service's.
    #[error("The messaging entity '{entity}' could not be found")]
    Deleted {
        /// The name of the hub or group.
        entity: String,
    },
    /// The hub was disabled. The words are the service's.
    #[error("Messaging entity '{entity}' is currently disabled")]
    Disabled {
        /// The name of the hub.
        entity: String,
    },
    /// The log could not be read there.
    #[error(transparent)]
    Log(#[from] ReadError),
}

/// Why a reader's seat is gone.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Ended {
    /// Another reader took the partition, in the words that are to be said.
    Evicted(String),
    /// The hub or the consumer group of this name was deleted.
    Deleted(String),
    /// The hub of this name was disabled.
    Disabled(String),
}

/// How the hub reaches a reader.
#[derive(Debug, Default)]
pub(crate) struct Seat {
    state: Mutex<SeatState>,
}

#[derive(Debug, Default)]
struct SeatState {
    ended: Option<Ended>,
    waker: Option<Waker>,
}

impl Seat {
    fn state(&self) -> MutexGuard<'_, SeatState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn end(&self, why: Ended) {
        let waker = {
            let mut state = self.state();
            state.ended.get_or_insert(why);
            state.waker.take()
        };
        if let Some(waker) = waker {
            waker.wake();
        }
    }
}

/// A reader of a partition in a consumer group. Dropping it detaches it.
#[derive(Debug)]
pub struct HubReader {
    hub: Arc<Hub>,
    key: (ConsumerGroup, u32),
    id: u64,
    seat: Arc<Seat>,
    reader: LogReader,
    gaps: Gaps,
}

impl HubReader {
    pub(crate) fn new(
        hub: Arc<Hub>,
        key: (ConsumerGroup, u32),
        id: u64,
        seat: Arc<Seat>,
        reader: LogReader,
    ) -> Self {
        Self { hub, key, id, seat, reader, gaps: Gaps::new() }
    }

    /// Goes on at event `next`: what was to be read from `from` on up to there is gone.
    pub(crate) fn pass_over(&mut self, from: Position, next: u64, cause: GapCause) {
        self.reader.seek(next);
        self.gaps.push(Gap { from, next: SequenceNumber(next.cast_signed()), cause });
    }

    /// The oldest gap not asked for yet: events that the reader passed over, because they were gone.
    pub fn take_gap(&mut self) -> Option<Gap> {
        self.gaps.take()
    }

    /// The hub.
    pub fn hub(&self) -> &Arc<Hub> {
        &self.hub
    }

    /// The partition.
    pub fn partition(&self) -> u32 {
        self.reader.partition()
    }

    /// The sequence number of the event that is read next.
    pub fn next_seq(&self) -> u64 {
        self.reader.next_seq()
    }

    /// Goes on at this sequence number, past what cannot be read.
    pub fn seek(&mut self, seq: u64) {
        self.reader.seek(seq);
    }

    /// Fails if the reader was evicted, or what it reads was deleted.
    pub fn check(&self) -> Result<(), HubReadError> {
        match self.seat.state().ended.clone() {
            Some(Ended::Evicted(reason)) => Err(HubReadError::Evicted { reason }),
            Some(Ended::Deleted(entity)) => Err(HubReadError::Deleted { entity }),
            Some(Ended::Disabled(entity)) => Err(HubReadError::Disabled { entity }),
            None => Ok(()),
        }
    }

    /// Appends the next batches to `out`, see [`LogReader::read`]. Nothing is read after an eviction.
    pub fn read(&mut self, bytes_max: usize, out: &mut Vec<StoredBatch>) -> Result<(), HubReadError> {
        self.check()?;
        Ok(self.reader.read(bytes_max, out)?)
    }

    /// As [`HubReader::read`], from memory alone, so never slow: false if the disk has to be read.
    pub fn read_cached(
        &mut self,
        bytes_max: usize,
        out: &mut Vec<StoredBatch>,
    ) -> Result<bool, HubReadError> {
        self.check()?;
        Ok(self.reader.read_cached(bytes_max, out))
    }

    /// Ready when the next [`HubReader::read`] has something to say; until then the waker is kept.
    pub fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        {
            let mut state = self.seat.state();
            if state.ended.is_some() {
                return Poll::Ready(());
            }
            state.waker = Some(cx.waker().clone());
        }
        self.reader.poll_ready(cx)
    }

    /// Blocks the thread until there is something to read; false if there is not within `time_max`.
    pub fn wait(&mut self, time_max: Duration) -> bool {
        park_until(time_max, |cx| self.poll_ready(cx))
    }
}

impl Drop for HubReader {
    fn drop(&mut self) {
        self.hub.detach(&self.key, self.id);
    }
}
