//! The `damage` file of a hub: which events are lost, and which of these losses were accepted.

use super::super::lost_ranges::LostRange;
use super::{StoreId, put, u32_at, u64_at};

const MAGIC: [u8; 8] = *b"PARTDMG\n";
const HEADER: usize = 48;
const ENTRY: usize = 32;
const CERTAIN: u32 = 1;
const ACCEPTED: u32 = 2;

/// The content of the file.
pub(crate) fn encode_damage(ranges: &[LostRange], store: StoreId, hub: u64) -> Vec<u8> {
    let mut out = vec![0; HEADER + ranges.len() * ENTRY];
    put(&mut out, 0, &MAGIC);
    put(&mut out, 12, &(ranges.len() as u32).to_le_bytes());
    put(&mut out, 16, &store.0);
    put(&mut out, 32, &hub.to_le_bytes());
    for (range, at) in ranges.iter().zip((HEADER..).step_by(ENTRY)) {
        let flags = if range.certain { CERTAIN } else { 0 } | if range.accepted { ACCEPTED } else { 0 };
        put(&mut out, at, &range.partition.to_le_bytes());
        put(&mut out, at + 4, &flags.to_le_bytes());
        put(&mut out, at + 8, &range.segment.to_le_bytes());
        put(&mut out, at + 16, &range.first.to_le_bytes());
        put(&mut out, at + 24, &range.next.to_le_bytes());
    }
    let crc = crc32fast::hash(&out[12..]);
    put(&mut out, 8, &crc.to_le_bytes());
    out
}

/// What the file says; `None` if it is not whole, or another hub's.
pub(crate) fn decode_damage(bytes: &[u8], store: StoreId, hub: u64) -> Option<Vec<LostRange>> {
    let header = bytes.get(..HEADER)?;
    let ours = header[..8] == MAGIC && header[16..32] == store.0 && u64_at(header, 32) == hub;
    let entries = &bytes[HEADER..];
    let count = u32_at(header, 12) as usize;
    if !ours || entries.len() != count * ENTRY || crc32fast::hash(&bytes[12..]) != u32_at(header, 8) {
        return None;
    }
    let range = |entry: &[u8]| LostRange {
        partition: u32_at(entry, 0),
        certain: u32_at(entry, 4) & CERTAIN != 0,
        accepted: u32_at(entry, 4) & ACCEPTED != 0,
        segment: u64_at(entry, 8),
        first: u64_at(entry, 16),
        next: u64_at(entry, 24),
    };
    Some(entries.chunks_exact(ENTRY).map(range).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_back_as_written_and_refuses_any_flipped_bit() {
        let (store, hub) = (StoreId([3; 16]), 7);
        let ranges = [
            LostRange { partition: 1, first: 5, next: 9, segment: 2, certain: true, accepted: false },
            LostRange { partition: 3, first: 1, next: u64::MAX, segment: 4, certain: false, accepted: true },
        ];
        let bytes = encode_damage(&ranges, store, hub);
        assert_eq!(decode_damage(&bytes, store, hub).as_deref(), Some(&ranges[..]));
        assert_eq!(decode_damage(&bytes, store, 8), None);
        for bit in 0..bytes.len() * 8 {
            let mut flipped = bytes.clone();
            flipped[bit / 8] ^= 1 << (bit % 8);
            assert_eq!(decode_damage(&flipped, store, hub), None, "bit {bit}");
        }
        for len in 0..bytes.len() {
            assert_eq!(decode_damage(&bytes[..len], store, hub), None);
        }
    }
}
