//! The processors of the demo: each a process of its own, on one hub and one store.

use std::collections::{BTreeSet, VecDeque};
use std::path::PathBuf;
use std::process::Stdio;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use futures_util::future::try_join_all;
use partita::InstanceId;
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
use tokio::process::{Child, ChildStdin, Command};
use tokio::sync::oneshot;
use tokio::task::JoinSet;

use super::processor::{LEAVE, PROBLEM, READY};
use super::slots::instance;
use super::world::World;

/// How many errors wait to be shown; more are not.
const PROBLEMS_MAX: usize = 64;

/// How long a processor may take to start, and to leave before the demo goes on without it.
const START_MAX: Duration = Duration::from_secs(30);
const LEAVE_MAX: Duration = Duration::from_secs(20);

type Problems = Arc<Mutex<VecDeque<String>>>;

struct Member {
    number: u32,
    child: Child,
    input: ChildStdin,
    frozen: bool,
}

impl Member {
    fn id(&self) -> InstanceId {
        instance(self.number)
    }
}

/// A processor that is gone, and how that went.
#[derive(Debug)]
pub(crate) struct Left {
    pub(crate) id: InstanceId,
    pub(crate) took: Duration,
    pub(crate) failure: Option<String>,
}

/// What all members need.
#[derive(Clone)]
struct Common {
    program: PathBuf,
    data: PathBuf,
    port: u16,
    run: u32,
    log: Option<PathBuf>,
    problems: Problems,
}

pub(crate) struct Fleet {
    common: Common,
    /// Running, the longest first.
    members: Vec<Member>,
    leaving: JoinSet<(u32, Left)>,
    /// Told to leave, and not gone yet.
    leaving_numbers: BTreeSet<u32>,
    crashed: BTreeSet<InstanceId>,
    frozen: BTreeSet<InstanceId>,
    started: u32,
}

impl Fleet {
    /// None yet. What they write to stderr goes into the file `log`, if there is one.
    pub(crate) fn new(world: &World, port: u16, run: u32, log: Option<PathBuf>) -> Result<Self, String> {
        let program = std::env::current_exe()
            .map_err(|error| format!("cannot find this program to start processors: {error}"))?;
        let data = world.data.clone();
        Ok(Self {
            common: Common { program, data, port, run, log, problems: Problems::default() },
            members: Vec::new(),
            leaving: JoinSet::new(),
            leaving_numbers: BTreeSet::new(),
            crashed: BTreeSet::new(),
            frozen: BTreeSet::new(),
            started: world.former.started,
        })
    }

    /// The numbers of the next processors; they are never used again.
    pub(crate) fn reserve(&mut self, count: u32) -> Vec<u32> {
        let first = self.started + 1;
        self.started += count;
        (first..=self.started).collect()
    }

    /// Starts processors, all at once, and names them.
    pub(crate) async fn add(&mut self, numbers: Vec<u32>) -> Result<Vec<InstanceId>, String> {
        let new = try_join_all(numbers.into_iter().map(|number| start(&self.common, number))).await?;
        let ids = new.iter().map(Member::id).collect();
        self.members.extend(new);
        Ok(ids)
    }

    /// Kills a processor, or the one that has run longest: the system ends it, and nobody is told.
    pub(crate) async fn kill(&mut self, which: Option<&InstanceId>) -> Result<InstanceId, String> {
        let mut member = self.take(which)?;
        let id = member.id();
        member.child.kill().await.map_err(|error| format!("could not kill {id}: {error}"))?;
        self.crashed.insert(id.clone());
        Ok(id)
    }

    /// Asks a processor, or the one that has run longest, to leave; see [`left`](Self::left).
    pub(crate) fn remove(&mut self, which: Option<&InstanceId>) -> Result<InstanceId, String> {
        let member = self.take(which)?;
        let id = member.id();
        self.let_go(member);
        Ok(id)
    }

    /// Stops a processor, or the one that has run longest, as a machine does that is out of memory or moved to another host: it
    /// does nothing and knows nothing of it.
    pub(crate) fn freeze(&mut self, which: Option<&InstanceId>) -> Result<InstanceId, String> {
        let member = self.members.iter_mut().find(|member| match which {
            Some(id) => member.id() == *id,
            None => !member.frozen,
        });
        let member = member.ok_or("there is no processor to freeze")?;
        let id = member.id();
        if member.frozen {
            return Err(format!("{id} is frozen already"));
        }
        signal(member, Pause::Stop)?;
        member.frozen = true;
        self.frozen.insert(id.clone());
        Ok(id)
    }

    /// Lets a frozen processor, or the one that was frozen first, go on.
    pub(crate) fn thaw(&mut self, which: Option<&InstanceId>) -> Result<InstanceId, String> {
        let member = self.members.iter_mut().find(|member| match which {
            Some(id) => member.id() == *id && member.frozen,
            None => member.frozen,
        });
        let member = member.ok_or("there is no frozen processor")?;
        signal(member, Pause::Go)?;
        member.frozen = false;
        Ok(member.id())
    }

    fn take(&mut self, which: Option<&InstanceId>) -> Result<Member, String> {
        let at = match which {
            Some(id) => self.members.iter().position(|member| member.id() == *id),
            // A frozen one can neither be asked nor lose more than it has.
            None => self.members.iter().position(|member| !member.frozen).or(Some(0)),
        };
        match at.filter(|at| *at < self.members.len()) {
            Some(at) => Ok(self.members.remove(at)),
            None => Err("there is no processor left".to_owned()),
        }
    }

    fn let_go(&mut self, mut member: Member) {
        if member.frozen {
            let _ = signal(&mut member, Pause::Go);
        }
        self.leaving_numbers.insert(member.number);
        self.leaving.spawn(leave(member));
    }

    /// The next one that is gone: because it was asked to, or by itself, which is a crash.
    pub(crate) fn left(&mut self) -> Option<Left> {
        if let Some(Ok((number, left))) = self.leaving.try_join_next() {
            self.leaving_numbers.remove(&number);
            return Some(left);
        }
        let (at, status) = self.members.iter_mut().enumerate().find_map(|(at, member)| {
            let status = member.child.try_wait().ok().flatten()?;
            Some((at, status))
        })?;
        let id = self.members.remove(at).id();
        self.crashed.insert(id.clone());
        Some(Left { id, took: Duration::ZERO, failure: Some(format!("it ended by itself ({status})")) })
    }

    /// Asks all to leave and waits until they have.
    pub(crate) async fn end(&mut self) -> Vec<Left> {
        for member in std::mem::take(&mut self.members) {
            self.let_go(member);
        }
        let mut all = Vec::new();
        while let Some(left) = self.leaving.join_next().await {
            all.extend(left.ok().map(|(_, left)| left));
        }
        self.leaving_numbers.clear();
        all
    }

    /// Those that crashed.
    pub(crate) fn crashed(&self) -> &BTreeSet<InstanceId> {
        &self.crashed
    }

    /// Those that were ever frozen.
    pub(crate) fn frozen(&self) -> &BTreeSet<InstanceId> {
        &self.frozen
    }

    /// Those that run, and whether they are frozen.
    pub(crate) fn running(&self) -> impl Iterator<Item = (InstanceId, bool)> {
        self.members.iter().map(|member| (member.id(), member.frozen))
    }

    /// The numbers of those that may still handle something.
    pub(crate) fn live(&self) -> BTreeSet<u32> {
        self.members.iter().map(|member| member.number).chain(self.leaving_numbers.iter().copied()).collect()
    }

    /// How many were started, by all runs.
    pub(crate) fn started(&self) -> u32 {
        self.started
    }

    /// What went wrong since this was last asked.
    pub(crate) fn problems(&self) -> Vec<String> {
        self.common.problems.lock().unwrap_or_else(PoisonError::into_inner).drain(..).collect()
    }
}

async fn start(common: &Common, number: u32) -> Result<Member, String> {
    let id = instance(number);
    let failed = |error: std::io::Error| format!("{id} does not start: {error}");
    let errors = match &common.log {
        None => Stdio::inherit(),
        Some(path) => {
            std::fs::OpenOptions::new().create(true).append(true).open(path).map_err(failed)?.into()
        }
    };
    let mut command = Command::new(&common.program);
    // Ctrl-C is for the demo, which ends them in good order.
    #[cfg(unix)]
    command.process_group(0);
    let mut child = command
        .arg("demo-processor")
        .args(["--number", &number.to_string(), "--run", &common.run.to_string()])
        .args(["--port", &common.port.to_string(), "--parent", &std::process::id().to_string()])
        .arg("--data")
        .arg(&common.data)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(errors)
        .kill_on_drop(true)
        .spawn()
        .map_err(failed)?;
    let (Some(input), Some(output)) = (child.stdin.take(), child.stdout.take()) else {
        return Err(format!("{id} does not start: it has no pipes"));
    };
    let (ready, is_ready) = oneshot::channel();
    tokio::spawn(listen(output, ready, Arc::clone(&common.problems)));
    match tokio::time::timeout(START_MAX, is_ready).await {
        Ok(Ok(())) => Ok(Member { number, child, input, frozen: false }),
        Ok(Err(_)) => Err(format!("{id} does not start: it ended at once")),
        Err(_) => Err(format!("{id} does not start: it said nothing for {START_MAX:?}")),
    }
}

/// Hears what a processor says until it is gone.
async fn listen(output: tokio::process::ChildStdout, ready: oneshot::Sender<()>, problems: Problems) {
    let mut ready = Some(ready);
    let mut lines = BufReader::new(output).lines();
    while let Ok(Some(line)) = lines.next_line().await {
        if line == READY {
            ready.take().map(|ready| ready.send(()));
        } else if let Some(problem) = line.strip_prefix(PROBLEM) {
            let mut problems = problems.lock().unwrap_or_else(PoisonError::into_inner);
            if problems.len() < PROBLEMS_MAX {
                problems.push_back(problem.to_owned());
            }
        }
    }
}

async fn leave(member: Member) -> (u32, Left) {
    let Member { number, mut child, mut input, .. } = member;
    let asked = Instant::now();
    let told = input.write_all(format!("{LEAVE}\n").as_bytes()).await;
    let failure = match tokio::time::timeout(LEAVE_MAX, child.wait()).await {
        Ok(Ok(status)) if status.success() => None,
        Ok(Ok(status)) => Some(format!("it ended with {status}")),
        Ok(Err(error)) => Some(error.to_string()),
        Err(_) => Some(format!("it had not left after {LEAVE_MAX:?}")),
    };
    let failure = failure.or(told.err().map(|error| error.to_string()));
    (number, Left { id: instance(number), took: asked.elapsed(), failure })
}

#[derive(Clone, Copy)]
enum Pause {
    Stop,
    Go,
}

#[cfg(unix)]
fn signal(member: &mut Member, pause: Pause) -> Result<(), String> {
    use rustix::process::{Pid, Signal, kill_process};
    let id = member.id();
    let pid = member.child.id().and_then(|pid| Pid::from_raw(pid.cast_signed()));
    let pid = pid.ok_or_else(|| format!("{id} is gone"))?;
    let signal = match pause {
        Pause::Stop => Signal::STOP,
        Pause::Go => Signal::CONT,
    };
    kill_process(pid, signal).map_err(|error| format!("could not stop or start {id}: {error}"))
}

#[cfg(not(unix))]
fn signal(member: &mut Member, _pause: Pause) -> Result<(), String> {
    Err(format!("this system cannot freeze {}", member.id()))
}
