//! The configuration of producer and consumer: environment variables, with what suits `partita serve` as defaults.

use std::env;

use partita::eventhubs::{BuildError, EventHubs};

/// The connection string of a hub that `partita serve` serves on this machine.
const LOCAL: &str = "Endpoint=sb://localhost;SharedAccessKeyName=RootManageSharedAccessKey;SharedAccessKey=SAS_KEY_VALUE;UseDevelopmentEmulator=true;";

/// A setting from the environment.
pub fn setting(name: &str, default: &str) -> String {
    env::var(name).ok().filter(|text| !text.is_empty()).unwrap_or_else(|| default.to_owned())
}

/// The checkpoints' file, of `PARTITA_STORE` (default: sqlite:checkpoints.db), which `partita status` reads, too.
pub fn checkpoints() -> String {
    let store = setting("PARTITA_STORE", "sqlite:checkpoints.db");
    store.strip_prefix("sqlite:").unwrap_or(&store).to_owned()
}

/// The hub `PARTITA_HUB` (default: eh1) at `PARTITA_CONNECTION_STRING` (default: this machine). A string in
/// `EVENTHUBS_CONNECTION_STRING` or `EVENT_HUB_CONNECTION_STRING`, as SDKs have it, is taken, too.
pub fn hub() -> Result<EventHubs, BuildError> {
    let other = setting("EVENT_HUB_CONNECTION_STRING", LOCAL);
    let other = setting("EVENTHUBS_CONNECTION_STRING", &other);
    EventHubs::connect(&setting("PARTITA_CONNECTION_STRING", &other), setting("PARTITA_HUB", "eh1"))
}
