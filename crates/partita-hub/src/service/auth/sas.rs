//! Shared access signatures as the hub judges them. Reading, signing and proving them is AMQP's `sas`, which clients share.

use partita_core::model::Timestamp;
use partita_dialect::sas::{self, MalformedToken};
pub(super) use partita_dialect::sas::{Token, same_bytes};
use thiserror::Error;

use super::rules::Key;

/// Why a token is not accepted. The words begin as the service's do.
#[derive(Clone, PartialEq, Eq, Debug, Error)]
pub enum TokenError {
    /// It is no shared access signature.
    #[error("MalformedToken: The token is not a shared access signature: {0}.")]
    Malformed(#[from] MalformedToken),
    /// No rule has its name, it was not signed with the rule's key, or the rule does not hold there: who guesses is not told
    /// which.
    #[error("InvalidSignature: The token has an invalid signature.")]
    BadSignature,
    /// Its time is over.
    #[error("ExpiredToken: The token is expired. Expiration time: {0}.")]
    Expired(Timestamp),
    /// It was signed for something else.
    #[error(
        "InvalidAudience: The authorization header contains a token that was signed for another resource."
    )]
    OtherAudience,
}

/// A token for `resource` until `expires`, signed with a rule's key.
pub fn sign(resource: &str, rule: &str, key: &Key, expires: Timestamp) -> String {
    sas::sign(resource, rule, key.bytes(), expires)
}
