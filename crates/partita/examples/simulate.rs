//! Runs a handler of one's own in the simulator, and finds the bug in another version of it.
//!
//! `cargo run --release -p partita --features sim --example simulate`
//!
//! The handler writes each event to a database. The hasty version asks for the checkpoint first: most of the time that is as
//! good, and no test that stops in good order will ever tell. A crash at the wrong moment does.

#![allow(clippy::print_stdout)] // It talks to people.

use std::collections::BTreeSet;
use std::process::ExitCode;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use partita::sim::{Produced, Simulation, Subject};
use partita::{Checkpoint, Context, Event, Handler, HandlerResult, InstanceId, PartitionId};

/// A database that all instances share: it outlives them.
#[derive(Clone, Default)]
struct Database(Arc<Mutex<BTreeSet<String>>>);

impl Database {
    async fn insert(&self, row: String) {
        tokio::time::sleep(Duration::from_millis(3)).await;
        self.0.lock().unwrap_or_else(PoisonError::into_inner).insert(row);
    }
}

struct Recorder {
    database: Database,
    hasty: bool,
}

impl Handler for Recorder {
    async fn events(&mut self, events: &[Event], cx: &Context) -> HandlerResult {
        let Some(last) = events.last() else { return Ok(()) };
        if self.hasty {
            // The bug: from here on nobody will be given these events again.
            cx.checkpoint(last).await?;
        }
        for event in events {
            self.database.insert(event.text().unwrap_or_default().into_owned()).await;
        }
        if !self.hasty {
            cx.checkpoint(last).await?;
        }
        Ok(())
    }
}

/// What is tried: the handler, and what must be true in the end.
struct Recording {
    database: Database,
    hasty: bool,
}

impl Subject for Recording {
    type Handler = Recorder;

    fn handler(&self, _: &InstanceId, _: &PartitionId) -> Recorder {
        Recorder { database: self.database.clone(), hasty: self.hasty }
    }

    fn checkpoint(&self) -> Checkpoint {
        Checkpoint::Manual
    }

    fn check(&self, produced: &[Produced]) -> Result<(), String> {
        let rows = self.database.0.lock().unwrap_or_else(PoisonError::into_inner);
        let missing = produced.iter().filter(|event| !rows.contains(&event.body)).count();
        if missing == 0 {
            Ok(())
        } else {
            Err(format!("{missing} of {} events are not recorded", produced.len()))
        }
    }
}

fn simulate(hasty: bool) -> Simulation {
    Simulation::new(move || Recording { database: Database::default(), hasty }).seeds(0..200)
}

fn main() -> ExitCode {
    let careful = simulate(false).run();
    match &careful {
        Ok(summary) => println!("write, then checkpoint: {} seeds, nothing missing", summary.seeds),
        Err(failure) => println!("write, then checkpoint: {failure}"),
    }
    let hasty = simulate(true).run();
    match &hasty {
        Ok(summary) => println!("checkpoint, then write: {} seeds, nothing missing?", summary.seeds),
        Err(failure) => {
            println!("checkpoint, then write: {failure}");
            println!("the end of that world:");
            failure.trace.iter().rev().take(5).rev().for_each(|line| println!("  {line}"));
        }
    }
    if careful.is_ok() && hasty.is_err() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
