//! `partita hub`.

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use clap::Subcommand;
use serde_json::{Value, json};

use super::Common;
use super::check::{self, LossArgs};
use super::client::{Client, segment};
use super::show::{self, items, number, text, texts};
use crate::Failure;
use crate::output::{Out, confirm, counted, tame};
use crate::units::{Size, Time, parse_retention, parse_size};

/// Looks at the hubs of a hub server that runs, and changes them.
#[derive(clap::Args, Debug)]
pub(crate) struct HubArgs {
    #[command(subcommand)]
    command: HubCommand,

    #[command(flatten)]
    common: Common,
}

#[derive(Subcommand, Debug)]
enum HubCommand {
    /// Lists the hubs
    List,
    /// Shows a hub and its partitions
    Describe {
        /// The hub
        name: String,
    },
    /// Creates a hub
    Create {
        /// Its name
        name: String,
        /// How many partitions it has
        #[arg(long, short, default_value_t = 4, value_parser = clap::value_parser!(u32).range(1..=1_024))]
        partitions: u32,
        /// A consumer group, beside $Default; may be repeated
        #[arg(long = "group", short, value_name = "NAME")]
        groups: Vec<String>,
        /// How long it keeps events [default: as --retention of the server, or 1d]
        #[arg(long, value_name = "TIME", value_parser = parse_retention)]
        retention: Option<Duration>,
        /// How much it keeps; the oldest events go first
        #[arg(long, value_name = "SIZE", value_parser = parse_size)]
        retention_size: Option<u64>,
    },
    /// Adds partitions, or changes the retention
    Change {
        /// The hub
        name: String,
        /// Adds partitions until there are this many; keys then go to other partitions than before
        #[arg(long, short, value_parser = clap::value_parser!(u32).range(1..=1_024))]
        partitions: Option<u32>,
        /// How long it keeps events
        #[arg(long, value_name = "TIME", value_parser = parse_retention)]
        retention: Option<Duration>,
        /// How much it keeps; the oldest events go first
        #[arg(long, value_name = "SIZE", value_parser = parse_size)]
        retention_size: Option<u64>,
    },
    /// Disables a hub: clients are refused, its events stay
    Disable {
        /// The hub
        name: String,
    },
    /// Enables a disabled hub
    Enable {
        /// The hub
        name: String,
    },
    /// Deletes a hub and its events; says what they are, and asks
    Delete {
        /// The hub
        name: String,
        /// Answers the question; needed where there is no terminal
        #[arg(long, short)]
        yes: bool,
    },
    /// Lists who is connected: address, the client's name, since when, and what it sends to and reads
    Connections,
    /// Reads everything, and says what is damaged and what is safe
    ///
    /// Asks the running hub, or with --data reads the directory of a stopped one, without changing it.
    /// The exit code is 1 if anything is damaged.
    Check {
        /// The hub [default: all of them]
        name: Option<String>,
        /// The data directory, if the hub does not run
        #[arg(long, value_name = "DIR")]
        data: Option<PathBuf>,
    },
    /// Gives up damaged events: readers skip them from then on
    AcceptLoss(LossArgs),
    /// Consumer groups of a hub
    #[command(subcommand)]
    Group(GroupCommand),
}

#[derive(Subcommand, Debug)]
enum GroupCommand {
    /// Lists the consumer groups of a hub
    List {
        /// The hub
        hub: String,
    },
    /// Creates a consumer group
    Create {
        /// The hub
        hub: String,
        /// The group
        group: String,
    },
    /// Deletes a consumer group; its readers are detached
    Delete {
        /// The hub
        hub: String,
        /// The group
        group: String,
    },
}

/// Does what the command says.
pub(crate) fn run(args: HubArgs) -> Result<ExitCode, Failure> {
    // Only the commands that ask a hub need one.
    match &args.command {
        HubCommand::Check { name, data } => {
            let client = || Client::new(&args.common);
            return check::check(client, args.common.output, data.as_deref(), name.as_deref());
        }
        HubCommand::AcceptLoss(loss) => {
            check::accept(|| Client::new(&args.common), args.common.output, loss)?;
            return Ok(ExitCode::SUCCESS);
        }
        _ => {}
    }
    let client = Client::new(&args.common)?;
    let form = args.common.output;
    let mut out = Out::stdout();
    let hub = |name: &str| format!("/hubs/{}", segment(name));
    match args.command {
        HubCommand::List => {
            let answer = client.get("/hubs")?;
            if !show::json(&mut out, form, &answer)? {
                list(&mut out, &answer)?;
            }
        }
        HubCommand::Describe { name } => {
            let answer = client.get(&hub(&name))?;
            if !show::json(&mut out, form, &answer)? {
                describe(&mut out, &answer)?;
            }
        }
        HubCommand::Create { name, partitions, groups, retention, retention_size } => {
            let mut asked = kept(retention, retention_size);
            asked["name"] = json!(name);
            asked["partition_count"] = json!(partitions);
            asked["consumer_groups"] = json!(groups);
            let answer = client.post("/hubs", &asked)?;
            if !show::json(&mut out, form, &answer)? {
                out.line(&format!("Made hub {name} with {}.", counted(u64::from(partitions), "partition")))?;
            }
        }
        HubCommand::Change { name, partitions, retention, retention_size } => {
            let mut asked = kept(retention, retention_size);
            if let Some(partitions) = partitions {
                asked["partition_count"] = json!(partitions);
            }
            if asked.as_object().is_some_and(serde_json::Map::is_empty) {
                return Err(Failure::Usage(
                    "say what is to change: --partitions, --retention or --retention-size".to_owned(),
                ));
            }
            let answer = client.patch(&hub(&name), &asked)?;
            if !show::json(&mut out, form, &answer)? {
                describe(&mut out, &answer)?;
            }
        }
        HubCommand::Disable { name } => {
            let answer = client.patch(&hub(&name), &json!({"disabled": true}))?;
            if !show::json(&mut out, form, &answer)? {
                out.line(&format!("Disabled hub {name}: nothing can be sent or read until it is enabled."))?;
            }
        }
        HubCommand::Enable { name } => {
            let answer = client.patch(&hub(&name), &json!({"disabled": false}))?;
            if !show::json(&mut out, form, &answer)? {
                out.line(&format!("Enabled hub {name}."))?;
            }
        }
        HubCommand::Delete { name, yes } => {
            if !yes {
                sure(&client.get(&hub(&name))?, &name)?;
            }
            client.delete(&hub(&name))?;
            done(&mut out, form, &format!("Deleted hub {name}."), &json!({ "deleted": name }))?;
        }
        HubCommand::Connections => {
            let answer = client.get("/connections")?;
            if !show::json(&mut out, form, &answer)? {
                connections(&mut out, items(&answer, "connections"))?;
            }
        }
        HubCommand::Check { .. } | HubCommand::AcceptLoss(_) => unreachable!("done above"),
        HubCommand::Group(GroupCommand::Create { hub: name, group }) => {
            let answer = client.post(&format!("{}/groups", hub(&name)), &json!({"name": group}))?;
            if !show::json(&mut out, form, &answer)? {
                out.line(&format!("Hub {name} has the consumer group {group}."))?;
            }
        }
        HubCommand::Group(GroupCommand::Delete { hub: name, group }) => {
            client.delete(&format!("{}/groups/{}", hub(&name), segment(&group)))?;
            let said = format!("Deleted the consumer group {group} of hub {name}.");
            done(&mut out, form, &said, &json!({ "deleted": group, "hub": name }))?;
        }
        HubCommand::Group(GroupCommand::List { hub: name }) => {
            let answer = client.get(&hub(&name))?;
            let groups = texts(&answer, "consumer_groups");
            if !show::json(&mut out, form, &json!({ "hub": answer["name"], "consumer_groups": groups }))? {
                for group in groups {
                    out.line(&tame(&group))?;
                }
            }
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// Says that something was done, in a sentence or as JSON.
pub(crate) fn done(out: &mut Out, form: super::Form, said: &str, json: &Value) -> Result<(), Failure> {
    if !show::json(out, form, json)? {
        out.line(said)?;
    }
    Ok(())
}

/// Says what goes with a hub, and asks.
fn sure(hub: &Value, name: &str) -> Result<(), Failure> {
    let mut err = Out::stderr();
    let groups = counted(texts(hub, "consumer_groups").len() as u64, "consumer group");
    let events = counted(hub["events"].as_u64().unwrap_or_default(), "event");
    let question = format!("Delete hub {} with {events} and {groups}? [y/N] ", tame(name));
    let refusal =
        "hub delete asks before it deletes, and there is no terminal to ask on: add --yes if you are sure";
    match confirm(&mut err, &question, refusal)? {
        true => Ok(()),
        false => Err(Failure::Run("nothing was deleted".to_owned())),
    }
}

/// A row per link; a connection's own columns stand in the first of its rows.
fn connections(out: &mut Out, connections: &[Value]) -> Result<(), Failure> {
    if connections.is_empty() {
        out.line("Nobody is connected.")?;
        return Ok(());
    }
    let mut rows = Vec::new();
    for connection in connections {
        let own = [text(connection, "peer"), text(connection, "container_id"), text(connection, "since")];
        let links = items(connection, "links");
        for at in 0..links.len().max(1) {
            let mut row = if at == 0 { own.to_vec() } else { vec![String::new(); own.len()] };
            match links.get(at) {
                Some(link) => row.extend([text(link, "role"), text(link, "address")]),
                None => row.extend(["-".to_owned(), "-".to_owned()]),
            }
            rows.push(row);
        }
    }
    let columns = [("ADDRESS", false), ("CLIENT", false), ("SINCE", false), ("LINK", false), ("OF", false)];
    crate::table::print(out, &columns, rows)
}

fn kept(retention: Option<Duration>, size: Option<u64>) -> Value {
    let mut asked = json!({});
    if let Some(time) = retention {
        asked["retention_seconds"] = json!(time.as_secs());
    }
    if let Some(size) = size {
        asked["retention_bytes"] = json!(size);
    }
    asked
}

/// What a hub keeps, as a user would say it.
fn retention(hub: &Value) -> String {
    let age = Time(Duration::from_secs(hub["retention_seconds"].as_u64().unwrap_or_default()));
    match hub["retention_bytes"].as_u64() {
        Some(bytes) => format!("{age}, {}", Size(bytes)),
        None => age.to_string(),
    }
}

fn list(out: &mut Out, answer: &Value) -> Result<(), Failure> {
    let hubs = items(answer, "hubs");
    if hubs.is_empty() {
        out.line("There is no hub: make one with 'partita hub create NAME'.")?;
        return Ok(());
    }
    let row = |hub: &Value| {
        vec![
            text(hub, "name"),
            number(hub, "partition_count"),
            number(hub, "events"),
            Size(hub["bytes"].as_u64().unwrap_or_default()).to_string(),
            retention(hub),
            texts(hub, "consumer_groups").join(" "),
        ]
    };
    let columns = [
        ("HUB", false),
        ("PARTITIONS", true),
        ("EVENTS", true),
        ("ON DISK", true),
        ("KEEPS", false),
        ("GROUPS", false),
    ];
    crate::table::print(out, &columns, hubs.iter().map(row).collect())?;
    for hub in hubs {
        stopped(out, hub)?;
        let damaged = texts(hub, "damaged_partitions");
        if !damaged.is_empty() {
            let name = text(hub, "name");
            let which = damaged.join(", ");
            out.line(&format!(
                "Hub {name} is damaged in partition {which}: see 'partita hub check {name}'."
            ))?;
        }
    }
    Ok(())
}

/// Says why a hub does not do what hubs do.
fn stopped(out: &mut Out, hub: &Value) -> Result<(), Failure> {
    let name = text(hub, "name");
    if hub["disabled"] == json!(true) {
        out.line(&format!(
            "Hub {name} is disabled: nothing can be sent or read until 'partita hub enable {name}'."
        ))?;
    }
    // Its own words: it knows whether a disk failed or its files are gone.
    if let Some(why) = hub["read_only_reason"].as_str() {
        let why = why.strip_prefix("the hub ").unwrap_or(why);
        out.line(&format!("Hub {name} {}.", tame(why)))?;
    }
    Ok(())
}

fn describe(out: &mut Out, hub: &Value) -> Result<(), Failure> {
    out.line(&format!("hub      {}", text(hub, "name")))?;
    out.line(&format!("created  {}", text(hub, "created_at")))?;
    out.line(&format!("groups   {}", texts(hub, "consumer_groups").join(" ")))?;
    out.line(&format!("keeps    {}", retention(hub)))?;
    out.line(&format!("on disk  {}", Size(hub["bytes"].as_u64().unwrap_or_default())))?;
    stopped(out, hub)?;
    out.line("")?;
    let row = |partition: &Value| {
        let next = partition["last_enqueued_sequence_number"].as_u64().map_or(0, |last| last + 1);
        let first = partition["beginning_sequence_number"].as_u64().unwrap_or_default();
        vec![
            text(partition, "id"),
            crate::output::grouped(next.saturating_sub(first).saturating_sub(check::lost_events(partition))),
            number(partition, "beginning_sequence_number"),
            number(partition, "last_enqueued_sequence_number"),
            text(partition, "last_enqueued_offset"),
            text(partition, "last_enqueued_on"),
        ]
    };
    let columns = [
        ("PARTITION", true),
        ("EVENTS", true),
        ("FIRST", true),
        ("LAST", true),
        ("OFFSET", true),
        ("LAST ENQUEUED", false),
    ];
    crate::table::print(out, &columns, items(hub, "partitions").iter().map(row).collect())?;
    for partition in items(hub, "partitions") {
        check::lost(out, &text(hub, "name"), partition)?;
    }
    Ok(())
}
