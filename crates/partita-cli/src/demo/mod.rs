//! `partita demo`: a stream, a few processors, and a script of what happens to them; then the count.

mod board;
mod book;
mod clock;
mod duplicates;
mod fleet;
mod gaps;
mod journal;
mod ledger;
mod lines;
mod moves;
mod processor;
mod recount;
mod report;
mod run;
mod screen;
mod script;
mod sensors;
mod show;
mod slots;
#[cfg(test)]
mod testing;
mod world;

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use self::lines::Lines;
pub(crate) use self::processor::{Args as ProcessorArgs, run as run_processor};
use self::screen::Screen;
use self::script::{Script, Step};
use self::show::Show;
use self::world::Place;
use crate::Failure;
use crate::output::{Out, grouped};
use crate::units::{Time, parse_time};

/// All events of a run are kept until they were counted again.
const EVENTS_MAX: u64 = 10_000_000;

/// How many partitions a new hub has unless told otherwise.
const PARTITIONS: u32 = 16;

/// What is counted, for `--help`.
const COUNTED: &str = "\
After the run a separate reader reads all events from the source again, in a
consumer group of its own, and the counts come from it:
  lost                   in the source and never handled
  duplicated_by_crash    handled again after the processor that had handled
                         them crashed, or was frozen until it counted as dead
  duplicated_by_handoff  handled again for any other reason: should be 0
  handoffs               moves in which the old owner finished, checkpointed
                         and passed the partition on
  steals                 moves in which a call of the old owner was cut off
  handoff_gap_ms         how long a partition that was handed off stood still:
                         from the end of the last call at the old owner to
                         the beginning of the first call at the new one; over
                         the n moves with an event waiting when the new owner
                         opened the partition
  failover_gap_ms        the same for partitions of a processor that crashed
                         or was frozen
  events_per_second      handled, from the first call to the last

On a directory with events of former runs, those of events (the first five)
cover all runs, as far as the hub still holds their events (it keeps those of
a run and 256 MiB of earlier ones), the others this one. Each processor writes down what it
handled, so a demo that was killed is counted with the next one.

On a terminal the demo is a picture, and keys add, remove, kill, freeze and
thaw processors; --lines prints lines instead, as it does into a pipe.

Exit code: 0 if nothing was lost or duplicated by a hand-off, 1 if something
was, nothing was produced or the run failed, 2 if the command line cannot be
carried out.";

/// Shows processors that share a stream: one joins, one is killed, one leaves, and no event is lost.
///
/// Homes with motion, door, window and glass-break sensors report to the hub in the box, which is served on a port of this
/// machine. Processors, each a process of its own, read it over AMQP and share its partitions through an SQLite database. A
/// script adds, kills and removes some of them. Hub and database are in a directory, and another start resumes where this one
/// ended.
#[derive(clap::Args, Debug)]
#[command(after_long_help = COUNTED)]
pub(crate) struct Args {
    /// How long events are produced; the rest is then handled before the count
    #[arg(long = "for", value_name = "TIME", default_value = "20s", value_parser = parse_time)]
    length: Duration,

    /// Does something to a processor at this time; may be repeated
    ///
    /// The actions are add, kill (like kill -9), remove (a clean stop), freeze (like SIGSTOP) and thaw. kill, remove and
    /// freeze choose the processor that has run longest, thaw the one that was frozen first. Default: one is added after a
    /// quarter of the run, one killed after half, and one removed after three quarters, as with
    /// --at 5s=add --at 10s=kill --at 15s=remove.
    #[arg(long = "at", value_name = "TIME=ACTION")]
    steps: Vec<Step>,

    /// Partitions of the hub [default: 16, or as many as the directory has]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1_024))]
    partitions: Option<u32>,

    /// Where events and checkpoints are kept; created if missing
    ///
    /// [default: partita-demo in the current directory, or if that is in use partita-demo-2 and so on]
    #[arg(long, value_name = "DIR", conflicts_with = "memory")]
    data: Option<PathBuf>,

    /// Keeps everything in memory only
    #[arg(long)]
    memory: bool,

    /// Processors to start with
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..=32))]
    processors: u32,

    /// Events produced per second
    #[arg(long, value_name = "EVENTS_PER_S", default_value_t = 20_000, value_parser = clap::value_parser!(u32).range(1..))]
    rate: u32,

    /// The same number makes the same stream of events
    #[arg(long, value_name = "NUMBER", default_value_t = 1)]
    seed: u64,

    /// Prints only the result, as one JSON object; progress goes to stderr
    #[arg(long)]
    json: bool,

    /// Lines of text, even on a terminal
    #[arg(long)]
    lines: bool,

    /// Prints the result only
    #[arg(long, short)]
    quiet: bool,
}

/// A run that can be carried out.
#[derive(Clone, Debug)]
pub(crate) struct Plan {
    pub(crate) length: Duration,
    pub(crate) script: Script,
    pub(crate) partitions: Option<u32>,
    pub(crate) place: Place,
    pub(crate) processors: u32,
    pub(crate) rate: u32,
    pub(crate) seed: u64,
}

impl Plan {
    fn new(args: &Args) -> Result<Self, String> {
        let &Args { length, partitions, processors, rate, seed, .. } = args;
        if length.is_zero() {
            return Err("--for 0s leaves no time for anything: choose a longer one".to_owned());
        }
        let events = length.as_secs_f64() * f64::from(rate);
        if events > EVENTS_MAX as f64 {
            return Err(format!(
                "--for {} with --rate {rate} makes {} events, and the demo takes {}: choose a shorter \
                 --for or a lower --rate",
                Time(length),
                grouped(events as u64),
                grouped(EVENTS_MAX)
            ));
        }
        let steps = if args.steps.is_empty() { Script::usual(length) } else { args.steps.clone() };
        let script = Script::new(steps, length, processors)?;
        let place = match (&args.data, args.memory) {
            (_, true) => Place::Memory,
            (Some(path), false) => Place::Directory(path.clone()),
            (None, false) => Place::Default,
        };
        Ok(Self { length, script, partitions, place, processors, rate, seed })
    }
}

/// Runs the demo.
pub(crate) fn run(args: Args) -> Result<ExitCode, Failure> {
    let plan = Plan::new(&args).map_err(Failure::Usage)?;
    let show = match (args.quiet, args.json) {
        (true, _) => Show::Lines(Lines(Out::nowhere())),
        (false, true) => Show::Lines(Lines(Out::stderr())),
        (false, false) if !args.lines && show::has_terminal() => Show::Screen(Box::new(Screen::new())),
        (false, false) => Show::Lines(Lines(Out::stdout())),
    };
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .map_err(|error| Failure::Run(format!("cannot start: {error}")))?;
    let result = runtime.block_on(run::run(plan, show))?;
    // Threads of the demo may still be ending; nothing waits for them.
    runtime.shutdown_background();
    let mut out = Out::stdout();
    if args.json {
        let json = serde_json::to_string(&result.report).map_err(|error| Failure::Run(error.to_string()))?;
        out.line(&json)?;
    } else {
        result.report.print(result.former, &result.moves, &result.spans, result.freezes, &mut out)?;
    }
    match result.doubts {
        Some(doubts) => Err(Failure::Run(doubts)),
        None if result.report.is_good() => Ok(ExitCode::SUCCESS),
        None => Ok(ExitCode::FAILURE),
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct Cli {
        #[command(flatten)]
        demo: Args,
    }

    fn plan(args: &[&str]) -> Result<Plan, String> {
        Plan::new(&Cli::try_parse_from([&["demo"], args].concat()).map_err(|error| error.to_string())?.demo)
    }

    #[test]
    fn defaults_are_the_documented_ones() {
        let plan = plan(&[]).unwrap();
        assert_eq!((plan.partitions, plan.processors, plan.rate), (None, 3, 20_000));
        assert_eq!(plan.place, Place::Default);
        let steps: Vec<String> = plan.script.steps().iter().map(Step::to_string).collect();
        assert_eq!(steps, ["5s=add", "10s=kill", "15s=remove"]);
    }

    #[test]
    fn the_usual_script_fits_any_length() {
        assert!(plan(&["--for", "2s"]).is_ok());
        assert!(plan(&["--for", "5m"]).is_ok());
    }

    #[test]
    fn more_than_can_be_counted_is_refused() {
        assert!(plan(&["--for", "1h"]).unwrap_err().contains("a shorter --for or a lower --rate"));
        assert!(plan(&["--for", "0s"]).unwrap_err().contains("longer"));
    }

    #[test]
    fn a_script_that_uses_up_all_processors_is_refused() {
        assert!(plan(&["--processors", "1"]).unwrap_err().contains("leaves no processor"));
    }
}
