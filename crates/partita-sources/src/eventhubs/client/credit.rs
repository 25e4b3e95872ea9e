//! How much a link may send: its credit follows the reader's queue, in events and in bytes. Pure.
//!
//! AMQP's credit counts messages only, so bytes are foretold by the size of recent events. Where they grow beyond what was
//! foretold, credit is taken back; what is under way by then is bounded by the connection's buffers.

/// What a link was given and what of it arrived.
#[derive(Debug)]
pub(super) struct Credit {
    events_max: u64,
    bytes_max: u64,
    arrived_events: u64,
    arrived_bytes: u64,
    /// How large an event is taken to be.
    event_bytes: u64,
}

/// Before anything arrived.
const EVENT_BYTES_GUESS: u64 = 1024;

impl Credit {
    /// For a queue of so many events and bytes.
    pub(super) fn new(events_max: usize, bytes_max: usize) -> Self {
        Self {
            events_max: (events_max.max(1) as u64).min(u64::from(u32::MAX)),
            bytes_max: bytes_max.max(1) as u64,
            arrived_events: 0,
            arrived_bytes: 0,
            event_bytes: EVENT_BYTES_GUESS,
        }
    }

    /// Counts events that arrived together, with the size of the largest.
    pub(super) fn arrived(&mut self, events: usize, bytes: usize, largest: usize) {
        self.arrived_events += events as u64;
        self.arrived_bytes += bytes as u64;
        // Rises at once and falls slowly: too much credit costs memory, too little some time.
        self.event_bytes = (largest as u64).max(self.event_bytes - self.event_bytes / 8).max(1);
    }

    /// The credit that the link should have, if it should have another than it has `left`, when so much was taken from the
    /// queue in all.
    pub(super) fn wanted(&self, taken_events: u64, taken_bytes: u64, left: u32) -> Option<u32> {
        let left = u64::from(left);
        let room_events = self.events_max.saturating_sub(self.arrived_events - taken_events);
        let room_bytes = self.bytes_max.saturating_sub(self.arrived_bytes - taken_bytes);
        let room = match room_bytes {
            0 => 0,
            bytes => room_events.min((bytes / self.event_bytes).max(1)),
        };
        let all = self.events_max.min((self.bytes_max / self.event_bytes).max(1));
        // Half of it at a time: every grant is a frame.
        let grant = room > left && (room - left) * 2 >= all;
        let revoke = left > room.saturating_mul(2);
        (grant || revoke).then_some(room as u32)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn credit_is_given_at_first_and_again_when_half_is_used_and_taken() {
        let mut credit = Credit::new(100, 1 << 20);
        assert_eq!(credit.wanted(0, 0, 0), Some(100));
        assert_eq!(credit.wanted(0, 0, 100), None);
        credit.arrived(60, 6_000, 100);
        // They are still in the queue.
        assert_eq!(credit.wanted(0, 0, 40), None);
        assert_eq!(credit.wanted(49, 4_900, 40), None);
        assert_eq!(credit.wanted(50, 5_000, 40), Some(90));
        assert_eq!(credit.wanted(60, 6_000, 40), Some(100));
    }

    #[test]
    fn large_events_lower_the_credit_and_small_ones_raise_it_again() {
        let mut credit = Credit::new(1_000, 1 << 20);
        credit.arrived(1, 1 << 20, 1 << 20);
        assert_eq!(credit.wanted(0, 0, 999), Some(0));
        assert_eq!(credit.wanted(1, 1 << 20, 0), Some(1));
        for _ in 0..100 {
            credit.arrived(1, 100, 100);
        }
        assert_eq!(credit.wanted(101, (1 << 20) + 10_000, 0), Some(1_000));
    }

    proptest! {
        /// Whatever the sizes are, a reader that takes everything is sent on, and one that takes nothing is not.
        #[test]
        fn neither_stuck_nor_unbounded(
            events_max in 1..500_usize, bytes_max in 1..100_000_usize, sizes in prop::collection::vec(1..50_000_usize, 1..300),
        ) {
            let mut credit = Credit::new(events_max, bytes_max);
            let (mut left, mut events, mut bytes) = (0, 0, 0);
            for &size in &sizes {
                left = credit.wanted(events, bytes, left).unwrap_or(left);
                prop_assert!(left > 0 && left as usize <= events_max);
                credit.arrived(1, size, size);
                left -= 1;
                events += 1;
                bytes += size as u64;
            }
            let mut credit = Credit::new(events_max, bytes_max);
            let (mut left, mut queued, mut largest) = (0, 0, 0);
            for &size in &sizes {
                left = credit.wanted(0, 0, left).unwrap_or(left);
                if left == 0 {
                    break;
                }
                credit.arrived(1, size, size);
                left -= 1;
                queued += size;
                largest = largest.max(size);
                // One event may be larger than all the room.
                prop_assert!(queued <= bytes_max.max(1) + largest);
            }
        }
    }
}
