//! `partita hub check` and `partita hub accept-loss`: against a hub that runs, or in a data directory that nobody serves.

use std::io::{self, IsTerminal};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::thread;
use std::time::Duration;

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use partita_hub::broker::{BrokerError, OfflineData};
use partita_hub::log::{AcceptError, OpenError};
use partita_web::CheckView;
use serde_json::{Value, json};

use super::Form;
use super::client::{Client, segment};
use super::show::{self, items, text};
use crate::Failure;
use crate::output::{Out, Tone, counted, grouped, has_colour, numbered};
use crate::units::Size;

/// How often a hub is asked how far its check is.
const ASK_EVERY: Duration = Duration::from_millis(100);

/// Events that are to be given up.
#[derive(clap::Args, Debug)]
pub(crate) struct LossArgs {
    /// The hub
    hub: String,
    /// The partition
    #[arg(long, short, value_name = "ID", value_parser = parse_partition)]
    partition: u32,
    /// The first lost event's sequence number
    #[arg(long, value_name = "SEQ")]
    from: u64,
    /// The last lost event's sequence number
    #[arg(long, value_name = "SEQ")]
    to: u64,
    /// The data directory, if the hub does not run
    #[arg(long, value_name = "DIR")]
    data: Option<PathBuf>,
}

/// Checks a hub, or all of them; fails if anything is damaged.
pub(crate) fn check(
    client: impl FnOnce() -> Result<Client, Failure>,
    form: Form,
    data: Option<&Path>,
    hub: Option<&str>,
) -> Result<ExitCode, Failure> {
    let checks = match data {
        Some(dir) => check_directory(dir, hub)?,
        None => check_running(&client()?, hub)?,
    };
    let clean = checks.iter().all(|check| check["clean"] == json!(true));
    let mut out = Out::stdout();
    if !show::json(&mut out, form, &json!({ "hubs": checks }))? {
        print(&mut out, &checks)?;
    }
    Ok(if clean { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn check_directory(dir: &Path, hub: Option<&str>) -> Result<Vec<Value>, Failure> {
    let data = OfflineData::open(dir).map_err(|error| offline(dir, &error))?;
    let hubs = match hub {
        Some(hub) => vec![hub.to_owned()],
        None => data.hubs().iter().map(ToString::to_string).collect(),
    };
    let mut checks = Vec::new();
    for hub in hubs {
        let bar = bar(&hub);
        let checked = data.check(&hub, &|done, total| show_progress(&bar, done, total));
        bar.finish_and_clear();
        let view = CheckView::done(&hub, &checked.map_err(|error| offline(dir, &error))?);
        checks.push(serde_json::to_value(view).map_err(|error| Failure::Run(error.to_string()))?);
    }
    Ok(checks)
}

fn check_running(client: &Client, hub: Option<&str>) -> Result<Vec<Value>, Failure> {
    let hubs = match hub {
        Some(hub) => vec![hub.to_owned()],
        None => items(&client.get("/hubs")?, "hubs").iter().map(|hub| text(hub, "name")).collect(),
    };
    let mut checks = Vec::new();
    for hub in hubs {
        let bar = bar(&hub);
        let path = format!("/hubs/{}/check", segment(&hub));
        let mut state = client.post(&path, &json!({}))?;
        while state["state"] == "running" {
            let number = |field: &str| state[field].as_u64().unwrap_or_default();
            show_progress(&bar, number("bytes_done"), number("bytes_total"));
            thread::sleep(ASK_EVERY);
            state = client.get(&path)?;
        }
        bar.finish_and_clear();
        if state["state"] != "done" {
            return Err(Failure::Run(format!("hub {hub} was closed while it was checked: check it again")));
        }
        checks.push(state);
    }
    Ok(checks)
}

/// A bar on a terminal, elsewhere nothing.
fn bar(hub: &str) -> ProgressBar {
    let bar = ProgressBar::no_length();
    let target = match io::stderr().is_terminal() {
        true => ProgressDrawTarget::stderr_with_hz(10),
        false => ProgressDrawTarget::hidden(),
    };
    bar.set_draw_target(target);
    let shade = if has_colour(true) { ".green/dim" } else { "" };
    let template = format!("{{bar:24{shade}}} {{percent:>3}}%  {{msg}}  {{eta}} left");
    if let Ok(style) = ProgressStyle::with_template(&template) {
        bar.set_style(style.progress_chars("━━─"));
    }
    bar.set_message(format!("checking {}", crate::output::tame(hub)));
    bar
}

fn show_progress(bar: &ProgressBar, done: u64, total: u64) {
    bar.set_length(total.max(1));
    bar.set_position(done);
}

fn print(out: &mut Out, checks: &[Value]) -> Result<(), Failure> {
    let mut rows = Vec::new();
    for check in checks {
        for partition in items(check, "partitions") {
            let (lost, events) = (items(partition, "lost"), lost_events(partition));
            let unread = partition["unread_events"].as_u64().unwrap_or_default();
            let state = match lost.iter().all(|range| range["accepted"] == json!(true)) {
                false => "damaged",
                true if !check["displaced"].is_null() => "files gone",
                true if unread > 0 => "unreadable",
                true if !items(partition, "memory_only").is_empty() => "in memory only",
                true if lost.is_empty() => "safe",
                true => "loss accepted",
            };
            rows.push(vec![
                text(check, "hub"),
                text(partition, "id"),
                text(partition, "beginning_sequence_number"),
                text(partition, "last_enqueued_sequence_number"),
                grouped(partition["safe_events"].as_u64().unwrap_or_default()),
                grouped(events),
                grouped(unread),
                state.to_owned(),
            ]);
        }
    }
    let columns = [
        ("HUB", false),
        ("PARTITION", true),
        ("FIRST", true),
        ("LAST", true),
        ("SAFE", true),
        ("LOST", true),
        ("UNREAD", true),
        ("STATE", false),
    ];
    crate::table::print(out, &columns, rows)?;
    for check in checks {
        let hub = text(check, "hub");
        out.line("")?;
        for partition in items(check, "partitions") {
            lost(out, &hub, partition)?;
            memory_only(out, &hub, partition)?;
        }
        for missing in crate::admin::show::texts(check, "missing_segments") {
            out.line(&format!("Hub {hub}: segment {missing} is missing."))?;
        }
        for unreadable in items(check, "unreadable_segments") {
            let (segment, error) = (text(unreadable, "segment"), text(unreadable, "error"));
            out.line(&format!("Hub {hub}: segment {segment} cannot be read ({error}): check the disk."))?;
        }
        for bytes in items(check, "damaged_bytes") {
            let (segment, from, to) = (text(bytes, "segment"), text(bytes, "from"), text(bytes, "to"));
            out.line(&match bytes["cut_off"] == json!(true) {
                true => format!("Hub {hub}: segment {segment} was cut off at byte {from} of {to}."),
                false => format!("Hub {hub}: bytes {from} to {to} of segment {segment} are damaged."),
            })?;
        }
        let read = Size(check["bytes_total"].as_u64().unwrap_or_default());
        let segments = counted(check["segments"].as_u64().unwrap_or_default(), "segment");
        let any_lost =
            items(check, "partitions").iter().any(|partition| !items(partition, "lost").is_empty());
        let unread: u64 =
            items(check, "partitions").iter().filter_map(|of| of["unread_events"].as_u64()).sum();
        let memory_only =
            items(check, "partitions").iter().any(|partition| !items(partition, "memory_only").is_empty());
        let verdict = match (check["clean"] == json!(true), any_lost) {
            _ if !check["displaced"].is_null() => {
                let why = format!(
                    "nothing is safe, {} while the hub runs: put the data directory back and restart the hub.",
                    text(check, "displaced")
                );
                out.paint(Tone::Bad, &crate::output::tame(&why))
            }
            _ if unread > 0 => {
                let why = format!("{} could not be read: check the disk.", counted(unread, "event"));
                out.paint(Tone::Bad, &why)
            }
            (true, false) => out.paint(Tone::Good, "everything is safe."),
            (true, true) => out.paint(Tone::Good, "all is safe but what was given up."),
            (false, true) => out.paint(Tone::Bad, "damaged; all events that are not named above are safe."),
            (false, false) if memory_only => {
                out.paint(Tone::Bad, "damaged; copy the events named above before the hub stops.")
            }
            (false, false) => out.paint(Tone::Bad, "damaged, but no event is known to be lost."),
        };
        out.line(&format!("Hub {hub}: read {segments}, {read}: {verdict}"))?;
    }
    Ok(())
}

/// Names the events that a restart would lose, and how to copy them.
fn memory_only(out: &mut Out, hub: &str, partition: &Value) -> Result<(), Failure> {
    let id = text(partition, "id");
    for range in items(partition, "memory_only") {
        let (first, last) = (first(range), last(range));
        let (events, count) = (numbered(first, last), last - first + 1);
        out.line(&format!(
            "Partition {id} of hub {hub}: {events} can be read from memory only, until the hub stops: what is on disk is damaged. \
             Copy: partita consume {hub} -p {id} --from seq:{first} -n {count} -o jsonl"
        ))?;
    }
    Ok(())
}

/// How many events of a partition are lost, at most.
pub(super) fn lost_events(partition: &Value) -> u64 {
    items(partition, "lost").iter().map(|range| last(range) - first(range) + 1).sum()
}

fn first(range: &Value) -> u64 {
    range["first"].as_u64().unwrap_or_default()
}

fn last(range: &Value) -> u64 {
    range["last"].as_u64().unwrap_or_default().max(first(range))
}

/// Says which events of a partition are lost, and what can be done.
pub(crate) fn lost(out: &mut Out, hub: &str, partition: &Value) -> Result<(), Failure> {
    let id = text(partition, "id");
    for range in items(partition, "lost") {
        let (first, last) = (first(range), last(range));
        let most = if range["certain"] == json!(true) { "" } else { " (at most these)" };
        let which = format!("Hub {hub}, partition {id}: {}{most}", numbered(first, last));
        let (are, them) = if first == last { ("is", "it") } else { ("are", "them") };
        out.line(&match range["accepted"] == json!(true) {
            true => format!("{which} {are} lost, which was accepted: readers pass over {them}."),
            false => format!(
                "{which} {are} damaged. Restore the data from a copy, or give {them} up:\n  partita hub accept-loss {hub} \
                 --partition {id} --from {first} --to {last}"
            ),
        })?;
    }
    Ok(())
}

/// Gives up events that are lost.
pub(crate) fn accept(
    client: impl FnOnce() -> Result<Client, Failure>,
    form: Form,
    args: &LossArgs,
) -> Result<(), Failure> {
    let LossArgs { hub, partition, from, to, .. } = args;
    let mut out = Out::stdout();
    match &args.data {
        Some(dir) => {
            let data = OfflineData::open(dir).map_err(|error| offline(dir, &error))?;
            data.accept_loss(hub, *partition, *from, *to).map_err(|error| offline(dir, &error))?;
        }
        None => {
            let asked = json!({"partition": partition, "first": from, "last": to});
            let answer = client()?.post(&format!("/hubs/{}/losses", segment(hub)), &asked)?;
            if show::json(&mut out, form, &answer)? {
                return Ok(());
            }
        }
    }
    let (events, them) = (numbered(*from, *to), if from == to { "it" } else { "them" });
    let said = format!(
        "Accepted the loss of {events} of partition {partition} of hub {hub}: readers pass over {them}. Restart the processors \
         that gave up the partition."
    );
    let json = json!({ "hub": hub, "partition": partition.to_string(), "first": from, "last": to, "accepted": true });
    super::hub::done(&mut out, form, &said, &json)
}

/// A partition's id as a number.
pub(crate) fn parse_partition(text: &str) -> Result<u32, String> {
    text.parse().map_err(|_| {
        format!("{text:?} is no partition: write its id, such as 0; 'partita hub describe HUB' lists them")
    })
}

fn offline(dir: &Path, error: &BrokerError) -> Failure {
    match error {
        BrokerError::Log(OpenError::Io { source, .. })
            if matches!(source.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory) =>
        {
            Failure::Data(format!(
                "there is no directory {}: name the one that 'partita serve --data' has, or leave out --data to ask a hub \
                 that runs",
                dir.display()
            ))
        }
        BrokerError::Log(OpenError::InUse { .. }) => Failure::Data(format!(
            "{} is in use by a hub that runs: leave out --data to ask that hub",
            dir.display()
        )),
        BrokerError::Log(_) | BrokerError::Lost { .. } => Failure::Data(error.to_string()),
        BrokerError::NoHub(_) | BrokerError::Loss(AcceptError::NoPartition { .. }) => {
            Failure::Missing(error.to_string())
        }
        BrokerError::Loss(AcceptError::Empty { .. }) => Failure::Usage(error.to_string()),
        _ => Failure::Run(error.to_string()),
    }
}
