//! The hub's log against the limits it is held to: durable append, time to acknowledgement, reading back, recovery.

mod load;

use std::path::Path;
use std::time::{Duration, Instant};

use partita_hub::log::{HubLog, Retention, Settings, Store};

use crate::directory::Directory;
use crate::plain::Plain;
use crate::report::{Figure, Section, Unit};
use crate::stats::Sample;
use load::{BATCH_EVENTS, EVENT_BYTES, OUTSTANDING, PRODUCERS, closed_loop, fill, paced, scan};

/// Of plain writes with the same durability, at least this share.
const SHARE_MIN: f64 = 0.6;
/// An acknowledgement at 250,000 events a second, p99.
const ACK_MS_MAX: f64 = 5.0;
/// Verified reading from the page cache, one core, in GB/s.
const READ_MIN: f64 = 1.0;
const RECOVERY_MS_MAX: f64 = 200.0;

const PARTITIONS: [u32; 3] = [1, 16, 1_024];

pub(crate) fn run(quick: bool) -> Section {
    let directory = Directory::new("log");
    let dir = directory.path();
    let plain = Plain::new(dir);
    let mut figures = Vec::new();
    let mut mode = String::new();
    for partitions in PARTITIONS {
        let (path, log) = open(dir, partitions, 512 << 20);
        mode = log.mode().to_string();
        // Until segments are recycled, as in a hub that has reached its retention.
        fill(&log, if quick { 100e6 } else { 900e6 });
        append(&log, &plain, quick, &mut figures);
        ack(&log, &plain, quick, &mut figures);
        log.close();
        let _ = std::fs::remove_dir_all(path);
    }
    for partitions in [1, 16] {
        let (path, log) = open(dir, partitions, 4 << 30);
        fill(&log, if quick { 100e6 } else { 400e6 });
        let cold = scan(&log, 0) / 1e9;
        let warm = Sample::new((0..5).map(|_| scan(&log, 0) / 1e9)).median();
        let what = |how| format!("{}: read back and verified, {how}", named(partitions));
        figures.push(Figure::floor(what("page cache"), Unit::GigabytesPerSecond, warm, READ_MIN));
        figures.push(Figure::plain(what("cold"), Unit::GigabytesPerSecond, cold));
        log.close();
        let _ = std::fs::remove_dir_all(path);
    }
    for partitions in [16, 1_024] {
        figures.push(recover(dir, partitions, quick));
    }
    Section {
        title: "Log",
        how: format!(
            "{mode} writes, every acknowledgement after the events are durable, checksums on. Append: {PRODUCERS} producers, batches of {BATCH_EVENTS} events of \
             {EVENT_BYTES} bytes, {OUTSTANDING} batches outstanding each; rounds alternate with rounds of plain 1 MiB writes, each with fdatasync, over an existing file of the \
             same disk; the share is the median of the rounds' ratios. Acknowledgement: one batch every {} us whatever was answered, from the moment it was due; the peer \
             is a single write of the same bytes to the plain file with its fdatasync, begun at the same pace. Recovery: until the hub takes events, nothing in the page cache, with the last \
             segment nearly full.",
            load::PACE.as_micros()
        ),
        figures,
    }
}

fn named(partitions: u32) -> String {
    if partitions == 1 { "1 partition".to_owned() } else { format!("{partitions} partitions") }
}

fn open(dir: &Path, partitions: u32, bytes_max: u64) -> (std::path::PathBuf, HubLog) {
    let path = dir.join(format!("hub-{partitions}"));
    let store = Store::open(&path).expect("a new directory");
    let (log, _) = store.open_hub(1, settings(partitions, bytes_max)).expect("a new hub");
    (path, log)
}

fn settings(partitions: u32, bytes_max: u64) -> Settings {
    let retention = Retention { bytes_max: Some(bytes_max), ..Retention::default() };
    Settings { retention, ..Settings::new(partitions) }
}

fn append(log: &HubLog, plain: &Plain, quick: bool, figures: &mut Vec<Figure>) {
    let rounds = if quick { 3 } else { 9 };
    let (mut shares, mut speeds, mut plains) = (Vec::new(), Vec::new(), Vec::new());
    for _ in 0..rounds {
        let base = plain.speed(Duration::from_millis(500));
        let speed = closed_loop(log, Duration::from_millis(700));
        shares.push(speed / base);
        speeds.push(speed / 1e9);
        plains.push(base / 1e9);
    }
    let [share, speed, base] = [shares, speeds, plains].map(|values| Sample::new(values).median());
    let name = named(log.partitions());
    figures.push(Figure::floor(
        format!("{name}: append, share of plain writes"),
        Unit::Share,
        share,
        SHARE_MIN,
    ));
    figures.push(Figure::peer(
        format!("{name}: append"),
        Unit::GigabytesPerSecond,
        speed,
        base,
        "1 MiB writes + fdatasync",
    ));
    let events = speed * 1e9 / EVENT_BYTES as f64 / 1e6;
    figures.push(Figure::plain(format!("{name}: append, events"), Unit::MillionsPerSecond, events));
}

fn ack(log: &HubLog, plain: &Plain, quick: bool, figures: &mut Vec<Figure>) {
    let batches = if quick { 2_500 } else { 12_500 };
    let bare = plain.paced(BATCH_EVENTS * EVENT_BYTES, load::PACE, batches);
    let took = paced(log, batches);
    let name = named(log.partitions());
    let what = |part: &str| format!("{name}: acknowledged at 250,000 events/s, {part}");
    let (p50, p99) = (took.percentile(50.0), took.percentile(99.0));
    let peer = "plain write + fdatasync";
    figures.push(Figure::peer(what("p50"), Unit::Milliseconds, p50, bare.percentile(50.0), peer));
    figures.push(Figure::limit(what("p99"), Unit::Milliseconds, p99, ACK_MS_MAX));
    figures.push(Figure::peer(what("p99 beside"), Unit::Milliseconds, p99, bare.percentile(99.0), peer));
}

fn recover(dir: &Path, partitions: u32, quick: bool) -> Figure {
    let bytes: u64 = if quick { 128 << 20 } else { 1 << 30 };
    let (path, log) = open(dir, partitions, 8 << 30);
    // Ends with the last segment nearly full: the longest scan.
    while log.size().1 < bytes + (64 << 20) {
        closed_loop(&log, Duration::from_millis(20));
    }
    let written = |log: &HubLog| -> u64 {
        (0..partitions).filter_map(|p| log.partition(p)).map(|p| p.next_offset).sum()
    };
    let rolled = written(&log);
    while written(&log) < rolled + (40 << 20) {
        closed_loop(&log, Duration::from_millis(2));
    }
    log.close();
    drop(log);
    let started = Instant::now();
    let store = Store::open(&path).expect("nobody has it");
    let (log, recovery) = store.open_hub(1, settings(partitions, 8 << 30)).expect("opens");
    let ms = started.elapsed().as_secs_f64() * 1e3;
    assert!(recovery.is_clean(), "{recovery}");
    let what = format!("{}: recovery of {} MiB", named(partitions), log.size().1 >> 20);
    log.close();
    let _ = std::fs::remove_dir_all(path);
    Figure::limit(what, Unit::Milliseconds, ms, RECOVERY_MS_MAX)
}
