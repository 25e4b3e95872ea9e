//! What the processors of the demo share: a hub, served on a port of this machine, and a store, in a directory.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use partita::eventhubs::{ConnectionString, EventHubs, EventHubsSource};
use partita::model::{HubName, Namespace, Scope};
use partita::sqlite::SqliteStore;
use partita::store::{MoveRecord, Resume};
use partita::{CheckpointStore, ConsumerGroup, PartitionId};
use partita_hub::broker::{Broker, BrokerError, Hub, HubOptions};
use partita_hub::listener::transport::Transport;
use partita_hub::log::{OpenError, Recovery, Retention};
use partita_hub::server::{Server, ServerOptions};
use tempfile::TempDir;
use tokio::net::TcpListener;

use super::journal::{Former, Journal, Life, boot};
use super::recount::GROUP;

pub(crate) const HUB: &str = "homes";

/// The host as clients name it, and with it the namespace of checkpoints: it stays the same when the port does not.
const HOST: &str = "localhost";

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

/// Hub and store, ready for processors.
pub(crate) struct World {
    broker: Arc<Broker>,
    pub(crate) hub: Arc<Hub>,
    pub(crate) store: SqliteStore,
    pub(crate) scope: Scope,
    pub(crate) journal: Journal,
    pub(crate) former: Former,
    /// Where the database and the books are, and the hub unless it is in memory.
    pub(crate) data: PathBuf,
    /// Events between the checkpoints and the end.
    pub(crate) behind: u64,
    /// What the store knows of former moves.
    pub(crate) moves: Vec<MoveRecord>,
    /// How many events the hub had taken before, by partition.
    pub(crate) taken: Vec<u64>,
    /// The directory of a demo in memory, which goes with it.
    temporary: Option<TempDir>,
}

/// Where processes of this machine reach the hub.
pub(crate) fn source(port: u16) -> Result<EventHubsSource, String> {
    let text = format!(
        "Endpoint=sb://{HOST};SharedAccessKeyName=RootManageSharedAccessKey;SharedAccessKey=SAS_KEY_VALUE;\
         UseDevelopmentEmulator=true;EntityPath={HUB}"
    );
    let connection: ConnectionString = text.parse().map_err(|error| format!("{error}"))?;
    // The port is another one at every run, so it must be no part of the name.
    let builder = EventHubs::builder(&connection).endpoint(format!("amqp://{HOST}:{port}"));
    let client = builder.build().map_err(|error| error.to_string())?;
    Ok(client.source())
}

/// The database in a directory.
pub(crate) fn store(data: &Path) -> Result<SqliteStore, String> {
    SqliteStore::open(data.join("checkpoints.db")).map_err(|error| error.to_string())
}

impl World {
    /// Opens what is at the place, or makes it. `partitions`: as many as told, or as there are.
    pub(crate) async fn open(place: &Place, partitions: Option<u32>, events: u64) -> Result<Self, String> {
        match place {
            Place::Memory => in_memory(partitions, events).await.map_err(Refused::text),
            Place::Directory(path) => on_disk(path, partitions, events).await.map_err(Refused::text),
            Place::Default => {
                for number in 1..=DEFAULT_DIRS_MAX {
                    let name =
                        if number == 1 { DEFAULT_DIR.into() } else { format!("{DEFAULT_DIR}-{number}") };
                    match on_disk(Path::new(&name), partitions, events).await {
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

    /// Serves the hub for as long as the runtime lasts; the port.
    pub(crate) async fn serve(&self) -> std::io::Result<u16> {
        let server = Server::new(Arc::clone(&self.broker), ServerOptions::default());
        let listener = TcpListener::bind(("127.0.0.1", 0)).await?;
        let port = listener.local_addr()?.port();
        tokio::spawn(async move { server.listen(listener, Transport::Plain).await });
        Ok(port)
    }

    /// Whether anything is left when the demo is over.
    pub(crate) fn is_kept(&self) -> bool {
        self.temporary.is_none()
    }

    /// How many partitions there are.
    pub(crate) fn partitions(&self) -> usize {
        self.hub.partitions() as usize
    }

    /// How many events each partition ever took.
    pub(crate) fn taken(&self) -> Vec<u64> {
        taken(&self.hub)
    }
}

fn taken(hub: &Hub) -> Vec<u64> {
    (0..hub.partitions()).map(|p| hub.partition(p).map_or(0, |info| info.next_seq)).collect()
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

async fn in_memory(partitions: Option<u32>, events: u64) -> Result<World, Refused> {
    let cannot = |error: std::io::Error| format!("cannot make a temporary directory: {error}");
    // Processes share a database by its file.
    let temporary = tempfile::Builder::new().prefix("partita-demo-").tempdir().map_err(cannot)?;
    let broker = Broker::in_memory(bytes_max(events)).map_err(|error| error.to_string())?;
    let mut world = make(broker, temporary.path(), partitions, events).await?;
    world.temporary = Some(temporary);
    Ok(world)
}

async fn on_disk(path: &Path, partitions: Option<u32>, events: u64) -> Result<World, Refused> {
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
    make(broker, path, partitions, events).await
}

async fn make(broker: Broker, data: &Path, partitions: Option<u32>, events: u64) -> Result<World, Refused> {
    let hub = open_hub(&broker, data, partitions, events)?;
    let store = store(data).map_err(|error| with_a_way_out(&error))?;
    let scope =
        Scope { namespace: Namespace::new(HOST), hub: hub.name().clone(), group: ConsumerGroup::default() };
    let (checkpoints, behind) = checkpoints(&hub, &store, &scope).await?;
    let moves = store.moves(&scope).await.map_err(|error| error.to_string())?;
    let life = Life { store: broker.store_id().0, hub: hub.id(), boot: boot() };
    let (journal, former) = Journal::open(data, life, &checkpoints)?;
    let taken = taken(&hub);
    let (broker, data) = (Arc::new(broker), data.to_owned());
    Ok(World { broker, hub, store, scope, journal, former, data, behind, moves, taken, temporary: None })
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

fn bytes_max(events: u64) -> u64 {
    KEPT_BYTES + events * EVENT_BYTES
}

fn open_hub(broker: &Broker, path: &Path, partitions: Option<u32>, events: u64) -> Result<Arc<Hub>, String> {
    let text = |error: BrokerError| with_a_way_out(&error.to_string());
    let retention = Retention { age: Duration::from_secs(24 * 60 * 60), bytes_max: Some(bytes_max(events)) };
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
    let records = store.checkpoints(scope).await.map_err(|error| error.to_string())?;
    let stream = hub.stream();
    let mut resume = Vec::new();
    let mut behind = 0;
    for number in 0..hub.partitions() {
        let Some(info) = hub.partition(number) else { continue };
        let mut from = info.first_seq.cast_signed();
        let record = records.iter().find(|record| record.partition == PartitionId::from(number));
        // A position of another life of the hub is none.
        if let Some(record) = record.filter(|record| record.stream.as_ref() == Some(&stream))
            && let Some(Resume::After(last)) = &record.resume
        {
            from = from.max(last.sequence.0 + 1);
        }
        behind += info.next_seq.saturating_sub(from.cast_unsigned());
        resume.push(from);
    }
    Ok((resume, behind))
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
        let partitions = async |asked| World::open(&place, asked, 0).await.unwrap().partitions();
        assert_eq!(partitions(Some(4)).await, 4);
        assert_eq!(partitions(None).await, 4);
        assert_eq!(partitions(Some(6)).await, 6);
        let Place::Directory(path) = &place else { unreachable!() };
        assert!(refused(path, Some(4)).await.contains("has 6 partitions"));
    }
}
