//! What is particular to this store; the protocol is the conformance suite's.

use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Instant;

use futures_util::FutureExt;
use futures_util::future::join_all;
use partita_core::model::{
    ConsumerGroup, Epoch, HubName, InstanceId, Namespace, Offset, PartitionId, SequenceNumber,
    StreamPosition, Timestamp,
};
use partita_core::store::{Certainty, InstanceRecord, InstanceSeen, InstanceState, MoveReason, Op, Version};

use super::clock::Stamp;
use super::*;

/// A clock that goes on when it is told to.
struct TestClock {
    boot: &'static str,
    nanos: AtomicI64,
}

impl TestClock {
    fn of_boot(boot: &'static str) -> Arc<Self> {
        Arc::new(Self { boot, nanos: AtomicI64::new(1_000_000_000) })
    }

    fn pass(&self, time: Duration) {
        self.nanos.fetch_add(time.as_nanos() as i64, Ordering::SeqCst);
    }
}

impl Clock for TestClock {
    fn now(&self) -> Stamp {
        Stamp { boot: Arc::from(self.boot), nanos: self.nanos.load(Ordering::SeqCst) }
    }
}

/// A file in a directory that goes with its test.
struct File(PathBuf);

impl File {
    fn new() -> Self {
        let directory = std::env::temp_dir().join(format!("partita-sqlite-{:032x}", fastrand::u128(..)));
        std::fs::create_dir(&directory).unwrap();
        Self(directory)
    }

    fn path(&self) -> PathBuf {
        self.0.join("checkpoints.db")
    }

    fn open(&self) -> SqliteStore {
        SqliteStore::open(self.path()).unwrap()
    }

    fn open_with(&self, clock: &Arc<TestClock>) -> SqliteStore {
        SqliteStore::open_with(&self.path(), clock.clone()).unwrap()
    }

    /// Another program's connection, which holds the lock for writing until it is told to end.
    fn hold(&self) -> Connection {
        let other = Connection::open(self.path()).unwrap();
        other.execute_batch("BEGIN IMMEDIATE").unwrap();
        other
    }
}

impl Drop for File {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

fn scope() -> Scope {
    Scope { namespace: Namespace::new("n"), hub: HubName::new("hub"), group: ConsumerGroup::default() }
}

fn incarnation(number: u128) -> Incarnation {
    Incarnation::new(InstanceId::new("host"), number)
}

fn record(number: u128) -> InstanceRecord {
    InstanceRecord {
        incarnation: incarnation(number),
        host: Arc::from("machine"),
        started: Timestamp(0),
        stopping: false,
        ttl: std::time::Duration::from_secs(5),
        declines: Vec::new(),
        state: InstanceState::Live,
        beat: 0,
        details: Default::default(),
    }
}

async fn register(store: &SqliteStore, number: u128) -> InstanceSeen {
    match store.write_instance(&scope(), InstanceWrite::Register(record(number))).await.unwrap() {
        InstanceOutcome::Applied(seen) => seen,
        refused => panic!("{refused:?}"),
    }
}

fn bury(seen: &InstanceSeen, age_min: Duration) -> InstanceWrite {
    let victim = seen.record.incarnation.clone();
    InstanceWrite::Bury { victim, expect: seen.version.clone(), age_min }
}

fn seal(epoch: u64) -> CheckpointWrite {
    let op = Op { by: incarnation(1), number: epoch };
    CheckpointWrite::Seal { partition: PartitionId::from(0), epoch: Epoch(epoch), op }
}

fn advance(sequence: i64) -> CheckpointWrite {
    let last = StreamPosition::new(SequenceNumber(sequence), Offset::number(0));
    let op = Op { by: incarnation(1), number: 100 };
    CheckpointWrite::Advance { partition: PartitionId::from(0), epoch: Epoch(1), last, stream: None, op }
}

fn claim(expect: Option<Version>, owner: u128, next: Option<u128>) -> OwnershipWrite {
    OwnershipWrite {
        partition: PartitionId::from(0),
        expect,
        owner: Some(incarnation(owner)),
        epoch: Epoch(1),
        next: next.map(incarnation),
        reason: MoveReason::Claimed,
        op: Op { by: incarnation(owner), number: 0 },
        checkpoint: None,
    }
}

async fn names(store: &SqliteStore) -> Vec<u128> {
    let view = store.view(&scope()).await.unwrap();
    view.instances.iter().map(|seen| seen.record.incarnation.nonce()).collect()
}

#[tokio::test]
async fn ages_and_burials_follow_the_boot_clock_alone() {
    let (file, clock) = (File::new(), TestClock::of_boot("a"));
    let (one, other) = (file.open_with(&clock), file.open_with(&clock));
    let seen = register(&one, 1).await;
    // However long it takes by the clock on the wall, no time has passed.
    tokio::time::sleep(Duration::from_millis(30)).await;
    assert_eq!(other.view(&scope()).await.unwrap().instances[0].age, Duration::ZERO);
    let ttl = Duration::from_secs(5);
    clock.pass(ttl - Duration::from_nanos(1));
    let outcome = other.write_instance(&scope(), bury(&seen, ttl)).await.unwrap();
    assert!(matches!(outcome, InstanceOutcome::Refused(Some(_))), "{outcome:?}");
    clock.pass(Duration::from_nanos(1));
    assert_eq!(other.view(&scope()).await.unwrap().instances[0].age, ttl);
    let outcome = other.write_instance(&scope(), bury(&seen, ttl)).await.unwrap();
    assert!(matches!(outcome, InstanceOutcome::Applied(_)), "{outcome:?}");
}

#[test]
fn no_decision_sees_the_wall_clock() {
    let sources = [
        include_str!("clock.rs"),
        include_str!("mod.rs"),
        include_str!("reader.rs"),
        include_str!("rows.rs"),
        include_str!("scopes.rs"),
        include_str!("writer.rs"),
        include_str!("open.rs"),
    ];
    for source in sources {
        assert!(!source.contains("SystemTime") && !source.contains("Timestamp::now"));
    }
    // For people: since, time.
    assert_eq!(include_str!("records.rs").matches("Timestamp::now").count(), 2);
    assert!(!include_str!("records.rs").contains("SystemTime"));
}

#[tokio::test]
async fn after_a_reboot_the_living_are_old_and_the_dead_forgotten() {
    let file = File::new();
    let before = file.open_with(&TestClock::of_boot("a"));
    let left = register(&before, 1).await;
    let gone = register(&before, 2).await;
    let leave = InstanceWrite::Leave { incarnation: incarnation(2), expect: gone.version };
    before.write_instance(&scope(), leave).await.unwrap();
    drop(before);

    let after = file.open_with(&TestClock::of_boot("b"));
    let view = after.view(&scope()).await.unwrap();
    assert!(view.instances[0].age >= Duration::from_secs(3_600));
    register(&after, 3).await;
    assert_eq!(names(&after).await, [1, 3]);
    let outcome = after.write_instance(&scope(), bury(&left, Duration::from_secs(60))).await.unwrap();
    assert!(matches!(outcome, InstanceOutcome::Applied(_)), "{outcome:?}");
}

#[tokio::test]
async fn the_dead_are_forgotten_after_an_hour_and_never_get_an_old_version() {
    let (file, clock) = (File::new(), TestClock::of_boot("a"));
    let store = file.open_with(&clock);
    let seen = register(&store, 1).await;
    let leave = InstanceWrite::Leave { incarnation: incarnation(1), expect: seen.version.clone() };
    store.write_instance(&scope(), leave).await.unwrap();
    clock.pass(Duration::from_secs(3_599));
    register(&store, 2).await;
    assert_eq!(names(&store).await, [1, 2]);
    clock.pass(Duration::from_secs(1));
    register(&store, 3).await;
    assert_eq!(names(&store).await, [2, 3]);
    let again = register(&store, 1).await;
    assert_ne!(again.version, seen.version);
}

#[tokio::test]
async fn heartbeats_and_checkpoints_do_not_move_the_cursor() {
    let file = File::new();
    let store = file.open();
    let mut seen = register(&store, 1).await;
    let cursor = store.view(&scope()).await.unwrap().cursor;
    for _ in 0..3 {
        let beat = InstanceWrite::Beat { record: seen.record.clone(), expect: seen.version.clone() };
        let outcome = store.write_instance(&scope(), beat).await.unwrap();
        let InstanceOutcome::Applied(beaten) = outcome else { panic!("{outcome:?}") };
        seen = beaten;
    }
    store.write_checkpoint(&scope(), seal(1)).await.unwrap();
    store.write_checkpoint(&scope(), advance(1)).await.unwrap();
    assert_eq!(store.view(&scope()).await.unwrap().cursor, cursor);
    store.write_ownership(&scope(), claim(None, 1, None)).await.unwrap();
    assert_eq!(store.view(&scope()).await.unwrap().cursor, cursor + 1);
}

/// How long a waiter of another handle sleeps after a hand-off that it waits for.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_pending_hand_off_is_told_soon() {
    let file = File::new();
    let (owner, taker) = (file.open(), file.open());
    register(&owner, 1).await;
    register(&taker, 2).await;
    let mut slowest = Duration::ZERO;
    let mut expect = None;
    for _ in 0..5 {
        let outcome = owner.write_ownership(&scope(), claim(expect, 1, Some(2))).await.unwrap();
        let OwnershipOutcome::Applied { ownership, .. } = outcome else { panic!("{outcome:?}") };
        let cursor = taker.view(&scope()).await.unwrap().cursor;
        let me = incarnation(2);
        let told = tokio::spawn({
            let taker = taker.clone();
            async move {
                taker.changed(&scope(), &me, cursor).await;
                Instant::now()
            }
        });
        tokio::time::sleep(Duration::from_millis(70)).await;
        let outcome = owner.write_ownership(&scope(), claim(Some(ownership.version), 2, None)).await.unwrap();
        let OwnershipOutcome::Applied { ownership, .. } = outcome else { panic!("{outcome:?}") };
        let written = Instant::now();
        let told = tokio::time::timeout(Duration::from_secs(5), told).await.unwrap().unwrap();
        slowest = slowest.max(told.saturating_duration_since(written));
        expect = Some(ownership.version);
    }
    // One interval, and slack for a loaded machine.
    assert!(slowest < reader::POLL_PENDING + Duration::from_millis(150), "{slowest:?}");
}

#[tokio::test]
async fn a_change_in_the_same_process_is_told_at_once() {
    let file = File::new();
    let store = file.open();
    let cursor = store.view(&scope()).await.unwrap().cursor;
    let (one, two) = (incarnation(1), incarnation(2));
    let scope = scope();
    let mut first = store.changed(&scope, &one, cursor);
    let mut second = store.changed(&scope, &two, cursor);
    assert!(first.as_mut().now_or_never().is_none() && second.as_mut().now_or_never().is_none());
    // Just after a poll, so that the next one is far.
    tokio::time::sleep(Duration::from_millis(2)).await;
    store.write_ownership(&scope, claim(None, 1, None)).await.unwrap();
    let started = Instant::now();
    first.await;
    assert!(started.elapsed() < reader::POLL_IDLE / 2, "{:?}", started.elapsed());
    assert!(second.now_or_never().is_none(), "it named somebody else");
}

#[tokio::test]
async fn a_write_waits_for_another_programs_transaction() {
    let file = File::new();
    let store = file.open();
    store.write_checkpoint(&scope(), seal(1)).await.unwrap();
    let held = file.hold();
    let letting_go = std::thread::spawn(move || {
        std::thread::sleep(Duration::from_millis(150));
        held.execute_batch("ROLLBACK").unwrap();
    });
    let started = Instant::now();
    store.view(&scope()).await.unwrap();
    store.checkpoints(&scope()).await.unwrap();
    assert!(started.elapsed() < Duration::from_millis(100), "reads waited: {:?}", started.elapsed());
    let outcome = store.write_checkpoint(&scope(), advance(5)).await.unwrap();
    assert!(matches!(outcome, CheckpointOutcome::Applied(_)), "{outcome:?}");
    letting_go.join().unwrap();
}

#[tokio::test]
async fn a_write_that_waited_too_long_fails_without_effect() {
    let file = File::new();
    let store = file.open();
    store.write_checkpoint(&scope(), seal(1)).await.unwrap();
    let held = file.hold();
    let started = Instant::now();
    let in_scope = scope();
    let writes = join_all((1..=3).map(|n| store.write_checkpoint(&in_scope, advance(n))));
    for outcome in writes.await {
        let error = outcome.unwrap_err();
        assert_eq!((error.is_transient(), error.certainty()), (true, Certainty::NoEffect));
        assert!(error.to_string().contains("another process held the database"), "{error}");
    }
    let limit = Timing::FAST.call_deadline();
    assert!(started.elapsed() < limit, "{:?}: the engine would not know the outcome", started.elapsed());
    held.execute_batch("ROLLBACK").unwrap();
    assert_eq!(store.checkpoints(&scope()).await.unwrap()[0].resume, None);
    store.write_checkpoint(&scope(), advance(4)).await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_row_that_cannot_be_read_fails_alone() {
    let file = File::new();
    let store = file.open();
    store.write_checkpoint(&scope(), seal(1)).await.unwrap();
    register(&store, 1).await;
    let other = Connection::open(file.path()).unwrap();
    other.execute("UPDATE instance SET declines = 'x'", []).unwrap();
    let held = file.hold();
    let scope = scope();
    let bad = store.write_instance(&scope, InstanceWrite::BuryAbsent { victim: incarnation(1) });
    let good = store.write_checkpoint(&scope, advance(7));
    let (bad, good, ()) = tokio::join!(bad, good, async {
        // Both wait by now, so they share a transaction.
        tokio::time::sleep(Duration::from_millis(50)).await;
        held.execute_batch("ROLLBACK").unwrap();
    });
    assert!(!bad.unwrap_err().is_transient());
    assert!(matches!(good.unwrap(), CheckpointOutcome::Applied(_)));
}

#[tokio::test]
async fn a_file_that_was_replaced_is_noticed() {
    let file = File::new();
    let store = file.open();
    store.write_checkpoint(&scope(), seal(1)).await.unwrap();
    std::fs::rename(file.path(), file.0.join("moved.db")).unwrap();
    file.open();
    tokio::time::sleep(Duration::from_millis(1_050)).await;
    let error = store.write_checkpoint(&scope(), advance(1)).await.unwrap_err();
    assert!(!error.is_transient());
    assert!(error.to_string().contains("removed or replaced"), "{error}");
}

#[tokio::test]
async fn dropping_the_last_handle_closes_the_database() {
    let file = File::new();
    let store = file.open();
    let clone = store.clone();
    store.write_checkpoint(&scope(), seal(1)).await.unwrap();
    drop(store);
    clone.write_checkpoint(&scope(), advance(9)).await.unwrap();
    drop(clone);
    // SQLite removes the log when the last connection is closed in good order.
    let left: Vec<_> = std::fs::read_dir(&file.0).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert_eq!(left, ["checkpoints.db"]);
    assert_eq!(file.open().checkpoints(&scope()).await.unwrap().len(), 1);
}
