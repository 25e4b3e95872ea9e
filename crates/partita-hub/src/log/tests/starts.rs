//! Starts after something was taken away: noticed by the record of what was acknowledged, refused, and gone on from only
//! when that was asked for, with numbers that were never used.

use super::*;
use crate::log::position::{LogPosition, resolve};
use crate::log::settings::Durability;
use crate::log::witness;

fn accepting(settings: Settings) -> Settings {
    Settings { accept_loss: true, ..settings }
}

fn hub_dir() -> PathBuf {
    dir().join("hubs").join(format!("{HUB:016x}"))
}

fn segment_files(disk: &SimDisk) -> Vec<PathBuf> {
    let ours = |path: &PathBuf| path.starts_with(hub_dir()) && path.extension().is_some_and(|e| e == "seg");
    disk.paths().into_iter().filter(ours).collect()
}

fn contents(disk: &SimDisk) -> BTreeMap<PathBuf, Vec<u8>> {
    disk.paths().into_iter().map(|path| (path.clone(), disk.content(&path).expect("there"))).collect()
}

/// A hub of two partitions with several segments, closed; where its partitions end.
fn filled(disk: &SimDisk, segments: usize) -> [u64; 2] {
    let mut bench = Bench::open(disk, small(2)).expect("opens");
    bench.put(1, "the only one of its partition");
    loop {
        let filled = bench.core.segments.read().expect("unpoisoned").len() >= segments;
        bench.put(0, &"f".repeat(2_000));
        if filled {
            break;
        }
    }
    close(bench)
}

/// Ends as a clean stop does.
fn close(mut bench: Bench) -> [u64; 2] {
    bench.writer.mark();
    bench.keeper.record(true);
    [bench.core.end_of(0), bench.core.end_of(1)]
}

#[track_caller]
fn refused(disk: &SimDisk, parts: &[&str]) {
    let before = contents(disk);
    let said = Bench::open(disk, small(2)).err().expect("refused").to_string();
    for part in parts {
        assert!(said.contains(part), "no {part:?} in {said}");
    }
    assert!(said.ends_with("acknowledged: restore its newest copy"), "{said}");
    let store = dir().join("STORE");
    let untouched =
        |all: BTreeMap<PathBuf, Vec<u8>>| all.into_iter().filter(|(p, _)| *p != store).collect::<Vec<_>>();
    assert!(untouched(before) == untouched(contents(disk)), "a start that is refused changes nothing");
}

/// Goes on without what is missing; the numbers of the first events after it.
fn goes_on(disk: &SimDisk) -> [u64; 2] {
    // All that is read fits into the tail cache, which must not lead over the gap.
    let settings = Settings { tail_bytes_max: 1 << 20, ..accepting(small(2)) };
    let mut bench = Bench::open(disk, settings).expect("told to go on");
    let lost = bench.recovery.lost.clone().expect("something is missing");
    assert!(!bench.recovery.is_clean());
    let placed = [bench.put(0, "next"), bench.put(1, "next")].map(|placed| placed.first_seq);
    let ends = [bench.core.end_of(0), bench.core.end_of(1)];
    for (partition, next) in (0..).zip(placed) {
        // What is missing before it is an error with its whole range, also if nothing before it is there.
        let (events, errors) = bench.read_all(partition);
        assert_eq!(events.last_key_value().map(|(seq, _)| *seq), Some(next));
        let skipped =
            lost.skipped.iter().find(|lost| lost.partition == partition).map(|lost| lost.numbers.clone());
        match errors[..] {
            [ReadError::Lost { from, next, .. }] => assert_eq!(skipped, Some(from..next)),
            [] => assert_eq!(skipped, None),
            ref more => panic!("{more:?}"),
        }
    }
    drop(bench);
    // Once and for all.
    let bench = Bench::open(disk, small(2)).expect("opens");
    assert!(bench.recovery.is_clean(), "{}", bench.recovery);
    assert_eq!([bench.core.end_of(0), bench.core.end_of(1)], ends);
    let check = bench.core.check(&|_, _| true).expect("not stopped");
    assert!(check.is_clean() && check.missing.is_empty(), "what was given up is not missed: {check:?}");
    placed
}

#[test]
fn a_newest_segment_that_is_missing_is_refused_and_its_numbers_are_not_used_again() {
    let disk = SimDisk::new(1);
    let ends = filled(&disk, 4);
    let last = segment_files(&disk).pop().expect("there");
    disk.take_away(&last);
    refused(&disk, &[&format!("to {} of partition 0, segment 0000000000000004,", ends[0] - 1)]);
    assert_eq!(goes_on(&disk), ends, "after a clean stop the numbers are known");
    assert!(!segment_files(&disk).contains(&last), "nor is the segment's");
}

#[test]
fn segments_that_are_all_missing_are_refused_and_numbers_go_on() {
    let disk = SimDisk::new(1);
    let ends = filled(&disk, 3);
    segment_files(&disk).iter().for_each(|path| disk.take_away(path));
    refused(&disk, &["events 0 to", "events of 1 more partition", "0000000000000001 to 0000000000000003"]);
    let mut bench = Bench::open(&disk, accepting(small(2))).expect("told to go on");
    assert_eq!(bench.put(1, "next").first_seq, ends[1]);
    assert_eq!(bench.core.oldest_seq(0), ends[0], "what is missing is gone");
}

/// What a reader from a position on is told to be lost before it gets its first event.
fn told_first(bench: &Bench, partition: u32, from: LogPosition) -> Option<std::ops::Range<u64>> {
    let seq = resolve(&bench.core, partition, from).expect("a place");
    let mut reader = LogReader::new(bench.core.clone(), partition, seq);
    match reader.read(1 << 10, &mut Vec::new()) {
        Ok(()) => None,
        Err(ReadError::Lost { from, next, .. }) => Some(from..next),
        Err(error) => panic!("{error}"),
    }
}

#[test]
fn a_loss_accepted_at_the_start_of_a_partition_is_told_to_readers_until_retention_goes_beyond_it() {
    // All segments gone; or only one was there, and its events are cut off.
    for (cut_off, killed) in [(false, false), (false, true), (true, false), (true, true)] {
        let disk = SimDisk::new(1);
        let (now, clock) = hand_clock();
        let settings = Settings { clock, ..small(2) };
        let mut bench = Bench::open(&disk, settings.clone()).expect("opens");
        let start = bench.core.segments.read().expect("unpoisoned")[0].end() as usize;
        let lost: Vec<_> = (0..5).map(|n| bench.put(0, &format!("lost {n}"))).collect();
        bench.keeper.record(!killed);
        drop(bench);
        let path = segment_files(&disk).pop().expect("there");
        match cut_off {
            true => disk.set_content(&path, disk.content(&path).expect("there")[..start].to_vec()),
            false => disk.take_away(&path),
        }
        now.fetch_add(1_000, Ordering::SeqCst);
        let mut bench = Bench::open(&disk, accepting(settings.clone())).expect("told to go on");
        now.fetch_add(1_000, Ordering::SeqCst);
        let next = bench.put(0, "next");
        assert!(next.first_seq >= 5 && (killed || next.first_seq == 5), "{next:?}");
        let starts = [
            (LogPosition::Earliest, 0),
            (LogPosition::Seq(0), 0),
            (LogPosition::Seq(3), 3),
            (LogPosition::Offset(lost[3].first_offset), 0),
            (LogPosition::Time(lost[3].time_ms), 0),
        ];
        for life in 0..3 {
            for (from, first) in starts {
                let what = format!("cut off: {cut_off}, killed: {killed}, life {life}, {from:?}");
                assert_eq!(told_first(&bench, 0, from), Some(first..next.first_seq), "{what}");
            }
            assert_eq!(told_first(&bench, 0, LogPosition::Seq(next.first_seq)), None);
            assert_eq!(told_first(&bench, 0, LogPosition::Time(next.time_ms)), None);
            assert_eq!(told_first(&bench, 1, LogPosition::Latest), None);
            bench.keeper.step();
            drop(bench);
            bench = Bench::open(&disk, settings.clone()).expect("opens");
        }
        assert!(bench.core.losses().iter().all(|range| range.accepted));
        assert_eq!(
            bench.core.losses()[0].certain,
            cut_off && !killed,
            "retention may have removed some before"
        );
        // What retention removes is not lost to damage.
        while bench.core.segments.read().expect("unpoisoned").len() < 3 {
            bench.put(0, &"x".repeat(3_000));
        }
        bench.core.retention.lock().expect("unpoisoned").bytes_max = Some(1);
        bench.keeper.step();
        assert!(bench.core.oldest_seq(0) > next.first_seq);
        assert_eq!(told_first(&bench, 0, LogPosition::Earliest), None);
        assert!(bench.core.losses().iter().all(|range| range.partition != 0));
    }
}

#[test]
fn a_tail_that_was_cut_off_skips_as_many_numbers_as_may_have_been_acknowledged() {
    for (killed, again) in [(false, false), (true, false), (false, true)] {
        let disk = SimDisk::new(1);
        let mut bench = Bench::open(&disk, small(2)).expect("opens");
        bench.put(0, "kept");
        let end = bench.core.segments.read().expect("unpoisoned")[0].end() as usize;
        for _ in 0..50 {
            bench.put(0, "cut off");
        }
        bench.writer.mark();
        bench.keeper.record(!killed);
        drop(bench);
        let path = segment_files(&disk).pop().expect("there");
        if again {
            // It was opened once more, and this could not be recorded: what the record says is not the last word.
            let record = witness::record_path(&hub_dir());
            let closed = disk.content(&record).expect("there");
            drop(Bench::open(&disk, small(2)).expect("opens"));
            disk.set_content(&record, closed);
            let mut bytes = disk.content(&path).expect("there");
            // Only events are damaged, so that the later boot is still seen.
            bytes.truncate(bytes.len() - 1);
            bytes[end..end + 20].fill(0xff);
            disk.set_content(&path, bytes);
        } else {
            disk.set_content(&path, disk.content(&path).expect("there")[..end].to_vec());
        }
        let mut bench = Bench::open(&disk, accepting(small(2))).expect("told to go on");
        let lost = bench.core.losses();
        let next = bench.put(0, "next").first_seq;
        match (killed, again) {
            (false, false) => {
                assert_eq!(next, 51, "after a clean stop the numbers are known");
                assert!(lost[0].certain, "{lost:?}");
                assert_eq!(lost[0].to_string(), "events 1 to 50 of partition 0");
            }
            (true, _) => {
                assert!(next > 51);
                assert!(lost[0].to_string().ends_with(" (at most)"), "{}", lost[0]);
            }
            (_, true) => assert!(next >= 51, "{next}"),
        }
    }
}

#[test]
fn a_data_directory_without_its_store_file_is_told_from_one_of_somebody_else() {
    let disk = SimDisk::new(1);
    filled(&disk, 1);
    disk.take_away(&dir().join("STORE"));
    let said = Bench::open(&disk, small(2)).err().expect("refused").to_string();
    assert_eq!(
        said,
        "the file STORE is missing from the data directory /data: restore it from a copy of this directory"
    );
    assert!(disk.content(&dir().join("STORE")).is_none(), "nothing is made");
    let other = SimDisk::new(2);
    other.create_dir(&dir().join("hubs")).expect("made");
    other.set_content(&dir().join("hubs/readme"), b"of somebody else".to_vec());
    let said = Bench::open(&other, small(2)).err().expect("refused").to_string();
    assert!(said.contains("is not a Partita data directory"), "{said}");
}

#[test]
fn an_acknowledged_tail_that_is_missing_is_refused() {
    for cut_file in [false, true] {
        let disk = SimDisk::new(1);
        let mut bench = Bench::open(&disk, small(2)).expect("opens");
        bench.put(0, &"kept".repeat(300));
        bench.put(1, "kept");
        let end = bench.core.segments.read().expect("unpoisoned")[0].end() as usize;
        bench.put(0, &"cut off".repeat(1_000));
        let ends = close(bench);
        let path = segment_files(&disk).pop().expect("there");
        let mut bytes = disk.content(&path).expect("there");
        bytes[end..].fill(0);
        if cut_file {
            bytes.truncate(end);
        }
        disk.set_content(&path, bytes);
        refused(&disk, &["lacks event 1 of partition 0, which was acknowledged"]);
        let placed = goes_on(&disk);
        assert_eq!(placed, ends, "after a clean stop the numbers are known");
    }
}

#[test]
fn an_older_copy_of_a_hub_is_refused_whenever_it_was_made() {
    let disk = SimDisk::new(1);
    let mut copies = Vec::new();
    let mut bench = Bench::open(&disk, small(2)).expect("opens");
    for i in 0..12 {
        let ours = |(path, _): &(PathBuf, Vec<u8>)| path.starts_with(hub_dir());
        copies.push(contents(&disk).into_iter().filter(ours).collect::<Vec<_>>());
        bench.put(i % 2, &"x".repeat(3_000));
    }
    bench.keeper.record(false);
    let ends = [bench.core.end_of(0), bench.core.end_of(1)];
    drop(bench);
    for copy in copies {
        let older = SimDisk::new(2);
        older.create_dir(&hub_dir()).expect("made");
        older.create_dir(&witness::witness_dir(&dir())).expect("made");
        let outside = contents(&disk).into_iter().filter(|(path, _)| !path.starts_with(hub_dir()));
        outside.chain(copy).for_each(|(path, bytes)| older.set_content(&path, bytes));
        refused(&older, &["at least event"]);
        let placed = goes_on(&older);
        // Killed, so more may have been acknowledged than was recorded.
        assert!(placed[0] > ends[0] && placed[1] > ends[1], "{placed:?}");
    }
}

#[test]
fn the_record_tells_nothing_that_a_power_cut_can_take() {
    // Synced now and then only: what the record vouches for was.
    for durability in [Durability::Never, Durability::Interval(std::time::Duration::ZERO)] {
        for seed in 0..200 {
            let disk = SimDisk::new(seed);
            let settings = Settings { durability, ..small(2) };
            let mut bench = Bench::open(&disk, settings.clone()).expect("opens");
            for i in 0..(seed % 20) {
                bench.put((i % 2) as u32, &"x".repeat(1_500));
                if i % 7 == 3 {
                    bench.writer.sync_if_due();
                }
                bench.keeper.record(i % 5 == 0);
            }
            drop(bench);
            disk.reboot();
            let opened = Bench::open(&disk, settings);
            assert!(opened.is_ok(), "seed {seed}: {:?}", opened.err());
        }
    }
}

#[test]
fn a_record_that_is_torn_leaves_the_one_before_it() {
    let disk = SimDisk::new(1);
    let mut bench = Bench::open(&disk, small(2)).expect("opens");
    for _ in 0..2 {
        bench.put(0, "more");
        bench.keeper.record(false);
    }
    drop(bench);
    let path = witness::record_path(&hub_dir());
    let whole = disk.content(&path).expect("there");
    let read = |bytes: Vec<u8>| {
        disk.set_content(&path, bytes);
        let store = Bench::open(&disk, small(2)).map(|bench| bench.core.store);
        store.map(|_| ())
    };
    for slot in 0..2 {
        let mut torn = whole.clone();
        torn[slot * whole.len() / 2 + 60] ^= 1;
        assert!(read(torn).is_ok(), "slot {slot}");
    }
    let mut both = whole.clone();
    both[60] ^= 1;
    both[whole.len() / 2 + 60] ^= 1;
    let said = read(both.clone()).expect_err("refused").to_string();
    assert!(said.contains(".ack is damaged"), "{said}");
    disk.set_content(&path, both);
    assert!(Bench::open(&disk, accepting(small(2))).is_ok());
}

#[test]
fn a_hub_that_is_idle_writes_no_records() {
    let disk = SimDisk::new(1);
    let mut bench = Bench::open(&disk, small(2)).expect("opens");
    bench.put(0, "one");
    bench.keeper.record(false);
    bench.writer.mark();
    let calls = disk.calls();
    bench.keeper.record(false);
    assert_eq!(disk.calls(), calls);
}

#[test]
fn a_file_with_an_impossible_segment_number_is_refused_by_name() {
    for stray in ["ffffffffffffffff", "7fffffffffffffff", "0000000000000000"] {
        let disk = SimDisk::new(1);
        filled(&disk, 1);
        disk.set_content(&hub_dir().join(format!("{stray}.seg")), vec![0; 8 << 10]);
        let said = Bench::open(&disk, small(2)).err().expect("refused").to_string();
        assert!(
            said.ends_with(&format!("{stray}.seg cannot be a segment of this hub: move it away")),
            "{said}"
        );
    }
}

#[test]
fn a_lost_header_makes_partitions_without_events_skip_no_numbers() {
    let disk = SimDisk::new(1);
    let mut bench = Bench::open(&disk, small(4)).expect("opens");
    bench.put(0, "one");
    drop(bench);
    let path = segment_files(&disk).pop().expect("there");
    let mut bytes = disk.content(&path).expect("there");
    bytes[20] ^= 1;
    disk.set_content(&path, bytes);
    let mut bench = Bench::open(&disk, small(4)).expect("opens");
    assert!(!bench.recovery.is_clean());
    assert_eq!((0..4).map(|p| bench.put(p, "next").first_seq).collect::<Vec<_>>(), [1, 0, 0, 0]);
}

#[test]
fn what_a_deleted_hub_left_is_removed_once_its_log_is_closed_and_not_before() {
    let disk = SimDisk::new(1);
    let store = Store::open_on(Arc::new(disk.clone()), dir()).expect("opens");
    let logs = [1, 2].map(|hub| store.open_hub(hub, small(1)).expect("opens").0);
    let left = |hub: u64| disk.paths().iter().filter(|path| path.starts_with(store.hub_dir(hub))).count();
    [1, 2].iter().for_each(|hub| store.delete_hub(*hub).expect("deleted"));
    logs[1].close();
    store.finish_delete(2);
    assert!(left(1) > 1, "another sweep takes nothing from under a log that is open");
    assert_eq!(left(2), 1, "the highest number stays taken");
    logs[0].close();
    store.finish_delete(1);
    assert_eq!((left(1), left(2)), (0, 1));
    assert_eq!(witness::files(&disk, &store.hub_dir(1)).expect("listed"), Vec::<PathBuf>::new());
}
