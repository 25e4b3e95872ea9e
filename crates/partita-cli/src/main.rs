//! The `partita` command.
//!
//! Data goes to stdout, everything else to stderr. Exit codes: 0 all is well, 1 the run failed or its result is bad,
//! 2 the command line cannot be carried out, 3 a port cannot be used, 4 the data directory cannot be used, 5 no hub
//! answers, 6 access was refused, 7 no such hub, group, partition or event, 130 interrupted and not ended in time.

mod admin;
mod connection;
mod consume;
mod demo;
mod event;
mod events;
mod group;
mod interrupt;
mod named_files;
mod output;
mod produce;
mod serve;
mod signals;
mod table;
mod units;

use std::io::{self, IsTerminal, Write};
use std::process::ExitCode;

use clap::{CommandFactory, Parser, Subcommand};
use tracing_subscriber::EnvFilter;

use crate::output::{Out, Tone, tame};

const ENDS: &str = "\
Exit code: 0 all is well, 1 the run failed or its result is bad, 2 the command line
cannot be carried out, 3 a port cannot be used, 4 the data directory cannot be used,
5 no hub answers, 6 access was refused, 7 no such hub, group, partition or event,
130 interrupted twice, or not ended in time. NO_COLOR=1 turns colours off.";

/// Balanced, resumable processing of partitioned event streams.
#[derive(Parser, Debug)]
#[command(
    name = "partita",
    version = env!("PARTITA_VERSION"),
    max_term_width = 100,
    arg_required_else_help = true,
    after_help = ENDS
)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand, Debug)]
enum Command {
    Serve(Box<serve::Args>),
    Produce(produce::Args),
    Consume(consume::Args),
    Event(event::Args),
    Status(group::StatusArgs),
    Moves(group::MovesArgs),
    Plan(group::PlanArgs),
    Hub(admin::HubArgs),
    Fault(admin::FaultArgs),
    Demo(demo::Args),
    #[command(hide = true)]
    DemoProcessor(demo::ProcessorArgs),
    /// Prints completions for a shell, to be put where it looks for them
    Completions {
        /// The shell
        shell: clap_complete::Shell,
    },
}

/// Why a command ended without doing what was asked.
#[derive(Debug)]
pub(crate) enum Failure {
    /// What was asked for cannot be done, and how to ask for something that can.
    Usage(String),
    /// It began and went wrong.
    Run(String),
    /// A port or address cannot be used.
    Listen(String),
    /// The data directory cannot be used.
    Data(String),
    /// No hub answers.
    Unreachable(String),
    /// The hub answers, and says no.
    Refused(String),
    /// The hub answers, and has no such thing.
    Missing(String),
    /// The user did not want to wait for the end.
    Interrupted(String),
    /// Nobody takes the output any more.
    Output(io::Error),
}

impl Failure {
    /// The sentence that says it.
    fn text(&self) -> String {
        match self {
            Self::Usage(text)
            | Self::Run(text)
            | Self::Listen(text)
            | Self::Data(text)
            | Self::Unreachable(text)
            | Self::Refused(text)
            | Self::Missing(text)
            | Self::Interrupted(text) => text.clone(),
            Self::Output(error) => format!("cannot write the output: {error}"),
        }
    }

    fn code(&self) -> u8 {
        match self {
            Self::Run(_) | Self::Output(_) => 1,
            Self::Usage(_) => 2,
            Self::Listen(_) => 3,
            Self::Data(_) => 4,
            Self::Unreachable(_) => 5,
            Self::Refused(_) => 6,
            Self::Missing(_) => 7,
            Self::Interrupted(_) => interrupt::CODE,
        }
    }
}

impl From<io::Error> for Failure {
    fn from(error: io::Error) -> Self {
        Self::Output(error)
    }
}

fn main() -> ExitCode {
    let cli = Cli::parse();
    let done = match cli.command {
        Command::Serve(args) => serve::run(*args),
        Command::Produce(args) => produce::run(args),
        Command::Consume(args) => consume::run(args),
        Command::Event(args) => event::run(args),
        Command::Status(args) => group::status(args),
        Command::Moves(args) => group::moves(args),
        Command::Plan(args) => group::plan(args),
        Command::Hub(args) => admin::hub(args),
        Command::Fault(args) => admin::fault(args),
        Command::Completions { shell } => completions(shell),
        Command::Demo(args) => {
            log_if_asked();
            demo::run(args)
        }
        Command::DemoProcessor(args) => {
            log_if_asked();
            demo::run_processor(args)
        }
    };
    match done {
        Ok(code) => code,
        Err(failure) => fail(failure),
    }
}

fn completions(shell: clap_complete::Shell) -> Result<ExitCode, Failure> {
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut Cli::command(), "partita", &mut script);
    io::stdout().write_all(&script)?;
    Ok(ExitCode::SUCCESS)
}

fn fail(failure: Failure) -> ExitCode {
    // The reader of a pipe has seen enough.
    if matches!(&failure, Failure::Output(error) if error.kind() == io::ErrorKind::BrokenPipe) {
        return ExitCode::SUCCESS;
    }
    let mut err = Out::stderr();
    let word = err.paint(Tone::Bad, "error:");
    // If stderr is closed, too, the exit code has to do.
    let _ = err.line(&format!("{word} {}", tame(&failure.text())));
    ExitCode::from(failure.code())
}

/// The engine's own log, on stderr, for those who set RUST_LOG.
fn log_if_asked() {
    if has_filter() {
        log_to_stderr("off");
    }
}

fn has_filter() -> bool {
    std::env::var_os("RUST_LOG").is_some_and(|filter| !filter.is_empty())
}

/// The same from this level on, unless RUST_LOG says otherwise.
fn log_to_stderr(level: &str) {
    let filter = if has_filter() { EnvFilter::from_default_env() } else { EnvFilter::new(level) };
    tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(io::stderr)
        .with_ansi(output::has_colour(io::stderr().is_terminal()))
        .init();
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    #[test]
    fn the_command_line_is_consistent() {
        super::Cli::command().debug_assert();
    }
}
