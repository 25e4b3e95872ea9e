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
    tracing_subscriber::fmt().with_writer(std::io::stderr).with_env_filter("warn").init();
    let path = std::env::args().nth(1).ok_or("the path of a context is missing")?;
    let context: Value = serde_json::from_str(&std::fs::read_to_string(path)?)?;
    let text = |value: &Value| value.as_str().expect("a text").to_owned();
    let span = |value: &Value| Span::milliseconds(value.as_i64().expect("milliseconds"));

    let container =
        BlobContainerClient::new(Url::parse(&text(&context["blob"]["container_url"]))?, None, None)?;
    let client = ConsumerClient::builder()
        .with_custom_endpoint(text(&context["amqp_url"]))
        .open("localhost", "processors".into(), Arc::new(Signature(text(&context["token"]))))
        .await?;
    let earliest = StartPosition { location: StartLocation::Earliest, inclusive: false };
    let processor = EventProcessor::builder()
        .with_load_balancing_strategy(ProcessorStrategy::Greedy)
        .with_update_interval(span(&context["interval_ms"]))
        .with_partition_expiration_duration(span(&context["expiry_ms"]))
        .with_start_positions(StartPositions { default: earliest, ..StartPositions::default() })
        .build(client, BlobCheckpointStore::new(container))
        .await?;

    let running = processor.clone();
    tokio::task::spawn_local(async move {
        // It ends with the first error of the store; a user would start it again.
        while let Err(error) = running.run().await {
            eprintln!("the processor ended: {error}");
            tokio::time::sleep(Duration::from_secs(1)).await;
        }
    });
    tokio::task::spawn_local(async move {
        while let Ok(partition) = processor.next_partition_client().await {
            tokio::task::spawn_local(pump(partition));
        }
    });
    // Until the harness closes the pipe.
    tokio::task::spawn_blocking(|| std::io::read_to_string(std::io::stdin())).await??;
    std::process::exit(0);
}

/// Handles a partition's events until somebody else owns it.
async fn pump(partition: Arc<PartitionClient>) {
    {
        let mut events = std::pin::pin!(partition.stream_events());
        while let Some(event) = events.next().await {
            let event = match event {
                Ok(event) => event,
                Err(error) => {
                    eprintln!("partition {} ended: {error}", partition.get_partition_id());
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
