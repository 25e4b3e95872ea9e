//! The states of a delivery (3.4).

use partita_core::model::Value;

use super::Error;
use super::field::{Composite, Field, composite};
use crate::message::Map;
use crate::types::{self, DecodeError, EncodeError, Fields, code};

/// What became of a delivery.
#[derive(Clone, PartialEq, Debug)]
pub enum DeliveryState {
    /// So much of it has arrived. Not an outcome.
    Received {
        /// The section.
        section_number: u32,
        /// The byte in it.
        section_offset: u64,
    },
    /// The receiver took it.
    Accepted,
    /// The receiver cannot use it, and says why.
    Rejected(Option<Box<Error>>),
    /// The receiver did nothing with it and will not.
    Released,
    /// As released, and the message is to be changed.
    Modified {
        /// Counts as a failed attempt.
        delivery_failed: bool,
        /// Not to be sent to this receiver again.
        undeliverable_here: bool,
        /// To be merged into the message's annotations.
        annotations: Map,
    },
    /// Something else, such as a state within a transaction.
    Other(Box<Value>),
}

impl DeliveryState {
    /// Rejected for this reason.
    pub fn rejected(error: Error) -> Self {
        Self::Rejected(Some(Box::new(error)))
    }

    /// Whether it is an outcome, after which nothing follows.
    pub fn is_outcome(&self) -> bool {
        !matches!(self, Self::Received { .. } | Self::Other(_))
    }
}

composite! {
    Received = 0x23 {
        section_number: u32,
        section_offset: u64,
    }
}

const ACCEPTED: u8 = 0x24;
const RELEASED: u8 = 0x26;

composite! {
    Rejected = 0x25 {
        error: Option<Error>,
    }
}

composite! {
    Modified = 0x27 {
        delivery_failed: bool = false,
        undeliverable_here: bool = false,
        annotations: Map,
    }
}

impl Field for DeliveryState {
    #[inline]
    fn read(fields: &mut Fields<'_>) -> Result<Option<Self>, DecodeError> {
        let Some(0x23..=0x27) = fields.peek_descriptor() else {
            return Ok(match fields.value()? {
                Value::Null => None,
                value @ Value::Described(..) => Some(Self::Other(Box::new(value))),
                _ => return Err(DecodeError::Expected("delivery state")),
            });
        };
        let Some(mut composite) = fields.composite()? else { return Ok(None) };
        let fields = &mut composite.fields;
        Ok(Some(match composite.descriptor {
            0x23 => {
                let Received { section_number, section_offset } = Received::read_fields(fields)?;
                Self::Received { section_number, section_offset }
            }
            0x24 => Self::Accepted,
            0x25 => Self::Rejected(Rejected::read_fields(fields)?.error.map(Box::new)),
            0x26 => Self::Released,
            _ => {
                let Modified { delivery_failed, undeliverable_here, annotations } =
                    Modified::read_fields(fields)?;
                Self::Modified { delivery_failed, undeliverable_here, annotations }
            }
        }))
    }

    fn write(&self, out: &mut Vec<u8>) -> Result<(), EncodeError> {
        let mut empty = |descriptor| {
            types::smallulong_descriptor(descriptor, out);
            out.push(code::LIST_0);
            Ok(())
        };
        match self {
            Self::Accepted => empty(ACCEPTED),
            Self::Released => empty(RELEASED),
            Self::Received { section_number, section_offset } => {
                Received { section_number: *section_number, section_offset: *section_offset }.encode(out)
            }
            Self::Rejected(error) => Rejected { error: error.as_deref().cloned() }.encode(out),
            Self::Modified { delivery_failed, undeliverable_here, annotations } => Modified {
                delivery_failed: *delivery_failed,
                undeliverable_here: *undeliverable_here,
                annotations: annotations.clone(),
            }
            .encode(out),
            Self::Other(value) => types::encode(value, out),
        }
    }
}
