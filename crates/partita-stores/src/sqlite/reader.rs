//! The thread that reads. It owns the connection that does, which never waits for a writer, and looks after those
//! who wait for a change: told at once by the writer of this process, and by asking for `data_version` now and then,
//! which changes when anybody else has committed. It asks only while somebody waits.

use std::sync::Arc;
use std::time::Duration;

use partita_core::model::{Incarnation, Scope};
use rusqlite::Connection;
use tokio::sync::{Notify, mpsc, oneshot};
use tokio::time::Instant;

use super::scopes::ScopeRow;

/// How often it is asked whether anything changed, while somebody waits for a hand-off.
pub(super) const POLL_PENDING: Duration = Duration::from_millis(50);

/// How often otherwise: what somebody leaves behind waits for no longer. A look costs microseconds.
pub(super) const POLL_IDLE: Duration = Duration::from_millis(100);

/// How long a read waits in the rare cases in which it has to: while another process recovers the log of one that
/// was killed.
const BUSY_WAIT_MAX: Duration = Duration::from_millis(300);

/// What the thread is asked.
pub(super) enum Request {
    /// A read, which sends its own answer.
    Read(Box<dyn FnOnce(&mut Connection) + Send>),
    /// To be told of a change.
    Wait(Waiter),
}

/// One call of `changed`; gone when the other end of `told` is.
pub(super) struct Waiter {
    pub(super) scope: Scope,
    pub(super) me: Incarnation,
    pub(super) cursor: u64,
    pub(super) told: oneshot::Sender<()>,
}

pub(super) struct Reader {
    db: Connection,
    news: Arc<Notify>,
    waiters: Vec<Waiter>,
    data_version: Option<i64>,
    /// Whether a waiter expects something soon.
    pending: bool,
    polled: Instant,
}

impl Reader {
    pub(super) fn new(db: Connection, news: Arc<Notify>) -> rusqlite::Result<Self> {
        db.busy_timeout(BUSY_WAIT_MAX)?;
        Ok(Self { db, news, waiters: Vec::new(), data_version: None, pending: false, polled: Instant::now() })
    }

    /// Serves until all senders are gone.
    pub(super) async fn run(mut self, mut requests: mpsc::Receiver<Request>) {
        let news = Arc::clone(&self.news);
        loop {
            let every = if self.pending { POLL_PENDING } else { POLL_IDLE };
            tokio::select! {
                request = requests.recv() => match request {
                    None => break,
                    Some(Request::Read(read)) => read(&mut self.db),
                    Some(Request::Wait(waiter)) => self.enter(waiter),
                },
                () = news.notified() => self.tell(),
                () = tokio::time::sleep_until(self.polled + every), if !self.waiters.is_empty() => self.poll(),
            }
        }
        if let Err((_, error)) = self.db.close() {
            tracing::debug!(%error, "database not closed cleanly");
        }
    }

    fn enter(&mut self, waiter: Waiter) {
        self.waiters.retain(|waiter| !waiter.told.is_closed());
        if self.waiters.is_empty() {
            // Nobody has asked for a while. Before the question below, so that no change falls between the two.
            self.data_version = self.data_version();
            self.polled = Instant::now();
            self.pending = false;
        }
        match self.ask(&waiter) {
            Ok((true, _)) => tell(waiter),
            Ok((false, pending)) => {
                self.pending |= pending;
                self.waiters.push(waiter);
            }
            // It is asked again with the next poll.
            Err(error) => {
                tracing::debug!(%error, "changes not read");
                self.data_version = None;
                self.waiters.push(waiter);
            }
        }
    }

    fn poll(&mut self) {
        self.polled = Instant::now();
        self.waiters.retain(|waiter| !waiter.told.is_closed());
        let version = self.data_version();
        if version.is_none() || version != self.data_version {
            self.data_version = version;
            self.tell();
        }
    }

    /// Tells those for whom there is news.
    fn tell(&mut self) {
        self.pending = false;
        for waiter in std::mem::take(&mut self.waiters) {
            match self.ask(&waiter) {
                Ok((true, _)) => tell(waiter),
                Ok((false, pending)) => {
                    self.pending |= pending;
                    self.waiters.push(waiter);
                }
                Err(error) => {
                    tracing::debug!(%error, "changes not read");
                    self.data_version = None;
                    self.waiters.push(waiter);
                }
            }
        }
    }

    /// Whether there is news for a waiter, and whether it expects some soon.
    fn ask(&self, waiter: &Waiter) -> rusqlite::Result<(bool, bool)> {
        let snapshot = self.db.unchecked_transaction()?;
        let Some(scope) = ScopeRow::load(&snapshot, &waiter.scope)? else { return Ok((false, false)) };
        if scope.is_news(&snapshot, &waiter.me, waiter.cursor)? {
            return Ok((true, false));
        }
        Ok((false, scope.is_pending(&snapshot, &waiter.me)?))
    }

    fn data_version(&self) -> Option<i64> {
        let mut statement = self.db.prepare_cached("PRAGMA data_version").ok()?;
        statement.query_row([], |row| row.get(0)).ok()
    }
}

fn tell(waiter: Waiter) {
    // It may have left in the meantime.
    let _ = waiter.told.send(());
}
