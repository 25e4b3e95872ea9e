//! The store: a directory per scope, a file per record.
//!
//! ```text
//! root/namespace/hub/group/lock                   held for the time of a call, by whichever process
//!                          instances/id.nonce     heartbeats
//!                          ownerships/partition
//!                          checkpoints/partition
//!                          moves                  the last moves, a line each
//! ```
//!
//! A record is replaced by renaming a new file over it, so a crash leaves the old one or the new one. A power cut may
//! bring the old one back, but it ends all processes that saw the new one too. Two files cannot be replaced in one
//! step, so the store is not atomic, and the engine seals checkpoints in a call of their own. Nobody is told of
//! changes: the engine polls.

use std::fs::{self, File};
use std::io::{self, ErrorKind, Write};
use std::path::{Path, PathBuf};
use std::time::Duration;

use futures_util::future::BoxFuture;
use partita_core::model::{Incarnation, Scope, Timestamp};
use partita_core::processor::Timing;
use partita_core::store::rules::{self, CheckpointChange};
use partita_core::store::{
    CheckpointOutcome, CheckpointRecord, CheckpointStore, CheckpointWrite, GroupView, InstanceOutcome,
    InstanceSeen, InstanceState, InstanceWrite, MOVES_KEPT_MAX, MoveRecord, Ownership, OwnershipOutcome,
    OwnershipWrite, StoreError, StoreProperties, StoreResult, Version,
};

use super::text::{self, StampedInstance};

/// Keeps records as text files.
#[derive(Clone, Debug)]
pub(crate) struct DirectoryStore {
    root: PathBuf,
}

impl DirectoryStore {
    /// The store in this directory, which is made if there is none.
    pub(crate) fn open(root: impl Into<PathBuf>) -> io::Result<Self> {
        let root = root.into();
        fs::create_dir_all(&root)?;
        Ok(Self { root })
    }

    /// The files of a scope's records.
    #[allow(dead_code)] // Only the example's main shows them.
    pub(crate) fn files(&self, scope: &Scope) -> io::Result<Vec<PathBuf>> {
        let records = Records { directory: self.directory(scope) };
        let mut files = Vec::new();
        for kind in [INSTANCES, OWNERSHIPS, CHECKPOINTS] {
            files.extend(records.list(kind)?);
        }
        Ok(files)
    }

    fn directory(&self, scope: &Scope) -> PathBuf {
        // Groups compare without regard to case, so the folded name is the key.
        let parts = [scope.namespace.as_str(), scope.hub.as_str(), scope.group.folded()];
        self.root.join(parts.map(text::file_name).join("/"))
    }

    /// Does `work` with the scope locked, off the async threads. If the caller drops the future the work is done all
    /// the same, and the lock given back.
    fn locked<T: Send + 'static>(
        &self,
        op: &'static str,
        scope: &Scope,
        work: impl FnOnce(&Records) -> io::Result<T> + Send + 'static,
    ) -> BoxFuture<'static, StoreResult<T>> {
        let directory = self.directory(scope);
        Box::pin(async move {
            let done = tokio::task::spawn_blocking(move || {
                let records = Records { directory };
                let _lock = records.lock()?;
                work(&records)
            });
            match done.await {
                Ok(Ok(answer)) => Ok(answer),
                // The rename may have happened before whatever failed.
                Ok(Err(error)) => Err(StoreError::unknown(op, error)),
                Err(ended) => Err(StoreError::unknown(op, ended)),
            }
        })
    }
}

impl CheckpointStore for DirectoryStore {
    fn properties(&self) -> StoreProperties {
        StoreProperties {
            atomic: false,
            timing: Timing::FAST,
            // Stamps are in milliseconds.
            stamp_step: Duration::from_millis(1),
            notifies: false,
        }
    }

    fn write_instance<'a>(
        &'a self,
        scope: &'a Scope,
        write: InstanceWrite,
    ) -> BoxFuture<'a, StoreResult<InstanceOutcome>> {
        self.locked("write_instance", scope, move |records| records.write_instance(&write))
    }

    fn write_ownership<'a>(
        &'a self,
        scope: &'a Scope,
        write: OwnershipWrite,
    ) -> BoxFuture<'a, StoreResult<OwnershipOutcome>> {
        if write.checkpoint.is_some() {
            let why = "two files cannot be replaced in one step";
            return Box::pin(std::future::ready(Err(StoreError::permanent("write_ownership", why))));
        }
        self.locked("write_ownership", scope, move |records| records.write_ownership(&write))
    }

    fn write_checkpoint<'a>(
        &'a self,
        scope: &'a Scope,
        write: CheckpointWrite,
    ) -> BoxFuture<'a, StoreResult<CheckpointOutcome>> {
        self.locked("write_checkpoint", scope, move |records| records.write_checkpoint(&write))
    }

    fn view<'a>(&'a self, scope: &'a Scope) -> BoxFuture<'a, StoreResult<GroupView>> {
        self.locked("view", scope, |records| {
            let ownerships = records.ownerships()?;
            Ok(GroupView { ownerships, instances: records.instances()?, cursor: 0 })
        })
    }

    fn checkpoints<'a>(&'a self, scope: &'a Scope) -> BoxFuture<'a, StoreResult<Vec<CheckpointRecord>>> {
        self.locked("checkpoints", scope, Records::checkpoints)
    }

    fn moves<'a>(&'a self, scope: &'a Scope) -> BoxFuture<'a, StoreResult<Vec<MoveRecord>>> {
        self.locked("moves", scope, Records::moves)
    }
}

const INSTANCES: &str = "instances";
const OWNERSHIPS: &str = "ownerships";
const CHECKPOINTS: &str = "checkpoints";

/// The records of a scope, while its lock is held.
struct Records {
    directory: PathBuf,
}

impl Records {
    fn lock(&self) -> io::Result<File> {
        for kind in [INSTANCES, OWNERSHIPS, CHECKPOINTS] {
            fs::create_dir_all(self.directory.join(kind))?;
        }
        let lock = File::options().create(true).append(true).open(self.directory.join("lock"))?;
        // The system gives it back when the file is closed, also after a crash.
        lock.lock()?;
        Ok(lock)
    }

    fn write_instance(&self, write: &InstanceWrite) -> io::Result<InstanceOutcome> {
        let now = Timestamp::now();
        if matches!(write, InstanceWrite::Register(_)) {
            self.forget_the_dead(now)?;
        }
        let path = self.instance(write.incarnation());
        let current = read(&path)?.map(|content| text::instance(&content)).transpose()?;
        let seen = current.as_ref().map(|stamped| seen(stamped, now));
        let Some(record) = rules::instance(seen.as_ref(), write) else {
            return Ok(InstanceOutcome::Refused(seen));
        };
        // Who dies keeps the stamp of the last heartbeat; the file's own time tells when.
        let stamp = match (record.state, current) {
            (InstanceState::Dead, Some(before)) => before.stamp,
            _ => now,
        };
        let stamped = StampedInstance { record, stamp, version: new_version() };
        replace(&path, &text::of_instance(&stamped))?;
        Ok(InstanceOutcome::Applied(self::seen(&stamped, now)))
    }

    fn write_ownership(&self, write: &OwnershipWrite) -> io::Result<OwnershipOutcome> {
        let path = self.directory.join(OWNERSHIPS).join(text::file_name(write.partition.as_str()));
        let current = read(&path)?.map(|content| text::ownership(&content)).transpose()?;
        let Some((mut ownership, moved)) = rules::ownership(current.as_ref(), write, Timestamp::now()) else {
            return Ok(OwnershipOutcome::Refused(current));
        };
        ownership.version = new_version();
        replace(&path, &text::of_ownership(&ownership))?;
        if let Some(moved) = moved {
            self.log(&moved)?;
        }
        Ok(OwnershipOutcome::Applied { ownership, checkpoint: None })
    }

    fn write_checkpoint(&self, write: &CheckpointWrite) -> io::Result<CheckpointOutcome> {
        let path = self.directory.join(CHECKPOINTS).join(text::file_name(write.partition().as_str()));
        let current = read(&path)?.map(|content| text::checkpoint(&content)).transpose()?;
        Ok(match rules::checkpoint(current.as_ref(), write, Timestamp::now()) {
            CheckpointChange::Write(mut record) => {
                record.version = new_version();
                replace(&path, &text::of_checkpoint(&record))?;
                CheckpointOutcome::Applied(record)
            }
            CheckpointChange::Keep(held) => CheckpointOutcome::Applied(held),
            CheckpointChange::Fenced(held) => CheckpointOutcome::Fenced(held),
            CheckpointChange::Behind(held) => CheckpointOutcome::Behind(held),
        })
    }

    fn ownerships(&self) -> io::Result<Vec<Ownership>> {
        let mut all = self.read_all(OWNERSHIPS, text::ownership)?;
        all.sort_by(|a, b| a.partition.cmp(&b.partition));
        Ok(all)
    }

    fn instances(&self) -> io::Result<Vec<InstanceSeen>> {
        let now = Timestamp::now();
        let mut all = self.read_all(INSTANCES, |content| Ok(seen(&text::instance(content)?, now)))?;
        all.sort_by(|a, b| a.record.incarnation.cmp(&b.record.incarnation));
        Ok(all)
    }

    fn checkpoints(&self) -> io::Result<Vec<CheckpointRecord>> {
        let mut all = self.read_all(CHECKPOINTS, text::checkpoint)?;
        all.sort_by(|a, b| a.partition.cmp(&b.partition));
        Ok(all)
    }

    fn moves(&self) -> io::Result<Vec<MoveRecord>> {
        let log = read(&self.directory.join("moves"))?.unwrap_or_default();
        log.lines().map(text::moved).collect()
    }

    fn log(&self, moved: &MoveRecord) -> io::Result<()> {
        let path = self.directory.join("moves");
        let log = read(&path)?.unwrap_or_default();
        let excess = (log.lines().count() + 1).saturating_sub(MOVES_KEPT_MAX);
        let mut lines: Vec<&str> = log.lines().skip(excess).collect();
        let line = text::of_moved(moved);
        lines.push(&line);
        replace(&path, &(lines.join("\n") + "\n"))
    }

    fn forget_the_dead(&self, now: Timestamp) -> io::Result<()> {
        for path in self.list(INSTANCES)? {
            let Some(content) = read(&path)? else { continue };
            let died = Timestamp::from(fs::metadata(&path)?.modified()?);
            if text::instance(&content)?.record.state == InstanceState::Dead
                && since(died, now) >= rules::DEAD_KEPT
            {
                fs::remove_file(path)?;
            }
        }
        Ok(())
    }

    fn instance(&self, incarnation: &Incarnation) -> PathBuf {
        let name = format!("{}.{:032x}", text::file_name(incarnation.id().as_str()), incarnation.nonce());
        self.directory.join(INSTANCES).join(name)
    }

    fn read_all<T>(&self, kind: &str, parse: impl Fn(&str) -> io::Result<T>) -> io::Result<Vec<T>> {
        self.list(kind)?.iter().map(|path| parse(&fs::read_to_string(path)?)).collect()
    }

    fn list(&self, kind: &str) -> io::Result<Vec<PathBuf>> {
        let mut paths = Vec::new();
        for entry in fs::read_dir(self.directory.join(kind))? {
            let path = entry?.path();
            // What a crash left half-written.
            if path.extension().is_none_or(|extension| extension != NEW) {
                paths.push(path);
            }
        }
        Ok(paths)
    }
}

/// The extension of a file that is not yet renamed. No record's name ends so: a nonce has 32 digits, and a
/// partition's name has no dot.
const NEW: &str = "new";

fn read(path: &Path) -> io::Result<Option<String>> {
    match fs::read_to_string(path) {
        Ok(content) => Ok(Some(content)),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}

/// Replaces a file so that it has the old content or the new one, whatever happens.
fn replace(path: &Path, content: &str) -> io::Result<()> {
    let mut new = path.as_os_str().to_owned();
    new.push(".");
    new.push(NEW);
    let mut file = File::create(&new)?;
    file.write_all(content.as_bytes())?;
    file.sync_data()?;
    fs::rename(new, path)
}

fn seen(stamped: &StampedInstance, now: Timestamp) -> InstanceSeen {
    InstanceSeen {
        record: stamped.record.clone(),
        version: stamped.version.clone(),
        age: since(stamped.stamp, now),
    }
}

fn since(then: Timestamp, now: Timestamp) -> Duration {
    Duration::from_millis(u64::try_from(now.millis() - then.millis()).unwrap_or(0))
}

/// Random, so that a record that was forgotten and made anew has no version twice.
fn new_version() -> Version {
    Version::tag(format!("{:032x}", fastrand::u128(..)))
}
