//! Azure Event Hubs, IoT Hub's built-in endpoint, the official emulator, and Partita's hub, over AMQP.

mod auth;
mod builder;
mod client;
mod connection_string;
#[cfg(feature = "entra")]
mod entra;
mod error;
mod iothub;
mod management;
mod producer;
mod reader;
mod secret;
mod source;
mod transport;

pub use auth::{Token, TokenSource};
pub use builder::{BuildError, EventHubs, EventHubsBuilder};
pub use connection_string::{
    ConnectionString, ConnectionStringBuilder, ConnectionStringError, Credential, Service,
};
pub use error::EventHubsError;
pub use management::{HubProperties, PartitionProperties};
pub use producer::{
    AddError, BufferedProducer, BufferedProducerBuilder, EncodedEvent, EventBatch, OUTSTANDING_BYTES_MAX,
    PartitionOutcomes, Producer, Receipt, Route, SendError,
};
pub use secret::Secret;
pub use source::EventHubsSource;
