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
    ConsumerGroup, HubName, Incarnation, PartitionId, Position, Scope, SequenceNumber, StreamId, Timestamp,
};
use partita_core::source::{EventSource, ReadRequest};
use partita_core::store::{
    CheckpointRecord, CheckpointStore, FailingPartition, GroupView, InstanceSeen, InstanceState, MoveRecord,
    Ownership, StoreError,
};
use partita_sources::eventhubs::{EventHubs, PartitionProperties};

use self::lag::{Behind, behind, lag, start};
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
    /// What the group was called by versions that left the port out.
    former: Option<Scope>,
    store: Arc<dyn CheckpointStore>,
    client: EventHubs,
}

impl GroupArgs {
    /// Opens the store. The hub is not asked for anything yet.
    fn open(&self) -> Result<Place, Failure> {
        let (client, connection) = self.connection.client_and_connection(&self.hub, "status")?;
        let scope = Scope {
            namespace: connection.namespace(),
            hub: HubName::new(client.hub().as_str()),
            group: ConsumerGroup::new(&self.group),
        };
        let store: StoreUrl =
            self.store.parse().map_err(|said| Failure::Usage(format!("--store: {said}")))?;
        let former = connection.former_namespace().map(|namespace| Scope { namespace, ..scope.clone() });
        Ok(Place { scope, former, store: store.open()?, client })
    }
}

/// A partition's end, how many events a processor has before it, and since when the first of them waits.
#[derive(Clone, Debug)]
struct End {
    properties: PartitionProperties,
    lag: Option<u64>,
    behind: Behind,
}

/// All that is known of a group at one time.
struct Group {
    scope: Scope,
    /// What it is called now, if its records are under a former name.
    renamed: Option<Scope>,
    time: Timestamp,
    view: GroupView,
    checkpoints: BTreeMap<PartitionId, CheckpointRecord>,
    moves: Vec<MoveRecord>,
    /// Those that the hub has, or those of the records if it does not answer.
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
        let moves = self.store.moves(&self.scope).await.map_err(store_failed)?;
        match &self.former {
            Some(former) if moves.is_empty() => self.store.moves(former).await.map_err(store_failed),
            _ => Ok(moves),
        }
    }

    /// The records of a scope, if there are any.
    async fn records(&self, scope: &Scope) -> Result<Option<(GroupView, Vec<CheckpointRecord>)>, StoreError> {
        let (view, checkpoints) = (self.store.view(scope).await?, self.store.checkpoints(scope).await?);
        let is_empty = view.ownerships.is_empty() && view.instances.is_empty() && checkpoints.is_empty();
        Ok((!is_empty).then_some((view, checkpoints)))
    }

    /// The group's records, and what it is called there.
    async fn find(&self) -> Result<(Scope, GroupView, Vec<CheckpointRecord>), Failure> {
        for scope in [Some(&self.scope), self.former.as_ref()].into_iter().flatten() {
            if let Some((view, checkpoints)) = self.records(scope).await.map_err(store_failed)? {
                return Ok((scope.clone(), view, checkpoints));
            }
        }
        Err(self.unknown())
    }

    /// Looks at the store, and at the hub if it answers.
    async fn look(&self) -> Result<Group, Failure> {
        let (scope, view, checkpoints) = self.find().await?;
        let mut group = Group {
            renamed: (scope != self.scope).then(|| self.scope.clone()),
            scope,
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
             and the same host and port in their connection string"
        ))
    }

    async fn ask_hub(&self, group: &mut Group) -> Result<(), Failure> {
        let hub = self.client.properties().await?;
        group.stream = hub.stream;
        // Records may be of partitions that a former hub had; those are nobody's.
        group.partitions.clone_from(&hub.partitions);
        let found = join_all(hub.partitions.iter().map(|partition| self.client.partition(partition))).await;
        let mut ends = Vec::new();
        for properties in found {
            ends.push(properties?);
        }
        let initial = group.initial_position();
        let start = |properties: &PartitionProperties| {
            start(group.checkpoint(&properties.partition), initial, group.stream.as_ref())
        };
        let mut peeks = 0;
        let looked = join_all(ends.into_iter().map(|properties| {
            let start = start(&properties);
            let lags = lag(&start, None, &properties) != Some(0);
            peeks += usize::from(lags);
            let from = (lags && peeks <= PEEKS_MAX).then(|| start.clone());
            async move {
                let (properties, first) = self.peek(properties, from).await;
                (properties, start, first)
            }
        }))
        .await;
        let (time, mut found) = (group.time, BTreeMap::new());
        for (properties, start, first) in looked {
            let lag = lag(&start, first.map(|(sequence, _)| sequence), &properties);
            let behind = behind(lag, first.map(|(_, time)| time), properties.end.enqueued_time, time);
            found.insert(properties.partition.clone(), End { properties, lag, behind });
        }
        group.ends = found;
        Ok(())
    }

    /// The event at a position and when it was enqueued, if it can be read: processors that read for themselves shut others out
    /// of their group, so it is looked at in the hub's default group.
    async fn peek(
        &self,
        properties: PartitionProperties,
        from: Option<Position>,
    ) -> (PartitionProperties, Option<(SequenceNumber, Timestamp)>) {
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
            events.first().map(|event| (event.sequence_number(), event.enqueued_time()))
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

    /// How many events a partition's owner has before it.
    fn lag(&self, partition: &PartitionId) -> Option<u64> {
        self.ends.get(partition)?.lag
    }

    /// Where partitions without a checkpoint start, as the instance says that started last.
    fn initial_position(&self) -> Option<&Position> {
        let told = self.view.instances.iter().filter(|seen| seen.record.details.initial_position.is_some());
        let last = told.max_by_key(|seen| (is_live(seen), seen.record.started))?;
        last.record.details.initial_position.as_ref()
    }

    /// What its owner says of a partition that it cannot get on with.
    fn failing(&self, partition: &PartitionId) -> Option<&FailingPartition> {
        let owner = self.ownership(partition)?.owner.as_ref()?;
        let seen =
            self.view.instances.iter().find(|seen| seen.record.incarnation == *owner && is_live(seen))?;
        seen.record.details.failing.iter().find(|failing| failing.partition == *partition)
    }

    fn owned(&self, incarnation: &Incarnation) -> usize {
        self.view.ownerships.iter().filter(|record| record.owner.as_ref() == Some(incarnation)).count()
    }

    /// How an instance is called in tables: by its name without most of the UUID, unless that is another's name, too.
    fn name(&self, incarnation: &Incarnation) -> String {
        let short = incarnation.id().short().to_owned();
        let is_same = |seen: &&InstanceSeen| {
            let other = &seen.record.incarnation;
            other != incarnation && is_live(seen) && other.id().short() == short
        };
        if self.view.instances.iter().any(|seen| is_same(&seen)) { incarnation.to_string() } else { short }
    }
}

/// The machine and the process of an instance, as far as it tells them.
fn process(host: &str) -> (&str, Option<u32>) {
    match host.rsplit_once('/').map(|(machine, id)| (machine, id.parse())) {
        Some((machine, Ok(id))) => (machine, Some(id)),
        _ => (host, None),
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
    fn spans_are_said_in_one_unit() {
        let said = [0, 119, 120, 7_199, 7_200, 172_800].map(|seconds| glance(Duration::from_secs(seconds)));
        assert_eq!(said, ["0s", "119s", "2m", "119m", "2h", "2d"]);
    }

    #[test]
    fn a_machine_and_a_process_are_told_apart_and_an_older_record_has_no_process() {
        assert_eq!(process("vm/4711"), ("vm", Some(4_711)));
        assert_eq!(process("unknown host/1"), ("unknown host", Some(1)));
        assert_eq!([process("vm"), process("a/b"), process("")], [("vm", None), ("a/b", None), ("", None)]);
    }
}
