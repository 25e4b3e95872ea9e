//! The configuration of producer and consumer: environment variables, with what suits `partita serve` as defaults.

use std::env;

use partita::eventhubs::{BuildError, EventHubs};

/// The connection string of a hub that `partita serve` serves on this machine.
const LOCAL: &str = "Endpoint=sb://localhost;SharedAccessKeyName=RootManageSharedAccessKey;SharedAccessKey=SAS_KEY_VALUE;UseDevelopmentEmulator=true;";

/// A setting from the environment.
pub fn setting(name: &str, default: &str) -> String {
    env::var(name).ok().filter(|text| !text.is_empty()).unwrap_or_else(|| default.to_owned())
}

/// The hub `HUB` (default: eh1) at `EVENTHUBS_CONNECTION_STRING` (default: this machine).
pub fn hub() -> Result<EventHubs, BuildError> {
    EventHubs::connect(&setting("EVENTHUBS_CONNECTION_STRING", LOCAL), setting("HUB", "eh1"))
}
