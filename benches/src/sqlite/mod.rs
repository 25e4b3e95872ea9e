//! The store in a file: what its calls take beside a plain sync of the same disk, and the gap of a hand-off between two
//! processes.

mod calls;
mod gaps;
pub(crate) mod worker;

use crate::report::{Figure, Section, Unit};
use crate::stats::Sample;

/// What a hand-off may take at most, p99, in milliseconds.
const GAP_MS_MAX: f64 = 300.0;

pub(crate) fn run(quick: bool) -> Section {
    let mut figures = Vec::new();
    let calls = calls::measure(if quick { 100 } else { 1_000 });
    let both = [("p50", 50.0), ("p99", 99.0)];
    for (what, sample) in &calls.samples {
        for (name, percent) in both {
            let what = format!("{what}, {name} of {}", sample.len());
            let (value, sync) = (sample.percentile(percent), calls.sync.percentile(percent));
            figures.push(Figure::peer(what, Unit::Milliseconds, value, sync, "fdatasync of 4 KiB"));
        }
    }
    let per_second = calls.checkpoints_per_second;
    let one_by_one = 1e3 / calls.sync.median();
    figures.push(Figure::peer(
        "checkpoints of 64 partitions at once",
        Unit::PerSecond,
        per_second,
        one_by_one,
        "4 KiB fdatasyncs",
    ));
    let gaps = gaps::measure(if quick { 32 } else { 224 });
    let gap = |what: &str, sample: &Sample, percent, name| {
        let what = format!("{what}, {name} of {}", sample.len());
        Figure::limit(what, Unit::Milliseconds, sample.percentile(percent), GAP_MS_MAX)
    };
    for (name, percent) in both {
        figures.push(gap("hand-off between processes", &gaps.transfers, percent, name));
    }
    for (name, percent) in both {
        figures.push(gap("release by a process that leaves, and claim", &gaps.releases, percent, name));
    }
    Section {
        title: "SQLite",
        how: format!(
            "Calls one after the other, each next to a write of 4 KiB and fdatasync on the same disk. Then two processes, {} busy partitions, a handler that takes \
             {} ms per event; one process joins and leaves again, over and over. The gap is from the end of the last call in the one process to \
             the start of the first one in the other, by the clock that they share; a waiter of another process looks every 50 ms.",
            worker::PARTITIONS,
            worker::CALL.as_millis()
        ),
        figures,
    }
}
