//! Frames and protocol headers (2.2, 2.3): the outermost bytes of a connection.

use thiserror::Error;

/// The size of a protocol header.
pub const HEADER_BYTES: usize = 8;

/// The size of a frame without extended header and body, which is a heartbeat.
pub const FRAME_HEAD_BYTES: usize = 8;

/// The largest frame that every peer takes, whatever it says.
pub const FRAME_BYTES_MIN: u32 = 512;

/// What is spoken after a protocol header.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[allow(missing_docs)] // The standard's names.
pub enum Protocol {
    Amqp,
    Tls,
    Sasl,
}

impl Protocol {
    /// The header, of version 1.0.0.
    pub const fn header(self) -> [u8; HEADER_BYTES] {
        let id = match self {
            Self::Amqp => 0,
            Self::Tls => 2,
            Self::Sasl => 3,
        };
        [b'A', b'M', b'Q', b'P', id, 1, 0, 0]
    }

    /// The protocol of this header, if it is one of version 1.0.0.
    pub fn of(header: &[u8; HEADER_BYTES]) -> Option<Self> {
        [Self::Amqp, Self::Tls, Self::Sasl].into_iter().find(|protocol| protocol.header() == *header)
    }
}

/// What a frame belongs to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[allow(missing_docs)] // The standard's names.
pub enum FrameKind {
    Amqp,
    Sasl,
}

/// A frame. One without body keeps the connection alive and does nothing else.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Frame<'a> {
    /// What it belongs to.
    pub kind: FrameKind,
    /// The session's channel; of no meaning in SASL.
    pub channel: u16,
    /// Performative and payload.
    pub body: &'a [u8],
}

/// Why bytes are no frame.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Error)]
#[non_exhaustive]
pub enum FrameError {
    /// Larger than was agreed.
    #[error("a frame of {size} bytes is larger than the agreed {max}")]
    TooLarge {
        /// What the frame says.
        size: u32,
        /// What we said.
        max: u32,
    },
    /// Smaller than its own head.
    #[error("a frame of {0} bytes is smaller than its head")]
    TooSmall(u32),
    /// The body begins within the head, or after the end.
    #[error("a frame of {size} bytes has its data at word {doff}")]
    BadOffset {
        /// What the frame says.
        size: u32,
        /// Where the body begins, in words of four bytes.
        doff: u8,
    },
    /// Neither AMQP nor SASL.
    #[error("no frame has the type {0}")]
    UnknownType(u8),
}

/// The size of the frame that begins here, if four bytes are there to say so.
#[inline]
pub fn size(input: &[u8], max: u32) -> Result<Option<usize>, FrameError> {
    let Some(size) = input.first_chunk() else { return Ok(None) };
    let size = u32::from_be_bytes(*size);
    if size > max {
        return Err(FrameError::TooLarge { size, max });
    }
    if (size as usize) < FRAME_HEAD_BYTES {
        return Err(FrameError::TooSmall(size));
    }
    Ok(Some(size as usize))
}

/// The frame that begins here and the bytes it takes, if it is there as a whole.
#[inline]
pub fn decode(input: &[u8], max: u32) -> Result<Option<(Frame<'_>, usize)>, FrameError> {
    let Some(size) = size(input, max)? else { return Ok(None) };
    let Some(frame) = input.get(..size) else { return Ok(None) };
    let (doff, kind) = (frame[4], frame[5]);
    let body = usize::from(doff) * 4;
    if body < FRAME_HEAD_BYTES || body > size {
        return Err(FrameError::BadOffset { size: size as u32, doff });
    }
    let kind = match kind {
        0 => FrameKind::Amqp,
        1 => FrameKind::Sasl,
        other => return Err(FrameError::UnknownType(other)),
    };
    let channel = u16::from_be_bytes([frame[6], frame[7]]);
    Ok(Some((Frame { kind, channel, body: &frame[body..] }, size)))
}

/// Appends a head without size. Returns where the frame begins, for [`finish`].
#[inline]
pub fn begin(kind: FrameKind, channel: u16, out: &mut Vec<u8>) -> usize {
    let start = out.len();
    let [high, low] = channel.to_be_bytes();
    out.extend_from_slice(&[0, 0, 0, 0, 2, kind as u8, high, low]);
    start
}

/// Writes the size of the frame that begins at `start` and ends `apart` bytes after the end of `out`: a payload may follow
/// from elsewhere.
#[inline]
pub fn finish(start: usize, apart: usize, out: &mut [u8]) {
    let size = (out.len() - start + apart) as u32;
    out[start..start + 4].copy_from_slice(&size.to_be_bytes());
}

/// Appends a heartbeat.
pub fn heartbeat(out: &mut Vec<u8>) {
    let start = begin(FrameKind::Amqp, 0, out);
    finish(start, 0, out);
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_heartbeat_is_eight_bytes() {
        let mut out = Vec::new();
        heartbeat(&mut out);
        assert_eq!(out, [0, 0, 0, 8, 2, 0, 0, 0]);
        let frame = Frame { kind: FrameKind::Amqp, channel: 0, body: &[] };
        assert_eq!(decode(&out, 512), Ok(Some((frame, 8))));
    }

    #[test]
    fn headers_are_the_standards() {
        assert_eq!(&Protocol::Amqp.header(), b"AMQP\x00\x01\x00\x00");
        assert_eq!(&Protocol::Sasl.header(), b"AMQP\x03\x01\x00\x00");
        assert_eq!(Protocol::of(b"AMQP\x02\x01\x00\x00"), Some(Protocol::Tls));
        assert_eq!(Protocol::of(b"AMQP\x00\x00\x09\x01"), None);
    }

    #[test]
    fn an_extended_header_is_skipped() {
        let bytes = [0, 0, 0, 13, 3, 0, 0, 7, 1, 2, 3, 4, 0xaa];
        let frame = Frame { kind: FrameKind::Amqp, channel: 7, body: &[0xaa] };
        assert_eq!(decode(&bytes, 512), Ok(Some((frame, 13))));
    }

    #[test]
    fn bad_heads_are_refused() {
        let bad = |bytes: &[u8]| decode(bytes, 512).unwrap_err();
        assert_eq!(bad(&[0, 0, 2, 1]), FrameError::TooLarge { size: 513, max: 512 });
        assert_eq!(bad(&[0, 0, 0, 7]), FrameError::TooSmall(7));
        assert_eq!(bad(&[0, 0, 0, 8, 1, 0, 0, 0]), FrameError::BadOffset { size: 8, doff: 1 });
        assert_eq!(bad(&[0, 0, 0, 8, 3, 0, 0, 0]), FrameError::BadOffset { size: 8, doff: 3 });
        assert_eq!(bad(&[0, 0, 0, 8, 2, 9, 0, 0]), FrameError::UnknownType(9));
    }

    proptest! {
        #[test]
        fn any_bytes_are_a_frame_or_an_error_or_too_few(bytes in prop::collection::vec(any::<u8>(), 0..64)) {
            if let Ok(Some((frame, used))) = decode(&bytes, 64) {
                prop_assert!(used <= bytes.len() && frame.body.len() <= used - FRAME_HEAD_BYTES);
            }
        }
    }
}
