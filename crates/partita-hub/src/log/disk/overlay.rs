//! A disk to look at another one through: what is written stays in memory, so that a log can be opened, recovered and checked
//! without a byte of it being changed.

use std::any::Any;
use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::{Access, Disk, DiskFile, MemoryDisk, WriteMode, read_full};

/// How much is copied at once.
const COPY_BYTES: usize = 1 << 20;

/// A disk whose files are another's, until they are written. Locks are the other's.
#[derive(Debug)]
pub(crate) struct OverlayDisk {
    base: Arc<dyn Disk>,
    /// What was written.
    written: MemoryDisk,
    /// Which names are not the base's any more: true if they are in `written`, false if they were removed.
    changed: Mutex<BTreeMap<PathBuf, bool>>,
}

impl OverlayDisk {
    pub(crate) fn over(base: Arc<dyn Disk>) -> Self {
        Self { base, written: MemoryDisk::new(u64::MAX), changed: Mutex::default() }
    }

    fn changed(&self) -> MutexGuard<'_, BTreeMap<PathBuf, bool>> {
        self.changed.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Copies a file of the base, unless that was done before.
    fn copy(&self, changed: &mut BTreeMap<PathBuf, bool>, path: &Path) -> io::Result<()> {
        match changed.get(path) {
            Some(true) => return Ok(()),
            Some(false) => return Err(io::ErrorKind::NotFound.into()),
            None => {}
        }
        let from = self.base.open(path, Access::Read)?;
        self.make_parent(path)?;
        let to = self.written.open(path, Access::Create)?;
        to.allocate(from.len()?)?;
        let (mut at, mut buf) = (0, vec![0; COPY_BYTES]);
        loop {
            let read = read_full(&*from, &mut buf, at)?;
            if read == 0 {
                break;
            }
            super::write_exact(&*to, &buf[..read], at)?;
            at += read as u64;
        }
        changed.insert(path.to_owned(), true);
        Ok(())
    }

    fn make_parent(&self, path: &Path) -> io::Result<()> {
        path.parent().map_or(Ok(()), |parent| self.written.create_dir(parent))
    }
}

impl Disk for OverlayDisk {
    fn open(&self, path: &Path, access: Access) -> io::Result<Arc<dyn DiskFile>> {
        let mut changed = self.changed();
        match (access, changed.get(path)) {
            (Access::Write(WriteMode::Direct), _) => return Err(io::ErrorKind::Unsupported.into()),
            (Access::Read, None) => return self.base.open(path, Access::Read),
            (Access::Read, Some(false)) => return Err(io::ErrorKind::NotFound.into()),
            (Access::Read, Some(true)) => {}
            (Access::Create, _) => {
                self.make_parent(path)?;
                changed.insert(path.to_owned(), true);
            }
            (Access::Write(_), _) => self.copy(&mut changed, path)?,
        }
        self.written.open(path, access)
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        let mut changed = self.changed();
        self.copy(&mut changed, from)?;
        self.make_parent(to)?;
        self.written.rename(from, to)?;
        changed.insert(from.to_owned(), false);
        changed.insert(to.to_owned(), true);
        Ok(())
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        let mut changed = self.changed();
        match changed.get(path) {
            Some(false) => return Err(io::ErrorKind::NotFound.into()),
            Some(true) => self.written.remove(path)?,
            None => drop(self.base.open(path, Access::Read)?),
        }
        changed.insert(path.to_owned(), false);
        Ok(())
    }

    fn list(&self, dir: &Path) -> io::Result<Vec<String>> {
        let changed = self.changed();
        let mut names: BTreeSet<String> = match (self.base.list(dir), self.written.list(dir)) {
            (Err(error), Err(_)) => return Err(error),
            (base, written) => base.into_iter().chain(written).flatten().collect(),
        };
        names.retain(|name| changed.get(&dir.join(name)) != Some(&false));
        Ok(names.into_iter().collect())
    }

    fn create_dir(&self, dir: &Path) -> io::Result<()> {
        self.written.create_dir(dir)
    }

    fn remove_dir(&self, dir: &Path) -> io::Result<()> {
        self.changed().insert(dir.to_owned(), false);
        Ok(())
    }

    fn sync_dir(&self, _: &Path) -> io::Result<()> {
        Ok(())
    }

    fn lock(&self, path: &Path) -> io::Result<Box<dyn Any + Send + Sync>> {
        match self.base.lock(path) {
            // Where nobody can write there is nobody to be kept out.
            Err(error)
                if matches!(
                    error.kind(),
                    io::ErrorKind::PermissionDenied | io::ErrorKind::ReadOnlyFilesystem
                ) =>
            {
                Ok(Box::new(()))
            }
            lock => lock,
        }
    }
}
