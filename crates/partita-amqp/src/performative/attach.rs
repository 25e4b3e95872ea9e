//! Attach and detach of a link (2.7.3, 2.7.7).

use std::sync::Arc;

use partita_core::model::Value;

use super::field::{Composite, Field, composite};
use super::{Error, Source, Target};
use crate::message::Map;
use crate::types::{DecodeError, EncodeError, Fields, Symbol, code};

composite! {
    /// The start of a link, or the answer to one.
    pub Attach = 0x12 {
        name: Arc<str>,
        handle: u32,
        /// Of whoever writes this.
        role: Role,
        snd_settle_mode: SenderSettleMode = SenderSettleMode::Mixed,
        rcv_settle_mode: ReceiverSettleMode = ReceiverSettleMode::First,
        source: Option<Source>,
        target: Option<Target>,
        unsettled: Value,
        incomplete_unsettled: bool = false,
        initial_delivery_count: Option<u32>,
        /// `None` or 0: no limit.
        max_message_size: Option<u64>,
        offered_capabilities: Vec<Symbol>,
        desired_capabilities: Vec<Symbol>,
        properties: Map,
    }
}

impl Attach {
    /// A link of this name, in which the writer has this role.
    pub fn new(name: impl Into<Arc<str>>, role: Role) -> Self {
        Self {
            name: name.into(),
            handle: 0,
            role,
            snd_settle_mode: SenderSettleMode::Mixed,
            rcv_settle_mode: ReceiverSettleMode::First,
            source: None,
            target: None,
            unsettled: Value::Null,
            incomplete_unsettled: false,
            initial_delivery_count: None,
            max_message_size: None,
            offered_capabilities: Vec::new(),
            desired_capabilities: Vec::new(),
            properties: Map::new(),
        }
    }

    /// A link that sends to `address`.
    pub fn sender(name: impl Into<Arc<str>>, address: &str) -> Self {
        let mut attach = Self::new(name, Role::Sender);
        attach.source = Some(Source::default());
        attach.target = Some(Target::to(address));
        attach
    }

    /// A link that receives from `address`.
    pub fn receiver(name: impl Into<Arc<str>>, address: &str) -> Self {
        let mut attach = Self::new(name, Role::Receiver);
        attach.source = Some(Source::from(address));
        attach.target = Some(Target::Node(Box::default()));
        attach
    }

    /// The answer that grants what was asked for: termini and settle modes are the same, the role is the other.
    /// Capabilities and properties are not repeated.
    pub fn answer(&self) -> Self {
        Self {
            snd_settle_mode: self.snd_settle_mode,
            rcv_settle_mode: self.rcv_settle_mode,
            source: self.source.clone(),
            target: self.target.clone(),
            ..Self::new(self.name.clone(), self.role.other())
        }
    }

    /// The address at the far end of the link, seen from whoever answers: where the writer wants to receive from or send to.
    pub fn address(&self) -> Option<&str> {
        match self.role {
            Role::Receiver => self.source.as_ref()?.address.as_deref(),
            Role::Sender => self.target.as_ref()?.address(),
        }
    }

    /// The property of this name.
    pub fn property(&self, name: &str) -> Option<&Value> {
        self.properties.iter().find(|(key, _)| key.as_str() == Some(name)).map(|(_, value)| value)
    }
}

/// The answer to an attach that is refused, as the service writes it: which link it is, and null in every other field. A
/// detach that says why follows.
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct Refused {
    pub(crate) name: Arc<str>,
    pub(crate) handle: u32,
    pub(crate) role: Role,
}

impl Composite for Refused {
    const DESCRIPTOR: u8 = Attach::DESCRIPTOR;
    const FIELDS: u8 = Attach::FIELDS;

    fn read_fields(fields: &mut Fields<'_>) -> Result<Self, DecodeError> {
        let Attach { name, handle, role, .. } = Attach::read_fields(fields)?;
        Ok(Self { name, handle, role })
    }

    fn write_fields(&self, out: &mut Vec<u8>) -> Result<(), EncodeError> {
        self.name.write(out)?;
        self.handle.write(out)?;
        self.role.write(out)?;
        out.resize(out.len() + usize::from(Self::FIELDS) - 3, code::NULL);
        Ok(())
    }
}

composite! {
    /// The end of a link.
    pub Detach = 0x16 {
        handle: u32,
        /// Whether the link is gone for good, rather than to be resumed.
        closed: bool = false,
        error: Option<Error>,
    }
}

/// A side of a link.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[allow(missing_docs)]
pub enum Role {
    Sender,
    Receiver,
}

impl Role {
    /// The other side.
    pub fn other(self) -> Self {
        match self {
            Self::Sender => Self::Receiver,
            Self::Receiver => Self::Sender,
        }
    }
}

impl Field for Role {
    #[inline]
    fn read(fields: &mut Fields<'_>) -> Result<Option<Self>, DecodeError> {
        Ok(fields.boolean()?.map(|receiver| if receiver { Self::Receiver } else { Self::Sender }))
    }

    #[inline]
    fn write(&self, out: &mut Vec<u8>) -> Result<(), EncodeError> {
        (*self == Self::Receiver).write(out)
    }
}

/// How a sender settles.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[allow(missing_docs)]
pub enum SenderSettleMode {
    Unsettled,
    Settled,
    Mixed,
}

impl Field for SenderSettleMode {
    fn read(fields: &mut Fields<'_>) -> Result<Option<Self>, DecodeError> {
        Ok(match fields.unsigned()? {
            None => None,
            Some(0) => Some(Self::Unsettled),
            Some(1) => Some(Self::Settled),
            Some(2) => Some(Self::Mixed),
            Some(_) => return Err(DecodeError::BadValue("snd-settle-mode")),
        })
    }

    fn write(&self, out: &mut Vec<u8>) -> Result<(), EncodeError> {
        (*self as u8).write(out)
    }
}

/// When a receiver settles: at once, or after the sender did.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[allow(missing_docs)]
pub enum ReceiverSettleMode {
    First,
    Second,
}

impl Field for ReceiverSettleMode {
    #[inline]
    fn read(fields: &mut Fields<'_>) -> Result<Option<Self>, DecodeError> {
        Ok(match fields.unsigned()? {
            None => None,
            Some(0) => Some(Self::First),
            Some(1) => Some(Self::Second),
            Some(_) => return Err(DecodeError::BadValue("rcv-settle-mode")),
        })
    }

    fn write(&self, out: &mut Vec<u8>) -> Result<(), EncodeError> {
        (*self as u8).write(out)
    }
}
