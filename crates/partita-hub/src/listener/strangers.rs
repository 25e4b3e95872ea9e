//! What connections may hold before they have a token: little each, and not much together.
//!
//! Anybody who can reach the port is a stranger until a token, or a name and key, was accepted. Counted is what they make the
//! hub keep: bytes that are not yet a frame, messages of which parts are missing, replies that they do not read, sessions and
//! links. Where all together hold too much, the one that holds most goes: who means well holds next to nothing.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use futures_util::task::AtomicWaker;

/// What one stranger may hold.
pub const EACH_BYTES_MAX: usize = 64 << 10;

/// What all of them may hold together. Twenty thousand clients of the SDKs that come back at once hold less.
pub const ALL_BYTES_MAX: usize = 128 << 20;

/// The strangers of one server.
#[derive(Debug, Default)]
pub(crate) struct Strangers(Mutex<Book>);

#[derive(Debug, Default)]
struct Book {
    total: usize,
    entries: HashMap<u64, Entry>,
}

#[derive(Debug)]
struct Entry {
    bytes: usize,
    notice: Arc<Notice>,
}

/// How a stranger hears that it has to go.
#[derive(Debug, Default)]
struct Notice {
    given: AtomicBool,
    task: AtomicWaker,
}

impl Strangers {
    fn book(&self) -> MutexGuard<'_, Book> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What all of them hold by now.
    #[cfg(test)]
    fn total(&self) -> usize {
        self.book().total
    }
}

impl Book {
    fn set(&mut self, id: u64, bytes: usize, notice: &Arc<Notice>) {
        let entry = self.entries.entry(id).or_insert_with(|| Entry { bytes: 0, notice: notice.clone() });
        self.total = self.total - entry.bytes + bytes;
        entry.bytes = bytes;
    }

    fn remove(&mut self, id: u64) {
        if let Some(entry) = self.entries.remove(&id) {
            self.total -= entry.bytes;
        }
    }

    /// Sends away those that hold most until the others hold no more than they may.
    fn make_room(&mut self, all_max: usize) {
        while self.total > all_max {
            let most = self.entries.iter().max_by_key(|(_, entry)| entry.bytes).map(|(id, _)| *id);
            let Some((id, entry)) = most.and_then(|id| Some((id, self.entries.get(&id)?.notice.clone())))
            else {
                return;
            };
            // It is gone in a moment; counted until then, it would cost others their places.
            self.remove(id);
            entry.given.store(true, Ordering::Release);
            entry.task.wake();
        }
    }
}

/// What one connection holds as a stranger, until it is none, or ends.
#[derive(Debug)]
pub(crate) struct Stake {
    strangers: Arc<Strangers>,
    id: u64,
    notice: Arc<Notice>,
}

/// Why a stranger has to go.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Excess {
    /// It holds more than one may.
    Own,
    /// All together hold more than they may, and it held most.
    Total,
}

impl Stake {
    pub(crate) fn new(strangers: Arc<Strangers>, id: u64) -> Self {
        Self { strangers, id, notice: Arc::default() }
    }

    /// The task to be woken when it has to go.
    pub(crate) fn register(&self, cx: &std::task::Context<'_>) {
        self.notice.task.register(cx.waker());
    }

    /// It holds so many bytes now. `Err`: it has to go.
    pub(crate) fn hold(&self, bytes: usize) -> Result<(), Excess> {
        self.hold_within(bytes, EACH_BYTES_MAX, ALL_BYTES_MAX)
    }

    fn hold_within(&self, bytes: usize, each_max: usize, all_max: usize) -> Result<(), Excess> {
        if self.notice.given.load(Ordering::Acquire) {
            return Err(Excess::Total);
        }
        if bytes > each_max {
            return Err(Excess::Own);
        }
        let mut book = self.strangers.book();
        book.set(self.id, bytes, &self.notice);
        book.make_room(all_max);
        drop(book);
        if self.notice.given.load(Ordering::Acquire) { Err(Excess::Total) } else { Ok(()) }
    }
}

impl Drop for Stake {
    fn drop(&mut self) {
        self.strangers.book().remove(self.id);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_holds_most_goes_when_all_hold_too_much_and_who_holds_little_stays() {
        let strangers = Arc::new(Strangers::default());
        let stake = |id| Stake::new(strangers.clone(), id);
        let (large, small, larger) = (stake(1), stake(2), stake(3));
        assert_eq!(large.hold_within(400, 500, 1_000), Ok(()));
        assert_eq!(small.hold_within(10, 500, 1_000), Ok(()));
        assert_eq!(larger.hold_within(450, 500, 1_000), Ok(()));
        assert_eq!(strangers.total(), 860);
        let newcomer = stake(4);
        assert_eq!(newcomer.hold_within(200, 500, 1_000), Ok(()), "there is room for it");
        assert_eq!(larger.hold_within(450, 500, 1_000), Err(Excess::Total));
        assert_eq!(large.hold_within(400, 500, 1_000), Ok(()));
        assert_eq!(strangers.total(), 610);
        assert_eq!(small.hold_within(501, 500, 1_000), Err(Excess::Own));
        drop((large, small, larger, newcomer));
        assert_eq!(strangers.total(), 0, "what ends holds nothing");
    }

    #[test]
    fn a_stranger_that_pushes_the_total_over_may_be_the_one_that_goes() {
        let strangers = Arc::new(Strangers::default());
        let (one, two) = (Stake::new(strangers.clone(), 1), Stake::new(strangers.clone(), 2));
        assert_eq!(one.hold_within(300, 900, 1_000), Ok(()));
        assert_eq!(two.hold_within(800, 900, 1_000), Err(Excess::Total));
        assert_eq!(one.hold_within(300, 900, 1_000), Ok(()));
        assert_eq!(strangers.total(), 300);
    }
}
