//! `partita produce`: lines become events.

mod input;
mod progress;
mod report;
mod routing;
mod sending;

use std::io::{self, IsTerminal};
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Instant;

use partita_sources::eventhubs::EventHubs;
use tokio::sync::mpsc;

use self::input::{CHUNKS_MAX, Chunk, Reading, Source};
use self::progress::{Progress, Read};
use self::report::Report;
use self::routing::Routing;
use self::sending::Sending;
use crate::admin::Form;
use crate::connection::{ConnectionArgs, HELP, runtime};
use crate::output::Out;
use crate::{Failure, interrupt};

const SHAPE: &str = "\
With --jsonl a line is an object: {\"body\":\"text\"}, and with it, if wanted,
\"key\", \"partition\" and \"properties\". Bodies that are no text are \"body_base64\",
or \"body\" with any other JSON, which is then sent as it is written. All that
'partita consume -o jsonl' prints is taken: its \"partition\" and \"key\" say where an
event goes, \"property_types\" which types its properties have, and what only a hub
gives (sequence, offset, enqueued) is passed over.

A line that cannot be sent ends the command; the lines before it are sent.
";

/// Sends lines as events; those of a partition arrive in their order.
///
/// A line's body is all of it but the line feed. Without --key or --partition, lines go round the partitions.
#[derive(clap::Args, Debug)]
#[command(after_long_help = format!("{SHAPE}\n{HELP}"))]
pub(crate) struct Args {
    /// The hub
    hub: String,

    /// Reads lines from a file instead of stdin
    #[arg(long, short, value_name = "FILE", conflicts_with = "body", help_heading = "Input")]
    file: Option<PathBuf>,

    /// Reads no lines: sends this text, --count times; an n in braces in it becomes the number of the event, from 0
    #[arg(long, value_name = "TEXT", conflicts_with = "jsonl", help_heading = "Input")]
    body: Option<String>,

    /// Each line is an event as JSON, as 'consume -o jsonl' prints it; see --help
    #[arg(long, help_heading = "Input")]
    jsonl: bool,

    /// Ends after so many events [default: all lines; 1 with --body]
    #[arg(long, short = 'n', value_name = "N", help_heading = "Input")]
    count: Option<u64>,

    /// Sends at most so many events a second
    #[arg(long, value_name = "N", value_parser = parse_rate, help_heading = "Input")]
    rate: Option<f64>,

    /// The partition key of all events: they go to the partition that it belongs to
    #[arg(long, short, value_name = "KEY", help_heading = "Events")]
    key: Option<String>,

    /// Each line is a key, this character and the body, such as 'home-1:21.5' with ':'; \\t is a tab
    #[arg(
        long,
        value_name = "CHAR",
        value_parser = parse_separator,
        conflicts_with_all = ["key", "jsonl", "body"],
        help_heading = "Input"
    )]
    key_separator: Option<char>,

    /// The partition for all events
    #[arg(long, short, value_name = "ID", conflicts_with = "key", help_heading = "Events")]
    partition: Option<String>,

    /// Ignores the partitions in lines of --jsonl; their keys still apply
    #[arg(long, requires = "jsonl", help_heading = "Events")]
    spread: bool,

    /// A property of all events, a text; may be repeated
    #[arg(long = "property", value_name = "NAME=VALUE", value_parser = parse_property, help_heading = "Events")]
    properties: Vec<(String, String)>,

    /// How to say where the events went: for people on stderr, or as JSON for programs on stdout
    #[arg(long, short, value_enum, default_value_t = Form::Table, value_name = "FORM", conflicts_with = "quiet")]
    output: Form,

    /// Prints no report
    #[arg(long, short)]
    quiet: bool,

    #[command(flatten)]
    connection: ConnectionArgs,
}

/// One event a day, about.
const RATE_MIN: f64 = 0.00001;

/// A character, or a tab as shells let it be written.
fn parse_separator(text: &str) -> Result<char, String> {
    let mut letters = text.chars();
    match (letters.next(), letters.next()) {
        (Some('\n'), None) => Err("a line feed ends the line: choose another character".to_owned()),
        (Some(one), None) => Ok(one),
        _ if text == "\\t" => Ok('\t'),
        _ => Err("write one character, such as : or \\t".to_owned()),
    }
}

fn parse_property(text: &str) -> Result<(String, String), String> {
    match text.split_once('=') {
        Some((name, value)) if !name.is_empty() => Ok((name.to_owned(), value.to_owned())),
        _ => Err("write NAME=VALUE".to_owned()),
    }
}

fn parse_rate(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(rate) if rate >= RATE_MIN && rate.is_finite() => Ok(rate),
        _ => Err(format!("write a number of at least {RATE_MIN}, which is one event a day")),
    }
}

/// Sends until there is no more.
pub(crate) fn run(args: Args) -> Result<ExitCode, Failure> {
    crate::log_if_asked();
    let client = args.connection.client(&args.hub, "produce")?;
    let source = Source::open(args.file.as_deref(), args.body.as_deref())?;
    let runtime = runtime()?;
    let done = runtime.block_on(produce(args, client, source));
    // The thread that reads may wait for a line that never comes; it ends with the process.
    runtime.shutdown_background();
    done
}

async fn produce(args: Args, client: EventHubs, source: Source) -> Result<ExitCode, Failure> {
    let mut partitions = client.properties().await?.partitions;
    partitions.sort();
    let routing = Routing::new(&partitions, &args).map_err(|said| missing(&client, said))?;
    if !args.quiet && source.is_terminal() {
        Out::stderr().line("Type a line per event; Ctrl-D ends.")?;
    }
    let mut sending = Sending::new(client.clone(), partitions);
    let read = Arc::new(Read::default());
    let progress = Progress::start(&args, &source, sending.producer(), &read);
    let (chunks, taken) = mpsc::channel(CHUNKS_MAX);
    let reading = Reading {
        source,
        jsonl: args.jsonl,
        key_separator: args.key_separator,
        count: args.count.or(args.body.is_some().then_some(1)),
        rate: args.rate,
        properties: args.properties.clone(),
        routing,
        read,
    };
    let (tell, end) = tokio::sync::oneshot::channel();
    std::thread::spawn(move || {
        let _ = tell.send(reading.run(&chunks));
    });
    let began = Instant::now();
    let (interrupted, cut) = interrupt::both();
    let done = tokio::select! {
        done = send_all(&mut sending, taken, interrupted) => Some(done),
        () = cut => None,
    };
    progress.end();
    let took = began.elapsed();
    let said = match done {
        None => Err(Failure::Interrupted(sending.in_doubt())),
        Some(Err(failure)) => Err(failure),
        // Whoever reads has stopped, unless it was told to; then it may wait for a line.
        Some(Ok(Ended::Read)) => {
            end.await.unwrap_or_else(|_| Err("reading ended early".to_owned())).map_err(Failure::Run)
        }
        Some(Ok(Ended::Interrupted)) => Ok(()),
    };
    if !args.quiet {
        // A hub that is away is not asked where its partitions end.
        let asks = !matches!(said, Err(Failure::Unreachable(_) | Failure::Interrupted(_)));
        let report = Report::of(asks.then_some(&client), client.hub().as_str(), &sending, took).await;
        match args.output {
            Form::Table => report.print(&mut Out::stderr())?,
            Form::Json => Out::stdout().line(&report.json().to_string())?,
        }
    }
    said.map(|()| ExitCode::SUCCESS)
}

enum Ended {
    /// There is no more.
    Read,
    /// The user wants no more.
    Interrupted,
}

/// Sends until there is no more, or the user wants no more, and waits for what was taken, whatever happened.
async fn send_all(
    sending: &mut Sending,
    mut read: mpsc::Receiver<Chunk>,
    interrupted: impl Future<Output = ()>,
) -> Result<Ended, Failure> {
    let sent = send(sending, &mut read, interrupted).await;
    // What failed first is told here; what followed from it, before.
    sending.finish().await?;
    sent
}

async fn send(
    sending: &mut Sending,
    read: &mut mpsc::Receiver<Chunk>,
    interrupted: impl Future<Output = ()>,
) -> Result<Ended, Failure> {
    tokio::pin!(interrupted);
    loop {
        // Only waiting is interrupted: what was taken is sent.
        let chunk = tokio::select! {
            biased;
            () = &mut interrupted => return Ok(Ended::Interrupted),
            chunk = read.recv() => chunk,
        };
        match chunk {
            Some(chunk) => sending.take(chunk).await?,
            None => return Ok(Ended::Read),
        }
    }
}

fn missing(client: &EventHubs, said: String) -> Failure {
    Failure::Missing(format!("{said} in hub {}", client.hub()))
}

/// Where a count is shown as it grows: on a terminal that nobody types on.
fn shows_progress(args: &Args, source: &Source) -> bool {
    !args.quiet && !source.is_terminal() && io::stderr().is_terminal()
}
