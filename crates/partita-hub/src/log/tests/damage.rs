//! Bits that flip while nobody looks: always noticed, never served, and no other event suffers than those whose bytes
//! are near.

use super::super::settings::Durability;
use super::*;

fn written(disk: &SimDisk, events: usize) -> BTreeMap<(u32, u64), Event> {
    let mut bench = Bench::open(disk, small(2)).expect("opens");
    write(&mut bench, events);
    bench.writer.mark();
    all(&bench)
}

pub(super) fn write(bench: &mut Bench, events: usize) {
    for i in 0..events {
        bench.keeper.step();
        let text = |k: usize| format!("event {i}.{k} {}", "y".repeat(i * 37 % 300));
        bench.commit(&[(0, vec![text(0), text(1)]), (1, vec![text(2)])]).expect("committed");
    }
    bench.keeper.step();
}

fn all(bench: &Bench) -> BTreeMap<(u32, u64), Event> {
    let all = (0..2).flat_map(|p| bench.read_all(p).0.into_iter().map(move |(seq, event)| ((p, seq), event)));
    all.collect()
}

pub(super) fn segments(content: &BTreeMap<PathBuf, Vec<u8>>) -> Vec<&PathBuf> {
    content.keys().filter(|path| path.extension().is_some_and(|e| e == "seg")).collect()
}

/// Writing goes on behind all that was there, and what it wrote is there in the next life.
fn goes_on(disk: &SimDisk, what: &str) {
    let mut bench = Bench::open(disk, small(2)).expect("opens");
    let next = bench.core.end_of(0);
    assert_eq!(bench.put(0, "after").first_seq, next, "{what}");
    let before = bench.read_all(0).0;
    drop(bench);
    let bench = Bench::open(disk, small(2)).expect("opens");
    let events = bench.read_all(0).0;
    assert_eq!(
        events.last_key_value().map(|(seq, e)| (*seq, e.text.as_str())),
        Some((next, "after")),
        "{what}"
    );
    assert_eq!(events, before, "{what}");
}

/// Opens after a change and checks what is served. Returns whether anything was noticed, and how many events are not
/// served.
fn check(disk: &SimDisk, wanted: &BTreeMap<(u32, u64), Event>, what: &str) -> (bool, usize) {
    let bench = match Bench::open(disk, small(2)) {
        Ok(bench) => bench,
        Err(OpenError::Damaged { .. }) => return (true, wanted.len()),
        Err(error) => panic!("{what}: {error}"),
    };
    let mut noticed = !bench.recovery.is_clean() || bench.recovery.torn_bytes > 0;
    let mut served = 0;
    for partition in 0..2 {
        let (events, errors) = bench.read_all(partition);
        noticed |= !errors.is_empty();
        for (seq, event) in events {
            assert_eq!(wanted.get(&(partition, seq)), Some(&event), "{what}");
            served += 1;
        }
        // Numbers are not used again, whatever happened.
        let next = wanted
            .range((partition, 0)..(partition, u64::MAX))
            .next_back()
            .map_or(0, |((_, seq), _)| seq + 1);
        assert!(bench.core.end_of(partition) >= next, "{what}: numbers would be used twice");
    }
    (noticed, wanted.len() - served)
}

/// A disk with this content.
pub(super) fn restore(content: &BTreeMap<PathBuf, Vec<u8>>) -> SimDisk {
    let disk = SimDisk::new(1);
    for (name, bytes) in content {
        disk.create_dir(name.parent().expect("dir")).expect("made");
        disk.set_content(name, bytes.clone());
    }
    disk
}

/// The same, with a flipped bit.
pub(super) fn flip(content: &BTreeMap<PathBuf, Vec<u8>>, path: &std::path::Path, bit: usize) -> SimDisk {
    let disk = restore(content);
    let mut bytes = content[path].clone();
    bytes[bit / 8] ^= 1 << (bit % 8);
    disk.set_content(path, bytes);
    disk
}

pub(super) fn contents(disk: &SimDisk) -> BTreeMap<PathBuf, Vec<u8>> {
    disk.paths().into_iter().map(|path| (path.clone(), disk.content(&path).expect("there"))).collect()
}

#[test]
fn a_flipped_bit_anywhere_is_noticed_and_never_served() {
    let disk = SimDisk::new(1);
    let wanted = written(&disk, 60);
    let content = contents(&disk);
    let segments = content.keys().filter(|path| path.extension().is_some_and(|e| e == "seg")).count();
    assert!(segments >= 3, "{segments}");
    let mut rng = fastrand::Rng::with_seed(5);
    let mut flips = 0;
    for (path, bytes) in &content {
        let name = path.file_name().expect("name").to_string_lossy().into_owned();
        // Every part of a block has its chance; far more bits than there are fields.
        for at in (0..bytes.len()).step_by(101) {
            let bit = (at + rng.usize(..101)).min(bytes.len() - 1) * 8 + rng.usize(..8);
            let what = format!("{name} byte {} bit {}", bit / 8, bit % 8);
            let (noticed, missing) = check(&flip(&content, path, bit), &wanted, &what);
            assert!(missing == 0 || noticed, "{what}: {missing} events vanished unnoticed");
            flips += 1;
        }
    }
    assert!(flips > 1_000, "{flips}");
    counted(&format!("{flips} flipped bits all over a data directory, none was served"));
}

#[test]
fn every_bit_of_a_group_and_its_batches_is_guarded() {
    let disk = SimDisk::new(1);
    let mut bench = Bench::open(&disk, small(2)).expect("opens");
    bench.put(0, "first");
    let start = bench.core.segments.read().expect("unpoisoned").back().expect("active").end() as usize;
    bench.commit(&[(0, vec!["guarded".into(), "too".into()]), (1, vec!["also".into()])]).expect("committed");
    let end = bench.core.segments.read().expect("unpoisoned").back().expect("active").end() as usize;
    bench.put(1, "last");
    bench.writer.mark();
    let wanted: BTreeMap<_, _> = (0..2)
        .flat_map(|p| bench.read_all(p).0.into_iter().map(move |(seq, event)| ((p, seq), event)))
        .collect();
    drop(bench);
    let content = contents(&disk);
    let path = content.keys().find(|path| path.extension().is_some_and(|e| e == "seg")).expect("a segment");
    for bit in start * 8..end * 8 {
        let what = format!("byte {} bit {}", bit / 8 - start, bit % 8);
        let (noticed, missing) = check(&flip(&content, path, bit), &wanted, &what);
        assert!(noticed, "{what}: not noticed");
        // The neighbours of the damaged group are always served.
        assert!((0..=3).contains(&missing), "{what}: {missing} missing");
    }
    counted(&format!("{} flipped bits of a group, each was noticed", (end - start) * 8));
}

#[test]
fn a_damaged_header_costs_no_event() {
    let disk = SimDisk::new(1);
    let wanted = written(&disk, 60);
    let content = contents(&disk);
    for path in segments(&content) {
        for bit in [0, 45 * 8, 90 * 8, 100 * 8, 4_096 * 8 + 3, 5_000 * 8] {
            let disk = flip(&content, path, bit);
            let (noticed, missing) = check(&disk, &wanted, "header");
            assert!(noticed);
            assert_eq!(missing, 0, "{} bit {bit}", path.display());
            // And writing goes on, in a segment of its own.
            goes_on(&disk, "header");
        }
    }
}

/// A log that acknowledges before anything is durable.
fn relaxed() -> Settings {
    Settings { durability: Durability::Never, ..small(2) }
}

#[test]
fn what_a_mark_follows_is_as_safe_in_a_relaxed_log_as_in_any_other() {
    let disk = SimDisk::new(1);
    let mut bench = Bench::open(&disk, relaxed()).expect("opens");
    write(&mut bench, 60);
    bench.writer.mark();
    let wanted = all(&bench);
    let end = bench.core.segments.read().expect("unpoisoned").back().expect("active").end() as usize;
    drop(bench);
    let content = contents(&disk);
    let newest = *segments(&content).last().expect("a segment");
    for at in (0..end).step_by(37) {
        let what = format!("byte {at} of {end}");
        let disk = flip(&content, newest, at * 8 + at % 8);
        let (noticed, missing) = check(&disk, &wanted, &what);
        assert!(noticed, "{what}: not noticed");
        // Those of a group at most.
        assert!(missing <= 3, "{what}: {missing} missing");
        goes_on(&disk, &what);
    }
}

#[test]
fn a_damaged_header_costs_no_event_of_a_relaxed_log_without_a_mark() {
    let disk = SimDisk::new(1);
    let mut bench = Bench::open(&disk, relaxed()).expect("opens");
    write(&mut bench, 60);
    let wanted = all(&bench);
    drop(bench);
    let content = contents(&disk);
    assert!(segments(&content).len() >= 3);
    for path in segments(&content) {
        for bit in [0, 4_096 * 8 + 3] {
            let disk = flip(&content, path, bit);
            let what = format!("{} bit {bit}", path.display());
            assert_eq!(check(&disk, &wanted, &what), (true, 0), "{what}");
            goes_on(&disk, &what);
            let served = all(&Bench::open(&disk, small(2)).expect("opens"));
            assert!(wanted.iter().all(|(at, event)| served.get(at) == Some(event)), "{what}: cut off later");
        }
    }
}

#[test]
fn a_shortened_file_keeps_what_is_left_of_it_and_no_number_is_used_again() {
    let disk = SimDisk::new(1);
    let wanted = written(&disk, 60);
    let content = contents(&disk);
    for path in segments(&content) {
        let whole = &content[path];
        let mut missing_before = usize::MAX;
        for len in (0..whole.len()).step_by(509).chain([whole.len() - 1]) {
            let what = format!("{} cut at {len}", path.display());
            let disk = restore(&content);
            disk.set_content(path, whole[..len].to_vec());
            let (noticed, missing) = check(&disk, &wanted, &what);
            assert!(noticed || missing == 0, "{what}: {missing} events vanished unnoticed");
            assert!(missing <= missing_before, "{what}: {missing} missing");
            missing_before = missing;
            goes_on(&disk, &what);
        }
        assert_eq!(missing_before, 0, "{}: nothing was cut off but zeros", path.display());
    }
}

#[test]
fn the_only_segment_may_lose_its_header_and_no_number_is_used_again() {
    let disk = SimDisk::new(1);
    let mut bench = Bench::open(&disk, small(2)).expect("opens");
    // Partition 1 has its only event in a segment that retention takes.
    bench.put(1, "gone");
    while bench.core.segments.read().expect("unpoisoned").len() < 4 {
        bench.put(0, &"x".repeat(3_000));
    }
    bench.core.retention.lock().expect("unpoisoned").bytes_max = Some(1);
    bench.put(0, "kept");
    bench.writer.mark();
    let wanted = all(&bench);
    let ends = [0, 1].map(|p| bench.core.end_of(p));
    let end = bench.core.segments.read().expect("unpoisoned").back().expect("active").end() as usize;
    assert_eq!((bench.core.segments.read().expect("unpoisoned").len(), ends[1]), (1, 1));
    drop(bench);
    let content = contents(&disk);
    let path = segments(&content)[0];
    let whole = &content[path];
    let flipped = |at: usize| {
        let mut bytes = whole.clone();
        bytes[at] ^= 1;
        bytes
    };
    let damaged = [
        ("header", flipped(20), 0),
        ("table", flipped(4_100), 0),
        ("shortened", whole[..end + 100].to_vec(), 0),
        ("shortened to its header", whole[..4_096].to_vec(), wanted.len()),
        ("zeros", vec![0; whole.len()], wanted.len()),
        ("empty", Vec::new(), wanted.len()),
    ];
    for (what, bytes, lost) in damaged {
        let disk = restore(&content);
        disk.set_content(path, bytes);
        assert_eq!(check(&disk, &wanted, what), (true, lost), "{what}");
        let mut bench = Bench::open(&disk, small(2)).expect("opens");
        for (partition, end) in ends.iter().enumerate() {
            let placed = bench.put(partition as u32, "next");
            assert!(placed.first_seq >= *end, "{what}: {} of partition {partition} again", placed.first_seq);
        }
        drop(bench);
        let bench = Bench::open(&disk, small(2)).expect("opens");
        let served = all(&bench);
        assert_eq!(served.len(), wanted.len() - lost + 2, "{what}");
        assert_eq!(served.values().filter(|event| event.text == "next").count(), 2, "{what}");
    }
}

#[test]
fn a_damaged_index_is_made_again() {
    let disk = SimDisk::new(1);
    let wanted = written(&disk, 60);
    let content = contents(&disk);
    let indexes: Vec<_> =
        content.keys().filter(|path| path.extension().is_some_and(|e| e == "idx")).collect();
    assert!(!indexes.is_empty());
    for path in indexes {
        assert_eq!(check(&flip(&content, path, 99), &wanted, "index"), (false, 0));
        disk.remove(path).expect("removed");
    }
    assert_eq!(check(&disk, &wanted, "no index"), (false, 0));
}

#[test]
fn a_missing_segment_is_reported_and_readers_are_told_the_range() {
    let disk = SimDisk::new(1);
    let wanted = written(&disk, 80);
    let segments: Vec<_> =
        disk.paths().into_iter().filter(|path| path.extension().is_some_and(|e| e == "seg")).collect();
    assert!(segments.len() >= 3);
    disk.remove(&segments[1]).expect("removed");
    let bench = Bench::open(&disk, small(2)).expect("opens");
    assert_eq!(bench.recovery.missing.iter().map(|gap| (gap.start, gap.end)).collect::<Vec<_>>(), [(2, 3)]);
    let (events, errors) = bench.read_all(0);
    assert_eq!(errors.len(), 1);
    let ReadError::Corrupt { from, resume, .. } = errors[0] else { panic!("{errors:?}") };
    assert!(!events.contains_key(&from) && events.contains_key(&resume) && events.contains_key(&(from - 1)));
    let all = wanted.keys().filter(|(partition, _)| *partition == 0).count();
    assert_eq!(events.len() + (resume - from) as usize, all);
}

#[test]
fn looking_through_sealed_segments_finds_what_no_reader_met() {
    let disk = SimDisk::new(1);
    written(&disk, 80);
    let content = contents(&disk);
    let path = content.keys().find(|path| path.extension().is_some_and(|e| e == "seg")).expect("a segment");
    let disk = flip(&content, path, 9_000 * 8);
    let mut bench = Bench::open(&disk, small(2)).expect("opens");
    assert!(bench.recovery.is_clean(), "opening does not read sealed segments");
    for _ in 0..4 {
        bench.keeper.scrub();
    }
    let damage = bench.core.damage.lock().expect("unpoisoned");
    assert_eq!(damage.len(), 1, "{damage:?}");
    assert!(damage[0].segment == 1 && damage[0].bytes.contains(&9_000), "{damage:?}");
}
