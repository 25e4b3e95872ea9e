//! The hub in the box: durable and partitioned, in this process (feature `hub`).
//!
//! ```
//! use partita::hub::{Broker, HubOptions, HubProducer, HubSource};
//! use partita::{Event, Route};
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let broker = Broker::in_memory(64 << 20)?; // or Broker::open("data")?.0
//! let hub = broker.create_hub(&"homes".into(), HubOptions::default())?;
//! HubProducer::new(hub.clone()).send(Route::key("home 7"), Event::builder("door opened")).await?;
//! let source = HubSource::new(hub); // for Processor::builder
//! # Ok(())
//! # }
//! ```
//!
//! With feature `server`, `hub::server` serves it to clients of Event Hubs.

pub use partita_hub::broker::{Broker, BrokerError, CheckState, Hub, HubOptions};
pub use partita_hub::log::{
    AcceptError, AppendError, Clock, Damage, Disk, Durability, LogCheck, Loss, LostEvents, LostRange,
    OpenError, OsDisk, PartitionCheck, PartitionInfo, Recovery, Retention, RetentionError, Settings, StoreId,
};
pub use partita_hub::producer::{HubProducer, SendError, Sent};
pub use partita_hub::source::HubSource;

/// The hub on the network, for clients of Event Hubs (feature `server`; over TLS with feature `tls`, in WebSockets with
/// feature `websocket`).
///
/// ```no_run
/// # async fn example() -> Result<(), Box<dyn std::error::Error>> {
/// use partita::hub::Broker;
/// use partita::hub::server::{Server, ServerOptions, Transport};
/// use std::sync::Arc;
///
/// let (broker, _) = Broker::open("data")?;
/// let server = Server::new(Arc::new(broker), ServerOptions::default());
/// let listener = tokio::net::TcpListener::bind("127.0.0.1:5672").await?;
/// server.listen(listener, Transport::Plain).await;
/// # Ok(())
/// # }
/// ```
#[cfg(feature = "server")]
pub mod server {
    pub use partita_hub::fault::{Fault, FaultId, FaultKind, FaultRole, Faults};
    pub use partita_hub::server::{
        BadOrigin, ConnectionInfo, Key, LinkInfo, LinkRole, Origin, Origins, Peer, Right, Rights, Rule,
        RuleScope, Rules, Server, ServerOptions, Transport, WELL_KNOWN_KEY, WELL_KNOWN_NAME,
    };
    #[cfg(feature = "tls")]
    pub use partita_hub::server::{ServerConfig, TlsError, tls_config_from_files};
}
