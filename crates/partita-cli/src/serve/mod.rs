//! `partita serve`: the hub on the network.

mod banner;
mod config;
mod connect;
mod data;
mod files;
mod hubs;
mod keys;
mod listen;
mod memory;
mod plan;
mod ready;
mod start;
mod tls;

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use partita_hub::listener::transport::origin::Origin;

use self::hubs::HubSpec;
pub(crate) use self::keys::KeyPlace;
use self::listen::Listen;
use self::plan::Plan;
use crate::Failure;
use crate::units::{parse_retention, parse_size, parse_time};

/// The emulator's port for its health check.
pub(crate) const HTTP_PORT: u16 = 5300;

/// What a start says when it cannot go on, for `--help`.
const ENDS: &str = "\
Default, in a data directory without hubs: eh1, with 4 partitions and the
consumer group cg1. All hubs in the data directory are served, whatever the
command line says; a hub that is named and exists gets the partitions and groups
that it lacks.

The AMQP port and the TLS port accept AMQP and AMQP in WebSockets
(/$servicebus/websocket); the hub detects which. With a certificate, the AMQP
port accepts TLS, too.

SIGINT and SIGTERM stop the hub cleanly; a second one stops it at once.

Exit code: 0 stopped cleanly, 1 failed, 2 the command line, Config.json, a
key or a certificate cannot be used, 3 a port cannot be used, 4 the data
directory cannot be used, 130 stopped by a second signal.";

/// Serves hubs that the official Event Hubs SDKs connect to.
///
/// A drop-in for the official emulator: the same connection string, ports, Config.json and health check. Events are on
/// disk before they are acknowledged, and survive a restart.
#[derive(clap::Args, Debug)]
#[command(after_long_help = ENDS)]
pub(crate) struct Args {
    /// A hub to serve; may be repeated. Such as eh1:4 or eh1:4:cg1,cg2
    #[arg(long = "hub", value_name = "NAME:PARTITIONS[:GROUP,..]", help_heading = "Hubs")]
    hubs: Vec<HubSpec>,

    /// Hubs to serve from a Config.json, as the official emulator reads it
    #[arg(long, value_name = "FILE", help_heading = "Hubs")]
    config: Option<PathBuf>,

    /// How long all hubs keep events [default: each hub's own setting, 1d for new hubs]
    #[arg(long, value_name = "TIME", value_parser = parse_retention, help_heading = "Hubs")]
    retention: Option<Duration>,

    /// How much each hub keeps; the oldest events are removed first
    #[arg(long, value_name = "SIZE", value_parser = parse_size, help_heading = "Hubs")]
    retention_size: Option<u64>,

    /// Where events are kept [env: PARTITA_DATA] [default: a directory of this user, named when the hub starts]
    // Not clap's own: a variable that is set everywhere must not contradict --memory.
    #[arg(long, value_name = "DIR", help_heading = "Storage", conflicts_with = "memory")]
    data: Option<PathBuf>,

    /// Keeps events in memory only, at most --retention-size of each hub [default: 256MiB]
    #[arg(long, help_heading = "Storage")]
    memory: bool,

    /// Durability: always = an acknowledged event survives a power cut; interval, never = it survives the end of the
    /// process, and is synced at intervals, or when the system decides
    #[arg(long, value_name = "WHEN", value_enum, default_value_t = Fsync::Always, help_heading = "Storage")]
    fsync: Fsync,

    /// How often --fsync interval syncs
    #[arg(long, value_name = "TIME", default_value = "1s", value_parser = parse_time, help_heading = "Storage")]
    fsync_interval: Duration,

    /// Serves a hub although acknowledged events, or its description, are missing; may be repeated. Use it only when the
    /// hub asks for it
    #[arg(long = "accept-loss", value_name = "HUB", help_heading = "Storage", conflicts_with_all = ["memory", "reset"])]
    accept_loss: Vec<String>,

    /// Deletes all hubs and events first, after listing them and asking
    #[arg(long, help_heading = "Storage", conflicts_with = "memory")]
    reset: bool,

    /// Answers yes to the question of --reset
    #[arg(long, requires = "reset", help_heading = "Storage")]
    yes: bool,

    /// The address to serve: localhost, one of this machine, or 0.0.0.0 or :: for all
    #[arg(
        long,
        value_name = "ADDRESS",
        default_value = "localhost",
        env = "PARTITA_LISTEN",
        help_heading = "Network"
    )]
    listen: Listen,

    /// The AMQP port; 0 takes a free one, as for the others
    #[arg(long, value_name = "PORT", default_value_t = connect::AMQP_PORT, env = "PARTITA_PORT", help_heading = "Network")]
    port: u16,

    /// The port of the health check and the admin API
    #[arg(
        long,
        value_name = "PORT",
        default_value_t = HTTP_PORT,
        env = "PARTITA_HTTP_PORT",
        help_heading = "Network"
    )]
    http_port: u16,

    /// The TLS port, if there is a certificate
    #[arg(long, value_name = "PORT", default_value_t = connect::TLS_PORT, env = "PARTITA_TLS_PORT", help_heading = "Network")]
    tls_port: u16,

    /// Written when clients can connect, removed when the hub stops: JSON with amqp_port, http_port, connection_string
    #[arg(long, value_name = "FILE", help_heading = "Network")]
    ready_file: Option<PathBuf>,

    /// The certificate chain, PEM
    #[arg(long, value_name = "FILE", requires = "tls_key", help_heading = "TLS")]
    tls_cert: Option<PathBuf>,

    /// The certificate's key, PEM
    #[arg(long, value_name = "FILE", requires = "tls_cert", help_heading = "TLS")]
    tls_key: Option<PathBuf>,

    /// Creates a certificate authority in the data directory, and a certificate; prints how clients trust it
    #[arg(long, conflicts_with = "tls_cert", help_heading = "TLS")]
    tls_self_signed: bool,

    /// A further name or address for that certificate; may be repeated
    #[arg(long = "tls-name", value_name = "NAME", requires = "tls_self_signed", help_heading = "TLS")]
    tls_names: Vec<String>,

    /// Where that authority is kept [default: tls in the data directory]
    #[arg(long, value_name = "DIR", requires = "tls_self_signed", help_heading = "TLS")]
    tls_dir: Option<PathBuf>,

    /// The key of RootManageSharedAccessKey, in a file or env:VARIABLE, instead of the emulator's, which everybody knows
    #[arg(long, value_name = "FILE", env = "PARTITA_KEY_FILE", help_heading = "Access")]
    key_file: Option<PathBuf>,

    /// A shared access rule with rights (listen, send, manage) in all hubs or one; its key is in a file or env:VARIABLE.
    /// May be repeated; the emulator's key is then not accepted
    // Not read here: the error would repeat it, and somebody may have put the key itself into it.
    #[arg(long = "rule", value_name = "NAME:RIGHTS[:HUB]=KEYFILE", help_heading = "Access")]
    rules: Vec<String>,

    /// A web page's origin, such as https://app.example, whose scripts may use the hub from a browser; may be repeated.
    /// Pages of this machine may
    #[arg(long = "allow-origin", value_name = "ORIGIN", help_heading = "Access")]
    allow_origins: Vec<Origin>,

    /// Prints problems only
    #[arg(long, short)]
    quiet: bool,

    /// Logs what happens; -vv and -vvv say more, RUST_LOG says what in detail
    #[arg(long, short, action = clap::ArgAction::Count)]
    verbose: u8,
}

/// When an event is acknowledged.
#[derive(Clone, Copy, PartialEq, Eq, Debug, clap::ValueEnum)]
pub(crate) enum Fsync {
    Always,
    Interval,
    Never,
}

/// Serves until it is told to stop.
pub(crate) fn run(args: Args) -> Result<ExitCode, Failure> {
    crate::log_to_stderr(match args.verbose {
        0 => "warn",
        1 => "info",
        2 => "debug",
        _ => "trace",
    });
    let plan = Plan::new(args).map_err(Failure::Usage)?;
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()
        .map_err(|error| Failure::Run(format!("cannot start: {error}")))?;
    let done = runtime.block_on(start::serve(plan));
    runtime.shutdown_timeout(Duration::from_secs(1));
    done
}
