//! `partita status`.

use std::io::{self, IsTerminal};
use std::process::ExitCode;
use std::time::Duration;

use super::screen::Screen;
use super::{Form, Group, GroupArgs, Place, json, show};
use crate::connection::{HELP, runtime};
use crate::output::{Out, Tone};
use crate::units::parse_time;
use crate::{Failure, interrupt};

const MEANING: &str = "\
CHECKPOINT is the last event handled, AGE how long ago it was written, by whichever
owner. LAG counts the events after it; without a checkpoint, those from where the
processors start such a partition, or from the first one that the hub still has.
BEHIND is how long the first of them has been waiting. It is looked
up in the consumer group $Default; where processors read that one for themselves, it
is a lower bound, with a >. Events that were handled and not yet checkpointed count as
lag: a busy processor that checkpoints every second is about a second behind.

A partition whose owner tries the same thing again and again is told of above the
tables: since when, at which event, when it is tried next, and why it fails.

An instance is live, standby (it owns nothing), stopping, silent (no heartbeat for
its ttl) or dead. If the hub does not answer, all but the lag is shown.
";

/// Shows who owns what in a processor group, how far they are, and what moved last.
#[derive(clap::Args, Debug)]
#[command(after_long_help = format!("{MEANING}\n{HELP}"))]
pub(crate) struct Args {
    #[command(flatten)]
    group: GroupArgs,

    /// Refreshes until Ctrl-C
    #[arg(long, short)]
    watch: bool,

    /// How often --watch refreshes
    #[arg(long, value_name = "TIME", default_value = "1s", value_parser = parse_time)]
    interval: Duration,
}

/// Shows it once, or until it is enough.
pub(crate) fn run(args: Args) -> Result<ExitCode, Failure> {
    crate::log_if_asked();
    let runtime = runtime()?;
    let done = runtime.block_on(async {
        let place = args.group.open()?;
        if args.watch { watch(&args, &place).await } else { print(&args, &place.look().await?) }
    });
    runtime.shutdown_background();
    done.map(|()| ExitCode::SUCCESS)
}

fn print(args: &Args, group: &Group) -> Result<(), Failure> {
    let mut out = Out::stdout();
    if args.group.output == Form::Json {
        let json = json::group(group);
        // One line each, where there are several.
        let text = if args.watch { json.to_string() } else { format!("{json:#}") };
        return Ok(out.line(&text)?);
    }
    print_lines(&mut out, &show::status(group, None))
}

fn print_lines(out: &mut Out, lines: &[String]) -> Result<(), Failure> {
    for (at, line) in lines.iter().enumerate() {
        let line = if at == 0 { out.paint(Tone::Strong, line) } else { line.clone() };
        out.line(&line)?;
    }
    Ok(())
}

async fn watch(args: &Args, place: &Place) -> Result<(), Failure> {
    let interrupted = interrupt::first();
    tokio::pin!(interrupted);
    let mut screen: Option<Screen> = None;
    let in_place = args.group.output == Form::Table && io::stdout().is_terminal();
    // What was drawn, and all of it.
    let (mut last, mut whole) = (Vec::new(), Vec::new());
    let mut every = tokio::time::interval(args.interval.max(Duration::from_millis(100)));
    every.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    loop {
        let looked = tokio::select! {
            () = &mut interrupted => break,
            looked = async { every.tick().await; place.look().await } => looked,
        };
        // What is wrong at the start ends it; later it may pass.
        let group = match looked {
            Ok(group) => group,
            Err(failure) if last.is_empty() => return Err(failure),
            Err(failure) => {
                if let Some(screen) = &mut screen {
                    screen.draw(&last, &failure.text())?;
                }
                continue;
            }
        };
        if in_place {
            let screen = screen.get_or_insert_with(Screen::new);
            last = show::status(&group, Some(screen.rows().saturating_sub(2)));
            whole = show::status(&group, None);
            screen.draw(&last, "Ctrl-C ends")?;
        } else {
            print(args, &group)?;
            if args.group.output == Form::Table {
                Out::stdout().line("")?;
            }
            last = vec![String::new()];
        }
    }
    if screen.take().is_some() {
        // What was seen last stays.
        print_lines(&mut Out::stdout(), &whole)?;
    }
    Ok(())
}
