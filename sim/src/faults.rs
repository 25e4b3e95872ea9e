//! What a world is made of and what happens to it, drawn from a seed.

use std::fmt;
use std::time::Duration;

/// Something that goes wrong, or changes, at a certain time.
#[derive(Clone, Debug, PartialEq)]
pub enum Fault {
    /// An instance ends without a word.
    Crash {
        /// Which, counted over those alive.
        instance: usize,
        /// When another one is started in its place.
        restart: Option<Duration>,
    },
    /// An instance stands still, and goes on later.
    Freeze {
        /// Which, counted over those alive.
        instance: usize,
        /// For how long.
        time: Duration,
    },
    /// One more instance starts.
    Join,
    /// An instance shuts down in good order.
    Leave {
        /// Which, counted over those alive.
        instance: usize,
    },
    /// Requests and replies get lost, or arrive late, with a certain probability.
    Loss {
        /// In percent of the calls.
        percent: u8,
        /// For how long.
        time: Duration,
    },
    /// The store does not answer.
    Outage {
        /// For how long.
        time: Duration,
    },
    /// One instance does not reach the store.
    CutOff {
        /// Which, counted over those alive.
        instance: usize,
        /// For how long.
        time: Duration,
    },
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Crash { instance, restart: None } => write!(f, "crash {instance}"),
            Self::Crash { instance, restart: Some(after) } => {
                write!(f, "crash {instance}, restart after {after:?}")
            }
            Self::Freeze { instance, time } => write!(f, "freeze {instance} for {time:?}"),
            Self::Join => f.write_str("join"),
            Self::Leave { instance } => write!(f, "leave {instance}"),
            Self::Loss { percent, time } => write!(f, "lose {percent} % for {time:?}"),
            Self::Outage { time } => write!(f, "store down for {time:?}"),
            Self::CutOff { instance, time } => write!(f, "cut off {instance} for {time:?}"),
        }
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
    /// At most so many moves per instance and cycle.
    pub pace: Option<usize>,
    /// How long a call of a handler takes at most.
    pub call: Duration,
    /// If set, one call in a hundred takes up to this long.
    pub slow_call: Option<Duration>,
    /// How long a store call takes at most, each way.
    pub latency: Duration,
    /// The mean time between two events of a partition.
    pub event_gap: Duration,
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
}

fn millis(rng: &mut fastrand::Rng, range: std::ops::Range<u64>) -> Duration {
    Duration::from_millis(rng.u64(range))
}

impl Setup {
    /// Draws a setup.
    pub fn draw(rng: &mut fastrand::Rng) -> Self {
        Self {
            partitions: rng.u32(1..=12),
            instances: rng.usize(1..=5),
            atomic: rng.bool(),
            pace: rng.bool().then(|| rng.usize(1..=3)),
            call: millis(rng, 1..60),
            slow_call: (rng.u8(..4) == 0).then(|| millis(rng, 200..15_000)),
            latency: millis(rng, 1..25),
            event_gap: millis(rng, 60..400),
        }
    }
}

impl Plan {
    /// Faults of all kinds for a simulated minute.
    pub fn draw(rng: &mut fastrand::Rng) -> Self {
        let setup = Setup::draw(rng);
        let (mut at, mut faults) = (millis(rng, 1_000..6_000), Vec::new());
        while at < Duration::from_secs(60) {
            let instance = rng.usize(..8);
            faults.push((
                at,
                match rng.u8(..12) {
                    0 | 1 => {
                        let restart = rng.bool().then(|| millis(rng, 0..4_000));
                        Fault::Crash { instance, restart }
                    }
                    2..=4 => Fault::Freeze { instance, time: millis(rng, 50..15_000) },
                    5 | 6 => Fault::Join,
                    7 | 8 => Fault::Leave { instance },
                    9 => Fault::Loss { percent: rng.u8(5..60), time: millis(rng, 100..8_000) },
                    10 => Fault::Outage { time: millis(rng, 100..15_000) },
                    _ => Fault::CutOff { instance, time: millis(rng, 100..12_000) },
                },
            ));
            at += if rng.u8(..3) == 0 { millis(rng, 0..300) } else { millis(rng, 300..9_000) };
        }
        Self { setup, faults, calm_at: Duration::from_secs(60) }
    }

    /// Only planned moves: instances come and go in good order, and the store is slow at worst.
    pub fn draw_planned(rng: &mut fastrand::Rng) -> Self {
        let setup = Setup::draw(rng);
        let (mut at, mut faults) = (millis(rng, 1_000..6_000), Vec::new());
        while at < Duration::from_secs(40) {
            let fault = if rng.bool() { Fault::Join } else { Fault::Leave { instance: rng.usize(..8) } };
            faults.push((at, fault));
            at += millis(rng, 0..6_000);
        }
        Self { setup, faults, calm_at: Duration::from_secs(40) }
    }
}
