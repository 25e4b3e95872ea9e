//! The rules: a name, a key, and what the key allows.

use std::fmt;

use partita_core::model::Timestamp;

use super::sas::{self, TokenError};
use super::tokens::Grant;
use crate::service::address::ResourceUri;

/// What a link needs.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Right {
    /// To read events.
    Listen,
    /// To send events.
    Send,
    /// To change hubs; it includes the others.
    Manage,
}

impl fmt::Display for Right {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Listen => "Listen",
            Self::Send => "Send",
            Self::Manage => "Manage",
        })
    }
}

/// What a rule allows.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Rights {
    /// To read events.
    pub listen: bool,
    /// To send events.
    pub send: bool,
    /// To change hubs; it includes the others.
    pub manage: bool,
}

impl Rights {
    /// All of them.
    pub const ALL: Self = Self { listen: true, send: true, manage: true };

    /// Whether this one is among them.
    pub fn allow(self, right: Right) -> bool {
        self.manage
            || match right {
                Right::Listen => self.listen,
                Right::Send => self.send,
                Right::Manage => false,
            }
    }

    /// Whether there is any.
    pub fn any(self) -> bool {
        self.listen || self.send || self.manage
    }

    pub(crate) fn union(self, other: Self) -> Self {
        Self {
            listen: self.listen || other.listen,
            send: self.send || other.send,
            manage: self.manage || other.manage,
        }
    }
}

/// A key, which is never shown.
#[derive(Clone, PartialEq, Eq)]
pub struct Key(String);

impl Key {
    /// Its text as it stands in a connection string; the signature is made with these bytes.
    pub fn new(text: impl Into<String>) -> Self {
        Self(text.into())
    }

    pub(crate) fn bytes(&self) -> &[u8] {
        self.0.as_bytes()
    }
}

impl fmt::Debug for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Key(..)")
    }
}

/// Where a rule holds.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum RuleScope {
    /// In every hub.
    Namespace,
    /// In this hub.
    Hub(String),
}

/// A shared access rule.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Rule {
    /// The name that tokens give.
    pub name: String,
    /// The key that tokens are signed with.
    pub key: Key,
    /// What it allows.
    pub rights: Rights,
    /// Where.
    pub scope: RuleScope,
}

/// All rules of a server.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Rules {
    rules: Vec<Rule>,
    open: bool,
}

/// The rule's name in the official emulator's connection string.
pub const WELL_KNOWN_NAME: &str = "RootManageSharedAccessKey";
/// The key in the official emulator's connection string. Everybody knows it.
pub const WELL_KNOWN_KEY: &str = "SAS_KEY_VALUE";

impl Default for Rules {
    /// The official emulator's well-known key, with all rights.
    fn default() -> Self {
        Self::new([Rule {
            name: WELL_KNOWN_NAME.to_owned(),
            key: Key::new(WELL_KNOWN_KEY),
            rights: Rights::ALL,
            scope: RuleScope::Namespace,
        }])
    }
}

impl Rules {
    /// These rules.
    pub fn new(rules: impl IntoIterator<Item = Rule>) -> Self {
        Self { rules: rules.into_iter().collect(), open: false }
    }

    /// No rules: everybody may do everything, with any token or none.
    pub fn open() -> Self {
        Self { rules: Vec::new(), open: true }
    }

    /// Whether everybody may do everything.
    pub fn is_open(&self) -> bool {
        self.open
    }

    /// The rules.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = &Rule> {
        self.rules.iter()
    }

    /// Whether one of the rules has the key that everybody knows.
    pub fn has_well_known_key(&self) -> bool {
        self.open || self.rules.iter().any(|rule| rule.key.bytes() == WELL_KNOWN_KEY.as_bytes())
    }

    /// What a shared access signature grants at `audience`.
    pub fn verify(&self, token: &str, audience: &str, now: Timestamp) -> Result<Grant, TokenError> {
        let place = ResourceUri::parse(audience);
        if self.open {
            return Ok(Grant::new(place.segments, Rights::ALL, None));
        }
        let token = sas::Token::parse(token)?;
        let path = path_on(&ResourceUri::parse(&token.resource()), place.host.as_deref())
            .ok_or(TokenError::OtherAudience)?;
        let mut rights = Rights::default();
        let mut named = false;
        for rule in self.rules.iter().filter(|rule| rule.name == token.rule()) {
            named = true;
            let holds = match &rule.scope {
                RuleScope::Namespace => true,
                RuleScope::Hub(hub) => path.first().is_some_and(|first| same(first, hub)),
            };
            if token.is_signed_with(rule.key.bytes()) && holds {
                rights = rights.union(rule.rights);
            }
        }
        if !named {
            // The same work as for a name that is known: the time an answer takes tells nothing either.
            let _ = token.is_signed_with(&[]);
        }
        if !rights.any() {
            return Err(TokenError::BadSignature);
        }
        if token.expires() <= now {
            return Err(TokenError::Expired(token.expires()));
        }
        if !starts_with(&place.segments, &path) {
            return Err(TokenError::OtherAudience);
        }
        Ok(Grant::new(place.segments, rights, Some(token.expires())))
    }

    /// What a name and key grant, as SASL PLAIN gives them.
    pub fn verify_key(&self, name: &str, key: &str) -> Vec<Grant> {
        let named = self.rules.iter().filter(|rule| rule.name == name);
        let right = named.filter(|rule| sas::same_bytes(rule.key.bytes(), key.as_bytes()));
        let grants = right.map(|rule| {
            let path = match &rule.scope {
                RuleScope::Namespace => Vec::new(),
                RuleScope::Hub(hub) => vec![hub.clone()],
            };
            Grant::new(path, rule.rights, None)
        });
        grants.collect()
    }
}

pub(super) fn same(a: &str, b: &str) -> bool {
    a.to_lowercase() == b.to_lowercase()
}

/// Whether `path` is `prefix` or lies below it, segment by segment.
pub(super) fn starts_with(path: &[String], prefix: &[String]) -> bool {
    prefix.len() <= path.len() && prefix.iter().zip(path).all(|(a, b)| same(a, b))
}

/// The path of what a token is signed for, if that is on the audience's host.
fn path_on(resource: &ResourceUri, host: Option<&str>) -> Option<Vec<String>> {
    let mut segments = resource.segments.iter();
    let same_host = match (&resource.host, host) {
        (Some(named), Some(host)) => named == host,
        // Without a scheme the host is the first segment.
        (None, Some(host)) => same(segments.next()?.split(':').next().unwrap_or_default(), host),
        (_, None) => true,
    };
    same_host.then(|| segments.cloned().collect())
}
