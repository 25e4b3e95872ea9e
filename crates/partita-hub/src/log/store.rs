//! A data directory: one process has it open, and it holds the logs of several hubs.

use std::any::Any;
use std::collections::BTreeSet;
use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use super::core::{Core, lock};
use super::disk::{Access, Disk, OsDisk, WriteMode, read_whole, write_exact};
use super::error::OpenError;
use super::format::{FORMAT_MAJOR, StoreId, StoreRecord, StoreRecordError};
use super::hub_log::HubLog;
use super::place::Place;
use super::recovery::Recovery;
use super::removal;
use super::segment::number;
use super::settings::Settings;
use super::witness;

pub(crate) const STORE: &str = "STORE";
const HUB_NUMBER_MAX: u64 = 1 << 48;

/// An open data directory.
pub struct Store {
    disk: Arc<dyn Disk>,
    path: PathBuf,
    id: StoreId,
    /// Whether every hub has a record of what it acknowledged.
    witnessed: AtomicBool,
    place: Place,
    /// Hubs that are deleted and whose log may still be open. Locked while what they left is removed, so that one at a
    /// time does so.
    ending: Mutex<BTreeSet<u64>>,
    lock: Arc<dyn Any + Send + Sync>,
}

impl fmt::Debug for Store {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Store").field("path", &self.path).field("id", &self.id).finish_non_exhaustive()
    }
}

impl Store {
    /// Opens a data directory, making it if it is not there or empty.
    pub fn open(path: impl Into<PathBuf>) -> Result<Self, OpenError> {
        Self::open_on(Arc::new(OsDisk), path)
    }

    /// The same, on a disk of your own.
    pub fn open_on(disk: Arc<dyn Disk>, path: impl Into<PathBuf>) -> Result<Self, OpenError> {
        let path = path.into();
        let fail = |op| {
            let path = path.clone();
            move |error| OpenError::io(op, path, error)
        };
        let names = match disk.list(&path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                disk.create_dir(&path).map_err(fail("creating the directory"))?;
                Vec::new()
            }
            names => names.map_err(fail("listing"))?,
        };
        // A disk of its own has this at its root.
        let names: Vec<String> = names.into_iter().filter(|name| name != "lost+found").collect();
        let has_store = names.iter().any(|name| name == STORE);
        if !has_store && !names.is_empty() {
            return Err(without_store(&*disk, path)?);
        }
        let file = path.join(STORE);
        let lock = lock_data(&*disk, &path)?;
        let content = read_whole(&*disk, &file).map_err(fail("reading"))?;
        // Nothing but a file without content: the first start ended before it began.
        let unused = names.iter().all(|name| name == STORE);
        let begun = content.len() <= StoreRecord::LEN && StoreRecord::decode(&content).is_err();
        let (record, op) = if unused && begun && content.iter().all(|byte| *byte == 0) {
            (StoreRecord::new(StoreId::generate()), "creating")
        } else {
            match StoreRecord::decode(&content) {
                // A first start that was killed may have left it in the page cache only, and a failed sync may have
                // marked it clean there: so it is written again.
                Ok(record) => (record, "writing"),
                Err(error) => return Err(refusal(error, path)),
            }
        };
        make_durable(&*disk, &path, &file, record).map_err(fail(op))?;
        let place = Place::of_store(&disk, &path).map_err(fail("opening"))?;
        let witnessed = AtomicBool::new(record.is_witnessed());
        let store = Self {
            disk,
            path,
            id: record.store,
            witnessed,
            place,
            ending: Mutex::default(),
            lock: Arc::new(lock),
        };
        store.sweep();
        Ok(store)
    }

    /// Whether every hub has a record of what it acknowledged: one that has none then was robbed of it.
    pub(crate) fn is_witnessed(&self) -> bool {
        self.witnessed.load(Ordering::Acquire)
    }

    /// Says, durably, that every hub has its record.
    pub(crate) fn set_witnessed(&self) -> io::Result<()> {
        if !self.is_witnessed() {
            make_durable(&*self.disk, &self.path, &self.path.join(STORE), StoreRecord::new(self.id))?;
            self.witnessed.store(true, Ordering::Release);
        }
        Ok(())
    }

    /// What became of the directory, if its name no longer leads to the one that was opened.
    pub(crate) fn displaced(&self) -> Option<String> {
        self.place.check()
    }

    /// Which life of the data this is.
    pub fn id(&self) -> StoreId {
        self.id
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Opens the log of a hub, making it if it is not there. The directory stays locked as long as the log is open.
    pub fn open_hub(&self, hub: u64, settings: Settings) -> Result<(HubLog, Recovery), OpenError> {
        self.open_hub_as(hub, &hub.to_string(), settings)
    }

    /// The same, for a hub that people know by a name.
    pub(crate) fn open_hub_as(
        &self,
        hub: u64,
        name: &str,
        settings: Settings,
    ) -> Result<(HubLog, Recovery), OpenError> {
        let dir = self.hub_dir(hub);
        let (core, writer, recovery) =
            super::recovery::open(self.disk.clone(), &dir, self.id, hub, settings)?;
        core.introduce(name);
        let log = HubLog::start(core, writer, self.lock.clone())
            .map_err(|error| OpenError::io("starting a thread", dir, error))?;
        Ok((log, recovery))
    }

    /// Recovers the log of a hub and starts nothing, to look at it.
    pub(crate) fn look_at_hub(&self, hub: u64, settings: Settings) -> Result<Arc<Core>, OpenError> {
        let dir = self.hub_dir(hub);
        Ok(super::recovery::open(self.disk.clone(), &dir, self.id, hub, settings)?.0)
    }

    /// The hubs there are, in order.
    pub fn hubs(&self) -> Result<Vec<u64>, OpenError> {
        let mut ids = Vec::new();
        for id in hub_numbers(&*self.disk, &self.path)? {
            let dir = self.hub_dir(id);
            let deleted = removal::is_deleted(&*self.disk, &dir);
            if !deleted.map_err(|error| OpenError::io("listing", dir, error))? {
                ids.push(id);
            }
        }
        Ok(ids)
    }

    /// A number that no hub has or had.
    pub(crate) fn unused_hub(&self) -> Result<u64, OpenError> {
        Ok(hub_numbers(&*self.disk, &self.path)?.last().map_or(1, |last| last + 1))
    }

    /// Makes a hub gone, durably. Its log may still be open: what it left stays until [`Store::finish_delete`].
    pub(crate) fn delete_hub(&self, hub: u64) -> io::Result<()> {
        lock(&self.ending).insert(hub);
        let marked = removal::mark_deleted(&*self.disk, &self.hub_dir(hub));
        if marked.is_err() {
            lock(&self.ending).remove(&hub);
        }
        marked
    }

    /// Removes what a deleted hub left, now that its log is closed.
    pub(crate) fn finish_delete(&self, hub: u64) {
        lock(&self.ending).remove(&hub);
        self.sweep();
    }

    /// Removes what deleted hubs left. What cannot be removed now is tried again when the directory is opened.
    fn sweep(&self) {
        let ending = lock(&self.ending);
        let Ok(ids) = hub_numbers(&*self.disk, &self.path) else { return };
        for id in ids.iter().filter(|id| !ending.contains(id)) {
            let dir = self.hub_dir(*id);
            // The highest number stays taken: a hub that is made later must not be taken for the one that went.
            let keep_number = ids.last() == Some(id);
            let swept = removal::is_deleted(&*self.disk, &dir).and_then(|deleted| match deleted {
                true => removal::sweep(&*self.disk, &dir, keep_number),
                false => Ok(()),
            });
            if let Err(error) = swept {
                tracing::warn!(hub = id, %error, "what a deleted hub left could not be removed yet");
            }
        }
    }

    pub(crate) fn hub_dir(&self, hub: u64) -> PathBuf {
        hub_dir(&self.path, hub)
    }

    #[cfg(test)]
    pub(crate) fn disk(&self) -> Arc<dyn Disk> {
        self.disk.clone()
    }
}

/// What a user is told about a directory that is not empty and has no `STORE`: ours has hubs, or bears witness to some.
pub(crate) fn without_store(disk: &dyn Disk, path: PathBuf) -> Result<OpenError, OpenError> {
    let witnessed = witness::hubs(disk, &path);
    let witnessed =
        witnessed.map_err(|error| OpenError::io("listing", witness::witness_dir(&path), error))?;
    Ok(match witnessed.is_empty() && hub_numbers(disk, &path)?.is_empty() {
        true => OpenError::Foreign { path },
        false => OpenError::NoStore { path },
    })
}

/// What a user is told about a `STORE` that is not taken.
pub(crate) fn refusal(error: StoreRecordError, path: PathBuf) -> OpenError {
    match error {
        StoreRecordError::Foreign => OpenError::Foreign { path },
        StoreRecordError::Damaged => OpenError::Damaged { path: path.join(STORE) },
        StoreRecordError::Newer { major } => {
            OpenError::NewerFormat { path, found: major, known: FORMAT_MAJOR }
        }
    }
}

/// The directory of a hub.
pub(crate) fn hub_dir(path: &Path, hub: u64) -> PathBuf {
    path.join("hubs").join(format!("{hub:016x}"))
}

/// The numbers that have a directory, in order; some of those hubs may have been deleted, or never finished.
pub(crate) fn hub_numbers(disk: &dyn Disk, path: &Path) -> Result<Vec<u64>, OpenError> {
    let dir = path.join("hubs");
    let names = match disk.list(&dir) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Vec::new(),
        names => names.map_err(|error| OpenError::io("listing", dir, error))?,
    };
    let mut ids: Vec<u64> = names.iter().filter_map(|name| number(name)).collect();
    // A higher number is none of ours, and there is none after the last.
    ids.retain(|id| *id <= HUB_NUMBER_MAX);
    ids.sort_unstable();
    Ok(ids)
}

/// Locks a data directory: the file that makes it one, and the directory itself, because the file can be replaced.
pub(crate) fn lock_data(disk: &dyn Disk, path: &Path) -> Result<Box<dyn Any + Send + Sync>, OpenError> {
    let refused = |error: io::Error| match error.kind() {
        io::ErrorKind::WouldBlock => OpenError::InUse { path: path.to_owned() },
        _ => OpenError::io("locking", path, error),
    };
    let file = disk.lock(&path.join(STORE)).map_err(refused)?;
    let dir = disk.lock_dir(path).map_err(refused)?;
    Ok(Box::new((file, dir)))
}

/// Writes the file and makes it durable.
pub(crate) fn make_durable(disk: &dyn Disk, dir: &Path, path: &Path, record: StoreRecord) -> io::Result<()> {
    // The lock is on this very file, so it is written in place; it is smaller than what a disk writes at once.
    let file = disk.open(path, Access::Write(WriteMode::Buffered))?;
    write_exact(&*file, &record.encode(), 0)?;
    file.sync()?;
    disk.sync_dir(dir)
}
