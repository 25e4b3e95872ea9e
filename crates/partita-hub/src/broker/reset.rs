//! Emptying a data directory: first what would go, then, if it is still wanted, its end.

use std::any::Any;
use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use partita_core::model::HubName;

use super::meta::{self, Meta};
use crate::log::store::{STORE, hub_dir, hub_numbers, lock_data, make_durable, refusal, without_store};
use crate::log::{
    Disk, OpenError, OsDisk, StoreId, StoreRecord, StoreRecordError, read_whole, removal, witness,
};

/// What a reset would delete. The directory is locked as long as this is kept, so nothing is added meanwhile.
pub struct Reset {
    disk: Arc<dyn Disk>,
    path: PathBuf,
    hubs: Vec<ResetHub>,
    /// None if there is nothing of ours.
    _lock: Option<Box<dyn Any + Send + Sync>>,
}

/// One hub that would be deleted.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ResetHub {
    id: u64,
    /// Its name; `None` if it was never finished, was deleted before, or its description cannot be read.
    pub name: Option<HubName>,
    /// Its files, with their sizes.
    pub files: Vec<(PathBuf, u64)>,
}

impl fmt::Debug for Reset {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Reset").field("path", &self.path).field("hubs", &self.hubs).finish_non_exhaustive()
    }
}

impl Reset {
    /// Looks at a data directory. One that is in use, of a newer format or somebody else's is refused; one that is not
    /// there, or empty, has nothing to delete.
    pub fn of(path: impl Into<PathBuf>) -> Result<Self, OpenError> {
        Self::on(Arc::new(OsDisk), path)
    }

    /// The same, on a disk of your own.
    pub fn on(disk: Arc<dyn Disk>, path: impl Into<PathBuf>) -> Result<Self, OpenError> {
        let path = path.into();
        let names = match disk.list(&path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Vec::new(),
            names => names.map_err(|error| OpenError::io("listing", &path, error))?,
        };
        if !names.iter().any(|name| name == STORE) {
            return match names.iter().all(|name| name == "lost+found") {
                true => Ok(Self { disk, path, hubs: Vec::new(), _lock: None }),
                false => Err(without_store(&*disk, path)?),
            };
        }
        let file = path.join(STORE);
        let lock = lock_data(&*disk, &path)?;
        let content = read_whole(&*disk, &file).map_err(|error| OpenError::io("reading", &file, error))?;
        match StoreRecord::decode(&content) {
            // A damaged one is ours all the same, and a reset is a way out of it.
            Ok(_) | Err(StoreRecordError::Damaged) => {}
            // A first start that ended before it began.
            Err(_) if content.iter().all(|byte| *byte == 0) => {}
            Err(error) => return Err(refusal(error, path)),
        }
        let hubs = hub_numbers(&*disk, &path)?
            .into_iter()
            .map(|id| look(&*disk, &path, id))
            .collect::<io::Result<Vec<_>>>()
            .map_err(|error| OpenError::io("listing", &path, error))?;
        Ok(Self { disk, path, hubs, _lock: Some(lock) })
    }

    /// The hubs that would go.
    pub fn hubs(&self) -> &[ResetHub] {
        &self.hubs
    }

    /// The directory.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// How many bytes would be freed.
    pub fn bytes(&self) -> u64 {
        self.hubs.iter().flat_map(|hub| &hub.files).map(|(_, bytes)| bytes).sum()
    }

    /// Deletes all hubs and gives the directory a new store id. Files that are not ours stay. After a power cut part of
    /// the hubs may be there, whole; a second reset removes them.
    pub fn delete(self) -> Result<(), OpenError> {
        if self._lock.is_none() {
            return Ok(());
        }
        let disk = &*self.disk;
        let fail = |error| OpenError::io("deleting", &self.path, error);
        for hub in &self.hubs {
            removal::mark_deleted(disk, &hub_dir(&self.path, hub.id)).map_err(fail)?;
        }
        // A hub of which only this is left would be missed by the next start.
        witness::forget_all(disk, &self.path).map_err(fail)?;
        // Now that none of the hubs is any more: their numbers may be given again in the new life.
        make_durable(disk, &self.path, &self.path.join(STORE), StoreRecord::new(StoreId::generate()))
            .map_err(fail)?;
        for hub in &self.hubs {
            removal::sweep(disk, &hub_dir(&self.path, hub.id), false).map_err(fail)?;
        }
        Ok(())
    }
}

fn look(disk: &dyn Disk, path: &Path, id: u64) -> io::Result<ResetHub> {
    let dir = hub_dir(path, id);
    let meta = if removal::is_deleted(disk, &dir)? {
        None
    } else {
        Meta::load(disk, &dir.join(meta::FILE)).unwrap_or(None)
    };
    Ok(ResetHub { id, name: meta.map(|meta| HubName::new(meta.name)), files: removal::files(disk, &dir)? })
}
