//! A database file that the processes of one machine share.
//!
//! ```no_run
//! use partita_stores::sqlite::SqliteStore;
//!
//! let store = SqliteStore::open("/var/lib/example/checkpoints.db")?;
//! # Ok::<(), partita_stores::sqlite::OpenError>(())
//! ```
//!
//! **Durable**: what is acknowledged survives a power cut, except heartbeats, whose senders do not survive it either.
//! The database is in WAL mode with `synchronous=FULL`.
//!
//! **Atomic**: a claim seals the checkpoint, and a hand-off writes the last position, in the transaction of the ownership.
//!
//! **Clocks**: ages are measured by the time since the machine's boot (see `clock.rs`). Setting the wall clock moves nothing;
//! it is only shown.
//!
//! **One machine**: WAL needs memory shared between the processes, so a network file system will not do. Containers on one
//! kernel may share the directory, if they are in the same time namespace (they are, unless somebody took pains).
//!
//! **Waiting**: transactions are short, and no process waits for anything while it is in one. A write that meets another
//! process's transaction waits up to 300 ms and then fails without effect, to be tried again. What SQLite cannot prevent:
//! a process that is stopped (`SIGSTOP`, a debugger) within the fraction of a millisecond of a transaction of its own keeps the others
//! from writing until it goes on or is killed. They lose their leases then, and nothing moves; when it is over they go on.
//!
//! The file belongs to Partita alone: coordination must not wait for other transactions.

mod clock;
mod open;
mod reader;
mod records;
mod rows;
mod scopes;
#[cfg(test)]
mod tests;
mod writer;

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use futures_util::future::BoxFuture;
use partita_core::model::{Incarnation, Scope, StreamId};
use partita_core::processor::Timing;
use partita_core::store::{
    Adoption, CheckpointOutcome, CheckpointRecord, CheckpointStore, CheckpointWrite, GroupView,
    InstanceOutcome, InstanceWrite, MoveRecord, OwnershipOutcome, OwnershipWrite, StoreError,
    StoreProperties, StoreResult,
};
use rusqlite::Connection;
use tokio::sync::{Notify, mpsc, oneshot};

pub use open::OpenError;

use clock::{BootClock, Clock};
use reader::{Reader, Request, Waiter};
use records::Done;
use writer::{Blame, Failure, Job, Write, Writer};

/// How many calls of each kind may wait for their turn; further ones wait to be let in.
const QUEUE_CALLS_MAX: usize = 1_024;

/// Keeps records in an SQLite database; see the [module](self). Clones share the connections.
#[derive(Clone)]
pub struct SqliteStore {
    inner: Arc<Inner>,
}

impl SqliteStore {
    /// The store in this file, which is made if there is none; its directory is not. Blocks for the few milliseconds that
    /// it takes, or for up to two seconds while another process locks the whole file.
    pub fn open(path: impl AsRef<Path>) -> Result<Self, OpenError> {
        let path = path.as_ref();
        match BootClock::new() {
            Some(clock) => Self::open_with(path, Arc::new(clock)),
            None => Err(OpenError::NoClock(path.to_owned())),
        }
    }

    fn open_with(path: &Path, clock: Arc<dyn Clock>) -> Result<Self, OpenError> {
        let (writer, reader) = open::open(path)?;
        let news = Arc::new(Notify::new());
        let other = |source| OpenError::Other { path: path.to_owned(), source };
        let writer = Writer::new(writer, path.to_owned(), Arc::clone(&news)).map_err(other)?;
        let reader = Reader::new(reader, news).map_err(other)?;
        let (writes, jobs) = mpsc::channel(QUEUE_CALLS_MAX);
        let (reads, requests) = mpsc::channel(QUEUE_CALLS_MAX);
        let no_thread = |source| OpenError::NoThread { path: path.to_owned(), source };
        let runtime =
            tokio::runtime::Builder::new_current_thread().enable_time().build().map_err(no_thread)?;
        let thread = |name: &str| std::thread::Builder::new().name(name.to_owned());
        // In the reverse order of their closing.
        let threads = vec![
            thread("partita-sqlite-w").spawn(move || writer.run(jobs)).map_err(no_thread)?,
            thread("partita-sqlite-r")
                .spawn(move || runtime.block_on(reader.run(requests)))
                .map_err(no_thread)?,
        ];
        let queues = Some(Queues { writes, reads });
        Ok(Self { inner: Arc::new(Inner { path: path.to_owned(), clock, queues, threads }) })
    }

    /// The file.
    pub fn path(&self) -> &Path {
        &self.inner.path
    }

    async fn write<T: Send + 'static>(
        &self,
        op: &'static str,
        durable: bool,
        work: impl FnMut(&Connection) -> Done<T> + Send + 'static,
    ) -> StoreResult<T> {
        let (job, answered) = Write::job(op, durable, work);
        if self.inner.queues()?.writes.send(job).await.is_err() {
            return Err(ended(op));
        }
        // A thread that ended in the middle of it leaves no answer.
        answered.await.unwrap_or_else(|_| Err(StoreError::unknown(op, THREAD_ENDED)))
    }

    async fn read<T: Send + 'static>(
        &self,
        op: &'static str,
        work: impl FnOnce(&Connection) -> rusqlite::Result<T> + Send + 'static,
    ) -> StoreResult<T> {
        let (answer, answered) = oneshot::channel();
        let read = Box::new(move |db: &mut Connection| {
            if answer.is_closed() {
                return;
            }
            // One snapshot for all that is read. Nothing to commit: it ends where it is dropped.
            let result = db.transaction().and_then(|snapshot| work(&snapshot));
            let _ = answer.send(result.map_err(|error| {
                let blame = Blame::of(&error);
                Failure::RolledBack(error.to_string(), blame).to_error(op)
            }));
        });
        if self.inner.queues()?.reads.send(Request::Read(read)).await.is_err() {
            return Err(ended(op));
        }
        answered.await.unwrap_or_else(|_| Err(ended(op)))
    }
}

const THREAD_ENDED: &str = "the store's thread has ended";

fn ended(op: &'static str) -> StoreError {
    StoreError::permanent(op, THREAD_ENDED)
}

impl fmt::Debug for SqliteStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SqliteStore").field("path", &self.inner.path).finish_non_exhaustive()
    }
}

struct Inner {
    path: PathBuf,
    clock: Arc<dyn Clock>,
    /// None once it is being dropped.
    queues: Option<Queues>,
    threads: Vec<JoinHandle<()>>,
}

struct Queues {
    writes: mpsc::Sender<Box<dyn Job>>,
    reads: mpsc::Sender<Request>,
}

impl Inner {
    fn queues(&self) -> StoreResult<&Queues> {
        self.queues.as_ref().ok_or_else(|| ended("open"))
    }
}

impl Inner {
    fn join_last(&mut self) {
        if self.threads.pop().is_some_and(|thread| thread.join().is_err()) {
            tracing::error!("a thread of the sqlite store panicked");
        }
    }
}

impl Drop for Inner {
    /// The connections are closed when this returns. It waits for the transaction in progress at most: no call is left
    /// that could wait for an answer.
    fn drop(&mut self) {
        let Some(Queues { writes, reads }) = self.queues.take() else { return };
        // One after the other: of two connections that close at the same time neither is the last, and the log stays.
        drop(reads);
        self.join_last();
        drop(writes);
        self.join_last();
    }
}

impl CheckpointStore for SqliteStore {
    fn properties(&self) -> StoreProperties {
        StoreProperties {
            atomic: true,
            timing: Timing::FAST,
            // Stamps are in nanoseconds.
            stamp_step: Duration::ZERO,
            notifies: true,
        }
    }

    fn write_instance<'a>(
        &'a self,
        scope: &'a Scope,
        write: InstanceWrite,
    ) -> BoxFuture<'a, StoreResult<InstanceOutcome>> {
        let durable = !matches!(write, InstanceWrite::Beat { .. });
        let (clock, scope) = (Arc::clone(&self.inner.clock), scope.clone());
        Box::pin(
            self.write("write_instance", durable, move |db| {
                records::write_instance(db, &*clock, &scope, &write)
            }),
        )
    }

    fn write_ownership<'a>(
        &'a self,
        scope: &'a Scope,
        write: OwnershipWrite,
    ) -> BoxFuture<'a, StoreResult<OwnershipOutcome>> {
        let scope = scope.clone();
        Box::pin(self.write("write_ownership", true, move |db| records::write_ownership(db, &scope, &write)))
    }

    fn write_checkpoint<'a>(
        &'a self,
        scope: &'a Scope,
        write: CheckpointWrite,
    ) -> BoxFuture<'a, StoreResult<CheckpointOutcome>> {
        let scope = scope.clone();
        Box::pin(
            self.write("write_checkpoint", true, move |db| records::write_checkpoint(db, &scope, &write)),
        )
    }

    fn view<'a>(&'a self, scope: &'a Scope) -> BoxFuture<'a, StoreResult<GroupView>> {
        let (clock, scope) = (Arc::clone(&self.inner.clock), scope.clone());
        Box::pin(self.read("view", move |db| records::view(db, &*clock, &scope)))
    }

    fn checkpoints<'a>(&'a self, scope: &'a Scope) -> BoxFuture<'a, StoreResult<Vec<CheckpointRecord>>> {
        let scope = scope.clone();
        Box::pin(self.read("checkpoints", move |db| records::checkpoints(db, &scope)))
    }

    fn moves<'a>(&'a self, scope: &'a Scope) -> BoxFuture<'a, StoreResult<Vec<MoveRecord>>> {
        let scope = scope.clone();
        Box::pin(self.read("moves", move |db| records::moves(db, &scope)))
    }

    fn adopt_scope<'a>(
        &'a self,
        from: &'a Scope,
        to: &'a Scope,
        stream: Option<&'a StreamId>,
    ) -> BoxFuture<'a, StoreResult<Adoption>> {
        let clock = Arc::clone(&self.inner.clock);
        let (from, to, stream) = (from.clone(), to.clone(), stream.cloned());
        Box::pin(self.write("adopt_scope", true, move |db| {
            records::adopt_scope(db, &*clock, &from, &to, stream.as_ref())
        }))
    }

    fn changed<'a>(&'a self, scope: &'a Scope, me: &'a Incarnation, cursor: u64) -> BoxFuture<'a, ()> {
        let (told, news) = oneshot::channel();
        let waiter = Waiter { scope: scope.clone(), me: me.clone(), cursor, told };
        Box::pin(async move {
            if let Ok(queues) = self.inner.queues()
                && queues.reads.send(Request::Wait(waiter)).await.is_ok()
                && news.await.is_ok()
            {
                return;
            }
            // The thread has ended; calls say so.
            std::future::pending().await
        })
    }
}
