//! One hub: its log, its consumer groups, and the readers attached to it.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use partita_core::model::{
    ConsumerGroup, HubName, LastEnqueued, Offset, SequenceNumber, StreamId, StreamPosition, Timestamp,
};

use super::admission::Readers;
use super::check::{CheckState, Checking};
use super::meta::Meta;
use super::reader::{Attach, AttachError, Ended, HubReader, Seat};
use super::routing::{Route, Router};
use super::{BrokerError, check_name};
use crate::log::{
    Ack, AckSink, AppendError, Disk, EncodedBatch, HubLog, OpenError, PARTITIONS_MAX, PartitionInfo, Placed,
    ProducerStamp, ProducerState, Recovery, Retention, Settings, Store,
};

/// What a new hub is like.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct HubOptions {
    /// How many partitions; more can be added.
    pub partitions: u32,
    /// What is kept how long.
    pub retention: Retention,
}

impl Default for HubOptions {
    /// Four partitions, a day.
    fn default() -> Self {
        Self { partitions: 4, retention: Retention::default() }
    }
}

/// Those who read a partition in a group, and how to reach them.
#[derive(Debug, Default)]
struct Table {
    readers: Readers,
    seats: HashMap<u64, Arc<Seat>>,
}

/// A hub that is open.
#[derive(Debug)]
pub struct Hub {
    name: HubName,
    id: u64,
    log: HubLog,
    disk: Arc<dyn Disk>,
    dir: std::path::PathBuf,
    meta: Mutex<Meta>,
    /// The size limit where the hub has none of its own.
    bytes_max: Option<u64>,
    deleted: AtomicBool,
    disabled: AtomicBool,
    router: Router,
    tables: Mutex<HashMap<(ConsumerGroup, u32), Table>>,
    next_reader: AtomicU64,
    checking: Checking,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Hub {
    pub(crate) fn open(
        store: &Store,
        disk: Arc<dyn Disk>,
        id: u64,
        meta: Meta,
        defaults: &Settings,
    ) -> Result<(Self, Recovery), OpenError> {
        let bytes_max = defaults.retention.bytes_max;
        let retention = limited(meta.retention, bytes_max);
        let settings = Settings { partitions: meta.partitions, retention, ..defaults.clone() };
        let (log, recovery) = store.open_hub_as(id, &meta.name, settings)?;
        let hub = Self {
            name: HubName::new(&meta.name),
            id,
            log,
            disk,
            dir: store.hub_dir(id),
            disabled: AtomicBool::new(meta.disabled),
            meta: Mutex::new(meta),
            bytes_max,
            deleted: AtomicBool::new(false),
            router: Router::default(),
            tables: Mutex::default(),
            next_reader: AtomicU64::new(1),
            checking: Checking::default(),
        };
        Ok((hub, recovery))
    }

    /// Its name.
    pub fn name(&self) -> &HubName {
        &self.name
    }

    /// Its number in the data directory.
    pub fn id(&self) -> u64 {
        self.id
    }

    /// Which life of the hub's data this is: another one after a reset, the same after a restart.
    pub fn stream(&self) -> StreamId {
        StreamId::new(format!("{}-{}", self.log().store_id(), self.id))
    }

    /// When it was made.
    pub fn created(&self) -> Timestamp {
        Timestamp(lock(&self.meta).created_ms)
    }

    /// Its log.
    #[doc(hidden)]
    pub fn log(&self) -> &HubLog {
        &self.log
    }

    /// How many partitions it has.
    pub fn partitions(&self) -> u32 {
        self.log.partitions()
    }

    /// Adds partitions, durably, until there are `partitions`. Keys hash to other partitions from then on.
    pub fn add_partitions(&self, partitions: u32) -> Result<(), BrokerError> {
        let found = self.partitions();
        if partitions < found {
            return Err(BrokerError::FewerPartitions { hub: self.name.clone(), found, asked: partitions });
        }
        if partitions > PARTITIONS_MAX {
            let text = format!("a hub has 1 to {PARTITIONS_MAX} partitions, not {partitions}");
            return Err(OpenError::Settings(text).into());
        }
        self.change(|meta| meta.partitions = partitions)?;
        self.log.add_partitions(partitions);
        Ok(())
    }

    /// The consumer groups; the default one is always there.
    pub fn groups(&self) -> Vec<ConsumerGroup> {
        let more = lock(&self.meta).groups.iter().map(ConsumerGroup::new).collect::<Vec<_>>();
        std::iter::once(ConsumerGroup::default()).chain(more).collect()
    }

    /// Makes a consumer group, durably; one that exists stays as it is.
    pub fn create_group(&self, group: &ConsumerGroup) -> Result<(), BrokerError> {
        if self.groups().contains(group) {
            return Ok(());
        }
        check_name(group.as_str())?;
        self.change(|meta| meta.groups.push(group.as_str().to_owned()))
    }

    /// Removes a consumer group, durably; its readers are told. The default one stays.
    pub fn delete_group(&self, group: &ConsumerGroup) -> Result<(), BrokerError> {
        if *group == ConsumerGroup::default() {
            return Err(BrokerError::DefaultGroup);
        }
        if !self.groups().contains(group) {
            return Err(BrokerError::NoGroup { hub: self.name.clone(), group: group.clone() });
        }
        self.change(|meta| meta.groups.retain(|name| ConsumerGroup::new(name) != *group))?;
        self.end_readers(|key| key.0 == *group, || Ended::Deleted(group.to_string()));
        Ok(())
    }

    /// What is kept how long.
    pub fn retention(&self) -> Retention {
        self.log.retention()
    }

    /// Keeps events this long from now on, durably. What is too old by then goes within seconds.
    pub fn set_retention(&self, retention: Retention) -> Result<(), BrokerError> {
        retention.check()?;
        self.change(|meta| meta.retention = retention)?;
        self.log.set_retention(limited(retention, self.bytes_max));
        Ok(())
    }

    /// Whether clients are refused: nothing is sent to the hub over the network, and nobody reads it. Its events stay.
    pub fn is_disabled(&self) -> bool {
        self.disabled.load(Ordering::SeqCst)
    }

    /// Disables the hub, durably, or enables it again. Its readers are told.
    pub fn set_disabled(&self, disabled: bool) -> Result<(), BrokerError> {
        self.change(|meta| meta.disabled = disabled)?;
        self.disabled.store(disabled, Ordering::SeqCst);
        if disabled {
            self.end_readers(|_| true, || Ended::Disabled(self.name.to_string()));
        }
        Ok(())
    }

    /// Ends everything: readers and producers are told, and the log's threads are gone when this returns. The hub's
    /// directory says already that it was deleted.
    pub(crate) fn end(&self) {
        self.deleted.store(true, Ordering::SeqCst);
        self.end_readers(|_| true, || Ended::Deleted(self.name.to_string()));
        self.log.close();
    }

    /// Whether the hub was deleted. Whoever still holds it can do nothing with it.
    pub fn is_deleted(&self) -> bool {
        self.deleted.load(Ordering::SeqCst)
    }

    fn end_readers(&self, whose: impl Fn(&(ConsumerGroup, u32)) -> bool, why: impl Fn() -> Ended) {
        let mut seats = Vec::new();
        lock(&self.tables).retain(|key, table| {
            let ends = whose(key);
            if ends {
                seats.extend(table.seats.drain().map(|(_, seat)| seat));
            }
            !ends
        });
        for seat in seats {
            seat.end(why());
        }
    }

    fn change(&self, change: impl FnOnce(&mut Meta)) -> Result<(), BrokerError> {
        let mut meta = lock(&self.meta);
        if self.is_deleted() {
            return Err(BrokerError::NoHub(self.name.clone()));
        }
        if let Some(reason) = self.log.displaced() {
            return Err(BrokerError::Displaced(reason.to_owned()));
        }
        let mut changed = meta.clone();
        change(&mut changed);
        let saved = changed.save(&*self.disk, &self.dir);
        saved.map_err(|source| BrokerError::Io { path: self.dir.clone(), source })?;
        *meta = changed;
        Ok(())
    }

    /// Begins to read everything in the background, to find what is damaged; a check that runs goes on.
    pub fn start_check(self: &Arc<Self>) -> std::io::Result<()> {
        let hub = self.clone();
        self.checking.start(move |progress| {
            hub.log.check(&|done, total| {
                progress(done, total);
                !hub.is_deleted() && !hub.log.is_closed()
            })
        })
    }

    /// How the last check stands; `None` if there was none since the hub was opened.
    pub fn check_state(&self) -> Option<CheckState> {
        self.checking.state()
    }

    /// Hands a batch to the committer, without waiting; says which partition it goes to. `sink` hears with `token` what
    /// became of it.
    #[doc(hidden)]
    pub fn send(
        &self,
        route: Route<'_>,
        batch: EncodedBatch,
        token: u64,
        sink: &Arc<dyn AckSink>,
    ) -> Result<u32, AppendError> {
        let partition = self.router.partition(route, self.partitions());
        self.log
            .append(partition, batch, token, sink)
            .map(|()| partition)
            .map_err(|error| self.or_deleted(error))
    }

    /// As [`Hub::send`], for an idempotent producer: what it repeats is not appended again, and `sink` hears of its first
    /// place. It numbers its events in each partition, so it must name one, or always use the same key.
    #[doc(hidden)]
    pub fn send_idempotent(
        &self,
        route: Route<'_>,
        batch: EncodedBatch,
        producer: ProducerStamp,
        token: u64,
        sink: &Arc<dyn AckSink>,
    ) -> Result<u32, AppendError> {
        let partition = self.router.partition(route, self.partitions());
        let appended = self.log.append_idempotent(partition, batch, producer, token, sink);
        appended.map(|()| partition).map_err(|error| self.or_deleted(error))
    }

    /// An idempotent producer begins to send to a partition: it is told, or keeps, its epoch and its last number. A
    /// higher epoch than before shuts out the former incarnation at once, a lower one is refused.
    #[doc(hidden)]
    pub fn begin_producer(
        &self,
        partition: u32,
        id: i64,
        epoch: Option<i16>,
    ) -> Result<ProducerState, AppendError> {
        self.log.begin_producer(partition, id, epoch)
    }

    /// What is known of an idempotent producer; `None` if it never sent anything to the partition, or was forgotten.
    #[doc(hidden)]
    pub fn producer_state(&self, partition: u32, id: i64) -> Option<ProducerState> {
        self.log.producer(partition, id)
    }

    /// Sends a batch and waits until it is durable as the settings say.
    #[doc(hidden)]
    pub fn send_and_wait(&self, route: Route<'_>, batch: EncodedBatch) -> Result<Placed, AppendError> {
        let partition = self.router.partition(route, self.partitions());
        self.log.append_and_wait(partition, batch).map_err(|error| self.or_deleted(error))
    }

    fn or_deleted(&self, error: AppendError) -> AppendError {
        if error == AppendError::Closed && self.is_deleted() { AppendError::Deleted } else { error }
    }

    /// The ends of a partition; `None` if there is no such partition.
    pub fn partition(&self, partition: u32) -> Option<PartitionInfo> {
        self.log.partition(partition)
    }

    /// The last event of a partition, as readers are told of it.
    pub fn last_enqueued(&self, partition: u32) -> Option<LastEnqueued> {
        let info = self.log.partition(partition)?;
        let last = info.next_seq.checked_sub(1).zip(info.last_offset);
        Some(LastEnqueued {
            position: last.map(|(seq, offset)| {
                StreamPosition::new(SequenceNumber(seq.cast_signed()), Offset::number(offset))
            }),
            enqueued_time: info.last_time_ms.map(Timestamp),
            retrieved: Timestamp::now(),
        })
    }

    /// Attaches a reader to a partition. One with an epoch sends away those that must go.
    #[doc(hidden)]
    pub fn attach(self: &Arc<Self>, attach: Attach) -> Result<HubReader, AttachError> {
        // The position first: a reader that cannot start must not send anyone away.
        let reader = self.log.reader(attach.partition, attach.log_position()?)?;
        let id = self.next_reader.fetch_add(1, Ordering::Relaxed);
        let seat = Arc::new(Seat::default());
        let key = (attach.group, attach.partition);
        let mut tables = lock(&self.tables);
        // Under the lock, so that nobody sits down after everybody was told to go.
        if self.is_deleted() {
            return Err(AttachError::NoHub { hub: self.name.clone() });
        }
        if self.is_disabled() {
            return Err(AttachError::Disabled { hub: self.name.clone() });
        }
        let groups = self.groups();
        if !groups.contains(&key.0) {
            return Err(AttachError::NoGroup { hub: self.name.clone(), group: key.0, groups });
        }
        let table = tables.entry(key.clone()).or_default();
        let evicted = table.readers.admit(id, attach.name, attach.epoch)?;
        let gone: Vec<_> =
            evicted.into_iter().filter_map(|e| Some((table.seats.remove(&e.id)?, e.reason))).collect();
        table.seats.insert(id, seat.clone());
        drop(tables);
        for (seat, reason) in gone {
            seat.end(Ended::Evicted(reason));
        }
        Ok(HubReader::new(self.clone(), key, id, seat, reader))
    }

    /// A reader leaves.
    pub(crate) fn detach(&self, key: &(ConsumerGroup, u32), id: u64) {
        let mut tables = lock(&self.tables);
        if let Some(table) = tables.get_mut(key) {
            table.readers.leave(id);
            table.seats.remove(&id);
            if table.readers.is_empty() {
                tables.remove(key);
            }
        }
    }
}

/// A hub without a size limit has the one that holds for all.
fn limited(retention: Retention, bytes_max: Option<u64>) -> Retention {
    Retention { bytes_max: retention.bytes_max.or(bytes_max), ..retention }
}

impl AckSink for std::sync::mpsc::SyncSender<Ack> {
    /// A producer that is gone needs no answer; one that has more under way than the channel holds loses some.
    fn acked(&self, acks: &[Ack]) {
        for ack in acks {
            let _ = self.try_send(ack.clone());
        }
    }
}
