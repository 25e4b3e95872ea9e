//! Whether a hub's files are still where the hub writes: a data directory that is deleted, or replaced by a copy, under a
//! running hub takes along all that is written after it.

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::disk::{Disk, Held};
use super::segment::Segment;
use super::store::STORE;
use super::witness::data_dir;

/// Files and directories that have to stay where they are.
pub(crate) struct Place {
    disk: Arc<dyn Disk>,
    held: Vec<(&'static str, PathBuf, Box<dyn Held>)>,
    /// The segment that is being written.
    active: Option<(u64, Box<dyn Held>)>,
}

impl fmt::Debug for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Place").field("held", &self.held).finish_non_exhaustive()
    }
}

impl Place {
    /// The data directory and what makes it one.
    pub(crate) fn of_store(disk: &Arc<dyn Disk>, data: &Path) -> io::Result<Self> {
        let mut place = Self { disk: disk.clone(), held: Vec::new(), active: None };
        place.hold("the data directory ", data.to_owned())?;
        place.hold("", data.join(STORE))?;
        Ok(place)
    }

    /// The same, with the directory of a hub.
    pub(crate) fn of_hub(disk: &Arc<dyn Disk>, dir: &Path) -> io::Result<Self> {
        let mut place = Self::of_store(disk, data_dir(dir))?;
        place.hold("", dir.to_owned())?;
        Ok(place)
    }

    /// `what`: in words, before the path.
    fn hold(&mut self, what: &'static str, path: PathBuf) -> io::Result<()> {
        let held = self.disk.hold(&path)?;
        self.held.push((what, path, held));
        Ok(())
    }

    /// What is not where it was.
    pub(crate) fn check(&self) -> Option<String> {
        let moved = |what: &str, path, held: &dyn Held| Some(format!("{what}{}", moved(held, path)?));
        self.held.iter().find_map(|(what, path, held)| moved(what, path, held.as_ref()))
    }

    /// The same, with the segment that is being written.
    pub(crate) fn check_active(&mut self, active: &Segment) -> Option<String> {
        if let Some(found) = self.check() {
            return Some(found);
        }
        if self.active.as_ref().is_none_or(|(id, _)| *id != active.id) {
            match self.disk.hold(&active.path) {
                Err(error) if is_gone(&error) => return Some(deleted(&active.path)),
                // No more files can be opened, say. It is tried again.
                Err(_) => return None,
                Ok(held) => self.active = Some((active.id, held)),
            }
        }
        self.active.as_ref().and_then(|(_, held)| moved(held.as_ref(), &active.path))
    }
}

fn moved(held: &dyn Held, path: &Path) -> Option<String> {
    match held.is_at(path) {
        Ok(true) => None,
        Ok(false) => Some(format!("{} was replaced", path.display())),
        Err(error) if is_gone(&error) => Some(deleted(path)),
        // Not known: a network file system may be away for a moment, and writes tell.
        Err(_) => None,
    }
}

fn deleted(path: &Path) -> String {
    format!("{} was deleted or moved", path.display())
}

fn is_gone(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory)
}
