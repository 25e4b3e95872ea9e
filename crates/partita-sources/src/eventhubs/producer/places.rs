//! Which partition an event goes to, where that is chosen here.

use std::sync::atomic::{AtomicUsize, Ordering};

use partita_core::model::PartitionId;
use partita_dialect::event::partition_of;

use super::{Route, SendError};
use crate::eventhubs::{EventHubsError, client::Client, management};

/// The partitions of a hub, as they were when it was first sent to.
#[derive(Debug)]
pub(super) struct Places {
    partitions: Vec<PartitionId>,
    turn: AtomicUsize,
}

impl Places {
    pub(super) async fn ask(client: &Client) -> Result<Self, EventHubsError> {
        Self::new(management::hub(client).await?.partitions)
    }

    fn new(partitions: Vec<PartitionId>) -> Result<Self, EventHubsError> {
        if partitions.is_empty() {
            return Err(EventHubsError::fatal("the hub has no partitions"));
        }
        Ok(Self { partitions, turn: AtomicUsize::new(0) })
    }

    pub(super) fn partitions(&self) -> &[PartitionId] {
        &self.partitions
    }

    /// The place of a partition, or of the key of an event; `None` if any will do.
    pub(super) fn of(&self, route: &Route, key: Option<&str>) -> Result<Option<usize>, SendError> {
        let key = match route {
            Route::Partition(partition) => {
                let place = self.partitions.iter().position(|known| known == partition);
                return match place {
                    Some(place) => Ok(Some(place)),
                    None => Err(SendError::Hub(EventHubsError::fatal(format!(
                        "the hub has no partition '{partition}': it has {}",
                        self.partitions.len()
                    )))),
                };
            }
            Route::Key(key) => Some(&**key),
            Route::Any => key,
        };
        let count = u32::try_from(self.partitions.len()).unwrap_or(u32::MAX);
        Ok(key.map(|key| partition_of(key, count) as usize))
    }

    /// The place whose turn it is.
    pub(super) fn current(&self) -> usize {
        self.turn.load(Ordering::Relaxed) % self.partitions.len()
    }

    /// The place whose turn is next.
    pub(super) fn next(&self) -> usize {
        (self.turn.fetch_add(1, Ordering::Relaxed).wrapping_add(1)) % self.partitions.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_route_or_else_the_event_s_own_key_chooses() {
        let places = Places::new((0..4).map(PartitionId::from).collect()).unwrap();
        assert_eq!(places.of(&Route::partition(2), Some("a")).unwrap(), Some(2));
        let a = partition_of("a", 4) as usize;
        assert_eq!(places.of(&Route::key("a"), None).unwrap(), Some(a));
        assert_eq!(places.of(&Route::Any, Some("a")).unwrap(), Some(a));
        assert_eq!(places.of(&Route::Any, None).unwrap(), None);
        assert!(places.of(&Route::partition(4), None).is_err());
        assert_eq!([places.next(), places.next(), places.next(), places.next()], [1, 2, 3, 0]);
        assert_eq!(places.current(), 0);
        assert!(Places::new(Vec::new()).is_err());
    }
}
