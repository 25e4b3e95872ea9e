//! A processor in a process of its own: this test binary, started again.

use std::fs::{self, File};
use std::io::{Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use partita_core::handler::Context;
use partita_core::model::{Event, PartitionId, Scope};
use partita_core::processor::Timing;
use partita_core::processor::{Checkpoint, Processor};
use partita_stores::sqlite::SqliteStore;

use crate::clockwork::Clockwork;

const DIRECTORY: &str = "PARTITA_WORKER_DIRECTORY";
const NAME: &str = "PARTITA_WORKER_NAME";
const EVENTS: &str = "PARTITA_WORKER_EVENTS";

/// The test that is a worker when it is asked for: one of its own would be counted and show nothing.
const ENTRY: &str = "processes_hand_over_without_losing_or_repeating";

pub(crate) const PARTITIONS: u32 = 8;
pub(crate) const TTL: Duration = Duration::from_millis(2_500);

/// One event that a worker handled.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Handled {
    pub(crate) by: String,
    pub(crate) partition: PartitionId,
    pub(crate) epoch: u64,
    pub(crate) sequence: i64,
}

/// A directory with a store and the workers' diaries, which goes with its test.
pub(crate) struct Place {
    directory: PathBuf,
    events: i64,
}

impl Place {
    pub(crate) fn new(events: i64) -> Self {
        let directory = std::env::temp_dir().join(format!("partita-processes-{:032x}", fastrand::u128(..)));
        fs::create_dir(&directory).unwrap();
        Self { directory, events }
    }

    pub(crate) fn store(&self) -> SqliteStore {
        SqliteStore::open(store_in(&self.directory)).unwrap()
    }

    pub(crate) fn scope(&self) -> Scope {
        let hub = Clockwork { partitions: PARTITIONS, events: self.events }.description();
        Scope { namespace: hub.namespace, hub: hub.hub, group: Default::default() }
    }

    pub(crate) fn start(&self, name: &str) -> Worker {
        let child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", ENTRY, "--nocapture"])
            .env(DIRECTORY, &self.directory)
            .env(NAME, name)
            .env(EVENTS, self.events.to_string())
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .spawn()
            .unwrap();
        Worker { child }
    }

    /// What a worker has handled so far, in its order.
    pub(crate) fn handled(&self, name: &str) -> Vec<Handled> {
        let diary = fs::read_to_string(diary_in(&self.directory, name)).unwrap_or_default();
        // A line without its end is one that is being written, or was when its process was killed.
        let lines = diary.split_inclusive('\n').filter(|line| line.ends_with('\n'));
        lines
            .map(|line| {
                let mut words = line.split_whitespace();
                let mut word = || words.next().unwrap();
                Handled {
                    by: name.to_owned(),
                    partition: PartitionId::from(word()),
                    epoch: word().parse().unwrap(),
                    sequence: word().parse().unwrap(),
                }
            })
            .collect()
    }

    /// Waits until the workers' diaries please.
    pub(crate) fn until(&self, what: &str, mut pleased: impl FnMut(&Self) -> bool) {
        let started = Instant::now();
        while !pleased(self) {
            assert!(started.elapsed() < Duration::from_secs(60), "waited in vain: {what}");
            std::thread::sleep(Duration::from_millis(10));
        }
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.directory);
    }
}

pub(crate) struct Worker {
    child: Child,
}

impl Worker {
    /// In good order.
    pub(crate) fn stop(mut self) {
        drop(self.child.stdin.take());
        assert!(self.child.wait().unwrap().success(), "a worker failed");
    }

    /// Ends it where it is, as `kill -9` does.
    pub(crate) fn kill(mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }

    pub(crate) fn signal(&self, name: &str) {
        let pid = self.child.id().to_string();
        assert!(Command::new("kill").args([&format!("-{name}"), &pid]).status().unwrap().success());
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn store_in(directory: &Path) -> PathBuf {
    directory.join("checkpoints.db")
}

fn diary_in(directory: &Path, name: &str) -> PathBuf {
    directory.join(format!("{name}.diary"))
}

/// Whether this process is to be a worker.
pub(crate) fn is_asked_for() -> bool {
    std::env::var_os(DIRECTORY).is_some()
}

/// Is a worker, on a thread without a runtime: it makes its own.
pub(crate) fn run() {
    std::thread::spawn(handle_events).join().unwrap();
}

/// Handles events until its standard input ends.
fn handle_events() {
    let directory = std::env::var_os(DIRECTORY).map(PathBuf::from).unwrap();
    let name = std::env::var(NAME).unwrap();
    let events = std::env::var(EVENTS).unwrap().parse().unwrap();
    let diary = File::options().create(true).append(true).open(diary_in(&directory, &name)).unwrap();
    let diary = Arc::new(Mutex::new(diary));
    let store = SqliteStore::open(store_in(&directory)).unwrap();
    let source = Clockwork { partitions: PARTITIONS, events };
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
    runtime.block_on(async {
        let processor = Processor::builder(source, store)
            .instance_id(name.as_str())
            .timing(Timing::new(Duration::from_millis(500), TTL).unwrap())
            .checkpoint(Checkpoint::every(100).or_after(Duration::from_millis(300)))
            .on_event(move |event: Event, cx: Context| {
                let diary = Arc::clone(&diary);
                async move {
                    tokio::time::sleep(Duration::from_millis(1)).await;
                    let line = format!("{} {} {}\n", cx.partition(), cx.epoch(), event.sequence_number());
                    // One write, so a process that is killed leaves the line or does not.
                    diary.lock().unwrap().write_all(line.as_bytes())?;
                    Ok(())
                }
            })
            .build()
            .unwrap();
        let running = processor.start().await.unwrap();
        let told = tokio::task::spawn_blocking(|| std::io::stdin().read_to_end(&mut Vec::new()));
        told.await.unwrap().unwrap();
        running.shutdown().await.unwrap();
    });
}
