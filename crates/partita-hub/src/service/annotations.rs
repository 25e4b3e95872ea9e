//! The annotations that hub and clients know, and how a map of them begins.

/// The event's number in its partition: a long.
pub const SEQUENCE_NUMBER: &str = "x-opt-sequence-number";
/// Which life of a geo-replicated partition the number is of: an int, -1 where there is no replication.
pub const SEQUENCE_NUMBER_EPOCH: &str = "x-opt-sequence-number-epoch";
/// The event's place in its partition: a string.
pub const OFFSET: &str = "x-opt-offset";
/// When the hub accepted the event: a timestamp.
pub const ENQUEUED_TIME: &str = "x-opt-enqueued-time";
/// The key that chose the partition: a string.
pub const PARTITION_KEY: &str = partita_amqp::event::PARTITION_KEY;

pub(super) const MAP_8: u8 = 0xc1;
pub(super) const MAP_32: u8 = 0xd1;

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
