//! Reading everything that a hub's log has, to say what is damaged and what is safe.

use std::ops::Range;

use super::core::{Core, read};
use super::lost_ranges::{LostRange, without};
use super::recovery::Damage;
use super::segment::Segment;

/// What a check of a hub's log found. Whatever it does not name is safe: every byte of it was read and is what was written.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct LogCheck {
    /// How many segments were read.
    pub segments: usize,
    /// How many bytes.
    pub bytes: u64,
    /// Segments that should be there and are not, unless all that was lost with them was accepted.
    pub missing: Vec<Range<u64>>,
    /// Segments that the system failed to read, and what it said.
    pub unreadable: Vec<(u64, String)>,
    /// Bytes that are not what was written, whether events are lost with them or not.
    pub damage: Vec<Damage>,
    /// What became of the files, if they are no longer where the hub writes: then nothing in them is safe.
    pub displaced: Option<String>,
    /// Each partition.
    pub partitions: Vec<PartitionCheck>,
}

/// A partition, as a check found it.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct PartitionCheck {
    /// The partition.
    pub partition: u32,
    /// The oldest event there is.
    pub first_seq: u64,
    /// What the next event gets.
    pub next_seq: u64,
    /// What is lost of it, accepted or not.
    pub lost: Vec<LostRange>,
    /// How many of its events lie in segments that could not be read: nobody knows whether they are whole.
    pub unread_events: u64,
    /// Events that are damaged on disk, and that only the memory of the hub still has: a restart loses them.
    pub memory_only: Vec<Range<u64>>,
}

impl PartitionCheck {
    /// How many events were read and are whole.
    pub fn safe_events(&self) -> u64 {
        let lost: u64 = self.lost.iter().map(LostRange::events).sum();
        let memory_only: u64 = self.memory_only.iter().map(|events| events.end - events.start).sum();
        let all = self.next_seq - self.first_seq;
        all.saturating_sub(lost).saturating_sub(self.unread_events).saturating_sub(memory_only)
    }

    /// Whether events are lost and nobody accepted that.
    pub fn is_damaged(&self) -> bool {
        self.lost.iter().any(|range| !range.accepted)
    }
}

impl LogCheck {
    /// Whether nothing is damaged but what was accepted.
    pub fn is_clean(&self) -> bool {
        let lost = || self.partitions.iter().flat_map(|partition| &partition.lost);
        let harmless = self.damage.is_empty() && self.missing.is_empty();
        self.unreadable.is_empty()
            && self.displaced.is_none()
            && lost().all(|range| range.accepted)
            && (harmless || lost().next().is_some())
    }
}

/// Whether events are lost right before a segment, and all of that was accepted.
fn is_given_up(lost: &[LostRange], segment: &Segment) -> bool {
    let before = |range: &&LostRange| {
        let first = segment.first_seq(range.partition);
        range.first < first && first <= range.next
    };
    let mut before = lost.iter().filter(before).peekable();
    before.peek().is_some() && before.all(|range| range.accepted)
}

/// The events of segments that could not be read, by partition.
#[derive(Default)]
struct Unread(Vec<Vec<Range<u64>>>);

impl Unread {
    fn add(&mut self, spans: Vec<Range<u64>>) {
        self.0.resize_with(self.0.len().max(spans.len()), Vec::new);
        for (of, span) in self.0.iter_mut().zip(spans) {
            of.push(span);
        }
    }

    fn of(&self, partition: u32) -> &[Range<u64>] {
        self.0.get(partition as usize).map(Vec::as_slice).unwrap_or_default()
    }
}

/// How many events of these spans are not known to be lost.
fn beside(spans: &[Range<u64>], lost: &[LostRange]) -> u64 {
    let lost: Vec<_> = lost.iter().map(|range| range.first..range.next).collect();
    spans.iter().flat_map(|span| without(span.clone(), &lost)).map(|rest| rest.end - rest.start).sum()
}

impl Core {
    /// Reads every segment; `progress` hears how many bytes of how many are done, and ends the check by saying false.
    pub(crate) fn check(&self, progress: &dyn Fn(u64, u64) -> bool) -> Option<LogCheck> {
        let segments = self.segments_now();
        let total = segments.iter().map(|segment| segment.end()).sum();
        let mut out = LogCheck {
            segments: segments.len(),
            bytes: 0,
            missing: Vec::new(),
            unreadable: Vec::new(),
            damage: Vec::new(),
            displaced: None,
            partitions: Vec::new(),
        };
        let (mut unread, mut memory_only) = (Unread::default(), Vec::new());
        for segment in &segments {
            if !progress(out.bytes, total) {
                return None;
            }
            match self.look_through(segment) {
                Ok(found) => {
                    out.bytes += segment.end();
                    memory_only.extend(found.memory_only);
                }
                Err(_) if segment.is_retired() => {}
                Err(error) => {
                    unread.add(self.spans(segment).0);
                    out.unreadable.push((segment.id, error.to_string()));
                }
            }
        }
        self.keep_book();
        progress(total, total);
        out.damage.clone_from(&super::core::lock(&self.damage));
        out.displaced = self.displaced.get().cloned();
        // What memory and open files still have of files that are gone ends with the process.
        let displaced = out.displaced.is_some();
        let lost = self.losses();
        for pair in segments.windows(2).filter(|pair| pair[0].id + 1 < pair[1].id) {
            if !is_given_up(&lost, &pair[1]) {
                out.missing.push(pair[0].id + 1..pair[1].id);
            }
        }
        let ends: Vec<u64> = read(&self.ends).iter().map(|end| end.next_seq).collect();
        out.partitions = (0..)
            .zip(ends)
            .map(|(partition, next_seq)| {
                let lost: Vec<_> =
                    lost.iter().filter(|range| range.partition == partition).copied().collect();
                let first_seq = self.first_seq(partition);
                let spans = match displaced {
                    true => &[first_seq..next_seq][..],
                    false => unread.of(partition),
                };
                let unread_events = beside(spans, &lost);
                // What is not safe anyway is not counted twice.
                let of = memory_only.iter().filter(|(of, _)| *of == partition && !displaced);
                let memory_only = of.map(|(_, events)| events.clone()).collect();
                PartitionCheck { partition, first_seq, next_seq, lost, unread_events, memory_only }
            })
            .collect();
        Some(out)
    }
}
