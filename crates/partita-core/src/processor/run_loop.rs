//! The loop around the protocol: waits for something, applies it, performs the effects. The only place that awaits the store.

use std::collections::BTreeMap;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::BoxFuture;
use futures_util::stream::FuturesUnordered;
use futures_util::{FutureExt, StreamExt};
use tokio::sync::{mpsc, oneshot, watch};
use tracing::Instrument;

use super::StartError;
use super::entry::Entry;
use super::handle::{ProcessorHandle, Request};
use super::status_board::StatusBoard;
use crate::coordination::native::{Config, Native};
use crate::coordination::{CallId, Coordination, Effect, Input, PumpEvent, StoreAnswer, StoreCall};
use crate::model::{
    CancelReason, DrainReason, Epoch, Incarnation, InstanceId, PartitionId, Position, RevokeReason, Scope,
    Tick,
};
use crate::options::Options;
use crate::pump::{Closed, Command, Factory, Pump, PumpConfig, PumpState, Standing, Start};
use crate::report::{ErrorReport, Hooks, OnError, Operation, Reporter};
use crate::runtime::Runtime;
use crate::source::{EventSource, HubDescription, SourceError, SourceErrorKind};
use crate::store::{CheckpointRecord, CheckpointStore, MoveReason, Resume, StoreError};
use crate::timing::Timing;

/// How many reports of pumps may wait for the loop.
const REPORTS_WAITING_MAX: usize = 1_024;

/// How long a source may take to describe its hub.
const DESCRIBE_DEADLINE: Duration = Duration::from_secs(30);

/// What a processor is made of.
pub(super) struct Parts<F> {
    pub(super) source: Arc<dyn EventSource>,
    pub(super) store: Arc<dyn CheckpointStore>,
    pub(super) factory: Arc<F>,
    pub(super) instance: InstanceId,
    pub(super) options: Options,
    pub(super) on_error: Option<OnError>,
    pub(super) hooks: Arc<dyn Hooks>,
}

struct Answered {
    id: CallId,
    answer: Result<StoreAnswer, StoreError>,
}

struct RunLoop<F> {
    core: Native,
    factory: Arc<F>,
    store: Arc<dyn CheckpointStore>,
    scope: Arc<Scope>,
    hub: HubDescription,
    timing: Timing,
    instance: InstanceId,
    pump_config: Arc<PumpConfig>,
    pumps: BTreeMap<PartitionId, Arc<PumpState>>,
    calls: FuturesUnordered<BoxFuture<'static, Answered>>,
    /// Completes when the store says that something changed since the view it was made for.
    changed: Option<BoxFuture<'static, ()>>,
    listening: Option<(Incarnation, u64, Tick)>,
    discovery: Option<BoxFuture<'static, Result<HubDescription, SourceError>>>,
    discovery_due: Tick,
    reports: mpsc::Receiver<(PartitionId, Epoch, PumpEvent)>,
    reports_sender: mpsc::Sender<(PartitionId, Epoch, PumpEvent)>,
    requests: mpsc::Receiver<Request>,
    /// A stop was asked for: there is nothing more to ask.
    stopping: bool,
    starting: Option<oneshot::Sender<Result<(), StartError>>>,
    ended: watch::Sender<Option<Vec<String>>>,
    standing: Arc<Standing>,
    board: StatusBoard,
}

/// Describes the hub, joins the group, and leaves the loop running.
pub(super) async fn start<F: Factory>(
    parts: Parts<F>,
    runtime: Arc<dyn Runtime>,
) -> Result<ProcessorHandle, StartError> {
    let Parts { source, store, factory, instance, options, on_error, hooks } = parts;
    let hub = describe(&*source).await?;
    if hub.partitions.is_empty() {
        return Err(StartError::NoPartitions(hub.hub.to_string()));
    }
    let scope = Arc::new(Scope {
        namespace: hub.namespace.clone(),
        hub: hub.hub.clone(),
        group: options.group.clone(),
    });
    let properties = store.properties();
    let timing = options.timing.unwrap_or(properties.timing);
    let reporter = Reporter::start(instance.clone(), Arc::clone(&hooks), on_error, &*runtime);
    let entry = Entry {
        source: Arc::clone(&source),
        store: Arc::clone(&store),
        scope: Arc::clone(&scope),
        stream: hub.stream.clone(),
        timing,
        discovery_interval: options.discovery_interval,
        reporter: reporter.clone(),
    };
    entry.before().await?;
    let core = Native::new(Config {
        id: instance.clone(),
        // Together they are bounded: a name has at most 64 bytes.
        host: Arc::from(format!("{}/{}", host_name(), std::process::id())),
        started: runtime.wall(),
        timing,
        atomic: properties.atomic,
        notifies: properties.notifies,
        stamp_step: properties.stamp_step,
        policy: options.policy,
        pace: options.pace,
        drain_time: options.drain_time,
        cool_down: options.cool_down,
        initial_position: options.initial_position.clone(),
        seed: runtime.seed(),
    });
    let (reports_sender, reports) = mpsc::channel(REPORTS_WAITING_MAX);
    let (requests_sender, requests) = mpsc::channel(1);
    let (starting, started) = oneshot::channel();
    let (ended, ended_receiver) = watch::channel(None);
    let (board, status) = StatusBoard::new(Arc::clone(&scope), core.view());
    let standing = Arc::new(Standing::default());
    let run_loop = RunLoop {
        core,
        factory,
        store,
        scope,
        hub,
        timing,
        instance,
        discovery_due: runtime.now() + options.discovery_interval,
        pump_config: Arc::new(PumpConfig { source, runtime: Arc::clone(&runtime), options, reporter, hooks }),
        pumps: BTreeMap::new(),
        calls: FuturesUnordered::new(),
        changed: None,
        listening: None,
        discovery: None,
        reports,
        reports_sender,
        requests,
        stopping: false,
        starting: Some(starting),
        ended,
        standing: Arc::clone(&standing),
        board,
    };
    let span = tracing::info_span!("coordination", instance = %run_loop.instance, scope = %run_loop.scope);
    runtime
        .spawn_coordination(Box::pin(run_loop.run().instrument(span)))
        .map_err(|error| StartError::Ended(format!("no thread for the coordination: {error}")))?;
    match started.await {
        Ok(Ok(())) => {
            let handle = ProcessorHandle::new(requests_sender, status, ended_receiver, standing);
            match entry.after().await {
                Ok(()) => Ok(handle),
                Err(error) => {
                    let _ = handle.shutdown().await;
                    Err(error)
                }
            }
        }
        Ok(Err(error)) => Err(error),
        Err(_) => Err(StartError::Ended("the coordination ended before it joined the group".to_owned())),
    }
}

impl<F: Factory> RunLoop<F> {
    async fn run(mut self) {
        let mut effects = Vec::new();
        let mut input = Input::Hub(self.hub.clone());
        loop {
            let now = self.now();
            self.core.apply(now, input, &mut effects);
            self.standing.set_hard_stop(self.core.hard_stop());
            for effect in effects.drain(..) {
                if let Some(failures) = self.perform(now, effect) {
                    self.end(failures);
                    return;
                }
            }
            self.listen();
            if now >= self.board.due() {
                self.board.publish(now, self.core.view(), &self.pumps);
            }
            input = self.next_input().await;
        }
    }

    fn now(&self) -> Tick {
        self.pump_config.runtime.now()
    }

    async fn next_input(&mut self) -> Input {
        let now = self.now();
        let mut due = self.board.due();
        due = self.core.deadline().map_or(due, |at| at.min(due));
        if self.discovery.is_none() {
            due = due.min(self.discovery_due);
            if now >= self.discovery_due {
                let source = Arc::clone(&self.pump_config.source);
                self.discovery = Some(Box::pin(async move { describe(&*source).await }));
            }
        }
        tokio::select! {
            biased;
            request = self.requests.recv(), if !self.stopping => match request {
                // A handle that is gone wants the same as one that asks. It would say so for ever.
                Some(Request::Stop) | None => {
                    self.stopping = true;
                    Input::Stop
                }
            },
            Some(Answered { id, answer }) = self.calls.next() => Input::Answer(id, answer),
            Some((partition, epoch, event)) = self.reports.recv() => Input::Pump(partition, epoch, event),
            () = self.standing.pump_gone.notified() => {
                match self.pumps.values().find(|pump| pump.take_gone()) {
                    Some(pump) => {
                        // There may be more of them.
                        self.standing.pump_gone.notify_one();
                        Input::Pump(pump.partition.clone(), pump.epoch, PumpEvent::Ended)
                    }
                    None => Input::Time,
                }
            }
            () = maybe(&mut self.changed) => {
                self.changed = None;
                Input::Changed
            }
            described = maybe(&mut self.discovery) => {
                self.discovery = None;
                self.discovery_due = self.now() + self.pump_config.options.discovery_interval;
                match described {
                    Ok(hub) => {
                        self.on_described(&hub);
                        Input::Hub(hub)
                    }
                    Err(error) => {
                        let error = error.into();
                        let report = ErrorReport { partition: None, operation: Operation::Describe, error };
                        self.pump_config.reporter.report(report);
                        Input::Time
                    }
                }
            }
            () = tokio::time::sleep(due.since(now)) => Input::Time,
        }
    }

    /// A hub that was reset has other events at the places where its readers are: they start over.
    fn on_described(&mut self, hub: &HubDescription) {
        let was_reset = matches!((&self.hub.stream, &hub.stream), (Some(then), Some(now)) if then != now);
        self.hub = hub.clone();
        if was_reset {
            for (partition, pump) in &self.pumps {
                pump.set_stream(hub.stream.clone());
                self.report_reset(partition);
                pump.ask_seek(Position::Earliest);
            }
        }
    }

    fn report_reset(&self, partition: &PartitionId) {
        let error = "the hub was reset since the last checkpoint: starting at its earliest event";
        self.pump_config.reporter.report(ErrorReport {
            partition: Some(partition.clone()),
            operation: Operation::OpenReader,
            error: error.into(),
        });
    }

    /// Waits for changes since the latest view; once per view.
    fn listen(&mut self) {
        let listening = self.core.listens_as().map(|(me, cursor, sent)| (me.clone(), cursor, sent));
        if listening == self.listening {
            return;
        }
        self.board.touch();
        self.listening.clone_from(&listening);
        self.changed = listening.map(|(me, cursor, _)| {
            let (store, scope) = (Arc::clone(&self.store), Arc::clone(&self.scope));
            let changed: BoxFuture<'static, ()> =
                Box::pin(async move { store.changed(&scope, &me, cursor).await });
            changed
        });
    }

    /// Does what the protocol wants done. Gives what failed once it has ended.
    fn perform(&mut self, now: Tick, effect: Effect) -> Option<Vec<String>> {
        match effect {
            Effect::AskHub => self.discovery_due = now,
            Effect::Call(id, call) => self.calls.push(self.call(now, id, call)),
            Effect::Registered => {
                tracing::info!(instance = %self.core.view().me, scope = %self.scope, "joined the group");
                if let Some(starting) = self.starting.take() {
                    let _ = starting.send(Ok(()));
                }
            }
            Effect::Open { partition, epoch, checkpoint, lease } => {
                self.open(partition, epoch, &checkpoint, lease);
            }
            Effect::Lease { partition, until } => self.pump(&partition, |pump| pump.set_lease(until)),
            Effect::Drain { partition, reason } => {
                let why = match reason {
                    DrainReason::HandOff => "hand-off",
                    DrainReason::Shutdown => "shutdown",
                };
                tracing::info!(instance = %self.instance, %partition, reason = why, "draining");
                self.pump(&partition, |pump| pump.set_command(Command::Drain(reason)));
            }
            Effect::Undrain { partition } => self.pump(&partition, |pump| pump.set_command(Command::Run)),
            Effect::Cancel { partition, reason } => self.pump(&partition, |pump| pump.cut(reason)),
            Effect::Revoke { partition, reason } => {
                tracing::warn!(instance = %self.instance, %partition, ?reason, "partition lost");
                self.pump(&partition, |pump| {
                    // In this order: once it knows, the handler's last word must not be cut off.
                    pump.set_lease(Tick(0));
                    pump.cut(CancelReason::Lost);
                    pump.set_command(Command::Revoke(reason));
                    pump.close(Closed::Lost);
                });
            }
            Effect::Durable { partition, resume, seeks } => {
                if let Resume::After(last) = &resume {
                    tracing::debug!(%partition, %last, "checkpoint is durable");
                    self.pump_config.hooks.checkpointed(&partition, last.sequence);
                }
                self.pump(&partition, |pump| pump.set_durable(&resume, seeks));
            }
            Effect::Closed { partition, moved } => self.close(&partition, moved),
            Effect::Moved(moved) => {
                let (from, to) = (moved.from.as_ref(), moved.to.as_ref());
                tracing::info!(
                    instance = %self.instance, partition = %moved.partition, epoch = %moved.epoch,
                    from = from.map(tracing::field::display), to = to.map(tracing::field::display),
                    reason = %moved.reason, "owner changed"
                );
                self.pump_config.hooks.moved(&moved);
                self.board.moved(moved);
            }
            Effect::Report(report) => return self.report(report),
            Effect::Stopped { failures } => return Some(failures),
        }
        self.board.touch();
        None
    }

    /// Passes an error on. One that prevents the start ends the loop.
    fn report(&mut self, report: ErrorReport) -> Option<Vec<String>> {
        if report.operation == Operation::Register
            && let Some(starting) = self.starting.take()
        {
            let error = match report.error.downcast::<StoreError>() {
                Ok(error) if is_timeout(&error) => {
                    StartError::StoreTooSlow { deadline: self.timing.call_deadline() }
                }
                Ok(error) => StartError::Store(*error),
                Err(error) => StartError::Ended(error.to_string()),
            };
            let _ = starting.send(Err(error));
            return Some(Vec::new());
        }
        self.pump_config.reporter.report(report);
        None
    }

    fn pump(&self, partition: &PartitionId, command: impl FnOnce(&PumpState)) {
        if let Some(pump) = self.pumps.get(partition) {
            command(pump);
        }
    }

    fn call(&self, now: Tick, id: CallId, call: StoreCall) -> BoxFuture<'static, Answered> {
        let (store, scope) = (Arc::clone(&self.store), Arc::clone(&self.scope));
        let (hooks, runtime) = (Arc::clone(&self.pump_config.hooks), Arc::clone(&self.pump_config.runtime));
        let deadline = self.timing.call_deadline();
        Box::pin(async move {
            let op = match &call {
                StoreCall::Instance(_) => "write_instance",
                StoreCall::Ownership(_) => "write_ownership",
                StoreCall::Checkpoint(_) => "write_checkpoint",
                StoreCall::View => "view",
            };
            let answer = async {
                Ok(match call {
                    StoreCall::Instance(write) => {
                        StoreAnswer::Instance(store.write_instance(&scope, write).await?)
                    }
                    StoreCall::Ownership(write) => {
                        StoreAnswer::Ownership(store.write_ownership(&scope, write).await?)
                    }
                    StoreCall::Checkpoint(write) => {
                        StoreAnswer::Checkpoint(store.write_checkpoint(&scope, write).await?)
                    }
                    StoreCall::View => StoreAnswer::View(store.view(&scope).await?),
                })
            };
            let answer = AssertUnwindSafe(answer).catch_unwind();
            let answer = match tokio::time::timeout(deadline, answer).await {
                Ok(Ok(answer)) => answer,
                Ok(Err(_)) => Err(StoreError::unknown(op, "the store panicked")),
                Err(_) => Err(StoreError::unknown(op, NoAnswer(deadline))),
            };
            hooks.store_call(op, runtime.now().since(now), answer.is_ok());
            Answered { id, answer }
        })
    }

    fn open(&mut self, partition: PartitionId, epoch: Epoch, checkpoint: &CheckpointRecord, lease: Tick) {
        let start = self.start_of(&partition, checkpoint);
        let from = start.from();
        tracing::info!(instance = %self.instance, %partition, %epoch, %from, "partition opened");
        let shared = Arc::new(PumpState::new(
            Arc::clone(&self.scope),
            self.instance.clone(),
            partition.clone(),
            epoch,
            lease,
            Arc::clone(&self.standing),
            self.reports_sender.clone(),
        ));
        shared.set_stream(self.hub.stream.clone());
        let pump =
            Pump::new(Arc::clone(&self.pump_config), Arc::clone(&self.factory), Arc::clone(&shared), start);
        self.pump_config.hooks.opened(&partition, epoch);
        let span = tracing::info_span!("pump", instance = %self.instance, %partition, %epoch);
        self.pumps.insert(partition, shared);
        self.pump_config.runtime.spawn(Box::pin(pump.run().instrument(span)));
    }

    /// Where to start: after the checkpoint, if there is one that belongs to this life of the hub.
    fn start_of(&self, partition: &PartitionId, checkpoint: &CheckpointRecord) -> Start {
        let Some(resume) = &checkpoint.resume else {
            return Start::AskedFor(self.pump_config.options.initial_position.clone());
        };
        match (&checkpoint.stream, &self.hub.stream) {
            (Some(then), Some(now)) if then != now => {
                self.report_reset(partition);
                Start::Reached { from: Position::Earliest, last: None }
            }
            _ => match resume {
                Resume::At(position) => Start::AskedFor(position.clone()),
                Resume::After(last) => Start::Reached { from: resume.position(), last: Some(last.clone()) },
            },
        }
    }

    fn close(&mut self, partition: &PartitionId, moved: Option<MoveReason>) {
        if let Some(pump) = self.pumps.remove(partition) {
            pump.close(if moved.is_some() { Closed::PassedOn } else { Closed::Lost });
            self.pump_config.hooks.closed(partition, pump.epoch);
        }
    }

    fn end(&mut self, failures: Vec<String>) {
        for failure in &failures {
            tracing::warn!(instance = %self.instance, failure, "not stopped cleanly");
        }
        tracing::info!(instance = %self.instance, "left the group");
        let now = self.now();
        self.board.publish(now, self.core.view(), &self.pumps);
        self.ended.send_replace(Some(failures));
    }
}

impl<F> Drop for RunLoop<F> {
    /// Whatever could not be drained must not go on, and nobody must wait for what will not come: at the end of a
    /// stop, and if the loop is dropped or panics half-way.
    fn drop(&mut self) {
        for pump in self.pumps.values() {
            pump.set_lease(Tick(0));
            pump.cut(CancelReason::Lost);
            pump.set_command(Command::Revoke(RevokeReason::OwnershipLost));
            pump.close(Closed::Stopped);
        }
        self.ended.send_if_modified(|ended| {
            let unexpected = ended.is_none();
            ended.get_or_insert_with(|| vec!["the coordination ended unexpectedly".to_owned()]);
            unexpected
        });
    }
}

/// A store call outlasted its deadline.
#[derive(Debug, thiserror::Error)]
#[error("no answer within {0:?}")]
struct NoAnswer(Duration);

fn is_timeout(error: &StoreError) -> bool {
    std::error::Error::source(error).is_some_and(|source| source.is::<NoAnswer>())
}

/// Asks a source what it is, for as long as is sensible.
async fn describe(source: &dyn EventSource) -> Result<HubDescription, SourceError> {
    let failed = |what: String| Err(SourceError::new(SourceErrorKind::Retriable, what));
    match tokio::time::timeout(
        DESCRIBE_DEADLINE,
        AssertUnwindSafe(async { source.describe().await }).catch_unwind(),
    )
    .await
    {
        Ok(Ok(described)) => described,
        Ok(Err(_)) => failed("the source panicked when it was asked to describe the hub".to_owned()),
        Err(_) => failed(format!("the hub was not described within {DESCRIBE_DEADLINE:?}")),
    }
}

/// Awaits a future that may not be there.
async fn maybe<T>(future: &mut Option<BoxFuture<'static, T>>) -> T {
    match future {
        Some(future) => future.await,
        None => std::future::pending().await,
    }
}

#[cfg(any(target_os = "linux", target_os = "android"))]
fn host_name() -> String {
    rustix::system::uname().nodename().to_string_lossy().into_owned()
}

#[cfg(not(any(target_os = "linux", target_os = "android")))]
fn host_name() -> String {
    "unknown host".to_owned()
}
