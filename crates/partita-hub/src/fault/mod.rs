//! What users ask the hub to do wrong, to see what their programs make of it.
//!
//! A fault says what happens, to which links, and how often or how long. The listener asks at each point where a fault can
//! strike; without any fault that costs one load.

#[cfg(test)]
mod tests;

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use tokio::sync::watch;

use crate::service::condition::{Refusal, SERVER_BUSY};

/// How many faults there can be at once.
pub const FAULTS_MAX: usize = 1_000;

/// Names a fault that was added.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct FaultId(pub u64);

/// What goes wrong.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum FaultKind {
    /// Links are detached, and attaching ones refused, with this error.
    Detach {
        /// Such as `amqp:link:detach-forced`.
        condition: String,
        /// What people read.
        description: String,
    },
    /// Events reach readers, and senders get their answers, this much later.
    Delay(Duration),
    /// Sends are rejected, and attaching links refused, with `com.microsoft:server-busy`.
    Busy,
    /// The connection is cut, without a word.
    Drop,
}

/// Which links a fault strikes, by what the client does there.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum FaultRole {
    /// Those that send events.
    Sender,
    /// Those that receive events.
    Receiver,
    /// Both.
    #[default]
    Any,
}

/// A fault: what goes wrong, where and for how long. Where a field is `None` there is no such condition.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Fault {
    /// What goes wrong.
    pub kind: FaultKind,
    /// On links to this hub.
    pub hub: Option<String>,
    /// On links to this partition. A sender to the hub is struck by the partition of its events' key.
    pub partition: Option<u32>,
    /// On links of this role.
    pub role: FaultRole,
    /// Ends after striking so many times.
    pub count: Option<u64>,
    /// Ends after so long.
    pub lasts: Option<Duration>,
}

impl Fault {
    /// A fault that strikes everywhere and does not end by itself.
    pub fn new(kind: FaultKind) -> Self {
        Self { kind, hub: None, partition: None, role: FaultRole::Any, count: None, lasts: None }
    }
}

/// Where a fault may strike now.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Spot<'a> {
    pub(crate) hub: &'a str,
    /// `None`: a sender to the hub, before its events' partition is known.
    pub(crate) partition: Option<u32>,
    pub(crate) sends: bool,
    pub(crate) moment: Moment,
}

/// What is going on there.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Moment {
    /// A link is being attached.
    Attach,
    /// A link is there.
    Attached,
    /// A message was sent by the client.
    Sent,
    /// An answer or events are about to go to the client.
    Answer,
}

/// What the listener is to do.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Strike {
    Refuse(Refusal),
    Delay(Duration),
    Cut,
}

#[derive(Debug)]
struct Active {
    id: FaultId,
    fault: Fault,
    since: Instant,
    hits: u64,
}

impl Active {
    fn is_over(&self, now: Instant) -> bool {
        let Fault { count, lasts, .. } = self.fault;
        count.is_some_and(|count| self.hits >= count)
            || lasts.is_some_and(|lasts| now.saturating_duration_since(self.since) >= lasts)
    }

    fn strikes(&self, spot: &Spot<'_>) -> bool {
        let Fault { hub, partition, role, .. } = &self.fault;
        let role = match role {
            FaultRole::Sender => spot.sends,
            FaultRole::Receiver => !spot.sends,
            FaultRole::Any => true,
        };
        let moment = match (&self.fault.kind, spot.moment) {
            (FaultKind::Detach { .. }, moment) => matches!(moment, Moment::Attach | Moment::Attached),
            (FaultKind::Delay(_), moment) => moment == Moment::Answer,
            (FaultKind::Busy, moment) => matches!(moment, Moment::Attach | Moment::Sent),
            (FaultKind::Drop, moment) => moment != Moment::Answer,
        };
        role && moment
            && hub.as_ref().is_none_or(|hub| hub.to_lowercase() == spot.hub.to_lowercase())
            && partition.is_none_or(|partition| spot.partition == Some(partition))
    }

    fn strike(&mut self) -> Strike {
        self.hits += 1;
        match &self.fault.kind {
            FaultKind::Detach { condition, description } => Strike::Refuse(Refusal {
                condition: condition.clone().into(),
                description: description.clone(),
            }),
            FaultKind::Delay(duration) => Strike::Delay(*duration),
            FaultKind::Busy => {
                let text = "The server is busy, because it was asked to be. Please retry the operation after 4 seconds.";
                Strike::Refuse(Refusal::new(SERVER_BUSY, text))
            }
            FaultKind::Drop => Strike::Cut,
        }
    }
}

#[derive(Debug, Default)]
struct State {
    last: u64,
    /// Oldest first. Those that are over stay until somebody asks.
    active: Vec<Active>,
}

/// The faults of a server.
#[derive(Debug)]
pub struct Faults {
    state: Mutex<State>,
    /// How many there are, to be asked without a lock.
    count: AtomicUsize,
    /// Changes with every fault that is added, for connections to look at what they have.
    changes: watch::Sender<u64>,
}

impl Default for Faults {
    fn default() -> Self {
        Self { state: Mutex::default(), count: AtomicUsize::new(0), changes: watch::Sender::new(0) }
    }
}

impl Faults {
    /// Adds a fault, which strikes from now on; links that are there, too. The oldest goes if there are too many.
    pub fn add(&self, fault: Fault) -> FaultId {
        let mut state = self.lock();
        state.last += 1;
        let id = FaultId(state.last);
        if state.active.len() >= FAULTS_MAX {
            state.active.remove(0);
        }
        state.active.push(Active { id, fault, since: Instant::now(), hits: 0 });
        self.keep_count(&state);
        drop(state);
        self.changes.send_modify(|change| *change += 1);
        id
    }

    /// Ends a fault; false if there is none of this name any more.
    pub fn remove(&self, id: FaultId) -> bool {
        let mut state = self.lock();
        let before = state.active.len();
        state.active.retain(|active| active.id != id);
        self.keep_count(&state);
        state.active.len() < before
    }

    /// Ends all.
    pub fn clear(&self) {
        let mut state = self.lock();
        state.active.clear();
        self.keep_count(&state);
    }

    /// All that are not over, oldest first, with how often each has struck.
    pub fn list(&self) -> Vec<(FaultId, Fault, u64)> {
        let mut state = self.lock();
        let now = Instant::now();
        state.active.retain(|active| !active.is_over(now));
        self.keep_count(&state);
        state.active.iter().map(|active| (active.id, active.fault.clone(), active.hits)).collect()
    }

    /// What strikes here now, if anything does: the oldest fault that fits.
    pub(crate) fn strike(&self, spot: &Spot<'_>, now: Instant) -> Option<Strike> {
        if self.count.load(Ordering::Relaxed) == 0 {
            return None;
        }
        let mut state = self.lock();
        let fits = |active: &&mut Active| !active.is_over(now) && active.strikes(spot);
        let strike = state.active.iter_mut().find(fits).map(Active::strike);
        state.active.retain(|active| !active.is_over(now));
        self.keep_count(&state);
        strike
    }

    /// Changes when a fault is added.
    pub(crate) fn changes(&self) -> watch::Receiver<u64> {
        self.changes.subscribe()
    }

    fn keep_count(&self, state: &State) {
        self.count.store(state.active.len(), Ordering::Relaxed);
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
