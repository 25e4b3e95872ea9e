//! Event sources of Partita beyond its own hub.
//!
//! - [`eventhubs`]: whatever speaks the Event Hubs protocol: Azure Event Hubs, the built-in endpoint of IoT Hub, the official
//!   emulator, and Partita's hub when it is served.

pub mod eventhubs;
