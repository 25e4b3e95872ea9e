//! A handler that writes down every call, and does what a test tells it to.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures_util::future::BoxFuture;
use partita_core::handler::{Context, Handler, HandlerResult, RevokedContext};
use partita_core::model::{Epoch, Event, InstanceId, PartitionId};
use partita_core::processor::Operation;
use partita_core::processor::{RevokeReason, StopReason};
use partita_core::store::BoxError;
use tokio::sync::watch;

use super::soon;

/// A call as a behaviour sees it.
#[derive(Clone, Debug)]
pub enum Step {
    Open,
    Events(Vec<Event>),
    Stopping(StopReason),
}

/// What a handler does in a call.
pub type Behaviour = Arc<dyn Fn(Step, Context) -> BoxFuture<'static, HandlerResult> + Send + Sync>;

/// Does nothing, at once.
pub fn nothing() -> Behaviour {
    Arc::new(|_, _| Box::pin(async { Ok(()) }))
}

/// Handles a batch in this time.
pub fn taking(time: Duration) -> Behaviour {
    Arc::new(move |step, _| {
        Box::pin(async move {
            if matches!(step, Step::Events(_)) {
                tokio::time::sleep(time).await;
            }
            Ok(())
        })
    })
}

#[derive(Clone, PartialEq, Debug)]
pub enum What {
    /// `open` succeeded.
    Open,
    OpenFailed,
    /// A call with these events began.
    Began(Vec<i64>),
    /// A call with these events succeeded.
    Handled(Vec<i64>),
    Failed(Vec<i64>),
    /// A call with these events was cut off.
    Cut(Vec<i64>),
    Error(Operation, String),
    Stopping(StopReason),
    Revoked(RevokeReason),
}

#[derive(Clone, PartialEq, Debug)]
pub struct Entry {
    pub instance: InstanceId,
    pub partition: PartitionId,
    pub epoch: Epoch,
    /// Which handler: they are counted.
    pub handler: u64,
    pub what: What,
    pub at: tokio::time::Instant,
}

/// All that handlers wrote down.
#[derive(Clone)]
pub struct Journal {
    entries: Arc<watch::Sender<Vec<Entry>>>,
    busy: Arc<Mutex<BTreeMap<PartitionId, usize>>>,
    overlaps: Arc<Mutex<Vec<String>>>,
    handlers: Arc<Mutex<u64>>,
}

impl Default for Journal {
    fn default() -> Self {
        Self {
            entries: Arc::new(watch::Sender::new(Vec::new())),
            busy: Arc::default(),
            overlaps: Arc::default(),
            handlers: Arc::default(),
        }
    }
}

/// The events of a partition that were handled, in the order in which they were.
pub fn handled_of(entries: &[Entry], partition: &PartitionId) -> BTreeSet<i64> {
    entries.iter().filter(|e| e.partition == *partition).flat_map(|e| e.handled().iter().copied()).collect()
}

impl Entry {
    pub fn handled(&self) -> &[i64] {
        match &self.what {
            What::Handled(events) => events,
            _ => &[],
        }
    }
}

impl Journal {
    pub fn entries(&self) -> Vec<Entry> {
        self.entries.borrow().clone()
    }

    pub fn of(&self, partition: &PartitionId) -> Vec<Entry> {
        self.entries().into_iter().filter(|entry| entry.partition == *partition).collect()
    }

    pub fn handled(&self, partition: &PartitionId) -> Vec<i64> {
        self.of(partition).iter().flat_map(|entry| entry.handled().to_vec()).collect()
    }

    pub fn handled_by(&self, instance: &str, partition: &PartitionId) -> Vec<i64> {
        let entries = self.of(partition);
        entries
            .iter()
            .filter(|e| e.instance.as_str() == instance)
            .flat_map(|e| e.handled().to_vec())
            .collect()
    }

    pub async fn until(&self, what: &str, condition: impl FnMut(&[Entry]) -> bool) {
        let mut condition = condition;
        let mut entries = self.entries.subscribe();
        soon(what, async { entries.wait_for(|entries| condition(entries)).await.map(drop).unwrap() }).await;
    }

    /// Waits until something of a partition was written down.
    pub async fn sees(&self, partition: &PartitionId, what: What) {
        self.until(&format!("{what:?} on {partition}"), |entries| {
            entries.iter().any(|entry| entry.partition == *partition && entry.what == what)
        })
        .await;
    }

    pub fn assert_no_overlap(&self) {
        assert_eq!(*self.overlaps.lock().unwrap(), Vec::<String>::new());
    }

    /// Checks every handler's life and tells how they ended.
    pub fn assert_lives(&self) -> BTreeMap<u64, What> {
        let mut lives: BTreeMap<u64, Vec<What>> = BTreeMap::new();
        for entry in self.entries() {
            if !matches!(entry.what, What::Error(..)) {
                lives.entry(entry.handler).or_default().push(entry.what);
            }
        }
        for life in lives.values() {
            let is_end = |what: &&What| matches!(what, What::Stopping(_) | What::Revoked(_));
            if life[0] == What::OpenFailed {
                assert_eq!(life.len(), 1, "nothing follows an open that failed: {life:?}");
                continue;
            }
            assert_eq!(life[0], What::Open, "{life:?}");
            assert_eq!(life.iter().filter(|what| **what == What::Open).count(), 1, "{life:?}");
            assert_eq!(life.iter().filter(is_end).count(), 1, "exactly one end: {life:?}");
            assert!(is_end(&life.last().unwrap()), "the end is last: {life:?}");
        }
        lives.into_iter().map(|(handler, life)| (handler, life.last().unwrap().clone())).collect()
    }

    pub fn clear(&self) {
        self.entries.send_modify(Vec::clear);
    }

    fn write(&self, entry: Entry) {
        self.entries.send_modify(|entries| entries.push(entry));
    }

    /// Marks a call as running until the guard is dropped.
    fn enter(&self, partition: &PartitionId, what: &str) -> InCall {
        let mut busy = self.busy.lock().unwrap();
        let count = busy.entry(partition.clone()).or_default();
        *count += 1;
        if *count > 1 {
            self.overlaps.lock().unwrap().push(format!("{what} on partition {partition}"));
        }
        InCall { journal: self.clone(), partition: partition.clone() }
    }
}

struct InCall {
    journal: Journal,
    partition: PartitionId,
}

impl Drop for InCall {
    fn drop(&mut self) {
        *self.journal.busy.lock().unwrap().get_mut(&self.partition).unwrap() -= 1;
    }
}

pub struct Probe {
    journal: Journal,
    who: InstanceId,
    number: u64,
    behave: Behaviour,
}

impl Probe {
    pub fn new(journal: Journal, who: InstanceId, behave: Behaviour) -> Self {
        let number = {
            let mut handlers = journal.handlers.lock().unwrap();
            *handlers += 1;
            *handlers
        };
        Self { journal, who, number, behave }
    }

    fn note(&self, partition: &PartitionId, epoch: Epoch, what: What) {
        self.journal.write(Entry {
            instance: self.who.clone(),
            partition: partition.clone(),
            epoch,
            handler: self.number,
            what,
            at: tokio::time::Instant::now(),
        });
    }
}

/// Writes down that a call was cut off, if it was.
struct Ending<'a> {
    probe: &'a Probe,
    cx: &'a Context,
    events: Vec<i64>,
    ended: bool,
}

impl Drop for Ending<'_> {
    fn drop(&mut self) {
        if !self.ended && !std::thread::panicking() {
            self.probe.note(self.cx.partition(), self.cx.epoch(), What::Cut(self.events.clone()));
        }
    }
}

impl Handler for Probe {
    async fn open(&mut self, cx: &Context) -> HandlerResult {
        let _in_call = self.journal.enter(cx.partition(), "open");
        let opened = (self.behave)(Step::Open, cx.clone()).await;
        let what = if opened.is_ok() { What::Open } else { What::OpenFailed };
        self.note(cx.partition(), cx.epoch(), what);
        opened
    }

    async fn events(&mut self, events: &[Event], cx: &Context) -> HandlerResult {
        let _in_call = self.journal.enter(cx.partition(), "events");
        let numbers: Vec<i64> = events.iter().map(|event| event.sequence_number().0).collect();
        self.note(cx.partition(), cx.epoch(), What::Began(numbers.clone()));
        let mut ending = Ending { probe: self, cx, events: numbers.clone(), ended: false };
        let result = (self.behave)(Step::Events(events.to_vec()), cx.clone()).await;
        ending.ended = true;
        drop(ending);
        let what = if result.is_ok() { What::Handled(numbers) } else { What::Failed(numbers) };
        self.note(cx.partition(), cx.epoch(), what);
        result
    }

    async fn error(&mut self, operation: Operation, error: &BoxError, cx: &Context) {
        self.note(cx.partition(), cx.epoch(), What::Error(operation, error.to_string()));
    }

    async fn stopping(&mut self, reason: StopReason, cx: &Context) -> HandlerResult {
        let _in_call = self.journal.enter(cx.partition(), "stopping");
        self.note(cx.partition(), cx.epoch(), What::Stopping(reason));
        (self.behave)(Step::Stopping(reason), cx.clone()).await
    }

    async fn revoked(&mut self, reason: RevokeReason, cx: &RevokedContext) {
        let _in_call = self.journal.enter(&cx.partition, "revoked");
        self.note(&cx.partition, cx.epoch, What::Revoked(reason));
    }
}
