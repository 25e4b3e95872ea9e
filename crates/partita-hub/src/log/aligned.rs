//! Buffers that start at a block boundary, which direct I/O asks for, without unsafe code: a vector one block longer
//! than needed always holds an aligned stretch, and its heap address does not change when the vector moves.

use std::sync::Arc;

use super::format::BLOCK;

/// A growable run of bytes whose first byte lies at a block boundary in memory. Its capacity is fixed.
#[derive(Debug)]
pub(crate) struct AlignedBuf {
    raw: Vec<u8>,
    start: usize,
    len: usize,
}

impl AlignedBuf {
    /// An empty buffer for up to `capacity` bytes, rounded up to whole blocks.
    pub(crate) fn with_capacity(capacity: usize) -> Self {
        let raw = vec![0; capacity.next_multiple_of(BLOCK) + BLOCK];
        let start = raw.as_ptr().align_offset(BLOCK);
        Self { raw, start, len: 0 }
    }

    /// How many bytes fit.
    pub(crate) fn capacity(&self) -> usize {
        self.raw.len() - BLOCK
    }

    /// The bytes written so far.
    pub(crate) fn as_slice(&self) -> &[u8] {
        &self.raw[self.start..self.start + self.len]
    }

    /// The bytes written so far, to change them.
    pub(crate) fn as_mut_slice(&mut self) -> &mut [u8] {
        &mut self.raw[self.start..self.start + self.len]
    }

    /// Forgets the content and keeps the memory.
    pub(crate) fn clear(&mut self) {
        self.len = 0;
    }

    /// Appends `bytes`. Panics beyond the capacity: callers compute lengths first.
    pub(crate) fn extend(&mut self, bytes: &[u8]) {
        let at = self.start + self.len;
        self.raw[at..at + bytes.len()].copy_from_slice(bytes);
        self.len += bytes.len();
    }

    /// Appends zeros up to the next block boundary.
    pub(crate) fn pad_to_block(&mut self) {
        let len = self.len.next_multiple_of(BLOCK);
        self.raw[self.start + self.len..self.start + len].fill(0);
        self.len = len;
    }
}

/// A shared buffer as the owner of [`bytes::Bytes`], so that readers slice a commit without copying it.
#[derive(Clone, Debug)]
pub(crate) struct SharedBuf(pub(crate) Arc<AlignedBuf>);

impl AsRef<[u8]> for SharedBuf {
    fn as_ref(&self) -> &[u8] {
        self.0.as_slice()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stays_aligned_when_moved_and_pads_with_zeros() {
        let mut buf = AlignedBuf::with_capacity(10_000);
        buf.extend(&[7; 5_000]);
        let mut moved = Box::new(buf);
        moved.pad_to_block();
        assert_eq!(moved.as_slice().as_ptr().align_offset(BLOCK), 0);
        assert_eq!(moved.as_slice().len(), 2 * BLOCK);
        assert_eq!(moved.capacity(), 3 * BLOCK);
        assert!(moved.as_slice()[5_000..].iter().all(|b| *b == 0));
    }
}
