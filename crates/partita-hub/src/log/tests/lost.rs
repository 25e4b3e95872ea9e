//! Damage and every kind of reader: nothing is passed over unasked, and every reader is told the same exact range.

use super::super::book::VERIFIED_AT_START_MAX;
use super::super::position::{LogPosition, resolve};
use super::damage::{contents, flip, restore, segments};
use super::*;

/// What a reader that starts at a position got, in order, and the error that ended it.
fn follow(bench: &Bench, partition: u32, from: LogPosition) -> (Vec<u64>, Option<ReadError>) {
    let seq = match resolve(&bench.core, partition, from) {
        Ok(seq) => seq,
        Err(error) => return (Vec::new(), Some(error)),
    };
    let mut reader = LogReader::new(bench.core.clone(), partition, seq);
    let (mut seqs, mut batches) = (Vec::new(), Vec::new());
    while reader.next_seq() < bench.core.end_of(partition) {
        batches.clear();
        if let Err(error) = reader.read(2 << 10, &mut batches) {
            return (seqs, Some(error));
        }
        seqs.extend(batches.iter().flat_map(|batch| batch.events()).map(|event| event.seq));
    }
    (seqs, None)
}

/// A log of several segments whose events have times of their own.
fn timed(disk: &SimDisk, groups: usize) -> Vec<BTreeMap<u64, Event>> {
    let (now, clock) = hand_clock();
    let mut bench = Bench::open(disk, Settings { clock, ..small(2) }).expect("opens");
    for group in 0..groups {
        now.fetch_add(10, Ordering::SeqCst);
        bench.keeper.step();
        let text = |k: usize| format!("event {group}.{k} {}", "y".repeat(group * 37 % 300));
        bench.commit(&[(0, vec![text(0), text(1)]), (1, vec![text(2)])]).expect("committed");
    }
    bench.keeper.step();
    bench.writer.mark();
    (0..2).map(|p| bench.read_all(p).0).collect()
}

#[test]
fn a_reader_by_offset_or_time_passes_over_no_damaged_event_that_it_asked_for() {
    let disk = SimDisk::new(1);
    let wanted = timed(&disk, 80);
    let content = contents(&disk);
    let path = segments(&content)[0].clone();
    let mut rng = fastrand::Rng::with_seed(3);
    for _ in 0..12 {
        let disk = flip(&content, &path, rng.usize(9_000 * 8..13_000 * 8));
        let bench = Bench::open(&disk, small(2)).expect("opens");
        for (partition, events) in (0..2).zip(&wanted) {
            for (seq, event) in events.iter().step_by(3) {
                for from in [
                    LogPosition::Seq(*seq),
                    LogPosition::Offset(event.offset),
                    LogPosition::Time(event.time_ms),
                ] {
                    let (seqs, error) = follow(&bench, partition, from);
                    let from_seq = match error {
                        Some(ReadError::Corrupt { from, .. }) => seqs.first().copied().unwrap_or(from),
                        Some(error) => panic!("{error}"),
                        None => *seqs.first().expect("events"),
                    };
                    assert!(from_seq <= *seq, "{from:?} of event {seq} started at {from_seq}");
                    assert!(seqs.is_sorted() && seqs.windows(2).all(|pair| pair[0] + 1 == pair[1]));
                }
            }
        }
    }
}

/// A reader's whole way through a partition: what it got, and each range that it was told to be damaged.
fn read_through(bench: &Bench, partition: u32) -> (Vec<u64>, Vec<(u64, u64)>) {
    let (events, errors) = bench.read_all(partition);
    let ranges = errors.iter().map(|error| match error {
        ReadError::Corrupt { from, resume, .. } => (*from, *resume),
        error => panic!("{error}"),
    });
    (events.into_keys().collect(), ranges.collect())
}

/// The holes in numbers that begin at 0 and end before `end`.
fn holes(seqs: &[u64], end: u64) -> Vec<(u64, u64)> {
    let (mut out, mut at) = (Vec::new(), 0);
    for seq in seqs.iter().copied().chain([end]) {
        if seq > at {
            out.push((at, seq));
        }
        at = seq + 1;
    }
    out
}

fn known(bench: &Bench) -> Vec<(u32, u64, u64, bool)> {
    bench.core.losses().iter().map(|r| (r.partition, r.first, r.next, r.accepted)).collect()
}

/// Whatever is damaged: readers get exactly what is whole, are told exactly the rest, all of them and a check say the same,
/// also in the next life, and once the loss is accepted exactly the rest is read.
fn one_behaviour(disk: &SimDisk, wanted: &[BTreeMap<u64, Event>], what: &str) -> usize {
    let mut lost = 0;
    let bench = Bench::open(disk, small(2)).expect("opens");
    let mut told = Vec::new();
    for (partition, events) in (0..2).zip(wanted) {
        let end = bench.core.end_of(partition);
        let (seqs, ranges) = read_through(&bench, partition);
        assert_eq!(ranges, holes(&seqs, end), "{what}: partition {partition}");
        told.extend(ranges.iter().map(|(first, next)| (partition, *first, *next, false)));
        lost += events.keys().filter(|seq| !seqs.contains(seq)).count();
        // Wherever a reader starts: at damage, within it, before it or behind it.
        for (first, next) in &ranges {
            for seq in [*first, (first + next) / 2, next - 1] {
                let (got, error) = follow(&bench, partition, LogPosition::Seq(seq));
                let Some(ReadError::Corrupt { from, resume, .. }) = error else {
                    panic!("{what}: {error:?}")
                };
                assert_eq!((&got[..], from, resume), (&[][..], *first, *next), "{what}: from {seq}");
            }
        }
        for (seq, event) in events.iter().step_by(7) {
            for from in [LogPosition::Offset(event.offset), LogPosition::Time(event.time_ms)] {
                let (got, error) = follow(&bench, partition, from);
                let start = match &error {
                    Some(ReadError::Corrupt { from, .. }) => got.first().copied().unwrap_or(*from),
                    Some(error) => panic!("{what}: {from:?} of event {seq}: {error}"),
                    None => *got.first().unwrap_or(&end),
                };
                assert!(start <= *seq, "{what}: {from:?} of event {seq} started at {start}");
                let stops = ranges.iter().find(|(_, next)| *next > start);
                let told = match error {
                    Some(ReadError::Corrupt { from, resume, .. }) => Some((from, resume)),
                    Some(error) => panic!("{what}: {error}"),
                    None => None,
                };
                assert_eq!(told, stops.copied(), "{what}: {from:?} of event {seq}");
            }
        }
    }
    assert_eq!(known(&bench), told, "{what}: what readers met is known");
    drop(bench);
    let bench = Bench::open(disk, small(2)).expect("opens");
    assert_eq!(known(&bench), told, "{what}: known in the next life before anybody reads");
    let check = bench.core.check(&|_, _| true).expect("not stopped");
    assert_eq!(known(&bench), told, "{what}: a check says what readers say");
    assert_eq!(check.partitions.iter().any(|p| p.is_damaged()), !told.is_empty(), "{what}");
    for (partition, first, next, _) in &told {
        bench.core.accept_loss(*partition, *first, next - 1).expect("accepted");
    }
    drop(bench);
    let bench = Bench::open(disk, small(2)).expect("opens");
    assert!(bench.core.losses().iter().all(|range| range.accepted), "{what}: accepted for good");
    for partition in 0..2 {
        let mut reader = LogReader::new(bench.core.clone(), partition, 0);
        let (mut seqs, mut gaps, mut batches) = (Vec::new(), Vec::new(), Vec::new());
        while reader.next_seq() < bench.core.end_of(partition) {
            batches.clear();
            match reader.read(2 << 10, &mut batches) {
                Ok(()) => {}
                Err(ReadError::Lost { from, next, .. }) => {
                    gaps.push((partition, from, next, false));
                    reader.seek(next);
                }
                Err(error) => panic!("{what}: {error}"),
            }
            seqs.extend(batches.iter().flat_map(|batch| batch.events()).map(|event| event.seq));
        }
        let mine: Vec<_> = told.iter().filter(|(of, ..)| *of == partition).copied().collect();
        assert_eq!(gaps, mine, "{what}: passed over exactly what was accepted");
        let rest = holes(&seqs, bench.core.end_of(partition)).len();
        assert_eq!(rest, mine.len(), "{what}");
    }
    lost
}

#[test]
fn one_flipped_bit_means_the_same_to_every_reader_and_to_a_check() {
    let disk = SimDisk::new(1);
    let wanted = timed(&disk, 80);
    let content = contents(&disk);
    let mut rng = fastrand::Rng::with_seed(8);
    let mut cases = 0;
    for path in content.keys().filter(|path| path.extension().is_some_and(|e| e == "seg" || e == "idx")) {
        let name = path.file_name().expect("name").to_string_lossy().into_owned();
        // Headers, tables, group headers, batch headers and bodies all have their turn.
        for at in (0..content[path].len()).step_by(397) {
            let bit = (at + rng.usize(..397)).min(content[path].len() - 1) * 8 + rng.usize(..8);
            let what = format!("{name} byte {} bit {}", bit / 8, bit % 8);
            let lost = one_behaviour(&flip(&content, path, bit), &wanted, &what);
            assert!(lost <= 3, "{what}: {lost} events lost");
            cases += 1;
        }
    }
    assert!(cases > 80, "{cases}");
    counted(&format!("{cases} flipped bits, each the same to every kind of reader and to a check"));
}

#[test]
fn a_sealed_segment_is_read_alike_with_its_index_and_without() {
    let disk = SimDisk::new(1);
    let wanted = timed(&disk, 80);
    let mut content = contents(&disk);
    content.retain(|path, _| path.extension().is_none_or(|e| e != "idx"));
    let path = segments(&content)[0].clone();
    for at in (8_192..14_000).step_by(211) {
        let what = format!("no index, byte {at}");
        one_behaviour(&flip(&content, &path, at * 8), &wanted, &what);
    }
}

#[test]
fn a_missing_segment_means_the_same_to_every_reader_and_to_a_check() {
    let disk = SimDisk::new(1);
    let wanted = timed(&disk, 120);
    let content = contents(&disk);
    let all = segments(&content);
    for path in &all[1..all.len() - 1] {
        let mut content = content.clone();
        content.remove(*path);
        let lost = one_behaviour(&restore(&content), &wanted, &path.display().to_string());
        assert!(lost > 3, "{lost}");
    }
}

#[test]
fn only_damaged_events_can_be_given_up() {
    let disk = SimDisk::new(1);
    let wanted = timed(&disk, 40);
    let bench = Bench::open(&disk, small(2)).expect("opens");
    let error = bench.core.accept_loss(0, 3, 5).expect_err("readable").to_string();
    assert_eq!(error, "event 3 of partition 0 is not lost (none is): name lost events only");
    assert!(bench.core.accept_loss(9, 3, 5).is_err() && bench.core.accept_loss(0, 5, 3).is_err());
    assert_eq!(bench.read_all(0).0, wanted[0]);
}

#[test]
fn retention_removes_what_is_known_of_removed_segments() {
    let disk = SimDisk::new(1);
    timed(&disk, 80);
    let content = contents(&disk);
    let disk = flip(&content, segments(&content)[0], 9_000 * 8);
    let mut bench = Bench::open(&disk, small(2)).expect("opens");
    bench.core.check(&|_, _| true).expect("not stopped");
    assert!(!known(&bench).is_empty());
    bench.core.retention.lock().expect("unpoisoned").bytes_max = Some(1);
    bench.keeper.step();
    assert_eq!(known(&bench), []);
    drop(bench);
    assert_eq!(known(&Bench::open(&disk, small(2)).expect("opens")), []);
}

#[test]
fn a_damaged_file_of_known_damage_gives_nothing_up() {
    let disk = SimDisk::new(1);
    timed(&disk, 80);
    let content = contents(&disk);
    let disk = flip(&content, segments(&content)[0], 9_000 * 8);
    let bench = Bench::open(&disk, small(2)).expect("opens");
    bench.core.check(&|_, _| true).expect("not stopped");
    for range in bench.core.losses() {
        bench.core.accept_loss(range.partition, range.first, range.last()).expect("accepted");
    }
    let partition = bench.core.losses()[0].partition;
    drop(bench);
    let content = contents(&disk);
    let path = content.keys().find(|path| path.ends_with("damage")).expect("written");
    let bench = Bench::open(&flip(&content, path, 300), small(2)).expect("opens");
    let (_, error) = follow(&bench, partition, LogPosition::Earliest);
    assert!(matches!(error, Some(ReadError::Corrupt { .. })), "{error:?}");
}

/// What every kind of client is told about the end of a partition covers all that may have been there: one that compares its
/// start with that end must not take damaged events for ones that are still to come.
#[test]
fn the_end_of_a_partition_covers_its_damaged_events_by_number_offset_and_time() {
    for (clean, groups) in [(true, 1), (false, 1), (true, 30), (false, 30)] {
        let disk = SimDisk::new(1);
        let (now, clock) = hand_clock();
        let mut bench = Bench::open(&disk, Settings { clock: clock.clone(), ..small(1) }).expect("opens");
        for group in 0..groups {
            now.fetch_add(10, Ordering::SeqCst);
            bench.keeper.step();
            let events = (0..9).map(|n| format!("event {group}.{n} {}", "y".repeat(40))).collect();
            bench.commit(&[(0, events)]).expect("committed");
        }
        let end = bench.core.segments.read().expect("unpoisoned").back().expect("active").end() as usize;
        let (seq, last) = bench.read_all(0).0.pop_last().expect("events");
        bench.writer.mark();
        if clean {
            bench.keeper.record(true);
        }
        drop(bench);
        now.fetch_add(1_000, Ordering::SeqCst);
        let content = contents(&disk);
        let path = segments(&content).pop().expect("there").clone();
        // The last group: its header, its batch's header and the events.
        for at in (end - 450..end).step_by(7) {
            let what = format!("{groups} groups, clean: {clean}, {} bytes before the end", end - at);
            let disk = flip(&content, &path, at * 8);
            let settings = Settings { clock: clock.clone(), ..small(1) };
            let bench = Bench::open(&disk, settings).expect("opens");
            let told = bench.core.ends.read().expect("unpoisoned")[0];
            assert!(told.next_seq > seq, "{what}");
            assert!(
                told.last_offset >= last.offset && told.last_offset < told.next_offset,
                "{what}: {told:?}"
            );
            assert!(told.last_time >= last.time_ms, "{what}: {told:?}");
            if clean {
                // The record knows it.
                assert_eq!(told.next_seq, seq + 1, "{what}");
            }
            for from in [LogPosition::Offset(last.offset), LogPosition::Time(last.time_ms)] {
                let (got, error) = follow(&bench, 0, from);
                assert!(
                    got.contains(&seq) || matches!(error, Some(ReadError::Corrupt { .. })),
                    "{what}: {error:?}"
                );
            }
        }
    }
}

#[test]
fn a_start_looks_at_marked_damage_again_and_clears_what_reads_well() {
    let disk = SimDisk::new(1);
    let wanted = timed(&disk, 900);
    let content = contents(&disk);
    let sealed = segments(&content).len() - 1;
    assert!(sealed > VERIFIED_AT_START_MAX, "{sealed}");
    let damaged = restore(&content);
    for path in segments(&content).iter().take(sealed) {
        let mut bytes = content[*path].clone();
        bytes[9_000..9_500].fill(0xff);
        damaged.set_content(path, bytes);
    }
    let bench = Bench::open(&damaged, small(2)).expect("opens");
    bench.core.check(&|_, _| true).expect("not stopped");
    let marked = known(&bench);
    assert!(marked.len() >= sealed, "{marked:?}");
    drop(bench);
    // Nothing was mended: all stays as it was.
    let bench = Bench::open(&damaged, small(2)).expect("opens");
    assert_eq!(known(&bench), marked);
    drop(bench);
    // One file is put back, then all of them.
    let mended = contents(&damaged);
    let disk = restore(&mended);
    disk.set_content(segments(&content)[0], content[segments(&content)[0]].clone());
    let bench = Bench::open(&disk, small(2)).expect("opens");
    let left = known(&bench);
    assert!(left.len() < marked.len() && left.iter().all(|range| marked.contains(range)), "{left:?}");
    drop(bench);
    for path in segments(&content) {
        disk.set_content(path, content[path].clone());
    }
    let mut bench = Bench::open(&disk, Settings { clock: hand_clock().1, ..small(2) }).expect("opens");
    // A start looks at a few, so that it does not take long; the rest is done in the background.
    for _ in 0..sealed {
        bench.keeper.step();
    }
    assert_eq!(known(&bench), []);
    assert!((0..2).map(|p| bench.read_all(p).0).eq(wanted), "everything can be read");
    drop(bench);
    assert_eq!(known(&Bench::open(&disk, small(2)).expect("opens")), [], "for good");
}
