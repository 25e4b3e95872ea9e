//! Event sources of Partita beyond its own hub. Users reach them through crate `partita`.
//!
//! - [`eventhubs`] (there: `partita::eventhubs`): whatever speaks the Event Hubs protocol: Azure Event Hubs, the built-in
//!   endpoint of IoT Hub, the official emulator, and Partita's hub when it is served.
//!
//! ```
//! use partita_core::processor::Processor;
//! use partita_core::store::MemoryStore;
//! use partita_sources::eventhubs::EventHubs;
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let local = "Endpoint=sb://localhost;SharedAccessKeyName=RootManageSharedAccessKey;\
//!              SharedAccessKey=SAS_KEY_VALUE;UseDevelopmentEmulator=true;";
//! let hub = EventHubs::connect(local, "eh1")?; // connects when it is first needed
//! let builder = Processor::builder(hub, MemoryStore::new());
//! # Ok(())
//! # }
//! ```

pub mod eventhubs;
