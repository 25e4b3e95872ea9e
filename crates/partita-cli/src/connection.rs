//! Which hub a command is for: by a file, the environment, or the local one.
//!
//! There is no option for the connection string itself: what is on a command line, every user of the machine can read.

use std::error::Error;
use std::path::{Path, PathBuf};
use std::time::Duration;

use partita_core::source::{SourceError, SourceErrorKind};
use partita_hub::service::auth::{WELL_KNOWN_KEY, WELL_KNOWN_NAME};
use partita_sources::eventhubs::{
    BuildError, ConnectionString, Credential, EventHubs, EventHubsError, Secret, SendError, Service,
};

use crate::{Failure, named_files};

/// Where a connection string may be, in the order in which they are looked at.
/// The first is ours, as all variables here; the others are what SDKs and their examples have.
const VARIABLES: [&str; 3] =
    ["PARTITA_CONNECTION_STRING", "EVENTHUBS_CONNECTION_STRING", "EVENT_HUB_CONNECTION_STRING"];
/// Somebody waits.
const CONNECT_TIME_MAX: Duration = Duration::from_secs(5);
const ANSWER_TIME_MAX: Duration = Duration::from_secs(15);

const UNAUTHORIZED: &str = "amqp:unauthorized-access";
const NOT_FOUND: [&str; 3] =
    ["amqp:not-found", "com.microsoft:argument-out-of-range", "amqp:resource-deleted"];

/// For `--help` of commands that connect.
pub(crate) const HELP: &str = "\
Connection: the string in --connection-file, or else in the environment variable
PARTITA_CONNECTION_STRING (EVENTHUBS_CONNECTION_STRING and
EVENT_HUB_CONNECTION_STRING are looked at, too), or else that of the local hub
(localhost:5672), as 'partita serve' and the official emulator have it.

Exit code: 0 done, also when interrupted or when nobody reads the output any more;
1 failed; 2 the command line or the connection string cannot be used; 5 no hub
answers; 6 access was refused; 7 no such hub, group, partition or event; 130
interrupted twice, or not ended five seconds after an interrupt.";

/// How to connect.
#[derive(clap::Args, Debug)]
#[command(next_help_heading = "Connection")]
pub(crate) struct ConnectionArgs {
    /// The file with the connection string [default: the environment's or the local hub's, see --help]
    #[arg(long, value_name = "FILE")]
    connection_file: Option<PathBuf>,

    /// Trusts the certificates in this file, PEM, instead of the system's
    #[arg(long, value_name = "FILE")]
    ca_file: Option<PathBuf>,

    /// Connects in a WebSocket, where only HTTPS gets through
    #[arg(long)]
    websocket: bool,

    /// Connects through an HTTP proxy, such as http://proxy:8080
    #[arg(long, value_name = "URL", env = "PARTITA_PROXY", hide_env_values = true)]
    proxy: Option<String>,
}

impl ConnectionArgs {
    /// A client of a hub. Nothing is connected yet.
    pub(crate) fn client(&self, hub: &str, command: &str) -> Result<EventHubs, Failure> {
        self.client_and_connection(hub, command).map(|(client, _)| client)
    }

    /// The same, and the connection string that says what the hub's records are kept under.
    pub(crate) fn client_and_connection(
        &self,
        hub: &str,
        command: &str,
    ) -> Result<(EventHubs, ConnectionString), Failure> {
        // Not repeated: it holds a key.
        if is_connection_string(hub) {
            return Err(Failure::Usage(
                "HUB is a hub's name, and this is a connection string: put it into a file for --connection-file, or into \
                 $PARTITA_CONNECTION_STRING"
                    .to_owned(),
            ));
        }
        let (string, from) = self.string()?;
        let mut builder = EventHubs::builder(&string)
            .hub(hub)
            .identifier(format!("partita-{command}-{:08x}", fastrand::u32(..)))
            .connect_time_max(CONNECT_TIME_MAX)
            .request_time_max(ANSWER_TIME_MAX);
        if let Some(path) = &self.ca_file {
            if string.service() == Service::Emulator {
                return Err(Failure::Usage(format!(
                    "--ca-file is for connections with TLS, and this one is without: leave it out, or leave \
                     UseDevelopmentEmulator=true out of the connection string ({from})"
                )));
            }
            let pem = named_files::read(path).map_err(|error| {
                Failure::Usage(format!("cannot read the certificates in {}: {error}", path.display()))
            })?;
            builder = builder.roots(pem);
        }
        if self.websocket {
            builder = builder.websocket();
        }
        if let Some(proxy) = &self.proxy {
            builder = builder.proxy(proxy);
        }
        let client = builder.build().map_err(|error| match error {
            BuildError::ConnectionString(error) => Failure::Usage(format!("{error} ({from})")),
            BuildError::IotHub => Failure::Usage(format!(
                "the connection string is of an IoT hub: commands take the one of its Event Hubs-compatible endpoint, \
                 which the portal shows under built-in endpoints ({from})"
            )),
            error => Failure::Usage(error.to_string()),
        })?;
        Ok((client, string))
    }

    fn string(&self) -> Result<(ConnectionString, String), Failure> {
        let (text, from) = if let Some(path) = &self.connection_file {
            // Not repeated: it holds a key.
            if is_connection_string(&path.to_string_lossy()) {
                return Err(Failure::Usage(
                    "--connection-file is the name of a file, and this is a connection string: put it into a file, or into \
                     $PARTITA_CONNECTION_STRING"
                        .to_owned(),
                ));
            }
            let text = read(path).map_err(|error| {
                Failure::Usage(format!("cannot read the connection string in {}: {error}", path.display()))
            })?;
            (text, format!("in {}", path.display()))
        } else {
            let set = |name: &'static str| {
                std::env::var_os(name).filter(|text| !text.is_empty()).map(|text| (text, name))
            };
            match VARIABLES.into_iter().find_map(set) {
                Some((text, name)) => match text.into_string() {
                    Ok(text) => (text, format!("in ${name}")),
                    Err(_) => return Err(Failure::Usage(format!("what is in ${name} is no text"))),
                },
                None => return Ok((local(), "of the local hub".to_owned())),
            }
        };
        let parsed = text.trim().parse();
        parsed
            .map(|string| (string, from.clone()))
            .map_err(|error| Failure::Usage(format!("{error} ({from})")))
    }
}

fn is_connection_string(text: &str) -> bool {
    text.contains("SharedAccessKey") || text.contains("Endpoint=")
}

/// The first line that is neither empty nor a comment.
fn read(path: &Path) -> std::io::Result<String> {
    let text = named_files::read_text(path)?;
    let line = text.lines().map(str::trim).find(|line| !line.is_empty() && !line.starts_with('#'));
    Ok(line.unwrap_or_default().to_owned())
}

/// The connection string of a hub that is served here, or of the emulator.
fn local() -> ConnectionString {
    let key = Credential::Key { name: WELL_KNOWN_NAME.to_owned(), key: Secret::from(WELL_KNOWN_KEY) };
    ConnectionString::builder("localhost", key).service(Service::Emulator).build()
}

/// What a hub's refusal or silence is to a command.
impl From<EventHubsError> for Failure {
    fn from(error: EventHubsError) -> Self {
        let text = error.to_string();
        match error.condition() {
            Some(UNAUTHORIZED) => Self::Refused(text),
            Some(condition) if NOT_FOUND.contains(&condition) => Self::Missing(text),
            None if error.is_retriable() => Self::Unreachable(text),
            _ => Self::Run(text),
        }
    }
}

impl From<SourceError> for Failure {
    fn from(error: SourceError) -> Self {
        match error.source().and_then(|inner| inner.downcast_ref::<EventHubsError>()) {
            Some(inner) if error.kind() == SourceErrorKind::OwnershipLost => Self::Run(format!(
                "a processor has the partition for itself: read in another consumer group, with -g ({inner})"
            )),
            Some(inner) => inner.clone().into(),
            None => Self::Run(error.to_string()),
        }
    }
}

impl From<SendError> for Failure {
    fn from(error: SendError) -> Self {
        match error {
            SendError::Hub(error) => error.into(),
            error => Self::Run(error.to_string()),
        }
    }
}

/// What commands that connect run on.
pub(crate) fn runtime() -> Result<tokio::runtime::Runtime, Failure> {
    tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()
        .map_err(|error| Failure::Run(format!("cannot start: {error}")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_local_hub_is_the_default_and_its_string_the_emulators() {
        let string = local();
        assert_eq!((string.service(), string.host(), string.port()), (Service::Emulator, "localhost", None));
    }

    #[test]
    fn a_file_holds_one_string_and_comments() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("hub");
        std::fs::write(&file, "# of the test hub\n\n  Endpoint=x  \n").unwrap();
        assert_eq!(read(&file).unwrap(), "Endpoint=x");
    }
}
