//! Power cuts at every call, on a disk that loses, tears and reorders what was not synced. After each: no acknowledged
//! event is missing, no event is there twice, nothing was made up, and numbers and offsets have no holes.

use std::collections::BTreeMap;

use fastrand::Rng;

use super::super::retention::Retention;
use super::super::settings::Durability;
use super::*;
use crate::log::{Fault, When};

const PARTITIONS: u32 = 3;

/// What producers know.
#[derive(Default)]
struct Oracle {
    acknowledged: BTreeMap<(u32, u64), (u64, String)>,
    /// Sent and never answered, or answered with an error.
    unknown: BTreeMap<String, u32>,
    sent: u64,
}

impl Oracle {
    fn group(&mut self, rng: &mut Rng) -> Vec<(u32, Vec<String>)> {
        let batches = rng.usize(1..4);
        (0..batches)
            .map(|_| {
                let partition = rng.u32(..PARTITIONS);
                let events = rng.usize(1..6);
                let event = |_| {
                    self.sent += 1;
                    let text = format!("e{}:{}", self.sent, "x".repeat(rng.usize(..900)));
                    self.unknown.insert(text.clone(), partition);
                    text
                };
                (partition, (0..events).map(event).collect())
            })
            .collect()
    }

    fn acknowledge(&mut self, group: &[(u32, Vec<String>)], placed: &[Placed]) {
        let mut group: Vec<_> = group.iter().collect();
        group.sort_by_key(|(partition, _)| *partition);
        for ((partition, events), placed) in group.into_iter().zip(placed) {
            assert_eq!((*partition, events.len()), (placed.partition, placed.count as usize));
            let mut offset = placed.first_offset;
            for (text, seq) in events.iter().zip(placed.first_seq..) {
                self.unknown.remove(text);
                let before = self.acknowledged.insert((*partition, seq), (offset, text.clone()));
                assert_eq!(before, None, "a number was given twice");
                offset += text.len() as u64;
            }
        }
    }

    /// Compares with what the log says, and takes over what it kept of the unknown.
    fn check(&mut self, bench: &Bench) {
        for partition in 0..PARTITIONS {
            let (events, errors) = bench.read_all(partition);
            assert!(errors.is_empty(), "{errors:?}");
            let first = bench.core.first_seq(partition);
            let (mut seq, mut end, mut time) = (first, None, i64::MIN);
            for (at, event) in &events {
                assert_eq!(*at, seq, "numbers have no holes");
                assert!(end.is_none_or(|end| end == event.offset), "offsets have no holes");
                assert!(event.time_ms >= time, "time does not fall");
                match self.acknowledged.get(&(partition, seq)) {
                    Some(known) => assert_eq!(*known, (event.offset, event.text.clone())),
                    None => {
                        let sent = self.unknown.remove(&event.text);
                        assert_eq!(sent, Some(partition), "{} was made up or is there twice", event.text);
                        self.acknowledged.insert((partition, seq), (event.offset, event.text.clone()));
                    }
                }
                (seq, end, time) = (seq + 1, Some(event.offset + event.text.len() as u64), event.time_ms);
            }
            let lost = self.acknowledged.range((partition, seq)..(partition, u64::MAX)).next();
            assert_eq!(lost, None, "acknowledged, and gone");
        }
    }
}

fn power_cuts(seed: u64, direct: bool, settings: &Settings) -> u64 {
    let mut rng = Rng::with_seed(seed);
    let disk = SimDisk::new(seed ^ 0xd15c);
    disk.set_direct(direct);
    let mut oracle = Oracle::default();
    let mut crashes = 0;
    for _ in 0..4 {
        if rng.u8(..4) > 0 {
            disk.plan(When::Call(disk.calls() + rng.u64(..80)), Fault::PowerOff);
        }
        let opened = Bench::open(&disk, settings.clone());
        assert!(opened.is_ok() || disk.is_off(), "refused after a crash: {:?}", opened.err());
        if let Ok(mut bench) = opened {
            assert!(bench.recovery.is_clean(), "{}", bench.recovery);
            oracle.check_unless_off(&disk, &bench);
            for _ in 0..rng.usize(5..40) {
                if rng.u8(..3) > 0 {
                    bench.keeper.step();
                }
                if rng.u8(..10) == 0 {
                    bench.writer.mark();
                }
                if rng.u8(..3) == 0 {
                    bench.keeper.record(rng.u8(..4) == 0);
                }
                let group = oracle.group(&mut rng);
                if let Ok(placed) = bench.commit(&group) {
                    oracle.acknowledge(&group, &placed);
                }
                if disk.is_off() {
                    break;
                }
            }
            oracle.check_unless_off(&disk, &bench);
        }
        crashes += u64::from(disk.is_off());
        if rng.u8(..4) == 0 {
            disk.kill();
        } else {
            disk.reboot();
        }
    }
    let mut bench = Bench::open(&disk, settings.clone()).expect("opens after every crash");
    assert!(bench.recovery.is_clean(), "{}", bench.recovery);
    oracle.check(&bench);
    // What no crash does, somebody else may: then the start is refused.
    bench.keeper.record(rng.bool());
    let newest = bench.core.segments.read().expect("unpoisoned").back().expect("active").path.clone();
    drop(bench);
    disk.take_away(&newest);
    let refused = Bench::open(&disk, settings.clone()).err();
    assert!(matches!(refused, Some(OpenError::Lost { .. })), "{refused:?}");
    crashes
}

impl Oracle {
    fn check_unless_off(&mut self, disk: &SimDisk, bench: &Bench) {
        if !disk.is_off() {
            self.check(bench);
        }
    }
}

fn run(runs: u64, base: u64, direct: bool, settings: &Settings) -> u64 {
    let mut crashes = 0;
    for seed in base..base + runs {
        let run =
            std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| power_cuts(seed, direct, settings)));
        crashes += run.unwrap_or_else(|_| panic!("seed {seed} failed"));
    }
    crashes
}

#[test]
fn nothing_acknowledged_is_lost_with_direct_writes() {
    let crashes = run(1_500, 0, true, &small(PARTITIONS));
    assert!(crashes > 1_500, "{crashes}");
    counted(&format!(
        "{crashes} power cuts in 1,500 seeded runs with direct writes, nothing acknowledged was lost"
    ));
}

#[test]
fn nothing_acknowledged_is_lost_with_buffered_writes() {
    let crashes = run(1_000, 100_000, false, &small(PARTITIONS));
    assert!(crashes > 1_000, "{crashes}");
    counted(&format!(
        "{crashes} power cuts in 1,000 seeded runs with buffered writes, nothing acknowledged was lost"
    ));
}

#[test]
fn nothing_acknowledged_is_lost_while_segments_are_recycled() {
    let retention = Retention { bytes_max: Some(100 << 10), ..Retention::default() };
    let crashes = run(700, 200_000, true, &Settings { retention, ..small(PARTITIONS) });
    assert!(crashes > 700, "{crashes}");
    counted(&format!(
        "{crashes} power cuts in 700 seeded runs while segments are recycled, nothing acknowledged was lost"
    ));
}

#[test]
fn relaxed_logs_lose_only_their_end_and_what_was_lost_does_not_come_back() {
    // Not acknowledged durably, so events may go; what is left must still be a prefix in order, in every life.
    let settings = Settings { durability: Durability::Never, ..small(PARTITIONS) };
    for seed in 0..500 {
        let mut rng = Rng::with_seed(seed);
        let disk = SimDisk::new(seed);
        let mut oracle = Oracle::default();
        for _ in 0..4 {
            let mut bench = Bench::open(&disk, settings.clone()).expect("opens");
            assert!(bench.recovery.is_clean(), "seed {seed}: {}", bench.recovery);
            for partition in 0..PARTITIONS {
                let (events, errors) = bench.read_all(partition);
                assert!(errors.is_empty(), "seed {seed}: {errors:?}");
                for ((seq, event), expected) in events.iter().zip(0..) {
                    assert_eq!(*seq, expected, "seed {seed}");
                    let known = &oracle.acknowledged[&(partition, *seq)];
                    assert_eq!(*known, (event.offset, event.text.clone()), "seed {seed}");
                }
                let kept = events.len() as u64;
                oracle.acknowledged.retain(|(p, seq), _| *p != partition || *seq < kept);
            }
            for _ in 0..rng.usize(1..12) {
                bench.keeper.step();
                let group = oracle.group(&mut rng);
                let placed = bench.commit(&group).expect("committed");
                oracle.acknowledge(&group, &placed);
                if rng.u8(..8) == 0 {
                    bench.writer.mark();
                }
                if rng.u8(..3) == 0 {
                    bench.keeper.record(false);
                }
            }
            disk.reboot();
        }
    }
}

/// Compares what is there with what was sent; it has at least `promised` events of each partition.
fn check_prefix(oracle: &mut Oracle, bench: &Bench, promised: [u64; PARTITIONS as usize], what: &str) {
    assert!(bench.recovery.is_clean(), "{what}: {}", bench.recovery);
    for (partition, promised) in (0..).zip(promised) {
        let (events, errors) = bench.read_all(partition);
        assert!(errors.is_empty(), "{what}: {errors:?}");
        let kept = events.len() as u64;
        assert!(kept >= promised, "{what}: {kept} of {promised} events of partition {partition}");
        for ((seq, event), expected) in events.into_iter().zip(0..) {
            assert_eq!(seq, expected, "{what}");
            let is = (event.offset, event.text);
            match oracle.acknowledged.get(&(partition, seq)) {
                Some(known) => assert_eq!(*known, is, "{what}"),
                None => {
                    assert_eq!(oracle.unknown.remove(&is.1), Some(partition), "{what}: {} was made up", is.1);
                    oracle.acknowledged.insert((partition, seq), is);
                }
            }
        }
        oracle.acknowledged.retain(|(p, seq), _| *p != partition || *seq < kept);
    }
}

#[test]
fn what_a_mark_or_a_durable_commit_follows_is_kept_whatever_the_log_was_told_before() {
    let mut crashes = 0;
    for seed in 0..600 {
        let mut rng = Rng::with_seed(seed);
        let disk = SimDisk::new(seed);
        disk.set_direct(rng.bool());
        let mut oracle = Oracle::default();
        let mut promised = [0; PARTITIONS as usize];
        for life in 0..6 {
            let durability = if rng.u8(..3) > 0 { Durability::Never } else { Durability::Always };
            if life < 5 && rng.bool() {
                disk.plan(When::Call(disk.calls() + rng.u64(..60)), Fault::PowerOff);
            }
            let opened = Bench::open(&disk, Settings { durability, ..small(PARTITIONS) });
            assert!(
                opened.is_ok() || disk.is_off(),
                "seed {seed}: refused after a crash: {:?}",
                opened.err()
            );
            let Ok(mut bench) = opened else {
                crashes += 1;
                disk.reboot();
                continue;
            };
            if !disk.is_off() {
                check_prefix(&mut oracle, &bench, promised, &format!("seed {seed} life {life}"));
                // Opening makes durable what it found.
                promised = std::array::from_fn(|p| bench.core.end_of(p as u32));
            }
            for _ in 0..rng.usize(1..25) {
                bench.keeper.step();
                let group = oracle.group(&mut rng);
                let placed = bench.commit(&group);
                let marked = rng.u8(..6) == 0;
                if let Ok(placed) = &placed {
                    oracle.acknowledge(&group, placed);
                }
                if marked {
                    bench.writer.mark();
                }
                if rng.u8(..3) == 0 {
                    bench.keeper.record(false);
                }
                if disk.is_off() {
                    break;
                }
                if marked || durability == Durability::Always {
                    promised = std::array::from_fn(|p| bench.core.end_of(p as u32));
                }
            }
            crashes += u64::from(disk.is_off());
            if rng.u8(..4) == 0 {
                disk.kill();
            } else {
                disk.reboot();
            }
        }
    }
    counted(&format!("{crashes} power cuts in 600 seeded runs that change between relaxed and durable"));
}
