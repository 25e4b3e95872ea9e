//! Which partition a batch goes to.

use std::sync::atomic::{AtomicU32, Ordering};

pub use partita_dialect::event::partition_of;

/// How a batch finds its partition: what a [`model::Route`](partita_core::model::Route) comes to here, without owning its key.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Route<'a> {
    /// This partition.
    Partition(u32),
    /// The one that the key hashes to: events of a key stay in order.
    Key(&'a str),
    /// One after another.
    RoundRobin,
}

impl From<Route<'_>> for partita_core::model::Route {
    fn from(route: Route<'_>) -> Self {
        match route {
            Route::Partition(partition) => Self::partition(partition),
            Route::Key(key) => Self::key(key),
            Route::RoundRobin => Self::Any,
        }
    }
}

/// Resolves routes of one hub.
#[derive(Debug, Default)]
pub(crate) struct Router {
    next: AtomicU32,
}

impl Router {
    pub(crate) fn partition(&self, route: Route<'_>, partitions: u32) -> u32 {
        match route {
            Route::Partition(partition) => partition,
            Route::Key(key) => partition_of(key, partitions),
            Route::RoundRobin => self.next.fetch_add(1, Ordering::Relaxed) % partitions,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn round_robin_visits_all_in_turn() {
        let router = Router::default();
        let visited: Vec<u32> = (0..5).map(|_| router.partition(Route::RoundRobin, 3)).collect();
        assert_eq!(visited, [0, 1, 2, 0, 1]);
    }
}
