//! Runs seeds and tells what happened.

use std::io::Write;
use std::num::NonZeroUsize;
use std::process::ExitCode;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use clap::Parser;
use indicatif::{ProgressBar, ProgressStyle};
use partita_sim::{Counts, Report, World};

/// Simulates fleets of processors with faults, one fleet per seed, and checks the invariants at every step.
#[derive(Parser)]
#[command(version)]
struct Args {
    /// The first seed.
    #[arg(long, default_value_t = 0)]
    seed: u64,
    /// How many seeds to run.
    #[arg(long, default_value_t = 1)]
    count: u64,
    /// Only planned moves, no faults.
    #[arg(long)]
    planned: bool,
    /// Prints the fate that was drawn and what happened, line by line.
    #[arg(long)]
    trace: bool,
    /// How many seeds to run at a time; as many as there are cores if not given.
    #[arg(long)]
    jobs: Option<NonZeroUsize>,
}

/// What all seeds came to.
#[derive(Default)]
struct Sum {
    counts: Counts,
    simulated: Duration,
    failures: Vec<(u64, String)>,
}

impl Sum {
    fn add(&mut self, report: &Report) {
        self.counts.add(&report.counts);
        self.simulated += report.simulated;
        self.failures.extend(report.failure().map(|failure| (report.seed, failure)));
    }
}

fn main() -> std::io::Result<ExitCode> {
    let args = Args::parse();
    let started = Instant::now();
    let mut out = std::io::stdout().lock();
    let mut sum = if args.trace { trace(&args, &mut out)? } else { run(&args) };
    sum.failures.sort();
    for (seed, failure) in &sum.failures {
        writeln!(out, "seed {seed}: {failure}")?;
    }
    writeln!(out, "{:#?}", sum.counts)?;
    writeln!(
        out,
        "{} seeds, {} failed, {:.1} simulated hours in {:.1} s",
        args.count,
        sum.failures.len(),
        sum.simulated.as_secs_f64() / 3_600.0,
        started.elapsed().as_secs_f64()
    )?;
    if let Some((seed, _)) = sum.failures.first() {
        let planned = if args.planned { "--planned " } else { "" };
        writeln!(out, "replay with: cargo run --release -p partita-sim -- {planned}--seed {seed} --trace")?;
        return Ok(ExitCode::FAILURE);
    }
    Ok(ExitCode::SUCCESS)
}

fn world(args: &Args, seed: u64) -> World {
    if args.planned { World::planned(seed) } else { World::seeded(seed) }
}

/// One seed after the other, with their traces.
fn trace(args: &Args, out: &mut impl Write) -> std::io::Result<Sum> {
    let mut sum = Sum::default();
    for seed in args.seed..args.seed.saturating_add(args.count) {
        let world = world(args, seed).keep_trace();
        writeln!(out, "{:#?}", world.plan())?;
        let report = world.run();
        for line in &report.trace {
            writeln!(out, "{line}")?;
        }
        sum.add(&report);
    }
    Ok(sum)
}

/// All seeds, on several threads: worlds know nothing of one another.
fn run(args: &Args) -> Sum {
    let style = ProgressStyle::with_template("{bar:40} {pos}/{len} seeds, {per_sec}, {eta} left {msg}");
    let bar = ProgressBar::new(args.count).with_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()));
    let (next, sum) = (AtomicU64::new(0), Mutex::new(Sum::default()));
    let jobs = args.jobs.or_else(|| thread::available_parallelism().ok()).map_or(1, NonZeroUsize::get);
    thread::scope(|scope| {
        for _ in 0..jobs {
            scope.spawn(|| {
                loop {
                    let index = next.fetch_add(1, Ordering::Relaxed);
                    if index >= args.count {
                        return;
                    }
                    let report = world(args, args.seed.saturating_add(index)).run();
                    let mut sum = sum.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
                    sum.add(&report);
                    if !sum.failures.is_empty() {
                        bar.set_message(format!("{} failed", sum.failures.len()));
                    }
                    bar.inc(1);
                }
            });
        }
    });
    bar.finish_and_clear();
    sum.into_inner().unwrap_or_else(std::sync::PoisonError::into_inner)
}
