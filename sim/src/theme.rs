//! Kinds of worlds. Most are about one kind of trouble: a world in which everything happens at once seldom gets to the
//! one interleaving that matters.

use std::ops::Range;
use std::time::Duration;

use fastrand::Rng;

use crate::extras::Extras;
use crate::faults::{Blow, Fault, Moment, Plan, ReaderFault, Setup};

macro_rules! themes {
    ($($theme:ident $name:literal $weight:literal: $what:literal,)*) => {
        /// What a world is about.
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
        #[cfg_attr(feature = "cli", derive(serde::Serialize, serde::Deserialize))]
        #[allow(missing_docs)] // `what` says it.
        pub enum Theme { $($theme,)* }

        impl Theme {
            /// All of them.
            pub const ALL: &'static [Self] = &[$(Self::$theme,)*];

            /// Its name.
            pub fn name(self) -> &'static str {
                match self { $(Self::$theme => $name,)* }
            }

            /// What it is about, in a few words.
            pub fn what(self) -> &'static str {
                match self { $(Self::$theme => $what,)* }
            }

            /// How many of a hundred worlds are of this kind.
            fn weight(self) -> u32 {
                match self { $(Self::$theme => $weight,)* }
            }
        }
    };
}

themes! {
    Mixed "mixed" 12: "everything at once",
    Planned "planned" 7: "instances join and leave cleanly",
    Crashes "crashes" 6: "instances crash",
    Freezes "freezes" 10: "instances stand still and go on, some out of the store's reach",
    Answers "answers" 12: "requests and replies get lost or arrive late",
    Ambushes "ambushes" 9: "a certain step of the protocol goes wrong, again and again",
    Errors "errors" 4: "the store answers with errors",
    Latency "latency" 4: "the store takes longer than the ttl",
    Outages "outages" 5: "the store is down while all processes live",
    CutOffs "cut-offs" 4: "instances do not reach the store, or the hub",
    Source "source" 5: "readers fail, strangers read, the hub is out of reach",
    Handlers "handlers" 8: "handlers are slow, fail, panic and block",
    Growth "growth" 3: "partitions are added",
    Alone "alone" 3: "one instance by itself",
    Rolling "rolling" 3: "one instance after the other is replaced",
    Clocks "clocks" 4: "clocks jump",
    Log "log" 4: "the real log on a disk that fails and loses power",
    Thaws "thaws" 4: "instances stand still in the middle of calls",
    CrashLoops "crash-loops" 3: "an instance crashes as soon as it has started, again and again",
}

impl Theme {
    /// The theme of this name.
    pub fn parse(name: &str) -> Option<Self> {
        Self::ALL.iter().copied().find(|theme| theme.name() == name)
    }

    /// Draws a theme, by their weights.
    pub fn draw(rng: &mut Rng) -> Self {
        let all: u32 = Self::ALL.iter().map(|theme| theme.weight()).sum();
        let mut left = rng.u32(..all);
        for theme in Self::ALL.iter().copied() {
            match left.checked_sub(theme.weight()) {
                Some(rest) => left = rest,
                None => return theme,
            }
        }
        Self::Mixed
    }

    /// Draws a world of this kind.
    pub fn plan(self, rng: &mut Rng) -> Plan {
        let mut setup = Setup::draw(rng);
        let length = seconds(rng, 20..45);
        let mut plan =
            Plan { faults: Vec::new(), calm_at: length, still_from: None, once: false, setup: setup.clone() };
        let (first, gaps) = (millis(rng, 500..6_000), 300..7_000);
        let every = |rng: &mut Rng, gaps: Range<u64>, fault: &mut dyn FnMut(&mut Rng) -> Fault| {
            let (mut at, mut faults) = (first, Vec::new());
            while at < length {
                faults.push((at, fault(rng)));
                at += if rng.u8(..3) == 0 { millis(rng, 0..300) } else { millis(rng, gaps.clone()) };
            }
            faults
        };
        match self {
            Self::Mixed => plan.faults = every(rng, gaps, &mut anything),
            Self::Planned => {
                setup.blocking_call = None;
                setup.slow_call = None;
                setup.failing_calls = 0;
                plan.once = true;
                plan.faults = every(rng, gaps, &mut comes_or_goes);
            }
            Self::Crashes => {
                plan.faults = every(rng, gaps, &mut |rng| {
                    if rng.u8(..4) == 0 { comes_or_goes(rng) } else { crash(rng) }
                })
            }
            Self::Freezes => {
                plan.faults = every(rng, 500..6_000, &mut |rng| match rng.u8(..8) {
                    0 => comes_or_goes(rng),
                    1..=4 => Fault::Freeze { instance: any(rng), time: freeze_time(rng) },
                    _ => {
                        let at =
                            [Moment::Beat, Moment::Beat, Moment::Claim, Moment::Checkpoint, Moment::View];
                        Fault::Ambush {
                            at: rng.choice(at).unwrap_or(Moment::Beat),
                            blow: freeze_blow(rng),
                            hits: 1,
                        }
                    }
                })
            }
            Self::Answers => {
                plan.faults = every(rng, 300..4_000, &mut |rng| match rng.u8(..6) {
                    0 => crash(rng),
                    1 | 2 => comes_or_goes(rng),
                    3 => ambush(rng),
                    _ => Fault::Loss { percent: rng.u8(5..70), time: millis(rng, 200..6_000) },
                })
            }
            Self::Ambushes => {
                plan.faults = every(rng, 200..3_000, &mut |rng| match rng.u8(..8) {
                    0 => crash(rng),
                    1..=3 => comes_or_goes(rng),
                    _ => ambush(rng),
                })
            }
            Self::Errors => {
                plan.faults = every(rng, gaps, &mut |rng| match rng.u8(..4) {
                    0 => crash(rng),
                    1 => comes_or_goes(rng),
                    _ => Fault::Errors { percent: rng.u8(5..90), time: millis(rng, 200..8_000) },
                })
            }
            Self::Latency => {
                plan.faults = every(rng, gaps, &mut |rng| match rng.u8(..4) {
                    0 => crash(rng),
                    1 => comes_or_goes(rng),
                    _ => Fault::Latency { most: millis(rng, 100..8_000), time: millis(rng, 500..9_000) },
                })
            }
            Self::Outages => {
                setup.blocking_call = None;
                setup.failing_calls = 0;
                let settled = Duration::from_secs(12);
                plan.still_from = Some(settled);
                plan.calm_at = length + 2 * settled;
                let mut at = settled + millis(rng, 0..3_000);
                while at < plan.calm_at {
                    let time = millis(rng, 100..20_000);
                    plan.faults.push((at, Fault::Outage { refuses: rng.bool(), time }));
                    at += time + millis(rng, 100..12_000);
                }
            }
            Self::CutOffs => {
                plan.faults = every(rng, gaps, &mut |rng| match rng.u8(..5) {
                    0 => comes_or_goes(rng),
                    1 => Fault::SourceCutOff { instance: any(rng), time: millis(rng, 100..12_000) },
                    _ => Fault::CutOff { instance: any(rng), time: millis(rng, 100..12_000) },
                })
            }
            Self::Source => {
                plan.faults = every(rng, 300..4_000, &mut |rng| match rng.u8(..7) {
                    0 => comes_or_goes(rng),
                    1 => crash(rng),
                    _ => source(rng),
                })
            }
            Self::Handlers => {
                // One kind of bad handler at a time: each hides the others.
                let kind = rng.u8(..4);
                setup.drain_time = millis(rng, 500..12_000);
                setup.slow_call = (kind == 0).then(|| (rng.u16(10..150), millis(rng, 500..12_000)));
                setup.blocking_call = (kind == 1).then(|| (rng.u16(2..40), millis(rng, 500..20_000)));
                setup.failing_calls = if kind == 2 { rng.u16(10..300) } else { 0 };
                plan.faults = every(rng, gaps, &mut |rng| match rng.u8(..8) {
                    0 => crash(rng),
                    1 => Fault::Freeze { instance: any(rng), time: freeze_time(rng) },
                    2 if kind == 1 => Fault::CutOffBusy { time: millis(rng, 4_000..7_000) },
                    2 => Fault::CutOff { instance: any(rng), time: millis(rng, 4_000..8_000) },
                    3 if kind == 1 => Fault::CutOffBusy { time: millis(rng, 4_000..7_000) },
                    // Whoever asks for a partition is gone before the owner has drained.
                    4 => Fault::Ambush { at: Moment::Request, blow: Blow::Crash, hits: 1 },
                    _ => comes_or_goes(rng),
                });
            }
            Self::Growth => {
                plan.faults = every(rng, 1_000..7_000, &mut |rng| match rng.u8(..4) {
                    0 => crash(rng),
                    1 => comes_or_goes(rng),
                    _ => Fault::Grow { count: rng.u32(1..=3) },
                })
            }
            Self::Alone => {
                setup.instances = 1;
                plan.faults = every(rng, gaps, &mut |rng| match rng.u8(..6) {
                    0 => Fault::Crash { instance: 0, restart: Some(millis(rng, 0..4_000)) },
                    1 => Fault::Freeze { instance: 0, time: freeze_time(rng) },
                    2 => Fault::Loss { percent: rng.u8(5..90), time: millis(rng, 200..6_000) },
                    3 => Fault::Outage { refuses: rng.bool(), time: millis(rng, 100..12_000) },
                    4 => source(rng),
                    _ => ambush(rng),
                });
            }
            Self::Rolling => plan.faults = rolling(rng, &setup, length),
            Self::Clocks => {
                plan.faults = every(rng, gaps, &mut |rng| match rng.u8(..6) {
                    0 => crash(rng),
                    1 => comes_or_goes(rng),
                    2 => Fault::CutOff { instance: any(rng), time: millis(rng, 100..4_000) },
                    3 => Fault::WallClock {
                        instance: any(rng),
                        forward: rng.bool(),
                        by: seconds(rng, 1..100_000),
                    },
                    _ => store_clock(rng),
                })
            }
            Self::Thaws => {
                setup.slow_call = Some((rng.u16(100..600), millis(rng, 200..4_000)));
                setup.blocking_call = None;
                plan.faults = every(rng, 500..5_000, &mut |rng| match rng.u8(..8) {
                    0 => comes_or_goes(rng),
                    1 => Fault::Freeze { instance: any(rng), time: freeze_time(rng) },
                    _ => Fault::FreezeBusy { time: freeze_time(rng) },
                });
            }
            Self::CrashLoops => {
                plan.faults = every(rng, 500..8_000, &mut |rng| match rng.u8(..6) {
                    0 => crash(rng),
                    1 => Fault::Freeze { instance: any(rng), time: freeze_time(rng) },
                    _ => comes_or_goes(rng),
                });
                plan.faults.extend(crash_loop(rng, length));
                plan.faults.sort_by_key(|(at, _)| *at);
            }
            Self::Log => {
                setup.log = true;
                plan.faults = every(rng, 500..5_000, &mut |rng| match rng.u8(..10) {
                    0 => Fault::Crash { instance: any(rng), restart: Some(millis(rng, 0..3_000)) },
                    1 => Fault::Freeze { instance: any(rng), time: millis(rng, 50..7_000) },
                    2 => comes_or_goes(rng),
                    3 => Fault::Grow { count: 1 },
                    4 => Fault::HubKill { down: millis(rng, 0..2_000) },
                    5 => Fault::DiskError { calls: rng.u64(..30) },
                    6 => Fault::ReaderFails { partition: any(rng), kind: ReaderFault::Retriable },
                    7 => Fault::Theft { partition: any(rng), time: millis(rng, 50..3_000) },
                    _ => Fault::PowerCut { calls: rng.u64(..30), down: millis(rng, 0..2_000) },
                });
            }
        }
        plan.setup = setup;
        plan
    }
}

fn millis(rng: &mut Rng, range: Range<u64>) -> Duration {
    Duration::from_millis(rng.u64(range))
}

fn seconds(rng: &mut Rng, range: Range<u64>) -> Duration {
    Duration::from_secs(rng.u64(range))
}

/// One of those alive, whichever.
fn any(rng: &mut Rng) -> usize {
    rng.usize(..16)
}

/// Around the length of a lease, the ttl, and beyond; seldom short.
fn freeze_time(rng: &mut Rng) -> Duration {
    match rng.u8(..4) {
        0 => millis(rng, 50..2_000),
        1 => millis(rng, 2_000..5_500),
        _ => millis(rng, 4_500..14_000),
    }
}

fn freeze_blow(rng: &mut Rng) -> Blow {
    match rng.bool() {
        // Back before the ttl is over, but not for good.
        true => Blow::Freeze { time: millis(rng, 1_500..3_600), then_cut: Some(millis(rng, 2_000..6_000)) },
        false => Blow::Freeze { time: freeze_time(rng), then_cut: None },
    }
}

fn crash(rng: &mut Rng) -> Fault {
    Fault::Crash { instance: any(rng), restart: rng.bool().then(|| millis(rng, 0..4_000)) }
}

fn comes_or_goes(rng: &mut Rng) -> Fault {
    if rng.bool() { Fault::Join } else { Fault::Leave { instance: any(rng) } }
}

fn store_clock(rng: &mut Rng) -> Fault {
    // Back by little: until it has caught up, the dead look alive.
    match rng.u8(..4) {
        0 => Fault::StoreClock { forward: false, by: millis(rng, 100..3_000) },
        _ => Fault::StoreClock { forward: true, by: millis(rng, 1_000..100_000) },
    }
}

fn source(rng: &mut Rng) -> Fault {
    match rng.u8(..6) {
        0 => Fault::SourceDown { time: millis(rng, 100..5_000) },
        1 => Fault::SourceCutOff { instance: any(rng), time: millis(rng, 100..6_000) },
        2 | 3 => Fault::Theft { partition: any(rng), time: millis(rng, 50..4_000) },
        _ => {
            let kinds = [ReaderFault::Retriable, ReaderFault::OwnershipLost, ReaderFault::Fatal];
            Fault::ReaderFails {
                partition: any(rng),
                kind: rng.choice(kinds).unwrap_or(ReaderFault::Retriable),
            }
        }
    }
}

fn ambush(rng: &mut Rng) -> Fault {
    let at = rng.choice(Moment::ALL).unwrap_or(Moment::Beat);
    let blow = match rng.u8(..8) {
        0 => Blow::LoseRequest,
        1 | 2 => Blow::LoseReply,
        3 | 4 => Blow::Late(millis(rng, 300..4_000)),
        5 => Blow::Crash,
        _ => freeze_blow(rng),
    };
    let hits = if matches!(blow, Blow::Crash | Blow::Freeze { .. }) { 1 } else { rng.u8(1..4) };
    Fault::Ambush { at, blow, hits }
}

fn anything(rng: &mut Rng) -> Fault {
    match rng.u8(..20) {
        0 | 1 => crash(rng),
        2..=4 => Fault::Freeze { instance: any(rng), time: freeze_time(rng) },
        5..=7 => comes_or_goes(rng),
        8 => Fault::Loss { percent: rng.u8(5..60), time: millis(rng, 100..8_000) },
        9 => Fault::Errors { percent: rng.u8(5..60), time: millis(rng, 100..8_000) },
        10 => Fault::Latency { most: millis(rng, 100..6_000), time: millis(rng, 100..8_000) },
        11 => Fault::Outage { refuses: rng.bool(), time: millis(rng, 100..15_000) },
        12 => Fault::CutOff { instance: any(rng), time: millis(rng, 100..12_000) },
        13 | 14 => source(rng),
        15 => store_clock(rng),
        16 => Fault::Grow { count: 1 },
        _ => ambush(rng),
    }
}

/// Each of the instances there are is replaced, now by a newcomer before it leaves, now by one after it ended.
fn rolling(rng: &mut Rng, setup: &Setup, length: Duration) -> Vec<(Duration, Fault)> {
    let mut faults = Vec::new();
    let (mut at, pause) = (millis(rng, 2_000..8_000), millis(rng, 200..6_000));
    let order = rng.u8(..3);
    while at < length && faults.len() < 4 * setup.instances {
        // Names grow, so the oldest one comes first.
        match order {
            0 => faults.extend([(at, Fault::Join), (at + pause / 2, Fault::Leave { instance: 0 })]),
            1 => faults.extend([(at, Fault::Leave { instance: 0 }), (at + pause / 2, Fault::Join)]),
            _ => faults.push((at, Fault::Crash { instance: 0, restart: Some(pause / 3) })),
        }
        at += pause;
    }
    faults
}

/// From some time on, to the end: an instance that starts and ends, mostly before it could renew its record.
fn crash_loop(rng: &mut Rng, length: Duration) -> Vec<(Duration, Fault)> {
    let (mut at, period) = (millis(rng, 1_000..10_000), rng.u64(150..1_500));
    let mut faults = Vec::new();
    while at < length {
        faults.push((at, Fault::Flicker { lives: millis(rng, 10..period) }));
        at += Duration::from_millis(period);
    }
    faults
}

impl Setup {
    /// Draws a setup.
    pub fn draw(rng: &mut Rng) -> Self {
        Self {
            partitions: rng.u32(1..=10),
            instances: rng.usize(1..=4),
            atomic: rng.bool(),
            log: false,
            pace: rng.bool().then(|| rng.usize(1..=3)),
            call: millis(rng, 1..60),
            slow_call: (rng.u8(..4) == 0).then(|| (10, millis(rng, 200..9_000))),
            blocking_call: (rng.u8(..8) == 0).then(|| (5, millis(rng, 200..4_000))),
            failing_calls: if rng.u8(..4) == 0 { rng.u16(1..50) } else { 0 },
            drain_time: millis(rng, 500..5_000),
            cool_down: millis(rng, 500..4_000),
            latency: millis(rng, 1..25),
            event_gap: millis(rng, 60..500),
            extras: Extras::default(),
        }
    }
}
