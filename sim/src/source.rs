//! One instance's way to the hub: readers fail, strangers take partitions, the hub is out of reach.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use futures_util::future::BoxFuture;
use partita_core::model::{Event, InstanceId, LastEnqueued, PartitionId};
use partita_core::source::{
    EventSource, Gap, HubDescription, PartitionReader, ReadRequest, SourceError, SourceErrorKind,
};
use tokio::sync::Notify;
use tokio::time::Instant;

/// What is wrong with the hub, as readers meet it.
#[derive(Debug, Default)]
struct State {
    down_until: Option<Instant>,
    cut_until: BTreeMap<InstanceId, Instant>,
    /// How often the readers of a partition, of an instance and of all were ended, and how they were last.
    ended: BTreeMap<PartitionId, (u64, SourceErrorKind)>,
    cut_off: BTreeMap<InstanceId, u64>,
    all_ended: u64,
}

/// What the sources of a world share. Clones are the same.
#[derive(Clone, Debug, Default)]
pub(crate) struct SourceWeather {
    state: Arc<Mutex<State>>,
    changed: Arc<Notify>,
}

impl SourceWeather {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Makes the readers of a partition fail.
    pub(crate) fn end_readers(&self, partition: &PartitionId, kind: SourceErrorKind) {
        let mut state = self.state();
        let ended = state.ended.entry(partition.clone()).or_insert((0, kind));
        *ended = (ended.0 + 1, kind);
        drop(state);
        self.changed.notify_waiters();
    }

    /// Makes all readers fail, and those to come until then.
    pub(crate) fn down(&self, until: Instant) {
        let mut state = self.state();
        state.all_ended += 1;
        state.down_until = state.down_until.max(Some(until));
        drop(state);
        self.changed.notify_waiters();
    }

    /// The same for one instance.
    pub(crate) fn cut_off(&self, instance: &InstanceId, until: Instant) {
        let mut state = self.state();
        *state.cut_off.entry(instance.clone()).or_default() += 1;
        state.cut_until.insert(instance.clone(), until);
        drop(state);
        self.changed.notify_waiters();
    }

    /// Ends all that is wrong.
    pub(crate) fn clear(&self) {
        let mut state = self.state();
        state.down_until = None;
        state.cut_until.clear();
    }

    fn check(&self, instance: &InstanceId) -> Result<(), SourceError> {
        let (state, now) = (self.state(), Instant::now());
        let cut = state.cut_until.get(instance).is_some_and(|until| *until > now);
        if cut || state.down_until.is_some_and(|until| until > now) {
            return Err(SourceError::new(SourceErrorKind::Retriable, "the hub is out of reach"));
        }
        Ok(())
    }
}

/// Gives the source of the hub as it is now: another one after a restart of the hub.
pub(crate) type CurrentSource = Arc<dyn Fn() -> Option<Arc<dyn EventSource>> + Send + Sync>;

/// A hub as seen from one instance.
pub(crate) struct SourceLink {
    pub(crate) hub: CurrentSource,
    pub(crate) instance: InstanceId,
    pub(crate) weather: SourceWeather,
}

impl SourceLink {
    fn source(&self) -> Result<Arc<dyn EventSource>, SourceError> {
        self.weather.check(&self.instance)?;
        (self.hub)().ok_or_else(|| SourceError::new(SourceErrorKind::Retriable, "the hub is down"))
    }
}

impl EventSource for SourceLink {
    fn describe(&self) -> BoxFuture<'_, Result<HubDescription, SourceError>> {
        Box::pin(async { self.source()?.describe().await })
    }

    fn open(&self, request: ReadRequest) -> BoxFuture<'_, Result<Box<dyn PartitionReader>, SourceError>> {
        Box::pin(async move {
            let source = self.source()?;
            let mark = Mark::now(&self.weather, &self.instance, &request.partition);
            let partition = request.partition.clone();
            let inner = source.open(request).await?;
            let (weather, instance) = (self.weather.clone(), self.instance.clone());
            let reader = LinkReader { inner: Some(inner), weather, instance, partition, mark };
            Ok(Box::new(reader) as Box<dyn PartitionReader>)
        })
    }
}

/// How often readers had been ended when this one was attached.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Mark {
    partition: u64,
    instance: u64,
    all: u64,
}

impl Mark {
    fn now(weather: &SourceWeather, instance: &InstanceId, partition: &PartitionId) -> Self {
        let state = weather.state();
        Self {
            partition: state.ended.get(partition).map_or(0, |ended| ended.0),
            instance: state.cut_off.get(instance).copied().unwrap_or_default(),
            all: state.all_ended,
        }
    }
}

struct LinkReader {
    /// Dropped when it has failed: a hub that was restarted must not be held by it.
    inner: Option<Box<dyn PartitionReader>>,
    weather: SourceWeather,
    instance: InstanceId,
    partition: PartitionId,
    mark: Mark,
}

impl LinkReader {
    /// Why the reader has ended, if it has.
    fn ended(&self) -> Option<SourceErrorKind> {
        let now = Mark::now(&self.weather, &self.instance, &self.partition);
        if now.partition != self.mark.partition {
            return self.weather.state().ended.get(&self.partition).map(|ended| ended.1);
        }
        (now != self.mark).then_some(SourceErrorKind::Retriable)
    }

    async fn next(&mut self, events_max: usize, out: &mut Vec<Event>) -> Result<(), SourceError> {
        loop {
            // Made before the question, so that nothing between the two is missed.
            let weather = self.weather.clone();
            let changed = weather.changed.notified();
            if let Some(kind) = self.ended() {
                self.inner = None;
                return Err(SourceError::new(kind, "the reader was ended"));
            }
            let Some(inner) = &mut self.inner else {
                return Err(SourceError::new(SourceErrorKind::Retriable, "the reader has failed"));
            };
            tokio::select! {
                biased;
                read = inner.read(events_max, out) => return read,
                () = changed => {}
            }
        }
    }
}

impl PartitionReader for LinkReader {
    fn read<'a>(
        &'a mut self,
        events_max: usize,
        out: &'a mut Vec<Event>,
    ) -> BoxFuture<'a, Result<(), SourceError>> {
        Box::pin(self.next(events_max, out))
    }

    fn take_gap(&mut self) -> Option<Gap> {
        self.inner.as_mut()?.take_gap()
    }

    fn last_enqueued(&self) -> Option<LastEnqueued> {
        self.inner.as_ref()?.last_enqueued()
    }
}
