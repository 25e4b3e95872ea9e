//! Where messages come from and go to (3.5.3, 3.5.4).

use std::sync::Arc;

use partita_core::model::Value;

use super::field::{Composite, Field, composite};
use crate::message::Map;
use crate::types::{self, DecodeError, EncodeError, Fields, Symbol};

composite! {
    /// Where messages come from.
    pub Source = 0x28 {
        address: Option<Arc<str>>,
        durable: u32 = 0,
        expiry_policy: Option<Symbol>,
        timeout_s: u32 = 0,
        dynamic: bool = false,
        dynamic_node_properties: Map,
        distribution_mode: Option<Symbol>,
        /// A map, or null. As it came, because clients want to see it again in the answer.
        filter: Value,
        default_outcome: Value,
        outcomes: Vec<Symbol>,
        capabilities: Vec<Symbol>,
    }
}

impl Default for Source {
    fn default() -> Self {
        Self {
            address: None,
            durable: 0,
            expiry_policy: None,
            timeout_s: 0,
            dynamic: false,
            dynamic_node_properties: Map::new(),
            distribution_mode: None,
            filter: Value::Null,
            default_outcome: Value::Null,
            outcomes: Vec::new(),
            capabilities: Vec::new(),
        }
    }
}

impl Source {
    /// The filter of this name.
    pub fn filter(&self, name: &str) -> Option<&Value> {
        let Value::Map(pairs) = &self.filter else { return None };
        pairs.iter().find(|(key, _)| key.as_str() == Some(name)).map(|(_, value)| value)
    }
}

impl From<&str> for Source {
    fn from(address: &str) -> Self {
        Self { address: Some(address.into()), ..Self::default() }
    }
}

composite! {
    /// A node that messages go to.
    #[derive(Default)]
    pub Node = 0x29 {
        address: Option<Arc<str>>,
        durable: u32 = 0,
        expiry_policy: Option<Symbol>,
        timeout_s: u32 = 0,
        dynamic: bool = false,
        dynamic_node_properties: Map,
        capabilities: Vec<Symbol>,
    }
}

/// Where messages go.
#[derive(Clone, PartialEq, Debug)]
pub enum Target {
    /// A node.
    Node(Box<Node>),
    /// Something else, such as the coordinator of transactions.
    Other(Box<Value>),
}

impl Target {
    /// The node of this address.
    pub fn to(address: &str) -> Self {
        Self::Node(Box::new(Node { address: Some(address.into()), ..Node::default() }))
    }

    /// The node's address.
    pub fn address(&self) -> Option<&str> {
        match self {
            Self::Node(node) => node.address.as_deref(),
            Self::Other(_) => None,
        }
    }
}

impl Field for Target {
    fn read(fields: &mut Fields<'_>) -> Result<Option<Self>, DecodeError> {
        if fields.peek_descriptor() == Some(Node::DESCRIPTOR.into()) {
            return Ok(Node::read(fields)?.map(|node| Self::Node(Box::new(node))));
        }
        match fields.value()? {
            Value::Null => Ok(None),
            value @ Value::Described(..) => Ok(Some(Self::Other(Box::new(value)))),
            _ => Err(DecodeError::Expected("target")),
        }
    }

    fn write(&self, out: &mut Vec<u8>) -> Result<(), EncodeError> {
        match self {
            Self::Node(node) => node.encode(out),
            Self::Other(value) => types::encode(value, out),
        }
    }
}
