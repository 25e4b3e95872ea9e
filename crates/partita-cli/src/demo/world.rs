//! What the processors of the demo share: a hub and a store, on disk or in memory.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use partita::hub::broker::{Broker, BrokerError, Hub, HubOptions, Route};
use partita::hub::log::{OpenError, Recovery, Retention};
use partita::hub::producer::{Producer, SendError};
use partita::hub::source::HubSource;
use partita::model::{EventBuilder, HubName, Namespace, Scope};
use partita::sqlite::SqliteStore;
use partita::store::{MoveRecord, Resume};
use partita::{CheckpointStore, ConsumerGroup, EventSource, MemoryHub, MemoryStore, PartitionId};

use super::journal::{Former, Journal, Life, boot};
use super::recount::GROUP;

const HUB: &str = "homes";

/// Where the demo keeps its data unless told otherwise: where the user is, so that it is seen and easily removed.
const DEFAULT_DIR: &str = "partita-demo";

/// Further demos at the same time and place get a directory each, up to this many.
const DEFAULT_DIRS_MAX: u32 = 32;

/// What a run leaves for the ones after it, and what an event takes on disk at most. The oldest events go beyond that.
const KEPT_BYTES: u64 = 256 << 20;
const EVENT_BYTES: u64 = 512;

/// Where the demo keeps its data.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Place {
    Memory,
    /// A directory of the demo's own choice.
    Default,
    Directory(PathBuf),
}

/// The hub.
#[derive(Clone)]
pub(crate) enum DemoHub {
    Memory(MemoryHub),
    Disk(Arc<Hub>),
}

/// Hub and store, ready for processors.
pub(crate) struct World {
    pub(crate) hub: DemoHub,
    pub(crate) store: Arc<dyn CheckpointStore>,
    pub(crate) journal: Option<Arc<Journal>>,
    pub(crate) former: Former,
    /// Where it is.
    pub(crate) path: Option<PathBuf>,
    /// Events between the checkpoints and the end.
    pub(crate) behind: u64,
    /// What the store knows of former moves.
    pub(crate) moves: Vec<MoveRecord>,
    /// How many events the hub had taken before, by partition.
    pub(crate) taken: Vec<u64>,
}

impl World {
    /// Opens what is at the place, or makes it. `partitions`: as many as told, or as there are.
    pub(crate) async fn open(place: &Place, partitions: Option<u32>, events: u64) -> Result<Self, String> {
        match place {
            Place::Memory => Ok(Self::memory(partitions.unwrap_or(super::PARTITIONS))),
            Place::Directory(path) => open_disk(path, partitions, events).await.map_err(Refused::text),
            Place::Default => {
                for number in 1..=DEFAULT_DIRS_MAX {
                    let name =
                        if number == 1 { DEFAULT_DIR.into() } else { format!("{DEFAULT_DIR}-{number}") };
                    match open_disk(Path::new(&name), partitions, events).await {
                        Err(Refused::InUse(_)) => {}
                        other => return other.map_err(Refused::text),
                    }
                }
                Err(format!(
                    "{DEFAULT_DIRS_MAX} demos run here already: stop one, or choose a --data of your own"
                ))
            }
        }
    }

    fn memory(partitions: u32) -> Self {
        Self {
            hub: DemoHub::Memory(MemoryHub::new(HUB, partitions)),
            store: Arc::new(MemoryStore::new()),
            journal: None,
            former: Former { since: vec![0; partitions as usize], ..Former::default() },
            path: None,
            behind: 0,
            moves: Vec::new(),
            taken: vec![0; partitions as usize],
        }
    }
}

/// Why a directory is not used.
enum Refused {
    InUse(String),
    Other(String),
}

impl Refused {
    fn text(self) -> String {
        match self {
            Self::InUse(text) | Self::Other(text) => text,
        }
    }
}

impl From<String> for Refused {
    fn from(text: String) -> Self {
        Self::Other(text)
    }
}

async fn open_disk(path: &Path, partitions: Option<u32>, events: u64) -> Result<World, Refused> {
    check_ours(path)?;
    let opened = Broker::open(path.join("hub")).map_err(|error| match error {
        BrokerError::Log(OpenError::InUse { .. }) => Refused::InUse(format!(
            "{} is in use by another demo: wait for it, or choose another --data",
            path.display()
        )),
        other => Refused::Other(with_a_way_out(&other.to_string())),
    });
    let (broker, found) = opened?;
    if let Some((_, damaged)) = found.iter().find(|(_, recovery)| !recovery.is_clean()) {
        return Err(Refused::Other(damage(path, damaged)));
    }
    let hub = open_hub(&broker, path, partitions, events)?;
    let store = SqliteStore::open(path.join("checkpoints.db"));
    let store = store.map_err(|error| with_a_way_out(&error.to_string()))?;
    let scope = Scope {
        namespace: Namespace::new(HubSource::NAMESPACE),
        hub: hub.name().clone(),
        group: ConsumerGroup::default(),
    };
    let (checkpoints, behind) = checkpoints(&hub, &store, &scope).await?;
    let moves = store.moves(&scope).await.map_err(|error| error.to_string())?;
    let life = Life { store: broker.store_id().0, hub: hub.id(), boot: boot() };
    let (journal, former) = Journal::open(&path.join("ledger"), life, &checkpoints)?;
    let taken = (0..hub.partitions()).map(|p| hub.partition(p).map_or(0, |info| info.next_seq)).collect();
    Ok(World {
        hub: DemoHub::Disk(hub),
        store: Arc::new(store),
        journal: Some(Arc::new(journal)),
        former,
        path: Some(path.to_owned()),
        behind,
        moves,
        taken,
    })
}

/// A directory with something in it, and nothing of the demo's, is somebody else's.
fn check_ours(path: &Path) -> Result<(), String> {
    let cannot =
        |error: std::io::Error| format!("cannot read {}: {error}: choose another --data", path.display());
    let names = match std::fs::read_dir(path) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(cannot(error)),
        Ok(entries) => {
            entries.map(|entry| Ok(entry?.file_name())).collect::<Result<Vec<_>, _>>().map_err(cannot)?
        }
    };
    let ours = names.is_empty() || path.join("hub").join("STORE").exists();
    // A first start that was killed made only this.
    let begun = names == ["hub"]
        && std::fs::read_dir(path.join("hub")).is_ok_and(|mut inside| inside.next().is_none());
    if ours || begun {
        return Ok(());
    }
    Err(format!("{} holds something else: choose an empty or new directory with --data", path.display()))
}

fn with_a_way_out(why: &str) -> String {
    format!("{why} (--data chooses a directory, --memory needs none)")
}

fn damage(path: &Path, found: &Recovery) -> String {
    format!(
        "the events in {} are damaged ({found}): remove the directory, or choose another --data",
        path.display()
    )
}

fn open_hub(broker: &Broker, path: &Path, partitions: Option<u32>, events: u64) -> Result<Arc<Hub>, String> {
    let text = |error: BrokerError| with_a_way_out(&error.to_string());
    let bytes_max = Some(KEPT_BYTES + events * EVENT_BYTES);
    let retention = Retention { age: Duration::from_secs(24 * 60 * 60), bytes_max };
    let hub = match broker.hub(HUB) {
        None => {
            let options = HubOptions { partitions: partitions.unwrap_or(super::PARTITIONS), retention };
            broker.create_hub(&HubName::new(HUB), options).map_err(text)?
        }
        Some(hub) => {
            let (found, asked) = (hub.partitions(), partitions.unwrap_or(hub.partitions()));
            if asked < found {
                return Err(format!(
                    "{} has {found} partitions, and partitions are never removed: ask for more than --partitions \
                     {asked}, or choose another --data",
                    path.display()
                ));
            }
            hub.add_partitions(asked).map_err(text)?;
            hub.set_retention(retention).map_err(text)?;
            hub
        }
    };
    hub.create_group(&ConsumerGroup::new(GROUP)).map_err(text)?;
    Ok(hub)
}

/// Where each partition is resumed, and how many events lie behind that.
async fn checkpoints(hub: &Arc<Hub>, store: &SqliteStore, scope: &Scope) -> Result<(Vec<i64>, u64), String> {
    let source = HubSource::new(hub.clone());
    let records = store.checkpoints(scope).await.map_err(|error| error.to_string())?;
    let mut resume = Vec::new();
    let mut behind = 0;
    for number in 0..hub.partitions() {
        let Some(info) = hub.partition(number) else { continue };
        let mut from = info.first_seq.cast_signed();
        let record = records.iter().find(|record| record.partition == PartitionId::from(number));
        // A position of another life of the hub is none.
        if let Some(record) = record.filter(|record| record.stream == Some(source.stream()))
            && let Some(Resume::After(last)) = &record.resume
        {
            from = from.max(last.sequence.0 + 1);
        }
        behind += info.next_seq.saturating_sub(from.cast_unsigned());
        resume.push(from);
    }
    Ok((resume, behind))
}

impl DemoHub {
    /// The hub as processors and the recount read it.
    pub(crate) fn source(&self) -> Arc<dyn EventSource> {
        match self {
            Self::Memory(hub) => Arc::new(hub.source()),
            Self::Disk(hub) => Arc::new(HubSource::new(hub.clone())),
        }
    }

    /// How many partitions there are.
    pub(crate) fn partitions(&self) -> usize {
        match self {
            Self::Memory(hub) => hub.description().partitions.len(),
            Self::Disk(hub) => hub.partitions() as usize,
        }
    }

    /// How many events each partition ever took.
    pub(crate) fn taken(&self) -> Vec<u64> {
        match self {
            Self::Memory(hub) => hub.description().partitions.iter().map(|id| hub.len(id)).collect(),
            Self::Disk(hub) => {
                let next = |p| hub.partition(p).map_or(0, |info| info.next_seq);
                (0..hub.partitions()).map(next).collect()
            }
        }
    }

    /// A way to send to it.
    pub(crate) fn sender(&self) -> Sender {
        match self {
            Self::Memory(hub) => Sender::Memory(hub.clone(), hub.description().partitions),
            Self::Disk(hub) => Sender::Disk(Producer::new(hub.clone())),
        }
    }
}

/// Sends to the hub.
pub(crate) enum Sender {
    Memory(MemoryHub, Vec<PartitionId>),
    Disk(Producer),
}

impl Sender {
    /// Sends events to a partition; when it returns, the hub has them as safely as it can.
    pub(crate) async fn send(&self, partition: usize, events: Vec<EventBuilder>) -> Result<(), SendError> {
        match self {
            Self::Memory(hub, partitions) => {
                hub.append_all(&partitions[partition], events);
                Ok(())
            }
            Self::Disk(producer) => {
                producer.send_batch(Route::Partition(partition as u32), events).await.map(drop)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    async fn refused(path: &Path, partitions: Option<u32>) -> String {
        let place = Place::Directory(path.to_owned());
        World::open(&place, partitions, 0).await.err().expect("refused")
    }

    #[tokio::test]
    async fn a_directory_of_somebody_else_is_left_as_it_was() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(dir.path().join("thesis.doc"), "mine").unwrap();
        assert!(refused(dir.path(), None).await.contains("holds something else"));
        assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 1);
    }

    #[tokio::test]
    async fn partitions_are_kept_added_and_never_removed() {
        let dir = tempfile::tempdir().unwrap();
        let place = Place::Directory(dir.path().join("data"));
        let partitions = async |asked| World::open(&place, asked, 0).await.unwrap().hub.partitions();
        assert_eq!(partitions(Some(4)).await, 4);
        assert_eq!(partitions(None).await, 4);
        assert_eq!(partitions(Some(6)).await, 6);
        let Place::Directory(path) = &place else { unreachable!() };
        assert!(refused(path, Some(4)).await.contains("has 6 partitions"));
    }
}
