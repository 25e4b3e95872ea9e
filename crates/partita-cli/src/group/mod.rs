//! A processor group as its store and its hub know it: `partita status`, `moves` and `plan`.

mod json;
mod lag;
mod moves;
mod plan;
mod screen;
mod show;
mod status;
mod store;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use clap::ValueEnum;
use futures_util::future::join_all;
use partita_core::model::{
    ConsumerGroup, HubName, Incarnation, InstanceId, Namespace, PartitionId, Position, Scope, StreamId,
    Timestamp,
};
use partita_core::source::{EventSource, ReadRequest};
use partita_core::store::{
    CheckpointRecord, CheckpointStore, GroupView, InstanceSeen, InstanceState, MoveRecord, Ownership,
    StoreError,
};
use partita_sources::eventhubs::{EventHubs, PartitionProperties};

use self::lag::{Behind, behind, lag, next_event};
pub(crate) use self::moves::{Args as MovesArgs, run as moves};
pub(crate) use self::plan::{Args as PlanArgs, run as plan};
pub(crate) use self::status::{Args as StatusArgs, run as status};
use self::store::StoreUrl;
use crate::Failure;
use crate::connection::ConnectionArgs;

/// How long one look at an event may take; it only makes the lag in seconds more exact.
const PEEK_TIME_MAX: Duration = Duration::from_secs(2);
/// Beyond so many partitions that lag, seconds are a bound only.
const PEEKS_MAX: usize = 64;

/// Which group.
#[derive(clap::Args, Debug)]
struct GroupArgs {
    /// The hub
    hub: String,

    /// The consumer group
    #[arg(long, short, value_name = "GROUP", default_value = ConsumerGroup::DEFAULT)]
    group: String,

    /// The store that the processors of the group share, such as sqlite:checkpoints.db
    // Parsed by us: it may hold a password, which must not be repeated.
    #[arg(long, value_name = "URL", env = "PARTITA_STORE", hide_env_values = true)]
    store: String,

    /// How to print: for people, or as JSON for programs
    #[arg(long, short, value_enum, default_value_t = Form::Table, value_name = "FORM")]
    output: Form,

    #[command(flatten)]
    connection: ConnectionArgs,
}

/// How to print.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
enum Form {
    Table,
    Json,
}

/// Where a group's state is.
struct Place {
    scope: Scope,
    store: Arc<dyn CheckpointStore>,
    client: EventHubs,
}

impl GroupArgs {
    /// Opens the store. The hub is not asked for anything yet.
    fn open(&self) -> Result<Place, Failure> {
        let (client, host) = self.connection.client_and_host(&self.hub, "status")?;
        let scope = Scope {
            namespace: Namespace::new(host),
            hub: HubName::new(client.hub().as_str()),
            group: ConsumerGroup::new(&self.group),
        };
        let store: StoreUrl =
            self.store.parse().map_err(|said| Failure::Usage(format!("--store: {said}")))?;
        Ok(Place { scope, store: store.open()?, client })
    }
}

/// A partition's end, and when what comes after the checkpoint was enqueued.
#[derive(Clone, Debug)]
struct End {
    properties: PartitionProperties,
    behind: Behind,
}

/// All that is known of a group at one time.
struct Group {
    scope: Scope,
    time: Timestamp,
    view: GroupView,
    checkpoints: BTreeMap<PartitionId, CheckpointRecord>,
    moves: Vec<MoveRecord>,
    partitions: Vec<PartitionId>,
    /// Which life of the hub's data it is, where the hub tells.
    stream: Option<StreamId>,
    ends: BTreeMap<PartitionId, End>,
    /// Why the hub said nothing.
    hub_error: Option<String>,
}

fn store_failed(error: StoreError) -> Failure {
    Failure::Run(format!("the store does not answer: {error}"))
}

impl Place {
    async fn moves(&self) -> Result<Vec<MoveRecord>, Failure> {
        self.store.moves(&self.scope).await.map_err(store_failed)
    }

    /// Looks at the store, and at the hub if it answers.
    async fn look(&self) -> Result<Group, Failure> {
        let view = self.store.view(&self.scope).await.map_err(store_failed)?;
        let checkpoints = self.store.checkpoints(&self.scope).await.map_err(store_failed)?;
        if view.ownerships.is_empty() && view.instances.is_empty() && checkpoints.is_empty() {
            return Err(self.unknown());
        }
        let mut group = Group {
            scope: self.scope.clone(),
            time: Timestamp::now(),
            moves: self.moves().await?,
            partitions: view.ownerships.iter().map(|record| record.partition.clone()).collect(),
            view,
            checkpoints: checkpoints.into_iter().map(|record| (record.partition.clone(), record)).collect(),
            stream: None,
            ends: BTreeMap::new(),
            hub_error: None,
        };
        if let Err(failure) = self.ask_hub(&mut group).await {
            match failure {
                Failure::Unreachable(text) => group.hub_error = Some(text),
                failure => return Err(failure),
            }
        }
        group.partitions.sort();
        group.partitions.dedup();
        Ok(group)
    }

    fn unknown(&self) -> Failure {
        let Scope { namespace, hub, group } = &self.scope;
        Failure::Missing(format!(
            "the store knows no group {group} of hub {hub} at {namespace}: processors must use this store, this group \
             and the same host name in their connection string"
        ))
    }

    async fn ask_hub(&self, group: &mut Group) -> Result<(), Failure> {
        let hub = self.client.properties().await?;
        group.stream = hub.stream;
        group.partitions.extend(hub.partitions.iter().cloned());
        let found = join_all(hub.partitions.iter().map(|partition| self.client.partition(partition))).await;
        let mut ends = Vec::new();
        for properties in found {
            ends.push(properties?);
        }
        let lagging = |properties: &PartitionProperties| {
            lag(group.checkpoint(&properties.partition), group.stream.as_ref(), properties).unwrap_or(0) > 0
        };
        let mut peeks = 0;
        let looked = join_all(ends.into_iter().map(|properties| {
            let from = lagging(&properties).then(|| {
                peeks += 1;
                next_event(group.checkpoint(&properties.partition), group.stream.as_ref())
            });
            let from = from.flatten().filter(|_| peeks <= PEEKS_MAX);
            self.peek(properties, from)
        }))
        .await;
        let (time, mut found) = (group.time, BTreeMap::new());
        for (properties, enqueued) in looked {
            let partition = properties.partition.clone();
            let lag = lag(group.checkpoint(&partition), group.stream.as_ref(), &properties);
            let behind = behind(lag, enqueued, properties.end.enqueued_time, time);
            found.insert(partition, End { properties, behind });
        }
        group.ends = found;
        Ok(())
    }

    /// When the event at a position was enqueued, if it can be read: processors that read for themselves shut others out
    /// of their group, so it is looked at in the hub's default group.
    async fn peek(
        &self,
        properties: PartitionProperties,
        from: Option<Position>,
    ) -> (PartitionProperties, Option<Timestamp>) {
        let Some(from) = from else { return (properties, None) };
        let request = ReadRequest {
            group: ConsumerGroup::default(),
            partition: properties.partition.clone(),
            from,
            owner_level: None,
            name: "partita-status".into(),
            prefetch_events: 1,
            prefetch_bytes: 1,
        };
        let read = async {
            let mut reader = self.client.source().open(request).await.ok()?;
            let mut events = Vec::new();
            reader.read(1, &mut events).await.ok()?;
            events.first().map(partita_core::model::Event::enqueued_time)
        };
        let found = tokio::time::timeout(PEEK_TIME_MAX, read).await.unwrap_or(None);
        (properties, found)
    }
}

impl Group {
    fn checkpoint(&self, partition: &PartitionId) -> Option<&CheckpointRecord> {
        self.checkpoints.get(partition)
    }

    fn ownership(&self, partition: &PartitionId) -> Option<&Ownership> {
        self.view.ownerships.iter().find(|record| record.partition == *partition)
    }

    /// How many events are not covered by a partition's checkpoint.
    fn lag(&self, partition: &PartitionId) -> Option<u64> {
        let end = self.ends.get(partition)?;
        lag(self.checkpoint(partition), self.stream.as_ref(), &end.properties)
    }

    fn owned(&self, incarnation: &Incarnation) -> usize {
        self.view.ownerships.iter().filter(|record| record.owner.as_ref() == Some(incarnation)).count()
    }

    /// How an instance is called in tables: by its name without most of the UUID, unless that is another's name, too.
    fn name(&self, incarnation: &Incarnation) -> String {
        let short = short_id(incarnation.id());
        let is_same = |seen: &&InstanceSeen| {
            let other = &seen.record.incarnation;
            other != incarnation && is_live(seen) && short_id(other.id()) == short
        };
        if self.view.instances.iter().any(|seen| is_same(&seen)) { incarnation.to_string() } else { short }
    }
}

fn is_live(seen: &InstanceSeen) -> bool {
    seen.record.state == InstanceState::Live
}

/// What an instance does, in a word.
fn state(seen: &InstanceSeen, owned: usize) -> &'static str {
    match seen.record.state {
        InstanceState::Dead => "dead",
        InstanceState::Live if seen.age >= seen.record.ttl => "silent",
        InstanceState::Live if seen.record.stopping => "stopping",
        InstanceState::Live if owned == 0 => "standby",
        InstanceState::Live => "live",
    }
}

/// An id without all but the first part of a UUID at its end.
fn short_id(id: &InstanceId) -> String {
    let text = id.as_str();
    let parts: Vec<&str> = text.rsplitn(6, '-').collect();
    match parts.as_slice() {
        [e, d, c, b, a, prefix] if [a, b, c, d, e].map(|part| part.len()) == [8, 4, 4, 4, 12] => {
            format!("{prefix}-{a}")
        }
        _ => text.to_owned(),
    }
}

/// A time span in its largest unit: what a glance needs.
fn glance(time: Duration) -> String {
    match time.as_secs() {
        seconds @ 0..120 => format!("{seconds}s"),
        seconds @ 120..7_200 => format!("{}m", seconds / 60),
        seconds @ 7_200..172_800 => format!("{}h", seconds / 3_600),
        seconds => format!("{}d", seconds / 86_400),
    }
}

/// How long ago, by the wall clock.
fn since(time: Timestamp, now: Timestamp) -> Duration {
    Duration::from_millis(u64::try_from(now.0.saturating_sub(time.0)).unwrap_or(0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_lose_most_of_their_uuid() {
        let id = InstanceId::generate("my-host");
        let short = short_id(&id);
        assert_eq!(short.len(), "my-host-12345678".len());
        assert!(id.as_str().starts_with(&short));
        assert_eq!(short_id(&"plain".into()), "plain");
        assert_eq!(short_id(&"a-b-c-d-e-f".into()), "a-b-c-d-e-f");
    }

    #[test]
    fn spans_are_said_in_one_unit() {
        let said = [0, 119, 120, 7_199, 7_200, 172_800].map(|seconds| glance(Duration::from_secs(seconds)));
        assert_eq!(said, ["0s", "119s", "2m", "119m", "2h", "2d"]);
    }
}
