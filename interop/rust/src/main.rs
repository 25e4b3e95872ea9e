use azure_messaging_eventhubs as _;
fn main() {}
