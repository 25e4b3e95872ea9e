//! What a pump shares with the coordination that commands it and with the contexts given to its handler.

use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU8, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use futures_util::future::BoxFuture;
use tokio::sync::{Notify, mpsc, watch};

use super::standing::Standing;
use crate::coordination::{PumpEvent, Target};
use crate::handler::{CheckpointError, CheckpointFuture, OwnedPartition};
use crate::model::{
    CancelReason, DrainReason, Epoch, Event, InstanceId, LastEnqueued, PartitionId, Position, RevokeReason,
    Scope, SequenceNumber, StreamId, StreamPosition, Tick,
};
use crate::store::Resume;

/// What the coordination wants of a pump.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Command {
    Run,
    Drain(DrainReason),
    Revoke(RevokeReason),
}

const RUN: u8 = 0;
const DRAIN_HAND_OFF: u8 = 1;
const DRAIN_SHUTDOWN: u8 = 2;
const REVOKE_LOST: u8 = 3;
const REVOKE_FENCED: u8 = 4;
const REVOKE_BURIED: u8 = 5;

impl Command {
    fn to_bits(self) -> u8 {
        match self {
            Self::Run => RUN,
            Self::Drain(DrainReason::HandOff) => DRAIN_HAND_OFF,
            Self::Drain(DrainReason::Shutdown) => DRAIN_SHUTDOWN,
            Self::Revoke(RevokeReason::OwnershipLost) => REVOKE_LOST,
            Self::Revoke(RevokeReason::Fenced) => REVOKE_FENCED,
            Self::Revoke(RevokeReason::Buried) => REVOKE_BURIED,
        }
    }

    fn from_bits(bits: u8) -> Self {
        match bits {
            RUN => Self::Run,
            DRAIN_HAND_OFF => Self::Drain(DrainReason::HandOff),
            DRAIN_SHUTDOWN => Self::Drain(DrainReason::Shutdown),
            REVOKE_FENCED => Self::Revoke(RevokeReason::Fenced),
            REVOKE_BURIED => Self::Revoke(RevokeReason::Buried),
            _ => Self::Revoke(RevokeReason::OwnershipLost),
        }
    }
}

/// Of `PumpState::cut`.
fn bit(why: CancelReason) -> u8 {
    match why {
        CancelReason::DrainTime => 1,
        CancelReason::Lost => 2,
    }
}

/// How far checkpoints of one pump have come.
#[derive(Clone, Debug, Default)]
struct Durable {
    last: Option<SequenceNumber>,
    /// How often the pump has sought.
    seeks: u64,
    /// Why there will be no more.
    closed: Option<Closed>,
}

/// Why a pump's checkpoints have ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Closed {
    PassedOn,
    Lost,
    Stopped,
}

/// What the handler was given and has declared handled since the last seek. Under one lock: a checkpoint from another
/// task must not be taken for one that was asked for after a seek.
#[derive(Debug, Default)]
struct Declared {
    /// How often the pump has sought.
    seeks: u64,
    /// The last event that the handler was given.
    delivered: Option<SequenceNumber>,
    /// The last event that it declared handled by a checkpoint.
    marked: Option<SequenceNumber>,
    /// The newest checkpoint that could not be asked for at once. The pump asks for it when the call has ended.
    unsent: Option<StreamPosition>,
}

/// What a pump shares with the coordination that commands it and with the contexts given to its handler.
pub(crate) struct PumpState {
    pub(crate) scope: Arc<Scope>,
    pub(crate) instance: InstanceId,
    pub(crate) partition: PartitionId,
    pub(crate) epoch: Epoch,
    /// Of the whole instance.
    pub(crate) standing: Arc<Standing>,
    /// The tick at which the lease ends.
    lease: AtomicU64,
    command: AtomicU8,
    /// Why the running call is to be cut off: a bit for each reason.
    cut: AtomicU8,
    /// The pump is gone, and there was no room to report it.
    gone: AtomicBool,
    /// Wakes the pump when any of the above changes.
    pub(crate) changed: Notify,
    /// Wakes handlers that wait for the stop signal.
    stop: Notify,
    durable: watch::Sender<Durable>,
    reports: mpsc::Sender<(PartitionId, Epoch, PumpEvent)>,
    declared: Mutex<Declared>,
    seek: Mutex<Option<Position>>,
    /// Which life of the hub's data is read.
    stream: Mutex<Option<StreamId>>,
    pub(crate) last_enqueued: Mutex<Option<LastEnqueued>>,
    /// For the status: the last event handled, and how many were.
    pub(crate) handled: AtomicI64,
    pub(crate) handled_count: AtomicU64,
    /// How many events were gone before they were read.
    pub(crate) missed_count: AtomicU64,
}

impl PumpState {
    pub(crate) fn new(
        scope: Arc<Scope>,
        instance: InstanceId,
        partition: PartitionId,
        epoch: Epoch,
        lease: Tick,
        standing: Arc<Standing>,
        reports: mpsc::Sender<(PartitionId, Epoch, PumpEvent)>,
    ) -> Self {
        Self {
            scope,
            instance,
            partition,
            epoch,
            standing,
            lease: AtomicU64::new(lease.0),
            command: AtomicU8::new(RUN),
            cut: AtomicU8::new(0),
            gone: AtomicBool::new(false),
            changed: Notify::new(),
            stop: Notify::new(),
            durable: watch::Sender::new(Durable::default()),
            reports,
            declared: Mutex::default(),
            seek: Mutex::new(None),
            stream: Mutex::new(None),
            last_enqueued: Mutex::new(None),
            handled: AtomicI64::new(i64::MIN),
            handled_count: AtomicU64::new(0),
            missed_count: AtomicU64::new(0),
        }
    }

    pub(crate) fn stream(&self) -> Option<StreamId> {
        self.stream.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    pub(crate) fn set_stream(&self, stream: Option<StreamId>) {
        *self.stream.lock().unwrap_or_else(PoisonError::into_inner) = stream;
    }

    #[inline]
    pub(crate) fn may_start(&self, now: Tick) -> bool {
        self.has_lease(now) && self.command.load(Ordering::Acquire) == RUN && !self.standing.is_abandoned()
    }

    #[inline]
    pub(crate) fn has_lease(&self, now: Tick) -> bool {
        now.0 < self.lease.load(Ordering::Acquire) || planted!(ThawedGoesOn)
    }

    pub(crate) fn set_lease(&self, until: Tick) {
        self.lease.store(until.0, Ordering::Release);
        self.changed.notify_one();
    }

    pub(crate) fn command(&self) -> Command {
        Command::from_bits(self.command.load(Ordering::Acquire))
    }

    pub(crate) fn set_command(&self, command: Command) {
        self.command.store(command.to_bits(), Ordering::Release);
        if command == Command::Run {
            self.clear_cut();
        } else {
            self.stop.notify_waiters();
        }
        self.changed.notify_one();
    }

    /// Cuts off the running call.
    pub(crate) fn cut(&self, why: CancelReason) {
        self.cut.fetch_or(bit(why), Ordering::AcqRel);
        self.changed.notify_one();
    }

    #[inline]
    pub(crate) fn is_cut(&self) -> bool {
        self.cut.load(Ordering::Acquire) != 0
    }

    #[inline]
    pub(crate) fn is_cut_because(&self, why: CancelReason) -> bool {
        self.cut.load(Ordering::Acquire) & bit(why) != 0
    }

    pub(crate) fn clear_cut(&self) {
        self.cut.store(0, Ordering::Release);
    }

    fn declared(&self) -> MutexGuard<'_, Declared> {
        self.declared.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The highest sequence number that the handler declared handled by a checkpoint.
    pub(crate) fn marked(&self) -> Option<SequenceNumber> {
        self.declared().marked
    }

    /// Asks for the checkpoint that the handler wanted while there was no room to ask.
    pub(crate) async fn ask_unsent(&self) {
        let unsent = {
            let mut declared = self.declared();
            declared.unsent.take().map(|position| (position, declared.seeks))
        };
        if let Some((position, seeks)) = unsent {
            let target = Target { resume: Resume::After(position), seek: false, seeks };
            self.report(PumpEvent::Checkpoint(target)).await;
        }
    }

    pub(crate) fn ask_seek(&self, position: Position) {
        *self.seek.lock().unwrap_or_else(PoisonError::into_inner) = Some(position);
        self.changed.notify_one();
    }

    pub(crate) fn has_seek(&self) -> bool {
        self.seek.lock().unwrap_or_else(PoisonError::into_inner).is_some()
    }

    pub(crate) fn take_seek(&self) -> Option<Position> {
        self.seek.lock().unwrap_or_else(PoisonError::into_inner).take()
    }

    /// Delivery goes on elsewhere: what was declared handled, delivered or durable says nothing about that. Tells how
    /// often that has happened.
    pub(crate) fn sought(&self) -> u64 {
        let mut declared = self.declared();
        let seeks = declared.seeks + 1;
        *declared = Declared { seeks, ..Declared::default() };
        self.durable.send_modify(|durable| {
            durable.last = None;
            durable.seeks = seeks;
        });
        seeks
    }

    /// The handler is about to be given events up to this one.
    pub(crate) fn set_delivered(&self, last: SequenceNumber) {
        self.declared().delivered = Some(last);
    }

    /// A position reached the store that was asked for after so many seeks.
    pub(crate) fn set_durable(&self, resume: &Resume, seeks: u64) {
        if let Resume::After(last) = resume {
            self.durable.send_if_modified(|durable| {
                let current = durable.seeks == seeks;
                if current {
                    durable.last = Some(last.sequence);
                }
                current
            });
        }
    }

    pub(crate) fn close(&self, why: Closed) {
        self.durable.send_modify(|durable| durable.closed = Some(why));
    }

    /// Asks for a checkpoint; false if the coordination is too busy to be asked now.
    pub(crate) fn try_report(&self, event: PumpEvent) -> bool {
        self.reports.try_send((self.partition.clone(), self.epoch, event)).is_ok()
    }

    /// Says that the pump is gone, without waiting for room in the queue: there may be nobody left to wait.
    pub(crate) fn report_gone(&self) {
        if !self.try_report(PumpEvent::Ended) {
            self.gone.store(true, Ordering::Release);
            self.standing.pump_gone.notify_one();
        }
    }

    /// Whether the pump is gone without a report. True once.
    pub(crate) fn take_gone(&self) -> bool {
        self.gone.swap(false, Ordering::AcqRel)
    }

    pub(crate) async fn report(&self, event: PumpEvent) {
        // Without a receiver the processor is gone, and nobody needs the report.
        let _ = self.reports.send((self.partition.clone(), self.epoch, event)).await;
    }
}

impl PumpState {
    async fn until_durable(&self, sequence: SequenceNumber, seeks: u64) -> Result<(), CheckpointError> {
        let mut durable = self.durable.subscribe();
        loop {
            let now = durable.borrow_and_update().clone();
            if now.seeks != seeks {
                return Err(CheckpointError::Sought);
            }
            if now.last.is_some_and(|last| last >= sequence) {
                return Ok(());
            }
            match now.closed {
                Some(Closed::Lost) => return Err(CheckpointError::OwnershipLost),
                Some(Closed::PassedOn) => return Err(CheckpointError::PassedOn),
                Some(Closed::Stopped) => return Err(CheckpointError::Stopped),
                None => {}
            }
            if durable.changed().await.is_err() {
                return Err(CheckpointError::Stopped);
            }
        }
    }
}

impl OwnedPartition for PumpState {
    fn scope(&self) -> &Scope {
        &self.scope
    }

    fn instance(&self) -> &InstanceId {
        &self.instance
    }

    fn partition(&self) -> &PartitionId {
        &self.partition
    }

    fn epoch(&self) -> Epoch {
        self.epoch
    }

    fn last_enqueued(&self) -> Option<LastEnqueued> {
        self.last_enqueued.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn is_stopping(&self) -> bool {
        self.command() != Command::Run || self.standing.is_abandoned()
    }

    fn stopped(&self) -> BoxFuture<'_, ()> {
        Box::pin(async {
            loop {
                let mut notified = std::pin::pin!(self.stop.notified());
                notified.as_mut().enable();
                if self.is_stopping() {
                    return;
                }
                notified.await;
            }
        })
    }

    fn checkpoint(self: Arc<Self>, event: &Event) -> CheckpointFuture {
        let position = event.position();
        let seeks = {
            let mut declared = self.declared();
            if declared.delivered.is_none_or(|delivered| position.sequence > delivered) {
                return CheckpointFuture(Box::pin(async { Err(CheckpointError::NotDelivered) }));
            }
            declared.marked = declared.marked.max(Some(position.sequence));
            declared.seeks
        };
        let sequence = position.sequence;
        let target = Target { resume: Resume::After(position.clone()), seek: false, seeks };
        let queued = self.try_report(PumpEvent::Checkpoint(target.clone()));
        if !queued {
            // Whoever drops the future has asked all the same.
            let mut declared = self.declared();
            let newer = declared.unsent.as_ref().is_none_or(|unsent| unsent.sequence < sequence);
            if newer && declared.seeks == seeks {
                declared.unsent = Some(position);
            }
        }
        CheckpointFuture(Box::pin(async move {
            if !queued {
                self.report(PumpEvent::Checkpoint(target)).await;
            }
            self.until_durable(sequence, seeks).await
        }))
    }

    fn seek(&self, position: Position) {
        self.ask_seek(position);
    }
}
