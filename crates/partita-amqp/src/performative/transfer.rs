//! Transfer (2.7.5): one per message at least, so nothing in it is allocated unless it holds a state or a very long tag.

use std::fmt;

use bytes::Bytes;

use super::field::{Composite, Field, composite};
use super::{DeliveryState, ReceiverSettleMode};
use crate::types::{DecodeError, Decoder, EncodeError, Fields, code};

/// The longest delivery tag that is taken, as the Event Hubs service does: the standard allows 32 bytes, and the legacy
/// Java SDK sends 34 and more.
pub const TAG_BYTES_MAX: usize = 255;
const STANDARD_TAG_BYTES_MAX: usize = 32;

composite! {
    /// The head of a message, or of a part of one: the payload follows it in the frame.
    pub Transfer = 0x14 {
        handle: u32,
        delivery_id: Option<u32>,
        delivery_tag: Option<DeliveryTag>,
        message_format: Option<u32>,
        settled: Option<bool>,
        more: bool = false,
        rcv_settle_mode: Option<ReceiverSettleMode>,
        state: Option<DeliveryState>,
        resume: bool = false,
        aborted: bool = false,
        batchable: bool = false,
    }
}

impl Transfer {
    /// Reads the body of a frame if it is a transfer in the usual form, with the payload. Anything else is for
    /// [`Performative::decode`](super::Performative::decode), errors too.
    #[inline]
    pub(crate) fn decode_usual<'a>(input: &'a Bytes, body: &'a [u8]) -> Option<(Self, &'a [u8])> {
        let rest = body.strip_prefix(&[code::DESCRIBED, code::ULONG_8, Self::DESCRIPTOR])?;
        let mut decoder = Decoder::within(input, rest, super::PERFORMATIVE_VALUES_MAX);
        let transfer = Self::read_fields(&mut decoder.fields().ok()?).ok()?;
        Some((transfer, decoder.rest()))
    }

    /// A further part of a delivery on this link.
    pub fn part(handle: u32) -> Self {
        Self {
            handle,
            delivery_id: None,
            delivery_tag: None,
            message_format: None,
            settled: None,
            more: false,
            rcv_settle_mode: None,
            state: None,
            resume: false,
            aborted: false,
            batchable: false,
        }
    }
}

/// What the sender calls a delivery, within its link. Held in place up to the standard's 32 bytes, which is what all but
/// a few clients keep to: those cost an allocation.
#[derive(Clone)]
pub struct DeliveryTag(Repr);

#[derive(Clone)]
enum Repr {
    Short { bytes: [u8; STANDARD_TAG_BYTES_MAX], len: u8 },
    Long(Box<[u8]>),
}

impl DeliveryTag {
    /// The tag of these bytes, if they are not more than [`TAG_BYTES_MAX`].
    #[inline]
    pub fn new(tag: &[u8]) -> Option<Self> {
        let mut bytes = [0; STANDARD_TAG_BYTES_MAX];
        match bytes.get_mut(..tag.len()) {
            Some(place) => {
                place.copy_from_slice(tag);
                Some(Self(Repr::Short { bytes, len: tag.len() as u8 }))
            }
            None => (tag.len() <= TAG_BYTES_MAX).then(|| Self(Repr::Long(tag.into()))),
        }
    }

    /// Its bytes.
    #[inline]
    pub fn as_bytes(&self) -> &[u8] {
        match &self.0 {
            Repr::Short { bytes, len } => &bytes[..usize::from(*len)],
            Repr::Long(bytes) => bytes,
        }
    }
}

impl From<u64> for DeliveryTag {
    /// The number's eight bytes.
    #[inline]
    fn from(number: u64) -> Self {
        let mut bytes = [0; STANDARD_TAG_BYTES_MAX];
        bytes[..8].copy_from_slice(&number.to_be_bytes());
        Self(Repr::Short { bytes, len: 8 })
    }
}

impl PartialEq for DeliveryTag {
    fn eq(&self, other: &Self) -> bool {
        self.as_bytes() == other.as_bytes()
    }
}

impl Eq for DeliveryTag {}

impl fmt::Debug for DeliveryTag {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:02x?}", self.as_bytes())
    }
}

impl Field for DeliveryTag {
    #[inline]
    fn read(fields: &mut Fields<'_>) -> Result<Option<Self>, DecodeError> {
        let Some(bytes) = fields.bytes()? else { return Ok(None) };
        Self::new(bytes).map(Some).ok_or(DecodeError::BadValue("delivery tag of at most 255 bytes"))
    }

    #[inline]
    fn write(&self, out: &mut Vec<u8>) -> Result<(), EncodeError> {
        let bytes = self.as_bytes();
        // At most TAG_BYTES_MAX, which one byte holds.
        out.extend_from_slice(&[code::BINARY_8, bytes.len() as u8]);
        out.extend_from_slice(bytes);
        Ok(())
    }
}
