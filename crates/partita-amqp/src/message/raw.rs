//! The sections of a message where they lie, checked but not decoded: for who passes messages on.

use bytes::Bytes;

use super::decode::{header, list};
use super::{MessageError, Seen, section};
use crate::types::{Checker, DecodeError, Decoder, RawMap};

/// One section.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RawSection<'a> {
    /// Its bytes, descriptor included.
    pub bytes: &'a [u8],
    /// What it holds.
    pub content: RawContent<'a>,
}

/// What a section holds, as far as it is looked at here.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum RawContent<'a> {
    /// How the message is to be transferred.
    Header,
    /// For the next hop only.
    DeliveryAnnotations(RawMap<'a>),
    /// For the infrastructure.
    MessageAnnotations(RawMap<'a>),
    /// The immutable properties.
    Properties,
    /// The application's properties.
    ApplicationProperties(RawMap<'a>),
    /// A data section's binary.
    Data(&'a [u8]),
    /// A section that is a list of values.
    Sequence,
    /// The one value of a body.
    Value,
    /// What could only be known at the end.
    Footer(RawMap<'a>),
}

impl RawContent<'_> {
    /// Whether it is of the body.
    pub fn is_body(&self) -> bool {
        matches!(self, Self::Data(_) | Self::Sequence | Self::Value)
    }
}

/// Goes over the sections of a message, in whatever order they are. If none fails and there is a body, [`decode`](super::decode) takes the message.
#[derive(Clone, Debug)]
pub struct Sections<'a> {
    checker: Checker<'a>,
    seen: Seen,
}

impl<'a> Sections<'a> {
    /// Over these bytes, all of them.
    pub fn new(checker: Checker<'a>) -> Self {
        Self { checker, seen: Seen::default() }
    }

    /// The next section; `None` at the end. There is nothing behind an error.
    #[allow(clippy::should_implement_trait)] // The error ends it, which an iterator's user would have to know.
    pub fn next(&mut self) -> Result<Option<RawSection<'a>>, MessageError> {
        if self.checker.is_empty() {
            return Ok(None);
        }
        let before = self.checker.rest();
        let number = self.checker.descriptor()?;
        let kind = self.seen.add(number)?;
        let content = self.content(kind)?;
        Ok(Some(RawSection { bytes: &before[..before.len() - self.checker.rest().len()], content }))
    }

    /// Whether there was a body so far.
    pub fn has_body(&self) -> bool {
        self.seen.body.is_some()
    }

    /// How many more values may come.
    pub fn values_left(&self) -> usize {
        self.checker.values_left()
    }

    fn content(&mut self, kind: u8) -> Result<RawContent<'a>, DecodeError> {
        let checker = &mut self.checker;
        Ok(match kind {
            section::HEADER => {
                // Rare, and its fields have types of their own.
                let fields = Bytes::copy_from_slice(checker.list_or_null()?);
                header(&list(&mut Decoder::new(&fields))?)?;
                RawContent::Header
            }
            section::DELIVERY_ANNOTATIONS => RawContent::DeliveryAnnotations(checker.map()?),
            section::MESSAGE_ANNOTATIONS => RawContent::MessageAnnotations(checker.map()?),
            section::PROPERTIES => {
                checker.list_or_null()?;
                RawContent::Properties
            }
            section::APPLICATION_PROPERTIES => RawContent::ApplicationProperties(checker.map()?),
            section::DATA => RawContent::Data(checker.binary_or_null()?),
            section::SEQUENCE => {
                checker.list()?;
                RawContent::Sequence
            }
            section::VALUE => {
                checker.value()?;
                RawContent::Value
            }
            _ => RawContent::Footer(checker.map()?),
        })
    }
}
