//! Reads a hub from the beginning with the official SDK and says how long that took from the first event on:
//! `drain CONNECTION_STRING ENDPOINT HUB PARTITIONS EVENTS PREFETCH CONNECTIONS`

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use azure_messaging_eventhubs::{ConsumerClient, OpenReceiverOptions, StartLocation, StartPosition};
use futures::StreamExt;

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let [connection, endpoint, hub, numbers @ ..] = &args[..] else { return Err("arguments are missing".into()) };
    let number = |at: usize| numbers[at].parse::<u64>().expect("a number");
    let (partitions, events, prefetch, connections) = (number(0), number(1), number(2), number(3));
    let mut clients = Vec::new();
    for _ in 0..connections {
        let client = ConsumerClient::builder()
            .with_custom_endpoint(endpoint.clone())
            .open_with_connection_string(connection, Some(hub))
            .await?;
        clients.push(Arc::new(client));
    }
    let count = Arc::new(AtomicU64::new(0));
    for partition in 0..partitions {
        let client = clients[(partition % connections) as usize].clone();
        let count = count.clone();
        tokio::spawn(async move {
            let options = OpenReceiverOptions {
                start_position: Some(StartPosition { location: StartLocation::Earliest, inclusive: true }),
                prefetch: Some(u32::try_from(prefetch).expect("a prefetch")),
                ..OpenReceiverOptions::default()
            };
            let receiver = client.open_receiver_on_partition(partition.to_string(), Some(options)).await.expect("a receiver");
            let mut stream = receiver.stream_events();
            while let Some(event) = stream.next().await {
                event.expect("an event");
                count.fetch_add(1, Ordering::Relaxed);
            }
        });
    }
    let mut first = None;
    loop {
        let seen = count.load(Ordering::Relaxed);
        if seen > 0 && first.is_none() {
            first = Some((Instant::now(), seen));
        }
        if let Some((began, before)) = first
            && seen >= events
        {
            println!("{:.0}", (seen - before) as f64 / began.elapsed().as_secs_f64());
            // Its connections end with the process.
            std::process::exit(0);
        }
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
}
