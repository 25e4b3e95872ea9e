//! A group: what one commit wrote. Its checksum covers its header and the checksums of all its batches, so a group
//! whose bytes come from two different writes is never whole.

use super::{BATCH_HEADER, BatchHeader, Seed, i64_at, put, u32_at, u64_at};

/// Length of a group's header.
pub(crate) const GROUP_HEADER: usize = 48;
/// First bytes of a group; as a number it is above any batch's length.
pub(crate) const GROUP_MAGIC: u32 = u32::from_le_bytes([b'P', b'G', b'R', 0xc0]);
/// An empty group, written when the log falls idle: what precedes it was durable, so damage there is no torn tail.
pub(crate) const FLAG_MARK: u32 = 1;
/// Acknowledged before it was durable (`fsync` by interval or never): a hole before it may be a lost write.
pub(crate) const FLAG_RELAXED: u32 = 2;
const FLAGS_KNOWN: u32 = FLAG_MARK | FLAG_RELAXED;

/// What stands before a group's batches.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct GroupHeader {
    /// Of the whole group, header included.
    pub(crate) len: u32,
    pub(crate) batches: u32,
    /// Rises by one from group to group, across segments.
    pub(crate) commit: u64,
    pub(crate) segment: u64,
    pub(crate) boot: u32,
    pub(crate) flags: u32,
    pub(crate) time_ms: i64,
}

impl GroupHeader {
    /// Writes the header at the start of `group`, which already holds the batches.
    pub(crate) fn seal(&self, group: &mut [u8], seed: Seed) {
        put(group, 0, &GROUP_MAGIC.to_le_bytes());
        put(group, 8, &self.len.to_le_bytes());
        put(group, 12, &self.batches.to_le_bytes());
        put(group, 16, &self.commit.to_le_bytes());
        put(group, 24, &self.segment.to_le_bytes());
        put(group, 32, &self.boot.to_le_bytes());
        put(group, 36, &self.flags.to_le_bytes());
        put(group, 40, &self.time_ms.to_le_bytes());
        let mut hasher = head_hasher(group, seed);
        let mut at = GROUP_HEADER;
        while at < group.len() {
            hasher.update(&group[at + 4..at + 8]);
            at += u32_at(group, at) as usize;
        }
        put(group, 4, &hasher.finalize().to_le_bytes());
    }

    /// Reads the fields without looking at the checksum; `None` if they are no group of `segment`.
    pub(crate) fn peek(bytes: &[u8], segment: u64) -> Option<Self> {
        let bytes = bytes.get(..GROUP_HEADER)?;
        let header = Self {
            len: u32_at(bytes, 8),
            batches: u32_at(bytes, 12),
            commit: u64_at(bytes, 16),
            segment: u64_at(bytes, 24),
            boot: u32_at(bytes, 32),
            flags: u32_at(bytes, 36),
            time_ms: i64_at(bytes, 40),
        };
        let ours = u32_at(bytes, 0) == GROUP_MAGIC && header.segment == segment;
        (ours && header.flags & !FLAGS_KNOWN == 0).then_some(header)
    }
}

fn head_hasher(group: &[u8], seed: Seed) -> crc32fast::Hasher {
    let mut hasher = seed.hasher();
    hasher.update(&group[..4]);
    hasher.update(&group[8..GROUP_HEADER]);
    hasher
}

/// A group whose header and batch headers are whole.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct GroupView {
    pub(crate) header: GroupHeader,
    /// Each batch with its place from the group's start and whether its body is whole too.
    pub(crate) batches: Vec<(usize, BatchHeader, bool)>,
}

impl GroupView {
    /// Whether every byte of the group is as it was written.
    pub(crate) fn is_whole(&self) -> bool {
        self.batches.iter().all(|(_, _, whole)| *whole)
    }
}

/// Reads the group at the start of `bytes`; `None` unless its header and all its batch headers are whole.
pub(crate) fn parse_group(bytes: &[u8], segment: u64, seed: Seed) -> Option<GroupView> {
    let header = GroupHeader::peek(bytes, segment)?;
    let group = bytes.get(..header.len as usize)?;
    if group.len() < GROUP_HEADER || header.batches as usize > group.len() / BATCH_HEADER {
        return None;
    }
    let mut hasher = head_hasher(group, seed);
    let mut batches = Vec::with_capacity(header.batches as usize);
    let mut at = GROUP_HEADER;
    for _ in 0..header.batches {
        let batch = BatchHeader::decode(group.get(at..)?, seed)?;
        hasher.update(&group[at + 4..at + 8]);
        batches.push((at, batch, false));
        at += batch.len as usize;
    }
    if at != group.len() || u32_at(group, 4) != hasher.finalize() {
        return None;
    }
    for (at, batch, whole) in &mut batches {
        *whole = batch.body_is_whole(&group[*at + batch.head_len()..*at + batch.len as usize]);
    }
    Some(GroupView { header, batches })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::{EncodedBatch, StoreId};
    use super::*;

    fn seed() -> Seed {
        Seed::new(StoreId([1; 16]), 4)
    }

    fn group(batches: &[EncodedBatch]) -> Vec<u8> {
        let mut out = vec![0; GROUP_HEADER];
        for (batch, partition) in batches.iter().zip(0..) {
            out.extend(&*batch.header(partition, 7, 70, 42).encode(seed()));
            out.extend(&batch.ends);
            out.extend(&batch.events);
        }
        let header = GroupHeader {
            len: out.len() as u32,
            batches: batches.len() as u32,
            commit: 12,
            segment: 4,
            boot: 3,
            flags: 0,
            time_ms: 42,
        };
        header.seal(&mut out, seed());
        out
    }

    fn batch(events: &[&str]) -> EncodedBatch {
        EncodedBatch::of(events).expect("valid")
    }

    proptest! {
        #[test]
        fn groups_read_back_as_written(sizes in prop::collection::vec(prop::collection::vec(1_usize..300, 1..5), 0..9)) {
            let batches: Vec<_> = sizes
                .iter()
                .map(|s| EncodedBatch::of(&s.iter().map(|n| vec![7; *n]).collect::<Vec<_>>()).expect("valid"))
                .collect();
            let view = parse_group(&group(&batches), 4, seed()).expect("valid");
            prop_assert!(view.is_whole());
            prop_assert_eq!(view.batches.len(), batches.len());
            for ((_, header, _), batch) in view.batches.iter().zip(&batches) {
                prop_assert_eq!(header.count, batch.count());
            }
        }

        #[test]
        fn arbitrary_bytes_never_panic(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
            let mut bytes = bytes;
            if bytes.len() >= 32 {
                put(&mut bytes, 0, &GROUP_MAGIC.to_le_bytes());
                put(&mut bytes, 24, &4_u64.to_le_bytes());
            }
            prop_assert!(parse_group(&bytes, 4, seed()).is_none());
        }
    }

    #[test]
    fn every_flipped_bit_is_noticed() {
        let bytes = group(&[batch(&["one", "two"]), batch(&["three"])]);
        for bit in 0..bytes.len() * 8 {
            let mut flipped = bytes.clone();
            flipped[bit / 8] ^= 1 << (bit % 8);
            let noticed = parse_group(&flipped, 4, seed()).is_none_or(|view| !view.is_whole());
            assert!(noticed, "bit {bit}");
        }
    }

    #[test]
    fn batches_of_two_writes_do_not_make_a_group() {
        let (a, b) = (group(&[batch(&["aaa"]), batch(&["bbb"])]), group(&[batch(&["aaa"]), batch(&["ccc"])]));
        let mixed = [&a[..a.len() - 10], &b[b.len() - 10..]].concat();
        assert!(parse_group(&mixed, 4, seed()).is_none_or(|view| !view.is_whole()));
        let tail = BATCH_HEADER + 4 + 3;
        let swapped = [&a[..a.len() - tail], &b[b.len() - tail..]].concat();
        assert_eq!(parse_group(&swapped, 4, seed()), None);
    }
}
