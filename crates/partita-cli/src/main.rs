//! The `partita` command.
//!
//! Data goes to stdout, everything else to stderr. Exit codes: 0 all is well, 1 the run failed or its result is bad,
//! 2 the command line cannot be carried out, 3 a port cannot be used, 4 the data directory cannot be used, 5 no hub
//! answers, 130 interrupted twice.

mod admin;
mod demo;
mod output;
mod serve;
mod units;

use std::io::{self, IsTerminal};
use std::process::ExitCode;

use clap::{Parser, Subcommand};
use tracing_subscriber::EnvFilter;

use crate::output::{Out, Tone};

/// Balanced, resumable processing of partitioned event streams.
#[derive(Parser, Debug)]
#[command(name = "partita", version, max_term_width = 100, arg_required_else_help = true)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand, Debug)]
enum Command {
    Serve(Box<serve::Args>),
    Hub(admin::HubArgs),
    Fault(admin::FaultArgs),
    Demo(demo::Args),
    #[command(hide = true)]
    DemoProcessor(demo::ProcessorArgs),
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
    /// Nobody takes the output any more.
    Output(io::Error),
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
        Command::Hub(args) => admin::hub(args),
        Command::Fault(args) => admin::fault(args),
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

fn fail(failure: Failure) -> ExitCode {
    let (text, code) = match failure {
        Failure::Usage(text) => (text, ExitCode::from(2)),
        Failure::Run(text) => (text, ExitCode::FAILURE),
        Failure::Listen(text) => (text, ExitCode::from(3)),
        Failure::Data(text) => (text, ExitCode::from(4)),
        Failure::Unreachable(text) => (text, ExitCode::from(5)),
        // The reader of a pipe has seen enough.
        Failure::Output(error) if error.kind() == io::ErrorKind::BrokenPipe => return ExitCode::SUCCESS,
        Failure::Output(error) => (format!("cannot write the output: {error}"), ExitCode::FAILURE),
    };
    let mut err = Out::stderr();
    let word = err.paint(Tone::Bad, "error:");
    // If stderr is closed, too, the exit code has to do.
    let _ = err.line(&format!("{word} {text}"));
    code
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
