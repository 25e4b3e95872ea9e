//! The broker: hubs by name, consumer groups, routing, and who may read. It keeps no record of what was read, and no
//! protocol is in it; batches are the log's opaque bytes.

mod admission;
mod check;
mod hub;
mod meta;
mod opening;
mod reader;
mod reset;
mod routing;

use std::collections::BTreeMap;
use std::io;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

pub use admission::{PLAIN_READERS_MAX, Refused};
pub use check::{CheckState, OfflineData};
pub use hub::{Hub, HubOptions};
use meta::Meta;
use opening::ToOpen;
use partita_core::model::{ConsumerGroup, HubName};
#[cfg(feature = "server")]
pub(crate) use reader::listed;
pub use reader::{Attach, AttachError, HubReadError, HubReader};
pub use reset::{Reset, ResetHub};
pub use routing::{Route, partition_of};
use thiserror::Error;

use crate::log::{
    AcceptError, Disk, MemoryDisk, OpenError, OsDisk, Recovery, Retention, RetentionError, Settings, Store,
    StoreId,
};

/// Segments in memory are at least this large: a batch of a megabyte and the table of many partitions fit.
const MEMORY_SEGMENT_BYTES_MIN: u64 = 4 << 20;

/// Why a hub or group was not made or changed.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum BrokerError {
    /// There is one of this name.
    #[error("hub '{0}' already exists")]
    HubExists(HubName),
    /// There is none of this name.
    #[error("there is no hub '{0}'")]
    NoHub(HubName),
    /// The hub has no such consumer group.
    #[error("hub '{hub}' has no consumer group '{group}'")]
    NoGroup {
        /// The hub.
        hub: HubName,
        /// The group.
        group: ConsumerGroup,
    },
    /// Every hub has the default group.
    #[error("the group '{}' belongs to every hub and cannot be deleted", ConsumerGroup::DEFAULT)]
    DefaultGroup,
    /// Names are 1 to 256 letters, digits, dots, hyphens and underscores, and start and end with a letter or digit.
    #[error("invalid name '{0}' for a hub or group: use letters, digits, '.', '-' and '_'")]
    BadName(String),
    /// Partitions can only be added.
    #[error("hub '{hub}' has {found} partitions, {asked} were asked for: partitions are never removed")]
    FewerPartitions {
        /// The hub.
        hub: HubName,
        /// How many it has.
        found: u32,
        /// How many were asked for.
        asked: u32,
    },
    /// Something of a hub is missing that must be there. [`Broker::open_accepting`] goes on without it.
    #[error("hub '{hub}' {what}")]
    Lost {
        /// The hub, or the number of its directory if its name is missing, too.
        hub: HubName,
        /// What is missing, and how to get it back.
        what: String,
    },
    /// The data directory was deleted or replaced while the hubs run.
    #[error("{0} while the hub runs: put the data directory back and restart the hub")]
    Displaced(String),
    /// Retention beyond what can be counted.
    #[error("{0}")]
    Retention(#[from] RetentionError),
    /// The hub's log was not opened.
    #[error(transparent)]
    Log(#[from] OpenError),
    /// A loss was not accepted.
    #[error(transparent)]
    Loss(#[from] AcceptError),
    /// The hub's description could not be written.
    #[error("writing {} failed: {source}", path.display())]
    Io {
        /// Where.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
}

/// The hubs of a data directory.
#[derive(Debug)]
pub struct Broker {
    store: Store,
    disk: Arc<dyn Disk>,
    /// Settings of every hub's log, apart from what each hub says itself.
    defaults: Settings,
    hubs: Mutex<BTreeMap<String, Arc<Hub>>>,
}

impl Broker {
    /// Opens a data directory and all hubs in it; says what was found in each.
    pub fn open(path: impl Into<PathBuf>) -> Result<(Self, Vec<(HubName, Recovery)>), BrokerError> {
        Self::open_with(Arc::new(OsDisk), path, Settings::new(1))
    }

    /// A broker that keeps everything in memory and nothing when it goes: no hub takes more than about `hub_bytes_max`,
    /// the oldest events go first.
    pub fn in_memory(hub_bytes_max: u64) -> Result<Self, BrokerError> {
        let mut settings = Settings::new(1);
        // Retention removes whole segments, so there have to be several of them.
        let eighth = (hub_bytes_max / 8).max(1).ilog2();
        settings.segment_bytes_max =
            (1 << eighth).clamp(MEMORY_SEGMENT_BYTES_MIN, settings.segment_bytes_max);
        settings.retention = Retention { bytes_max: Some(hub_bytes_max), ..Retention::default() };
        let disk = Arc::new(MemoryDisk::new(u64::MAX));
        Ok(Self::open_with(disk, "/", settings)?.0)
    }

    /// The same as [`Broker::open`], on a disk of your own and with log settings of your own; each hub has its own
    /// partitions and retention. The settings' size limit holds for hubs that have none.
    pub fn open_with(
        disk: Arc<dyn Disk>,
        path: impl Into<PathBuf>,
        defaults: Settings,
    ) -> Result<(Self, Vec<(HubName, Recovery)>), BrokerError> {
        Self::open_accepting(disk, path, defaults, &[])
    }

    /// The same as [`Broker::open_with`], but the hubs of these names go on although acknowledged events, or their
    /// description, are missing. Their numbers go on above all that can have been acknowledged, and readers pass over
    /// what is missing and report a gap. A hub whose name is missing, too, is named by its directory.
    pub fn open_accepting(
        disk: Arc<dyn Disk>,
        path: impl Into<PathBuf>,
        defaults: Settings,
        accept_loss: &[String],
    ) -> Result<(Self, Vec<(HubName, Recovery)>), BrokerError> {
        let store = Store::open_on(disk.clone(), path)?;
        let mut hubs = BTreeMap::new();
        let mut found = Vec::new();
        let mut recorded = Ok(());
        for ToOpen { id, meta, accept_loss, missed } in opening::find(&store, &*disk, accept_loss)? {
            let settings = Settings { accept_loss, ..defaults.clone() };
            let name = HubName::new(&meta.name);
            let opened = Hub::open(&store, disk.clone(), id, meta.clone(), &settings);
            let (hub, recovery) = opened.map_err(|error| match error {
                OpenError::Lost { dir, loss } => {
                    let dir = dir.display();
                    let were = loss.were();
                    let what =
                        format!("lacks {loss}, which {were} acknowledged: restore the newest copy of {dir}");
                    BrokerError::Lost { hub: name, what }
                }
                error => error.into(),
            })?;
            if accept_loss && !missed && recovery.lost.is_none() {
                tracing::warn!(hub = %hub.name(), "nothing is missing, so no loss had to be accepted");
            }
            let copied = meta.save_copy(&*disk, &store.hub_dir(id));
            recorded = recorded.and(copied).and_then(|()| hub.log().record());
            found.push((hub.name().clone(), recovery));
            hubs.insert(fold(hub.name().as_str()), Arc::new(hub));
        }
        // On a full disk, say, the hubs are served all the same.
        if let Err(error) = recorded.and_then(|()| store.set_witnessed()) {
            tracing::warn!(%error, "not every hub has a record of what it acknowledged yet");
        }
        Ok((Self { store, disk, defaults, hubs: Mutex::new(hubs) }, found))
    }

    /// Which life of the data this is.
    pub fn store_id(&self) -> StoreId {
        self.store.id()
    }

    /// A hub by its name, whatever the case.
    pub fn hub(&self, name: &str) -> Option<Arc<Hub>> {
        self.hubs().get(&fold(name)).cloned()
    }

    /// All hubs, by name.
    pub fn list(&self) -> Vec<Arc<Hub>> {
        self.hubs().values().cloned().collect()
    }

    /// Makes a hub, durably.
    pub fn create_hub(&self, name: &HubName, options: HubOptions) -> Result<Arc<Hub>, BrokerError> {
        check_name(name.as_str())?;
        options.retention.check()?;
        self.check_place()?;
        let mut hubs = self.hubs();
        if hubs.contains_key(&fold(name.as_str())) {
            return Err(BrokerError::HubExists(name.clone()));
        }
        let id = self.store.unused_hub()?;
        let meta = Meta {
            name: name.as_str().to_owned(),
            partitions: options.partitions,
            retention: options.retention,
            groups: Vec::new(),
            created_ms: self.defaults.clock.now_ms(),
            disabled: false,
        };
        let dir = self.store.hub_dir(id);
        // The log first: a directory without a description is a hub that was never finished.
        let (hub, _) = Hub::open(&self.store, self.disk.clone(), id, meta.clone(), &self.defaults)?;
        // And its record: nobody may send events before it is there.
        let finished = hub.log().record().and_then(|()| meta.save(&*self.disk, &dir));
        if let Err(source) = finished {
            if self.store.delete_hub(id).is_ok() {
                hub.end();
                self.store.finish_delete(id);
            }
            return Err(BrokerError::Io { path: dir, source });
        }
        let hub = Arc::new(hub);
        hubs.insert(fold(name.as_str()), hub.clone());
        Ok(hub)
    }

    /// Deletes a hub, durably: its readers and producers are told, and its directory is removed. Other hubs are not
    /// touched. Waits for the disk, so it does not belong on a runtime's worker.
    pub fn delete_hub(&self, name: &str) -> Result<(), BrokerError> {
        self.check_place()?;
        let hub = {
            let mut hubs = self.hubs();
            let hub = hubs.get(&fold(name)).cloned();
            let hub = hub.ok_or_else(|| BrokerError::NoHub(HubName::new(name)))?;
            let path = self.store.hub_dir(hub.id());
            self.store.delete_hub(hub.id()).map_err(|source| BrokerError::Io { path, source })?;
            hubs.remove(&fold(name));
            hub
        };
        hub.end();
        self.store.finish_delete(hub.id());
        Ok(())
    }

    /// What is changed in a directory that took the place of ours would be changed in somebody else's.
    fn check_place(&self) -> Result<(), BrokerError> {
        self.store.displaced().map_or(Ok(()), |reason| Err(BrokerError::Displaced(reason)))
    }

    fn hubs(&self) -> MutexGuard<'_, BTreeMap<String, Arc<Hub>>> {
        self.hubs.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Names compare without case.
fn fold(name: &str) -> String {
    name.to_lowercase()
}

fn check_name(name: &str) -> Result<(), BrokerError> {
    if is_name(name) { Ok(()) } else { Err(BrokerError::BadName(name.to_owned())) }
}

/// Whether a hub or group can have this name: 1 to 256 letters, digits, dots, hyphens and underscores, a letter or digit
/// at both ends.
pub fn is_name(name: &str) -> bool {
    let ends = [name.chars().next(), name.chars().next_back()];
    (1..=256).contains(&name.len())
        && name.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '.' | '-' | '_'))
        && ends.iter().all(|c| c.is_some_and(|c| c.is_ascii_alphanumeric()))
}
