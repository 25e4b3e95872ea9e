//! The life of a pump: open the handler, read and deliver while the lease is valid, and end in good order.

use std::future::Future;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use futures_util::FutureExt;
use futures_util::future::{Either, select};

use super::call::{Called, Limits, call, call_reading};
use super::deliver::{Deliver, Factory};
use super::failure::{Failure, Verdict, decide, pause_after};
use super::gate::Gate;
use super::missed::Missed;
use super::past::OtherPast;
use super::prefetch::Prefetch;
use super::progress::{Progress, Start};
use super::state::{Command, PumpState};
use super::trouble::Trouble;
use crate::coordination::PumpEvent;
use crate::handler::{Context, RevokedContext};
use crate::model::{
    BoxError, DrainReason, Position, RevokeReason, StopReason, StreamPosition, Tick, Timestamp,
};
use crate::options::Options;
use crate::report::{BatchHandled, EventsMissed, FailedEvents, Hooks, Operation, Reporter};
use crate::runtime::Runtime;
use crate::source::{EventSource, ReadRequest, SourceError, SourceErrorKind};

/// How often the partition's end is looked up while nothing is read, because a slow handler has enough to do.
const END_NOTED_EVERY: Duration = Duration::from_millis(50);

/// What all pumps of a processor have in common.
pub(crate) struct PumpConfig {
    pub(crate) source: Arc<dyn EventSource>,
    pub(crate) runtime: Arc<dyn Runtime>,
    pub(crate) options: Options,
    pub(crate) reporter: Reporter,
    pub(crate) hooks: Arc<dyn Hooks>,
}

/// Why delivery ended.
enum End {
    Drain(DrainReason),
    GiveUp,
    Revoked(RevokeReason),
}

pub(crate) struct Pump<F> {
    pub(super) config: Arc<PumpConfig>,
    factory: Arc<F>,
    pub(super) shared: Arc<PumpState>,
    pub(super) cx: Context,
    gate: Gate,
    pub(super) prefetch: Prefetch,
    pub(super) progress: Progress,
    /// What the first event of the reader is compared with.
    pub(super) expected: Option<StreamPosition>,
    /// Whether the hub's past was found to be another one and that was accepted, until an event was handled.
    pub(super) past_accepted: bool,
    /// What is tried again and again, and since when.
    pub(super) trouble: Option<(Trouble, Timestamp)>,
    missed: Missed,
    /// Failures of the handler in a row.
    failed_calls: u32,
    /// Failures of the reader in a row.
    pub(super) failed_reads: u32,
    /// Whether the last call was cut off.
    cut_off: bool,
    /// When the partition's end was last passed on.
    end_noted: Tick,
    /// Since when there has been no event and no call.
    quiet_since: Tick,
    /// Whether the handler is open.
    delivering: bool,
    last_word: LastWord,
}

impl<F: Factory> Pump<F> {
    pub(crate) fn new(
        config: Arc<PumpConfig>,
        factory: Arc<F>,
        shared: Arc<PumpState>,
        start: Start,
    ) -> Self {
        let options = &config.options;
        Self {
            cx: Context::new(Arc::<PumpState>::clone(&shared)),
            gate: Gate::new(Arc::clone(&shared), Arc::clone(&config.runtime)),
            prefetch: Prefetch::new(options.prefetch_events, options.prefetch_bytes, options.batch_size),
            progress: Progress::new(options.checkpoint, start),
            missed: Missed::default(),
            expected: None,
            past_accepted: false,
            trouble: None,
            failed_calls: 0,
            failed_reads: 0,
            cut_off: false,
            end_noted: Tick(0),
            quiet_since: Tick(0),
            delivering: false,
            last_word: LastWord { shared: Arc::clone(&shared), said: false },
            config,
            factory,
            shared,
        }
    }

    /// Runs to the end. If the runtime drops it, even before it began, the coordination is told, too.
    pub(crate) async fn run(mut self) {
        // The handler is gone before anybody else is told to open one.
        let end = self.live().await;
        self.shared.report(end).await;
        self.last_word.said();
    }

    async fn live(&mut self) -> PumpEvent {
        let Some(mut handler) = self.open().await else {
            return match self.shared.command() {
                Command::Revoke(_) => PumpEvent::Ended,
                _ => PumpEvent::Drained { last: None, cancelled: false, give_up: false },
            };
        };
        let end = self.deliver_all(&mut handler).await;
        self.prefetch.detach();
        match end {
            End::Drain(DrainReason::HandOff) => self.stop(&mut handler, StopReason::HandOff).await,
            End::Drain(DrainReason::Shutdown) => self.stop(&mut handler, StopReason::Shutdown).await,
            End::GiveUp => self.stop(&mut handler, StopReason::SourceFailed).await,
            End::Revoked(reason) => self.revoke(&mut handler, reason).await,
        }
    }

    fn now(&self) -> Tick {
        self.gate.now()
    }

    /// Whether the pump may go on: it owns the partition, and nobody wants it to stop.
    fn may_go_on(&self) -> bool {
        self.shared.may_start(self.now())
    }

    /// Of a call that starts only with a valid lease.
    fn leased(&self) -> Limits<'_> {
        Limits::leased(&self.shared, &self.gate)
    }

    /// Of a call that starts with or without a lease.
    pub(super) fn as_leased(&self) -> Limits<'_> {
        if self.shared.standing.is_over(self.now()) {
            Limits::unleased(&self.shared, &self.gate)
        } else {
            self.leased()
        }
    }

    /// Makes and opens a handler, for as long as it takes. None if the pump has to end first.
    async fn open(&mut self) -> Option<F::Handler> {
        loop {
            if self.shared.command() != Command::Run {
                return None;
            }
            if !self.may_go_on() {
                self.shared.changed.notified().await;
                continue;
            }
            self.shared.clear_cut();
            let factory = Arc::clone(&self.factory);
            let made = catch_unwind(AssertUnwindSafe(|| factory.create(&self.shared.partition)));
            let opened = match made {
                Ok(mut handler) => match call(self.leased(), handler.open(&self.cx)).await {
                    Called::Returned(Ok(())) => {
                        self.recovered(Trouble::Handling);
                        return Some(handler);
                    }
                    other => other.failure(),
                },
                Err(_) => Some("the handler's factory panicked".into()),
            };
            if let Some(error) = opened {
                self.failed_calls += 1;
                let pause = pause_after(self.failed_calls);
                self.failing(Trouble::Handling, self.failed_calls, pause, None, &error);
                self.report(Operation::HandlerOpen, error);
                self.pause(pause).await;
            }
        }
    }

    async fn deliver_all(&mut self, handler: &mut F::Handler) -> End {
        self.failed_calls = 0;
        self.delivering = true;
        loop {
            match self.shared.command() {
                Command::Run => {}
                Command::Drain(reason) => return End::Drain(reason),
                Command::Revoke(reason) => return End::Revoked(reason),
            }
            let now = self.now();
            if !self.shared.may_start(now) {
                // Lapsed: what was read is read again once the lease is back.
                self.prefetch.detach();
                self.shared.changed.notified().await;
                continue;
            }
            self.shared.clear_cut();
            if let Some(position) = self.shared.take_seek() {
                self.seek(position).await;
            }
            if !self.prefetch.is_attached() {
                if self.attach(handler).await.is_break() {
                    return End::GiveUp;
                }
                continue;
            }
            let read = if self.prefetch.is_empty() {
                self.wait_for_events(handler).await
            } else if self.prefetch.is_low() {
                self.prefetch.read().now_or_never().unwrap_or(Ok(()))
            } else {
                Ok(())
            };
            if let Err(error) = read {
                if self.on_read_error(handler, Operation::Read, error).await.is_break() {
                    return End::GiveUp;
                }
                continue;
            }
            self.tell_gaps(handler).await;
            self.check_first(handler).await;
            if let Some(first) = self.prefetch.first() {
                self.progress.found(first);
                self.failed_reads = 0;
                self.note_end(now);
                if self.deliver(handler).await.is_break() {
                    return End::GiveUp;
                }
            }
            tokio::task::coop::consume_budget().await;
        }
    }

    /// One call with the next batch, and what follows from how it went.
    async fn deliver(&mut self, handler: &mut F::Handler) -> std::ops::ControlFlow<()> {
        self.gate.reset();
        self.cut_off = false;
        let (batch, ahead) = self.prefetch.batch(self.config.options.batch_size);
        let size = batch.len();
        tracing::trace!(
            events = size,
            first = batch.first().map(|event| event.sequence_number().0),
            "delivering"
        );
        if planted!(CheckpointBeforeHandling) {
            self.progress.handled(self.gate.now(), batch);
        }
        let limits = Limits::leased(&self.shared, &self.gate);
        let (called, read_failed) =
            call_reading(limits, handler.deliver(batch, &self.cx, &self.gate), Some(ahead)).await;
        let done = self.settle_batch(size);
        self.shared.ask_unsent().await;
        match called {
            Called::Returned(Ok(())) => {
                self.failed_calls = 0;
                self.past_accepted = false;
                self.recovered(Trouble::Handling);
            }
            Called::Cut => self.on_cut(Operation::HandlerEvents),
            failed => {
                let error = failed.failure().unwrap_or_else(|| "the handler failed".into());
                self.on_failure(handler, size, done, error).await;
            }
        }
        match read_failed {
            Some(error) => self.on_read_error(handler, Operation::Read, error).await,
            None => std::ops::ControlFlow::Continue(()),
        }
    }

    /// Takes the handled events off the queue: those that the gate counted and those that the handler checkpointed.
    fn settle_batch(&mut self, size: usize) -> usize {
        let now = self.now();
        self.quiet_since = now;
        let marked = self.shared.marked();
        let (batch, _) = self.prefetch.batch(size);
        let checkpointed = batch.iter().take_while(|event| Some(event.sequence_number()) <= marked).count();
        let done = self.gate.done().max(checkpointed);
        let done = if planted!(FailedCallCounted) { batch.len() } else { done };
        if done > 0 {
            let handled = &batch[..done];
            let last = handled[done - 1].sequence_number();
            self.progress.handled(now, handled);
            self.shared.handled.store(last.0, Ordering::Relaxed);
            self.shared.handled_count.fetch_add(done as u64, Ordering::Relaxed);
            let bytes = self.prefetch.consume(done);
            self.config.hooks.batch_handled(BatchHandled {
                partition: &self.shared.partition,
                events: done,
                bytes,
                took: now.since(self.gate.started()),
                last,
            });
        }
        self.prefetch.settle();
        self.checkpoint_if_due(now);
        done
    }

    async fn on_failure(&mut self, handler: &mut F::Handler, size: usize, done: usize, error: BoxError) {
        self.failed_calls = if done > 0 { 1 } else { self.failed_calls + 1 };
        let failure = Failure { attempts: self.failed_calls, unhandled: size - done };
        let events = self.failed_events(failure);
        let _ = call(self.as_leased(), handler.error(Operation::HandlerEvents, &error, &self.cx)).await;
        match decide(self.config.options.on_failure, failure) {
            Verdict::RetryAfter(pause) => {
                let first = events.map(|events| events.first);
                self.failing(Trouble::Handling, failure.attempts, pause, first, &error);
                self.report_events(error, events);
                self.pause(pause).await;
            }
            Verdict::SkipRest => {
                let (rest, _) = self.prefetch.batch(failure.unhandled);
                let skipped = rest
                    .first()
                    .zip(rest.last())
                    .map(|(first, last)| format!("{} to {}", first.sequence_number(), last.sequence_number()))
                    .unwrap_or_default();
                if let Some(last) = rest.last() {
                    self.shared.handled.store(last.sequence_number().0, Ordering::Relaxed);
                }
                self.progress.handled(self.gate.now(), rest);
                self.prefetch.consume(failure.unhandled);
                self.failed_calls = 0;
                let text = format!("{error}; skipped the rest of the batch, sequence numbers {skipped}");
                self.report_events(text.into(), events);
            }
        }
    }

    /// What a call failed on: one event where the handler takes them one by one, else what is left of the batch.
    fn failed_events(&mut self, failure: Failure) -> Option<FailedEvents> {
        let (rest, _) = self.prefetch.batch(failure.unhandled);
        let first = rest.first()?.sequence_number();
        let last = if F::ONE_BY_ONE { first } else { rest.last()?.sequence_number() };
        Some(FailedEvents { first, last, attempt: failure.attempts })
    }

    /// Attaches a reader where the last one ended.
    async fn attach(&mut self, handler: &mut F::Handler) -> std::ops::ControlFlow<()> {
        let from = self.start_of_reader();
        let options = &self.config.options;
        let request = ReadRequest {
            group: options.group.clone(),
            partition: self.shared.partition.clone(),
            from,
            owner_level: Some(self.shared.epoch),
            name: Arc::from(self.shared.instance.as_str()),
            prefetch_events: options.prefetch_events,
            prefetch_bytes: options.prefetch_bytes,
        };
        let source = Arc::clone(&self.config.source);
        match self.unless_stopped(source.open(request)).await {
            None => {}
            Some(Ok(reader)) => {
                self.prefetch.attach(reader);
                if *self.progress.resume() == Position::Latest {
                    self.pin_latest().await;
                }
                self.quiet_since = self.now();
                if self.expected.is_none() {
                    self.recovered(Trouble::Reading);
                }
                self.check_end(handler).await;
            }
            Some(Err(error)) => return self.on_read_error(handler, Operation::OpenReader, error).await,
        }
        std::ops::ControlFlow::Continue(())
    }

    /// Turns "latest" into the place that it means now, and makes that durable: the next owner must not start at a later
    /// one, or what arrived in between would be passed over.
    async fn pin_latest(&mut self) {
        let Some(end) = self.prefetch.last_enqueued() else { return };
        let last = end.position.map(|last| Position::after_sequence(last.sequence));
        self.seek(last.unwrap_or(Position::Earliest)).await;
    }

    /// Does what the kind of error asks for; breaks if the partition cannot be read from here.
    pub(super) async fn on_read_error(
        &mut self,
        handler: &mut F::Handler,
        operation: Operation,
        error: SourceError,
    ) -> std::ops::ControlFlow<()> {
        self.prefetch.detach();
        let kind = error.kind();
        if kind == SourceErrorKind::Fatal && self.expected.take().is_some() {
            // The event to compare with may be all that cannot be read, and it was handled: go on without it.
            self.past_accepted = true;
            return std::ops::ControlFlow::Continue(());
        }
        let error: BoxError = error.into();
        let _ = call(self.as_leased(), handler.error(operation, &error, &self.cx)).await;
        self.failed_reads += 1;
        let pause = self.reading_pause();
        self.failing(Trouble::Reading, self.failed_reads, pause, None, &error);
        self.report(operation, error);
        match kind {
            SourceErrorKind::Retriable => {}
            SourceErrorKind::OwnershipLost => self.shared.report(PumpEvent::Suspect).await,
            // Somebody asked for a place that is not there: perhaps not yet.
            SourceErrorKind::PositionGone if self.progress.is_asked_for() => {}
            SourceErrorKind::PositionGone if self.progress.reached().is_some() => {
                self.on_other_past(handler, OtherPast::EndsBefore).await;
                return std::ops::ControlFlow::Continue(());
            }
            // It is of a hub that was reset, and everything that it has is new.
            SourceErrorKind::PositionGone => self.seek(Position::Earliest).await,
            SourceErrorKind::Fatal => return std::ops::ControlFlow::Break(()),
        }
        self.pause(pause).await;
        std::ops::ControlFlow::Continue(())
    }

    /// Says which events are gone; the reader goes on after them.
    async fn tell_gaps(&mut self, handler: &mut F::Handler) {
        while let Some(gap) = self.prefetch.take_gap() {
            let Some(gap) = self.missing(gap) else { continue };
            let Some(events) = self.missed.add(&gap) else { continue };
            self.shared.missed_count.fetch_add(events, Ordering::Relaxed);
            let partition = &self.shared.partition;
            self.config.hooks.missed(EventsMissed { partition, events, gap: &gap });
            let error: BoxError = SourceError::new(SourceErrorKind::PositionGone, gap).into();
            let _ = call(self.as_leased(), handler.error(Operation::Read, &error, &self.cx)).await;
            self.report(Operation::Read, error);
        }
    }

    pub(super) async fn seek(&mut self, position: Position) {
        self.prefetch.detach();
        // Whoever asks for these events again is told again.
        self.missed = Missed::default();
        self.expected = None;
        let target = self.progress.sought(position, self.shared.sought());
        self.shared.report(PumpEvent::Checkpoint(target)).await;
    }

    /// Waits until something was read, a checkpoint is due, an empty call is due, or something else changed.
    async fn wait_for_events(&mut self, handler: &mut F::Handler) -> Result<(), SourceError> {
        // A partition that runs dry is seldom looked at: flush what is due first.
        let now = self.now();
        self.checkpoint_if_due(now);
        let options = &self.config.options;
        // Counted from the last event or call, not from here: renewed leases wake this up, too.
        let empty_at = options.call_on_empty.then(|| self.quiet_since + options.max_wait);
        let wait = self.progress.due().into_iter().chain(empty_at).min().map(|at| at.since(now));
        {
            let read = pin!(self.prefetch.read());
            let changed = pin!(self.shared.changed.notified());
            let quiet = pin!(async {
                match wait {
                    Some(wait) => tokio::time::sleep(wait).await,
                    None => std::future::pending().await,
                }
            });
            if let Either::Left((Either::Right((result, _)), _)) = select(select(changed, read), quiet).await
            {
                result?;
            }
        }
        if self.prefetch.is_empty() && empty_at.is_some_and(|at| self.now() >= at) {
            self.gate.reset();
            let called = call(self.leased(), handler.deliver(&[], &self.cx, &self.gate)).await;
            if let Some(error) = called.failure() {
                let _ =
                    call(self.as_leased(), handler.error(Operation::HandlerEvents, &error, &self.cx)).await;
                self.report(Operation::HandlerEvents, error);
            }
            self.quiet_since = self.now();
        }
        Ok(())
    }

    fn checkpoint_if_due(&mut self, now: Tick) {
        if let Some(target) = self.progress.wants(now)
            && self.shared.try_report(PumpEvent::Checkpoint(target))
        {
            self.progress.requested();
        }
    }

    /// Passes on what the reader heard of the partition's end.
    fn note_end(&mut self, now: Tick) {
        if !self.prefetch.has_heard() && now.since(self.end_noted) < END_NOTED_EVERY {
            return;
        }
        self.end_noted = now;
        if let Some(end) = self.prefetch.last_enqueued() {
            *self.shared.last_enqueued.lock().unwrap_or_else(std::sync::PoisonError::into_inner) = Some(end);
        }
    }

    /// Ends while the partition is still ours.
    async fn stop(&mut self, handler: &mut F::Handler, reason: StopReason) -> PumpEvent {
        let give_up = reason == StopReason::SourceFailed;
        self.shared.report(PumpEvent::Stopping).await;
        self.shared.clear_cut();
        // The coordination may hear of it only after the drain time of the call before is over: what it cuts off then is
        // that call, not this one. So the time of this one is counted here.
        let limits = self.as_leased().with_its_own_drain_time();
        match within(self.config.options.drain_time, call(limits, handler.stopping(reason, &self.cx))).await {
            None | Some(Called::Cut) => self.on_cut(Operation::HandlerStopping),
            Some(called) => {
                if let Some(error) = called.failure() {
                    self.report(Operation::HandlerStopping, error);
                }
            }
        }
        self.shared.ask_unsent().await;
        let last = match self.shared.take_seek() {
            // Asked for in the last call: the next owner does it.
            Some(position) => Some(self.progress.sought(position, self.shared.sought())),
            None => self.progress.at_end(),
        };
        PumpEvent::Drained { last, cancelled: self.cut_off, give_up }
    }

    /// Ends after the partition was lost.
    async fn revoke(&mut self, handler: &mut F::Handler, reason: RevokeReason) -> PumpEvent {
        self.shared.clear_cut();
        let cx = RevokedContext {
            partition: self.shared.partition.clone(),
            scope: Arc::clone(&self.shared.scope),
            instance: self.shared.instance.clone(),
            epoch: self.shared.epoch,
            last_handled: self.progress.last().cloned(),
        };
        let limits = Limits::unleased(&self.shared, &self.gate);
        match within(self.config.options.drain_time, call(limits, handler.revoked(reason, &cx))).await {
            Some(Called::Returned(())) => {}
            Some(Called::Panicked(error)) => self.report(Operation::HandlerRevoked, error),
            None | Some(Called::Cut) => {
                self.report(
                    Operation::HandlerRevoked,
                    "did not end within the drain time and was cut off".into(),
                );
            }
        }
        PumpEvent::Ended
    }

    /// A call was cut off: at the end of the drain time, or because the lease ran out or the partition was lost.
    fn on_cut(&mut self, operation: Operation) {
        self.cut_off = true;
        let why = match self.shared.command() {
            Command::Drain(_) => "did not end within the drain time and was cut off",
            Command::Run if operation == Operation::HandlerStopping => {
                "did not end within the drain time and was cut off"
            }
            Command::Run => "was cut off: the lease ran out",
            Command::Revoke(_) => "was cut off: the partition was lost",
        };
        self.report(operation, why.into());
    }

    pub(super) fn report(&self, operation: Operation, error: BoxError) {
        self.config.reporter.send(Some(self.shared.partition.clone()), operation, None, Arc::from(error));
    }

    fn report_events(&self, error: BoxError, events: Option<FailedEvents>) {
        let (partition, operation) = (self.shared.partition.clone(), Operation::HandlerEvents);
        self.config.reporter.send(Some(partition), operation, events, Arc::from(error));
    }

    /// Waits; what was handled before is checkpointed meanwhile.
    pub(super) async fn pause(&mut self, pause: Duration) {
        let end = self.now() + pause;
        loop {
            self.checkpoint_if_due(self.gate.now());
            let now = self.now();
            let wake = self.progress.due().filter(|due| *due > now).map_or(end, |due| due.min(end));
            let slept = self.unless_stopped(tokio::time::sleep(wake.since(now))).await;
            if slept.is_none() || wake == end {
                return;
            }
        }
    }

    /// Whether delivery is to go on elsewhere.
    fn is_sought(&self) -> bool {
        self.delivering && self.shared.has_seek()
    }

    /// Awaits something as long as the pump may go on.
    pub(super) async fn unless_stopped<T>(&mut self, something: impl Future<Output = T>) -> Option<T> {
        let mut something = pin!(something);
        loop {
            match select(pin!(self.shared.changed.notified()), something.as_mut()).await {
                Either::Left(_) if self.may_go_on() && !self.is_sought() => {}
                Either::Left(_) => {
                    // Whoever waits next must see the change, too.
                    self.shared.changed.notify_one();
                    return None;
                }
                Either::Right((value, _)) => return Some(value),
            }
        }
    }
}

/// Bounds a handler's last call.
async fn within<T>(time: Duration, last_call: impl Future<Output = T>) -> Option<T> {
    tokio::time::timeout(time, last_call).await.ok()
}

/// Says that the pump is gone if it could not say so itself.
struct LastWord {
    shared: Arc<PumpState>,
    said: bool,
}

impl LastWord {
    fn said(&mut self) {
        self.said = true;
    }
}

impl Drop for LastWord {
    fn drop(&mut self) {
        if !self.said {
            self.shared.report_gone();
        }
    }
}
