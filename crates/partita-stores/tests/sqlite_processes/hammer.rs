//! A process that writes checkpoints as fast as it can and says which were acknowledged, until it is killed.

use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Stdio};

use partita_core::model::{
    ConsumerGroup, Epoch, HubName, Incarnation, InstanceId, Namespace, Offset, PartitionId, Scope,
    SequenceNumber, StreamPosition,
};
use partita_core::store::{CheckpointOutcome, CheckpointStore, CheckpointWrite, Op};
use partita_stores::sqlite::SqliteStore;

const FILE: &str = "PARTITA_HAMMER_FILE";
const FROM: &str = "PARTITA_HAMMER_FROM";

/// The test that is the hammer when it is asked for: one of its own would be counted and show nothing.
const ENTRY: &str = "what_was_acknowledged_survives_a_kill_at_any_moment";

/// What precedes a number that was acknowledged; the test harness writes lines of its own.
const MARK: &str = "acknowledged ";

pub(crate) fn scope() -> Scope {
    Scope { namespace: Namespace::new("n"), hub: HubName::new("hammer"), group: ConsumerGroup::default() }
}

pub(crate) struct Hammer {
    child: Child,
    output: BufReader<ChildStdout>,
}

impl Hammer {
    /// Writes positions from this one on.
    pub(crate) fn start(file: &Path, from: i64) -> Self {
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", ENTRY, "--nocapture"])
            .env(FILE, file)
            .env(FROM, from.to_string())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let output = BufReader::new(child.stdout.take().unwrap());
        Self { child, output }
    }

    /// The next position that was acknowledged, if any.
    pub(crate) fn next(&mut self) -> Option<i64> {
        let mut line = String::new();
        while self.output.read_line(&mut line).unwrap() > 0 {
            if let Some((_, number)) = line.split_once(MARK)
                && number.ends_with('\n')
            {
                return Some(number.trim().parse().unwrap());
            }
            line.clear();
        }
        None
    }

    /// Kills it; the last position that was acknowledged, if one was after those that were asked for.
    pub(crate) fn kill(mut self) -> Option<i64> {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
        std::iter::from_fn(|| self.next()).last()
    }
}

/// Whether this process is to be the hammer.
pub(crate) fn is_asked_for() -> bool {
    std::env::var_os(FILE).is_some()
}

/// Hammers until it is killed.
pub(crate) async fn run() {
    let file = std::env::var_os(FILE).map(PathBuf::from).unwrap();
    let from: i64 = std::env::var(FROM).unwrap().parse().unwrap();
    let store = SqliteStore::open(file).unwrap();
    let op = || Op { by: Incarnation::new(InstanceId::new("hammer"), 1), number: 1 };
    let (partition, epoch, scope) = (PartitionId::from(0), Epoch(1), scope());
    let seal = CheckpointWrite::Seal { partition: partition.clone(), epoch, op: op() };
    store.write_checkpoint(&scope, seal).await.unwrap();
    for n in from.. {
        let last = StreamPosition::new(SequenceNumber(n), Offset::number(0));
        let write =
            CheckpointWrite::Advance { partition: partition.clone(), epoch, last, stream: None, op: op() };
        let outcome = store.write_checkpoint(&scope, write).await.unwrap();
        assert!(matches!(outcome, CheckpointOutcome::Applied(_)), "{outcome:?}");
        let line = format!("{MARK}{n}\n");
        std::io::stdout().write_all(line.as_bytes()).unwrap();
    }
}
