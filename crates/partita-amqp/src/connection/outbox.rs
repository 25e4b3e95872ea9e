//! What is to be written: one contiguous buffer for all that is small, and large payloads beside it, shared and not copied.

use std::collections::VecDeque;
use std::io::IoSlice;

use bytes::Bytes;

/// A payload of at least so many bytes is shared; a smaller one is cheaper copied.
pub const SHARED_BYTES_MIN: usize = 4 * 1024;

/// An empty buffer larger than this is given back.
const KEPT_BYTES_MAX: usize = 1024 * 1024;

/// So much that was written may stand at the start of the buffer before the rest is moved up.
const WRITTEN_BYTES_MAX: usize = 1024 * 1024;

/// Bytes to be written, in order.
#[derive(Debug, Default)]
pub struct Outbox {
    small: Vec<u8>,
    /// What of `small` was written.
    written: usize,
    /// Payloads, each with the place in `small` that it comes before.
    shared: VecDeque<(usize, Bytes)>,
    shared_bytes: usize,
    /// Whether anything was added since this was last asked.
    added: bool,
}

impl Outbox {
    /// How many bytes are to be written. Who produces should stop while this is large.
    pub fn len(&self) -> usize {
        self.small.len() - self.written + self.shared_bytes
    }

    /// Whether nothing is to be written.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The next bytes to be written.
    pub fn chunk(&self) -> &[u8] {
        self.chunks().next().unwrap_or_default()
    }

    /// All that is to be written, in order; no piece is empty.
    pub fn chunks(&self) -> impl Iterator<Item = &[u8]> {
        let mut from = self.written;
        let pieces = self.shared.iter().flat_map(move |(at, payload)| {
            let before = &self.small[from..*at];
            from = *at;
            [before, &payload[..]]
        });
        let last = self.shared.back().map_or(self.written, |(at, _)| *at);
        pieces.chain([&self.small[last..]]).filter(|piece| !piece.is_empty())
    }

    /// Fills `slices` for a vectored write and returns how many it filled.
    pub fn io_slices<'a>(&'a self, slices: &mut [IoSlice<'a>]) -> usize {
        let mut filled = 0;
        for (slice, chunk) in slices.iter_mut().zip(self.chunks()) {
            *slice = IoSlice::new(chunk);
            filled += 1;
        }
        filled
    }

    /// Forgets the first `count` bytes: they were written.
    ///
    /// # Panics
    /// If there are not so many.
    pub fn advance(&mut self, mut count: usize) {
        assert!(count <= self.len(), "no more can be written than there is");
        while count > 0 {
            let end = self.shared.front().map_or(self.small.len(), |(at, _)| *at);
            let step = count.min(end - self.written);
            self.written += step;
            count -= step;
            if self.written == end
                && let Some((_, payload)) = self.shared.front_mut()
            {
                let step = count.min(payload.len());
                bytes::Buf::advance(payload, step);
                self.shared_bytes -= step;
                count -= step;
                if payload.is_empty() {
                    self.shared.pop_front();
                }
            }
        }
        if self.is_empty() {
            self.small.clear();
            self.written = 0;
            self.small.shrink_to(KEPT_BYTES_MAX);
        } else if self.written > WRITTEN_BYTES_MAX {
            self.small.drain(..self.written);
            self.shared.iter_mut().for_each(|(at, _)| *at -= self.written);
            self.written = 0;
        }
    }

    /// Where small things are appended.
    #[inline]
    pub(super) fn small(&mut self) -> &mut Vec<u8> {
        self.added = true;
        &mut self.small
    }

    /// Appends a payload.
    #[inline]
    pub(super) fn payload(&mut self, payload: Bytes) {
        if payload.len() < SHARED_BYTES_MIN {
            self.small.extend_from_slice(&payload);
        } else {
            self.shared_bytes += payload.len();
            self.shared.push_back((self.small.len(), payload));
        }
    }

    #[cfg(test)]
    pub(super) fn capacity(&self) -> usize {
        self.small.capacity()
    }

    /// Whether anything was added since the last call.
    pub(super) fn take_added(&mut self) -> bool {
        std::mem::take(&mut self.added)
    }

    /// Gives memory back that an idle connection does not need.
    pub(super) fn shrink(&mut self) {
        if self.is_empty() {
            *self = Self { added: self.added, ..Self::default() };
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn what_went_in_comes_out_in_order_however_it_is_taken(
            pieces in prop::collection::vec((0..9_000usize, any::<u8>(), any::<bool>()), 0..40),
            takes in prop::collection::vec(1..20_000usize, 1..200),
        ) {
            let (mut outbox, mut expected, mut got) = (Outbox::default(), Vec::new(), Vec::new());
            let mut takes = takes.into_iter().cycle();
            for (len, byte, take) in pieces {
                let payload = Bytes::from(vec![byte; len]);
                expected.push(!byte);
                expected.extend_from_slice(&payload);
                outbox.small().push(!byte);
                outbox.payload(payload);
                if take {
                    take_some(&mut outbox, takes.next().unwrap(), &mut got);
                }
            }
            prop_assert_eq!(outbox.len(), expected.len() - got.len());
            while !outbox.is_empty() {
                take_some(&mut outbox, takes.next().unwrap(), &mut got);
            }
            prop_assert_eq!(outbox.chunks().count(), 0);
            prop_assert_eq!(got, expected);
        }
    }

    fn take_some(outbox: &mut Outbox, count: usize, got: &mut Vec<u8>) {
        let all = outbox.chunks().collect::<Vec<_>>().concat();
        assert_eq!(all.len(), outbox.len());
        let count = count.min(all.len());
        got.extend_from_slice(&all[..count]);
        outbox.advance(count);
    }

    #[test]
    fn what_was_written_does_not_pile_up() {
        let mut outbox = Outbox::default();
        for _ in 0..100 {
            outbox.small().extend([0; 100_000]);
            outbox.advance(outbox.len() - 1);
        }
        assert!(outbox.small.len() < 2 * WRITTEN_BYTES_MAX);
    }

    #[test]
    fn large_payloads_are_shared() {
        let payload = Bytes::from(vec![7; SHARED_BYTES_MIN]);
        let mut outbox = Outbox::default();
        outbox.payload(payload.clone());
        assert_eq!(outbox.chunk().as_ptr(), payload.as_ptr());
    }
}
