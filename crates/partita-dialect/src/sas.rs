//! Shared access signatures, as Event Hubs and IoT Hub take them: a resource and an end, signed with a rule's key. It is
//! here because a hub that verifies them and a client that signs them need the same.

use std::borrow::Cow;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use hmac::{Hmac, KeyInit, Mac};
use partita_core::model::Timestamp;
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, percent_decode_str, utf8_percent_encode};
use sha2::Sha256;
use thiserror::Error;

const SCHEME: &str = "SharedAccessSignature ";

/// What is written as it is in a token; all else is escaped.
const ESCAPED: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'_').remove(b'.').remove(b'~');

/// What a text lacks to be a shared access signature.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Error)]
#[error("{0}")]
pub struct MalformedToken(pub &'static str);

/// A token taken apart. Nothing about it is proven yet.
#[derive(Clone, Debug)]
pub struct Token<'a> {
    /// As it was written: the signature covers this text, in whatever way the client escaped it.
    resource: &'a str,
    end: &'a str,
    signature: Vec<u8>,
    expires: Timestamp,
    rule: Cow<'a, str>,
}

impl<'a> Token<'a> {
    /// Takes a token apart. The order of its fields does not matter.
    pub fn parse(text: &'a str) -> Result<Self, MalformedToken> {
        let fields = text.strip_prefix(SCHEME).ok_or(MalformedToken("it does not begin as one"))?;
        let field = |name: &str| {
            let mut found = fields.split('&').filter_map(|field| field.split_once('='));
            found.find(|(key, _)| *key == name).map(|(_, value)| value)
        };
        let resource = field("sr").ok_or(MalformedToken("sr is missing"))?;
        let end = field("se").ok_or(MalformedToken("se is missing"))?;
        let signature = unescaped(field("sig").ok_or(MalformedToken("sig is missing"))?);
        let rule = unescaped(field("skn").unwrap_or_default());
        let seconds: i64 = end.parse().map_err(|_| MalformedToken("se is not a number"))?;
        let signature = STANDARD.decode(&*signature).map_err(|_| MalformedToken("sig is not base64"))?;
        let expires = Timestamp(seconds.saturating_mul(1_000));
        Ok(Self { resource, end, signature, expires, rule })
    }

    /// What it was signed for.
    pub fn resource(&self) -> Cow<'a, str> {
        unescaped(self.resource)
    }

    /// When it ends.
    pub fn expires(&self) -> Timestamp {
        self.expires
    }

    /// The rule whose key is said to have signed it; empty if it names none.
    pub fn rule(&self) -> &str {
        &self.rule
    }

    /// Whether this key signed it. Compares in a time that does not depend on where they differ.
    pub fn is_signed_with(&self, key: &[u8]) -> bool {
        mac(key, self.resource, self.end).verify_slice(&self.signature).is_ok()
    }
}

/// A token for `resource` until `expires`, signed with the key of a rule. An empty rule is left out.
pub fn sign(resource: &str, rule: &str, key: &[u8], expires: Timestamp) -> String {
    let resource = utf8_percent_encode(resource, ESCAPED).to_string();
    let end = (expires.millis() / 1_000).to_string();
    let signature = STANDARD.encode(mac(key, &resource, &end).finalize().into_bytes());
    let signature = utf8_percent_encode(&signature, ESCAPED);
    let mut token = format!("{SCHEME}sr={resource}&sig={signature}&se={end}");
    if !rule.is_empty() {
        token.push_str("&skn=");
        token.extend(utf8_percent_encode(rule, ESCAPED));
    }
    token
}

/// Compares secrets in a time that does not depend on where they differ.
pub fn same_bytes(a: &[u8], b: &[u8]) -> bool {
    let tag = |bytes: &[u8]| new_mac(b"").chain_update(bytes);
    tag(a).verify(&tag(b).finalize().into_bytes()).is_ok()
}

fn unescaped(text: &str) -> Cow<'_, str> {
    percent_decode_str(text).decode_utf8_lossy()
}

fn new_mac(key: &[u8]) -> Hmac<Sha256> {
    Hmac::<Sha256>::new_from_slice(key).unwrap_or_else(|_| unreachable!("any length will do"))
}

fn mac(key: &[u8], resource: &str, end: &str) -> Hmac<Sha256> {
    new_mac(key).chain_update(resource).chain_update("\n").chain_update(end)
}

#[cfg(test)]
mod tests {
    use super::*;

    const END: Timestamp = Timestamp(1_700_000_000_000);

    #[test]
    fn what_is_signed_is_read_and_proven() {
        let text = sign("sb://host/hub", "a rule", b"key", END);
        assert!(text.starts_with("SharedAccessSignature sr=sb%3A%2F%2Fhost%2Fhub&sig="), "{text}");
        let token = Token::parse(&text).unwrap();
        assert_eq!((&*token.resource(), token.rule(), token.expires()), ("sb://host/hub", "a rule", END));
        assert!(token.is_signed_with(b"key") && !token.is_signed_with(b"kez"));
        let bare = sign("h/messages/events", "", b"key", END);
        assert_eq!(Token::parse(&bare).unwrap().rule(), "");
    }

    #[test]
    fn the_signature_covers_the_resource_as_it_was_escaped() {
        let text = sign("sb://host/hub", "r", b"key", END);
        let lower = text.replace("sb%3A%2F%2F", "sb%3a%2f%2f");
        assert!(!Token::parse(&lower).unwrap().is_signed_with(b"key"));
        let later = text.replace("se=1700000000", "se=1800000000");
        assert!(!Token::parse(&later).unwrap().is_signed_with(b"key"));
    }

    #[test]
    fn secrets_are_the_same_only_byte_for_byte() {
        assert!(same_bytes(b"", b"") && same_bytes(b"ab", b"ab"));
        assert!(!same_bytes(b"ab", b"a") && !same_bytes(b"ab", b"ac"));
    }
}
