//! The gaps that moves between two processes leave.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use partita::sqlite::SqliteStore;
use partita::{CheckpointStore, PartitionId};

use super::worker;
use crate::directory::Directory;
use crate::out;
use crate::stats::Sample;

const PATIENCE: Duration = Duration::from_secs(60);

/// In milliseconds.
pub(super) struct Gaps {
    pub(super) transfers: Sample,
    pub(super) releases: Sample,
}

pub(super) fn measure(least: usize) -> Gaps {
    let directory = Directory::new("sqlite");
    let store = SqliteStore::open(directory.path().join("checkpoints.db")).expect("a store");
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().expect("a runtime");
    let (all, half) = (worker::PARTITIONS as usize, worker::PARTITIONS as usize / 2);
    let settled = |name: &str, count| runtime.block_on(until(&store, name, count));
    let rest = || std::thread::sleep(Duration::from_millis(300));
    let mut names = vec!["stays".to_owned()];
    let stays = start(directory.path(), "stays");
    settled("stays", all);
    for round in 0..least.div_ceil(half) {
        out::note(format!("sqlite hand-off: {} of {least}", round * half));
        rest();
        let name = format!("visitor-{round}");
        let visitor = start(directory.path(), &name);
        settled(&name, half);
        rest();
        stop(visitor);
        settled("stays", all);
        names.push(name);
    }
    rest();
    stop(stays);
    evaluate(directory.path(), &names)
}

fn start(directory: &Path, name: &str) -> Child {
    let binary = std::env::current_exe().expect("the benchmark's own path");
    let mut command = Command::new(binary);
    command.arg(worker::ARGUMENT).arg(directory).arg(name).stdin(Stdio::piped());
    command.spawn().expect("a process")
}

fn stop(mut child: Child) {
    drop(child.stdin.take());
    assert!(child.wait().expect("a process that ends").success(), "a worker failed");
}

/// Waits until an instance owns that many partitions and nothing is pending.
async fn until(store: &SqliteStore, name: &str, count: usize) {
    let started = Instant::now();
    loop {
        let view = store.view(&worker::scope()).await.expect("a view");
        let owned = |owner: &partita::model::Incarnation| owner.id().as_str() == name;
        let held = view.ownerships.iter().filter(|held| held.owner.as_ref().is_some_and(owned)).count();
        if held == count && view.ownerships.iter().all(|held| held.next.is_none()) {
            return;
        }
        assert!(started.elapsed() < PATIENCE, "{name} did not get its share");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

fn evaluate(directory: &Path, names: &[String]) -> Gaps {
    let mut calls = BTreeMap::<PartitionId, BTreeMap<u64, (u64, u64)>>::new();
    for name in names {
        let notes =
            std::fs::read_to_string(directory.join(format!("{name}.calls"))).expect("a worker's notes");
        for line in notes.lines() {
            let mut words = line.split(' ');
            let partition = PartitionId::from(words.next().expect("a partition"));
            let mut number = || words.next().and_then(|word| word.parse::<u64>().ok()).expect("a number");
            calls.entry(partition).or_default().insert(number(), (number(), number()));
        }
    }
    let (mut transfers, mut releases) = (Vec::new(), Vec::new());
    for epochs in calls.values() {
        let pairs = epochs.iter().zip(epochs.iter().skip(1));
        for ((before, (_, end)), (after, (start, _))) in pairs {
            assert!(start >= end, "two processes handled one partition at the same time");
            let gap = (start - end) as f64 / 1e6;
            // A hand-off raises the epoch once; a release and the claim after it raise it twice.
            if *after == before + 1 { transfers.push(gap) } else { releases.push(gap) }
        }
    }
    Gaps { transfers: Sample::new(transfers), releases: Sample::new(releases) }
}
