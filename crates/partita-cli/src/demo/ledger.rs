//! Who handled which event when, read together from the processors' books. Consecutive events of one owner are one span, so a
//! long run costs no more memory than a short one.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::time::Duration;

use super::book;
use super::clock;
use super::journal::Former;
use super::moves::Move;
use super::slots::Slot;
use partita::{Epoch, InstanceId, PartitionId, Timestamp};

/// Consecutive events handled by one instance at one epoch.
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct Span {
    /// Which run of the demo on this directory, from 1.
    pub(crate) run: u32,
    pub(crate) first: i64,
    pub(crate) last: i64,
    pub(crate) instance: InstanceId,
    pub(crate) epoch: Epoch,
    /// When the first event came to the hub.
    pub(crate) enqueued: Timestamp,
    /// When the first call began.
    pub(crate) begun: Duration,
    /// When the last call ended.
    pub(crate) ended: Duration,
}

impl Span {
    /// How many events it is.
    pub(crate) fn events(&self) -> u64 {
        self.last.abs_diff(self.first) + 1
    }
}

/// The books of a run, as far as they were read.
#[derive(Debug)]
pub(crate) struct Ledger {
    data: PathBuf,
    start: Duration,
    run: u32,
    former: Former,
    books: BTreeMap<u32, Seen>,
}

#[derive(Debug, Default)]
struct Seen {
    slots: Vec<Slot>,
    /// Its processor is gone, so it does not grow.
    closed: bool,
}

impl Ledger {
    /// Goes on where former runs ended.
    pub(crate) fn new(data: PathBuf, former: Former) -> Self {
        Self { data, start: clock::now(), run: former.runs + 1, former, books: BTreeMap::new() }
    }

    /// Which run this is, from 1.
    pub(crate) fn run(&self) -> u32 {
        self.run
    }

    /// Time since the beginning of the run.
    pub(crate) fn now(&self) -> Duration {
        clock::now().saturating_sub(self.start)
    }

    /// What former runs left.
    pub(crate) fn former(&self) -> &Former {
        &self.former
    }

    /// Reads what is new. `started` processors were started so far, by all runs; `live` are those that may still write.
    pub(crate) fn look(&mut self, started: u32, live: &BTreeSet<u32>) -> Result<(), String> {
        for number in self.former.started + 1..=started {
            let seen = self.books.entry(number).or_default();
            if !seen.closed {
                seen.slots = book::read(&self.data, number)?;
                seen.closed = !live.contains(&number);
            }
        }
        Ok(())
    }

    fn slots(&self) -> impl Iterator<Item = &Slot> {
        self.books.values().flat_map(|seen| &seen.slots)
    }

    fn handled(&self) -> impl Iterator<Item = (usize, &Span)> {
        self.slots().filter_map(|slot| match slot {
            Slot::Handled { partition, span } => Some((*partition, span)),
            _ => None,
        })
    }

    /// How many calls have ended, by partition.
    pub(crate) fn calls(&self) -> Vec<u64> {
        let mut calls = vec![0; self.former.since.len()];
        for (partition, span) in self.handled() {
            calls[partition] += span.events();
        }
        calls
    }

    /// How many events are behind, by partition, given how many each holds.
    pub(crate) fn lags(&self, held: &[u64]) -> Vec<u64> {
        let mut ends = self.former.since.clone();
        let former = self.former.spans.iter().enumerate();
        let former = former.flat_map(|(partition, spans)| spans.iter().map(move |span| (partition, span)));
        for (partition, span) in former.chain(self.handled()) {
            ends[partition] = ends[partition].max(span.last + 1);
        }
        held.iter()
            .zip(ends)
            .map(|(held, end)| held.saturating_sub(u64::try_from(end).unwrap_or(0)))
            .collect()
    }

    /// The moves that are in books, by the time they were written down.
    pub(crate) fn moves(&self) -> Vec<Move> {
        let moves = self.slots().filter_map(|slot| match slot {
            Slot::Moved(moved) => Some(Move { at: moved.at.saturating_sub(self.start), ..moved.clone() }),
            _ => None,
        });
        let mut moves: Vec<Move> = moves.collect();
        moves.sort_by_key(|moved| moved.at);
        moves
    }

    /// When each owner began to read.
    pub(crate) fn openings(&self) -> BTreeMap<(usize, Epoch), Timestamp> {
        let openings = self.slots().filter_map(|slot| match slot {
            Slot::Opened { partition, epoch, at } => Some(((*partition, *epoch), *at)),
            _ => None,
        });
        openings.collect()
    }

    /// What was handled by this run, partition by partition, in the order of handling, with times from its beginning.
    pub(crate) fn spans(&self) -> Vec<Vec<Span>> {
        let mut spans = vec![Vec::new(); self.former.since.len()];
        for (partition, span) in self.handled() {
            spans[partition].push(Span {
                begun: span.begun.saturating_sub(self.start),
                ended: span.ended.saturating_sub(self.start),
                ..span.clone()
            });
        }
        spans.iter_mut().for_each(|spans: &mut Vec<Span>| spans.sort_by_key(|span| span.begun));
        spans
    }
}

/// The demo's partitions are numbered.
pub(crate) fn number_of(partition: &PartitionId) -> usize {
    partition.as_str().parse().expect("the demo's hubs number their partitions")
}

#[cfg(test)]
mod tests {
    use super::super::slots::SlotFile;
    use super::super::testing::span;
    use super::*;

    #[test]
    fn lag_is_what_lies_behind_the_furthest_event_handled() {
        let dir = tempfile::tempdir().unwrap();
        let former = Former { since: vec![0, 1], started: 3, ..Former::default() };
        let mut ledger = Ledger::new(dir.path().to_owned(), former);
        book::prepare(dir.path()).unwrap();
        let file = SlotFile::create(&book::path(dir.path(), 4)).unwrap();
        let handled = Slot::Handled { partition: 0, span: span("home-4", 1, 5..=6) };
        file.add(&handled.encode()).unwrap();
        ledger.look(4, &BTreeSet::from([4])).unwrap();
        assert_eq!(ledger.lags(&[10, 4]), [3, 3]);
        assert_eq!(ledger.calls(), [2, 0]);
    }

    #[test]
    fn a_book_is_read_once_more_after_its_processor_is_gone_and_then_no_more() {
        let dir = tempfile::tempdir().unwrap();
        let former = Former { since: vec![0], ..Former::default() };
        let mut ledger = Ledger::new(dir.path().to_owned(), former);
        book::prepare(dir.path()).unwrap();
        let file = SlotFile::create(&book::path(dir.path(), 1)).unwrap();
        let add = |events| {
            let handled = Slot::Handled { partition: 0, span: span("home-1", 1, events) };
            file.add(&handled.encode()).unwrap();
        };
        ledger.look(1, &BTreeSet::from([1])).unwrap();
        add(0..=4);
        ledger.look(1, &BTreeSet::new()).unwrap();
        assert_eq!(ledger.calls(), [5]);
        add(5..=9);
        ledger.look(1, &BTreeSet::new()).unwrap();
        assert_eq!(ledger.calls(), [5]);
    }
}
