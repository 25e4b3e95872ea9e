//! The thread that writes. It owns the one connection that does, and puts what is waiting into one transaction: many
//! checkpoints cost one sync. Answers are given after the commit.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use partita_core::store::{StoreError, StoreResult};
use rusqlite::{Connection, Error, ErrorCode};
use tokio::sync::{Notify, mpsc, oneshot};

use super::open::is_busy;
use super::records::Done;

/// How many writes may share a transaction.
const BATCH_WRITES_MAX: usize = 128;

/// How long a write waits for other processes' transactions: less than the deadline of a call in
/// [`Timing::FAST`](partita_core::processor::Timing::FAST), so that the answer is "nothing happened".
const BUSY_WAIT_MAX: Duration = Duration::from_millis(300);

/// Between two attempts to begin; doubles up to the second.
const PAUSE_MIN: Duration = Duration::from_micros(200);
const PAUSE_MAX: Duration = Duration::from_millis(4);

/// How often it is looked whether the file is still the one that was opened.
const PLACE_CHECK_EVERY: Duration = Duration::from_secs(1);

/// A write that waits for its turn.
pub(super) trait Job: Send {
    /// When it gives up waiting.
    fn deadline(&self) -> Instant;
    /// Whether anybody still waits for the answer.
    fn is_wanted(&self) -> bool;
    /// Whether it must survive a power cut once it is answered.
    fn is_durable(&self) -> bool;
    /// Does it, in a transaction that may yet be rolled back; whether somebody may be waiting for what it changes.
    fn run(&mut self, db: &Connection) -> rusqlite::Result<bool>;
    /// The transaction was committed.
    fn committed(self: Box<Self>);
    /// The transaction came to nothing, or nobody knows.
    fn failed(self: Box<Self>, failure: &Failure);
}

/// What became of a transaction that was not committed.
#[derive(Debug)]
pub(super) enum Failure {
    /// Others held the database for too long.
    Busy,
    /// It was rolled back.
    RolledBack(String, Blame),
    /// The commit itself failed.
    Unknown(String),
    /// The file is not where it was.
    Gone(PathBuf),
}

/// Whether trying again may help.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Blame {
    Moment,
    Database,
}

impl Blame {
    pub(super) fn of(error: &Error) -> Self {
        match error.sqlite_error_code() {
            Some(ErrorCode::DatabaseCorrupt | ErrorCode::NotADatabase | ErrorCode::ReadOnly) => {
                Self::Database
            }
            // Disk full, I/O errors, out of memory.
            Some(_) => Self::Moment,
            // A row that does not read back as it was written.
            None => Self::Database,
        }
    }
}

impl Failure {
    pub(super) fn to_error(&self, op: &'static str) -> StoreError {
        match self {
            Self::Busy => {
                let why = format!(
                    "another process held the database for longer than {} ms",
                    BUSY_WAIT_MAX.as_millis()
                );
                StoreError::no_effect(op, why)
            }
            Self::RolledBack(why, Blame::Moment) => StoreError::no_effect(op, why.clone()),
            Self::RolledBack(why, Blame::Database) => StoreError::permanent(op, why.clone()),
            Self::Unknown(why) => StoreError::unknown(op, why.clone()),
            Self::Gone(path) => {
                let why = format!(
                    "{} was removed or replaced while in use; stop all processes that share it, then start them again",
                    path.display()
                );
                StoreError::permanent(op, why)
            }
        }
    }
}

/// A write, its outcome once it has one, and who waits for it.
pub(super) struct Write<T, F> {
    pub(super) op: &'static str,
    pub(super) durable: bool,
    pub(super) deadline: Instant,
    pub(super) work: F,
    pub(super) outcome: Option<T>,
    pub(super) answer: oneshot::Sender<StoreResult<T>>,
}

impl<T, F> Write<T, F>
where
    T: Send + 'static,
    F: FnMut(&Connection) -> Done<T> + Send + 'static,
{
    /// The write as a job, and where its answer comes.
    pub(super) fn job(
        op: &'static str,
        durable: bool,
        work: F,
    ) -> (Box<dyn Job>, oneshot::Receiver<StoreResult<T>>) {
        let (answer, answered) = oneshot::channel();
        let deadline = Instant::now() + BUSY_WAIT_MAX;
        (Box::new(Self { op, durable, deadline, work, outcome: None, answer }), answered)
    }
}

impl<T, F> Job for Write<T, F>
where
    T: Send,
    F: FnMut(&Connection) -> Done<T> + Send,
{
    fn deadline(&self) -> Instant {
        self.deadline
    }

    fn is_wanted(&self) -> bool {
        !self.answer.is_closed()
    }

    fn is_durable(&self) -> bool {
        self.durable
    }

    fn run(&mut self, db: &Connection) -> rusqlite::Result<bool> {
        let (outcome, wakes) = (self.work)(db)?;
        self.outcome = Some(outcome);
        Ok(wakes)
    }

    fn committed(self: Box<Self>) {
        if let Some(outcome) = self.outcome {
            // Nobody is there any more: then nobody misses it.
            let _ = self.answer.send(Ok(outcome));
        }
    }

    fn failed(self: Box<Self>, failure: &Failure) {
        let _ = self.answer.send(Err(failure.to_error(self.op)));
    }
}

pub(super) struct Writer {
    db: Connection,
    place: Place,
    /// Told after a commit that somebody in this process may wait for.
    news: Arc<Notify>,
    synced: bool,
}

impl Writer {
    /// `db` syncs at every commit.
    pub(super) fn new(db: Connection, path: PathBuf, news: Arc<Notify>) -> rusqlite::Result<Self> {
        // Waiting is done here, with an eye on deadlines.
        db.busy_timeout(Duration::ZERO)?;
        Ok(Self { db, place: Place::of(path), news, synced: true })
    }

    /// Serves until all senders are gone.
    pub(super) fn run(mut self, mut jobs: mpsc::Receiver<Box<dyn Job>>) {
        while let Some(first) = jobs.blocking_recv() {
            let mut batch = vec![first];
            match self.begin(&mut batch, &mut jobs) {
                Ok(()) if batch.is_empty() => {}
                Ok(()) => self.serve(batch),
                Err(failure) => fail(batch, &failure),
            }
        }
        if let Err((_, error)) = self.db.close() {
            tracing::debug!(%error, "database not closed cleanly");
        }
    }

    /// Begins a transaction for what waits now, or leaves nothing in the batch.
    fn begin(
        &mut self,
        batch: &mut Vec<Box<dyn Job>>,
        jobs: &mut mpsc::Receiver<Box<dyn Job>>,
    ) -> Result<(), Failure> {
        let mut pause = PAUSE_MIN;
        loop {
            while batch.len() < BATCH_WRITES_MAX
                && let Ok(job) = jobs.try_recv()
            {
                batch.push(job);
            }
            batch.retain(|job| job.is_wanted());
            if batch.is_empty() {
                return Ok(());
            }
            self.place.check()?;
            self.sync_if(batch.iter().any(|job| job.is_durable())).map_err(rolled_back)?;
            match self.db.execute_batch("BEGIN IMMEDIATE") {
                Ok(()) => return Ok(()),
                Err(error) if is_busy(&error) => {}
                Err(error) => return Err(rolled_back(error)),
            }
            let now = Instant::now();
            fail(batch.extract_if(.., |job| job.deadline() <= now), &Failure::Busy);
            std::thread::sleep(pause);
            pause = (pause * 2).min(PAUSE_MAX);
        }
    }

    /// Does the batch in the transaction that was begun and ends it.
    fn serve(&mut self, mut batch: Vec<Box<dyn Job>>) {
        let mut wakes = false;
        for job in &mut batch {
            match job.run(&self.db) {
                Ok(wake) => wakes |= wake,
                Err(error) => {
                    self.roll_back();
                    return self.serve_alone(batch, error);
                }
            }
        }
        if let Err(error) = self.db.execute_batch("COMMIT") {
            // What was written may be found in the log by whoever reads it after a crash.
            self.roll_back();
            return fail(batch, &Failure::Unknown(error.to_string()));
        }
        for job in batch {
            job.committed();
        }
        if wakes {
            self.news.notify_one();
        }
    }

    /// One write of a batch failed: it must not take the others with it.
    fn serve_alone(&mut self, batch: Vec<Box<dyn Job>>, error: Error) {
        if batch.len() == 1 {
            return fail(batch, &rolled_back(error));
        }
        for job in batch {
            match self.db.execute_batch("BEGIN IMMEDIATE") {
                Ok(()) => self.serve(vec![job]),
                Err(error) if is_busy(&error) => job.failed(&Failure::Busy),
                Err(error) => job.failed(&rolled_back(error)),
            }
        }
    }

    fn roll_back(&self) {
        // Some errors have ended the transaction already.
        if !self.db.is_autocommit()
            && let Err(error) = self.db.execute_batch("ROLLBACK")
        {
            tracing::warn!(%error, "transaction not rolled back");
        }
    }

    /// What is acknowledged survives a power cut. Heartbeats need not: whoever sent them ends with the power, too.
    fn sync_if(&mut self, synced: bool) -> rusqlite::Result<()> {
        if self.synced != synced {
            self.db.pragma_update(None, "synchronous", if synced { "FULL" } else { "NORMAL" })?;
            self.synced = synced;
        }
        Ok(())
    }
}

fn rolled_back(error: Error) -> Failure {
    let blame = Blame::of(&error);
    Failure::RolledBack(error.to_string(), blame)
}

fn fail(jobs: impl IntoIterator<Item = Box<dyn Job>>, failure: &Failure) {
    for job in jobs {
        job.failed(failure);
    }
}

/// The file that was opened, to notice that another one has taken its place: processes that hold the one and the other
/// would not know of each other.
#[derive(Debug)]
struct Place {
    path: PathBuf,
    opened: Option<(u64, u64)>,
    checked: Instant,
}

impl Place {
    fn of(path: PathBuf) -> Self {
        Self { opened: identity(&path), path, checked: Instant::now() }
    }

    fn check(&mut self) -> Result<(), Failure> {
        if self.checked.elapsed() < PLACE_CHECK_EVERY {
            return Ok(());
        }
        // Asks for its name only; opening and closing it would give back this process's locks.
        if identity(&self.path) != self.opened {
            return Err(Failure::Gone(self.path.clone()));
        }
        self.checked = Instant::now();
        Ok(())
    }
}

#[cfg(unix)]
fn identity(path: &std::path::Path) -> Option<(u64, u64)> {
    use std::os::unix::fs::MetadataExt;
    std::fs::metadata(path).ok().map(|found| (found.dev(), found.ino()))
}

#[cfg(not(unix))]
fn identity(_: &std::path::Path) -> Option<(u64, u64)> {
    None
}
