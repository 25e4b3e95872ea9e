//! Symbols: names from a fixed vocabulary, in ASCII.

use std::fmt;
use std::ops::Deref;
use std::sync::Arc;

use partita_core::model::Value;

/// A symbol, such as the condition of an error or the name of a capability.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Symbol(pub Arc<str>);

impl Symbol {
    /// Its text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl Deref for Symbol {
    type Target = str;

    fn deref(&self) -> &str {
        &self.0
    }
}

impl<T: Into<Arc<str>>> From<T> for Symbol {
    fn from(text: T) -> Self {
        Self(text.into())
    }
}

impl From<Symbol> for Value {
    fn from(symbol: Symbol) -> Self {
        Self::Symbol(symbol.0)
    }
}

impl PartialEq<str> for Symbol {
    fn eq(&self, other: &str) -> bool {
        &*self.0 == other
    }
}

impl PartialEq<&str> for Symbol {
    fn eq(&self, other: &&str) -> bool {
        &*self.0 == *other
    }
}

impl fmt::Display for Symbol {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Debug for Symbol {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&self.0, f)
    }
}
