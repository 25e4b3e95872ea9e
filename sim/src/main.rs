//! Runs seeds and tells what happened.

use std::io::Write;
use std::time::{Duration, Instant};

use clap::Parser;
use partita_sim::{Counts, World};

/// Simulates fleets with faults, one per seed.
#[derive(Parser)]
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
    /// Prints what happened, line by line.
    #[arg(long)]
    trace: bool,
}

fn main() -> std::io::Result<()> {
    let args = Args::parse();
    let mut out = std::io::stdout().lock();
    let (started, mut counts, mut simulated) = (Instant::now(), Counts::default(), Duration::ZERO);
    let mut failed = 0_u64;
    for seed in args.seed..args.seed.saturating_add(args.count) {
        let world = if args.planned { World::planned(seed) } else { World::seeded(seed) };
        let world = if args.trace { world.keep_trace() } else { world };
        if args.trace {
            writeln!(out, "{:#?}", world.plan())?;
        }
        let report = world.run();
        for line in &report.trace {
            writeln!(out, "{line}")?;
        }
        counts.add(&report.counts);
        simulated += report.simulated;
        if let Some(failure) = report.failure() {
            failed += 1;
            writeln!(out, "seed {seed}: {failure}")?;
        }
    }
    writeln!(out, "{counts:#?}")?;
    writeln!(
        out,
        "{} seeds, {failed} failed, {:.1} simulated hours in {:.1} s",
        args.count,
        simulated.as_secs_f64() / 3_600.0,
        started.elapsed().as_secs_f64()
    )?;
    if failed > 0 {
        std::process::exit(1);
    }
    Ok(())
}
