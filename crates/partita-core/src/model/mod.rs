//! The words of the domain: ids, events, positions and time. No I/O and no runtime.

mod event;
mod ids;
#[cfg(feature = "json")]
mod json;
mod message;
mod position;
mod route;
mod time;
mod value;

pub use event::{Body, Event, EventBuilder, Properties, SystemProperties};
pub use ids::{
    ConsumerGroup, Epoch, HubName, Incarnation, InstanceId, Namespace, PartitionId, Scope, StreamId,
};
#[cfg(feature = "json")]
pub use json::JsonError;
pub use message::MessageProperties;
pub use position::{LastEnqueued, Offset, Position, PositionError, SequenceNumber, StreamPosition};
pub use route::Route;
pub use time::{Tick, Timestamp};
pub use value::Value;
