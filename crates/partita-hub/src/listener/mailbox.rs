//! What reaches a connection's task from elsewhere: acknowledgements of the log, and links that have something to do. One
//! wake-up covers all that arrives before the task looks.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Wake, Waker};

use futures_util::task::AtomicWaker;
use partita_amqp::connection::LinkId;

use crate::log::{Ack, AckSink};

/// The mailbox of one connection. What it holds is bounded by what the connection handed out: batches that wait for the
/// log, and links.
#[derive(Debug, Default)]
pub(super) struct Mailbox {
    acks: Mutex<Vec<Ack>>,
    ready: Mutex<Vec<Arc<Bell>>>,
    /// Whether there is anything, to be asked without a lock.
    filled: AtomicBool,
    task: AtomicWaker,
}

impl Mailbox {
    /// The task that is woken from now on.
    pub(super) fn register(&self, cx: &Context<'_>) {
        self.task.register(cx.waker());
    }

    /// Takes all that arrived.
    pub(super) fn take(&self, acks: &mut Vec<Ack>, ready: &mut Vec<Arc<Bell>>) {
        if !self.filled.swap(false, Ordering::AcqRel) {
            return;
        }
        acks.append(&mut self.acks.lock().unwrap_or_else(PoisonError::into_inner));
        let mut rung = self.ready.lock().unwrap_or_else(PoisonError::into_inner);
        for bell in rung.drain(..) {
            // From here on it can ring again: what it rang for is yet to be looked at.
            bell.rung.store(false, Ordering::Release);
            ready.push(bell);
        }
    }

    fn deliver(&self) {
        if !self.filled.swap(true, Ordering::AcqRel) {
            self.task.wake();
        }
    }
}

/// Wakes the task, whoever holds this waker.
impl Wake for Mailbox {
    fn wake(self: Arc<Self>) {
        self.deliver();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        self.deliver();
    }
}

impl AckSink for Mailbox {
    fn acked(&self, acks: &[Ack]) {
        self.acks.lock().unwrap_or_else(PoisonError::into_inner).extend_from_slice(acks);
        self.deliver();
    }
}

/// How a link's reader wakes the task, and tells it which link to look at.
#[derive(Debug)]
pub(super) struct Bell {
    /// The link.
    pub(super) link: LinkId,
    rung: AtomicBool,
    mailbox: Arc<Mailbox>,
}

impl Bell {
    pub(super) fn new(link: LinkId, mailbox: &Arc<Mailbox>) -> Arc<Self> {
        Arc::new(Self { link, rung: AtomicBool::new(false), mailbox: mailbox.clone() })
    }

    pub(super) fn waker(self: &Arc<Self>) -> Waker {
        Waker::from(self.clone())
    }
}

impl Wake for Bell {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        if !self.rung.swap(true, Ordering::AcqRel) {
            self.mailbox.ready.lock().unwrap_or_else(PoisonError::into_inner).push(self.clone());
            self.mailbox.deliver();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicUsize;
    use std::time::Instant;

    use partita_amqp::connection::{Connection, Options};
    use partita_amqp::performative::Attach;
    use partita_amqp::sasl;

    use super::*;
    use crate::log::AppendError;

    #[derive(Default)]
    struct Count(AtomicUsize);

    impl Wake for Count {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Ordering::SeqCst);
        }
    }

    fn any_link() -> LinkId {
        let mut conn = Connection::connect(Options::new("test"), sasl::Client::None, Instant::now());
        let session = conn.begin().expect("a session");
        conn.attach(session, Attach::sender("link", "hub")).expect("a link")
    }

    #[test]
    fn one_wake_up_covers_all_that_arrives_before_the_task_looks() {
        let (mailbox, count) = (Arc::new(Mailbox::default()), Arc::new(Count::default()));
        let waker = Waker::from(count.clone());
        let (mut acks, mut ready) = (Vec::new(), Vec::new());
        let link = any_link();
        let bell = Bell::new(link, &mailbox);
        let ack = |token| Ack { token, outcome: Err(AppendError::Closed) };
        for round in 1..=2 {
            mailbox.register(&Context::from_waker(&waker));
            mailbox.acked(&[ack(1), ack(2)]);
            mailbox.acked(&[ack(3)]);
            bell.waker().wake();
            bell.waker().wake_by_ref();
            assert_eq!(count.0.load(Ordering::SeqCst), round);
            mailbox.take(&mut acks, &mut ready);
            assert_eq!(acks.drain(..).map(|ack| ack.token).collect::<Vec<_>>(), [1, 2, 3]);
            assert_eq!(ready.drain(..).map(|bell| bell.link).collect::<Vec<_>>(), [link]);
        }
        mailbox.take(&mut acks, &mut ready);
        assert!(acks.is_empty() && ready.is_empty());
    }
}
