use azure_messaging_eventhubs_checkpointstore_blob as _;
fn main() {}
