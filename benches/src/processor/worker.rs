//! A processor in a process of its own: this binary, started again. It prints what it measured.

use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use partita::sqlite::SqliteStore;
use partita::{Checkpoint, Context, Event, InstanceId, Position, Processor};

use crate::out;
use crate::served::hub::memory;

/// The first argument of a process that is a worker; what it does, connection string, events and directory follow.
pub(crate) const ARGUMENT: &str = "--processor-worker";

pub(super) const BATCH_EVENTS: usize = 1_000;
pub(super) const PREFETCH_EVENTS: usize = 4_000;
pub(super) const PREFETCH_BYTES: usize = 2 << 20;

const DRAIN: &str = "drain";
const SLOW: &str = "slow";

/// What a slow handler needs for an event, and for how long it is watched.
const SLOW_CALL: Duration = Duration::from_millis(100);
const SLOW_TIME: Duration = Duration::from_secs(5);

/// Events per second that a processor handles, of so many.
pub(super) fn drain(connection: &str, events: u64, dir: &Path) -> f64 {
    start(DRAIN, connection, events, dir)
}

/// By how many bytes a processor grows whose handler is slow.
pub(super) fn slow(connection: &str, dir: &Path) -> f64 {
    start(SLOW, connection, u64::MAX, dir)
}

fn start(what: &str, connection: &str, events: u64, dir: &Path) -> f64 {
    let mut command = Command::new(std::env::current_exe().expect("the benchmark's own path"));
    command.args([ARGUMENT, what, connection, &events.to_string()]).arg(dir);
    let output = command.stdin(Stdio::null()).stderr(Stdio::inherit()).output().expect("a worker starts");
    let said = String::from_utf8_lossy(&output.stdout);
    said.trim().parse().unwrap_or(f64::NAN)
}

/// The worker's part.
pub(crate) fn main(arguments: &[String]) {
    let [what, connection, events, dir] = arguments else { return };
    let events: u64 = events.parse().expect("a number");
    let dir = Path::new(dir).join(format!("store-{:016x}", fastrand::u64(..)));
    std::fs::create_dir(&dir).expect("a directory for the store");
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().expect("a runtime");
    let figure = runtime.block_on(measure(what, connection, events, &dir));
    let _ = std::fs::remove_dir_all(&dir);
    out::line(figure.to_string());
}

async fn measure(what: &str, connection: &str, events: u64, dir: &Path) -> f64 {
    let store = SqliteStore::open(dir.join("checkpoints.db")).expect("a store");
    let count = Arc::new(AtomicU64::new(0));
    let (counted, slow) = (count.clone(), what == SLOW);
    let processor = Processor::builder(super::hubs(connection).source(), store)
        .instance_id(InstanceId::generate("bench"))
        .initial_position(Position::Earliest)
        .batch_size(if slow { 1 } else { BATCH_EVENTS })
        .prefetch_events(PREFETCH_EVENTS)
        .prefetch_bytes(PREFETCH_BYTES)
        .checkpoint(Checkpoint::after(Duration::from_secs(1)))
        .on_batch(move |batch: Vec<Event>, _: Context| {
            let counted = counted.clone();
            async move {
                counted.fetch_add(batch.len() as u64, Ordering::Relaxed);
                if slow {
                    tokio::time::sleep(SLOW_CALL).await;
                }
                Ok(())
            }
        })
        .on_error(|error| out::note(error.to_string()))
        .build()
        .expect("a processor");
    let before = memory(std::process::id());
    let running = processor.start().await.expect("it starts");
    let (mut first, mut most) = (None, 0.0_f64);
    loop {
        let seen = count.load(Ordering::Relaxed);
        if seen > 0 && first.is_none() {
            first = Some((Instant::now(), seen));
        }
        let Some((began, at_first)) = first else {
            tokio::time::sleep(Duration::from_millis(1)).await;
            continue;
        };
        if slow {
            most = most.max(memory(std::process::id()) - before);
        }
        let done = if slow { began.elapsed() >= SLOW_TIME } else { seen >= events };
        if done {
            let speed = (seen - at_first) as f64 / began.elapsed().as_secs_f64();
            running.shutdown().await.expect("it ends");
            return if slow { most } else { speed };
        }
        tokio::time::sleep(Duration::from_millis(if slow { 50 } else { 1 })).await;
    }
}
