//! Looking for damage: in a hub that runs, in the background; and in a data directory that nobody serves, without changing it.

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use partita_core::model::HubName;

use super::BrokerError;
use super::meta::{self, Meta};
use crate::log::store::{STORE, without_store};
use crate::log::witness;
use crate::log::{Core, Disk, LogCheck, OpenError, OsDisk, OverlayDisk, Settings, Store};

/// How a check stands.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum CheckState {
    /// It reads.
    Running {
        /// Bytes that were read.
        done: u64,
        /// Bytes that there are to read.
        total: u64,
    },
    /// It was given up, because the hub was closed or deleted.
    Ended,
    /// It is done.
    Done(Arc<LogCheck>),
}

/// The check of a hub that runs, one at a time.
#[derive(Clone, Debug, Default)]
pub(super) struct Checking(Arc<Mutex<Option<CheckState>>>);

impl Checking {
    fn slot(&self) -> MutexGuard<'_, Option<CheckState>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn state(&self) -> Option<CheckState> {
        self.slot().clone()
    }

    pub(super) fn start(
        &self,
        work: impl FnOnce(&dyn Fn(u64, u64)) -> Option<LogCheck> + Send + 'static,
    ) -> io::Result<()> {
        let mut slot = self.slot();
        if matches!(*slot, Some(CheckState::Running { .. })) {
            return Ok(());
        }
        let slot_of_thread = self.clone();
        std::thread::Builder::new().name("hub-check".into()).spawn(move || {
            let done = work(&|done, total| {
                *slot_of_thread.slot() = Some(CheckState::Running { done, total });
            });
            *slot_of_thread.slot() =
                Some(done.map_or(CheckState::Ended, |done| CheckState::Done(Arc::new(done))));
        })?;
        *slot = Some(CheckState::Running { done: 0, total: 0 });
        Ok(())
    }
}

/// A data directory that nobody serves, to look at. It is locked as long as this is kept, and nothing in it is changed but
/// by [`OfflineData::accept_loss`].
pub struct OfflineData {
    disk: Arc<dyn Disk>,
    store: Store,
    hubs: Vec<(u64, Meta)>,
}

impl fmt::Debug for OfflineData {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("OfflineData").field("store", &self.store).finish_non_exhaustive()
    }
}

/// Whether a hub without a description was a hub once: there is a copy of it, or a segment.
fn is_begun(disk: &dyn Disk, dir: &Path) -> bool {
    let has_segment = |names: Vec<String>| names.iter().any(|name| name.ends_with(".seg"));
    matches!(Meta::load(disk, &witness::meta_path(dir)), Ok(Some(_))) || disk.list(dir).is_ok_and(has_segment)
}

/// A hub that cannot be checked, because it is not there or nobody says what it is.
fn missing(disk: &dyn Disk, dir: &Path) -> BrokerError {
    let copy = Meta::load(disk, &witness::meta_path(dir)).ok().flatten();
    let number = || dir.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
    let hub = HubName::new(copy.map_or_else(number, |meta| meta.name));
    let path = dir.join(meta::FILE);
    BrokerError::Lost { hub, what: format!("cannot be checked: {} is missing: restore it", path.display()) }
}

impl OfflineData {
    /// Looks at a data directory. One that is in use, of a newer format or somebody else's is refused.
    pub fn open(path: impl Into<PathBuf>) -> Result<Self, BrokerError> {
        Self::open_on(Arc::new(OsDisk), path)
    }

    /// The same, on a disk of your own.
    pub fn open_on(disk: Arc<dyn Disk>, path: impl Into<PathBuf>) -> Result<Self, BrokerError> {
        let path = path.into();
        // Locking would make the file.
        let names = disk.list(&path).map_err(|error| OpenError::io("listing", &path, error))?;
        if !names.iter().any(|name| name == STORE) {
            return Err(without_store(&*disk, path)?.into());
        }
        let overlay: Arc<dyn Disk> = Arc::new(OverlayDisk::over(disk.clone()));
        let store = Store::open_on(overlay.clone(), path)?;
        let mut hubs = Vec::new();
        let there = store.hubs()?;
        let witnessed = witness::hubs(&*overlay, store.path())
            .map_err(|error| OpenError::io("listing", witness::witness_dir(store.path()), error))?;
        if let Some(id) = witnessed.into_iter().find(|id| !there.contains(id)) {
            return Err(missing(&*overlay, &store.hub_dir(id)));
        }
        for id in there {
            let dir = store.hub_dir(id);
            let fail = |source: io::Error| match source.kind() {
                io::ErrorKind::InvalidData => OpenError::Damaged { path: dir.join(meta::FILE) },
                _ => OpenError::io("reading", dir.join(meta::FILE), source),
            };
            match Meta::load(&*overlay, &dir.join(meta::FILE)).map_err(fail)? {
                Some(meta) => hubs.push((id, meta)),
                None if is_begun(&*overlay, &dir) => return Err(missing(&*overlay, &dir)),
                // Its making was not finished.
                None => {}
            }
        }
        Ok(Self { disk, store, hubs })
    }

    /// The names of the hubs.
    pub fn hubs(&self) -> Vec<HubName> {
        self.hubs.iter().map(|(_, meta)| HubName::new(&meta.name)).collect()
    }

    fn look_at(&self, hub: &str) -> Result<Arc<Core>, BrokerError> {
        let found = self.hubs.iter().find(|(_, meta)| super::fold(&meta.name) == super::fold(hub));
        let (id, meta) = found.ok_or_else(|| BrokerError::NoHub(HubName::new(hub)))?;
        let core = self.store.look_at_hub(*id, Settings::new(meta.partitions))?;
        core.introduce(&meta.name);
        Ok(core)
    }

    /// Reads everything of a hub and says what is damaged and what is safe. `progress` hears how many bytes of how many were
    /// read.
    pub fn check(&self, hub: &str, progress: &dyn Fn(u64, u64)) -> Result<LogCheck, BrokerError> {
        let checked = self.look_at(hub)?.check(&|done, total| {
            progress(done, total);
            true
        });
        checked.ok_or_else(|| BrokerError::NoHub(HubName::new(hub)))
    }

    /// Accepts the loss of events, durably: readers pass over them when the hub is served again. All of them must be lost.
    pub fn accept_loss(&self, hub: &str, partition: u32, first: u64, last: u64) -> Result<(), BrokerError> {
        let core = self.look_at(hub)?;
        core.accept_loss(partition, first, last)?;
        core.copy_book(&*self.disk)?;
        Ok(())
    }
}
