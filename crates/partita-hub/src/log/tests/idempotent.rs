//! Idempotent producers: whatever happens to answers, power and disk, an event that is sent until it is acknowledged is
//! there once.

use fastrand::Rng;

use super::*;
use crate::log::retention::Retention;
use crate::log::{Fault, When};

fn stamp(id: i64, sequence: i32) -> ProducerStamp {
    ProducerStamp { id, epoch: 0, sequence }
}

impl Bench {
    fn send(&mut self, partition: u32, stamp: ProducerStamp, texts: &[&str]) -> Result<Placed, AppendError> {
        let texts: Vec<String> = texts.iter().map(|text| text.to_string()).collect();
        self.keeper.step();
        self.commit_stamped([(partition, Some(stamp), &texts[..])]).remove(0)
    }
}

#[test]
fn a_repeated_batch_is_acknowledged_with_its_first_place_in_every_life() {
    let disk = SimDisk::new(1);
    let mut bench = Bench::open(&disk, small(2)).expect("opens");
    bench.put(1, "other");
    let first = bench.send(1, stamp(7, 1), &["a", "b"]).expect("new");
    assert_eq!((first.first_seq, first.count), (1, 2));
    assert_eq!(bench.send(1, stamp(7, 1), &["a", "b"]), Ok(first));
    // In another partition, or of another producer, it is another batch.
    assert_eq!(bench.send(0, stamp(7, 1), &["a", "b"]).expect("new").first_seq, 0);
    assert_eq!(bench.send(1, stamp(8, 1), &["c"]).expect("new").first_seq, 3);
    for life in 0..3 {
        let refused = bench.send(1, stamp(7, 4), &["gap"]).expect_err("a gap");
        assert_eq!(refused, AppendError::OutOfOrder { id: 7, expected: 3, found: 4 }, "life {life}");
        assert!(!refused.is_retriable() && !refused.may_have_happened());
        drop(bench);
        if life == 1 {
            disk.reboot();
        }
        bench = Bench::open(&disk, small(2)).expect("opens");
        assert_eq!(bench.send(1, stamp(7, 1), &["a", "b"]), Ok(first), "life {life}");
        assert_eq!(bench.texts(1), ["other", "a", "b", "c"]);
    }
    bench.send(1, stamp(7, 3), &["d"]).expect("goes on");
    let higher = ProducerStamp { id: 7, epoch: 1, sequence: 50 };
    bench.send(1, higher, &["e"]).expect("a new incarnation");
    let stolen = bench.send(1, stamp(7, 4), &["late"]).expect_err("replaced");
    assert_eq!(stolen, AppendError::ProducerStolen { id: 7, epoch: 1 });
    assert_eq!(bench.texts(1), ["other", "a", "b", "c", "d", "e"]);
}

#[test]
fn a_new_segment_knows_what_was_sent_before_it() {
    let disk = SimDisk::new(2);
    let mut bench = Bench::open(&disk, small(1)).expect("opens");
    let placed = bench.send(0, stamp(7, 1), &["once"]).expect("new");
    let before = bench.core.segments.read().expect("unpoisoned").len();
    for i in 0..40 {
        bench.put(0, &format!("{i} {}", "f".repeat(2_000)));
    }
    assert!(bench.core.segments.read().expect("unpoisoned").len() > before + 1);
    assert_eq!(bench.send(0, stamp(7, 1), &["once"]), Ok(placed));
    drop(bench);
    disk.reboot();
    let mut bench = Bench::open(&disk, small(1)).expect("opens");
    assert_eq!(bench.send(0, stamp(7, 1), &["once"]), Ok(placed), "only the newest segment was scanned");
    assert_eq!(bench.texts(0).iter().filter(|text| *text == "once").count(), 1);
}

#[test]
fn one_of_several_batches_of_a_commit_can_be_refused_and_another_repeated() {
    let disk = SimDisk::new(3);
    let mut bench = Bench::open(&disk, small(1)).expect("opens");
    let texts: Vec<Vec<String>> = ["a", "b", "c"].iter().map(|text| vec![text.to_string()]).collect();
    let outcomes = bench.commit_stamped([
        (0, Some(stamp(7, 1)), &texts[0][..]),
        (0, None, &texts[1]),
        (0, Some(stamp(7, 1)), &texts[0]),
        (0, Some(stamp(7, 9)), &texts[2]),
    ]);
    assert_eq!(outcomes[0], outcomes[2]);
    assert_eq!(outcomes[1].as_ref().expect("new").first_seq, 1);
    assert!(matches!(outcomes[3], Err(AppendError::OutOfOrder { expected: 2, found: 9, .. })));
    assert_eq!(bench.texts(0), ["a", "b"]);
    // A commit that fails leaves nothing behind that would make its repetition look like one.
    disk.plan(When::EveryWrite, Fault::Enospc);
    let twice = [(0, Some(stamp(7, 2)), &texts[2][..]), (0, Some(stamp(7, 2)), &texts[2])];
    for outcome in bench.commit_stamped(twice) {
        assert!(matches!(outcome, Err(AppendError::NoSpace { .. })));
    }
    disk.clear_faults();
    bench.send(0, stamp(7, 2), &["c"]).expect("now");
    assert_eq!(bench.texts(0), ["a", "b", "c"]);
}

#[test]
fn damage_makes_the_log_forget_producers_rather_than_refuse_them_for_ever() {
    let disk = SimDisk::new(4);
    let mut bench = Bench::open(&disk, small(1)).expect("opens");
    for sequence in 1..6 {
        bench.send(0, stamp(7, sequence), &["an event that is long enough to be found"]).expect("new");
    }
    bench.writer.mark();
    let segment = bench.core.segments.read().expect("unpoisoned")[0].path.clone();
    drop(bench);
    let mut content = disk.content(&segment).expect("there");
    let magic = [b'P', b'G', b'R', 0xc0];
    let groups: Vec<usize> =
        content.windows(4).enumerate().filter(|(_, bytes)| *bytes == magic).map(|(at, _)| at).collect();
    // The heads of the last ones before the mark: what they held is not known any more.
    for at in &groups[groups.len() - 3..groups.len() - 1] {
        content[*at..at + 40].fill(0xee);
    }
    disk.set_content(&segment, content);
    let mut bench = Bench::open(&disk, small(1)).expect("opens");
    assert!(!bench.recovery.is_clean());
    bench.send(0, stamp(7, 9), &["goes on"]).expect("nothing is known for certain");
}

/// A producer that sends each batch until it is acknowledged, as a client does.
struct Sender {
    partition: u32,
    id: i64,
    next: i32,
    pending: Option<(i32, Vec<String>)>,
}

impl Sender {
    fn new(id: i64) -> Self {
        Self { partition: (id % 2) as u32, id, next: 1, pending: None }
    }

    fn batch(&mut self, rng: &mut Rng) -> (u32, Option<ProducerStamp>, Vec<String>) {
        let (id, next) = (self.id, self.next);
        let (sequence, texts) = self.pending.get_or_insert_with(|| {
            let count = rng.i32(1..4);
            let text = |n| format!("{id}:{n} {}", "i".repeat(rng.usize(..500)));
            (next, (next..next + count).map(text).collect())
        });
        (self.partition, Some(stamp(self.id, *sequence)), texts.clone())
    }

    fn acknowledged(&mut self) {
        if let Some((sequence, texts)) = self.pending.take() {
            self.next = sequence + texts.len() as i32;
        }
    }
}

fn lives(seed: u64, direct: bool, settings: &Settings) {
    let mut rng = Rng::with_seed(seed);
    let disk = SimDisk::new(seed ^ 0x1de);
    disk.set_direct(direct);
    let mut senders = [1, 2, 3].map(Sender::new);
    for life in 0..5 {
        if life < 4 && rng.u8(..4) > 0 {
            let fault = if rng.bool() { Fault::PowerOff } else { Fault::Eio };
            disk.plan(When::Call(disk.calls() + rng.u64(..60)), fault);
        }
        if let Ok(mut bench) = Bench::open(&disk, settings.clone()) {
            for _ in 0..rng.usize(5..30) {
                if rng.u8(..3) > 0 {
                    bench.keeper.step();
                }
                let some = rng.usize(1..=senders.len());
                let batches: Vec<_> =
                    senders[..some].iter_mut().map(|sender| sender.batch(&mut rng)).collect();
                let given = batches.iter().map(|(partition, stamp, texts)| (*partition, *stamp, &texts[..]));
                let outcomes = bench.commit_stamped(given);
                // They are answered in the order of partitions, and within one in that of sending.
                let mut order: Vec<&mut Sender> = senders[..some].iter_mut().collect();
                order.sort_by_key(|sender| sender.partition);
                for (sender, outcome) in order.into_iter().zip(outcomes) {
                    match outcome {
                        // The answer may get lost on its way.
                        Ok(_) if rng.u8(..5) > 0 => sender.acknowledged(),
                        Ok(_) => {}
                        Err(error) => {
                            assert!(error.is_retriable() || disk.is_off(), "seed {seed} life {life}: {error}")
                        }
                    }
                }
                if disk.is_off() {
                    break;
                }
            }
        }
        if rng.u8(..4) == 0 {
            disk.kill();
        } else {
            disk.reboot();
        }
    }
    let bench = Bench::open(&disk, settings.clone()).expect("opens after every crash");
    assert!(bench.recovery.is_clean(), "seed {seed}: {}", bench.recovery);
    for sender in &senders {
        let prefix = format!("{}:", sender.id);
        let mut found: Vec<i32> = bench
            .read_all(sender.partition)
            .0
            .into_values()
            .filter_map(|event| event.text.strip_prefix(&prefix)?.split(' ').next()?.parse().ok())
            .collect();
        // Retention may have taken the first ones.
        let first = found.first().copied().unwrap_or(sender.next);
        let pending = sender.pending.as_ref().map_or(0, |(_, texts)| texts.len());
        let kept = (first..sender.next).collect::<Vec<_>>();
        let unknown = found.split_off(kept.len().min(found.len()));
        assert_eq!(found, kept, "seed {seed}: acknowledged, each once and in order");
        assert!(unknown.is_empty() || unknown.len() == pending, "seed {seed}: {unknown:?}");
    }
}

#[test]
fn what_is_sent_until_it_is_acknowledged_is_there_once() {
    for seed in 0..400 {
        lives(seed, seed % 2 == 0, &small(2));
    }
}

#[test]
fn it_is_there_once_while_segments_are_recycled_and_producers_forgotten_by_others() {
    let retention = Retention { bytes_max: Some(100 << 10), ..Retention::default() };
    for seed in 1_000..1_200 {
        lives(seed, seed % 2 == 0, &Settings { retention, ..small(2) });
    }
}
