//! What this machine can do at best, measured in the same run: the figures are read against it.

use std::hint::black_box;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::sync_channel;
use std::time::{Duration, Instant};

use partita::processor::{Runtime, TokioRuntime};
use partita::store::{CheckpointStore, MemoryStore};
use partita::{Event, MemoryHub, PartitionId};

use crate::clock::Stamp;
use crate::report::{Figure, Section, Unit};
use crate::stats::Sample;

/// How often each measurement is repeated; the median counts.
const ROUNDS: usize = 9;

/// The machine's limits, in nanoseconds unless the name says otherwise.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Limits {
    pub(crate) cores: usize,
    /// How many tasks of the whole machine ran or waited for a core, over the last minute.
    load: Option<f64>,
    pub(crate) clock: f64,
    pub(crate) atomic: f64,
    pub(crate) event_clone: f64,
    pub(crate) copy_256: f64,
    pub(crate) copy_gigabytes: f64,
    pub(crate) wake: f64,
    pub(crate) sleep_over: f64,
    pub(crate) store_call: f64,
}

impl Limits {
    pub(crate) fn measure() -> Self {
        let threads = tokio::runtime::Builder::new_current_thread().enable_time().build();
        let tokio = threads.expect("a runtime for the measurements");
        let clock = tokio.block_on(async { TokioRuntime::current() });
        let counter = AtomicU64::new(0);
        let (small, mut small_to) = ([7_u8; 256], [0_u8; 256]);
        let (large, mut large_to) = (vec![7_u8; 64 << 20], vec![0_u8; 64 << 20]);
        let event = event();
        let large_ns = each(1, || black_box(&mut large_to).copy_from_slice(black_box(&large))).cpu;
        Self {
            load: load(),
            cores: std::thread::available_parallelism().map_or(1, usize::from),
            clock: each(200_000, || _ = black_box(clock.now())).cpu,
            atomic: each(1_000_000, || _ = black_box(counter.fetch_add(1, Ordering::AcqRel))).cpu,
            event_clone: each(200_000, || drop(black_box(event.clone()))).cpu,
            copy_256: each(1_000_000, || black_box(&mut small_to).copy_from_slice(black_box(&small))).cpu,
            copy_gigabytes: large.len() as f64 / large_ns,
            wake: wake(),
            sleep_over: tokio.block_on(sleep_over()),
            store_call: store_call(&tokio),
        }
    }

    pub(crate) fn section(&self) -> Section {
        let ns = |what: &str, value| Figure::plain(what, Unit::Nanoseconds, value);
        Section {
            title: "The machine",
            how: format!(
                "Measured in the same run, median of {ROUNDS} rounds, by the CPU clock where no thread waits. Processor: {}. Load average at the start: {}.",
                processor_name().unwrap_or_else(|| "unknown".into()),
                self.load.map_or_else(|| "unknown".into(), |load| format!("{load:.1}"))
            ),
            figures: vec![
                Figure::plain("cores", Unit::Count, self.cores as f64),
                ns("read of the lease's clock (clock_gettime, boot time)", self.clock),
                ns("atomic increment, uncontended", self.atomic),
                ns("clone and drop of a 256-byte event, in cache", self.event_clone),
                ns("copy of 256 bytes, in cache", self.copy_256),
                Figure::plain("copy of 64 MiB", Unit::GigabytesPerSecond, self.copy_gigabytes),
                ns("thread wake there and back", self.wake),
                Figure::plain("lateness of a 5 ms sleep", Unit::Milliseconds, self.sleep_over / 1e6),
                ns("view of a group of 16 partitions, memory store", self.store_call),
            ],
        }
    }
}

/// Nanoseconds per call, by both clocks.
struct Each {
    cpu: f64,
    wall: f64,
}

fn each(calls: u32, mut call: impl FnMut()) -> Each {
    let round = |_| {
        let start = Stamp::now();
        for _ in 0..calls {
            call();
        }
        let spent = start.until(Stamp::now());
        [spent.cpu, spent.wall].map(|time| time.as_nanos() as f64 / f64::from(calls))
    };
    let rounds: Vec<_> = (0..ROUNDS).map(round).collect();
    let median = |clock: usize| Sample::new(rounds.iter().map(|round| round[clock])).median();
    Each { cpu: median(0), wall: median(1) }
}

/// An event as the dispatch benchmark reads it.
fn event() -> Event {
    let hub = MemoryHub::new("limits", 1);
    let partition = PartitionId::from(0);
    hub.append(&partition, Event::builder(vec![7_u8; 256]));
    hub.events(&partition, partita::SequenceNumber(0), 1).pop().expect("the event that was appended")
}

/// A thread wakes another one and is woken by it.
fn wake() -> f64 {
    let (ask, asked) = sync_channel::<()>(0);
    let (answer, answered) = sync_channel::<()>(0);
    let other = std::thread::spawn(move || while asked.recv().is_ok() && answer.send(()).is_ok() {});
    let ns = each(2_000, || {
        let _ = ask.send(());
        let _ = answered.recv();
    })
    .wall;
    drop((ask, answered));
    let _ = other.join();
    ns
}

/// How much longer than asked for a sleep takes.
async fn sleep_over() -> f64 {
    let asked = Duration::from_millis(5);
    let mut late = Vec::new();
    for _ in 0..ROUNDS * 3 {
        let start = Instant::now();
        tokio::time::sleep(asked).await;
        late.push(start.elapsed().saturating_sub(asked).as_nanos() as f64);
    }
    Sample::new(late).median()
}

fn store_call(tokio: &tokio::runtime::Runtime) -> f64 {
    let hub = MemoryHub::new("limits", 16);
    let store = MemoryStore::new();
    let scope = crate::world::scope(&hub);
    tokio.block_on(async {
        let records = hub.description().partitions.into_iter().map(crate::world::free_ownership);
        for record in records {
            let written = store.write_ownership(&scope, record).await;
            written.expect("a write to memory does not fail");
        }
    });
    each(2_000, || drop(black_box(tokio.block_on(store.view(&scope))))).cpu
}

fn load() -> Option<f64> {
    std::fs::read_to_string("/proc/loadavg").ok()?.split(' ').next()?.parse().ok()
}

fn processor_name() -> Option<String> {
    let text = std::fs::read_to_string("/proc/cpuinfo").ok()?;
    let line = text.lines().find(|line| line.starts_with("model name"))?;
    Some(line.split_once(':')?.1.trim().to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_event_measured_has_256_bytes() {
        assert_eq!(event().bytes().map(|bytes| bytes.len()), Some(256));
    }
}
