//! The running log on a real file system: threads, direct writes, readers that wait, and processes that are killed.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Write};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use partita_hub::log::{
    Ack, AckSink, AppendError, Durability, EncodedBatch, HubLog, LogPosition, OpenError, ReadError,
    Retention, Settings, Store, StoredBatch, WriteMode,
};

fn batch(texts: &[String]) -> EncodedBatch {
    EncodedBatch::of(texts).expect("valid")
}

fn read_all(log: &HubLog, partition: u32) -> Vec<String> {
    let mut reader = log.reader(partition, LogPosition::Earliest).expect("reader");
    let mut batches: Vec<StoredBatch> = Vec::new();
    let end = log.partition(partition).expect("there").next_seq;
    while reader.next_seq() < end {
        reader.read(1 << 20, &mut batches).expect("read");
    }
    let events = batches.iter().flat_map(StoredBatch::events);
    events.map(|event| String::from_utf8(event.data.to_vec()).expect("text")).collect()
}

#[derive(Default)]
struct Counter {
    done: AtomicU64,
    failed: AtomicU64,
    calls: AtomicU64,
    last_token: Mutex<BTreeMap<u32, u64>>,
}

impl AckSink for Counter {
    fn acked(&self, acks: &[Ack]) {
        self.calls.fetch_add(1, Ordering::Relaxed);
        for ack in acks {
            match &ack.outcome {
                Ok(placed) => {
                    let mut last = self.last_token.lock().expect("unpoisoned");
                    let before = last.insert(placed.partition, ack.token);
                    assert!(before.is_none_or(|before| before < ack.token), "acknowledged out of order");
                    self.done.fetch_add(1, Ordering::SeqCst);
                }
                Err(_) => {
                    self.failed.fetch_add(1, Ordering::SeqCst);
                }
            }
        }
    }
}

/// The segments of a store's only hub, the newest last.
fn segments(data: &std::path::Path) -> Vec<std::path::PathBuf> {
    let hubs = std::fs::read_dir(data.join("hubs")).expect("listed");
    let hub = hubs.map(|entry| entry.expect("an entry").path()).next().expect("a hub");
    let files = std::fs::read_dir(hub).expect("listed").map(|entry| entry.expect("an entry").path());
    let mut segments: Vec<_> = files.filter(|path| path.extension().is_some_and(|e| e == "seg")).collect();
    segments.sort();
    segments
}

#[test]
fn a_segment_file_that_became_huge_is_read_as_far_as_it_was_ours() {
    let dir = tempfile::tempdir().expect("dir");
    let data = dir.path().join("data");
    let texts: Vec<String> = (0..100).map(|n| format!("event {n}")).collect();
    for damaged in [false, true] {
        let store = Store::open(&data).expect("opens");
        let (log, _) = store.open_hub(1, Settings::new(1)).expect("opens");
        if !damaged {
            log.append_and_wait(0, batch(&texts)).expect("appended");
        }
        drop((log, store));
        let newest = segments(&data).pop().expect("a segment");
        let file = std::fs::OpenOptions::new().write(true).open(&newest).expect("opens");
        file.set_len(1 << 40).expect("a sparse file");
        if damaged {
            // Its header is lost, too, so that nothing says how long it was.
            (&file).write_all(&[0; 64]).expect("written");
        }
        let store = Store::open(&data).expect("opens");
        let (log, recovery) = store.open_hub(1, Settings::new(1)).expect("opens");
        assert_eq!(recovery.is_clean(), !damaged);
        assert_eq!(read_all(&log, 0), texts);
    }
}

#[cfg(unix)]
#[test]
fn other_users_do_not_see_into_a_store() {
    use std::os::unix::fs::PermissionsExt as _;
    let dir = tempfile::tempdir().expect("dir");
    let data = dir.path().join("new/data");
    let store = Store::open(&data).expect("opens");
    drop(store.open_hub(1, Settings::new(1)).expect("opens"));
    for made in [dir.path().join("new"), data.clone(), data.join("hubs")] {
        let mode = std::fs::metadata(&made).expect("there").permissions().mode();
        assert_eq!(mode & 0o777, 0o700, "{}", made.display());
    }
}

#[test]
fn producers_and_waiting_readers_meet_in_order() {
    let dir = tempfile::tempdir().expect("dir");
    let store = Store::open(dir.path().join("data")).expect("opens");
    let (log, recovery) = store.open_hub(1, Settings::new(4)).expect("opens");
    assert!(recovery.is_clean());
    let log = Arc::new(log);
    let readers: Vec<_> = (0..4)
        .map(|partition| {
            let log = log.clone();
            thread::spawn(move || {
                let mut reader = log.reader(partition, LogPosition::Earliest).expect("reader");
                let mut seen = 0_u64;
                let mut batches = Vec::new();
                while seen < 4_000 {
                    assert!(reader.wait(Duration::from_secs(20)), "events come");
                    batches.clear();
                    reader.read(64 << 10, &mut batches).expect("read");
                    for event in batches.iter().flat_map(StoredBatch::events) {
                        assert_eq!(event.seq, seen);
                        let text = std::str::from_utf8(event.data).expect("text");
                        assert!(text.starts_with(&format!("p{partition} ")), "{text}");
                        seen += 1;
                    }
                }
            })
        })
        .collect();
    let producers: Vec<_> = (0..4)
        .map(|partition| {
            let log = log.clone();
            thread::spawn(move || {
                let counter = Arc::new(Counter::default());
                let sink: Arc<dyn AckSink> = counter.clone();
                for token in 0..400 {
                    let texts: Vec<_> =
                        (0..10).map(|i| format!("p{partition} {token} {i} {}", "x".repeat(300))).collect();
                    log.append_waiting(partition, batch(&texts), token, &sink).expect("queued");
                }
                while counter.done.load(Ordering::SeqCst) < 400 {
                    thread::sleep(Duration::from_millis(1));
                }
                assert_eq!(counter.failed.load(Ordering::SeqCst), 0);
                assert!(counter.calls.load(Ordering::Relaxed) <= 400);
            })
        })
        .collect();
    for thread in producers.into_iter().chain(readers) {
        thread.join().expect("no panic");
    }
    let before: Vec<_> = (0..4).map(|p| read_all(&log, p)).collect();
    Arc::into_inner(log).expect("last").close();
    let (log, recovery) = store.open_hub(1, Settings::new(4)).expect("opens again");
    assert!(recovery.is_clean() && recovery.torn_bytes == 0, "{recovery}");
    let after: Vec<_> = (0..4).map(|p| read_all(&log, p)).collect();
    assert_eq!(before, after);
}

/// The page cache must not show a reader an old version of a block that a direct write has replaced.
#[test]
fn readers_of_the_active_segment_see_what_was_written_whatever_the_page_cache_held() {
    let dir = tempfile::tempdir().expect("dir");
    let store = Store::open(dir.path()).expect("opens");
    let settings = Settings { tail_bytes_max: 32 << 10, batch_bytes_max: 32 << 10, ..Settings::new(2) };
    let (log, _) = store.open_hub(1, settings).expect("opens");
    const BATCHES: u64 = 3_000;
    let log = &log;
    thread::scope(|scope| {
        for chunk in [1, 4 << 10, 40 << 10, 300 << 10] {
            scope.spawn(move || {
                let mut reader = log.reader(0, LogPosition::Earliest).expect("reader");
                let mut batches = Vec::new();
                while reader.next_seq() < BATCHES * 3 {
                    assert!(reader.wait(Duration::from_secs(20)));
                    batches.clear();
                    let from = reader.next_seq();
                    reader.read(chunk, &mut batches).expect("nothing is damaged");
                    for (event, seq) in batches.iter().flat_map(StoredBatch::events).zip(from..) {
                        assert_eq!(event.seq, seq);
                        assert!(event.data.starts_with(format!("{seq} ").as_bytes()));
                    }
                }
            });
        }
        for i in 0..BATCHES {
            let texts: Vec<_> = (i * 3..i * 3 + 3)
                .map(|seq| format!("{seq} {}", "r".repeat((seq * 61 % 700) as usize)))
                .collect();
            log.append_and_wait(0, batch(&texts)).expect("durable");
        }
    });
    assert_eq!(log.damage(), []);
}

#[test]
fn direct_and_buffered_logs_are_the_same_format() {
    let dir = tempfile::tempdir().expect("dir");
    let store = Store::open(dir.path()).expect("opens");
    let buffered = Settings { buffered: true, ..Settings::new(1) };
    let mut wanted = Vec::new();
    for round in 0..4 {
        let settings = if round % 2 == 0 { Settings::new(1) } else { buffered.clone() };
        let (log, _) = store.open_hub(1, settings).expect("opens");
        for i in 0..20 {
            let text = format!("{round}.{i}");
            log.append_and_wait(0, batch(std::slice::from_ref(&text))).expect("durable");
            wanted.push(text);
        }
        assert_eq!(read_all(&log, 0), wanted);
    }
}

#[test]
fn readers_outlive_recycled_segments_and_are_told_what_is_gone() {
    let dir = tempfile::tempdir().expect("dir");
    let store = Store::open(dir.path()).expect("opens");
    let retention = Retention { bytes_max: Some(1 << 20), ..Retention::default() };
    let settings = Settings {
        segment_bytes_first: 128 << 10,
        segment_bytes_max: 128 << 10,
        batch_bytes_max: 32 << 10,
        tail_bytes_max: 64 << 10,
        retention,
        ..Settings::new(2)
    };
    let (log, _) = store.open_hub(1, settings).expect("opens");
    let mut slow = log.reader(0, LogPosition::Earliest).expect("reader");
    let mut gone = 0;
    for i in 0..2_000 {
        let texts: Vec<_> = (0..10).map(|k| format!("{i}.{k} {}", "w".repeat(400))).collect();
        log.append_and_wait(i % 2, batch(&texts)).expect("durable");
        if i % 7 == 0 {
            let mut batches = Vec::new();
            let from = slow.next_seq();
            match slow.read(2 << 10, &mut batches) {
                Ok(()) => {
                    let first = batches.iter().flat_map(StoredBatch::events).next();
                    assert_eq!(first.map(|event| event.seq), Some(from));
                    let text = String::from_utf8(first.expect("some").data.to_vec()).expect("text");
                    assert!(text.starts_with(&format!("{}.{} ", from / 10 * 2, from % 10)), "{from}: {text}");
                }
                Err(ReadError::Gone { first, .. }) => {
                    gone += 1;
                    slow.seek(first);
                }
                Err(error) => panic!("{error}"),
            }
        }
    }
    assert!(gone > 0, "the slow reader was overtaken");
    let (segments, bytes) = log.size();
    assert!(bytes <= (1 << 20) + (256 << 10), "{segments} segments, {bytes} bytes");
}

#[test]
fn limits_are_told_before_anything_is_queued() {
    let dir = tempfile::tempdir().expect("dir");
    let store = Store::open(dir.path()).expect("opens");
    let settings = Settings { batch_bytes_max: 1_000, ..Settings::new(2) };
    let (log, _) = store.open_hub(1, settings).expect("opens");
    let small = batch(&["a".to_owned()]);
    assert_eq!(
        log.append_and_wait(2, small.clone()),
        Err(AppendError::NoPartition { partition: 2, partitions: 2 })
    );
    let large = log.append_and_wait(0, batch(&["b".repeat(2_000)]));
    assert!(matches!(large, Err(AppendError::TooLarge { max: 1_000, .. })), "{large:?}");
    assert!(store.open_hub(2, Settings::new(0)).is_err() && store.open_hub(2, Settings::new(1_025)).is_err());
    assert_eq!(log.append_and_wait(0, small).expect("durable").first_seq, 0);
}

#[test]
fn a_second_process_is_refused_and_a_read_only_place_too() {
    let dir = tempfile::tempdir().expect("dir");
    let store = Store::open(dir.path()).expect("opens");
    // A second open file is a second holder, as another process would be.
    let error = Store::open(dir.path()).expect_err("in use");
    assert!(matches!(error, OpenError::InUse { .. }), "{error}");
    let (log, _) = store.open_hub(1, Settings::new(1)).expect("opens");
    drop(store);
    assert!(
        matches!(Store::open(dir.path()), Err(OpenError::InUse { .. })),
        "a log keeps the directory locked"
    );
    log.close();
    Store::open(dir.path()).expect("free again");
    let error = Store::open("/proc/partita").expect_err("read-only").to_string();
    assert!(error.contains("/proc"), "{error}");
}

#[test]
fn a_closed_log_ends_its_readers_after_the_last_event() {
    let dir = tempfile::tempdir().expect("dir");
    let store = Store::open(dir.path()).expect("opens");
    let (log, _) = store.open_hub(1, Settings::new(1)).expect("opens");
    let mut reader = log.reader(0, LogPosition::Latest).expect("reader");
    let waiter = thread::spawn(move || {
        assert!(reader.wait(Duration::from_secs(20)));
        let mut batches = Vec::new();
        reader.read(1_000, &mut batches).expect("the event");
        assert_eq!(batches.len(), 1);
        assert!(reader.wait(Duration::from_secs(20)));
        assert!(matches!(reader.read(1_000, &mut batches), Err(ReadError::Closed)));
    });
    log.append_and_wait(0, batch(&["last".to_owned()])).expect("durable");
    log.close();
    waiter.join().expect("no panic");
}

#[test]
fn relaxed_logs_acknowledge_before_the_sync_and_close_durably() {
    let dir = tempfile::tempdir().expect("dir");
    let store = Store::open(dir.path()).expect("opens");
    for durability in [Durability::Interval(Duration::from_millis(5)), Durability::Never] {
        let settings = Settings { durability, ..Settings::new(1) };
        let (log, recovery) = store.open_hub(1, settings).expect("opens");
        assert_eq!((recovery.torn_bytes, log.mode()), (0, WriteMode::Buffered));
        for i in 0..50 {
            log.append_and_wait(0, batch(&[format!("{durability:?} {i}")])).expect("accepted");
        }
    }
    let (log, _) = store.open_hub(1, Settings::new(1)).expect("opens");
    assert_eq!(read_all(&log, 0).len(), 100);
}

/// Names the directory to write in, when this binary is its own child.
const CHILD: &str = "PARTITA_HUB_LOG_CHILD";

/// The process that is killed: writes until then and says what was acknowledged.
fn write_until_killed(dir: &std::ffi::OsStr) {
    let store = Store::open(dir).expect("opens");
    let settings = Settings { segment_bytes_first: 256 << 10, batch_bytes_max: 64 << 10, ..Settings::new(3) };
    let (log, recovery) = store.open_hub(1, settings).expect("opens");
    assert!(recovery.is_clean(), "{recovery}");
    let log = Arc::new(log);
    let writers: Vec<_> = (0..3)
        .map(|partition| {
            let log = log.clone();
            thread::spawn(move || {
                loop {
                    let texts: Vec<_> = (0..fastrand::usize(1..20))
                        .map(|_| format!("{:016x} {}", fastrand::u64(..), "k".repeat(fastrand::usize(..600))))
                        .collect();
                    let placed = log.append_and_wait(partition, batch(&texts)).expect("durable");
                    let mut out = String::new();
                    for (seq, text) in (placed.first_seq..).zip(&texts) {
                        out += &format!("ack {partition} {seq} {}\n", &text[..16]);
                    }
                    std::io::stdout().lock().write_all(out.as_bytes()).expect("pipe");
                }
            })
        })
        .collect();
    writers.into_iter().for_each(|writer| writer.join().expect("never"));
}

#[test]
fn nothing_acknowledged_is_lost_when_the_process_is_killed() {
    if let Some(dir) = std::env::var_os(CHILD) {
        return write_until_killed(&dir);
    }
    let kills = if std::env::var("PARTITA_LONG").is_ok_and(|long| long == "1") { 50 } else { 8 };
    let dir = tempfile::tempdir().expect("dir");
    let mut acknowledged: BTreeMap<(u32, u64), String> = BTreeMap::new();
    for kill in 0..kills {
        let mut child = Command::new(std::env::current_exe().expect("exe"))
            .args(["--exact", "nothing_acknowledged_is_lost_when_the_process_is_killed", "--nocapture"])
            .env(CHILD, dir.path())
            .stdout(Stdio::piped())
            .spawn()
            .expect("started");
        let lines = BufReader::new(child.stdout.take().expect("piped")).lines();
        let reader = thread::spawn(move || lines.map_while(Result::ok).collect::<Vec<_>>());
        thread::sleep(Duration::from_millis(60 + kill * 37 % 200));
        child.kill().expect("killed");
        child.wait().expect("ended");
        for line in reader.join().expect("read") {
            let mut words = line.split_whitespace().skip_while(|word| *word != "ack");
            if let (Some(_), Some(partition), Some(seq), Some(text)) =
                (words.next(), words.next(), words.next(), words.next())
            {
                // The last line may be cut.
                if text.len() == 16 {
                    let place = (partition.parse().expect("number"), seq.parse().expect("number"));
                    let before = acknowledged.insert(place, text.to_owned());
                    assert_eq!(before, None, "a number was given twice");
                }
            }
        }
        let store = Store::open(dir.path()).expect("opens");
        let (log, recovery) = store.open_hub(1, Settings::new(3)).expect("opens");
        assert!(recovery.is_clean(), "{recovery}");
        for partition in 0..3 {
            let events = read_all(&log, partition);
            for ((_, seq), text) in acknowledged.range((partition, 0)..(partition, u64::MAX)) {
                assert_eq!(events.get(*seq as usize).map(|event| &event[..16]), Some(text.as_str()));
            }
        }
    }
    assert!(acknowledged.len() > 100, "{} events were acknowledged", acknowledged.len());
    let line = format!("counted: {kills} kills, {} events acknowledged, all there\n", acknowledged.len());
    std::io::stderr().write_all(line.as_bytes()).expect("stderr");
}
