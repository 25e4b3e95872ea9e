//! `$management`: what a hub and its partitions are like.

use partita_amqp::message::Message;
use partita_core::model::{Timestamp, Value};
use partita_dialect::names::entity::{HUB, PARTITION};
use partita_dialect::names::own::{LAST_READABLE, STREAM};

use super::address::partition_number;
use super::auth::{Rules, Tokens};
use super::condition::Refusal;
use super::request::{self, BAD_REQUEST, Failure, NOT_FOUND, NOT_IMPLEMENTED, UNAUTHORIZED};
use crate::broker::{Broker, Hub};

/// The time of a partition that never had an event: the first millisecond of the year 1, as the service has it.
pub(super) const YEAR_ONE_MS: i64 = -62_135_596_800_000;

/// Answers a request.
pub fn handle(request: &Message, broker: &Broker, rules: &Rules, tokens: &Tokens, now: Timestamp) -> Message {
    match read(request, broker, rules, tokens, now) {
        Ok(pairs) => {
            let pairs = pairs.into_iter().map(|(key, value)| (Value::from(key), value)).collect();
            let said = vec![("operation", Value::from("READ")), ("status-code", Value::Int(request::OK))];
            request::reply(request, said, Value::Map(pairs))
        }
        Err(failure) => {
            let mut reply = request::failed(request, &failure);
            request::spell_both_ways(&mut reply);
            reply
        }
    }
}

type Pairs = Vec<(&'static str, Value)>;

fn read(
    request: &Message,
    broker: &Broker,
    rules: &Rules,
    tokens: &Tokens,
    now: Timestamp,
) -> Result<Pairs, Failure> {
    let operation = request::required(request, "operation")?;
    if !operation.eq_ignore_ascii_case("READ") {
        let text = format!("The operation '{operation}' is not known here, only 'READ' is.");
        return Err(Failure::new(NOT_IMPLEMENTED, text));
    }
    let kind = request::required(request, "type")?;
    if kind != HUB && kind != PARTITION {
        let text = format!("Nothing of the type '{kind}' can be read here, only '{HUB}' and '{PARTITION}'.");
        return Err(Failure::new(NOT_IMPLEMENTED, text));
    }
    let name = request::required(request, "name")?;
    allowed(request, name, rules, tokens, now)?;
    let hub =
        broker.hub(name).ok_or_else(|| Failure::new(NOT_FOUND, Refusal::not_found(name).description))?;
    if kind == HUB {
        return Ok(describe_hub(&hub));
    }
    let partition = request::required(request, "partition")?;
    let number = partition_number(partition, hub.partitions());
    let number = number.map_err(|refusal| Failure { code: BAD_REQUEST, refusal })?;
    Ok(describe_partition(&hub, number))
}

/// By the token in the request, which must be valid if there is one, or by those on the connection: clients send both.
fn allowed(
    request: &Message,
    hub: &str,
    rules: &Rules,
    tokens: &Tokens,
    now: Timestamp,
) -> Result<(), Failure> {
    let place = format!("{hub}/$management");
    match request::property(request, "security_token") {
        Some(token) => {
            let grant = rules.verify(token, &place, now);
            grant.map(|_| ()).map_err(|error| Failure::new(UNAUTHORIZED, error.to_string()))
        }
        None => {
            let allowed = tokens.allow_any(&place, now);
            allowed.map(|_| ()).map_err(|refusal| Failure { code: UNAUTHORIZED, refusal })
        }
    }
}

fn describe_hub(hub: &Hub) -> Pairs {
    let partitions = hub.partitions();
    let ids = (0..partitions).map(|number| Value::from(number.to_string()));
    vec![
        ("name", Value::from(hub.name().as_str())),
        ("type", Value::from(HUB)),
        ("created_at", Value::Timestamp(hub.created())),
        ("partition_count", Value::Int(partitions.cast_signed())),
        // An array and not a list: clients insist.
        ("partition_ids", Value::Array(ids.collect())),
        // Go does not go on without it.
        ("georeplication_factor", Value::Int(1)),
        // Partita's own: tells a client that the hub was reset.
        (STREAM, Value::from(hub.stream().as_str())),
    ]
}

fn describe_partition(hub: &Hub, number: u32) -> Pairs {
    let info = hub.partition(number);
    let (first, next) = info.map_or((0, 0), |info| (info.first_seq, info.next_seq));
    let last_offset = info.and_then(|info| info.last_offset);
    let last_time = info.and_then(|info| info.last_time_ms).unwrap_or(YEAR_ONE_MS);
    // A partition that never had an event begins where it ends, before 0.
    let begin = if next == 0 { -1 } else { first.cast_signed() };
    let readable = hub.log().readable_seqs(number);
    let mut pairs = vec![
        ("name", Value::from(hub.name().as_str())),
        ("type", Value::from(PARTITION)),
        ("partition", Value::from(number.to_string())),
        ("begin_sequence_number", Value::Long(begin)),
        ("begin_sequence_number_epoch", Value::Int(-1)),
        ("last_enqueued_sequence_number", Value::Long(next.cast_signed() - 1)),
        // Rust does not go on without the key.
        ("last_enqueued_sequence_number_epoch", Value::Int(-1)),
        (
            "last_enqueued_offset",
            Value::from(last_offset.map_or("-1".to_owned(), |offset| offset.to_string())),
        ),
        ("last_enqueued_time_utc", Value::Timestamp(Timestamp(last_time))),
        ("is_partition_empty", Value::Boolean(readable.is_empty())),
    ];
    if readable.end < next {
        // Partita's own: whoever reads to the end would wait for events that are lost.
        pairs.push((LAST_READABLE, Value::Long(readable.end.cast_signed() - 1)));
    }
    pairs
}
