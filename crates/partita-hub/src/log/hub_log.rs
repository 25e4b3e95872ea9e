//! The log of one hub, running: a committer thread, a housekeeping thread, and the handle through which batches go in
//! and readers come out.

use std::any::Any;
use std::fmt;
use std::io;
use std::sync::atomic::Ordering;
use std::sync::mpsc::{self, RecvTimeoutError, SyncSender};
use std::sync::{Arc, Mutex, OnceLock};
use std::task::{Context, Poll};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use super::check::LogCheck;
use super::committer::{self, Ack, AckSink, Pending, Queue};
use super::core::{Core, lock, read, write};
use super::disk::WriteMode;
use super::error::{AcceptError, AppendError, ReadError};
use super::format::{EncodedBatch, ProducerStamp};
use super::housekeeper::Housekeeper;
use super::lost_ranges::LostRange;
use super::position::{LogPosition, resolve};
use super::producers::ProducerState;
use super::reader::LogReader;
use super::recovery::Damage;
use super::retention::Retention;
use super::settings::PARTITIONS_MAX;
use super::writer::{Append, Placed, Writer};

/// How often retention looks at the clock, and a full disk is tried again.
const HOUSEKEEPING: Duration = Duration::from_secs(1);

/// The log of one hub. Dropping it closes it: what was appended is written first.
pub struct HubLog {
    core: Arc<Core>,
    queue: Arc<Queue>,
    threads: Mutex<Threads>,
    /// What the system said when writing was given up.
    failed: Arc<OnceLock<String>>,
    /// What the threads have, if there are none.
    inline: Option<Mutex<(Writer, Housekeeper)>>,
}

impl fmt::Debug for HubLog {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HubLog")
            .field("hub", &self.core.hub)
            .field("dir", &self.core.dir)
            .finish_non_exhaustive()
    }
}

/// The threads that run, until the log is closed.
#[derive(Default)]
struct Threads {
    committer: Option<JoinHandle<()>>,
    keeper: Option<JoinHandle<()>>,
    /// Dropping the sender ends the housekeeper.
    nudge: Option<SyncSender<()>>,
    /// The data directory's.
    lock: Option<Arc<dyn Any + Send + Sync>>,
}

/// The ends of a partition.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PartitionInfo {
    /// The oldest event there is, or the next one if there is none. Where the events before it are lost and that was accepted, the
    /// first of those, as long as nothing of it is beyond retention.
    pub first_seq: u64,
    /// What the next event gets.
    pub next_seq: u64,
    /// The byte position of the next event.
    pub next_offset: u64,
    /// The last event's offset, if there ever was one.
    pub last_offset: Option<u64>,
    /// When the last event was enqueued, if there ever was one.
    pub last_time_ms: Option<i64>,
}

impl HubLog {
    pub(crate) fn start(
        core: Arc<Core>,
        writer: Writer,
        lock: Arc<dyn Any + Send + Sync>,
    ) -> io::Result<Self> {
        let queue = Arc::new(Queue::default());
        let failed = Arc::new(OnceLock::new());
        let (nudge, nudged) = mpsc::sync_channel::<()>(1);
        let mut log = Self {
            core: core.clone(),
            queue: queue.clone(),
            threads: Mutex::new(Threads {
                nudge: Some(nudge.clone()),
                lock: Some(lock),
                ..Threads::default()
            }),
            failed: failed.clone(),
            inline: None,
        };
        if core.settings.single_threaded {
            let mut keeper = Housekeeper::new(core);
            keeper.step();
            log.inline = Some(Mutex::new((writer, keeper)));
            return Ok(log);
        }
        let keeper_core = core.clone();
        // Before its thread runs, which may be late: files that go meanwhile would not be missed.
        let mut keeper = Housekeeper::new(core.clone());
        // Before the committer starts, which may need a segment before the keeper runs.
        core.spares.attend(true);
        let keeper = thread::Builder::new().name(format!("hub-{}-keeper", core.hub)).spawn(move || {
            let mut recorded = Instant::now();
            loop {
                keeper.step();
                if recorded.elapsed() >= HOUSEKEEPING {
                    keeper.record(false);
                    recorded = Instant::now();
                }
                keeper.scrub_if_due();
                match nudged.recv_timeout(HOUSEKEEPING) {
                    Ok(()) | Err(RecvTimeoutError::Timeout) => {}
                    Err(RecvTimeoutError::Disconnected) => break,
                }
            }
            // The committer has ended.
            keeper.record(true);
            keeper_core.spares.attend(false);
        })?;
        super::core::lock(&log.threads).keeper = Some(keeper);
        let committer = thread::Builder::new().name(format!("hub-{}-commit", core.hub)).spawn(move || {
            let newest = |core: &Core| read(&core.segments).back().map(|segment| segment.id);
            let mut known = newest(&core);
            let mark_after = core.settings.mark_after;
            committer::run(&queue, writer, mark_after, |writer| {
                if let Some(reason) = writer.failure() {
                    failed.get_or_init(|| reason.to_owned());
                }
                let newest = newest(&core);
                if std::mem::replace(&mut known, newest) != newest {
                    // A full channel means that the keeper is about to look anyway.
                    let _ = nudge.try_send(());
                }
            });
        })?;
        super::core::lock(&log.threads).committer = Some(committer);
        Ok(log)
    }

    /// Hands a batch to the committer, without waiting. `sink` hears with `token` what became of it.
    pub fn append(
        &self,
        partition: u32,
        batch: EncodedBatch,
        token: u64,
        sink: &Arc<dyn AckSink>,
    ) -> Result<(), AppendError> {
        self.push(Append { partition, batch, producer: None }, token, sink)
    }

    /// The same for an idempotent producer: a batch that it repeats is not appended again, and `sink` hears of its first
    /// place. One out of order, or of a producer that was replaced, is refused.
    pub fn append_idempotent(
        &self,
        partition: u32,
        batch: EncodedBatch,
        producer: ProducerStamp,
        token: u64,
        sink: &Arc<dyn AckSink>,
    ) -> Result<(), AppendError> {
        self.push(Append { partition, batch, producer: Some(producer) }, token, sink)
    }

    fn push(&self, append: Append, token: u64, sink: &Arc<dyn AckSink>) -> Result<(), AppendError> {
        self.admits(append.partition, &append.batch)?;
        let pending = Pending { append, token, sink: sink.clone() };
        self.queue.push(pending, self.core.settings.queue_bytes_max)?;
        self.commit_inline();
        Ok(())
    }

    /// Does the committer's work where it has no thread.
    fn commit_inline(&self) {
        let Some(inline) = &self.inline else { return };
        let (writer, keeper) = &mut *lock(inline);
        committer::drain(&self.queue, writer);
        if let Some(reason) = writer.failure() {
            self.failed.get_or_init(|| reason.to_owned());
        }
        if self.core.spares.missing().is_some() {
            keeper.step();
        }
    }

    /// Does what is due in the background of a log that is [single-threaded](super::Settings::single_threaded), and
    /// nothing otherwise.
    pub fn keep_house(&self) {
        if let Some(inline) = &self.inline {
            let keeper = &mut lock(inline).1;
            keeper.step();
            keeper.record(false);
        }
    }

    /// Writes down what was acknowledged, now rather than within a second.
    pub(crate) fn record(&self) -> io::Result<()> {
        self.core.write_record(false)
    }

    /// What became of the files, if they are no longer where the hub writes.
    pub fn displaced(&self) -> Option<&str> {
        self.core.displaced.get().map(String::as_str)
    }

    /// Whether the log works without threads.
    pub fn is_single_threaded(&self) -> bool {
        self.inline.is_some()
    }

    /// What is known of an idempotent producer in a partition; `None` if it never sent anything, or is forgotten.
    pub fn producer(&self, partition: u32, id: i64) -> Option<ProducerState> {
        lock(&self.core.producers).state(partition, id)
    }

    /// An idempotent producer begins to send to a partition, with an epoch or with the one that it had. A higher one than
    /// before shuts out the former incarnation at once; a lower one is refused.
    pub fn begin_producer(
        &self,
        partition: u32,
        id: i64,
        epoch: Option<i16>,
    ) -> Result<ProducerState, AppendError> {
        let partitions = self.partitions();
        if partition >= partitions {
            return Err(AppendError::NoPartition { partition, partitions });
        }
        lock(&self.core.producers).begin(partition, id, epoch)
    }

    /// The same, but waits while the queue is full.
    pub fn append_waiting(
        &self,
        partition: u32,
        batch: EncodedBatch,
        token: u64,
        sink: &Arc<dyn AckSink>,
    ) -> Result<(), AppendError> {
        loop {
            match self.append(partition, batch.clone(), token, sink) {
                Err(AppendError::QueueFull) => {
                    self.queue.wait_for_room(batch.disk_bytes(), self.core.settings.queue_bytes_max);
                }
                other => return other,
            }
        }
    }

    /// Ready when the queue may have room for a batch of so many bytes; until then the waker is kept.
    pub fn poll_room(&self, cx: &mut Context<'_>, bytes: usize) -> Poll<()> {
        self.queue.poll_room(cx, bytes, self.core.settings.queue_bytes_max)
    }

    /// Appends a batch and waits until it is durable as the settings say.
    pub fn append_and_wait(&self, partition: u32, batch: EncodedBatch) -> Result<Placed, AppendError> {
        let (done, outcome) = mpsc::sync_channel(1);
        let sink: Arc<dyn AckSink> = Arc::new(Once(done));
        self.append_waiting(partition, batch, 0, &sink)?;
        drop(sink);
        outcome.recv().unwrap_or(Err(AppendError::Closed))
    }

    fn admits(&self, partition: u32, batch: &EncodedBatch) -> Result<(), AppendError> {
        let (partitions, max) = (self.partitions(), self.core.settings.batch_bytes_max);
        if partition >= partitions {
            return Err(AppendError::NoPartition { partition, partitions });
        }
        let bytes = batch.disk_bytes();
        if bytes > max { Err(AppendError::TooLarge { bytes, max }) } else { Ok(()) }
    }

    /// A reader of a partition from a position on.
    pub fn reader(&self, partition: u32, from: LogPosition) -> Result<LogReader, ReadError> {
        let seq = resolve(&self.core, partition, from)?;
        Ok(LogReader::new(self.core.clone(), partition, seq))
    }

    /// The ends of a partition; `None` if there is no such partition.
    pub fn partition(&self, partition: u32) -> Option<PartitionInfo> {
        let end = read(&self.core.ends).get(partition as usize).copied()?;
        let any = end.next_seq > 0;
        Some(PartitionInfo {
            first_seq: self.core.first_seq(partition),
            next_seq: end.next_seq,
            next_offset: end.next_offset,
            last_offset: any.then_some(end.last_offset),
            last_time_ms: any.then_some(end.last_time),
        })
    }

    /// The numbers of a partition from the first to behind the last event that a reader gets, without losses that were accepted
    /// at either end; empty if a reader gets none.
    pub fn readable_seqs(&self, partition: u32) -> std::ops::Range<u64> {
        self.core.readable_seqs(partition)
    }

    #[cfg(feature = "server")]
    /// The loss that holds an event and was accepted, as far as it is known.
    pub(crate) fn given_up_at(&self, partition: u32, seq: u64) -> Option<LostRange> {
        self.core.given_up_at(partition, seq)
    }

    /// Which life of the data directory this log belongs to.
    pub fn store_id(&self) -> super::format::StoreId {
        self.core.store
    }

    /// How many partitions there are.
    pub fn partitions(&self) -> u32 {
        self.core.partitions()
    }

    /// Adds empty partitions until there are `partitions`. Fewer than there are, or more than [`PARTITIONS_MAX`],
    /// changes nothing. The caller keeps the number and gives it when the hub is opened again.
    pub fn add_partitions(&self, partitions: u32) {
        if (self.partitions()..=PARTITIONS_MAX).contains(&partitions) {
            let mut ends = write(&self.core.ends);
            let len = ends.len().max(partitions as usize);
            ends.resize(len, Default::default());
            self.core.partitions.fetch_max(partitions, Ordering::AcqRel);
        }
    }

    /// How commits are written.
    pub fn mode(&self) -> WriteMode {
        self.core.mode
    }

    /// Whether the hub refuses events: writes failed, or its files are no longer where it writes.
    pub fn is_read_only(&self) -> bool {
        self.refuses().is_some()
    }

    /// Why the hub refuses all events, in the words that senders hear; none while it takes them.
    pub fn refuses(&self) -> Option<AppendError> {
        let displaced = self.displaced().map(|reason| AppendError::Displaced { reason: reason.to_owned() });
        let failed = || self.failed.get().map(|reason| AppendError::ReadOnly { reason: reason.clone() });
        displaced.or_else(failed)
    }

    /// Whether the log was closed.
    pub(crate) fn is_closed(&self) -> bool {
        self.core.is_closed()
    }

    /// Events that are lost to damage, in order, as far as anyone looked: opening, former runs, readers, checks, and the
    /// housekeeper, who looks through sealed segments one after another.
    pub fn lost(&self) -> Vec<LostRange> {
        self.core.losses()
    }

    /// Whether events are lost and nobody accepted that.
    pub fn is_damaged(&self) -> bool {
        self.lost().iter().any(|range| !range.accepted)
    }

    /// Reads everything and says what is damaged and what is safe. `progress` hears how many bytes of how many were read,
    /// and ends the check by answering false: then there is no result. Waits for the disk.
    pub fn check(&self, progress: &dyn Fn(u64, u64) -> bool) -> Option<LogCheck> {
        self.core.check(progress)
    }

    /// Accepts the loss of events, durably: readers pass over them from then on and report a gap. All of them must be lost.
    /// Waits for the disk.
    pub fn accept_loss(&self, partition: u32, first: u64, last: u64) -> Result<(), AcceptError> {
        self.core.accept_loss(partition, first, last)
    }

    /// Bytes that are not what was written, as far as anyone looked; see [`HubLog::lost`] for the events.
    pub fn damage(&self) -> Vec<Damage> {
        lock(&self.core.damage).clone()
    }

    /// How many segments there are, and their size together.
    pub fn size(&self) -> (usize, u64) {
        let segments = read(&self.core.segments);
        (segments.len(), segments.iter().map(|segment| segment.capacity).sum())
    }

    /// What is kept how long.
    pub fn retention(&self) -> Retention {
        *lock(&self.core.retention)
    }

    /// Keeps events this long from now on. The caller keeps it and gives it when the hub is opened again.
    pub fn set_retention(&self, retention: Retention) {
        *lock(&self.core.retention) = retention;
    }

    /// Writes what was appended, then ends: no more is taken, and readers are told once they have read all. Waits
    /// for the disk.
    pub fn close(&self) {
        self.queue.close();
        let mut threads = lock(&self.threads);
        // The committer may wait for a segment to be prepared, so it ends first.
        if let Some(committer) = threads.committer.take() {
            let _ = committer.join();
        }
        threads.nudge = None;
        if let Some(keeper) = threads.keeper.take() {
            let _ = keeper.join();
        }
        if let (Some(inline), false) = (&self.inline, self.core.is_closed()) {
            super::core::lock(inline).1.record(true);
        }
        threads.lock = None;
        self.core.closed.store(true, Ordering::Release);
        let waiting = std::mem::take(&mut *lock(&self.core.waiting));
        waiting.into_values().flatten().for_each(std::task::Waker::wake);
    }
}

impl Drop for HubLog {
    fn drop(&mut self) {
        self.close();
    }
}

struct Once(SyncSender<Result<Placed, AppendError>>);

impl AckSink for Once {
    fn acked(&self, acks: &[Ack]) {
        for ack in acks {
            let _ = self.0.try_send(ack.outcome.clone());
        }
    }
}
