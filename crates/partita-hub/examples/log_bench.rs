//! Measures the log against the limits it is held to, each beside its limit:
//!
//! - durable append as a share of plain 1 MiB writes + fdatasync to an existing file, alternated in the same run;
//! - time to acknowledgement at 250,000 events a second, from the moment each batch was due;
//! - verified reading back, and recovery of 1 GiB.
//!
//! `cargo run --release -p partita-hub --example log_bench -- [directory] [append|ack|read|recover]...`
#![allow(clippy::print_stdout)]

use std::fs::{File, OpenOptions};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use hdrhistogram::Histogram;
use partita_hub::log::{
    Ack, AckSink, BatchBuilder, EncodedBatch, HubLog, LogPosition, Retention, Settings, Store, StoredBatch,
};

const EVENT: usize = 256;
const EVENTS: usize = 100;
const PRODUCERS: usize = 8;
/// Batches each producer has outstanding: about 3.3 MB in all.
const OUTSTANDING: usize = 16;
const PARTITIONS: [u32; 3] = [1, 16, 1_024];

type AnyError = Box<dyn std::error::Error>;

fn main() -> Result<(), AnyError> {
    let mut args = std::env::args().skip(1);
    let dir = args.next().map_or_else(|| std::env::temp_dir().join("partita-log-bench"), PathBuf::from);
    let parts: Vec<String> = args.collect();
    let wanted = |part: &str| parts.is_empty() || parts.iter().any(|p| p == part);
    let _ = std::fs::remove_dir_all(&dir);
    std::fs::create_dir_all(&dir)?;
    if wanted("append") {
        append(&dir)?;
    }
    if wanted("ack") {
        ack(&dir)?;
    }
    if wanted("read") {
        read(&dir)?;
    }
    if wanted("recover") {
        recover(&dir)?;
    }
    std::fs::remove_dir_all(&dir)?;
    Ok(())
}

/// A hub whose old segments are recycled: the steady state of one that has reached its retention.
fn settings(partitions: u32, bytes_max: u64) -> Settings {
    let retention = Retention { bytes_max: Some(bytes_max), ..Retention::default() };
    Settings { retention, ..Settings::new(partitions) }
}

fn batch(fill: u8) -> EncodedBatch {
    let mut builder = BatchBuilder::with_capacity(EVENTS, EVENTS * EVENT);
    for _ in 0..EVENTS {
        builder.push(&[fill; EVENT]);
    }
    builder.finish().expect("events are not empty")
}

/// Counts what is outstanding and notes how long each batch took.
struct Window {
    free: Mutex<usize>,
    changed: Condvar,
    done: AtomicU64,
    started: Instant,
    latency_us: Mutex<Histogram<u64>>,
    failed: AtomicU64,
}

impl Window {
    fn new(free: usize) -> Arc<Self> {
        Arc::new(Self {
            free: Mutex::new(free),
            changed: Condvar::new(),
            done: AtomicU64::new(0),
            started: Instant::now(),
            latency_us: Mutex::new(Histogram::new_with_bounds(1, 60_000_000, 3).expect("valid bounds")),
            failed: AtomicU64::new(0),
        })
    }

    fn take(&self) {
        let mut free = self.free.lock().expect("unpoisoned");
        while *free == 0 {
            free = self.changed.wait(free).expect("unpoisoned");
        }
        *free -= 1;
    }
}

impl AckSink for Window {
    fn acked(&self, acks: &[Ack]) {
        let now = self.started.elapsed().as_nanos() as u64;
        let mut latency = self.latency_us.lock().expect("unpoisoned");
        for ack in acks {
            if let Err(error) = &ack.outcome {
                println!("not acknowledged: {error}");
                self.failed.fetch_add(1, Ordering::Relaxed);
            }
            // The token is when the batch was due.
            latency.saturating_record(now.saturating_sub(ack.token) / 1_000);
        }
        drop(latency);
        self.done.fetch_add(acks.len() as u64, Ordering::Relaxed);
        *self.free.lock().expect("unpoisoned") += acks.len();
        self.changed.notify_one();
    }
}

/// Bytes of events per second that producers get acknowledged.
fn closed_loop(log: &HubLog, time: Duration) -> f64 {
    let started = Instant::now();
    let bytes: u64 = thread::scope(|scope| {
        let producers: Vec<_> = (0..PRODUCERS)
            .map(|producer| {
                scope.spawn(move || {
                    let window = Window::new(OUTSTANDING);
                    let sink: Arc<dyn AckSink> = window.clone();
                    let mut partition = producer as u32;
                    while started.elapsed() < time {
                        window.take();
                        let token = window.started.elapsed().as_nanos() as u64;
                        partition = (partition + PRODUCERS as u32) % log.partitions();
                        log.append_waiting(partition, batch(producer as u8), token, &sink).expect("queued");
                    }
                    for _ in 0..OUTSTANDING {
                        window.take();
                    }
                    assert_eq!(window.failed.load(Ordering::Relaxed), 0);
                    window.done.load(Ordering::Relaxed) * (EVENTS * EVENT) as u64
                })
            })
            .collect();
        producers.into_iter().map(|producer| producer.join().expect("no panic")).sum()
    });
    bytes as f64 / started.elapsed().as_secs_f64()
}

/// Bytes per second of plain 1 MiB writes, each made durable, over a file that exists.
fn plain(file: &File, time: Duration) -> Result<f64, AnyError> {
    const LEN: u64 = 256 << 20;
    let block = vec![7; 1 << 20];
    if file.metadata()?.len() < LEN {
        for pos in (0..LEN).step_by(block.len()) {
            file.write_all_at(&block, pos)?;
        }
        file.sync_all()?;
    }
    let (started, mut written) = (Instant::now(), 0);
    while started.elapsed() < time {
        file.write_all_at(&block, written % LEN)?;
        file.sync_data()?;
        written += block.len() as u64;
    }
    Ok(written as f64 / started.elapsed().as_secs_f64())
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

fn append(dir: &Path) -> Result<(), AnyError> {
    println!(
        "durable append, {PRODUCERS} producers, {EVENTS} x {EVENT} B, {OUTSTANDING} batches outstanding each"
    );
    let file =
        OpenOptions::new().read(true).write(true).create(true).truncate(false).open(dir.join("plain"))?;
    plain(&file, Duration::from_millis(200))?;
    for partitions in PARTITIONS {
        let store = Store::open(dir.join(format!("append-{partitions}")))?;
        let (log, _) = store.open_hub(1, settings(partitions, 512 << 20))?;
        // Until segments are recycled.
        let mut warm = 0.0;
        while warm < 900e6 {
            warm += closed_loop(&log, Duration::from_millis(300)) * 0.3;
        }
        let (mut ratios, mut speeds, mut plains) = (Vec::new(), Vec::new(), Vec::new());
        for _ in 0..5 {
            let base = plain(&file, Duration::from_millis(500))?;
            let speed = closed_loop(&log, Duration::from_millis(700));
            ratios.push(speed / base);
            speeds.push(speed);
            plains.push(base);
        }
        let (ratio, speed, base) = (median(ratios), median(speeds), median(plains));
        println!(
            "  {partitions:5} partitions: {:5.0} MB/s of events, plain {:5.0} MB/s, ratio {ratio:.2} (limit 0.60), {:.1} M events/s, {} writes",
            speed / 1e6,
            base / 1e6,
            speed / EVENT as f64 / 1e6,
            log.mode(),
        );
    }
    std::fs::remove_file(dir.join("plain"))?;
    Ok(())
}

fn ack(dir: &Path) -> Result<(), AnyError> {
    println!("time to acknowledgement at 250,000 events/s, batches of {EVENTS}");
    for partitions in PARTITIONS {
        let store = Store::open(dir.join(format!("ack-{partitions}")))?;
        let (log, _) = store.open_hub(1, settings(partitions, 256 << 20))?;
        let mut warm = 0.0;
        while warm < 400e6 {
            warm += closed_loop(&log, Duration::from_millis(200)) * 0.2;
        }
        let window = Window::new(0);
        let sink: Arc<dyn AckSink> = window.clone();
        let every = Duration::from_micros(400);
        let count = 7_500_u64;
        for i in 0..count {
            let due = every * i as u32;
            while let Some(left) = due.checked_sub(window.started.elapsed()) {
                thread::sleep(left);
            }
            log.append_waiting((i % u64::from(partitions)) as u32, batch(1), due.as_nanos() as u64, &sink)?;
        }
        while window.done.load(Ordering::Relaxed) < count {
            thread::sleep(Duration::from_millis(1));
        }
        let latency = window.latency_us.lock().expect("unpoisoned");
        let us = |quantile| latency.value_at_quantile(quantile) as f64 / 1_000.0;
        println!(
            "  {partitions:5} partitions: p50 {:.2} ms, p99 {:.2} ms (limit 5), max {:.2} ms",
            us(0.5),
            us(0.99),
            latency.max() as f64 / 1_000.0
        );
    }
    Ok(())
}

/// Reads a partition from its start; bytes of events and seconds.
fn scan(log: &HubLog, partition: u32) -> Result<(u64, f64), AnyError> {
    let mut reader = log.reader(partition, LogPosition::Earliest)?;
    let end = log.partition(partition).map_or(0, |info| info.next_seq);
    let (started, mut bytes, mut sum) = (Instant::now(), 0, 0_u64);
    let mut batches: Vec<StoredBatch> = Vec::new();
    while reader.next_seq() < end {
        batches.clear();
        reader.read(1 << 20, &mut batches)?;
        for event in batches.iter().flat_map(StoredBatch::events) {
            bytes += event.data.len() as u64;
            sum += u64::from(event.data[0]);
        }
    }
    std::hint::black_box(sum);
    Ok((bytes, started.elapsed().as_secs_f64()))
}

fn read(dir: &Path) -> Result<(), AnyError> {
    println!("reading back one partition, verified, one thread");
    for partitions in [1, 16] {
        let store = Store::open(dir.join(format!("read-{partitions}")))?;
        let (log, _) = store.open_hub(1, settings(partitions, 4 << 30))?;
        let mut written = 0.0;
        while written < 400e6 {
            written += closed_loop(&log, Duration::from_millis(200)) * 0.2;
        }
        let (bytes, cold) = scan(&log, 0)?;
        let warm =
            (0..3).map(|_| scan(&log, 0).map(|(_, seconds)| seconds)).collect::<Result<Vec<_>, _>>()?;
        let rate = |seconds: f64| bytes as f64 / seconds / 1e9;
        println!(
            "  {partitions:5} partitions: {:.1} GB/s from page cache (limit 1.0), {:.1} GB/s cold, {} MB",
            rate(median(warm)),
            rate(cold),
            bytes / 1_000_000
        );
    }
    Ok(())
}

fn recover(dir: &Path) -> Result<(), AnyError> {
    println!("recovery of 1 GiB, cold: direct writes leave nothing in the page cache");
    for partitions in [16, 1_024] {
        let path = dir.join(format!("recover-{partitions}"));
        let store = Store::open(&path)?;
        let (log, _) = store.open_hub(1, settings(partitions, 8 << 30))?;
        // Stop with the last segment nearly full: the longest scan.
        while log.size().1 < (1 << 30) + (64 << 20) {
            closed_loop(&log, Duration::from_millis(20));
        }
        let written = |log: &HubLog| -> u64 {
            (0..partitions).filter_map(|p| log.partition(p)).map(|p| p.next_offset).sum()
        };
        let rolled = written(&log);
        while written(&log) < rolled + (40 << 20) {
            closed_loop(&log, Duration::from_millis(2));
        }
        drop(log);
        drop(store);
        let started = Instant::now();
        let store = Store::open(&path)?;
        let (log, recovery) = store.open_hub(1, settings(partitions, 8 << 30))?;
        let ms = started.elapsed().as_secs_f64() * 1e3;
        println!(
            "  {partitions:5} partitions: {ms:.0} ms (limit 200), {} MiB, {} groups scanned, clean: {}",
            log.size().1 >> 20,
            recovery.groups,
            recovery.is_clean()
        );
    }
    Ok(())
}
