//! Commands for a hub that runs: `partita hub` and `partita fault`, over its admin API.

mod check;
mod client;
mod fault;
mod hub;
mod show;

use clap::ValueEnum;

pub(crate) use self::fault::{FaultArgs, run as fault};
pub(crate) use self::hub::{HubArgs, run as hub};

/// Which hub, and how to show what it says.
#[derive(clap::Args, Debug)]
pub(crate) struct Common {
    /// The hub's HTTP address
    #[arg(
        long,
        global = true,
        value_name = "URL",
        default_value = "http://127.0.0.1:5300",
        env = "PARTITA_HTTP"
    )]
    http: String,

    /// The rule that manages the hub, if it is served to other machines
    #[arg(long, global = true, value_name = "NAME", default_value = partita_hub::service::auth::WELL_KNOWN_NAME)]
    key_name: String,

    /// The file with that rule's key [default: the emulator's key]
    #[arg(long, global = true, value_name = "FILE", env = "PARTITA_KEY_FILE")]
    key_file: Option<std::path::PathBuf>,

    /// How to print: for people, or as JSON for programs
    #[arg(long, short, global = true, value_enum, default_value_t = Form::Table, value_name = "FORM")]
    output: Form,
}

/// How to print.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub(crate) enum Form {
    Table,
    Json,
}
