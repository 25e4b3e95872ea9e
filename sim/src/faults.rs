//! What can happen to a world.

use std::fmt;
use std::time::Duration;

use crate::extras::Extras;

/// A step of the protocol at which something goes wrong.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Moment {
    /// A heartbeat.
    Beat,
    /// An instance takes a partition that is free or a dead one's, or takes its own again.
    Claim,
    /// An instance asks an owner for a partition.
    Request,
    /// An owner passes a partition on, or a request is taken back.
    Transfer,
    /// An owner gives a partition up.
    Release,
    /// A new owner seals the checkpoint.
    Seal,
    /// An owner writes its position.
    Checkpoint,
    /// An instance declares another one dead.
    Bury,
    /// An instance reads the view of the group.
    View,
}

impl Moment {
    /// All of them.
    pub const ALL: [Self; 9] = [
        Self::Beat,
        Self::Claim,
        Self::Request,
        Self::Transfer,
        Self::Release,
        Self::Seal,
        Self::Checkpoint,
        Self::Bury,
        Self::View,
    ];
}

/// What goes wrong at a [`Moment`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Blow {
    /// The request never arrives.
    LoseRequest,
    /// The write happens, and its answer is lost.
    LoseReply,
    /// The request arrives when nobody waits for its answer any more.
    Late(Duration),
    /// The caller ends when its request has arrived.
    Crash,
    /// The caller stands still while the answer is on its way.
    Freeze {
        /// For how long.
        time: Duration,
        /// When it goes on, the store answers once more and is then out of its reach for this long.
        then_cut: Option<Duration>,
    },
}

/// What kind of error a reader ends with.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ReaderFault {
    /// One that says to try again.
    Retriable,
    /// One that says that somebody else has the partition.
    OwnershipLost,
    /// One that says that trying again will not help.
    Fatal,
}

/// Something that goes wrong, or changes, at a certain time. Instances are counted over those alive, partitions over those
/// there are.
#[derive(Clone, Debug, PartialEq)]
#[allow(missing_docs)] // Fields: which, and for how long.
pub enum Fault {
    /// An instance ends without a word; another one may be started in its place.
    Crash { instance: usize, restart: Option<Duration> },
    /// An instance stands still, and goes on later.
    Freeze { instance: usize, time: Duration },
    /// An instance in the middle of a call stands still, and goes on later.
    FreezeBusy { time: Duration },
    /// One more instance starts, and ends without a word after this time: one turn of a crash loop.
    Flicker { lives: Duration },
    /// One more instance starts.
    Join,
    /// An instance shuts down in good order.
    Leave { instance: usize },
    /// Requests and replies get lost, or arrive late.
    Loss { percent: u8, time: Duration },
    /// The store answers with errors, before or after it did what was asked.
    Errors { percent: u8, time: Duration },
    /// The store takes up to this long each way.
    Latency { most: Duration, time: Duration },
    /// The store does not answer, or refuses every call.
    Outage { refuses: bool, time: Duration },
    /// One instance does not reach the store.
    CutOff { instance: usize, time: Duration },
    /// An instance in a call that cannot be cancelled does not reach the store.
    CutOffBusy { time: Duration },
    /// The next calls of one kind go wrong in one way.
    Ambush { at: Moment, blow: Blow, hits: u8 },
    /// The store's clock jumps: the records of before look older, or younger.
    StoreClock { forward: bool, by: Duration },
    /// The wall clock of an instance jumps.
    WallClock { instance: usize, forward: bool, by: Duration },
    /// The readers of a partition fail.
    ReaderFails { partition: usize, kind: ReaderFault },
    /// A stranger reads a partition at the highest owner level.
    Theft { partition: usize, time: Duration },
    /// Nobody reaches the hub.
    SourceDown { time: Duration },
    /// One instance does not reach the hub.
    SourceCutOff { instance: usize, time: Duration },
    /// The hub gets more partitions.
    Grow { count: u32 },
    /// The process of the hub ends and is started again.
    HubKill { down: Duration },
    /// The power of the hub goes off, in the middle of its `calls`th call of the disk from now, and comes back.
    PowerCut { calls: u64, down: Duration },
    /// A call of the hub's disk fails: the `calls`th from now.
    DiskError { calls: u64 },
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(self, f)
    }
}

/// What a world starts with.
#[derive(Clone, Debug, PartialEq)]
pub struct Setup {
    /// How many partitions the hub has.
    pub partitions: u32,
    /// How many instances start at once.
    pub instances: usize,
    /// Whether the store writes an ownership and its checkpoint in one step.
    pub atomic: bool,
    /// Whether the hub is the real log on a simulated disk, rather than one in memory.
    pub log: bool,
    /// At most so many moves per instance and cycle.
    pub pace: Option<usize>,
    /// How long a call of a handler takes at most.
    pub call: Duration,
    /// If set, some calls take up to this long: so many in a thousand.
    pub slow_call: Option<(u16, Duration)>,
    /// If set, some calls take up to this long and cannot be cancelled: so many in a thousand.
    pub blocking_call: Option<(u16, Duration)>,
    /// So many calls in a thousand fail, a tenth of them with a panic.
    pub failing_calls: u16,
    /// How long a running call may take when a partition is to be handed over.
    pub drain_time: Duration,
    /// How long a partition that was given up is left alone.
    pub cool_down: Duration,
    /// How long a store call takes at most, each way.
    pub latency: Duration,
    /// The mean time between two events of a partition.
    pub event_gap: Duration,
    /// What it has besides the trouble that it is about.
    pub extras: Extras,
}

/// A world's setup and fate.
#[derive(Clone, Debug, PartialEq)]
pub struct Plan {
    /// What it starts with.
    pub setup: Setup,
    /// What happens when, sorted by time.
    pub faults: Vec<(Duration, Fault)>,
    /// When the faults have stopped and healing begins.
    pub calm_at: Duration,
    /// From when on nothing may move, because all processes are alive.
    pub still_from: Option<Duration>,
    /// Whether no event may be handled twice, because all moves are planned.
    pub once: bool,
}
