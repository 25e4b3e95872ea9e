//! Partita's figures: dispatch, rebalance and failover, with the machine's limits beside them.

mod clock;
mod dispatch;
mod limits;
mod out;
mod recorder;
mod report;
mod stats;
mod world;

use std::process::ExitCode;

fn main() -> ExitCode {
    let quick = std::env::args().any(|a| a == "--quick");
    let limits = limits::Limits::measure();
    out::line(limits.section().text());
    out::line(dispatch::run(&limits, quick).text());
    ExitCode::SUCCESS
}
