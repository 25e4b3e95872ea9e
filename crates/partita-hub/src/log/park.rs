//! Lets a thread wait for something that is polled.

use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker};
use std::thread::{self, Thread};
use std::time::{Duration, Instant};

struct Unpark(Thread);

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}

/// Blocks the thread until `poll` is ready; false if it is not within `time_max`.
pub(crate) fn park_until(time_max: Duration, mut poll: impl FnMut(&mut Context<'_>) -> Poll<()>) -> bool {
    let deadline = Instant::now() + time_max;
    let waker = Waker::from(Arc::new(Unpark(thread::current())));
    let mut cx = Context::from_waker(&waker);
    while poll(&mut cx).is_pending() {
        let left = deadline.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return false;
        }
        thread::park_timeout(left);
    }
    true
}
