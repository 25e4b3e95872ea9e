//! Runs seeds and tells what happened.

use std::io::{self, Write};
use std::num::NonZeroUsize;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::Parser;
use indicatif::{ProgressBar, ProgressStyle};
use partita_sim::{Summary, Theme, World, run_all};

mod kept;

use kept::Kept;

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
    /// Only worlds of this kind; "list" tells which there are.
    #[arg(long)]
    theme: Option<String>,
    /// Only the trouble that worlds are about: exact clocks, no seeks, a store that notifies, a durable log.
    #[arg(long)]
    plain: bool,
    /// Prints the fate that was drawn and what happened, line by line.
    #[arg(long)]
    trace: bool,
    /// How many seeds to run at a time; as many as there are cores if not given.
    #[arg(long)]
    jobs: Option<NonZeroUsize>,
    /// Plants a bug in the engine and looks for the first of `count` seeds (1,000 if not given) that finds it; "all" plants
    /// one after the other. Needs a build with `--features planted`.
    #[arg(long, value_name = "BUG")]
    planted: Option<String>,
    /// Fails if some kind of fault never happened.
    #[arg(long)]
    complete: bool,
    /// Keeps what is done in this file, and goes on from there when the same command is given again: for hours of seeds.
    #[arg(long, value_name = "FILE", conflicts_with_all = ["trace", "planted", "plain"])]
    keep: Option<PathBuf>,
    /// Writes the figures into this Markdown file, between its marks for them.
    #[arg(long, value_name = "FILE")]
    write: Option<PathBuf>,
}

fn main() -> ExitCode {
    run_program(&Args::parse()).unwrap_or_else(|error| {
        // There is no better place to say it.
        let _ = writeln!(io::stderr(), "partita-sim: {error}");
        ExitCode::FAILURE
    })
}

fn run_program(args: &Args) -> io::Result<ExitCode> {
    let mut out = io::stdout().lock();
    let theme = match args.theme.as_deref() {
        None => None,
        Some(name) => match Theme::parse(name) {
            Some(theme) => Some(theme),
            None => {
                for theme in Theme::ALL {
                    writeln!(out, "{:<10} {}", theme.name(), theme.what())?;
                }
                return Ok(if name == "list" { ExitCode::SUCCESS } else { ExitCode::from(2) });
            }
        },
    };
    if let Some(bug) = &args.planted {
        return planted::hunt(args, bug, theme, &mut out);
    }
    let world = |seed| {
        let world = match theme {
            Some(theme) => World::of(theme, seed),
            None => World::seeded(seed),
        };
        if args.plain { world.plain() } else { world }
    };
    let summary = if args.trace { trace(args, world, &mut out)? } else { run(args, theme, world)? };
    report(args, theme, &summary, &mut out)
}

fn report(
    args: &Args,
    theme: Option<Theme>,
    summary: &Summary,
    out: &mut impl Write,
) -> io::Result<ExitCode> {
    for (seed, failure) in &summary.failures {
        writeln!(out, "seed {seed}: {failure}")?;
    }
    write!(out, "{summary}")?;
    let never = summary.never_happened();
    if !never.is_empty() {
        writeln!(out, "never happened: {}", never.join(", "))?;
    }
    if let Some(file) = &args.write {
        write_between(file, "simulation", &summary.markdown())?;
    }
    writeln!(
        out,
        "{} seeds, {} failed, {:.1} simulated hours in {:.1} s, {:.0} seeds/s",
        summary.seeds,
        summary.failures.len(),
        summary.simulated.as_secs_f64() / 3_600.0,
        summary.took.as_secs_f64(),
        summary.seeds_per_second()
    )?;
    if let Some((seed, _)) = summary.failures.first() {
        let theme = theme.map(|theme| format!("--theme {} ", theme.name())).unwrap_or_default();
        let plain = if args.plain { "--plain " } else { "" };
        writeln!(
            out,
            "replay with: cargo run --release -p partita-sim -- {plain}{theme}--seed {seed} --trace"
        )?;
        return Ok(ExitCode::FAILURE);
    }
    Ok(if args.complete && !never.is_empty() { ExitCode::FAILURE } else { ExitCode::SUCCESS })
}

/// One seed after the other, with their traces.
fn trace(args: &Args, world: impl Fn(u64) -> World, out: &mut impl Write) -> io::Result<Summary> {
    let mut summary = Summary::default();
    for seed in args.seed..args.seed.saturating_add(args.count) {
        let world = world(seed).keep_trace();
        writeln!(out, "{world:#?}")?;
        let report = world.run();
        for line in &report.trace {
            writeln!(out, "{line}")?;
        }
        summary.add(&report);
    }
    Ok(summary)
}

/// How many seeds are run between two writes of what is kept.
const SEEDS_PER_WRITE: u64 = 100;

/// All seeds, with a bar.
fn run(args: &Args, theme: Option<Theme>, world: impl Fn(u64) -> World + Sync) -> io::Result<Summary> {
    let mut kept = match &args.keep {
        Some(file) => Kept::open(file, args.seed, theme)?,
        None => Kept::nowhere(),
    };
    let at_a_time = if args.keep.is_some() { SEEDS_PER_WRITE } else { args.count };
    let bar = progress(args.count);
    bar.set_position(kept.summary().seeds.min(args.count));
    bar.reset_eta();
    while kept.summary().seeds < args.count {
        let done = kept.summary().seeds;
        let first = args.seed.saturating_add(done);
        let summary = run_all(first, at_a_time.min(args.count - done), args.jobs, &world, |report| {
            if let Some(failure) = report.failure() {
                bar.println(format!("seed {}: {failure}", report.seed));
            }
            bar.inc(1);
        });
        kept.add(summary)?;
    }
    bar.finish_and_clear();
    Ok(kept.into_summary())
}

fn progress(count: u64) -> ProgressBar {
    let style = ProgressStyle::with_template("{bar:40} {pos}/{len} seeds, {per_sec}, {eta} left {msg}");
    ProgressBar::new(count).with_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()))
}

/// Replaces what is between two marks of a file.
fn write_between(file: &Path, mark: &str, text: &str) -> io::Result<()> {
    let whole = std::fs::read_to_string(file)?;
    let (begin, end) = (format!("<!-- {mark}: begin -->\n"), format!("<!-- {mark}: end -->"));
    let parts = whole.split_once(&begin).and_then(|(before, rest)| {
        let (_, after) = rest.split_once(&end)?;
        Some((before, after))
    });
    let Some((before, after)) = parts else {
        let text = format!("{} has no marks \"{mark}: begin\" and \"{mark}: end\"", file.display());
        return Err(io::Error::new(io::ErrorKind::InvalidData, text));
    };
    std::fs::write(file, format!("{before}{begin}{text}{end}{after}"))
}

#[cfg(not(feature = "planted"))]
mod planted {
    use super::*;

    pub(super) fn hunt(_: &Args, _: &str, _: Option<Theme>, out: &mut impl Write) -> io::Result<ExitCode> {
        writeln!(
            out,
            "this build has no planted bugs: cargo run --release -p partita-sim --features planted -- ..."
        )?;
        Ok(ExitCode::from(2))
    }
}

#[cfg(feature = "planted")]
mod planted {
    use std::fmt::Write as _;

    use partita_core::planted::with;
    use partita_sim::planted::{self, Bug, Hunt};

    use super::*;

    pub(super) fn hunt(
        args: &Args,
        name: &str,
        theme: Option<Theme>,
        out: &mut impl Write,
    ) -> io::Result<ExitCode> {
        let bugs: Vec<Bug> =
            Bug::ALL.iter().copied().filter(|bug| name == "all" || bug.name() == name).collect();
        if bugs.is_empty() {
            for bug in Bug::ALL {
                writeln!(out, "{:<26} {}", bug.name(), bug.what())?;
            }
            return Ok(if name == "list" { ExitCode::SUCCESS } else { ExitCode::from(2) });
        }
        if args.trace {
            let world = match theme {
                Some(theme) => World::of(theme, args.seed),
                None => World::seeded(args.seed),
            };
            let report = with(Some(bugs[0]), || world.keep_trace().run());
            report.trace.iter().try_for_each(|line| writeln!(out, "{line}"))?;
            return Ok(ExitCode::SUCCESS);
        }
        let seeds = if args.count > 1 { args.count } else { 1_000 };
        let mut table =
            String::from("| bug | seed | world | invariant that found it |\n| --- | ---: | --- | --- |\n");
        let mut missed = 0;
        for bug in bugs {
            match planted::hunt(bug, seeds, args.jobs) {
                Hunt::Found(found) => {
                    let theme = found.theme.map_or("", Theme::name);
                    writeln!(
                        out,
                        "found  {:<26} seed {:>4} ({theme}): {}",
                        bug.name(),
                        found.seed,
                        found.what
                    )?;
                    // A string takes it all.
                    let _ = writeln!(table, "| {} | {} | {theme} | {} |", bug.what(), found.seed, found.what);
                }
                Hunt::Missed { by_others } => {
                    missed += 1;
                    let (name, own) = (bug.name(), planted::invariants(bug).join(" or "));
                    writeln!(
                        out,
                        "MISSED {name:<26} in {seeds} seeds by invariant {own}; {by_others} seeds failed by others: {}",
                        bug.what()
                    )?;
                }
            }
            out.flush()?;
        }
        if let Some(file) = &args.write {
            write_between(file, "planted", &table)?;
        }
        Ok(if missed == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE })
    }
}
