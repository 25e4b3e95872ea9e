//! Calls that fail while the power stays on.

use super::*;
use crate::log::{Fault, When};

#[test]
fn a_failed_write_is_repeated_in_the_next_segment_and_nowhere_else() {
    for (fault, direct) in
        [(Fault::Eio, true), (Fault::Eio, false), (Fault::ShortWrite, true), (Fault::Enospc, true)]
    {
        for seed in 0..50 {
            let disk = SimDisk::new(seed);
            disk.set_direct(direct);
            let mut bench = Bench::open(&disk, small(1)).expect("opens");
            for i in 0..5 {
                bench.put(0, &format!("before {i}"));
            }
            // With buffered writes both the write and the sync after it are tried.
            disk.plan(When::Call(disk.calls() + u64::from(!direct && seed % 2 == 0)), fault);
            bench.commit(&[(0, vec!["hit".into()])]).expect("written to the next segment");
            disk.clear_faults();
            bench.put(0, "after");
            let wanted = ["before 0", "before 1", "before 2", "before 3", "before 4", "hit", "after"];
            assert_eq!(bench.texts(0), wanted);
            assert_eq!(bench.core.segments.read().expect("unpoisoned").len(), 2);
            disk.reboot();
            let bench = Bench::open(&disk, small(1)).expect("opens");
            assert_eq!(bench.texts(0), wanted, "{fault:?} seed {seed}");
            assert!(bench.recovery.is_clean());
        }
    }
}

#[test]
fn two_failed_writes_in_a_row_make_the_hub_read_only_and_readers_go_on() {
    let disk = SimDisk::new(3);
    let mut bench = Bench::open(&disk, small(1)).expect("opens");
    bench.put(0, "kept");
    bench.keeper.step();
    disk.plan(When::EveryWrite, Fault::Eio);
    let error = bench.commit(&[(0, vec!["lost".into()])]).expect_err("fails");
    assert!(
        matches!(error, AppendError::ReadOnly { .. }) && error.is_retriable() && error.may_have_happened()
    );
    disk.clear_faults();
    assert!(
        bench.commit(&[(0, vec!["refused".into()])]).is_err(),
        "stays read-only until it is opened again"
    );
    assert_eq!(bench.texts(0), ["kept"]);
    drop(bench);
    let mut bench = Bench::open(&disk, small(1)).expect("opens");
    bench.put(0, "again");
    assert_eq!(bench.texts(0).last().map(String::as_str), Some("again"));
}

#[test]
fn a_full_disk_refuses_events_for_a_while_and_recovers_by_itself() {
    let disk = SimDisk::new(4);
    let mut bench = Bench::open(&disk, small(1)).expect("opens");
    disk.plan(When::EveryAllocation, Fault::Enospc);
    let mut kept = Vec::new();
    let error = loop {
        bench.keeper.step();
        let text = format!("{} {}", kept.len(), "z".repeat(2_000));
        match bench.commit(&[(0, vec![text.clone()])]) {
            Ok(_) => kept.push(text),
            Err(error) => break error,
        }
    };
    assert!(matches!(&error, AppendError::NoSpace { .. }), "{error}");
    assert!(error.is_retriable());
    assert_eq!(bench.texts(0), kept);
    disk.clear_faults();
    assert!(bench.keeper.step());
    kept.push("after".into());
    bench.put(0, "after");
    assert_eq!(bench.texts(0), kept);
    drop(bench);
    assert_eq!(Bench::open(&disk, small(1)).expect("opens").texts(0), kept);
}

/// Strangers may take all descriptors for a while. Nothing is wrong with the disk then.
#[test]
fn a_hub_without_descriptors_takes_events_again_once_there_are_some() {
    // None at all, or one: for the next segment's file, but not for the directory that its name is in.
    for (seed, left) in [(5, 0), (6, 1)] {
        let disk = SimDisk::new(seed);
        let mut bench = Bench::open(&disk, small(1)).expect("opens");
        bench.keeper.step();
        disk.set_files_left(Some(left));
        let (mut kept, mut refused) = (Vec::new(), 0);
        while refused < 3 {
            let text = format!("{} {}", kept.len(), "z".repeat(2_000));
            match bench.commit(&[(0, vec![text.clone()])]) {
                Ok(_) => kept.push(text),
                Err(error) => {
                    assert!(matches!(&error, AppendError::NoSpace { .. }) && error.is_retriable(), "{error}");
                    refused += 1;
                    disk.set_files_left(Some(left));
                }
            }
        }
        assert!(bench.writer.failure().is_none(), "it is not read-only");
        disk.set_files_left(None);
        for round in 0..20 {
            let text = format!("after {round} {}", "z".repeat(2_000));
            bench.put(0, &text);
            kept.push(text);
        }
        assert_eq!(bench.texts(0), kept);
        disk.reboot();
        let bench = Bench::open(&disk, small(1)).expect("opens");
        assert_eq!(bench.texts(0), kept, "{left} descriptors");
        assert!(bench.recovery.is_clean());
    }
}

#[test]
fn a_disk_that_takes_back_what_it_reserved_is_full_and_not_broken() {
    for direct in [true, false] {
        let disk = SimDisk::new(6);
        disk.set_direct(direct);
        let mut bench = Bench::open(&disk, small(1)).expect("opens");
        bench.put(0, "kept");
        bench.keeper.step();
        disk.plan(When::EveryWrite, Fault::Enospc);
        for _ in 0..5 {
            let error = bench.commit(&[(0, vec!["lost".into()])]).expect_err("full");
            assert!(matches!(error, AppendError::NoSpace { .. }), "{error}");
            bench.keeper.step();
        }
        assert_eq!(bench.texts(0), ["kept"]);
        disk.clear_faults();
        bench.put(0, "after");
        assert_eq!(bench.texts(0), ["kept", "after"]);
        disk.reboot();
        let bench = Bench::open(&disk, small(1)).expect("opens");
        assert!(bench.recovery.is_clean(), "{}", bench.recovery);
        assert_eq!(bench.texts(0), ["kept", "after"]);
    }
}

#[test]
fn a_hub_opens_on_a_full_disk_and_serves_what_it_has() {
    let disk = SimDisk::new(8);
    let mut bench = Bench::open(&disk, small(1)).expect("opens");
    bench.put(0, "kept");
    drop(bench);
    disk.plan(When::EveryAllocation, Fault::Enospc);
    let mut bench = Bench::open(&disk, small(1)).expect("opens");
    assert_eq!(bench.texts(0), ["kept"]);
    bench.commit(&[(0, vec!["there is room in the segment".into()])]).expect("written");
    drop(bench);
    let empty = SimDisk::new(10);
    empty.plan(When::EveryAllocation, Fault::Enospc);
    assert!(matches!(Bench::open(&empty, small(1)), Err(OpenError::Full { .. })));
}

#[test]
fn what_a_failed_sync_left_in_the_page_cache_is_made_durable_before_anything_is_built_on_it() {
    for seed in 0..40 {
        let disk = SimDisk::new(seed);
        disk.set_direct(false);
        let mut bench = Bench::open(&disk, small(1)).expect("opens");
        bench.put(0, "kept");
        // The write succeeds, its sync does not, and there is no further segment to write it to.
        while bench.core.spares.take(0).is_ok() {}
        disk.plan(When::Call(disk.calls() + 1), Fault::Eio);
        // More than a block: the next commit writes the last one again in any case.
        bench.commit(&[(0, vec!["unknown ".repeat(700)])]).expect_err("not durable");
        drop(bench);
        // The process starts again, the machine does not: the page cache shows what the disk may not have.
        disk.kill();
        let mut bench = Bench::open(&disk, small(1)).expect("opens");
        bench.put(0, "after");
        let before = bench.texts(0);
        drop(bench);
        disk.reboot();
        let bench = Bench::open(&disk, small(1)).expect("opens");
        assert!(bench.recovery.is_clean(), "seed {seed}: {}", bench.recovery);
        assert_eq!(bench.texts(0), before, "seed {seed}");
    }
}

#[test]
fn random_failures_never_lose_or_double_an_acknowledged_event() {
    for seed in 0..1_000 {
        let mut rng = fastrand::Rng::with_seed(seed);
        let disk = SimDisk::new(seed);
        disk.set_direct(rng.bool());
        let mut acknowledged = BTreeMap::new();
        for life in 0..3 {
            let Ok(mut bench) = Bench::open(&disk, small(1)) else {
                disk.reboot();
                continue;
            };
            for i in 0..30 {
                if rng.u8(..6) == 0 {
                    let fault = *rng.choice(&[Fault::Eio, Fault::Enospc, Fault::ShortWrite]).expect("some");
                    disk.plan(When::Call(disk.calls() + rng.u64(..4)), fault);
                }
                bench.keeper.step();
                let text = format!("{life}.{i} {}", "f".repeat(rng.usize(..3_000)));
                if let Ok(placed) = bench.commit(&[(0, vec![text.clone()])]) {
                    assert_eq!(acknowledged.insert(placed[0].first_seq, text), None, "seed {seed}");
                }
            }
            disk.clear_faults();
            let (events, errors) = bench.read_all(0);
            assert!(errors.is_empty(), "seed {seed}: {errors:?}");
            for (seq, text) in &acknowledged {
                assert_eq!(events.get(seq).map(|event| &event.text), Some(text), "seed {seed}");
            }
            drop(bench);
            disk.reboot();
            let bench = Bench::open(&disk, small(1)).expect("opens");
            assert!(bench.recovery.is_clean(), "seed {seed}: {}", bench.recovery);
            let (events, errors) = bench.read_all(0);
            assert!(errors.is_empty(), "seed {seed}: {errors:?}");
            for (seq, text) in &acknowledged {
                assert_eq!(events.get(seq).map(|event| &event.text), Some(text), "seed {seed}");
            }
            let mut texts: Vec<_> = events.values().map(|event| event.text.clone()).collect();
            // What was not acknowledged may be there, once.
            acknowledged.extend(events.into_iter().map(|(seq, event)| (seq, event.text)));
            let all = texts.len();
            texts.sort();
            texts.dedup();
            assert_eq!(texts.len(), all, "seed {seed}: twice");
        }
    }
}
