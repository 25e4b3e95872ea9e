//! Serves hubs on a port of this machine with the official emulator's connection string:
//! `cargo run --release -p partita-hub --features server --example serve -- 5672 DIR telemetry:4 other:2`

use std::sync::Arc;

use partita_core::model::{ConsumerGroup, HubName};
use partita_hub::broker::{Broker, HubOptions};
use partita_hub::listener::transport::Transport;
use partita_hub::server::{Server, ServerOptions};

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut args = std::env::args().skip(1);
    let port: u16 = args.next().as_deref().unwrap_or("5672").parse()?;
    let data = args.next().unwrap_or_else(|| "data".to_owned());
    let broker = if data == "memory" { Broker::in_memory(1 << 30)? } else { Broker::open(data)?.0 };
    for hub in args {
        let (name, partitions) = hub.split_once(':').unwrap_or((&hub, "4"));
        if broker.hub(name).is_none() {
            let options = HubOptions { partitions: partitions.parse()?, ..HubOptions::default() };
            broker.create_hub(&HubName::new(name), options)?.create_group(&ConsumerGroup::new("cg1"))?;
        }
    }
    let server = Server::new(Arc::new(broker), ServerOptions::default());
    let listener = tokio::net::TcpListener::bind(("127.0.0.1", port)).await?;
    server.listen(listener, Transport::Plain).await;
    Ok(())
}
