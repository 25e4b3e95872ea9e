//! What a hub's log is told. Defaults are those of the measured design.

use std::fmt;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use super::error::OpenError;
use super::format::{BATCH_BYTES_LIMIT, BLOCK, GROUP_HEADER, PRODUCER_BLOCK, SegmentHeader};
use super::producers::PER_PARTITION_MAX;
use super::retention::Retention;

/// The most partitions a hub has.
pub const PARTITIONS_MAX: u32 = 1_024;

/// When a commit is acknowledged.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Durability {
    /// When it would survive a power cut.
    #[default]
    Always,
    /// When the system has it; it is made durable this often. A power cut loses what came since.
    Interval(Duration),
    /// When the system has it. A power cut loses what the system had not written by itself.
    Never,
}

/// Wall-clock time in milliseconds since 1970.
#[derive(Clone)]
pub struct Clock(Arc<dyn Fn() -> i64 + Send + Sync>);

impl Clock {
    /// A clock of your own, for tests.
    pub fn new(now_ms: impl Fn() -> i64 + Send + Sync + 'static) -> Self {
        Self(Arc::new(now_ms))
    }

    pub(crate) fn now_ms(&self) -> i64 {
        (self.0)()
    }
}

impl Default for Clock {
    fn default() -> Self {
        Self::new(|| {
            let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
            i64::try_from(since.as_millis()).unwrap_or(i64::MAX)
        })
    }
}

impl fmt::Debug for Clock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Clock")
    }
}

/// Settings of a hub's log.
#[derive(Clone, Debug)]
pub struct Settings {
    /// How many partitions there are; more than before adds some. [`HubLog::add_partitions`] does so later.
    ///
    /// [`HubLog::add_partitions`]: super::HubLog::add_partitions
    pub partitions: u32,
    /// Size of the first segment; each next one is twice as large, up to the maximum.
    pub segment_bytes_first: u64,
    /// Size of the largest segments. Recovery reads at most one of them.
    pub segment_bytes_max: u64,
    /// The most one commit writes.
    pub group_bytes_max: usize,
    /// The largest batch on disk.
    pub batch_bytes_max: usize,
    /// Bytes that may wait for the committer.
    pub queue_bytes_max: usize,
    /// Bytes of recent commits kept in memory for readers at the end. All hubs of a process keep 256 MiB together: when
    /// they hold more, each goes down to 1 MiB. A hub that is idle keeps next to nothing.
    pub tail_bytes_max: usize,
    /// When a commit is acknowledged.
    pub durability: Durability,
    /// What goes when.
    pub retention: Retention,
    /// Idempotent producers that are remembered, shared equally by the partitions, which remember at most 64 each.
    pub producers_max: u32,
    /// Idle time after which a mark is written, see `docs/log-format.md`.
    pub mark_after: Duration,
    /// Goes on although acknowledged events are missing, with numbers above all that can have been acknowledged.
    pub accept_loss: bool,
    /// Writes through the page cache even where direct I/O works.
    pub buffered: bool,
    /// Where time comes from.
    pub clock: Clock,
    /// Without threads: an append is committed before it returns, and [`HubLog::keep_house`] does what else is due. For
    /// simulations, in which everything happens in one thread.
    ///
    /// [`HubLog::keep_house`]: super::HubLog::keep_house
    pub single_threaded: bool,
}

impl Settings {
    /// The defaults, for a hub of this many partitions.
    pub fn new(partitions: u32) -> Self {
        Self {
            partitions,
            segment_bytes_first: 1 << 20,
            segment_bytes_max: 64 << 20,
            group_bytes_max: 4 << 20,
            // A message of 1 MiB, and what the log adds to it.
            batch_bytes_max: (1 << 20) + (64 << 10),
            queue_bytes_max: 16 << 20,
            tail_bytes_max: 16 << 20,
            durability: Durability::default(),
            retention: Retention::default(),
            producers_max: 4_096,
            mark_after: Duration::from_millis(100),
            accept_loss: false,
            buffered: false,
            clock: Clock::default(),
            single_threaded: false,
        }
    }

    pub(crate) fn check(&self) -> Result<(), OpenError> {
        let refuse = |text: String| Err(OpenError::Settings(text));
        if !(1..=PARTITIONS_MAX).contains(&self.partitions) {
            return refuse(format!("a hub has 1 to {PARTITIONS_MAX} partitions, not {}", self.partitions));
        }
        if self.batch_bytes_max > BATCH_BYTES_LIMIT {
            return refuse(format!("batches are limited to {BATCH_BYTES_LIMIT} bytes"));
        }
        if self.smallest_segment(self.partitions) > self.segment_bytes_max
            || self.segment_bytes_max > u64::from(u32::MAX)
        {
            return refuse(format!(
                "segments of {} bytes do not hold a batch of {} bytes",
                self.segment_bytes_max, self.batch_bytes_max
            ));
        }
        Ok(())
    }

    /// The first segment's size: as told, but the largest batch fits.
    pub(crate) fn smallest_segment(&self, partitions: u32) -> u64 {
        // A group's header, the batch, and a mark after it.
        let need = self.start_max(partitions) + 2 * GROUP_HEADER + self.batch_bytes_max + PRODUCER_BLOCK;
        self.segment_bytes_first.max((need as u64).next_power_of_two()).next_multiple_of(BLOCK as u64)
    }

    /// The size that no segment exceeds.
    pub(crate) fn largest_segment(&self, partitions: u32) -> u64 {
        self.segment_bytes_max.max(self.smallest_segment(partitions))
    }

    /// The size of the segment after one of `bytes`.
    pub(crate) fn next_segment(&self, bytes: u64, partitions: u32) -> u64 {
        let smallest = self.smallest_segment(partitions);
        (bytes * 2).min(self.segment_bytes_max).max(smallest)
    }

    /// Room for batches in the smallest segment.
    pub(crate) fn smallest_room(&self, partitions: u32) -> usize {
        self.smallest_segment(partitions) as usize - self.start_max(partitions) - 2 * GROUP_HEADER
    }

    /// Where groups start when as many producers are remembered as may be.
    fn start_max(&self, partitions: u32) -> usize {
        let partitions = partitions as usize;
        SegmentHeader::data_start_for(
            partitions,
            partitions * self.producers_per_partition(partitions as u32),
        )
    }

    /// How many idempotent producers a partition remembers.
    pub(crate) fn producers_per_partition(&self, partitions: u32) -> usize {
        ((self.producers_max / partitions.max(1)) as usize).min(PER_PARTITION_MAX)
    }
}
