//! How the demo stands, for whoever shows it.

use std::time::Duration;

use partita::{Epoch, InstanceId};

use super::moves::Move;

/// All there is to show.
#[derive(Clone, Debug, Default)]
pub(crate) struct Board {
    /// Since the beginning of the run.
    pub(crate) at: Duration,
    /// How long events are produced.
    pub(crate) length: Duration,
    pub(crate) rows: Vec<Row>,
    /// The processors that run, and those that are gone and still own something.
    pub(crate) workers: Vec<Worker>,
    /// The last moves, the newest first, with how long the partition stood still.
    pub(crate) moves: Vec<(Move, Option<Duration>)>,
}

/// One partition.
#[derive(Clone, Debug)]
pub(crate) struct Row {
    pub(crate) partition: usize,
    pub(crate) owner: Option<InstanceId>,
    pub(crate) epoch: Option<Epoch>,
    pub(crate) events_per_second: u64,
    pub(crate) lag: u64,
    pub(crate) checkpoint_age: Option<Duration>,
}

/// One processor.
#[derive(Clone, Debug)]
pub(crate) struct Worker {
    pub(crate) id: InstanceId,
    pub(crate) partitions: usize,
    pub(crate) events_per_second: u64,
    pub(crate) lag: u64,
    pub(crate) crashed: bool,
    pub(crate) frozen: bool,
}

impl Board {
    pub(crate) fn events_per_second(&self) -> u64 {
        self.rows.iter().map(|row| row.events_per_second).sum()
    }

    pub(crate) fn lag(&self) -> u64 {
        self.rows.iter().map(|row| row.lag).sum()
    }

    /// How many partitions nobody owns.
    pub(crate) fn free(&self) -> usize {
        self.rows.iter().filter(|row| row.owner.is_none()).count()
    }
}
