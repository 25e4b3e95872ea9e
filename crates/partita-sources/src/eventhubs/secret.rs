//! Text that must not be seen.

use std::fmt;
use std::sync::Arc;

/// A key or token. It is never shown, neither by `Debug` nor in an error.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret(Arc<str>);

impl Secret {
    /// The text itself, for whoever signs or sends it.
    pub fn expose(&self) -> &str {
        &self.0
    }
}

impl<T: AsRef<str>> From<T> for Secret {
    fn from(text: T) -> Self {
        Self(Arc::from(text.as_ref()))
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("hidden")
    }
}
