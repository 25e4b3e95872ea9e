//! The few helpers that all roles share.

use std::error::Error;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use azure_messaging_eventhubs::models::{EventData, ReceivedEventData};
use azure_messaging_eventhubs::{
    ConsumerClient, EventDataBatchOptions, EventHubsError, OpenReceiverOptions, ProducerClient, RetryOptions,
    SendEventOptions, StartLocation, StartPosition,
};
use futures::StreamExt;
use serde_json::Value;

/// What the harness says about the hub.
pub type Context = Value;
pub type Result<T> = std::result::Result<T, EventHubsError>;

/// Prints one line for the harness.
pub fn say(line: Value) {
    println!("{line}");
}

/// The harness's next line; nothing when it has closed the pipe.
pub fn told() -> Option<Value> {
    let mut line = String::new();
    std::io::stdin().read_line(&mut line).ok().filter(|&bytes| bytes > 0)?;
    serde_json::from_str(&line).ok()
}

/// An error with all its causes: the SDK puts the service's words deep into them.
pub fn words(error: &dyn Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        text += &format!(" <- {error} {error:?}");
        cause = error.source();
    }
    text
}

/// Options for what must fail: the error, instead of further attempts.
pub fn no_retry() -> RetryOptions {
    RetryOptions { max_retries: 0, ..RetryOptions::default() }
}

pub async fn producer(context: &Context, hub: &str) -> Result<ProducerClient> {
    producer_with(context, &context["connection_string"], hub, RetryOptions::default()).await
}

/// The SDK takes no port from a connection string: it is given as an endpoint of its own.
pub async fn producer_with(
    context: &Context,
    connection: &Value,
    hub: &str,
    retry: RetryOptions,
) -> Result<ProducerClient> {
    ProducerClient::builder()
        .with_custom_endpoint(text(&context["amqp_url"]))
        .with_retry_options(retry)
        .open_with_connection_string(&text(connection), Some(hub))
        .await
}

pub async fn consumer(
    context: &Context,
    connection: &Value,
    hub: &str,
    retry: RetryOptions,
) -> Result<ConsumerClient> {
    ConsumerClient::builder()
        .with_custom_endpoint(text(&context["amqp_url"]))
        .with_retry_options(retry)
        .open_with_connection_string(&text(connection), Some(hub))
        .await
}

pub fn text(value: &Value) -> String {
    value.as_str().expect("a text").to_owned()
}

pub async fn send_one(producer: &ProducerClient, body: &str, partition: Option<&str>) -> Result<()> {
    let options = SendEventOptions { partition_id: partition.map(str::to_owned) };
    producer.send_event(body, Some(options)).await
}

/// Sends events as one batch.
pub async fn send(
    context: &Context,
    hub: &str,
    events: Vec<EventData>,
    partition: Option<&str>,
    key: Option<&str>,
) -> Result<()> {
    let producer = producer(context, hub).await?;
    let options = EventDataBatchOptions {
        partition_id: partition.map(str::to_owned),
        partition_key: key.map(str::to_owned),
        ..EventDataBatchOptions::default()
    };
    let batch = producer.create_batch(Some(options)).await?;
    for event in events {
        assert!(batch.try_add_event_data(event, None)?, "the batch is full");
    }
    producer.send_batch(batch, None).await?;
    producer.close().await
}

/// How a reader is opened.
#[derive(Clone)]
pub struct Reading {
    pub connection: Value,
    pub start: StartPosition,
    pub owner_level: Option<i64>,
    pub retry: RetryOptions,
}

impl Reading {
    /// From the beginning, with the SDK's own retries.
    pub fn new(context: &Context) -> Self {
        Self {
            connection: context["connection_string"].clone(),
            start: StartPosition { location: StartLocation::Earliest, inclusive: false },
            owner_level: None,
            retry: RetryOptions::default(),
        }
    }

    pub fn from(mut self, location: StartLocation, inclusive: bool) -> Self {
        self.start = StartPosition { location, inclusive };
        self
    }

    pub fn owner(mut self, level: i64) -> Self {
        self.owner_level = Some(level);
        self
    }

    pub fn once(mut self) -> Self {
        self.retry = no_retry();
        self
    }
}

#[derive(Default)]
struct Seen {
    events: Vec<Arc<ReceivedEventData>>,
    error: Option<String>,
}

/// Reads one partition in the background.
pub struct Reader {
    seen: Arc<Mutex<Seen>>,
    task: tokio::task::JoinHandle<()>,
    stop: Option<tokio::sync::oneshot::Sender<()>>,
}

impl Reader {
    pub fn open(context: &Context, hub: &str, partition: &str, reading: Reading) -> Self {
        let seen = Arc::new(Mutex::new(Seen::default()));
        let (stop, stopped) = tokio::sync::oneshot::channel();
        let (into, context, hub, partition) =
            (seen.clone(), context.clone(), hub.to_owned(), partition.to_owned());
        let task = tokio::spawn(async move {
            if let Err(error) = run(&context, &hub, partition, reading, &into, stopped).await {
                into.lock().unwrap().error = Some(words(&error));
            }
        });
        Self { seen, task, stop: Some(stop) }
    }

    pub fn events(&self) -> Vec<Arc<ReceivedEventData>> {
        self.seen.lock().unwrap().events.clone()
    }

    pub fn error(&self) -> Option<String> {
        self.seen.lock().unwrap().error.clone()
    }

    /// Waits for this many events; gives them.
    pub async fn take(&self, count: usize) -> std::result::Result<Vec<Arc<ReceivedEventData>>, String> {
        until(20, || (self.events().len() >= count).then(|| self.events())).await.map_err(|late| {
            format!("{late}: {} of {count} events, error {:?}", self.events().len(), self.error())
        })
    }

    /// Waits for the reader to fail; gives the words of the error.
    pub async fn failure(&self) -> std::result::Result<String, String> {
        until(30, || self.error())
            .await
            .map_err(|late| format!("{late}: no error, {} events", self.events().len()))
    }

    /// Detaches from the partition.
    pub async fn close(mut self) {
        drop(self.stop.take());
        let _ = tokio::time::timeout(Duration::from_secs(5), &mut self.task).await;
    }
}

async fn run(
    context: &Context,
    hub: &str,
    partition: String,
    reading: Reading,
    into: &Mutex<Seen>,
    mut stopped: tokio::sync::oneshot::Receiver<()>,
) -> Result<()> {
    let client = consumer(context, &reading.connection, hub, reading.retry).await?;
    let options = OpenReceiverOptions {
        start_position: Some(reading.start),
        owner_level: reading.owner_level,
        ..OpenReceiverOptions::default()
    };
    let receiver = client.open_receiver_on_partition(partition, Some(options)).await?;
    {
        let mut events = std::pin::pin!(receiver.stream_events());
        loop {
            tokio::select! {
                event = events.next() => match event {
                    Some(event) => into.lock().unwrap().events.push(Arc::new(event?)),
                    None => break,
                },
                _ = &mut stopped => break,
            }
        }
    }
    receiver.close().await?;
    client.close().await
}

/// Reads this many events from the beginning of a partition.
pub async fn read(
    context: &Context,
    hub: &str,
    partition: &str,
    count: usize,
) -> std::result::Result<Vec<Arc<ReceivedEventData>>, String> {
    read_from(context, hub, partition, count, Reading::new(context)).await
}

pub async fn read_from(
    context: &Context,
    hub: &str,
    partition: &str,
    count: usize,
    reading: Reading,
) -> std::result::Result<Vec<Arc<ReceivedEventData>>, String> {
    let reader = Reader::open(context, hub, partition, reading);
    let events = reader.take(count).await;
    reader.close().await;
    events
}

/// Waits until something is there.
pub async fn until<T>(seconds: u64, mut found: impl FnMut() -> Option<T>) -> std::result::Result<T, String> {
    for _ in 0..seconds * 50 {
        if let Some(found) = found() {
            return Ok(found);
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    Err(format!("not within {seconds} s"))
}

/// The bodies of events, as texts.
pub fn bodies(events: &[Arc<ReceivedEventData>]) -> Vec<String> {
    let body = |event: &ReceivedEventData| {
        String::from_utf8_lossy(event.event_data().body().unwrap_or_default()).into_owned()
    };
    events.iter().map(|event| body(event)).collect()
}
