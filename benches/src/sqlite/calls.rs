//! Single calls, and many at once.

use std::fs::File;
use std::io::{Seek, SeekFrom, Write};
use std::time::Instant;

use partita::model::{HubName, Incarnation, Namespace, Scope, StreamPosition};
use partita::sqlite::SqliteStore;
use partita::store::{
    AtomicCheckpoint, CheckpointOutcome, CheckpointWrite, InstanceOutcome, InstanceRecord, InstanceSeen,
    InstanceState, InstanceWrite, MoveReason, Op, OwnershipOutcome, OwnershipWrite,
};
use partita::{
    CheckpointStore, ConsumerGroup, Epoch, InstanceId, Offset, PartitionId, SequenceNumber, Timestamp,
};

use crate::directory::Directory;
use crate::stats::Sample;

pub(super) struct Calls {
    /// In milliseconds, by name.
    pub(super) samples: Vec<(&'static str, Sample)>,
    pub(super) sync: Sample,
    pub(super) checkpoints_per_second: f64,
}

pub(super) fn measure(rounds: u32) -> Calls {
    let directory = Directory::new("sqlite");
    let mut threads = tokio::runtime::Builder::new_multi_thread();
    let runtime = threads.worker_threads(1).enable_time().build().expect("a runtime");
    let store = SqliteStore::open(directory.path().join("checkpoints.db")).expect("a store");
    let plain = PlainFile::new(&directory);
    runtime.block_on(single(&store, &plain, rounds))
}

/// The disk by itself.
struct PlainFile(File);

impl PlainFile {
    const PAGES: u64 = 256;

    fn new(directory: &Directory) -> Self {
        let path = directory.path().join("plain");
        let file = File::options().create_new(true).write(true).open(path).expect("a file");
        let plain = Self(file);
        for page in 0..Self::PAGES {
            plain.write(page);
        }
        plain.0.sync_all().expect("a sync");
        plain
    }

    fn write(&self, page: u64) {
        let mut file = &self.0;
        file.seek(SeekFrom::Start(page * 4_096)).expect("a place in the file");
        file.write_all(&[1; 4_096]).expect("a write");
    }

    fn sync(&self, round: u32) -> f64 {
        let start = Instant::now();
        self.write(u64::from(round) % Self::PAGES);
        self.0.sync_data().expect("a sync");
        milliseconds(start)
    }
}

fn milliseconds(start: Instant) -> f64 {
    start.elapsed().as_secs_f64() * 1e3
}

fn scope(hub: &str) -> Scope {
    Scope { namespace: Namespace::new("bench"), hub: HubName::new(hub), group: ConsumerGroup::default() }
}

async fn single(store: &SqliteStore, plain: &PlainFile, rounds: u32) -> Calls {
    let (group, me) = (scope("calls"), Incarnation::new(InstanceId::new("bench"), 1));
    let mut seen = register(store, &group, &me).await;
    let [mut sync, mut claims, mut checkpoints, mut beats, mut views, mut large] =
        [const { Vec::<f64>::new() }; 6];
    for partition in 0..16 {
        claim(store, &group, &me, partition).await;
    }
    // Filled up to 1,024 by the claims that are measured, or here.
    let busy = scope("claims");
    register(store, &busy, &me).await;
    for round in 0..rounds {
        sync.push(plain.sync(round));
        let start = Instant::now();
        claim(store, &busy, &me, round).await;
        claims.push(milliseconds(start));
        let start = Instant::now();
        advance(store, &group, &me, round % 16, i64::from(round)).await;
        checkpoints.push(milliseconds(start));
        let start = Instant::now();
        seen = beat(store, &group, seen).await;
        beats.push(milliseconds(start));
        let start = Instant::now();
        assert_eq!(store.view(&group).await.expect("a view").ownerships.len(), 16);
        views.push(milliseconds(start));
    }
    for partition in rounds..1_024 {
        claim(store, &busy, &me, partition).await;
    }
    for _ in 0..rounds {
        let start = Instant::now();
        store.view(&busy).await.expect("a view");
        large.push(milliseconds(start));
    }
    let samples = vec![
        ("claim, with seal and log", Sample::new(claims)),
        ("checkpoint", Sample::new(checkpoints)),
        ("heartbeat, not synced", Sample::new(beats)),
        ("view, 16 partitions", Sample::new(views)),
        ("view, 1024 partitions", Sample::new(large)),
    ];
    let checkpoints_per_second = many(store, &busy, &me, rounds / 10).await;
    Calls { samples, sync: Sample::new(sync), checkpoints_per_second }
}

/// Checkpoints of 64 partitions, one in flight each.
async fn many(store: &SqliteStore, scope: &Scope, me: &Incarnation, rounds: u32) -> f64 {
    let start = Instant::now();
    let tasks = (0..64).map(|partition| {
        let (store, scope, me) = (store.clone(), scope.clone(), me.clone());
        tokio::spawn(async move {
            for round in 0..rounds {
                advance(&store, &scope, &me, partition, i64::from(round)).await;
            }
        })
    });
    for task in tasks.collect::<Vec<_>>() {
        task.await.expect("a writer");
    }
    f64::from(64 * rounds) / start.elapsed().as_secs_f64()
}

async fn register(store: &SqliteStore, scope: &Scope, me: &Incarnation) -> InstanceSeen {
    let record = InstanceRecord {
        incarnation: me.clone(),
        host: "bench".into(),
        started: Timestamp(0),
        stopping: false,
        ttl: std::time::Duration::from_secs(5),
        declines: Vec::new(),
        state: InstanceState::Live,
        beat: 0,
        details: Default::default(),
    };
    applied(store.write_instance(scope, InstanceWrite::Register(record)).await.expect("an answer"))
}

async fn beat(store: &SqliteStore, scope: &Scope, seen: InstanceSeen) -> InstanceSeen {
    let beat = InstanceWrite::Beat { record: seen.record, expect: seen.version };
    applied(store.write_instance(scope, beat).await.expect("an answer"))
}

fn applied(outcome: InstanceOutcome) -> InstanceSeen {
    match outcome {
        InstanceOutcome::Applied(seen) => seen,
        refused => panic!("{refused:?}"),
    }
}

async fn claim(store: &SqliteStore, scope: &Scope, me: &Incarnation, partition: u32) {
    let write = OwnershipWrite {
        partition: PartitionId::from(partition),
        expect: None,
        owner: Some(me.clone()),
        epoch: Epoch(1),
        next: None,
        reason: MoveReason::Claimed,
        op: Op { by: me.clone(), number: 1 },
        checkpoint: Some(AtomicCheckpoint { last: None, seal: Epoch(1) }),
    };
    let outcome = store.write_ownership(scope, write).await.expect("an answer");
    assert!(matches!(outcome, OwnershipOutcome::Applied { .. }), "{outcome:?}");
}

async fn advance(store: &SqliteStore, scope: &Scope, me: &Incarnation, partition: u32, sequence: i64) {
    let write = CheckpointWrite::Advance {
        partition: PartitionId::from(partition),
        epoch: Epoch(1),
        last: StreamPosition::new(SequenceNumber(sequence), Offset::number(0)),
        stream: None,
        op: Op { by: me.clone(), number: 2 },
    };
    let outcome = store.write_checkpoint(scope, write).await.expect("an answer");
    assert!(matches!(outcome, CheckpointOutcome::Applied(_)), "{outcome:?}");
}
