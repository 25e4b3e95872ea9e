//! A group as JSON, for programs.

use std::time::Duration;

use partita_core::model::{Incarnation, PartitionId};
use partita_core::store::{MoveRecord, Resume};
use serde_json::{Value, json};

use super::lag::{Behind, is_void};
use super::{Group, process, since, state};

fn id(incarnation: Option<&Incarnation>) -> Value {
    incarnation.map_or(Value::Null, |incarnation| json!(incarnation.id().as_str()))
}

fn seconds(time: Duration) -> Value {
    json!(time.as_millis() as f64 / 1_000.0)
}

/// All of a group.
pub(super) fn group(group: &Group) -> Value {
    let instances: Vec<Value> = group
        .view
        .instances
        .iter()
        .map(|seen| {
            let record = &seen.record;
            let owned = group.owned(&record.incarnation);
            json!({
                "id": record.incarnation.id().as_str(),
                "host": process(&record.host).0,
                "process_id": process(&record.host).1,
                "started": record.started.to_string(),
                "state": state(seen, owned),
                "owned_partitions": owned,
                "heartbeat_age_seconds": seconds(seen.age),
                "ttl_seconds": seconds(record.ttl),
                "initial_position": record.details.initial_position.as_ref().map(ToString::to_string),
            })
        })
        .collect();
    json!({
        "namespace": group.scope.namespace.as_str(),
        "hub": group.scope.hub.as_str(),
        "consumer_group": group.scope.group.as_str(),
        "time": group.time.to_string(),
        "hub_error": group.hub_error,
        "partitions": group.partitions.iter().map(|id| partition(group, id)).collect::<Vec<_>>(),
        "instances": instances,
        "moves": group.moves.iter().map(one_move).collect::<Vec<_>>(),
    })
}

fn partition(group: &Group, partition: &PartitionId) -> Value {
    let owner = group.ownership(partition);
    let checkpoint = group.checkpoint(partition).map(|record| {
        let (sequence, offset, position) = match &record.resume {
            Some(Resume::After(last)) => {
                (json!(last.sequence.0), json!(last.offset.to_string()), Value::Null)
            }
            Some(Resume::At(position)) => (Value::Null, Value::Null, json!(position.to_string())),
            None => Default::default(),
        };
        json!({
            "sequence": sequence,
            "offset": offset,
            "sought": position,
            "epoch": record.epoch.0,
            "time": record.time.to_string(),
            "of_former_hub": is_void(record, group.stream.as_ref()),
        })
    });
    let end = group.ends.get(partition);
    let (exact, least) = match end.map(|end| end.behind) {
        Some(Behind::Exactly(time)) => (seconds(time), seconds(time)),
        Some(Behind::AtLeast(time)) => (Value::Null, seconds(time)),
        Some(Behind::Unknown) | None => (Value::Null, Value::Null),
    };
    let failing = group.failing(partition).map(|failing| {
        json!({
            "since": failing.since.to_string(),
            "attempts": failing.attempts,
            "retry_at": failing.retry_at.to_string(),
            "retry_in_seconds": seconds(since(group.time, failing.retry_at)),
            "sequence": failing.sequence.map(|sequence| sequence.0),
            "error": &*failing.error,
        })
    });
    let last = end.and_then(|end| end.properties.end.position.as_ref());
    json!({
        "id": partition.as_str(),
        "owner": id(owner.and_then(|record| record.owner.as_ref())),
        "next_owner": id(owner.and_then(|record| record.next.as_ref())),
        "epoch": owner.map(|record| record.epoch.0),
        "since": owner.map(|record| record.since.to_string()),
        "reason": owner.map(|record| record.reason.as_str()),
        "checkpoint": checkpoint,
        "last_enqueued_sequence": last.map(|position| position.sequence.0),
        "lag_events": group.lag(partition),
        "lag_seconds": exact,
        "lag_seconds_min": least,
        "failing": failing,
    })
}

/// A change of owner.
pub(super) fn one_move(record: &MoveRecord) -> Value {
    json!({
        "time": record.time.to_string(),
        "partition": record.partition.as_str(),
        "from": id(record.from.as_ref()),
        "to": id(record.to.as_ref()),
        "epoch": record.epoch.0,
        "reason": record.reason.as_str(),
    })
}
