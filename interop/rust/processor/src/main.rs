//! The Rust SDK's own event processor with its blob checkpoint store: prints a JSON line per event until its stdin is closed.

use std::sync::Arc;
use std::time::Duration;

use azure_core::credentials::{AccessToken, TokenCredential, TokenRequestOptions};
use azure_core::http::Url;
use azure_core::time::{Duration as Span, OffsetDateTime};
use azure_messaging_eventhubs::models::StartPositions;
use azure_messaging_eventhubs::processor::PartitionClient;
use azure_messaging_eventhubs::{
    ConsumerClient, EventProcessor, ProcessorStrategy, StartLocation, StartPosition,
};
use azure_messaging_eventhubs_checkpointstore_blob::BlobCheckpointStore;
use azure_storage_blob::BlobContainerClient;
use futures::StreamExt;
use serde_json::{Value, json};
use tokio::task::JoinSet;

/// This version of the SDK knows no connection strings: a shared access signature goes where a token of Entra ID would.
#[derive(Debug)]
struct Signature(String);

#[async_trait::async_trait]
impl TokenCredential for Signature {
    async fn get_token(
        &self,
        _: &[&str],
        _: Option<TokenRequestOptions<'_>>,
    ) -> azure_core::Result<AccessToken> {
        Ok(AccessToken::new(self.0.clone(), OffsetDateTime::now_utc() + Span::hours(1)))
    }
}

/// A partition's stream of events cannot move between threads: all tasks are local ones.
#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    tokio::task::LocalSet::new().run_until(run()).await
}

async fn run() -> Result<(), Box<dyn std::error::Error>> {
    tracing_subscriber::fmt().with_writer(std::io::stderr).with_env_filter(std::env::var("RUST_LOG").unwrap_or("warn".into())).init();
    let path = std::env::args().nth(1).ok_or("the path of a context is missing")?;
    let context: Value = serde_json::from_str(&std::fs::read_to_string(path)?)?;
    let told_to_end = tokio::task::spawn_blocking(|| std::io::read_to_string(std::io::stdin()));
    tokio::pin!(told_to_end);
    loop {
        tokio::select! {
            _ = &mut told_to_end => std::process::exit(0),
            ended = process(&context) => eprintln!("the processor is made anew: {}", ended.err().unwrap_or_default()),
        }
        tokio::time::sleep(Duration::from_secs(1)).await;
    }
}

/// Runs a processor until it cannot go on: it ends with the first error of the store, and this version of the SDK cannot read a
/// partition again that it has lost before, as the session that it keeps for it is over. A user would make another one, too.
async fn process(context: &Value) -> Result<(), String> {
    let text = |value: &Value| value.as_str().expect("a text").to_owned();
    let span = |value: &Value| Span::milliseconds(value.as_i64().expect("milliseconds"));
    let url = Url::parse(&text(&context["blob"]["container_url"])).map_err(|error| error.to_string())?;
    let container = BlobContainerClient::new(url, None, None).map_err(|error| error.to_string())?;
    let client = ConsumerClient::builder()
        .with_custom_endpoint(text(&context["amqp_url"]))
        .open("localhost", "processors".into(), Arc::new(Signature(text(&context["token"]))))
        .await
        .map_err(|error| error.to_string())?;
    let earliest = StartPosition { location: StartLocation::Earliest, inclusive: false };
    let processor = EventProcessor::builder()
        .with_load_balancing_strategy(ProcessorStrategy::Greedy)
        .with_update_interval(span(&context["interval_ms"]))
        .with_partition_expiration_duration(span(&context["expiry_ms"]))
        .with_start_positions(StartPositions { default: earliest, ..StartPositions::default() })
        .build(client, BlobCheckpointStore::new(container))
        .await
        .map_err(|error| error.to_string())?;

    let mut pumps = JoinSet::new();
    let running = processor.run();
    tokio::pin!(running);
    loop {
        tokio::select! {
            ended = &mut running => return ended.map_err(|error| error.to_string()),
            partition = processor.next_partition_client() => {
                let partition = partition.map_err(|error| error.to_string())?;
                pumps.spawn_local(pump(partition));
            }
            Some(ended) = pumps.join_next() => ended.map_err(|error| error.to_string())??,
        }
    }
}

/// Handles a partition's events until somebody else owns it; an error if it is not to be had from this client any more.
async fn pump(partition: Arc<PartitionClient>) -> Result<(), String> {
    let mut outcome = Ok(());
    {
        let mut events = std::pin::pin!(partition.stream_events());
        while let Some(event) = events.next().await {
            let event = match event {
                Ok(event) => event,
                Err(error) => {
                    let text = format!("partition {} ended: {error}", partition.get_partition_id());
                    eprintln!("{text}");
                    if text.contains("Session might have stopped") {
                        outcome = Err(text);
                    }
                    break;
                }
            };
            let number = number_of(event.event_data().body().unwrap_or_default());
            println!("{}", json!({"event": [partition.get_partition_id(), number]}));
            if number % 10 == 0
                && let Err(error) = partition.update_checkpoint(&event).await
            {
                eprintln!("no checkpoint: {error}");
            }
        }
    }
    // So that the processor may hand it out again.
    if let Some(partition) = Arc::into_inner(partition)
        && let Err(error) = partition.close().await
    {
        eprintln!("not closed: {error}");
    }
    outcome
}

fn number_of(body: &[u8]) -> u64 {
    std::str::from_utf8(body).ok().and_then(|text| text.parse().ok()).expect("a number as body")
}

#[cfg(test)]
mod tests {
    #[test]
    fn a_body_is_a_number() {
        assert_eq!(super::number_of(b"42"), 42);
    }
}
