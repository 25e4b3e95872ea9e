//! Azure Event Hubs, IoT Hub's built-in endpoint, the official emulator, and Partita's hub, over AMQP.

mod connection_string;
mod secret;

pub use connection_string::{
    ConnectionString, ConnectionStringBuilder, ConnectionStringError, Credential, Service,
};
pub use secret::Secret;
