//! Reading everything that a hub's log has, to say what is damaged and what is safe.

use std::ops::Range;

use super::core::{Core, read};
use super::lost_ranges::LostRange;
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
}

impl PartitionCheck {
    /// How many events are safe.
    pub fn safe_events(&self) -> u64 {
        let lost: u64 = self.lost.iter().map(LostRange::events).sum();
        (self.next_seq - self.first_seq).saturating_sub(lost)
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
            partitions: Vec::new(),
        };
        for segment in &segments {
            if !progress(out.bytes, total) {
                return None;
            }
            match self.look_through(segment) {
                Ok(_) => out.bytes += segment.end(),
                Err(_) if segment.is_retired() => {}
                Err(error) => out.unreadable.push((segment.id, error.to_string())),
            }
        }
        self.keep_book();
        progress(total, total);
        out.damage.clone_from(&super::core::lock(&self.damage));
        let lost = self.losses();
        for pair in segments.windows(2).filter(|pair| pair[0].id + 1 < pair[1].id) {
            if !is_given_up(&lost, &pair[1]) {
                out.missing.push(pair[0].id + 1..pair[1].id);
            }
        }
        let ends: Vec<u64> = read(&self.ends).iter().map(|end| end.next_seq).collect();
        out.partitions = (0..)
            .zip(ends)
            .map(|(partition, next_seq)| PartitionCheck {
                partition,
                first_seq: self.first_seq(partition),
                next_seq,
                lost: lost.iter().filter(|range| range.partition == partition).copied().collect(),
            })
            .collect();
        Some(out)
    }
}
