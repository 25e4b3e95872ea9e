//! What hubs and partitions are like, as `$management` tells.

use partita_amqp::message::Message;
use partita_core::model::{
    Body, LastEnqueued, Offset, PartitionId, SequenceNumber, StreamId, StreamPosition, Timestamp, Value,
};
use partita_dialect::names::entity::{HUB, PARTITION};
use partita_dialect::names::own::{LAST_READABLE, STREAM};

use super::EventHubsError;
use super::client::Client;

/// What a hub says about itself.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct HubProperties {
    /// Its name.
    pub name: String,
    /// When it was made.
    pub created: Option<Timestamp>,
    /// Its partitions.
    pub partitions: Vec<PartitionId>,
    /// Which life of the hub's data this is, where the hub tells: Partita's does.
    pub stream: Option<StreamId>,
}

/// What a hub says about a partition.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct PartitionProperties {
    /// The partition.
    pub partition: PartitionId,
    /// The number of the oldest event, or of the first to come.
    pub first: SequenceNumber,
    /// Its end.
    pub end: LastEnqueued,
    /// Whether it holds no event.
    pub is_empty: bool,
    /// The last event that a reader gets, if those from there to the end are lost and that was accepted. Partita's hub says so, the
    /// service never does.
    pub last_readable: Option<SequenceNumber>,
}

/// Asks for the hub.
pub(crate) async fn hub(client: &Client) -> Result<HubProperties, EventHubsError> {
    let reply = read(client, HUB, None).await?;
    let Some(Value::Array(ids) | Value::List(ids)) = field(&reply, "partition_ids") else {
        return Err(EventHubsError::fatal("the hub's answer does not name its partitions"));
    };
    Ok(HubProperties {
        name: text(&reply, "name").unwrap_or(client.config().hub.as_str()).to_owned(),
        created: time(&reply, "created_at"),
        partitions: ids.iter().filter_map(Value::as_str).map(PartitionId::new).collect(),
        stream: text(&reply, STREAM).map(StreamId::new),
    })
}

/// Asks for a partition.
pub(crate) async fn partition(
    client: &Client,
    partition: &PartitionId,
) -> Result<PartitionProperties, EventHubsError> {
    let reply = read(client, PARTITION, Some(partition)).await?;
    let missing = || EventHubsError::fatal("the hub's answer does not say where the partition ends");
    let number = |name| field(&reply, name).and_then(Value::as_i64);
    let last = number("last_enqueued_sequence_number").ok_or_else(missing)?;
    // A partition that never had an event has the number -1.
    let position = (last >= 0).then(|| {
        StreamPosition::new(
            SequenceNumber(last),
            Offset::parse(text(&reply, "last_enqueued_offset").unwrap_or_default()),
        )
    });
    let enqueued_time = position.as_ref().and(time(&reply, "last_enqueued_time_utc"));
    Ok(PartitionProperties {
        partition: partition.clone(),
        // The service says -1 of a partition that never had an event.
        first: SequenceNumber(number("begin_sequence_number").unwrap_or(0).max(0)),
        is_empty: matches!(field(&reply, "is_partition_empty"), Some(Value::Boolean(true))),
        last_readable: number(LAST_READABLE).map(SequenceNumber),
        end: LastEnqueued { position, enqueued_time, retrieved: Timestamp::now() },
    })
}

type Pairs = Vec<(Value, Value)>;

async fn read(client: &Client, kind: &str, partition: Option<&PartitionId>) -> Result<Pairs, EventHubsError> {
    let hub = client.config().hub.as_str();
    let mut properties = vec![("operation", "READ"), ("type", kind), ("name", hub)];
    properties.extend(partition.map(|partition| ("partition", partition.as_str())));
    let properties = properties.into_iter().map(|(key, value)| (Value::from(key), Value::from(value)));
    let message = Message { application_properties: Some(properties.collect()), ..Message::new(Value::Null) };
    match client.manage(message).await?.body {
        Body::Value(Value::Map(pairs)) => Ok(pairs),
        _ => Err(EventHubsError::fatal("the hub's answer holds no properties")),
    }
}

fn field<'a>(pairs: &'a Pairs, name: &str) -> Option<&'a Value> {
    pairs.iter().find(|(key, _)| key.as_str() == Some(name)).map(|(_, value)| value)
}

fn text<'a>(pairs: &'a Pairs, name: &str) -> Option<&'a str> {
    field(pairs, name).and_then(Value::as_str)
}

fn time(pairs: &Pairs, name: &str) -> Option<Timestamp> {
    match field(pairs, name) {
        Some(Value::Timestamp(time)) => Some(*time),
        _ => None,
    }
}
