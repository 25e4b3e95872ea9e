//! Who is woken by what: a counter of the changes that concern somebody, and the waiters it wakes.

use std::collections::BTreeMap;
use std::sync::Arc;

use tokio::sync::Notify;

use crate::model::Incarnation;

/// Whom a write concerns.
#[derive(Debug)]
pub(super) enum Concerns {
    /// Nobody: it was refused, or was only a heartbeat.
    Nobody,
    /// Those that the record named before or names now.
    Named(Vec<Incarnation>),
    /// Everybody: the membership changed, or an ownership became free.
    All,
}

/// Waiters to be woken once the lock is released.
#[derive(Debug, Default)]
#[must_use]
pub(super) struct Wake(Vec<Arc<Notify>>);

impl Wake {
    pub(super) fn wake(self) {
        for waiter in self.0 {
            waiter.notify_waiters();
        }
    }
}

#[derive(Debug, Default)]
pub(super) struct Changes {
    count: u64,
    all_at: u64,
    named_at: BTreeMap<Incarnation, u64>,
    /// The latest change that was forgotten with its entry of `named_at`.
    forgotten_at: u64,
    waiting: BTreeMap<Incarnation, Waiting>,
}

#[derive(Debug, Default)]
struct Waiting {
    notify: Arc<Notify>,
    waiters: usize,
}

impl Changes {
    /// Where the changes stand now.
    pub(super) fn cursor(&self) -> u64 {
        self.count
    }

    /// Counts a change.
    pub(super) fn add(&mut self, concerns: Concerns) -> Wake {
        match concerns {
            Concerns::Nobody => Wake::default(),
            Concerns::All => {
                self.count += 1;
                self.all_at = self.count;
                Wake(self.waiting.values().map(|waiting| Arc::clone(&waiting.notify)).collect())
            }
            Concerns::Named(names) => {
                self.count += 1;
                let mut wake = Vec::with_capacity(names.len());
                for name in names {
                    wake.extend(self.waiting.get(&name).map(|waiting| Arc::clone(&waiting.notify)));
                    self.named_at.insert(name, self.count);
                }
                Wake(wake)
            }
        }
    }

    /// Whether something that concerns `me` came after `cursor`.
    pub(super) fn is_news(&self, me: &Incarnation, cursor: u64) -> bool {
        let named_at = self.named_at.get(me).copied().unwrap_or(self.forgotten_at);
        self.all_at.max(named_at) > cursor
    }

    /// Adds a waiter. The caller prepares to be notified, then asks [`Changes::is_news`], so no change is missed.
    pub(super) fn enter(&mut self, me: &Incarnation) -> Arc<Notify> {
        let waiting = self.waiting.entry(me.clone()).or_default();
        waiting.waiters += 1;
        Arc::clone(&waiting.notify)
    }

    /// Takes a waiter away.
    pub(super) fn leave(&mut self, me: &Incarnation) {
        if let Some(waiting) = self.waiting.get_mut(me) {
            waiting.waiters -= 1;
            if waiting.waiters == 0 {
                self.waiting.remove(me);
            }
        }
    }

    /// Forgets what concerned those who are gone. Should one of them ask all the same, it is woken too often.
    pub(super) fn forget(&mut self, is_gone: impl Fn(&Incarnation) -> bool) {
        let forgotten_at = &mut self.forgotten_at;
        self.named_at.retain(|name, at| {
            let gone = is_gone(name);
            if gone {
                *forgotten_at = (*forgotten_at).max(*at);
            }
            !gone
        });
    }

    #[cfg(test)]
    pub(super) fn entries(&self) -> usize {
        self.named_at.len() + self.waiting.len()
    }
}
