//! Builds a processor: required things are arguments, the rest has defaults.

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::BoxFuture;

use super::StartError;
use super::handle::ProcessorHandle;
use super::run_loop::{self, Parts};
use crate::balance::{Pace, Policy};
use crate::handler::{Context, Handler, HandlerResult};
use crate::model::{ConsumerGroup, Event, InstanceId, PartitionId, Position};
use crate::options::{ChangedPast, Checkpoint, ConfigError, FailurePolicy, Options};
use crate::pump::{Factory, FullFactory, OnBatch, OnEvent};
use crate::report::{Guarded, Hooks, NoHooks, OnError, ProcessorError};
use crate::runtime::{Runtime, TokioRuntime};
use crate::source::EventSource;
use crate::store::CheckpointStore;
use crate::timing::Timing;

/// Marks a builder that has no handler yet: it cannot build.
#[derive(Clone, Copy, Debug)]
pub struct NoHandler;

/// Builds a [`Processor`].
#[must_use = "a builder does nothing until it is built and started"]
pub struct Builder<F> {
    source: Arc<dyn EventSource>,
    store: Arc<dyn CheckpointStore>,
    factory: F,
    instance: Option<InstanceId>,
    options: Options,
    /// Whether `prefetch_events` was chosen: a larger batch does not change it then.
    prefetch_chosen: bool,
    on_error: Option<OnError>,
    hooks: Arc<dyn Hooks>,
    runtime: Option<Arc<dyn Runtime>>,
}

/// Starts a processor, whatever its handler is.
type Start =
    Box<dyn FnOnce(Arc<dyn Runtime>) -> BoxFuture<'static, Result<ProcessorHandle, StartError>> + Send>;

/// One instance of a group, ready to start.
#[must_use = "a processor does nothing until it is started"]
pub struct Processor {
    instance: InstanceId,
    options: Options,
    runtime: Option<Arc<dyn Runtime>>,
    start: Start,
}

impl Processor {
    /// Starts to build a processor of the events of `source`, coordinated through `store`.
    pub fn builder(source: impl EventSource, store: impl CheckpointStore) -> Builder<NoHandler> {
        Self::builder_dyn(Arc::new(source), Arc::new(store))
    }

    /// The same with a source and a store that are shared or chosen at run time.
    pub fn builder_dyn(source: Arc<dyn EventSource>, store: Arc<dyn CheckpointStore>) -> Builder<NoHandler> {
        Builder {
            source,
            store,
            factory: NoHandler,
            instance: None,
            options: Options::default(),
            prefetch_chosen: false,
            on_error: None,
            hooks: Arc::new(NoHooks),
            runtime: None,
        }
    }
}

impl Builder<NoHandler> {
    fn with<F>(self, factory: F) -> Builder<F> {
        let Self {
            source,
            store,
            factory: NoHandler,
            instance,
            options,
            prefetch_chosen,
            on_error,
            hooks,
            runtime,
        } = self;
        Builder { source, store, factory, instance, options, prefetch_chosen, on_error, hooks, runtime }
    }

    /// Handles events one at a time: a call ends before the next one of the same partition begins.
    pub fn on_event<F, Fut>(self, handler: F) -> Builder<OnEvent<F>>
    where
        F: Fn(Event, Context) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = HandlerResult> + Send + 'static,
    {
        self.with(OnEvent(Arc::new(handler)))
    }

    /// Handles events in batches of up to [`batch_size`](Builder::batch_size).
    pub fn on_batch<F, Fut>(self, handler: F) -> Builder<OnBatch<F>>
    where
        F: Fn(Vec<Event>, Context) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = HandlerResult> + Send + 'static,
    {
        self.with(OnBatch(Arc::new(handler)))
    }

    /// Handles events with a full [`Handler`], one per partition and ownership, made by `factory`. To share state
    /// between partitions, clone a handler that holds it in an `Arc`: `.handler(move |_| shared.clone())`.
    pub fn handler<F, H>(self, factory: F) -> Builder<FullFactory<F>>
    where
        F: Fn(&PartitionId) -> H + Send + Sync + 'static,
        H: Handler,
    {
        self.with(FullFactory(factory))
    }
}

impl<F> Builder<F> {
    /// The consumer group to read in. Default: `$Default`.
    pub fn consumer_group(mut self, group: impl Into<ConsumerGroup>) -> Self {
        self.options.group = group.into();
        self
    }

    /// The name of this instance in logs and tables. Default: `partita` and a UUID.
    pub fn instance_id(mut self, id: impl Into<InstanceId>) -> Self {
        self.instance = Some(id.into());
        self
    }

    /// At most this many events per call. Default: 10.
    pub fn batch_size(mut self, events: usize) -> Self {
        self.options.batch_size = events;
        self
    }

    /// With [`call_on_empty`](Self::call_on_empty): how long a partition must have no events before the handler is
    /// called with none. A call is never held back to fill a batch. Default: 1 s.
    pub fn max_wait(mut self, wait: Duration) -> Self {
        self.options.max_wait = wait;
        self
    }

    /// Whether a batch handler is called with no events after [`max_wait`](Self::max_wait). Default: no.
    pub fn call_on_empty(mut self, call: bool) -> Self {
        self.options.call_on_empty = call;
        self
    }

    /// At most this many events of a partition wait for the handler. Default: 300, or
    /// [`batch_size`](Self::batch_size) if that is more.
    pub fn prefetch_events(mut self, events: usize) -> Self {
        self.prefetch_chosen = true;
        self.options.prefetch_events = events;
        self
    }

    /// No more is read while this many bytes of a partition's events wait for the handler. Default: 4 MiB.
    pub fn prefetch_bytes(mut self, bytes: usize) -> Self {
        self.options.prefetch_bytes = bytes;
        self
    }

    /// How long a running call may take when a partition is to be handed over, before it is cut off. Default: 10 s.
    pub fn drain_time(mut self, time: Duration) -> Self {
        self.options.drain_time = time;
        self
    }

    /// How long a partition that was given up, or could not be handed over, is left alone. Default: 10 s.
    pub fn cool_down(mut self, time: Duration) -> Self {
        self.options.cool_down = time;
        self
    }

    /// How often the hub is asked for new partitions. Default: 10 s.
    pub fn discovery_interval(mut self, interval: Duration) -> Self {
        self.options.discovery_interval = interval;
        self
    }

    /// How the load is spread. Default: equal numbers of partitions.
    pub fn policy(mut self, policy: Policy) -> Self {
        self.options.policy = policy;
        self
    }

    /// How many partitions are gone after in one cycle. Default: all that are due.
    pub fn pace(mut self, pace: Pace) -> Self {
        self.options.pace = pace;
        self
    }

    /// Where a partition starts that has no checkpoint. Default: earliest.
    pub fn initial_position(mut self, position: Position) -> Self {
        self.options.initial_position = position;
        self
    }

    /// When positions are checkpointed. Default: every 1,000 events or 1 s.
    pub fn checkpoint(mut self, checkpoint: Checkpoint) -> Self {
        self.options.checkpoint = checkpoint;
        self
    }

    /// What happens after a handler's error or panic. Default: retry with backoff, for ever.
    pub fn on_failure(mut self, policy: FailurePolicy) -> Self {
        self.options.on_failure = policy;
        self
    }

    /// What happens when the hub does not have the event that was handled last: another one is in its place, or the
    /// partition ends before it, as after an older copy of the hub's data was restored. Default: refuse.
    pub fn changed_past(mut self, policy: ChangedPast) -> Self {
        self.options.changed_past = policy;
        self
    }

    /// The times of the ownership protocol. All instances of a group must use the same. Default: what suits the store.
    pub fn timing(mut self, timing: Timing) -> Self {
        self.options.timing = Some(timing);
        self
    }

    /// Is told of everything that goes wrong and of every failure of the handler. For information: Partita deals
    /// with it. Called one at a time, on the runtime of the handlers.
    pub fn on_error(mut self, listener: impl Fn(ProcessorError) + Send + Sync + 'static) -> Self {
        self.on_error = Some(Arc::new(listener));
        self
    }

    /// Where metrics attach.
    pub fn hooks(mut self, hooks: impl Hooks) -> Self {
        self.hooks = Arc::new(Guarded(Arc::new(hooks)));
        self
    }

    /// Another runtime and clock, for tests. Default: the caller's Tokio runtime and the machine's clock.
    pub fn runtime(mut self, runtime: impl Runtime) -> Self {
        self.runtime = Some(Arc::new(runtime));
        self
    }
}

impl<F> Builder<F> {
    // The bound is the method's: where it is missing, the compiler says then what to call.
    /// Checks the options.
    #[allow(private_bounds)] // The three kinds of handler are all there are.
    pub fn build(mut self) -> Result<Processor, ConfigError>
    where
        F: Factory,
    {
        if !self.prefetch_chosen {
            self.options.prefetch_events = self.options.prefetch_events.max(self.options.batch_size);
        }
        self.options.check()?;
        if self.options.call_on_empty && F::ONE_BY_ONE {
            return Err(ConfigError::EmptyCallOnEvent);
        }
        let instance = self.instance.unwrap_or_else(|| InstanceId::generate("partita"));
        if instance.as_str().is_empty() {
            return Err(ConfigError::EmptyName { option: "instance_id" });
        }
        let parts = Parts {
            source: self.source,
            store: self.store,
            factory: Arc::new(self.factory),
            instance: instance.clone(),
            options: self.options.clone(),
            on_error: self.on_error,
            hooks: self.hooks,
        };
        Ok(Processor {
            instance,
            options: self.options,
            runtime: self.runtime,
            start: Box::new(move |runtime| Box::pin(run_loop::start(parts, runtime))),
        })
    }
}

impl Processor {
    /// Joins the group. Returns once the hub was described and the store has taken this instance in, or with the
    /// error that prevented it. Partitions are claimed and delivered from then on. Must be called in a Tokio runtime
    /// with time enabled: handlers run on it.
    pub async fn start(self) -> Result<ProcessorHandle, StartError> {
        let runtime = match self.runtime {
            Some(runtime) => runtime,
            None => Arc::new(TokioRuntime::current()),
        };
        (self.start)(runtime).await
    }
}

impl<F> std::fmt::Debug for Builder<F> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Builder").field("options", &self.options).finish_non_exhaustive()
    }
}

impl std::fmt::Debug for Processor {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Processor")
            .field("instance", &self.instance)
            .field("options", &self.options)
            .finish_non_exhaustive()
    }
}
