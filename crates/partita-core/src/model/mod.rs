//! The words of the domain: ids, events, positions and time. No I/O and no runtime.

mod error;
mod event;
mod ids;
#[cfg(feature = "json")]
mod json;
mod message;
mod position;
mod reason;
mod route;
mod time;
mod value;

pub use error::BoxError;
pub use event::{Body, Event, EventBuilder, Properties, SystemProperties};
pub use ids::{
    ConsumerGroup, Epoch, HubName, Incarnation, InstanceId, Namespace, PartitionId, Scope, StreamId,
};
#[cfg(feature = "json")]
pub use json::JsonError;
pub use message::MessageProperties;
pub use position::{LastEnqueued, Offset, Position, PositionError, SequenceNumber, StreamPosition};
pub(crate) use reason::{CancelReason, DrainReason};
pub use reason::{RevokeReason, StopReason};
pub use route::Route;
pub use time::{Tick, Timestamp};
pub use value::Value;
