//! The bodies of AMQP frames (2.7), with what they hold: termini, delivery states and errors. One file per chapter.
//!
//! All are written at full length, nulls included: some clients index the fields by position and never pad. All are read
//! leniently: trailing fields may be missing, and numbers may have any width.

mod attach;
mod begin;
#[cfg(test)]
mod cross_check;
mod disposition;
mod error;
pub(crate) mod field;
mod flow;
mod open;
mod state;
mod terminus;
#[cfg(test)]
pub(crate) mod tests;
mod transfer;

pub(crate) use attach::Refused;
pub use attach::{Attach, Detach, ReceiverSettleMode, Role, SenderSettleMode};
pub use begin::{Begin, End};
use bytes::Bytes;
pub use disposition::Disposition;
pub use error::{Error, condition};
pub use flow::Flow;
pub use open::{Close, Open};
pub use state::DeliveryState;
pub use terminus::{Node, Source, Target};
pub use transfer::{DeliveryTag, TAG_BYTES_MAX, Transfer};

use self::field::Composite;
use crate::types::{DecodeError, Decoder, EncodeError};

/// How many values one performative may hold, inner ones counted: properties, filters and the like. Not more than their
/// bytes would make, but for types without bytes.
pub const PERFORMATIVE_VALUES_MAX: usize = 1 << 10;

/// The body of a frame.
#[derive(Clone, PartialEq, Debug)]
#[allow(missing_docs)] // The variants are the standard's.
pub enum Performative {
    Open(Box<Open>),
    Begin(Box<Begin>),
    Attach(Box<Attach>),
    Flow(Flow),
    Transfer(Transfer),
    Disposition(Disposition),
    Detach(Detach),
    End(End),
    Close(Close),
}

/// The number of a descriptor that is written by its name.
pub(crate) fn descriptor_of(name: &str) -> Option<u64> {
    Some(match name {
        "amqp:open:list" => 0x10,
        "amqp:begin:list" => 0x11,
        "amqp:attach:list" => 0x12,
        "amqp:flow:list" => 0x13,
        "amqp:transfer:list" => 0x14,
        "amqp:disposition:list" => 0x15,
        "amqp:detach:list" => 0x16,
        "amqp:end:list" => 0x17,
        "amqp:close:list" => 0x18,
        "amqp:error:list" => 0x1d,
        "amqp:received:list" => 0x23,
        "amqp:accepted:list" => 0x24,
        "amqp:rejected:list" => 0x25,
        "amqp:released:list" => 0x26,
        "amqp:modified:list" => 0x27,
        "amqp:source:list" => 0x28,
        "amqp:target:list" => 0x29,
        "amqp:sasl-mechanisms:list" => 0x40,
        "amqp:sasl-init:list" => 0x41,
        "amqp:sasl-challenge:list" => 0x42,
        "amqp:sasl-response:list" => 0x43,
        "amqp:sasl-outcome:list" => 0x44,
        _ => return None,
    })
}

impl Performative {
    /// Reads the body of a frame. What follows the performative is the payload, which only transfers have.
    pub fn decode(body: &Bytes) -> Result<(Self, Bytes), DecodeError> {
        let (performative, payload) = Self::decode_within(body, body)?;
        Ok((performative, body.slice_ref(payload)))
    }

    /// As `decode`, for a body that lies within `input`, whose memory binaries share.
    #[inline]
    pub(crate) fn decode_within<'a>(
        input: &'a Bytes,
        body: &'a [u8],
    ) -> Result<(Self, &'a [u8]), DecodeError> {
        let mut decoder = Decoder::within(input, body, PERFORMATIVE_VALUES_MAX);
        let descriptor = decoder.descriptor()?;
        let mut fields = decoder.fields()?;
        let fields = &mut fields;
        let performative = match descriptor {
            0x10 => Self::Open(Box::new(Open::read_fields(fields)?)),
            0x11 => Self::Begin(Box::new(Begin::read_fields(fields)?)),
            0x12 => Self::Attach(Box::new(Attach::read_fields(fields)?)),
            0x13 => Self::Flow(Flow::read_fields(fields)?),
            0x14 => Self::Transfer(Transfer::read_fields(fields)?),
            0x15 => Self::Disposition(Disposition::read_fields(fields)?),
            0x16 => Self::Detach(Detach::read_fields(fields)?),
            0x17 => Self::End(End::read_fields(fields)?),
            0x18 => Self::Close(Close::read_fields(fields)?),
            _ => return Err(DecodeError::Expected("performative")),
        };
        Ok((performative, decoder.rest()))
    }

    /// Appends it. `out` is of no use after an error.
    pub fn encode(&self, out: &mut Vec<u8>) -> Result<(), EncodeError> {
        match self {
            Self::Open(open) => open.encode(out),
            Self::Begin(begin) => begin.encode(out),
            Self::Attach(attach) => attach.encode(out),
            Self::Flow(flow) => flow.encode(out),
            Self::Transfer(transfer) => transfer.encode(out),
            Self::Disposition(disposition) => disposition.encode(out),
            Self::Detach(detach) => detach.encode(out),
            Self::End(end) => end.encode(out),
            Self::Close(close) => close.encode(out),
        }
    }
}

macro_rules! performative {
    ($($name:ident => $wrapped:expr;)*) => {
        $(impl From<$name> for Performative {
            fn from(body: $name) -> Self {
                $wrapped(body)
            }
        })*
    };
}

performative! {
    Open => |x| Self::Open(Box::new(x));
    Begin => |x| Self::Begin(Box::new(x));
    Attach => |x| Self::Attach(Box::new(x));
    Flow => Self::Flow;
    Transfer => Self::Transfer;
    Disposition => Self::Disposition;
    Detach => Self::Detach;
    End => Self::End;
    Close => Self::Close;
}
