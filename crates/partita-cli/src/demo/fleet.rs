//! The processors of the demo: each complete and with threads of its own, on one hub and one store.

use std::collections::{BTreeSet, VecDeque};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use futures_util::future::try_join_all;
use partita::{Context, Event, EventSource, InstanceId, Processor, ProcessorError, ProcessorHandle};
use tokio::task::JoinSet;

use super::journal::{Journal, instance};
use super::ledger::Ledger;
use super::moves::LoggedStore;
use super::process::Process;
use super::sensors;
use super::world::World;

/// How many errors wait to be shown; more are only counted by who reads the log.
const PROBLEMS_MAX: usize = 64;

/// How long a processor may take to leave before the demo goes on without it.
const LEAVE_MAX: Duration = Duration::from_secs(20);

struct Member {
    id: InstanceId,
    handle: ProcessorHandle,
    process: Process,
}

/// A processor that was asked to leave, and how that went.
#[derive(Debug)]
pub(crate) struct Left {
    pub(crate) id: InstanceId,
    pub(crate) took: Duration,
    pub(crate) failure: Option<String>,
}

/// What the members share.
#[derive(Clone)]
struct Common {
    source: Arc<dyn EventSource>,
    store: LoggedStore,
    journal: Option<Arc<Journal>>,
    ledger: Arc<Ledger>,
    problems: Arc<Mutex<VecDeque<ProcessorError>>>,
}

pub(crate) struct Fleet {
    common: Common,
    seeds: fastrand::Rng,
    /// Running, the longest first.
    members: Vec<Member>,
    leaving: JoinSet<Left>,
    crashed: BTreeSet<InstanceId>,
    started: u32,
}

impl Fleet {
    /// None yet; `started` are the processors of former runs, whose names are not used again.
    pub(crate) fn new(world: &World, store: LoggedStore, ledger: Arc<Ledger>, seed: u64) -> Self {
        let (source, journal) = (world.hub.source(), world.journal.clone());
        Self {
            common: Common { source, store, journal, ledger, problems: Arc::default() },
            seeds: fastrand::Rng::with_seed(seed),
            members: Vec::new(),
            leaving: JoinSet::new(),
            crashed: BTreeSet::new(),
            started: world.former.started,
        }
    }

    /// Starts processors, all at once, and names them.
    pub(crate) async fn add(&mut self, count: u32) -> Result<Vec<InstanceId>, String> {
        let starts: Vec<_> = (0..count)
            .map(|_| {
                self.started += 1;
                start(self.common.clone(), instance(self.started), self.seeds.u64(..))
            })
            .collect();
        if let Some(journal) = &self.common.journal {
            journal.started(self.started);
        }
        let new = try_join_all(starts).await?;
        let ids = new.iter().map(|member| member.id.clone()).collect();
        self.members.extend(new);
        Ok(ids)
    }

    /// Crashes the processor that has run longest: it stops dead, and the group is not told.
    pub(crate) async fn kill(&mut self) -> Result<InstanceId, String> {
        let Member { id, handle, process } = self.oldest()?;
        tokio::task::spawn_blocking(move || process.kill())
            .await
            .map_err(|error| format!("could not kill {id}: {error}"))?;
        // Dropped last: as long as anything of it runs, a handle that goes would ask for a release.
        drop(handle);
        if let Some(journal) = &self.common.journal {
            journal.crashed(&id);
        }
        self.crashed.insert(id.clone());
        Ok(id)
    }

    /// Asks the processor that has run longest to leave; see [`left`](Self::left).
    pub(crate) fn remove(&mut self) -> Result<InstanceId, String> {
        let member = self.oldest()?;
        let id = member.id.clone();
        self.leaving.spawn(leave(member));
        Ok(id)
    }

    fn oldest(&mut self) -> Result<Member, String> {
        if self.members.is_empty() {
            return Err("there is no processor left".to_owned());
        }
        Ok(self.members.remove(0))
    }

    /// The next one that has left since it was asked to.
    pub(crate) fn left(&mut self) -> Option<Left> {
        self.leaving.try_join_next().and_then(Result::ok)
    }

    /// Asks all to leave and waits until they have.
    pub(crate) async fn end(&mut self) -> Vec<Left> {
        for member in std::mem::take(&mut self.members) {
            self.leaving.spawn(leave(member));
        }
        let mut all = Vec::new();
        while let Some(left) = self.leaving.join_next().await {
            all.extend(left);
        }
        all
    }

    /// Those that crashed.
    pub(crate) fn crashed(&self) -> &BTreeSet<InstanceId> {
        &self.crashed
    }

    /// Those that run.
    pub(crate) fn running(&self) -> impl Iterator<Item = &InstanceId> {
        self.members.iter().map(|member| &member.id)
    }

    /// What went wrong since this was last asked.
    pub(crate) fn problems(&self) -> Vec<ProcessorError> {
        self.common.problems.lock().unwrap_or_else(PoisonError::into_inner).drain(..).collect()
    }
}

async fn start(common: Common, id: InstanceId, seed: u64) -> Result<Member, String> {
    let failed = |error: &dyn std::error::Error| format!("{id} does not start: {error}");
    let process = Process::new(id.as_str(), seed).map_err(|error| failed(&error))?;
    let Common { source, store, ledger, problems, .. } = common;
    let store_log = store.log.clone();
    let processor = Processor::builder_dyn(source, Arc::new(store))
        .instance_id(id.clone())
        .runtime(process.runtime())
        .hooks(store_log)
        .on_event(move |event: Event, cx: Context| {
            let ledger = Arc::clone(&ledger);
            async move {
                let begun = ledger.now();
                sensors::handle(&event).await?;
                ledger.handled(&event, &cx, begun);
                Ok(())
            }
        })
        .on_error(move |error| {
            let mut problems = problems.lock().unwrap_or_else(PoisonError::into_inner);
            if problems.len() < PROBLEMS_MAX {
                problems.push_back(error);
            }
        })
        .build()
        .map_err(|error| failed(&error))?;
    let handle = processor.start().await.map_err(|error| failed(&error))?;
    Ok(Member { id, handle, process })
}

async fn leave(member: Member) -> Left {
    let Member { id, handle, process } = member;
    let asked = Instant::now();
    let failure = match tokio::time::timeout(LEAVE_MAX, handle.shutdown()).await {
        Ok(Ok(())) => None,
        Ok(Err(error)) => Some(error.to_string()),
        Err(_) => Some(format!("it had not left after {LEAVE_MAX:?}")),
    };
    drop(process);
    Left { id, took: asked.elapsed(), failure }
}
