//! Opening: what the file is, what is wrong with it in one sentence, and the schema of a new one.
//!
//! A file that is not ours is left as it is: it is looked at before anything is changed. It is never opened by other
//! means than SQLite's: closing a second descriptor would give back all locks that this process has on it.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rusqlite::config::DbConfig;
use rusqlite::{Connection, Error, ErrorCode, OpenFlags, Result as SqlResult, TransactionBehavior};

/// "Prta", in the header of every database of ours.
const APPLICATION_ID: i32 = 0x5072_7461;

/// Raised when the schema changes, with a step below that brings older databases up to it.
const SCHEMA_VERSION: i32 = 2;

/// What leads from each version to the next, the first one from version 1. `schema.sql` is the last version; a test compares the
/// two ways. Columns are only added, and may be null: processes of former versions may have the database open.
const STEPS: [&str; SCHEMA_VERSION as usize - 1] = [include_str!("schema-2.sql")];

/// How long opening waits for a lock.
const LOCK_WAIT_MAX: Duration = Duration::from_secs(2);

/// What a database may keep of its write-ahead log once that was copied.
const WAL_BYTES_KEPT: i64 = 4 << 20;

/// Why a [`SqliteStore`](super::SqliteStore) cannot be opened. Each says what to do, and the file is as it was.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum OpenError {
    /// There is no such directory.
    #[error(
        "cannot keep checkpoints in {path}: there is no directory {directory}; create it or choose another place"
    )]
    NoDirectory {
        /// The file.
        path: PathBuf,
        /// What is missing.
        directory: PathBuf,
    },
    /// It is a directory.
    #[error("cannot keep checkpoints in {0}: it is a directory; name a file in it")]
    IsDirectory(PathBuf),
    /// The file or its directory cannot be written.
    #[error(
        "cannot keep checkpoints in {0}: it cannot be written; make the file and its directory writable or choose another place"
    )]
    ReadOnly(PathBuf),
    /// The file cannot be opened.
    #[error(
        "cannot keep checkpoints in {path}: it cannot be opened ({source}); make the file and its directory writable or choose another place"
    )]
    CannotOpen {
        /// The file.
        path: PathBuf,
        /// What SQLite says.
        source: Error,
    },
    /// It is another program's.
    #[error("cannot keep checkpoints in {0}: it is not a Partita database; choose another file")]
    NotPartita(PathBuf),
    /// A later version of Partita made it.
    #[error(
        "cannot keep checkpoints in {path}: its schema is version {found} and this program knows {known}; update the program or choose another file"
    )]
    NewerSchema {
        /// The file.
        path: PathBuf,
        /// Its version.
        found: i32,
        /// The latest version known here.
        known: i32,
    },
    /// It was damaged.
    #[error(
        "cannot keep checkpoints in {path}: the database is damaged ({what}); restore it from a copy, or move it away to start from the beginning"
    )]
    Damaged {
        /// The file.
        path: PathBuf,
        /// How.
        what: String,
    },
    /// Somebody has locked all of it.
    #[error(
        "cannot keep checkpoints in {0}: another program keeps it locked; close that program or choose another file"
    )]
    Locked(PathBuf),
    /// The system lacks what the store needs.
    #[error(
        "cannot keep checkpoints in {0}: this system has no clock that processes share; use another store"
    )]
    NoClock(PathBuf),
    /// Threads cannot be started.
    #[error("cannot keep checkpoints in {path}: no thread for it can be started ({source})")]
    NoThread {
        /// The file.
        path: PathBuf,
        /// What the system says.
        source: std::io::Error,
    },
    /// Something else.
    #[error("cannot keep checkpoints in {path}: {source}")]
    Other {
        /// The file.
        path: PathBuf,
        /// What SQLite says.
        source: Error,
    },
}

/// Two connections to one database: one for writes, one for reads, which never wait for each other.
pub(super) fn open(path: &Path) -> Result<(Connection, Connection), OpenError> {
    if path.is_dir() {
        return Err(OpenError::IsDirectory(path.to_owned()));
    }
    let directory = path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
    if !directory.is_dir() {
        return Err(OpenError::NoDirectory { path: path.to_owned(), directory: directory.to_owned() });
    }
    let writer = connect(path).map_err(|error| explain(path, error))?;
    prepare(path, &writer)?;
    let reader = connect(path).map_err(|error| explain(path, error))?;
    configure(&writer).and_then(|()| configure(&reader)).map_err(|error| explain(path, error))?;
    Ok((writer, reader))
}

fn connect(path: &Path) -> SqlResult<Connection> {
    // No URIs: a path with a question mark or a percent sign in it is a path.
    let flags =
        OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_CREATE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let db = Connection::open_with_flags(path, flags)?;
    db.busy_timeout(LOCK_WAIT_MAX)?;
    db.set_prepared_statement_cache_capacity(64);
    Ok(db)
}

fn configure(db: &Connection) -> SqlResult<()> {
    db.pragma_update(None, "synchronous", "FULL")?;
    db.pragma_update(None, "journal_size_limit", WAL_BYTES_KEPT)?;
    db.set_db_config(DbConfig::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, false).map(drop)
}

/// Makes sure that the database is ours, sound and of a known schema; makes a new one if there is nothing.
fn prepare(path: &Path, db: &Connection) -> Result<(), OpenError> {
    let explained = |error| explain(path, error);
    // Until it is known to be ours, closing must not tidy it up.
    db.set_db_config(DbConfig::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, true).map_err(explained)?;
    let is_new = {
        // One snapshot: somebody else may be making it at this moment.
        let _snapshot = db.unchecked_transaction().map_err(explained)?;
        matches!(look(path, db)?, Found::Nothing)
    };
    if db.is_readonly("main").map_err(explained)? {
        return Err(OpenError::ReadOnly(path.to_owned()));
    }
    if !is_new {
        let verdict: String =
            db.query_row("PRAGMA quick_check(1)", [], |row| row.get(0)).map_err(explained)?;
        if verdict != "ok" {
            // A heading may come first.
            let what = verdict.lines().last().unwrap_or_default().to_owned();
            return Err(OpenError::Damaged { path: path.to_owned(), what });
        }
    }
    become_wal(db).map_err(explained)?;
    create_or_upgrade(path, db)
}

/// What is in a database.
enum Found {
    Nothing,
    /// Tables of this version, which is one that is known here.
    Version(i32),
}

/// What is in it; an error if that is not ours. Asked in a transaction.
fn look(path: &Path, db: &Connection) -> Result<Found, OpenError> {
    let explained = |error| explain(path, error);
    let number = |pragma: &str| db.pragma_query_value(None, pragma, |row| row.get::<_, i32>(0));
    let application = number("application_id").map_err(explained)?;
    let version = number("user_version").map_err(explained)?;
    let tables: i64 =
        db.query_row("SELECT count(*) FROM sqlite_schema", [], |row| row.get(0)).map_err(explained)?;
    match (application, version, tables) {
        (0, 0, 0) => Ok(Found::Nothing),
        (APPLICATION_ID, found, _) if found > SCHEMA_VERSION => {
            Err(OpenError::NewerSchema { path: path.to_owned(), found, known: SCHEMA_VERSION })
        }
        (APPLICATION_ID, found @ 1.., 1..) => Ok(Found::Version(found)),
        (APPLICATION_ID, ..) => {
            Err(OpenError::Damaged { path: path.to_owned(), what: "its tables are missing".to_owned() })
        }
        _ => Err(OpenError::NotPartita(path.to_owned())),
    }
}

/// The first connection to a new file makes it so. Others that come at the same moment are refused for that moment,
/// whatever their busy time.
fn become_wal(db: &Connection) -> SqlResult<()> {
    let deadline = Instant::now() + LOCK_WAIT_MAX;
    loop {
        match db.pragma_update_and_check(None, "journal_mode", "WAL", |row| row.get::<_, String>(0)) {
            Ok(mode) if mode.eq_ignore_ascii_case("wal") => return Ok(()),
            Err(error) if !is_busy(&error) => return Err(error),
            Err(error) if Instant::now() >= deadline => return Err(error),
            // The mode did not change, without an error: somebody else is at it.
            Ok(_) if Instant::now() >= deadline => return Err(busy()),
            _ => std::thread::sleep(Duration::from_millis(5)),
        }
    }
}

/// Makes the tables of a new database, or those of an older version the current ones. Nothing is written if they are.
fn create_or_upgrade(path: &Path, db: &Connection) -> Result<(), OpenError> {
    let explained = |error| explain(path, error);
    let is_current = {
        let _snapshot = db.unchecked_transaction().map_err(explained)?;
        matches!(look(path, db)?, Found::Version(SCHEMA_VERSION))
    };
    if is_current {
        return Ok(());
    }
    let transaction =
        rusqlite::Transaction::new_unchecked(db, TransactionBehavior::Immediate).map_err(explained)?;
    // Somebody else may have been faster.
    match look(path, db)? {
        Found::Nothing => {
            transaction.execute_batch(include_str!("schema.sql")).map_err(explained)?;
            transaction.pragma_update(None, "application_id", APPLICATION_ID).map_err(explained)?;
        }
        Found::Version(found) => {
            // From 1 to the current one: the index of the step that leaves a version is one less than it.
            let done = usize::try_from(found - 1).unwrap_or(0);
            for step in &STEPS[done.min(STEPS.len())..] {
                transaction.execute_batch(step).map_err(explained)?;
            }
        }
    }
    transaction.pragma_update(None, "user_version", SCHEMA_VERSION).map_err(explained)?;
    transaction.commit().map_err(explained)
}

pub(super) fn is_busy(error: &Error) -> bool {
    matches!(error.sqlite_error_code(), Some(ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked))
}

fn busy() -> Error {
    Error::SqliteFailure(rusqlite::ffi::Error::new(rusqlite::ffi::SQLITE_BUSY), None)
}

fn explain(path: &Path, error: Error) -> OpenError {
    let path = path.to_owned();
    match error.sqlite_error_code() {
        Some(ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked) => OpenError::Locked(path),
        Some(ErrorCode::ReadOnly | ErrorCode::PermissionDenied) => OpenError::ReadOnly(path),
        Some(ErrorCode::NotADatabase) => OpenError::NotPartita(path),
        Some(ErrorCode::DatabaseCorrupt) => OpenError::Damaged { path, what: error.to_string() },
        Some(ErrorCode::CannotOpen) => OpenError::CannotOpen { path, source: error },
        _ => OpenError::Other { path, source: error },
    }
}
