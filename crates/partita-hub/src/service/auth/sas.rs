//! Shared access signatures: a resource and an end, signed with a rule's key.

use std::borrow::Cow;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use hmac::{Hmac, KeyInit, Mac};
use partita_core::model::Timestamp;
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, percent_decode_str, utf8_percent_encode};
use sha2::Sha256;
use thiserror::Error;

use super::rules::Key;
use crate::service::address::Place;

const SCHEME: &str = "SharedAccessSignature ";

/// What is written as it is in a token; all else is escaped.
const ESCAPED: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'_').remove(b'.').remove(b'~');

/// Why a token is not accepted. The words begin as the service's do.
#[derive(Clone, PartialEq, Eq, Debug, Error)]
pub enum TokenError {
    /// It is no shared access signature.
    #[error("MalformedToken: The token is no shared access signature: {0}.")]
    Malformed(&'static str),
    /// No rule has its name.
    #[error("InvalidSignature: There is no shared access rule '{0}' here.")]
    UnknownRule(String),
    /// It was not signed with the rule's key, or the rule does not hold there.
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

/// A token taken apart. Nothing about it is proven yet.
pub(super) struct Token<'a> {
    /// As it was written: the signature covers this text, in whatever way the client escaped it.
    resource: &'a str,
    end: &'a str,
    signature: Vec<u8>,
    expires: Timestamp,
    pub(super) rule: Cow<'a, str>,
}

impl<'a> Token<'a> {
    pub(super) fn parse(text: &'a str) -> Result<Self, TokenError> {
        let fields = text.strip_prefix(SCHEME).ok_or(TokenError::Malformed("it does not begin as one"))?;
        let field = |name: &str| {
            let mut found = fields.split('&').filter_map(|field| field.split_once('='));
            found.find(|(key, _)| *key == name).map(|(_, value)| value)
        };
        let missing = TokenError::Malformed;
        let resource = field("sr").ok_or(missing("sr is missing"))?;
        let end = field("se").ok_or(missing("se is missing"))?;
        let signature = unescaped(field("sig").ok_or(missing("sig is missing"))?);
        let rule = unescaped(field("skn").ok_or(missing("skn is missing"))?);
        let seconds: i64 = end.parse().map_err(|_| missing("se is no number"))?;
        let signature = STANDARD.decode(&*signature).map_err(|_| missing("sig is no base64"))?;
        let expires = Timestamp(seconds.saturating_mul(1_000));
        Ok(Self { resource, end, signature, expires, rule })
    }

    pub(super) fn resource(&self) -> Place {
        Place::parse(&unescaped(self.resource))
    }

    pub(super) fn expires(&self) -> Timestamp {
        self.expires
    }

    /// Compares in a time that does not depend on where they differ.
    pub(super) fn is_signed_with(&self, key: &Key) -> bool {
        mac(key, self.resource, self.end).verify_slice(&self.signature).is_ok()
    }
}

fn unescaped(text: &str) -> Cow<'_, str> {
    percent_decode_str(text).decode_utf8_lossy()
}

fn mac(key: &Key, resource: &str, end: &str) -> Hmac<Sha256> {
    let mut mac =
        Hmac::<Sha256>::new_from_slice(key.bytes()).unwrap_or_else(|_| unreachable!("any length will do"));
    mac.update(resource.as_bytes());
    mac.update(b"\n");
    mac.update(end.as_bytes());
    mac
}

/// Compares in a time that does not depend on where they differ.
pub(super) fn same_bytes(a: &[u8], b: &[u8]) -> bool {
    let tag = |bytes: &[u8]| mac(&Key::new(""), &String::from_utf8_lossy(bytes), "");
    tag(a).verify(&tag(b).finalize().into_bytes()).is_ok() && a.len() == b.len()
}

/// A token for `resource` until `expires`, signed with a rule's key.
pub fn sign(resource: &str, rule: &str, key: &Key, expires: Timestamp) -> String {
    let resource = utf8_percent_encode(resource, ESCAPED).to_string();
    let end = (expires.millis() / 1_000).to_string();
    let signature = STANDARD.encode(mac(key, &resource, &end).finalize().into_bytes());
    let (signature, rule) = (utf8_percent_encode(&signature, ESCAPED), utf8_percent_encode(rule, ESCAPED));
    format!("{SCHEME}sr={resource}&sig={signature}&se={end}&skn={rule}")
}
