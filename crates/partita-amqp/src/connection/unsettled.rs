//! The deliveries that we sent on a link and whose outcome we wait for.

use std::collections::VecDeque;

use super::{DeliveryId, DeliveryRange};

/// Ids in the order in which they were sent, not necessarily without gaps: the session's other links have the others.
#[derive(Debug, Default)]
pub(super) struct Unsettled(VecDeque<DeliveryId>);

impl Unsettled {
    pub(super) fn len(&self) -> usize {
        self.0.len()
    }

    pub(super) fn push(&mut self, id: DeliveryId) {
        self.0.push_back(id);
    }

    /// The first and last of those in `range`, which are forgotten if `settled`.
    pub(super) fn find(&mut self, range: DeliveryRange, settled: bool) -> Option<DeliveryRange> {
        let base = *self.0.front()?;
        // Counted from the first, so that the order holds when ids begin again at 0.
        let steps = |id: DeliveryId| id.wrapping_sub(base);
        let starts_before = steps(range.first) > i32::MAX as u32;
        let from =
            if starts_before { 0 } else { self.0.partition_point(|id| steps(*id) < steps(range.first)) };
        let to = match range.contains(base) || !starts_before {
            true => {
                let end = range.last.wrapping_sub(base);
                self.0.partition_point(|id| steps(*id) <= end)
            }
            false => 0,
        };
        if from >= to {
            return None;
        }
        let found = DeliveryRange { first: self.0[from], last: self.0[to - 1] };
        if settled {
            self.0.drain(from..to);
        }
        Some(found)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn what_is_found_is_what_a_search_of_all_finds(
            start in prop_oneof![Just(0u32), Just(u32::MAX - 20), any::<u32>()],
            gaps in prop::collection::vec(1..4u32, 1..40),
            ranges in prop::collection::vec((-10i32..60, 0u32..50, any::<bool>()), 1..20),
        ) {
            let mut id = start;
            let mut all = Vec::new();
            let mut unsettled = Unsettled::default();
            for gap in gaps {
                unsettled.push(id);
                all.push(id);
                id = id.wrapping_add(gap);
            }
            for (offset, len, settled) in ranges {
                let first = start.wrapping_add_signed(offset);
                let range = DeliveryRange { first, last: first.wrapping_add(len) };
                let within: Vec<u32> = all.iter().copied().filter(|id| range.contains(*id)).collect();
                let expected = within.first().map(|first| DeliveryRange { first: *first, last: *within.last().unwrap() });
                prop_assert_eq!(unsettled.find(range, settled), expected);
                if settled {
                    all.retain(|id| !range.contains(*id));
                }
                prop_assert_eq!(unsettled.len(), all.len());
            }
        }
    }

    #[test]
    fn the_widest_range_has_all() {
        let mut unsettled = Unsettled::default();
        (5..9).for_each(|id| unsettled.push(id));
        let found = unsettled.find(DeliveryRange { first: 0, last: u32::MAX }, true);
        assert_eq!(found, Some(DeliveryRange { first: 5, last: 8 }));
        assert_eq!(unsettled.len(), 0);
    }
}
