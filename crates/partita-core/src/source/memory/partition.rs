//! One partition: its log, the readers attached to it, and who evicts whom.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::Notify;

use super::super::{Gap, GapCause, Gaps, ReadRequest, SourceError, SourceErrorKind};
use super::log::{Cursor, Log, Run};
use crate::model::{
    ConsumerGroup, Epoch, Event, EventBuilder, LastEnqueued, Position, SequenceNumber, StreamPosition,
    Timestamp,
};

#[derive(Debug, Default)]
pub(super) struct Partition {
    state: Mutex<State>,
    /// Events came, or readers ended.
    news: Notify,
}

#[derive(Debug, Default)]
struct State {
    log: Log,
    readers: BTreeMap<u64, Attached>,
    readers_ever: u64,
}

#[derive(Debug)]
struct Attached {
    group: ConsumerGroup,
    level: Option<Epoch>,
    name: Arc<str>,
    /// Why the next read fails. Such a reader stands in nobody's way any more.
    ended: Option<(SourceErrorKind, String)>,
}

impl State {
    fn end_readers(&mut self, kind: SourceErrorKind, why: &str) {
        for attached in self.readers.values_mut().filter(|attached| attached.ended.is_none()) {
            attached.ended = Some((kind, why.to_owned()));
        }
    }
}

impl Partition {
    pub(super) fn append(
        &self,
        events: impl IntoIterator<Item = (EventBuilder, Timestamp)>,
    ) -> Option<StreamPosition> {
        let mut state = self.lock();
        let last = events.into_iter().map(|(event, time)| state.log.append(event, time)).last();
        drop(state);
        self.news.notify_waiters();
        last
    }

    pub(super) fn len(&self) -> u64 {
        self.lock().log.len()
    }

    pub(super) fn trim(&self, sequence: i64) {
        self.lock().log.trim(sequence);
    }

    pub(super) fn last_enqueued(&self) -> LastEnqueued {
        self.lock().log.last_enqueued()
    }

    /// Copies up to `events_max` events from `cursor` on; fewer if they are not together in memory.
    pub(super) fn copy(&self, cursor: &mut Cursor, events_max: usize, out: &mut Vec<Event>) -> usize {
        copy(self.lock(), cursor, events_max, out)
    }

    /// As [`Partition::copy`], for an attached reader.
    fn take(
        &self,
        reader: u64,
        cursor: &mut Cursor,
        events_max: usize,
        out: &mut Vec<Event>,
    ) -> Result<usize, SourceError> {
        let state = self.lock();
        if let Some((kind, why)) = state.readers.get(&reader).and_then(|attached| attached.ended.as_ref()) {
            return Err(SourceError::new(*kind, why.clone()));
        }
        Ok(copy(state, cursor, events_max, out))
    }

    /// Ends all readers with an error.
    pub(super) fn end_readers(&self, kind: SourceErrorKind, why: &str) {
        self.lock().end_readers(kind, why);
        self.news.notify_waiters();
    }

    /// Empties the log and ends all readers, whose places are in it no more.
    pub(super) fn reset(&self, why: &str) {
        let mut state = self.lock();
        state.log = Log::default();
        state.end_readers(SourceErrorKind::Retriable, why);
        drop(state);
        self.news.notify_waiters();
    }

    /// Attaches a reader, evicting those that it may evict.
    pub(super) fn attach(
        self: &Arc<Self>,
        request: &ReadRequest,
        reachable: &AtomicBool,
    ) -> Result<Attachment, SourceError> {
        let mut state = self.lock();
        // Asked under the lock: a hub that goes away now finds this reader attached and ends it.
        if !reachable.load(Ordering::SeqCst) {
            return Err(super::unreachable());
        }
        let rivals = || state.readers.values().filter(|r| r.ended.is_none() && r.group == request.group);
        if let Some(holder) = rivals().find(|rival| rival.level > request.owner_level) {
            let level = holder.level.unwrap_or_default();
            let why = format!("reader {:?} holds the partition at owner level {level}", holder.name);
            return Err(SourceError::new(SourceErrorKind::OwnershipLost, why));
        }
        let cursor = state
            .log
            .locate(&request.from)
            .map_err(|why| SourceError::new(SourceErrorKind::PositionGone, why))?;
        let mut gaps = Gaps::new();
        if let Some(next) = state.log.trimmed_offset(&request.from) {
            gaps.push(Gap { from: request.from.clone(), next, cause: GapCause::Retention });
        }
        if let Some(level) = request.owner_level {
            for rival in state.readers.values_mut() {
                if rival.ended.is_none() && rival.group == request.group {
                    let why = format!("reader {:?} took the partition at owner level {level}", request.name);
                    rival.ended = Some((SourceErrorKind::OwnershipLost, why));
                }
            }
        }
        state.readers_ever += 1;
        let id = state.readers_ever;
        let attached = Attached {
            group: request.group.clone(),
            level: request.owner_level,
            name: Arc::clone(&request.name),
            ended: None,
        };
        state.readers.insert(id, attached);
        drop(state);
        self.news.notify_waiters();
        Ok(Attachment { partition: Arc::clone(self), id, cursor, gaps })
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn copy(state: MutexGuard<'_, State>, cursor: &mut Cursor, events_max: usize, out: &mut Vec<Event>) -> usize {
    let before = out.len();
    match state.log.run(cursor) {
        Run::Tail(events) => out.extend(events.iter().take(events_max).cloned()),
        Run::Shared(chunk, index) => {
            drop(state);
            out.extend(chunk[index..].iter().take(events_max).cloned());
        }
    }
    let copied = out.len() - before;
    if let Cursor::At(sequence) = cursor {
        *sequence += copied as i64;
    }
    copied
}

/// A reader's place at a partition; dropping it detaches the reader.
#[derive(Debug)]
pub(super) struct Attachment {
    partition: Arc<Partition>,
    id: u64,
    cursor: Cursor,
    gaps: Gaps,
}

impl Attachment {
    /// Waits for at least one event. Nothing is taken before the last await, so dropping the future loses nothing.
    pub(super) async fn read(&mut self, events_max: usize, out: &mut Vec<Event>) -> Result<(), SourceError> {
        // A full log is always ready; without this a reader could keep its thread to itself.
        tokio::task::coop::consume_budget().await;
        loop {
            // Made before the log is looked at, so an event that comes between the two wakes it.
            let news = self.partition.news.notified();
            let (wanted, had) = (self.cursor.clone(), out.len());
            let taken = self.partition.take(self.id, &mut self.cursor, events_max, out)?;
            if let (Cursor::At(wanted), Some(first)) = (wanted, out.get(had))
                && wanted < first.sequence_number().0
            {
                let from = Position::at_sequence(SequenceNumber(wanted));
                self.gaps.push(Gap { from, next: first.sequence_number(), cause: GapCause::Retention });
            }
            if taken > 0 || events_max == 0 {
                return Ok(());
            }
            news.await;
        }
    }

    pub(super) fn take_gap(&mut self) -> Option<Gap> {
        self.gaps.take()
    }

    pub(super) fn last_enqueued(&self) -> LastEnqueued {
        self.partition.last_enqueued()
    }
}

impl Drop for Attachment {
    fn drop(&mut self) {
        self.partition.lock().readers.remove(&self.id);
    }
}
