//! What a start says: on a terminal all that a newcomer needs, elsewhere one line.

use std::io::{self, IsTerminal};
use std::sync::Arc;
use std::time::Duration;

use partita_hub::broker::{Broker, Hub};
use partita_hub::log::{Durability, WriteMode};

use super::connect::host_of;
use super::plan::{Plan, Storage};
use super::start::Numbers;
use super::tls::{SelfSigned, how_to_trust};
use crate::output::{Out, Tone, counted};
use crate::units::{Size, Time};

/// The most hubs that are listed.
const HUBS_SHOWN_MAX: usize = 8;

/// What there is to say.
pub(crate) struct Facts<'a> {
    pub(crate) plan: &'a Plan,
    pub(crate) numbers: Numbers,
    pub(crate) broker: &'a Broker,
    pub(crate) certificate: Option<&'a SelfSigned>,
    pub(crate) took: Duration,
}

/// Says that everybody can connect who can reach this machine; loudly, whatever else is to be quiet.
pub(crate) fn warn(plan: &Plan) -> io::Result<()> {
    if plan.listen.is_local() || !plan.rules.has_well_known_key() {
        return Ok(());
    }
    let mut err = Out::stderr();
    let word = err.paint(Tone::Bad, "WARNING:");
    err.line(&format!(
        "{word} everybody who can reach {} can read, write and delete all hubs:",
        plan.listen
    ))?;
    err.line("the key is the emulator's, which everybody knows. Use --key-file, or no --listen.")
}

/// Says that the hub is ready.
pub(crate) fn print(facts: &Facts<'_>, out: &mut Out) -> io::Result<()> {
    if !io::stderr().is_terminal() {
        return out.line(&facts.line());
    }
    let hubs = facts.broker.list();
    let title = out.paint(Tone::Strong, "Partita hub");
    let ready = out.paint(Tone::Good, "ready");
    out.line(&format!(
        "{title} {}, {ready} after {} ms. Ctrl-C stops it.",
        env!("CARGO_PKG_VERSION"),
        facts.took.as_millis()
    ))?;
    out.line("")?;
    // Alone on its line and without an indent, to be copied whole.
    out.line(&out.paint(Tone::Faint, "Connection string:"))?;
    out.line(&out.paint(Tone::Act, &facts.connection_string()))?;
    out.line("")?;
    let mut rows = vec![("AMQP", facts.amqp())];
    if let Some(port) = facts.numbers.tls {
        rows.push((
            "TLS",
            format!(
                "{:<23}the same in TLS, which the AMQP port takes, too",
                format!("{}:{port}", facts.plan.listen)
            ),
        ));
    }
    rows.push(("HTTP", format!("{:<23}/health and the admin API", facts.http())));
    rows.push(("data", facts.data()));
    rows.push(("synced", facts.durability(&hubs)));
    for (at, hub) in hubs.iter().take(HUBS_SHOWN_MAX).enumerate() {
        rows.push((
            if at > 0 {
                ""
            } else if hubs.len() == 1 {
                "hub"
            } else {
                "hubs"
            },
            hub_line(hub),
        ));
    }
    if hubs.len() > HUBS_SHOWN_MAX {
        rows.push(("", format!("and {} more: partita hub list", hubs.len() - HUBS_SHOWN_MAX)));
    }
    for (name, text) in rows {
        let name = out.paint(Tone::Faint, &format!("{name:<8}"));
        out.line(&format!("{name}{text}"))?;
    }
    if let Some(made) = facts.certificate {
        out.line("")?;
        let new = if made.is_new { "made just now" } else { "as before" };
        out.line(&format!("TLS by an authority of the hub's own ({new}). Clients trust it so:"))?;
        for line in how_to_trust(&made.authority) {
            out.line(&format!("  {line}"))?;
        }
        out.line(&out.paint(Tone::Faint, "Connection string with TLS:"))?;
        out.line(&out.paint(Tone::Act, &facts.tls_connection_string()))?;
    }
    out.line("")?;
    out.line(&out.paint(Tone::Faint, "Next, in another terminal:"))?;
    for line in facts.next_step(&hubs) {
        out.line(&line)?;
    }
    Ok(())
}

/// Says that the hub waits for its clients, where somebody may wait for the hub.
pub(crate) fn stopping(out: &mut Out) -> io::Result<()> {
    if io::stderr().is_terminal() { out.line("\nStopping. Another Ctrl-C stops it at once.") } else { Ok(()) }
}

fn hub_line(hub: &Hub) -> String {
    let groups: Vec<String> = hub.groups().iter().map(ToString::to_string).collect();
    let partitions = counted(u64::from(hub.partitions()), "partition");
    let retention = hub.retention();
    let size = retention.bytes_max.map(|bytes| format!(", up to {}", Size(bytes))).unwrap_or_default();
    format!("{}  {partitions}, groups {}, keeps {}{size}", hub.name(), groups.join(" "), Time(retention.age))
}

impl Facts<'_> {
    fn connection_string(&self) -> String {
        self.plan.identity.plain_shown(&host_of(self.plan.listen.ip()), self.numbers.amqp)
    }

    fn tls_connection_string(&self) -> String {
        let port = self.numbers.tls.unwrap_or_default();
        self.plan.identity.tls_shown(&host_of(self.plan.listen.ip()), port)
    }

    fn amqp(&self) -> String {
        let at = format!("{}:{}", self.plan.listen, self.numbers.amqp);
        format!("{at:<23}AMQP, or AMQP in a WebSocket")
    }

    fn http(&self) -> String {
        format!("http://{}:{}", host_of(self.plan.listen.ip()), self.numbers.http)
    }

    fn data(&self) -> String {
        match &self.plan.storage {
            Storage::Memory { .. } => "in memory: gone when the hub stops".to_owned(),
            Storage::Disk { dir, .. } => dir.display().to_string(),
        }
    }

    fn durability(&self, hubs: &[Arc<Hub>]) -> String {
        match &self.plan.storage {
            Storage::Memory { .. } => "never".to_owned(),
            Storage::Disk { durability, .. } => match durability {
                Durability::Always => {
                    let buffered = hubs.iter().any(|hub| hub.log().mode() == WriteMode::Buffered);
                    let how =
                        if buffered { " (without direct I/O, which this file system lacks)" } else { "" };
                    format!("before an event is acknowledged{how}")
                }
                Durability::Interval(time) => {
                    format!("every {}: a power cut loses what came since", Time(*time))
                }
                Durability::Never => "when the system likes: a power cut loses events".to_owned(),
            },
        }
    }

    /// What to type next, each to be copied whole. A key that is secret stays so.
    fn next_step(&self, hubs: &[Arc<Hub>]) -> Vec<String> {
        let Some(hub) = hubs.first() else {
            return vec![format!("partita hub create eh1{}", self.http_option())];
        };
        let mut steps = Vec::new();
        if self.plan.identity.secret_from.is_none() {
            // Where commands look by themselves.
            let usual = self.numbers.amqp == super::connect::AMQP_PORT && self.plan.listen.reaches_loopback();
            if !usual {
                steps.push(format!("export PARTITA_CONNECTION_STRING='{}'", self.connection_string()));
            }
            steps.push(format!("partita produce {} --body hello", hub.name()));
            steps.push(format!("partita consume {}", hub.name()));
            steps.push("pip install azure-eventhub".to_owned());
            steps.push(format!(
                "python3 -c 'from azure.eventhub import *; EventHubProducerClient.from_connection_string(\"{}\", \
                 eventhub_name=\"{}\").send_event(EventData(\"hello\"))'",
                self.connection_string(),
                hub.name()
            ));
        }
        steps.push(format!("partita hub describe {}{}", hub.name(), self.http_option()));
        steps
    }

    fn http_option(&self) -> String {
        let usual = self.numbers.http == super::HTTP_PORT && self.plan.listen.reaches_loopback();
        if usual { String::new() } else { format!(" --http {}", self.http()) }
    }

    /// All in one line, for logs.
    fn line(&self) -> String {
        let tls = self.numbers.tls.map(|port| format!(", TLS {port}")).unwrap_or_default();
        format!(
            "partita hub ready: {}, AMQP {}{tls}, HTTP {}, {}, {}",
            self.plan.listen,
            self.numbers.amqp,
            self.numbers.http,
            counted(self.broker.list().len() as u64, "hub"),
            match &self.plan.storage {
                Storage::Memory { .. } => "in memory".to_owned(),
                Storage::Disk { dir, .. } => format!("data in {}", dir.display()),
            }
        )
    }
}
