//! Partita's figures: dispatch, hand-off, SQLite, the hub's log, the served hub, its peers and its clients, failover and rebalance, with the machine's limits beside them.

mod clock;
mod directory;
mod dispatch;
mod failover;
mod fleet;
mod handoff;
mod limits;
mod log;
mod out;
mod peers;
mod plain;
mod processor;
mod rebalance;
mod recorder;
mod report;
mod served;
mod sqlite;
mod stats;
mod world;

use std::path::Path;
use std::process::ExitCode;

use limits::Limits;

/// In this order: pausing Tokio's clock, as the last two do, makes it dearer for the rest of the process.
const NAMES: [&str; 9] =
    ["dispatch", "hand-off", "sqlite", "log", "served", "peers", "processor", "failover", "rebalance"];

const USAGE: &str = "usage: cargo run --release -p partita-benches [-- [--quick] [NAME...]]

Runs all benchmarks, or those named, prints their figures, and ends with 1 if a limit was missed.
A full run writes benches/README.md; a quick one and one of single benchmarks only print.

  --quick   fewer rounds
  NAME      dispatch, hand-off, sqlite, log, served, peers, processor, failover or rebalance";

/// What was asked for.
#[derive(PartialEq, Eq, Debug)]
struct Asked {
    quick: bool,
    names: Vec<&'static str>,
}

impl Asked {
    fn is_full(&self) -> bool {
        !self.quick && self.names.len() == NAMES.len()
    }
}

fn main() -> ExitCode {
    if let [_, argument, rest @ ..] = &std::env::args().collect::<Vec<_>>()[..]
        && argument == processor::worker::ARGUMENT
    {
        processor::worker::main(rest);
        return ExitCode::SUCCESS;
    }
    if let [_, argument, directory, name] = &std::env::args().collect::<Vec<_>>()[..]
        && argument == sqlite::worker::ARGUMENT
    {
        sqlite::worker::main(Path::new(directory), name);
        return ExitCode::SUCCESS;
    }
    let Some(asked) = parse(std::env::args().skip(1)) else {
        out::note(USAGE);
        return ExitCode::from(2);
    };
    if cfg!(debug_assertions) {
        out::note("not optimised: the figures mean nothing; run it with --release");
    }
    let limits = Limits::measure();
    let mut sections = vec![limits.section()];
    out::line(sections[0].text());
    for name in &asked.names {
        let section = match *name {
            "dispatch" => dispatch::run(&limits, asked.quick),
            "hand-off" => handoff::run(&limits, asked.quick),
            "sqlite" => sqlite::run(asked.quick),
            "log" => log::run(asked.quick),
            "served" => served::run(asked.quick),
            "peers" => peers::run(asked.quick),
            "processor" => processor::run(asked.quick),
            "failover" => failover::run(asked.quick),
            _ => rebalance::run(asked.quick),
        };
        out::line(section.text());
        sections.push(section);
    }
    if asked.is_full() {
        let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("README.md");
        match std::fs::write(&page, report::document(&sections)) {
            Ok(()) => out::line("written to benches/README.md"),
            Err(error) => {
                out::note(format!("cannot write {}: {error}", page.display()));
                return ExitCode::FAILURE;
            }
        }
    }
    let missed: usize = sections.iter().map(report::Section::missed).sum();
    out::line(format!("{missed} limits missed"));
    if missed == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// None if it is not understood, or help is wanted.
fn parse(arguments: impl Iterator<Item = String>) -> Option<Asked> {
    let mut asked = Asked { quick: false, names: Vec::new() };
    let mut wanted = Vec::new();
    for argument in arguments {
        match argument.as_str() {
            "--quick" => asked.quick = true,
            name => wanted.push(*NAMES.iter().find(|known| **known == name)?),
        }
    }
    asked.names = NAMES.into_iter().filter(|name| wanted.is_empty() || wanted.contains(name)).collect();
    Some(asked)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(arguments: &[&str]) -> Option<Asked> {
        parse(arguments.iter().map(|argument| (*argument).to_owned()))
    }

    #[test]
    fn only_a_full_run_writes_the_page() {
        assert!(parsed(&[]).is_some_and(|asked| asked.is_full()));
        assert!(parsed(&["--quick"]).is_some_and(|asked| !asked.is_full()));
        assert!(parsed(&["dispatch"]).is_some_and(|asked| !asked.is_full()));
        assert_eq!(parsed(&["speed"]), None);
    }

    #[test]
    fn benchmarks_on_the_real_clock_come_before_those_that_pause_it() {
        let asked = parsed(&["rebalance", "dispatch"]).expect("known names");
        assert_eq!(asked.names, ["dispatch", "rebalance"]);
    }
}
