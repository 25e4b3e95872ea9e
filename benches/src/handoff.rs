//! The gap that a planned move leaves: from the end of the last call at one instance to the first at the next.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use partita::processor::{Builder, NoHandler, ProcessorHandle};
use partita::{Context, Epoch, Event, InstanceId, MemoryHub, PartitionId, SequenceNumber};

use crate::fleet::{Fleet, Start};
use crate::limits::Limits;
use crate::out;
use crate::report::{Figure, Section, Unit};
use crate::stats::Sample;
use crate::world::{Clock, lock};

const PARTITIONS: u32 = 64;

/// What a call takes, so that there is always one running or waiting.
const CALL: Duration = Duration::from_millis(5);

#[derive(Default)]
struct Gaps {
    /// The epoch and the end of the last call.
    last: BTreeMap<PartitionId, (Epoch, Instant)>,
    milliseconds: Vec<f64>,
}

#[derive(Clone)]
struct Watcher {
    hub: MemoryHub,
    gaps: Arc<Mutex<Gaps>>,
}

impl Watcher {
    fn begin(&self, partition: &PartitionId, epoch: Epoch) {
        let mut gaps = lock(&self.gaps);
        if let Some(&(before, end)) = gaps.last.get(partition)
            && before != epoch
        {
            gaps.milliseconds.push(end.elapsed().as_secs_f64() * 1e3);
        }
    }

    /// Ends a call. There is always something left to read.
    fn end(&self, partition: &PartitionId, epoch: Epoch, sequence: SequenceNumber) {
        lock(&self.gaps).last.insert(partition.clone(), (epoch, Instant::now()));
        self.hub.append(partition, Event::builder("more"));
        if sequence.0 % 1_024 == 0 {
            self.hub.trim(partition, sequence);
        }
    }

    fn take(&self) -> Vec<f64> {
        std::mem::take(&mut lock(&self.gaps).milliseconds)
    }
}

impl Start for Watcher {
    async fn start(&self, _: &InstanceId, builder: Builder<NoHandler>) -> ProcessorHandle {
        let watcher = self.clone();
        let handler = move |event: Event, cx: Context| {
            let watcher = watcher.clone();
            async move {
                watcher.begin(cx.partition(), cx.epoch());
                tokio::time::sleep(CALL).await;
                watcher.end(cx.partition(), cx.epoch(), event.sequence_number());
                Ok(())
            }
        };
        let processor = builder.on_event(handler).build().expect("options that fit");
        processor.start().await.expect("a store in memory")
    }
}

pub(crate) fn run(limits: &Limits, quick: bool) -> Section {
    let least = if quick { 32 } else { 224 };
    let mut threads = tokio::runtime::Builder::new_multi_thread();
    let runtime = threads.worker_threads(2).enable_time().build().expect("a runtime");
    let (transfers, releases) = runtime.block_on(measure(least));
    // Transfer, notification, view, seal: three calls and at least as many wakes between two threads.
    let floor = (3.0 * limits.store_call + 3.0 * limits.wake / 2.0) / 1e6;
    let rows = |what: &str, gaps: &Sample| {
        [("p50", 50.0), ("p99", 99.0)].map(|(name, percent)| {
            let what = format!("{what}, {name} of {}", gaps.len());
            Figure::peer(what, Unit::Milliseconds, gaps.percentile(percent), floor, "3 calls and wakes")
        })
    };
    let mut figures = Vec::new();
    figures.extend(rows("hand-off to one that joins", &transfers));
    figures.extend(rows("release by one that leaves, and claim", &releases));
    Section {
        title: "Hand-off",
        how: format!(
            "Real time, {PARTITIONS} busy partitions, a handler that takes {} ms per event; an instance joins another one and leaves it again, over and over. \
             The gap is from the end of the last call at the old owner to the start of the first one at the new owner. The peer is what the store calls \
             and thread wakes on the way take by themselves.",
            CALL.as_millis()
        ),
        figures,
    }
}

/// The gaps of transfers and those of releases, in milliseconds.
async fn measure(least: usize) -> (Sample, Sample) {
    let hub = MemoryHub::new("hand-off", PARTITIONS);
    for partition in hub.description().partitions {
        hub.append_all(&partition, (0..32).map(|_| Event::builder("first")));
    }
    let watcher = Watcher { hub: hub.clone(), gaps: Arc::default() };
    let mut fleet = Fleet::new(hub, Clock::Real, watcher.clone());
    fleet.join().await;
    fleet.until_balanced().await;
    let (mut transfers, mut releases) = (Vec::new(), Vec::new());
    while transfers.len() < least {
        out::note(format!("hand-off: {} of {least}", transfers.len()));
        let rest = Duration::from_millis(300);
        tokio::time::sleep(rest).await;
        watcher.take();
        let newcomer = fleet.join().await;
        assert!(fleet.until_balanced().await, "the newcomer did not get its share");
        tokio::time::sleep(rest).await;
        transfers.extend(watcher.take());
        fleet.leave(&newcomer).await;
        assert!(fleet.until_balanced().await, "the leaver's share was not taken");
        tokio::time::sleep(rest).await;
        releases.extend(watcher.take());
    }
    (Sample::new(transfers), Sample::new(releases))
}
