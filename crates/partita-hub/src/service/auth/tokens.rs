//! What a connection was granted by the tokens that were put on it.

use std::collections::BTreeMap;

use partita_core::model::Timestamp;

use super::rules::{Right, Rights, starts_with};
use crate::service::condition::{LIMIT_EXCEEDED, Refusal, UNAUTHORIZED};

/// How many tokens for different audiences one connection holds.
pub const TOKENS_MAX: usize = 4_096;

/// What one token grants: rights at a path and below it, until its end.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Grant {
    path: Vec<String>,
    rights: Rights,
    until: Option<Timestamp>,
}

impl Grant {
    pub(super) fn new(path: Vec<String>, rights: Rights, until: Option<Timestamp>) -> Self {
        Self { path, rights, until }
    }

    /// When it ends; `None` = never.
    pub fn until(&self) -> Option<Timestamp> {
        self.until
    }

    fn holds_at(&self, path: &[String], now: Timestamp) -> bool {
        self.until.is_none_or(|until| until > now) && starts_with(path, &self.path)
    }
}

/// The grants of one connection.
#[derive(Clone, Debug, Default)]
pub struct Tokens {
    grants: BTreeMap<String, Grant>,
    /// What needs no token.
    standing: Vec<Grant>,
}

impl Tokens {
    /// Grants that nobody has to put: all where there are no rules, or those of a name and key.
    pub fn standing(grants: Vec<Grant>) -> Self {
        Self { grants: BTreeMap::new(), standing: grants }
    }

    /// Everything, for ever.
    pub fn all() -> Self {
        Self::standing(vec![Grant::new(Vec::new(), Rights::ALL, None)])
    }

    /// Adds a grant, in place of a former one for the same audience.
    pub fn put(&mut self, grant: Grant, now: Timestamp) -> Result<(), Refusal> {
        let audience = grant.path.join("/").to_lowercase();
        if self.grants.len() >= TOKENS_MAX && !self.grants.contains_key(&audience) {
            self.grants.retain(|_, grant| grant.until.is_none_or(|until| until > now));
            if self.grants.len() >= TOKENS_MAX {
                let text = format!("The connection has {TOKENS_MAX} tokens, which is the most it may have.");
                return Err(Refusal::new(LIMIT_EXCEEDED, text));
            }
        }
        self.grants.insert(audience, grant);
        Ok(())
    }

    /// Until when `right` is granted at a path such as `hub/Partitions/3`; `None` inside = for ever.
    pub fn allow(&self, path: &str, right: Right, now: Timestamp) -> Result<Option<Timestamp>, Refusal> {
        let what = format!("'{right}'");
        self.find(path, now, |rights| rights.allow(right), &what)
    }

    /// The same for whatever right, as questions about a hub need it.
    pub fn allow_any(&self, path: &str, now: Timestamp) -> Result<Option<Timestamp>, Refusal> {
        self.find(path, now, Rights::any, "'Listen', 'Send' or 'Manage'")
    }

    /// Whether there is any grant that has not ended.
    pub fn any(&self, now: Timestamp) -> bool {
        let mut grants = self.standing.iter().chain(self.grants.values());
        grants.any(|grant| grant.until.is_none_or(|until| until > now))
    }

    fn find(
        &self,
        path: &str,
        now: Timestamp,
        allows: impl Fn(Rights) -> bool,
        what: &str,
    ) -> Result<Option<Timestamp>, Refusal> {
        let segments: Vec<String> = path.split('/').map(str::to_owned).collect();
        let grants = self.standing.iter().chain(self.grants.values());
        let valid = grants.filter(|grant| allows(grant.rights) && grant.holds_at(&segments, now));
        // The one that lasts longest; no end is longer than any.
        let longest = valid.map(|grant| grant.until).max_by_key(|until| until.unwrap_or(Timestamp(i64::MAX)));
        longest.ok_or_else(|| {
            Refusal::new(
                UNAUTHORIZED,
                format!(
                    "Unauthorized access. {what} claim(s) are required to perform this operation. Resource: '{path}'."
                ),
            )
        })
    }
}
