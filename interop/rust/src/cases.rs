//! The cases, each a small program of its own.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use std::time::{Duration, SystemTime};

use azure_core_amqp::{AmqpSimpleValue, AmqpTimestamp};
use azure_messaging_eventhubs::models::{AmqpTransport, EventData, ReceivedEventData};
use azure_messaging_eventhubs::{
    BufferedProducerClient, ConsumerClient, EnqueueEventOptions, EventDataBatchOptions, EventHubsError,
    OpenReceiverOptions, ProducerClient, RetryOptions, StartLocation, StartPosition,
};
use futures::StreamExt;
use serde_json::{Value, json};

use crate::client::{
    Context, Reader, Reading, bodies, no_retry, producer, producer_with, read, read_from, say, send,
    send_one, text, told, until, words,
};

/// Why a case did not pass.
pub enum Failure {
    NotOffered(&'static str),
    Failed(String),
}

type Outcome<T = ()> = Result<T, Failure>;

impl From<EventHubsError> for Failure {
    fn from(error: EventHubsError) -> Self {
        Self::Failed(words(&error))
    }
}

impl From<String> for Failure {
    fn from(why: String) -> Self {
        Self::Failed(why)
    }
}

/// Fails the case, saying what was found, unless the condition holds.
macro_rules! check {
    ($condition:expr, $($found:expr),*) => {
        if !$condition {
            return Err(Failure::Failed(format!("not so: {}; found {:?}", stringify!($condition), ($(&$found,)*))));
        }
    };
}

/// Runs a case; gives a remark for the table, or nothing.
pub async fn run(name: &str, context: &Context) -> Outcome<&'static str> {
    let remark = match name {
        "hub_restart" => READ_ON,
        _ => "",
    };
    run_case(name, context).await.map(|()| remark)
}

const READ_ON: &str = "the SDK reconnects, but not while connections are refused, and may wait for ever for the answer to a send whose \
    connection was lost, whoever serves: the program limits the time of a send, sends again, and opens the receiver again after the last event";

async fn run_case(name: &str, context: &Context) -> Outcome {
    match name {
        "hub_properties" => hub_properties(context).await,
        "partition_properties" => partition_properties(context).await,
        "send_single" => send_single(context).await,
        "send_batch" => send_batch(context).await,
        "send_by_key" => send_by_key(context).await,
        "send_to_partition" => send_to_partition(context).await,
        "buffered_producer" => buffered_producer(context).await,
        "receive_earliest" => receive_earliest(context).await,
        "receive_latest" => receive_latest(context).await,
        "receive_offset" => receive_offset(context).await,
        "receive_sequence" => receive_sequence(context).await,
        "receive_time" => receive_time(context).await,
        "content_round_trip" => content_round_trip(context).await,
        "last_enqueued_info" => Err(Failure::NotOffered("")),
        "epoch_eviction" => epoch_eviction(context).await,
        "sixth_reader" => sixth_reader(context).await,
        "unknown_hub" => unknown_hub(context).await,
        "bad_key" => bad_key(context).await,
        "expired_token" => expired_token(context).await,
        "token_expires" => token_expires(context).await,
        "own_rules" => own_rules(context).await,
        "event_too_large" => event_too_large(context).await,
        "idempotent_producer" => Err(Failure::NotOffered("")),
        "tls" => securely(context, "tls", AmqpTransport::Tcp).await,
        "websocket" => securely(context, "websocket", AmqpTransport::WebSocket).await,
        "hub_restart" => hub_restart(context).await,
        _ => Err(Failure::Failed("this program has no such case".into())),
    }
}

fn numbered(word: &str, count: usize) -> Vec<EventData> {
    (0..count).map(|n| format!("{word}-{n}").into()).collect()
}

fn names(word: &str, numbers: std::ops::Range<usize>) -> Vec<String> {
    numbers.map(|n| format!("{word}-{n}")).collect()
}

/// The words of an error that must come.
fn refused<T>(outcome: Result<T, EventHubsError>) -> Outcome<String> {
    match outcome {
        Ok(_) => Err(Failure::Failed("it was not refused".into())),
        Err(error) => Ok(words(&error)),
    }
}

// ---- properties --------------------------------------------------------------------------------------------------

async fn hub_properties(context: &Context) -> Outcome {
    let client = producer(context, "properties").await?;
    let found = client.get_eventhub_properties().await?;
    check!(found.name == "properties", found);
    check!(found.partition_ids == ["0", "1", "2", "3"], found);
    let age = found.created_on.and_then(|at| SystemTime::now().duration_since(at).ok());
    check!(age.is_some_and(|age| age < Duration::from_secs(86_400)), found);
    Ok(client.close().await?)
}

async fn partition_properties(context: &Context) -> Outcome {
    let client = producer(context, "properties").await?;
    let empty = client.get_partition_properties("1").await?;
    check!(empty.is_empty && empty.last_enqueued_sequence_number == -1, empty);
    send(context, "properties", numbered("one", 3), Some("2"), None).await?;
    let found = client.get_partition_properties("2").await?;
    let events = read(context, "properties", "2", 3).await?;
    check!(found.eventhub == "properties" && found.id == "2" && !found.is_empty, found);
    check!((found.beginning_sequence_number, found.last_enqueued_sequence_number) == (0, 2), found);
    check!(Some(&found.last_enqueued_offset) == events[2].offset().as_ref(), found, events[2].offset());
    check!(found.last_enqueued_time_utc == events[2].enqueued_time(), found, events[2].enqueued_time());
    Ok(client.close().await?)
}

// ---- sending -----------------------------------------------------------------------------------------------------

async fn send_single(context: &Context) -> Outcome {
    let client = producer(context, "single").await?;
    for name in names("single", 0..3) {
        send_one(&client, &name, Some("0")).await?;
    }
    client.close().await?;
    let found = bodies(&read(context, "single", "0", 3).await?);
    check!(found == names("single", 0..3), found);
    Ok(())
}

async fn send_batch(context: &Context) -> Outcome {
    send(context, "batches", numbered("batch", 500), Some("0"), None).await?;
    let found = bodies(&read(context, "batches", "0", 500).await?);
    check!(found == names("batch", 0..500), found);

    let client = producer(context, "batches").await?;
    let options =
        EventDataBatchOptions { partition_id: Some("1".into()), ..EventDataBatchOptions::default() };
    let full = client.create_batch(Some(options)).await?;
    while full.try_add_event_data(vec![b'x'; 10_000], None)? {}
    let count = full.len();
    check!((90..=105).contains(&count), count);
    client.send_batch(full, None).await?;
    read(context, "batches", "1", count).await?;
    Ok(client.close().await?)
}

async fn send_by_key(context: &Context) -> Outcome {
    for (key, partition) in context["keys"].as_object().expect("keys") {
        let body = format!("key {key}");
        send(context, "keys", vec![body.clone().into()], None, Some(key)).await?;
        let reader = Reader::open(context, "keys", &text(partition), Reading::new(context));
        let mine = || {
            reader.events().into_iter().find(|event| bodies(std::slice::from_ref(event)) == [body.as_str()])
        };
        let event =
            until(20, mine).await.map_err(|late| format!("{late}: {key} on partition {partition}"))?;
        check!(event.partition_key().as_deref() == Some(key), event.partition_key());
        reader.close().await;
    }
    Ok(())
}

async fn send_to_partition(context: &Context) -> Outcome {
    for partition in ["0", "1", "2", "3"] {
        send(context, "partitions", vec![format!("to {partition}").into()], Some(partition), None).await?;
    }
    for partition in ["0", "1", "2", "3"] {
        let found = bodies(&read(context, "partitions", partition, 1).await?);
        check!(found == [format!("to {partition}")], found);
    }
    Ok(())
}

async fn buffered_producer(context: &Context) -> Outcome {
    let done = Arc::new(Mutex::new(HashMap::new()));
    let into = done.clone();
    let failures = Arc::new(Mutex::new(Vec::new()));
    let failed = failures.clone();
    let client = BufferedProducerClient::builder()
        .with_custom_endpoint(text(&context["amqp_url"]))
        .with_on_send_succeeded(move |sent| {
            let texts = sent
                .events
                .iter()
                .map(|event| String::from_utf8_lossy(event.body().unwrap_or_default()).into_owned());
            into.lock().unwrap().extend(texts.map(|text| (text, json!(sent.partition_id))));
            std::future::ready(())
        })
        .with_on_send_failed(move |unsent| {
            failed.lock().unwrap().push(words(&unsent.error));
            std::future::ready(())
        })
        .open_with_connection_string(&text(&context["connection_string"]), Some("buffered"))
        .await?;
    let keys = context["keys"].as_object().expect("keys");
    for key in keys.keys() {
        let options =
            EnqueueEventOptions { partition_key: Some(key.clone()), ..EnqueueEventOptions::default() };
        client.enqueue_event(key.as_str(), Some(options)).await?;
    }
    client.flush().await?;
    client.close().await?;
    check!(failures.lock().unwrap().is_empty(), failures);
    // The client chose the partition by its own hash; the hub's says the same.
    let done = done.lock().unwrap().clone();
    let expected: HashMap<_, _> = keys.clone().into_iter().collect();
    check!(done == expected, done);
    Ok(())
}

// ---- receiving ---------------------------------------------------------------------------------------------------

/// Five events on a partition, 20 ms apart, sent once; gives them as received.
async fn positions(context: &Context) -> Outcome<Vec<Arc<ReceivedEventData>>> {
    let client = producer(context, "positions").await?;
    if client.get_partition_properties("0").await?.is_empty {
        for name in names("position", 0..5) {
            send_one(&client, &name, Some("0")).await?;
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }
    client.close().await?;
    Ok(read(context, "positions", "0", 5).await?)
}

async fn from_position(
    context: &Context,
    location: StartLocation,
    inclusive: bool,
    expected: Vec<String>,
) -> Outcome {
    let reading = Reading::new(context).from(location.clone(), inclusive);
    let found = bodies(&read_from(context, "positions", "0", expected.len(), reading).await?);
    check!(found == expected, found, location, inclusive);
    Ok(())
}

async fn receive_earliest(context: &Context) -> Outcome {
    let found = bodies(&positions(context).await?);
    check!(found == names("position", 0..5), found);
    Ok(())
}

async fn receive_latest(context: &Context) -> Outcome {
    send(context, "positions", vec!["before".into()], Some("1"), None).await?;
    let reader =
        Reader::open(context, "positions", "1", Reading::new(context).from(StartLocation::Latest, false));
    let client = producer(context, "positions").await?;
    // The reader is attached some time after it was started: send until one comes through.
    for name in names("after", 0..100) {
        send_one(&client, &name, Some("1")).await?;
        if !reader.events().is_empty() {
            break;
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    let found = bodies(&reader.take(1).await?);
    check!(found.iter().all(|body| body.starts_with("after")), found);
    reader.close().await;
    Ok(client.close().await?)
}

async fn receive_offset(context: &Context) -> Outcome {
    let offset = positions(context).await?[2].offset().clone().unwrap_or_default();
    from_position(context, StartLocation::Offset(offset.clone()), false, names("position", 3..5)).await?;
    from_position(context, StartLocation::Offset(offset), true, names("position", 2..5)).await
}

async fn receive_sequence(context: &Context) -> Outcome {
    let number = positions(context).await?[2].sequence_number().unwrap_or_default();
    from_position(context, StartLocation::SequenceNumber(number), false, names("position", 3..5)).await?;
    from_position(context, StartLocation::SequenceNumber(number), true, names("position", 2..5)).await
}

async fn receive_time(context: &Context) -> Outcome {
    let time = positions(context).await?[2].enqueued_time().unwrap_or(SystemTime::UNIX_EPOCH);
    from_position(context, StartLocation::EnqueuedTime(time), false, names("position", 3..5)).await?;
    from_position(context, StartLocation::EnqueuedTime(time), true, names("position", 2..5)).await
}

async fn content_round_trip(context: &Context) -> Outcome {
    let time = SystemTime::UNIX_EPOCH + Duration::from_millis(1_700_000_000_123);
    let properties: Vec<(&str, AmqpSimpleValue)> = vec![
        ("text", "na\u{ef}ve \u{2603}".into()),
        ("yes", true.into()),
        ("int", (-42_i32).into()),
        ("long", (1_i64 << 40).into()),
        ("ulong", u64::MAX.into()),
        ("short", (-7_i16).into()),
        ("ubyte", 200_u8.into()),
        ("double", 0.25_f64.into()),
        ("when", AmqpSimpleValue::TimeStamp(AmqpTimestamp(Some(time)))),
    ];
    let mut event = EventData::builder()
        .with_body(vec![0, 1, 255])
        .with_message_id("m-1")
        .with_correlation_id("c-1")
        .with_content_type("application/octet-stream".into());
    for (name, value) in &properties {
        event = event.add_property((*name).into(), value.clone());
    }
    let event = event.build();
    send(context, "content", vec![event.clone(), "second".into()], Some("0"), None).await?;
    let found = read(context, "content", "0", 2).await?;
    check!(
        *found[0].event_data() == event,
        found[0].event_data().properties(),
        found[0].event_data().message_id()
    );
    check!(
        (found[0].sequence_number(), found[1].sequence_number()) == (Some(0), Some(1)),
        found[0].sequence_number()
    );
    let offset = |n: usize| found[n].offset().as_ref().and_then(|offset| offset.parse::<u64>().ok());
    check!(offset(0).is_some() && offset(0) < offset(1), offset(0), offset(1));
    let age = found[0].enqueued_time().and_then(|at| SystemTime::now().duration_since(at).ok());
    check!(age.is_some_and(|age| age < Duration::from_secs(300)), age);

    send(context, "content", vec!["with a key".into()], None, Some("home-42")).await?;
    let readers =
        ["0", "1"].map(|partition| Reader::open(context, "content", partition, Reading::new(context)));
    let keyed = || readers.iter().flat_map(Reader::events).find_map(|event| event.partition_key().clone());
    let key = until(20, keyed).await?;
    check!(key == "home-42", key);
    for reader in readers {
        reader.close().await;
    }
    Ok(())
}

// ---- owners and limits -------------------------------------------------------------------------------------------

async fn epoch_eviction(context: &Context) -> Outcome {
    let open = |reading: Reading| Reader::open(context, "epochs", "0", reading);
    send(context, "epochs", numbered("epoch", 1), Some("0"), None).await?;
    let low = open(Reading::new(context).owner(1));
    low.take(1).await?;
    let high = open(Reading::new(context).owner(2));
    high.take(1).await?;
    let error = low.failure().await?;
    check!(error.contains("higher epoch") || error.to_lowercase().contains("disconnected"), error);
    let lower = open(Reading::new(context).owner(1).once());
    let error = lower.failure().await?;
    check!(error.contains("higher epoch") || error.to_lowercase().contains("disconnected"), error);
    let plain = open(Reading::new(context).once());
    let error = plain.failure().await?;
    check!(error.contains("non-epoch receiver is not allowed"), error);
    send(context, "epochs", vec!["on".into()], Some("0"), None).await?;
    high.take(2).await?;
    high.close().await;
    Ok(())
}

async fn sixth_reader(context: &Context) -> Outcome {
    let open = |reading: Reading| Reader::open(context, "readers", "0", reading);
    send(context, "readers", numbered("reader", 1), Some("0"), None).await?;
    let mut five: Vec<Reader> = (0..5).map(|_| open(Reading::new(context))).collect();
    for reader in &five {
        reader.take(1).await?;
    }
    let sixth = open(Reading::new(context).once());
    let error = sixth.failure().await?;
    check!(error.contains("Exceeded the maximum number of allowed receivers"), error);
    check!(sixth.events().is_empty(), sixth.events());
    five.pop().expect("a reader").close().await;
    read(context, "readers", "0", 1).await.map_err(|why| format!("after one has left: {why}"))?;
    for reader in five {
        reader.close().await;
    }
    Ok(())
}

// ---- errors ------------------------------------------------------------------------------------------------------

async fn unknown_hub(context: &Context) -> Outcome {
    let client = producer_with(context, &context["connection_string"], "no-such-hub", no_retry()).await?;
    let error = refused(client.get_eventhub_properties().await)?;
    check!(error.contains("could not be found"), error);
    let error = refused(send_one(&client, "x", None).await)?;
    check!(error.contains("could not be found"), error);
    let reader = Reader::open(context, "no-such-hub", "0", Reading::new(context).once());
    let error = reader.failure().await?;
    check!(error.contains("could not be found"), error);
    Ok(())
}

/// The words of the error when a client with this connection string sends.
async fn send_with(context: &Context, connection: &Value, hub: &str) -> Result<(), EventHubsError> {
    let client = producer_with(context, connection, hub, no_retry()).await?;
    send_one(&client, "x", None).await
}

async fn bad_key(context: &Context) -> Outcome {
    let error = refused(send_with(context, &context["bad_key"], "tokens").await)?.to_lowercase();
    check!(error.contains("unauthorized") || error.contains("401") || error.contains("signature"), error);
    Ok(())
}

async fn with_token(seconds: i64) -> Outcome<Value> {
    say(json!({"ask": "token", "hub": "tokens", "valid_seconds": seconds}));
    let answer = tokio::task::spawn_blocking(told).await.ok().flatten();
    answer
        .map(|answer| answer["connection_string"].clone())
        .ok_or_else(|| Failure::Failed("no token from the harness".into()))
}

async fn expired_token(context: &Context) -> Outcome {
    send_with(context, &with_token(600).await?, "tokens").await?;
    let error = refused(send_with(context, &with_token(-60).await?, "tokens").await)?.to_lowercase();
    check!(error.contains("expired") || error.contains("unauthorized") || error.contains("401"), error);
    Ok(())
}

async fn token_expires(context: &Context) -> Outcome {
    send(context, "tokens", vec!["first".into()], Some("0"), None).await?;
    let reading = Reading { connection: with_token(4).await?, ..Reading::new(context).once() };
    let reader = Reader::open(context, "tokens", "0", reading);
    reader.take(1).await?;
    reader.failure().await?;
    Ok(())
}

async fn own_rules(context: &Context) -> Outcome {
    let (sensors, apps) = (&context["rules"]["send"], &context["rules"]["listen"]);
    let is_unauthorized = |error: &str| error.to_lowercase().contains("unauthorized");
    send_with(context, sensors, "rules").await?;
    let reading = Reading { connection: apps.clone(), ..Reading::new(context) };
    let found = bodies(&read_from(context, "rules", "0", 1, reading).await?);
    check!(found == ["x"], found);
    let error = refused(send_with(context, apps, "rules").await)?;
    check!(is_unauthorized(&error), error);
    let reading = Reading { connection: sensors.clone(), ..Reading::new(context).once() };
    let error = Reader::open(context, "rules", "0", reading).failure().await?;
    check!(is_unauthorized(&error), error);
    // The rule is for one hub.
    let error = refused(send_with(context, sensors, "single").await)?;
    check!(is_unauthorized(&error) || error.contains("401"), error);
    Ok(())
}

async fn event_too_large(context: &Context) -> Outcome {
    let client = producer_with(context, &context["connection_string"], "large", no_retry()).await?;
    let batch = client.create_batch(None).await?;
    check!(!batch.try_add_event_data(vec![b'x'; 1_100_000], None)?, batch.len());
    let error = refused(client.send_event(vec![b'x'; 1_100_000], None).await)?;
    check!(
        error.to_lowercase().contains("size") || error.contains("large") || error.contains("exceed"),
        error
    );
    send_one(&client, "small", None).await?;
    let found = bodies(&read(context, "large", "0", 1).await?);
    check!(found == ["small"], found);
    Ok(client.close().await?)
}

// ---- transports --------------------------------------------------------------------------------------------------

/// Sends and receives over TLS; the certificate authority is trusted by SSL_CERT_FILE in the environment.
async fn securely(context: &Context, hub: &str, transport: AmqpTransport) -> Outcome {
    let (endpoint, connection) =
        (format!("amqps://{}", text(&context["tls_authority"])), text(&context["tls_connection_string"]));
    let client = ProducerClient::builder()
        .with_custom_endpoint(endpoint.clone())
        .with_transport(transport.clone())
        .open_with_connection_string(&connection, Some(hub))
        .await?;
    send_one(&client, "securely", None).await?;
    client.close().await?;
    let client = ConsumerClient::builder()
        .with_custom_endpoint(endpoint)
        .with_transport(transport)
        .open_with_connection_string(&connection, Some(hub))
        .await?;
    let from = StartPosition { location: StartLocation::Earliest, inclusive: false };
    let options = OpenReceiverOptions { start_position: Some(from), ..OpenReceiverOptions::default() };
    let receiver = client.open_receiver_on_partition("0".into(), Some(options)).await?;
    let event = std::pin::pin!(receiver.stream_events()).next().await.expect("a stream without end")?;
    check!(event.event_data().body() == Some(b"securely"), event.event_data().body());
    receiver.close().await?;
    Ok(client.close().await?)
}

// ---- a restart ---------------------------------------------------------------------------------------------------

async fn hub_restart(context: &Context) -> Outcome {
    let mut reader = Reader::open(context, "restart", "0", Reading::new(context));
    let mut read = Vec::new();
    let retry = RetryOptions { max_delay: azure_core::time::Duration::seconds(1), ..RetryOptions::default() };
    let client = producer_with(context, &context["connection_string"], "restart", retry).await?;
    let mut acknowledged = Vec::new();
    let mut restarts = Vec::new();
    for n in 0..60 {
        for _ in 0..5 {
            let body = n.to_string();
            let sending = tokio::time::timeout(Duration::from_secs(5), send_one(&client, &body, Some("0")));
            if let Ok(Ok(())) = sending.await {
                acknowledged.push(n.to_string());
                break;
            }
            tokio::time::sleep(Duration::from_millis(500)).await; // not acknowledged: send it again, as a user would
        }
        if n == 20 || n == 40 {
            say(json!({"ask": "restart", "how": if n == 20 { "term" } else { "kill" }}));
            restarts.push(tokio::task::spawn_blocking(told));
        }
        read_on(context, &mut reader, &mut read);
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    for restart in restarts {
        let _ = restart.await;
    }
    let mut error = None;
    let caught_up = until(45, || {
        error = read_on(context, &mut reader, &mut read).or(error.take());
        let seen = bodies(&[read.clone(), reader.events()].concat());
        acknowledged.iter().all(|n| seen.contains(n)).then_some(())
    });
    caught_up.await.map_err(|late| format!("{late}: {} were read, last error {error:?}", read.len()))?;
    check!(acknowledged.len() == 60, acknowledged);
    reader.close().await;
    Ok(())
}

/// If the reader has failed, opens another one after its last event; gives the error.
fn read_on(context: &Context, reader: &mut Reader, read: &mut Vec<Arc<ReceivedEventData>>) -> Option<String> {
    let error = reader.error()?;
    read.extend(reader.events());
    let after = read.last().and_then(|event| event.sequence_number());
    let from = after.map_or(StartLocation::Earliest, StartLocation::SequenceNumber);
    *reader = Reader::open(context, "restart", "0", Reading::new(context).from(from, false));
    Some(error)
}

#[cfg(test)]
mod tests {
    #[test]
    fn names_count_from_their_range() {
        assert_eq!(super::names("x", 3..5), ["x-3", "x-4"]);
    }
}
