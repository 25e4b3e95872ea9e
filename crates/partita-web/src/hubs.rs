//! Hubs, their partitions and consumer groups: to look at, make, change and delete.

use std::sync::Arc;
use std::time::Duration;

use axum::Json;
use axum::extract::{Path, State};
use axum::http::StatusCode;
use axum::response::IntoResponse;
use partita_core::model::{ConsumerGroup, HubName};
use partita_hub::broker::{Broker, BrokerError, Hub, HubOptions};
use partita_hub::log::{LostRange, Retention};
use serde::{Deserialize, Serialize};

use crate::Web;
use crate::check::LostView;
use crate::error::{ApiError, Asked};

/// A hub, as the API shows it.
#[derive(Serialize)]
pub(crate) struct HubView {
    name: String,
    partition_count: u32,
    consumer_groups: Vec<String>,
    created_at: String,
    retention_seconds: u64,
    retention_bytes: Option<u64>,
    /// How many events there are.
    events: u64,
    /// How much its log takes.
    bytes: u64,
    /// Whether it takes no more events: a disk failed, or its files are gone.
    read_only: bool,
    /// Why, in a sentence.
    read_only_reason: Option<String>,
    /// The partitions that have lost events whose loss nobody accepted.
    damaged_partitions: Vec<String>,
    /// Whether nothing can be sent or read because somebody said so.
    disabled: bool,
}

/// A hub with its partitions.
#[derive(Serialize)]
pub(crate) struct HubDetails {
    #[serde(flatten)]
    hub: HubView,
    partitions: Vec<PartitionView>,
}

/// A partition, in the words of the service's own properties.
#[derive(Serialize)]
struct PartitionView {
    id: String,
    is_empty: bool,
    beginning_sequence_number: u64,
    /// None if there never was an event.
    last_enqueued_sequence_number: Option<u64>,
    last_enqueued_offset: Option<String>,
    last_enqueued_on: Option<String>,
    /// Events that are lost to damage.
    lost: Vec<LostView>,
}

#[derive(Serialize)]
pub(crate) struct HubList {
    hubs: Vec<HubView>,
}

impl HubView {
    fn new(hub: &Hub) -> Self {
        let infos = (0..hub.partitions()).filter_map(|partition| hub.partition(partition));
        let Retention { age, bytes_max } = hub.retention();
        let lost = hub.log().lost();
        let damaged = lost.iter().filter(|range| !range.accepted);
        let mut damaged_partitions: Vec<_> = damaged.map(|range| range.partition.to_string()).collect();
        damaged_partitions.dedup();
        let numbers: u64 = infos.map(|info| info.next_seq - info.first_seq).sum();
        let refuses = hub.log().refuses();
        Self {
            name: hub.name().to_string(),
            partition_count: hub.partitions(),
            consumer_groups: hub.groups().iter().map(ToString::to_string).collect(),
            created_at: hub.created().to_string(),
            retention_seconds: age.as_secs(),
            retention_bytes: bytes_max,
            events: numbers.saturating_sub(lost.iter().map(LostRange::events).sum()),
            bytes: hub.log().size().1,
            read_only: refuses.is_some(),
            read_only_reason: refuses.map(|why| why.to_string()),
            damaged_partitions,
            disabled: hub.is_disabled(),
        }
    }
}

impl HubDetails {
    pub(crate) fn new(hub: &Hub) -> Self {
        let lost = hub.log().lost();
        let partition = |id: u32| {
            let info = hub.partition(id)?;
            let last = hub.last_enqueued(id)?;
            Some(PartitionView {
                id: id.to_string(),
                is_empty: hub.log().readable_seqs(id).is_empty(),
                beginning_sequence_number: info.first_seq,
                last_enqueued_sequence_number: info.next_seq.checked_sub(1),
                last_enqueued_offset: last.position.map(|position| position.offset.to_string()),
                last_enqueued_on: last.enqueued_time.map(|time| time.to_string()),
                lost: lost.iter().filter(|range| range.partition == id).map(LostView::new).collect(),
            })
        };
        Self { hub: HubView::new(hub), partitions: (0..hub.partitions()).filter_map(partition).collect() }
    }
}

/// What a new hub is to be.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct NewHub {
    name: String,
    partition_count: Option<u32>,
    #[serde(default)]
    consumer_groups: Vec<String>,
    retention_seconds: Option<u64>,
    retention_bytes: Option<u64>,
}

/// What is to change.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Changes {
    /// Partitions are added until there are this many.
    partition_count: Option<u32>,
    retention_seconds: Option<u64>,
    retention_bytes: Option<u64>,
    /// Whether it refuses to be sent to and read from.
    disabled: Option<bool>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct NewGroup {
    name: String,
}

pub(crate) async fn list(State(web): State<Web>) -> Json<HubList> {
    Json(HubList { hubs: web.server.broker().list().iter().map(|hub| HubView::new(hub)).collect() })
}

pub(crate) async fn describe(
    State(web): State<Web>,
    Path(name): Path<String>,
) -> Result<impl IntoResponse, ApiError> {
    Ok(Json(HubDetails::new(&*found(web.server.broker(), &name)?)))
}

pub(crate) async fn create(
    State(web): State<Web>,
    Asked(asked): Asked<NewHub>,
) -> Result<impl IntoResponse, ApiError> {
    let groups: Vec<_> = asked.consumer_groups.iter().map(ConsumerGroup::new).collect();
    // All names before anything is made.
    let bad = |group: &&ConsumerGroup| {
        **group != ConsumerGroup::default() && !partita_hub::broker::is_name(group.as_str())
    };
    if let Some(group) = groups.iter().find(bad) {
        return Err(BrokerError::BadName(group.to_string()).into());
    }
    let default = HubOptions::default();
    let options = HubOptions {
        partitions: asked.partition_count.unwrap_or(default.partitions),
        retention: changed(web.options.retention, asked.retention_seconds, asked.retention_bytes),
    };
    let hub = on_disk(&web, move |broker| {
        let hub = broker.create_hub(&HubName::new(asked.name), options)?;
        for group in &groups {
            hub.create_group(group)?;
        }
        Ok(hub)
    });
    Ok((StatusCode::CREATED, Json(HubDetails::new(&*hub.await?))))
}

pub(crate) async fn change(
    State(web): State<Web>,
    Path(name): Path<String>,
    Asked(asked): Asked<Changes>,
) -> Result<impl IntoResponse, ApiError> {
    let hub = found(web.server.broker(), &name)?;
    let hub = on_disk(&web, move |_| {
        if let Some(partitions) = asked.partition_count {
            hub.add_partitions(partitions)?;
        }
        let retention = changed(hub.retention(), asked.retention_seconds, asked.retention_bytes);
        if retention != hub.retention() {
            hub.set_retention(retention)?;
        }
        if let Some(disabled) = asked.disabled {
            hub.set_disabled(disabled)?;
        }
        Ok(hub)
    });
    Ok(Json(HubDetails::new(&*hub.await?)))
}

pub(crate) async fn delete(State(web): State<Web>, Path(name): Path<String>) -> Result<StatusCode, ApiError> {
    on_disk(&web, move |broker| broker.delete_hub(&name)).await?;
    Ok(StatusCode::NO_CONTENT)
}

pub(crate) async fn create_group(
    State(web): State<Web>,
    Path(name): Path<String>,
    Asked(asked): Asked<NewGroup>,
) -> Result<impl IntoResponse, ApiError> {
    let hub = found(web.server.broker(), &name)?;
    let group = ConsumerGroup::new(asked.name);
    let status = if hub.groups().contains(&group) { StatusCode::OK } else { StatusCode::CREATED };
    let hub = on_disk(&web, move |_| hub.create_group(&group).map(|()| hub)).await?;
    Ok((status, Json(HubView::new(&hub))))
}

pub(crate) async fn delete_group(
    State(web): State<Web>,
    Path((name, group)): Path<(String, String)>,
) -> Result<StatusCode, ApiError> {
    let hub = found(web.server.broker(), &name)?;
    on_disk(&web, move |_| hub.delete_group(&ConsumerGroup::new(group))).await?;
    Ok(StatusCode::NO_CONTENT)
}

pub(crate) fn found(broker: &Broker, name: &str) -> Result<Arc<Hub>, ApiError> {
    broker.hub(name).ok_or_else(|| BrokerError::NoHub(HubName::new(name)).into())
}

fn changed(so_far: Retention, seconds: Option<u64>, bytes: Option<u64>) -> Retention {
    Retention { age: seconds.map_or(so_far.age, Duration::from_secs), bytes_max: bytes.or(so_far.bytes_max) }
}

/// Does what waits for a disk where waiting hurts nobody.
pub(crate) async fn on_disk<T: Send + 'static>(
    web: &Web,
    work: impl FnOnce(&Broker) -> Result<T, BrokerError> + Send + 'static,
) -> Result<T, ApiError> {
    let broker = web.server.broker().clone();
    match tokio::task::spawn_blocking(move || work(&broker)).await {
        Ok(done) => Ok(done?),
        Err(_) => {
            Err(ApiError::new(StatusCode::INTERNAL_SERVER_ERROR, "storage", "the work was not finished"))
        }
    }
}
