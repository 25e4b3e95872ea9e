//! Says which homes are hot. Run as many copies as you like: they share the work.
#![allow(clippy::print_stdout, clippy::print_stderr)]

use std::{error::Error, time::Duration};

use partita::{Checkpoint, Context, Event, HandlerResult, Processor, shutdown_signal, sqlite::SqliteStore};
use starter::{checkpoints, hub, setting};

#[cfg(test)]
mod tests;

/// What an event calls for; yours to change. A body is a temperature, its key the home.
fn alert(event: &Event) -> Option<String> {
    let degrees: f64 = event.text()?.parse().ok()?;
    (degrees > 30.0).then(|| format!("{} is hot: {degrees}", event.partition_key().unwrap_or("a home")))
}

/// Called for each event: in order within a partition, partitions beside each other.
async fn handle(event: Event, cx: Context) -> HandlerResult {
    if let Some(alert) = alert(&event) {
        println!("partition {}, event {}: {alert}", cx.partition(), event.sequence_number());
    }
    Ok(())
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let store = SqliteStore::open(checkpoints())?;
    Processor::builder(hub()?, store)
        .consumer_group(setting("PARTITA_GROUP", "cg1"))
        .checkpoint(Checkpoint::every(1_000).or_after(Duration::from_secs(1)))
        .on_event(handle)
        .on_error(|error| eprintln!("{error}"))
        .run_until(shutdown_signal()) // Ctrl-C or SIGTERM; then it hands over and ends
        .await?;
    Ok(())
}
