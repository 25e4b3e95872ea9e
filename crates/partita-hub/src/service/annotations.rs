//! How a map of annotations begins.

pub(super) use partita_amqp::types::code::{MAP_8, MAP_32};

/// How long the head of a map is whose content has so many bytes.
pub(super) fn map_head_len(count: u32, content: usize) -> usize {
    if is_small(count, content) { 3 } else { 9 }
}

/// Writes the head of a map of `count` values, which are `content` bytes.
pub(super) fn put_map_head(count: u32, content: usize, out: &mut Vec<u8>) {
    if is_small(count, content) {
        out.extend_from_slice(&[MAP_8, content as u8 + 1, count as u8]);
    } else {
        out.push(MAP_32);
        out.extend_from_slice(&(content as u32 + 4).to_be_bytes());
        out.extend_from_slice(&count.to_be_bytes());
    }
}

fn is_small(count: u32, content: usize) -> bool {
    content < 255 && count <= 255
}
