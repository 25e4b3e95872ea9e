//! What delivery costs per event, beyond reading it from the source.
//!
//! Both sides read the same preloaded hub with reads of the same sizes on the same number of tasks: the sizes are
//! recorded in a run of the processor and replayed by a bare loop. Rounds of the two alternate.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use partita::processor::ProcessorHandle;
use partita::source::{PartitionReader, ReadRequest};
use partita::{
    Context, Epoch, Event, EventSource, InstanceId, MemoryHub, MemoryStore, PartitionId, Position, Processor,
};
use tokio::runtime::Runtime;
use tokio::sync::{Barrier, Notify};

use crate::clock::{Spent, Stamp};
use crate::limits::Limits;
use crate::recorder::{ReadSizes, Recorder};
use crate::report::{Figure, Section, Unit};
use crate::stats::Sample;

const LIMIT_NS: f64 = 250.0;
const EVENT_BYTES: usize = 256;

/// How the events reach the handler.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Calls {
    PerEvent,
    PerBatch(usize),
}

/// One configuration to measure.
#[derive(Clone, Copy, Debug)]
struct Case {
    name: &'static str,
    calls: Calls,
    partitions: u32,
    workers: usize,
    /// Whether the limit is meant for it.
    limited: bool,
}

const CASES: [Case; 5] = [
    Case {
        name: "single events, 16 partitions",
        calls: Calls::PerEvent,
        partitions: 16,
        workers: 1,
        limited: true,
    },
    Case {
        name: "single events, 16 partitions, 2 workers",
        calls: Calls::PerEvent,
        partitions: 16,
        workers: 2,
        limited: true,
    },
    Case {
        name: "single events, 1 partition",
        calls: Calls::PerEvent,
        partitions: 1,
        workers: 1,
        limited: true,
    },
    Case {
        name: "batches of 10, 16 partitions",
        calls: Calls::PerBatch(10),
        partitions: 16,
        workers: 1,
        limited: false,
    },
    Case {
        name: "batches of 100, 16 partitions",
        calls: Calls::PerBatch(100),
        partitions: 16,
        workers: 1,
        limited: false,
    },
];

pub(crate) fn run(limits: &Limits, quick: bool) -> Section {
    let (events, rounds) = if quick { (65_536, 3) } else { (262_144, 9) };
    let mut figures = Vec::new();
    let mut loaded: Option<(u32, MemoryHub)> = None;
    for case in CASES {
        let hub = match loaded.take() {
            Some((partitions, hub)) if partitions == case.partitions => hub,
            _ => preloaded(case.partitions, events / i64::from(case.partitions)),
        };
        figures.extend(measure(&hub, case, events, rounds, limits));
        loaded = Some((case.partitions, hub));
    }
    Section {
        title: "Dispatch",
        how: format!(
            "{events} events of {EVENT_BYTES} bytes in a hub in memory, default options (checkpoint every 1,000 events or 1 s), a handler that returns at \
             once; median of {rounds} rounds of the processor, alternating with rounds of a bare loop that reads the same events with reads of the \
             same sizes on as many tasks. *Overhead* is the difference. *CPU* counts all threads of the process, the coordination's too, \
             and not what other processes do: the limit is judged by it. *Wall* is from the first to the last call, waiting for a core that a neighbour has included; \
             beside its median stands the difference of the fastest rounds of each side. See the load above. One worker thread where nothing else is said."
        ),
        figures,
    }
}

fn measure(hub: &MemoryHub, case: Case, events: i64, rounds: usize, limits: &Limits) -> Vec<Figure> {
    let mut builder = tokio::runtime::Builder::new_multi_thread();
    let runtime = builder.worker_threads(case.workers).enable_time().build().expect("a runtime");
    let length = events / i64::from(case.partitions);
    let sizes = runtime.block_on(record(hub, case, length));
    let (mut bare, mut whole) = (Vec::new(), Vec::new());
    for round in 0..=rounds {
        let spent = (bare_round(&runtime, hub, &sizes, length), processor_round(&runtime, hub, case, length));
        // The first round is for the caches.
        if round > 0 {
            bare.push(spent.0);
            whole.push(spent.1);
        }
    }
    let per_event = |spent: &[Spent], of: fn(&Spent) -> std::time::Duration| {
        Sample::new(spent.iter().map(|spent| of(spent).as_nanos() as f64 / events as f64))
    };
    let (bare_cpu, cpu) = (per_event(&bare, |spent| spent.cpu), per_event(&whole, |spent| spent.cpu));
    let (bare_wall, wall) = (per_event(&bare, |spent| spent.wall), per_event(&whole, |spent| spent.wall));
    let least = wall.min() - bare_wall.min();
    let (bare_cpu, cpu) = (bare_cpu.median(), cpu.median());
    let (bare_wall, wall) = (bare_wall.median(), wall.median());
    let named = |what: &str| format!("{}: {what}", case.name);
    let overhead = match case.limited {
        true => Figure::limit(named("overhead, CPU"), Unit::Nanoseconds, cpu - bare_cpu, LIMIT_NS),
        false => {
            let clone = limits.event_clone;
            Figure::peer(named("overhead, CPU"), Unit::Nanoseconds, cpu - bare_cpu, clone, "event clone")
        }
    };
    vec![
        Figure::peer(named("whole, CPU"), Unit::Nanoseconds, cpu, bare_cpu, "source alone"),
        overhead,
        Figure::peer(
            named("overhead, wall"),
            Unit::Nanoseconds,
            wall - bare_wall,
            least,
            "least disturbed rounds",
        ),
        Figure::peer(
            named("throughput"),
            Unit::MillionsPerSecond,
            1e3 / wall,
            1e3 / bare_wall,
            "source alone",
        ),
    ]
}

fn preloaded(partitions: u32, length: i64) -> MemoryHub {
    let hub = MemoryHub::new("dispatch", partitions);
    for partition in hub.description().partitions {
        hub.append_all(&partition, (0..length).map(|_| Event::builder(vec![7_u8; EVENT_BYTES])));
    }
    hub
}

/// A round: all partitions begin together, and it ends with the last event of the last one.
struct Round {
    first: Barrier,
    start: std::sync::OnceLock<Stamp>,
    end: std::sync::OnceLock<Stamp>,
    partitions_left: AtomicUsize,
    ended: Notify,
    length: i64,
}

impl Round {
    /// Lives as long as the program: a handler that counts references would measure that.
    fn new(partitions: usize, length: i64) -> &'static Self {
        Box::leak(Box::new(Self {
            first: Barrier::new(partitions),
            start: std::sync::OnceLock::new(),
            end: std::sync::OnceLock::new(),
            partitions_left: AtomicUsize::new(partitions),
            ended: Notify::new(),
            length,
        }))
    }

    /// What a handler does with an event: next to nothing.
    #[inline]
    async fn handle(&self, sequence: i64) {
        if sequence == 0 && self.first.wait().await.is_leader() {
            self.start.get_or_init(Stamp::now);
        }
        if sequence == self.length - 1 && self.partitions_left.fetch_sub(1, Ordering::AcqRel) == 1 {
            self.end.get_or_init(Stamp::now);
            self.ended.notify_one();
        }
    }

    async fn spent(&self) -> Spent {
        self.ended.notified().await;
        let (start, end) = (self.start.get().expect("begun"), self.end.get().expect("ended"));
        start.until(*end)
    }
}

async fn start(source: Arc<dyn EventSource>, calls: Calls, round: &'static Round) -> ProcessorHandle {
    let builder =
        Processor::builder_dyn(source, Arc::new(MemoryStore::new())).instance_id(InstanceId::new("dispatch"));
    let started = match calls {
        Calls::PerEvent => {
            let handler = move |event: Event, _: Context| async move {
                round.handle(event.sequence_number().0).await;
                Ok(())
            };
            builder.on_event(handler).build().expect("options that fit").start().await
        }
        Calls::PerBatch(size) => {
            let handler = move |events: Vec<Event>, _: Context| async move {
                for event in &events {
                    round.handle(event.sequence_number().0).await;
                }
                Ok(())
            };
            builder.on_batch(handler).batch_size(size).build().expect("options that fit").start().await
        }
    };
    started.expect("the store and the source are in memory")
}

/// Learns the sizes of a processor's reads.
async fn record(hub: &MemoryHub, case: Case, length: i64) -> Vec<(PartitionId, ReadSizes)> {
    let recorder = Recorder::new(hub.source());
    let round = Round::new(case.partitions as usize, length);
    let handle = start(Arc::new(recorder.clone()), case.calls, round).await;
    round.spent().await;
    let _ = handle.shutdown().await;
    recorder.sizes()
}

fn processor_round(runtime: &Runtime, hub: &MemoryHub, case: Case, length: i64) -> Spent {
    runtime.block_on(async {
        let round = Round::new(case.partitions as usize, length);
        let handle = start(Arc::new(hub.source()), case.calls, round).await;
        let spent = round.spent().await;
        let _ = handle.shutdown().await;
        spent
    })
}

fn bare_round(runtime: &Runtime, hub: &MemoryHub, sizes: &[(PartitionId, ReadSizes)], length: i64) -> Spent {
    let round = Round::new(sizes.len(), length);
    runtime.block_on(async {
        for (partition, sizes) in sizes.iter().cloned() {
            let source = hub.source();
            tokio::spawn(async move {
                let request = ReadRequest {
                    group: partita::ConsumerGroup::default(),
                    partition,
                    from: Position::Earliest,
                    owner_level: Some(Epoch(1)),
                    name: Arc::from("bare"),
                    prefetch_events: 300,
                    prefetch_bytes: 4 << 20,
                };
                let reader = source.open(request).await.expect("a reader");
                read_all(reader, &sizes, round).await;
            });
        }
        round.spent().await
    })
}

async fn read_all(mut reader: Box<dyn PartitionReader>, sizes: &[usize], round: &Round) {
    let mut events = Vec::new();
    for &size in sizes {
        reader.read(size, &mut events).await.expect("events");
        for event in events.drain(..) {
            round.handle(std::hint::black_box(&event).sequence_number().0).await;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn recorded_reads_cover_every_event_once_and_both_sides_come_to_an_end() {
        let hub = preloaded(4, 2_000);
        let runtime = tokio::runtime::Builder::new_multi_thread().enable_time().build().unwrap();
        let case = Case { partitions: 4, ..CASES[0] };
        let sizes = runtime.block_on(record(&hub, case, 2_000));
        assert_eq!(sizes.len(), 4);
        for (_, sizes) in &sizes {
            assert_eq!(sizes.iter().sum::<usize>(), 2_000);
        }
        assert!(bare_round(&runtime, &hub, &sizes, 2_000).wall.as_nanos() > 0);
        assert!(processor_round(&runtime, &hub, case, 2_000).wall.as_nanos() > 0);
    }
}
