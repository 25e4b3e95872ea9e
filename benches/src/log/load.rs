//! What the log is made to do: producers that wait for answers, producers that keep a pace.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use partita_hub::log::{Ack, AckSink, BatchBuilder, EncodedBatch, HubLog, LogPosition, StoredBatch};

use crate::plain::sleep_until;
use crate::stats::Sample;

pub(super) const EVENT_BYTES: usize = 256;
pub(super) const BATCH_EVENTS: usize = 100;
pub(super) const PRODUCERS: usize = 8;
/// Batches that each producer has outstanding: about 3.3 MB in all.
pub(super) const OUTSTANDING: usize = 16;
/// A batch so often is 250,000 events a second.
pub(super) const PACE: Duration = Duration::from_micros(400);

fn batch(fill: u8) -> EncodedBatch {
    let mut builder = BatchBuilder::with_capacity(BATCH_EVENTS, BATCH_EVENTS * EVENT_BYTES);
    for _ in 0..BATCH_EVENTS {
        builder.push(&[fill; EVENT_BYTES]);
    }
    builder.finish().expect("events are not empty")
}

/// Counts what is outstanding and notes when each batch was answered. A batch's token is when it was due.
struct Window {
    free: Mutex<usize>,
    changed: Condvar,
    answered: AtomicU64,
    started: Instant,
    took_ms: Mutex<Vec<f64>>,
}

impl Window {
    fn new(free: usize) -> Arc<Self> {
        Arc::new(Self {
            free: Mutex::new(free),
            changed: Condvar::new(),
            answered: AtomicU64::new(0),
            started: Instant::now(),
            took_ms: Mutex::default(),
        })
    }

    fn take(&self) {
        let mut free = self.free.lock().unwrap_or_else(PoisonError::into_inner);
        while *free == 0 {
            free = self.changed.wait(free).unwrap_or_else(PoisonError::into_inner);
        }
        *free -= 1;
    }
}

impl AckSink for Window {
    fn acked(&self, acks: &[Ack]) {
        let now = self.started.elapsed().as_nanos() as u64;
        let mut took = self.took_ms.lock().unwrap_or_else(PoisonError::into_inner);
        for ack in acks {
            assert!(ack.outcome.is_ok(), "not acknowledged: {:?}", ack.outcome);
            took.push(now.saturating_sub(ack.token) as f64 / 1e6);
        }
        drop(took);
        self.answered.fetch_add(acks.len() as u64, Ordering::Release);
        *self.free.lock().unwrap_or_else(PoisonError::into_inner) += acks.len();
        self.changed.notify_one();
    }
}

/// Bytes of events per second that are acknowledged to producers that keep as much outstanding as they may.
pub(super) fn closed_loop(log: &HubLog, time: Duration) -> f64 {
    let started = Instant::now();
    let bytes: u64 = thread::scope(|scope| {
        let produce = |producer: usize| {
            let window = Window::new(OUTSTANDING);
            let sink: Arc<dyn AckSink> = window.clone();
            let mut partition = producer as u32;
            while started.elapsed() < time {
                window.take();
                partition = (partition + PRODUCERS as u32) % log.partitions();
                log.append_waiting(partition, batch(producer as u8), 0, &sink).expect("queued");
            }
            (0..OUTSTANDING).for_each(|_| window.take());
            window.answered.load(Ordering::Acquire) * (BATCH_EVENTS * EVENT_BYTES) as u64
        };
        let producers: Vec<_> =
            (0..PRODUCERS).map(|producer| scope.spawn(move || produce(producer))).collect();
        producers.into_iter().map(|producer| producer.join().expect("no panic")).sum()
    });
    bytes as f64 / started.elapsed().as_secs_f64()
}

/// Writes until so many bytes of events are in the log.
pub(super) fn fill(log: &HubLog, bytes: f64) {
    let mut written = 0.0;
    let step = Duration::from_millis(200);
    while written < bytes {
        written += closed_loop(log, step) * step.as_secs_f64();
    }
}

/// Milliseconds from the moment each batch was due to its acknowledgement, at a pace that does not wait for answers.
pub(super) fn paced(log: &HubLog, batches: u64) -> Sample {
    let window = Window::new(0);
    let sink: Arc<dyn AckSink> = window.clone();
    for i in 0..batches {
        let due = PACE * i as u32;
        sleep_until(window.started, due);
        let partition = (i % u64::from(log.partitions())) as u32;
        log.append_waiting(partition, batch(1), due.as_nanos() as u64, &sink).expect("queued");
    }
    while window.answered.load(Ordering::Acquire) < batches {
        thread::sleep(Duration::from_millis(1));
    }
    let took = window.took_ms.lock().unwrap_or_else(PoisonError::into_inner);
    Sample::new(took.iter().copied())
}

/// Reads a partition from its start, every checksum verified; bytes of events per second of one thread.
pub(super) fn scan(log: &HubLog, partition: u32) -> f64 {
    let mut reader = log.reader(partition, LogPosition::Earliest).expect("the partition is there");
    let end = log.partition(partition).map_or(0, |info| info.next_seq);
    let (started, mut bytes, mut sum) = (Instant::now(), 0_u64, 0_u64);
    let mut batches: Vec<StoredBatch> = Vec::new();
    while reader.next_seq() < end {
        batches.clear();
        reader.read(1 << 20, &mut batches).expect("nothing is damaged");
        for event in batches.iter().flat_map(StoredBatch::events) {
            bytes += event.data.len() as u64;
            sum += u64::from(event.data[0]);
        }
    }
    std::hint::black_box(sum);
    bytes as f64 / started.elapsed().as_secs_f64()
}
