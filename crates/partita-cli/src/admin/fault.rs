//! `partita fault`: lets a hub misbehave, to see what a program makes of it.

use std::process::ExitCode;
use std::time::Duration;

use clap::{Subcommand, ValueEnum};
use serde_json::{Value, json};

use super::Common;
use super::check::parse_partition;
use super::client::Client;
use super::hub::done;
use super::show::{self, items, number, text};
use crate::Failure;
use crate::output::{Out, tame};
use crate::units::{Time, parse_time};

/// Injects faults into a running hub, to test how your program reacts.
///
/// A fault affects existing and new links. It ends after --count times, after --for, or when it is removed.
#[derive(clap::Args, Debug)]
pub(crate) struct FaultArgs {
    #[command(subcommand)]
    command: FaultCommand,

    #[command(flatten)]
    common: Common,
}

#[derive(Subcommand, Debug)]
enum FaultCommand {
    /// Detaches links, and refuses new ones
    Detach {
        #[command(flatten)]
        target: Target,
        /// The error's condition
        #[arg(long, value_name = "CONDITION", default_value = "amqp:link:detach-forced")]
        condition: String,
        /// The error's description
        #[arg(long, value_name = "TEXT")]
        description: Option<String>,
    },
    /// Delays events to readers, and replies to senders
    Delay {
        /// By how much
        #[arg(value_name = "TIME", value_parser = parse_time)]
        time: Duration,
        #[command(flatten)]
        target: Target,
    },
    /// Answers sends and new links with server-busy
    Busy {
        #[command(flatten)]
        target: Target,
    },
    /// Drops connections
    Drop {
        #[command(flatten)]
        target: Target,
    },
    /// Lists the faults, and how often each was applied
    List,
    /// Removes one fault
    Remove {
        /// Its number, as 'partita fault list' shows it
        id: u64,
    },
    /// Removes all faults
    Clear,
}

/// Which links, and until when.
#[derive(clap::Args, Debug)]
struct Target {
    /// Only links to this hub
    #[arg(long, value_name = "NAME")]
    hub: Option<String>,
    /// Only links to this partition of it
    #[arg(long, value_name = "ID", requires = "hub", value_parser = parse_partition)]
    partition: Option<u32>,
    /// Only links on which the client sends, or receives
    #[arg(long, value_enum, default_value_t = Role::Any)]
    role: Role,
    /// Ends after being applied so many times
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    count: Option<u64>,
    /// Ends after this time
    #[arg(long = "for", value_name = "TIME", value_parser = parse_time)]
    lasts: Option<Duration>,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
enum Role {
    Any,
    Sender,
    Receiver,
}

impl Target {
    fn asked(self, kind: &str) -> Value {
        let mut asked = json!({"kind": kind, "role": format!("{:?}", self.role).to_lowercase()});
        let mut set = |name: &str, value: Option<Value>| {
            if let Some(value) = value {
                asked[name] = value;
            }
        };
        set("hub", self.hub.map(Value::from));
        set("partition", self.partition.map(Value::from));
        set("count", self.count.map(Value::from));
        set("for_ms", self.lasts.map(ms));
        asked
    }
}

fn ms(time: Duration) -> Value {
    Value::from(u64::try_from(time.as_millis()).unwrap_or(u64::MAX))
}

/// Does what the command says.
pub(crate) fn run(args: FaultArgs) -> Result<ExitCode, Failure> {
    let client = Client::new(&args.common)?;
    let form = args.common.output;
    let mut out = Out::stdout();
    let asked = match args.command {
        FaultCommand::Detach { target, condition, description } => {
            let mut asked = target.asked("detach");
            asked["condition"] = json!(condition);
            if let Some(description) = description {
                asked["description"] = json!(description);
            }
            asked
        }
        FaultCommand::Delay { time, target } => {
            let mut asked = target.asked("delay");
            asked["delay_ms"] = ms(time);
            asked
        }
        FaultCommand::Busy { target } => target.asked("busy"),
        FaultCommand::Drop { target } => target.asked("drop"),
        FaultCommand::List => {
            let answer = client.get("/faults")?;
            if !show::json(&mut out, form, &answer)? {
                list(&mut out, items(&answer, "faults"))?;
            }
            return Ok(ExitCode::SUCCESS);
        }
        FaultCommand::Remove { id } => {
            client.delete(&format!("/faults/{id}"))?;
            done(&mut out, form, &format!("Removed fault {id}."), &json!({ "removed": id }))?;
            return Ok(ExitCode::SUCCESS);
        }
        FaultCommand::Clear => {
            client.delete("/faults")?;
            done(&mut out, form, "Removed all faults.", &json!({ "removed": "all" }))?;
            return Ok(ExitCode::SUCCESS);
        }
    };
    let answer = client.post("/faults", &asked)?;
    if !show::json(&mut out, form, &answer)? {
        let id = number(&answer, "id");
        let end = match until(&answer) {
            None => format!("until 'partita fault remove {id}'"),
            Some(until) => until,
        };
        out.line(&tame(&format!("Fault {id}: the hub {}, {end}.", does(&answer))))?;
    }
    Ok(ExitCode::SUCCESS)
}

/// What the hub does from now on.
fn does(fault: &Value) -> String {
    let whom = whom(fault);
    match fault["kind"].as_str() {
        Some("detach") => format!("detaches {whom} with {}", text(fault, "condition")),
        Some("delay") => format!("delays {whom} by {}", delay(fault)),
        Some("busy") => format!("is busy for {whom}"),
        _ => format!("cuts the connections of {whom}"),
    }
}

fn delay(fault: &Value) -> Time {
    Time(Duration::from_millis(fault["delay_ms"].as_u64().unwrap_or_default()))
}

fn list(out: &mut Out, faults: &[Value]) -> Result<(), Failure> {
    if faults.is_empty() {
        out.line("There is no fault.")?;
        return Ok(());
    }
    let row = |fault: &Value| {
        let until = until(fault).unwrap_or_else(|| "until removed".to_owned());
        vec![number(fault, "id"), what(fault), whom(fault), until, number(fault, "hits")]
    };
    let columns = [("ID", true), ("FAULT", false), ("LINKS", false), ("UNTIL", false), ("HITS", true)];
    crate::table::print(out, &columns, faults.iter().map(row).collect())
}

fn what(fault: &Value) -> String {
    match fault["kind"].as_str() {
        Some("detach") => format!("detach with {}", text(fault, "condition")),
        Some("delay") => format!("delay of {}", delay(fault)),
        _ => text(fault, "kind"),
    }
}

fn whom(fault: &Value) -> String {
    let who = match fault["role"].as_str() {
        Some("sender") => "senders",
        Some("receiver") => "receivers",
        _ => "all links",
    };
    match (fault["hub"].as_str(), fault["partition"].as_str()) {
        (Some(hub), Some(partition)) => format!("{who} of {hub}/{partition}"),
        (Some(hub), None) => format!("{who} of {hub}"),
        _ => who.to_owned(),
    }
}

fn until(fault: &Value) -> Option<String> {
    let count = fault["count"]
        .as_u64()
        .map(|count| if count == 1 { "once".to_owned() } else { format!("{count} times") });
    let time = fault["for_ms"].as_u64().map(|ms| format!("for {}", Time(Duration::from_millis(ms))));
    match (count, time) {
        (Some(count), Some(time)) => Some(format!("{count} or {time}")),
        (count, time) => count.or(time),
    }
}
