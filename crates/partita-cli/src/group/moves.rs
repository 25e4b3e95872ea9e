//! `partita moves`.

use std::process::ExitCode;

use super::{Form, GroupArgs, json};
use crate::Failure;
use crate::connection::{HELP, runtime};
use crate::output::Out;
use crate::table::{self, Column};

const REASONS: &str = "\
Reasons: claimed (nobody owned it), hand-off (the owner finished, checkpointed and
passed it on), steal (it passed it on after cancelling a call), taken from dead (the
owner had died), released (it stopped), given up, retaken, forced seek.

The store keeps the last 256 moves of a group. The hub is not asked; its connection
says only which hub's group is meant.
";

const COLUMNS: [Column; 6] = [
    ("TIME", false),
    ("PARTITION", true),
    ("FROM", false),
    ("TO", false),
    ("EPOCH", true),
    ("REASON", false),
];

/// Lists the last changes of owners in a processor group, with their reasons, oldest first.
#[derive(clap::Args, Debug)]
#[command(after_long_help = format!("{REASONS}\n{HELP}"))]
pub(crate) struct Args {
    #[command(flatten)]
    group: GroupArgs,

    /// Only of this partition
    #[arg(long, short, value_name = "ID")]
    partition: Option<String>,

    /// Only the last N
    #[arg(long, short = 'n', value_name = "N")]
    count: Option<usize>,
}

/// Lists them.
pub(crate) fn run(args: Args) -> Result<ExitCode, Failure> {
    crate::log_if_asked();
    let runtime = runtime()?;
    let moves = runtime.block_on(async {
        let place = args.group.open()?;
        let moves = place.moves().await?;
        if moves.is_empty() { Err(place.unknown()) } else { Ok(moves) }
    });
    runtime.shutdown_background();
    let mut moves = moves?;
    if let Some(partition) = &args.partition {
        moves.retain(|one| one.partition.as_str() == partition);
    }
    let skipped = moves.len().saturating_sub(args.count.unwrap_or(usize::MAX));
    let moves = &moves[skipped..];
    let mut out = Out::stdout();
    if args.group.output == Form::Json {
        let json: serde_json::Value = moves.iter().map(json::one_move).collect();
        out.line(&format!("{json:#}"))?;
        return Ok(ExitCode::SUCCESS);
    }
    if moves.is_empty() {
        out.line("There is no such move.")?;
        return Ok(ExitCode::SUCCESS);
    }
    let name = |who: &Option<partita_core::model::Incarnation>| {
        who.as_ref().map_or_else(|| "-".to_owned(), |incarnation| incarnation.id().short().to_owned())
    };
    let rows = moves.iter().map(|one| {
        vec![
            one.time.to_string(),
            one.partition.to_string(),
            name(&one.from),
            name(&one.to),
            one.epoch.to_string(),
            one.reason.to_string(),
        ]
    });
    table::print(&mut out, &COLUMNS, rows.collect())?;
    Ok(ExitCode::SUCCESS)
}
