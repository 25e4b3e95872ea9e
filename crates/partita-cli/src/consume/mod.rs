//! `partita consume`: events become lines.

mod closed;
mod print;
mod read;
mod start;

use std::io::{self, IsTerminal};
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use clap::ValueEnum;
use futures_util::future::try_join_all;
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use partita_core::model::{ConsumerGroup, PartitionId, Position, Timestamp};
use partita_core::source::Gap;
use partita_sources::eventhubs::EventHubs;
use tokio::sync::mpsc;

use self::print::Printer;
use self::read::{Follow, Said};
use self::start::{events, last as last_events, span};
use crate::connection::{ConnectionArgs, HELP, runtime};
use crate::events::Template;
use crate::output::{Out, Tone, counted, grouped, has_colour, tame};
use crate::{Failure, interrupt};

/// What readers have handed over and is not printed yet; each holds at most what one reader fetches ahead.
const SAID_MAX: usize = 16;
/// How long nothing may come before somebody who watches is told that nothing came.
const SILENCE: Duration = Duration::from_secs(1);

const WORDS: &str = "\
Where to start: earliest, latest, a time (2026-01-31T08:00:00Z, or 90s-ago,
10m-ago, 2h-ago, 1d-ago), seq:N or offset:N (that event), or 'after seq:N'.

--format takes {body} {partition} {sequence} {offset} {enqueued} {key} and
{property:NAME}, \\n and \\t; braces themselves are {{ and }}. Each event ends with
a line feed.

Events of a partition come in their order; those of several as they arrive. On a
terminal, what would steer it is shown as \\u{1b} and the like; elsewhere bodies are
printed byte by byte.

Events that retention removed before they were read, or that were lost to damage,
are told on stderr with their numbers, also with --quiet; reading goes on after
them, and the exit code is 1.
";

/// Prints the events of a hub, and waits for more.
///
/// It reads beside others and keeps no position: another run starts where it is told to.
#[derive(clap::Args, Debug)]
#[command(after_long_help = format!("{WORDS}\n{HELP}"))]
pub(crate) struct Args {
    /// The hub
    hub: String,

    /// The consumer group to read in
    #[arg(long, short, value_name = "GROUP", default_value = ConsumerGroup::DEFAULT)]
    group: String,

    /// A partition to read; may be repeated [default: all]
    #[arg(long = "partition", short, value_name = "ID")]
    partitions: Vec<String>,

    /// Where to start; see --help
    #[arg(long, value_name = "POSITION", default_value = "earliest", value_parser = parse_position)]
    from: Position,

    /// Starts with the last N events of each partition
    #[arg(long, value_name = "N", conflicts_with = "from")]
    last: Option<u64>,

    /// Ends after so many events
    #[arg(long, short = 'n', value_name = "N")]
    count: Option<u64>,

    /// Ends after the events that exist when it starts
    #[arg(long)]
    until_end: bool,

    /// Output: bodies, or whole events as lines of JSON, which 'produce --jsonl' accepts
    #[arg(long, short, value_enum, default_value_t = Form::Text, value_name = "FORM")]
    output: Form,

    /// A template for each line, such as '{partition}/{sequence} {body}'
    #[arg(long, value_name = "TEMPLATE", value_parser = str::parse::<Template>, conflicts_with = "output")]
    format: Option<Template>,

    /// Prints events and problems only
    #[arg(long, short)]
    quiet: bool,

    #[command(flatten)]
    connection: ConnectionArgs,
}

/// How to print.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub(crate) enum Form {
    Text,
    #[value(alias = "json")]
    Jsonl,
}

fn parse_position(text: &str) -> Result<Position, String> {
    Position::parse(text, Timestamp::now()).map_err(|error| error.to_string())
}

/// Prints until it is enough.
pub(crate) fn run(args: Args) -> Result<ExitCode, Failure> {
    crate::log_if_asked();
    let client = args.connection.client(&args.hub, "consume")?;
    let runtime = runtime()?;
    let (tell, said) = mpsc::channel(SAID_MAX);
    let stop = Arc::new(AtomicBool::new(false));
    let opened = runtime.block_on(open(&args, &client))?;
    let bar = bar(&args, opened.iter().map(|(_, events)| *events).sum());
    let readers: Vec<_> = opened.into_iter().map(|(reader, _)| reader).collect();
    let names = readers.iter().map(|reader| reader.partition().clone()).collect();
    {
        let _guard = runtime.enter();
        // Before anything is printed: whoever sees an event may interrupt at once.
        let interrupted = interrupt::first();
        let away = Arc::new(AtomicBool::new(false));
        for (at, reader) in readers.into_iter().enumerate() {
            tokio::spawn(reader.run(at, Arc::clone(&away), tell.clone()));
        }
        let (stopped, ask) = (Arc::clone(&stop), tell.downgrade());
        tokio::spawn(async move {
            interrupted.await;
            stopped.store(true, Ordering::Relaxed);
            if let Some(tell) = ask.upgrade() {
                let _ = tell.send(Said::Enough).await;
            }
        });
        closed::watch(tell.downgrade());
        if !args.quiet && !args.until_end && io::stdout().is_terminal() {
            hint(tell.downgrade());
        }
    }
    drop(tell);
    let printed = print_all(&args, names, said, &stop, &bar);
    bar.finish_and_clear();
    runtime.shutdown_background();
    printed
}

/// Readers of all partitions that are wanted and have something to come, and how many events each has to read, where that is
/// known.
async fn open(args: &Args, client: &EventHubs) -> Result<Vec<(Follow, Option<u64>)>, Failure> {
    let mut partitions = client.properties().await?.partitions;
    partitions.sort();
    if let Some(other) = args.partitions.iter().find(|id| !partitions.iter().any(|p| p.as_str() == **id)) {
        let last = partitions.len().saturating_sub(1);
        return Err(Failure::Missing(format!(
            "there is no partition {other} in hub {}: they are 0 to {last}",
            client.hub()
        )));
    }
    let wanted =
        |p: &PartitionId| args.partitions.is_empty() || args.partitions.iter().any(|id| p.as_str() == id);
    partitions.retain(wanted);
    let group = ConsumerGroup::new(&args.group);
    let group = &group;
    let opened = try_join_all(partitions.iter().map(|partition| async move {
        let properties = client.partition(partition).await?;
        let from = args.last.map_or_else(|| args.from.clone(), |count| last_events(count, &properties));
        let span = span(&from, &properties);
        let events = events(&span, &properties);
        let note = span.note.as_ref().filter(|_| !args.quiet && from != Position::Latest);
        if let Some(note) = note {
            Out::stderr().line(&format!("partition {partition}: {note}"))?;
        }
        // Also if there is nothing to read: that the group is there is worth to know.
        let last = match (args.until_end, span.last) {
            (true, None) => None,
            (true, Some(last)) => Some(Some(last)),
            (false, _) => Some(None),
        };
        let mut reader =
            Follow::open(client.source(), group.clone(), partition.clone(), span.from, last.flatten())
                .await?;
        reader.lost_after(span.lost);
        Ok::<_, Failure>(last.is_some().then_some((reader, events)))
    }));
    Ok(opened.await?.into_iter().flatten().collect())
}

/// How far it is, for somebody who watches while the events go elsewhere; nothing where nobody does.
fn bar(args: &Args, events: Option<u64>) -> ProgressBar {
    let whole = match (args.until_end, events, args.count) {
        (true, Some(events), count) => Some(events.min(count.unwrap_or(u64::MAX))),
        (_, _, count) => count,
    };
    let bar = whole.map_or_else(ProgressBar::no_length, ProgressBar::new);
    let watched = !args.quiet && io::stderr().is_terminal() && !io::stdout().is_terminal();
    bar.set_draw_target(match watched {
        true => ProgressDrawTarget::stderr_with_hz(10),
        false => ProgressDrawTarget::hidden(),
    });
    let shade = if has_colour(true) { ".green/dim" } else { "" };
    let template = match whole {
        Some(_) => {
            format!("{{bar:24{shade}}} {{percent:>3}}%  {{human_pos}} events, {{per_sec}}  {{eta}} left")
        }
        None => "{spinner} {human_pos} events, {per_sec}  {elapsed}".to_owned(),
    };
    if let Ok(style) = ProgressStyle::with_template(&template) {
        bar.set_style(style.progress_chars("━━─"));
    }
    bar
}

/// Tells somebody who watches that there is nothing to see.
fn hint(tell: mpsc::WeakSender<Said>) {
    let text = "No events so far; waiting for some. Ctrl-C ends.".to_owned();
    tokio::spawn(async move {
        tokio::time::sleep(SILENCE).await;
        if let Some(tell) = tell.upgrade() {
            let _ = tell.send(Said::Silence(text)).await;
        }
    });
}

fn print_all(
    args: &Args,
    names: Vec<PartitionId>,
    mut said: mpsc::Receiver<Said>,
    stop: &AtomicBool,
    bar: &ProgressBar,
) -> Result<ExitCode, Failure> {
    let began = Instant::now();
    let mut printer = Printer::new(args, names);
    let (mut failure, mut missed) = (None, Missed::default());
    while !stop.load(Ordering::Relaxed) && !printer.is_done() {
        let next = match said.try_recv() {
            Ok(next) => Some(next),
            // Nothing waits in here while nothing comes.
            Err(_) => {
                printer.flush()?;
                said.blocking_recv()
            }
        };
        match next {
            Some(Said::Events(at, events)) => {
                printer.print(at, &events, stop)?;
                bar.set_position(printer.printed());
            }
            // Also if it is to be quiet: something is wrong.
            Some(Said::Note(text)) => {
                let mut err = Out::stderr();
                let text = err.paint(Tone::Faint, &tame(&text));
                bar.suspend(|| err.line(&text))?;
            }
            Some(Said::Missed(partition, gap)) => {
                missed.add(&gap);
                let mut err = Out::stderr();
                let word = err.paint(Tone::Bad, "warning:");
                let text = format!("{word} {}", tame(&format!("partition {partition}: {gap}")));
                bar.suspend(|| err.line(&text))?;
            }
            Some(Said::Silence(text)) if printer.printed() == 0 => Out::stderr().line(&text)?,
            Some(Said::Silence(_)) => {}
            // What the other partitions have is printed first, if that ends.
            Some(Said::Failed(failed)) if args.until_end => match &failure {
                None => failure = Some(failed),
                Some(first) if first.text() != failed.text() => {
                    let mut err = Out::stderr();
                    let word = err.paint(Tone::Bad, "error:");
                    let text = format!("{word} {}", tame(&failed.text()));
                    bar.suspend(|| err.line(&text))?;
                }
                Some(_) => {}
            },
            Some(Said::Failed(failed)) => {
                failure = Some(failed);
                break;
            }
            Some(Said::Closed) => return Ok(ExitCode::SUCCESS),
            Some(Said::Enough) | None => break,
        }
    }
    printer.flush()?;
    bar.finish_and_clear();
    if let Some(failure) = failure {
        return Err(failure);
    }
    if !args.quiet && io::stderr().is_terminal() {
        let (count, took) = (printer.printed(), began.elapsed().as_secs_f64());
        let mut err = Out::stderr();
        let rate = match count {
            1_000.. => format!(" in {took:.1} s ({}/s)", grouped((count as f64 / took.max(0.001)) as u64)),
            _ => String::new(),
        };
        let text = err.paint(Tone::Faint, &format!("{}{rate}.", counted(count, "event")));
        err.line(&text)?;
    }
    missed.result()
}

/// What was gone before it was read.
#[derive(Default)]
struct Missed {
    gaps: u64,
    /// Without those of gaps that tell no number.
    events: u64,
}

impl Missed {
    fn add(&mut self, gap: &Gap) {
        self.gaps += 1;
        self.events += gap.range().map_or(0, |range| range.end.abs_diff(range.start));
    }

    fn result(&self) -> Result<ExitCode, Failure> {
        let what = match (self.gaps, self.events) {
            (0, _) => return Ok(ExitCode::SUCCESS),
            (_, 0) => "events were gone before they were read".to_owned(),
            // After damage a hub skips more numbers than it may have given.
            (_, 1) => "at most 1 event was gone before it was read".to_owned(),
            (_, events) => format!("at most {} were gone before they were read", counted(events, "event")),
        };
        let remedy = "'partita hub check' tells if they were lost to damage; if not, let the hub keep more, or read sooner";
        Err(Failure::Run(format!("{what}: {remedy}")))
    }
}
