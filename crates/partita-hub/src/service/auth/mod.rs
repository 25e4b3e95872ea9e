//! Who may do what: rules with keys, tokens signed with them, and what a connection was granted by its tokens.

mod rules;
mod sas;
#[cfg(test)]
mod tests;
mod tokens;

pub use rules::{Key, Right, Rights, Rule, RuleScope, Rules, WELL_KNOWN_KEY, WELL_KNOWN_NAME};
pub use sas::{TokenError, sign};
pub use tokens::{Grant, TOKENS_MAX, Tokens};
