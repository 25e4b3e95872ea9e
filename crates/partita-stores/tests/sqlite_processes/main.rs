//! Processors in processes of their own over one file: hand-offs, a `kill -9`, a process that is stopped and goes on.

#![cfg(all(unix, feature = "sqlite"))]

mod clockwork;
mod hammer;
mod worker;

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use partita_core::model::{
    Epoch, Incarnation, InstanceId, PartitionId, Position, Scope, SequenceNumber, Timestamp,
};
use partita_core::store::{CheckpointStore, InstanceRecord, InstanceState, InstanceWrite, MoveReason};
use partita_stores::sqlite::SqliteStore;

use hammer::Hammer;
use worker::{Handled, PARTITIONS, Place, TTL};

fn by_partition(handled: &[Handled]) -> BTreeMap<PartitionId, Vec<&Handled>> {
    let mut map = BTreeMap::<_, Vec<_>>::new();
    for one in handled {
        map.entry(one.partition.clone()).or_default().push(one);
    }
    map
}

fn shares(handled: &[Handled]) -> usize {
    by_partition(handled).len()
}

/// The last event of each partition is handled by one of them.
fn is_done(place: &Place, names: &[&str], events: i64) -> bool {
    let all: Vec<Handled> = names.iter().flat_map(|name| place.handled(name)).collect();
    let map = by_partition(&all);
    map.len() == PARTITIONS as usize
        && map.values().all(|events_of| events_of.iter().any(|one| one.sequence == events - 1))
}

/// Every event was handled, each worker went on without gaps within an epoch, and (partition, sequence) that were handled
/// more than once.
fn check(all: &[Handled], events: i64) -> Vec<(PartitionId, i64)> {
    let mut repeated = Vec::new();
    for (partition, handled) in by_partition(all) {
        let mut counts = vec![0; events as usize];
        let mut last = BTreeMap::new();
        for one in handled {
            counts[one.sequence as usize] += 1;
            let before = last.insert((one.epoch, one.by.clone()), one.sequence);
            assert!(before.is_none_or(|before| one.sequence == before + 1), "out of order: {one:?}");
        }
        for (sequence, count) in counts.into_iter().enumerate() {
            assert!(count > 0, "event {sequence} of partition {partition} was lost");
            if count > 1 {
                repeated.push((partition.clone(), sequence as i64));
            }
        }
    }
    repeated
}

async fn checkpoints_are_at(store: &SqliteStore, scope: &Scope, last: i64) {
    let stored = store.checkpoints(scope).await.unwrap();
    assert_eq!(stored.len(), PARTITIONS as usize);
    for record in stored {
        let resume = record.resume.map(|resume| resume.position());
        assert_eq!(resume, Some(Position::after_sequence(SequenceNumber(last))), "{}", record.partition);
    }
}

#[tokio::test]
async fn processes_hand_over_without_losing_or_repeating() {
    if worker::is_asked_for() {
        return worker::run();
    }
    const EVENTS: i64 = 2_500;
    let place = Place::new(EVENTS);
    let a = place.start("a");
    place.until("a handles all partitions", |place| shares(&place.handled("a")) == PARTITIONS as usize);
    let b = place.start("b");
    place.until("b gets its share", |place| shares(&place.handled("b")) == PARTITIONS as usize / 2);
    a.stop();
    place.until("b finishes", |place| is_done(place, &["a", "b"], EVENTS));
    b.stop();
    let all = [place.handled("a"), place.handled("b")].concat();
    assert_eq!(check(&all, EVENTS), [], "planned moves repeat nothing");

    let (store, scope) = (place.store(), place.scope());
    checkpoints_are_at(&store, &scope, EVENTS - 1).await;
    let moves = store.moves(&scope).await.unwrap();
    let handed = moves.iter().filter(|moved| moved.reason == MoveReason::HandedOff).count();
    assert_eq!(handed, PARTITIONS as usize / 2, "{moves:?}");
    assert!(
        store.view(&scope).await.unwrap().instances.iter().all(|i| i.record.state == InstanceState::Dead)
    );
}

#[tokio::test]
async fn a_killed_process_is_followed_by_the_other() {
    const EVENTS: i64 = 3_000;
    let place = Place::new(EVENTS);
    let (a, b) = (place.start("a"), place.start("b"));
    let half = PARTITIONS as usize / 2;
    place.until("both have a share", |place| {
        shares(&place.handled("a")) >= half && shares(&place.handled("b")) >= half
    });
    std::thread::sleep(Duration::from_millis(700));
    let (store, scope) = (place.store(), place.scope());
    a.kill();
    let killed = Instant::now();
    let before = store.checkpoints(&scope).await.unwrap();
    let by_a = place.handled("a");
    place.until("b has all of a's partitions", |place| shares(&place.handled("b")) == PARTITIONS as usize);
    let took = killed.elapsed();
    assert!(took < TTL + Duration::from_secs(3), "the failover took {took:?}");
    place.until("b finishes", |place| is_done(place, &["a", "b"], EVENTS));
    b.stop();

    let by_b = place.handled("b");
    let repeated = check(&[by_a.clone(), by_b.clone()].concat(), EVENTS);
    // What a had handled and not yet checkpointed, and nothing else.
    for (partition, sequence) in repeated {
        let record = before.iter().find(|record| record.partition == partition).unwrap();
        let resume = record.resume.as_ref().map_or(Position::Earliest, |resume| resume.position());
        let checkpointed = match resume {
            Position::Sequence { sequence, inclusive: false } => sequence.0,
            _ => -1,
        };
        assert!(sequence > checkpointed, "event {sequence} of {partition} was checkpointed and is repeated");
    }
    checkpoints_are_at(&store, &scope, EVENTS - 1).await;
}

/// Whether a write of somebody else goes through.
async fn can_write(store: &SqliteStore, scope: &Scope) -> bool {
    let scope = Scope { group: "somebody else".into(), ..scope.clone() };
    let record = InstanceRecord {
        incarnation: Incarnation::new(InstanceId::new("other"), fastrand::u128(..)),
        host: "".into(),
        started: Timestamp(0),
        stopping: false,
        ttl: std::time::Duration::from_secs(5),
        declines: Vec::new(),
        state: InstanceState::Live,
        beat: 0,
        details: Default::default(),
    };
    store.write_instance(&scope, InstanceWrite::Register(record)).await.is_ok()
}

#[tokio::test]
async fn a_stopped_process_holds_up_nobody_and_does_no_harm_later() {
    const EVENTS: i64 = 4_000;
    let place = Place::new(EVENTS);
    let (a, b) = (place.start("a"), place.start("b"));
    let half = PARTITIONS as usize / 2;
    place.until("both have a share", |place| {
        shares(&place.handled("a")) >= half && shares(&place.handled("b")) >= half
    });
    let (store, scope) = (place.store(), place.scope());
    // Stopped within a transaction it would hold up everybody: nothing can be done about that here, but to try again.
    loop {
        a.signal("STOP");
        if can_write(&store, &scope).await {
            break;
        }
        a.signal("CONT");
        std::thread::sleep(Duration::from_millis(7));
    }
    place.until("b takes over", |place| shares(&place.handled("b")) == PARTITIONS as usize);
    let epochs: BTreeMap<PartitionId, Epoch> =
        store.view(&scope).await.unwrap().ownerships.into_iter().map(|o| (o.partition, o.epoch)).collect();
    let at_stop = place.handled("a").len();
    a.signal("CONT");
    place.until("they finish", |place| is_done(place, &["a", "b"], EVENTS));
    a.stop();
    b.stop();
    let by_a = place.handled("a");
    let all = [by_a.clone(), place.handled("b")].concat();
    check(&all, EVENTS);
    // The call in progress of each partition may end; none is started under the old epoch.
    let late = by_a[at_stop..].iter().filter(|one| Epoch(one.epoch) < epochs[&one.partition]).count();
    assert!(late <= PARTITIONS as usize, "{late} calls of a former owner");
    checkpoints_are_at(&store, &scope, EVENTS - 1).await;
}

#[tokio::test]
async fn what_was_acknowledged_survives_a_kill_at_any_moment() {
    if hammer::is_asked_for() {
        return hammer::run().await;
    }
    let rounds = if std::env::var_os("PARTITA_LONG").is_some_and(|long| long == "1") { 50 } else { 8 };
    let place = Place::new(0);
    let mut from = 0;
    for round in 0..rounds {
        let mut hammer = Hammer::start(place.store().path(), from);
        let mut last = hammer.next().expect("it begins");
        std::thread::sleep(Duration::from_micros(fastrand::u64(0..60_000)));
        last = hammer.kill().unwrap_or(last);
        // A store that is opened now neither waits for the dead nor misses what it was told.
        let started = Instant::now();
        let record = place.store().checkpoints(&hammer::scope()).await.unwrap().remove(0);
        assert!(started.elapsed() < Duration::from_secs(1), "{:?}", started.elapsed());
        let Some(Position::Sequence { sequence: SequenceNumber(stored), .. }) =
            record.resume.map(|resume| resume.position())
        else {
            panic!("round {round}: the position is gone");
        };
        // One more may have been written and not yet told.
        assert!((last..=last + 1).contains(&stored), "round {round}: {last} was told, {stored} is there");
        from = stored;
    }
}

/// As when a process is stopped within a transaction: nobody can write for longer than a ttl.
#[tokio::test]
async fn a_lock_held_for_longer_than_a_ttl_moves_nothing() {
    const EVENTS: i64 = 4_000;
    let place = Place::new(EVENTS);
    let (a, b) = (place.start("a"), place.start("b"));
    let (store, scope) = (place.store(), place.scope());
    let half = PARTITIONS as usize / 2;
    place.until("both have a share", |place| {
        shares(&place.handled("a")) >= half && shares(&place.handled("b")) >= half
    });
    let mut moves = store.moves(&scope).await.unwrap();
    loop {
        std::thread::sleep(TTL / 2);
        let again = store.moves(&scope).await.unwrap();
        if again == moves {
            break;
        }
        moves = again;
    }
    assert!(!is_done(&place, &["a", "b"], EVENTS), "there must be something left to do");
    let other = rusqlite::Connection::open(store.path()).unwrap();
    other.busy_timeout(Duration::from_secs(5)).unwrap();
    other.execute_batch("BEGIN IMMEDIATE").unwrap();
    std::thread::sleep(TTL + Duration::from_secs(1));
    other.execute_batch("ROLLBACK").unwrap();
    place.until("they finish", |place| is_done(place, &["a", "b"], EVENTS));
    assert_eq!(store.moves(&scope).await.unwrap(), moves, "nothing moved");
    a.stop();
    b.stop();
    let all = [place.handled("a"), place.handled("b")].concat();
    assert_eq!(check(&all, EVENTS), [], "and nothing was handled twice");
}
