//! What opening reports, where readers can start, and what retention keeps.

use std::time::Duration;

use super::super::position::{LogPosition, resolve};
use super::super::retention::Retention;
use super::super::settings::Durability;
use super::*;
use crate::log::{Fault, When};

fn active_end(bench: &Bench) -> u64 {
    bench.core.segments.read().expect("unpoisoned").back().expect("active").end()
}

fn segment_file(disk: &SimDisk) -> PathBuf {
    disk.paths().into_iter().rfind(|path| path.extension().is_some_and(|e| e == "seg")).expect("a segment")
}

#[test]
fn a_clean_end_reports_nothing() {
    let disk = SimDisk::new(1);
    let mut bench = Bench::open(&disk, small(1)).expect("opens");
    bench.put(0, "one");
    bench.writer.mark();
    drop(bench);
    let bench = Bench::open(&disk, small(1)).expect("opens");
    assert!(bench.recovery.is_clean());
    assert_eq!((bench.recovery.torn_bytes, bench.recovery.segments), (0, 1));
    assert_eq!(bench.texts(0), ["one"]);
}

#[test]
fn a_torn_tail_is_cut_and_its_length_reported() {
    let disk = SimDisk::new(1);
    let mut bench = Bench::open(&disk, small(1)).expect("opens");
    bench.put(0, "one");
    let end = active_end(&bench) as usize;
    bench.put(0, "two, never finished");
    let torn = active_end(&bench) as usize - end;
    drop(bench);
    let path = segment_file(&disk);
    let mut bytes = disk.content(&path).expect("there");
    bytes[end + torn - 1] ^= 1;
    disk.set_content(&path, bytes);
    let mut bench = Bench::open(&disk, small(1)).expect("opens");
    assert_eq!(bench.recovery.torn_bytes, torn as u64);
    assert!(bench.recovery.is_clean());
    assert!(bench.recovery.to_string().contains("unfinished commit"), "{}", bench.recovery);
    assert_eq!(bench.put(0, "two").first_seq, 1);
    assert_eq!(bench.texts(0), ["one", "two"]);
}

#[test]
fn the_same_damage_before_a_mark_is_damage() {
    let disk = SimDisk::new(1);
    let mut bench = Bench::open(&disk, small(1)).expect("opens");
    bench.put(0, "one");
    let end = active_end(&bench) as usize;
    bench.put(0, "two");
    let last = active_end(&bench) as usize;
    bench.writer.mark();
    drop(bench);
    let path = segment_file(&disk);
    let mut bytes = disk.content(&path).expect("there");
    bytes[last - 1] ^= 1;
    disk.set_content(&path, bytes);
    let mut bench = Bench::open(&disk, small(1)).expect("opens");
    assert_eq!(bench.recovery.damage.len(), 1);
    assert!(bench.recovery.damage[0].bytes.start >= end as u64);
    let (events, errors) = bench.read_all(0);
    assert_eq!(events.len(), 1);
    assert!(matches!(errors[..], [ReadError::Corrupt { from: 1, resume: 2, .. }]), "{errors:?}");
    assert_eq!(bench.put(0, "three").first_seq, 2);
}

#[test]
fn what_follows_the_last_mark_of_a_relaxed_log_is_a_torn_tail() {
    let settings = Settings { durability: Durability::Never, ..small(1) };
    let disk = SimDisk::new(1);
    let mut bench = Bench::open(&disk, settings.clone()).expect("opens");
    bench.put(0, "one");
    let end = active_end(&bench) as usize;
    bench.put(0, "two");
    bench.writer.mark();
    let marked = active_end(&bench) as usize;
    bench.put(0, "three");
    bench.put(0, "four");
    drop(bench);
    let path = segment_file(&disk);
    let mut bytes = disk.content(&path).expect("there");
    bytes[marked + 8] ^= 1;
    disk.set_content(&path, bytes.clone());
    let bench = Bench::open(&disk, settings.clone()).expect("opens");
    assert!(bench.recovery.is_clean() && bench.recovery.torn_bytes > 0, "{}", bench.recovery);
    assert_eq!(bench.texts(0), ["one", "two"]);
    drop(bench);
    // Before the mark it is damage, and neither hides the other.
    bytes[end + 8] ^= 1;
    disk.set_content(&path, bytes);
    let bench = Bench::open(&disk, settings).expect("opens");
    assert_eq!(bench.recovery.damage.len(), 1, "{}", bench.recovery);
    assert!(bench.recovery.torn_bytes > 0, "{}", bench.recovery);
    assert!(bench.core.end_of(0) >= 2);
}

#[test]
fn retention_that_fails_leaves_no_hole_between_segments() {
    for fault in [Fault::Eio, Fault::Enospc] {
        for call in 0..6 {
            for cut in 0..12 {
                let disk = SimDisk::new(cut);
                let mut bench = Bench::open(&disk, small(1)).expect("opens");
                while bench.core.segments.read().expect("unpoisoned").len() < 5 {
                    bench.put(0, &"r".repeat(3_000));
                }
                bench.keeper.step();
                bench.core.retention.lock().expect("unpoisoned").bytes_max = Some(1);
                let what = format!("{fault:?} at {call}, power cut at {cut}");
                disk.plan(When::Call(disk.calls() + call), fault);
                assert!(!bench.keeper.step(), "{what}: failed");
                disk.clear_faults();
                disk.plan(When::Call(disk.calls() + cut), Fault::PowerOff);
                bench.keeper.step();
                drop(bench);
                disk.reboot();
                let bench = Bench::open(&disk, small(1)).expect("opens");
                assert!(bench.recovery.is_clean(), "{what}: {}", bench.recovery);
            }
        }
    }
}

#[test]
fn a_hub_whose_newest_segment_is_empty_opens_and_goes_on() {
    for segments in [1, 3] {
        let disk = SimDisk::new(1);
        let mut bench = Bench::open(&disk, small(1)).expect("opens");
        bench.put(0, "first");
        while bench.core.segments.read().expect("unpoisoned").len() < segments {
            bench.put(0, &"f".repeat(3_000));
        }
        let end = bench.core.end_of(0);
        drop(bench);
        disk.set_content(&segment_file(&disk), Vec::new());
        let mut bench = Bench::open(&disk, small(1)).expect("opens");
        assert!(!bench.recovery.is_clean());
        let placed = bench.put(0, "next");
        assert!(placed.first_seq >= end, "{segments} segments: {} again", placed.first_seq);
        drop(bench);
        let bench = Bench::open(&disk, small(1)).expect("opens");
        assert_eq!(bench.read_all(0).0.last_key_value().map(|(seq, _)| *seq), Some(placed.first_seq));
    }
}

#[test]
fn a_left_over_that_fits_to_the_byte_is_not_taken_for_the_next_group() {
    // Three commits that were never synced, of which the power cut left only the last.
    let settings = Settings { durability: Durability::Never, ..small(1) };
    let disk = SimDisk::new(1);
    let mut bench = Bench::open(&disk, settings.clone()).expect("opens");
    let start = active_end(&bench) as usize;
    // Up to a block's end: a later write pads its last block with zeros, so only what starts a block can be left over.
    let heads = 2 * (48 + 48 + 4);
    let filled = start.next_multiple_of(4_096) - start - heads;
    bench.put(0, "a");
    bench.put(0, &"b".repeat(filled - 1));
    let lost = active_end(&bench) as usize;
    assert_eq!(lost % 4_096, 0);
    bench.put(0, "left over");
    drop(bench);
    let path = segment_file(&disk);
    let mut bytes = disk.content(&path).expect("there");
    bytes[start..lost].fill(0);
    disk.set_content(&path, bytes);

    // A mark and two events fill the hole exactly, so numbers and places of the left-over would fit.
    let mut bench = Bench::open(&disk, settings.clone()).expect("opens");
    assert!(bench.recovery.is_clean(), "{}", bench.recovery);
    assert_eq!(bench.texts(0), Vec::<String>::new());
    bench.commit(&[(0, vec!["c".repeat(48), "d".repeat(filled)])]).expect("committed");
    assert_eq!(active_end(&bench) as usize, lost);
    drop(bench);
    assert_eq!(Bench::open(&disk, settings).expect("opens").texts(0).len(), 2);
}

#[test]
fn counters_outlive_the_events() {
    let (now, clock) = hand_clock();
    let retention = Retention { age: Duration::from_millis(100), bytes_max: None };
    let settings = Settings { clock, retention, ..small(2) };
    let disk = SimDisk::new(1);
    let mut bench = Bench::open(&disk, settings.clone()).expect("opens");
    let only = bench.put(1, "the only one of its partition");
    while bench.core.segments.read().expect("unpoisoned").len() < 4 {
        bench.put(0, &"a".repeat(5_000));
    }
    now.fetch_add(1_000, Ordering::SeqCst);
    bench.keeper.step();
    assert_eq!(bench.core.segments.read().expect("unpoisoned").len(), 1);
    drop(bench);
    let mut bench = Bench::open(&disk, settings).expect("opens");
    assert_eq!(bench.core.first_seq(1), 1);
    assert_eq!(bench.texts(1), Vec::<String>::new());
    let next = bench.put(1, "next");
    assert_eq!((next.first_seq, next.first_offset), (1, only.first_offset + 29));
    let mut reader = LogReader::new(bench.core.clone(), 1, 0);
    let error = reader.read(1, &mut Vec::new()).expect_err("gone");
    assert_eq!(error.to_string(), "event 0 of partition 1 is gone: the oldest one left is 1");
}

#[test]
fn expired_events_in_an_unsealed_segment_are_still_delivered() {
    let (now, clock) = hand_clock();
    let retention = Retention { age: Duration::from_millis(1), bytes_max: Some(1) };
    let disk = SimDisk::new(1);
    let mut bench = Bench::open(&disk, Settings { clock, retention, ..small(1) }).expect("opens");
    bench.put(0, "old, but its segment is not full");
    now.fetch_add(1_000_000, Ordering::SeqCst);
    bench.keeper.step();
    assert_eq!(bench.texts(0), ["old, but its segment is not full"]);
}

#[test]
fn positions_by_number_offset_and_time() {
    let (now, clock) = hand_clock();
    let disk = SimDisk::new(1);
    let mut bench = Bench::open(&disk, Settings { clock, ..small(2) }).expect("opens");
    let mut placed = Vec::new();
    for i in 0..200 {
        now.store(1_000 + i, Ordering::SeqCst);
        bench.keeper.step();
        bench.commit(&[(1, vec!["other".repeat(i as usize) + "x"])]).expect("committed");
        placed.push(bench.commit(&[(0, vec![format!("{i:0200}")])]).expect("committed")[0]);
    }
    assert!(bench.core.segments.read().expect("unpoisoned").len() > 3);
    let at = |position| resolve(&bench.core, 0, position);
    for (i, place) in placed.iter().enumerate() {
        let seq = i as u64;
        assert_eq!(at(LogPosition::Seq(seq)).expect("there"), seq);
        assert_eq!(at(LogPosition::Offset(place.first_offset)).expect("there"), seq);
        assert_eq!(at(LogPosition::Offset(place.first_offset + 1)).expect("there"), seq + 1);
        assert_eq!(at(LogPosition::Time(place.time_ms)).expect("there"), seq);
    }
    assert_eq!(at(LogPosition::Earliest).expect("there"), 0);
    assert_eq!(at(LogPosition::Latest).expect("there"), 200);
    assert_eq!(at(LogPosition::Time(0)).expect("there"), 0);
    assert_eq!(at(LogPosition::Time(5_000)).expect("there"), 200);
    assert!(matches!(at(LogPosition::Seq(201)), Err(ReadError::Ahead { next: 200, .. })));
    assert!(matches!(at(LogPosition::Offset(999_999)), Err(ReadError::Ahead { .. })));
    assert!(matches!(resolve(&bench.core, 2, LogPosition::Latest), Err(ReadError::NoPartition { .. })));
}

#[test]
fn time_never_falls_although_the_clock_does() {
    let (now, clock) = hand_clock();
    let disk = SimDisk::new(1);
    let settings = Settings { clock, ..small(1) };
    let mut bench = Bench::open(&disk, settings.clone()).expect("opens");
    assert_eq!(bench.put(0, "a").time_ms, 1_000);
    now.store(10, Ordering::SeqCst);
    assert_eq!(bench.put(0, "b").time_ms, 1_000);
    drop(bench);
    assert_eq!(Bench::open(&disk, settings).expect("opens").put(0, "c").time_ms, 1_000);
}

#[test]
fn partitions_can_be_added_and_never_removed() {
    let disk = SimDisk::new(1);
    Bench::open(&disk, small(2)).expect("opens").put(1, "one");
    let mut bench = Bench::open(&disk, small(4)).expect("opens");
    bench.put(3, "two");
    drop(bench);
    let bench = Bench::open(&disk, small(4)).expect("opens");
    assert_eq!((bench.texts(1), bench.texts(3)), (vec!["one".to_owned()], vec!["two".to_owned()]));
    drop(bench);
    let error = Bench::open(&disk, small(1)).err().expect("refused").to_string();
    assert_eq!(error, "the log of hub 7 has 2 partitions, 1 were asked for: partitions are never removed");
}

#[test]
fn partitions_added_later_work_at_once_and_after_a_restart() {
    let disk = SimDisk::new(1);
    let mut bench = Bench::open(&disk, small(2)).expect("opens");
    bench.core.ends.write().expect("unpoisoned").resize(200, Default::default());
    bench.core.partitions.store(200, Ordering::SeqCst);
    bench.put(199, "added");
    assert_eq!(bench.texts(199), ["added"]);
    drop(bench);
    let error = Bench::open(&disk, small(2)).err().expect("refused").to_string();
    assert!(error.starts_with("the log of hub 7 has 200 partitions"), "{error}");
    let mut bench = Bench::open(&disk, small(200)).expect("opens");
    for _ in 0..20 {
        bench.put(199, &"more".repeat(1_000));
    }
    drop(bench);
    let bench = Bench::open(&disk, small(200)).expect("opens");
    assert_eq!(bench.texts(199).len(), 21);
}

#[test]
fn places_that_are_not_ours_are_refused_in_one_sentence_and_left_as_they_were() {
    let message = |disk: &SimDisk| {
        let before = disk.paths();
        let error = Bench::open(disk, small(1)).err().expect("refused").to_string();
        assert_eq!(disk.paths(), before);
        error
    };
    let disk = SimDisk::new(1);
    let bench = Bench::open(&disk, small(1)).expect("opens");
    assert_eq!(
        message(&disk),
        "/data is in use by another process: stop that one or choose another directory"
    );
    drop(bench);

    let foreign = SimDisk::new(1);
    foreign.create_dir(&dir()).expect("made");
    foreign.set_content(&dir().join("photo.jpg"), vec![1, 2, 3]);
    assert_eq!(message(&foreign), "/data is not a Partita data directory: choose an empty or new one");

    let store = dir().join("STORE");
    let good = disk.content(&store).expect("there");
    let mut newer = good.clone();
    newer[8] = 9;
    let crc = crc32fast::hash(&newer[..28]);
    newer[28..].copy_from_slice(&crc.to_le_bytes());
    disk.set_content(&store, newer);
    assert_eq!(message(&disk), "/data has data format 9, this program knows up to 1: use a newer program");

    let mut flipped = good;
    flipped[20] ^= 1;
    disk.set_content(&store, flipped);
    assert!(message(&disk).starts_with("/data/STORE is damaged"));

    let full = SimDisk::new(1);
    full.plan(When::EveryAllocation, Fault::Enospc);
    assert!(message_of_full(&full).starts_with("no space left for"));
}

fn message_of_full(disk: &SimDisk) -> String {
    Bench::open(disk, small(1)).err().expect("refused").to_string()
}

#[test]
fn segments_of_another_store_are_refused() {
    let (ours, theirs) = (SimDisk::new(1), SimDisk::new(2));
    for disk in [&ours, &theirs] {
        Bench::open(disk, small(1)).expect("opens").put(0, "mine");
    }
    let path = segment_file(&ours);
    ours.set_content(&path, theirs.content(&path).expect("there"));
    let error = Bench::open(&ours, small(1)).err().expect("refused").to_string();
    assert!(error.contains("is not a Partita data directory"), "{error}");
}

#[test]
fn what_a_killed_process_left_in_the_page_cache_is_synced_before_it_is_served() {
    for seed in 0..20 {
        let disk = SimDisk::new(seed);
        disk.set_direct(false);
        let mut bench = Bench::open(&disk, small(1)).expect("opens");
        bench.put(0, "kept");
        // Killed after the write and before its sync; the machine runs on.
        disk.plan(When::Call(disk.calls() + 1), Fault::PowerOff);
        bench.commit(&[(0, vec!["seen ".repeat(1_000)])]).expect_err("killed");
        drop(bench);
        disk.kill();
        // Direct writes from now on do not take along what lies in the page cache.
        disk.set_direct(true);
        let bench = Bench::open(&disk, small(1)).expect("opens");
        let served = bench.texts(0);
        assert_eq!(served.len(), 2);
        drop(bench);
        disk.reboot();
        let bench = Bench::open(&disk, small(1)).expect("opens");
        assert!(bench.recovery.is_clean(), "seed {seed}: {}", bench.recovery);
        assert_eq!(bench.texts(0), served, "seed {seed}");
    }
}

#[test]
fn a_segments_name_that_a_killed_process_left_is_durable_before_events_go_into_it() {
    for cut in 0..12 {
        for seed in 0..8 {
            let disk = SimDisk::new(seed);
            let mut bench = Bench::open(&disk, small(1)).expect("opens");
            bench.keeper.step();
            // The next commit begins a segment.
            let capacity = bench.core.segments.read().expect("unpoisoned")[0].capacity;
            while active_end(&bench) + 5_000 < capacity {
                bench.commit(&[(0, vec!["f".repeat(1_000)])]).expect("committed");
            }
            disk.plan(When::Call(disk.calls() + cut), Fault::PowerOff);
            let _ = bench.commit(&[(0, vec!["g".repeat(5_000)])]);
            drop(bench);
            disk.kill();
            // No housekeeping: nothing else may sync the directory by chance.
            let mut bench = Bench::open(&disk, small(1)).expect("opens");
            bench.commit(&[(0, vec!["acknowledged".into()])]).expect("committed");
            let served = bench.texts(0);
            drop(bench);
            disk.reboot();
            let bench = Bench::open(&disk, small(1)).expect("opens");
            assert!(bench.recovery.is_clean(), "cut {cut} seed {seed}: {}", bench.recovery);
            assert_eq!(bench.texts(0), served, "cut {cut} seed {seed}");
        }
    }
}
