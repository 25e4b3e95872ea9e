//! The log without its threads, on a simulated disk: every call of the writer and the housekeeper is made in a known
//! order, so a seed is a whole run.

mod crash;
mod damage;
mod faults;
mod idempotent;
mod lost;
mod recover;
mod starts;

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

use super::core::Core;
use super::disk::{Disk, SimDisk};
use super::error::{AppendError, OpenError, ReadError};
use super::format::{EncodedBatch, ProducerStamp};
use super::housekeeper::Housekeeper;
use super::reader::LogReader;
use super::recovery::{self, Recovery};
use super::settings::{Clock, Settings};
use super::store::Store;
use super::writer::{Append, Placed, Writer};

const HUB: u64 = 7;

/// A hub's log, driven by hand.
struct Bench {
    _store: Store,
    core: Arc<Core>,
    writer: Writer,
    keeper: Housekeeper,
    recovery: Recovery,
}

/// Small segments, so that runs roll often.
fn small(partitions: u32) -> Settings {
    Settings {
        segment_bytes_first: 16 << 10,
        segment_bytes_max: 64 << 10,
        group_bytes_max: 16 << 10,
        batch_bytes_max: 6 << 10,
        tail_bytes_max: 24 << 10,
        producers_max: 8,
        ..Settings::new(partitions)
    }
}

fn dir() -> PathBuf {
    PathBuf::from("/data")
}

impl Bench {
    fn open(disk: &SimDisk, settings: Settings) -> Result<Self, OpenError> {
        let disk: Arc<dyn Disk> = Arc::new(disk.clone());
        let store = Store::open_on(disk, dir())?;
        let path = store.hub_dir(HUB);
        let (core, writer, recovery) = recovery::open(store.disk(), &path, store.id(), HUB, settings)?;
        let keeper = Housekeeper::new(core.clone());
        Ok(Self { _store: store, core, writer, keeper, recovery })
    }

    /// Commits batches of texts as one group.
    fn commit(&mut self, batches: &[(u32, Vec<String>)]) -> Result<Vec<Placed>, AppendError> {
        let batches = batches.iter().map(|(partition, events)| (*partition, None, &events[..]));
        self.commit_stamped(batches).into_iter().collect()
    }

    /// The same, with batches of idempotent producers; what became of each, in the order of partitions.
    fn commit_stamped<'a>(
        &mut self,
        batches: impl IntoIterator<Item = (u32, Option<ProducerStamp>, &'a [String])>,
    ) -> Vec<Result<Placed, AppendError>> {
        let append = |(partition, producer, events): (u32, Option<ProducerStamp>, &[String])| Append {
            partition,
            batch: EncodedBatch::of(events).expect("valid"),
            producer,
        };
        let mut appends: Vec<Append> = batches.into_iter().map(append).collect();
        appends.sort_by_key(|append| append.partition);
        self.writer.commit(appends)
    }

    fn put(&mut self, partition: u32, text: &str) -> Placed {
        self.keeper.step();
        self.commit(&[(partition, vec![text.to_owned()])]).expect("committed")[0]
    }

    /// All readable events of a partition, and what could not be read.
    fn read_all(&self, partition: u32) -> (BTreeMap<u64, Event>, Vec<ReadError>) {
        let mut reader = LogReader::new(self.core.clone(), partition, self.core.first_seq(partition));
        let (mut events, mut errors, mut batches) = (BTreeMap::new(), Vec::new(), Vec::new());
        while reader.next_seq() < self.core.end_of(partition) {
            batches.clear();
            match reader.read(8 << 10, &mut batches) {
                Ok(()) => assert!(!batches.is_empty(), "a read before the end gives something"),
                Err(
                    error @ (ReadError::Corrupt { from, resume, .. }
                    | ReadError::Lost { from, next: resume, .. }),
                ) => {
                    assert!(from < resume && from == reader.next_seq());
                    reader.seek(resume);
                    errors.push(error);
                }
                Err(error) => panic!("{error}"),
            }
            for event in batches.iter().flat_map(|batch| batch.events()) {
                let text = String::from_utf8(event.data.to_vec()).expect("text");
                let read = Event { offset: event.offset, time_ms: event.time_ms, text };
                assert_eq!(events.insert(event.seq, read), None, "served twice");
            }
        }
        (events, errors)
    }

    fn texts(&self, partition: u32) -> Vec<String> {
        let (events, errors) = self.read_all(partition);
        assert!(errors.is_empty(), "{errors:?}");
        events.into_values().map(|event| event.text).collect()
    }
}

#[derive(Clone, PartialEq, Eq, Debug)]
struct Event {
    offset: u64,
    time_ms: i64,
    text: String,
}

/// A clock that moves when told.
fn hand_clock() -> (Arc<AtomicI64>, Clock) {
    let now = Arc::new(AtomicI64::new(1_000));
    let shared = now.clone();
    (now, Clock::new(move || shared.load(Ordering::SeqCst)))
}

/// Says how much was tried. Not by a print macro, whose words a test that passes keeps to itself: `./test` shows the line.
fn counted(what: &str) {
    use std::io::Write;
    let _ = std::io::stderr().write_all(format!("counted: {what}\n").as_bytes());
}
