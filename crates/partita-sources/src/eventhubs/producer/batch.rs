//! Events that go to the hub together, and know how many still fit.

use bytes::Bytes;
use partita_amqp::types::EncodeError;
use partita_core::model::{Event, EventBuilder, Offset, PartitionId, Route, SequenceNumber, Timestamp};
use partita_dialect::event::{self, KEY_CHARS_MAX, batch};
use std::sync::Arc;
use thiserror::Error;

/// The partition, if it is not for the hub to choose.
pub(super) fn fixed_partition(route: &Route) -> Option<&PartitionId> {
    match route {
        Route::Partition(partition) => Some(partition),
        Route::Key(_) | Route::Any => None,
    }
}

/// An event as it is sent. Its size is known, and it can be added to one batch or another.
#[derive(Clone, Debug)]
pub struct EncodedEvent {
    bytes: Bytes,
    key: Option<Arc<str>>,
}

impl EncodedEvent {
    /// Encodes an event.
    pub fn new(event: EventBuilder) -> Result<Self, EncodeError> {
        // The place is the hub's to say; it is not encoded.
        Self::of(&event.at(SequenceNumber(0), Offset::number(0), Timestamp(0)))
    }

    /// Encodes an event's content: body, key, properties and annotations.
    pub fn of(event: &Event) -> Result<Self, EncodeError> {
        let mut bytes = Vec::with_capacity(event.size());
        event::encode(event, &mut bytes)?;
        Ok(Self { bytes: bytes.into(), key: event.system().partition_key.clone() })
    }

    /// How many bytes it takes in a batch.
    pub fn size(&self) -> usize {
        self.bytes.len() + batch::overhead(self.bytes.len())
    }

    /// Appends it to the events of a batch.
    pub(super) fn append_to(&self, events: &mut Vec<u8>) {
        // Fails beyond 4 GiB, which no hub takes; whoever adds it has looked at its size.
        let _ = batch::push(&self.bytes, events);
    }

    /// Whether a hub takes its key.
    pub(super) fn check_key(&self) -> Result<(), AddError> {
        match self.key().map_or(0, |key| key.chars().count()) {
            chars if chars > KEY_CHARS_MAX => Err(AddError::KeyTooLong { chars }),
            _ => Ok(()),
        }
    }

    /// The key that it goes by.
    pub fn key(&self) -> Option<&str> {
        self.key.as_deref()
    }
}

/// Why an event is not added.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Error)]
#[non_exhaustive]
pub enum AddError {
    /// The batch has no room: send it, and add the event to the next one.
    #[error("the batch is full")]
    Full,
    /// Not even an empty batch has room.
    #[error("the event has {size} bytes, and the hub takes {max}: split it")]
    TooLarge {
        /// The event's.
        size: usize,
        /// The hub's limit.
        max: usize,
    },
    /// A hub refuses the key, and with it the whole batch.
    #[error("the partition key has {chars} characters, and a hub takes {KEY_CHARS_MAX}: shorten it")]
    KeyTooLong {
        /// How many it has.
        chars: usize,
    },
    /// A batch goes to one partition, so its events have one key.
    #[error("the events of the batch have different partition keys: make a batch per key")]
    MixedKeys,
    /// The event cannot be written.
    #[error("the event cannot be written: {0}")]
    Encode(#[from] EncodeError),
}

/// Events for one partition, as many as the hub takes at once. They arrive all or none, one after the other.
#[derive(Clone, Debug)]
pub struct EventBatch {
    pub(super) route: Route,
    pub(super) payload: Vec<u8>,
    pub(super) key: Option<Arc<str>>,
    bytes_max: usize,
    pub(super) count: usize,
    /// What the payload has without an event.
    pub(super) head_bytes: usize,
}

impl EventBatch {
    pub(super) fn new(route: Route, bytes_max: usize) -> Result<Self, EncodeError> {
        let key = match &route {
            Route::Key(key) => Some(key.clone()),
            _ => None,
        };
        let mut payload = Vec::new();
        batch::begin(key.as_deref(), &[], &mut payload)?;
        let head_bytes = payload.len();
        Ok(Self { route, payload, key, bytes_max, count: 0, head_bytes })
    }

    /// Adds an event, if it has room for it.
    pub fn add(&mut self, event: EventBuilder) -> Result<(), AddError> {
        let event = match &self.route {
            Route::Key(key) => event.partition_key(key),
            _ => event,
        };
        self.add_encoded(&EncodedEvent::new(event)?)
    }

    /// Adds an event that is encoded already, if it has room for it.
    pub fn add_encoded(&mut self, event: &EncodedEvent) -> Result<(), AddError> {
        event.check_key()?;
        let mixed = match &self.route {
            Route::Partition(_) => false,
            Route::Key(key) => event.key.as_ref().is_some_and(|own| own != key),
            Route::Any => self.count > 0 && event.key != self.key,
        };
        if mixed {
            return Err(AddError::MixedKeys);
        }
        // A batch without a route goes by the key that its events have, which the envelope says.
        if self.count == 0 && self.route == Route::Any && self.key != event.key {
            self.key.clone_from(&event.key);
            self.payload.clear();
            batch::begin(self.key.as_deref(), &[], &mut self.payload)?;
            self.head_bytes = self.payload.len();
        }
        let size = event.size();
        if self.payload.len() + size > self.bytes_max {
            return Err(match self.head_bytes + size > self.bytes_max {
                true => AddError::TooLarge { size, max: self.bytes_max - self.head_bytes },
                false => AddError::Full,
            });
        }
        batch::push(&event.bytes, &mut self.payload)?;
        self.count += 1;
        Ok(())
    }

    /// How many events it has.
    pub fn len(&self) -> usize {
        self.count
    }

    /// Whether it has none.
    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// How many bytes it has.
    pub fn size(&self) -> usize {
        self.payload.len()
    }

    /// How many bytes it may have.
    pub fn size_max(&self) -> usize {
        self.bytes_max
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_batch_takes_what_fits_and_not_a_byte_more() {
        let mut batch = EventBatch::new(Route::Any, 1_000).unwrap();
        let event = EncodedEvent::new(Event::builder(vec![1; 100])).unwrap();
        let mut count = 0;
        while batch.add_encoded(&event).is_ok() {
            count += 1;
        }
        assert_eq!((batch.len(), batch.size()), (count, count * event.size()));
        assert!(batch.size() <= 1_000 && batch.size() + event.size() > 1_000);
        assert_eq!(batch.add_encoded(&event), Err(AddError::Full));
        let large = EncodedEvent::new(Event::builder(vec![1; 1_000])).unwrap();
        assert!(matches!(batch.add_encoded(&large), Err(AddError::TooLarge { max: 1_000, .. })));
    }

    #[test]
    fn events_of_different_keys_do_not_share_a_batch_that_goes_by_key() {
        let keyed = |key: &str| Event::builder("x").partition_key(key);
        let mut any = EventBatch::new(Route::Any, 1_000).unwrap();
        any.add(keyed("a")).unwrap();
        assert_eq!(any.add(keyed("b")), Err(AddError::MixedKeys));
        assert_eq!(any.add(Event::builder("x")), Err(AddError::MixedKeys));
        any.add(keyed("a")).unwrap();
        let mut by_key = EventBatch::new(Route::key("a"), 1_000).unwrap();
        by_key.add(Event::builder("x")).unwrap();
        let mut by_partition = EventBatch::new(Route::partition(1), 1_000).unwrap();
        by_partition.add(keyed("a")).unwrap();
        by_partition.add(keyed("b")).unwrap();
    }
}
