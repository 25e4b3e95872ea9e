//! Notices that nobody reads the output any more, even while there is nothing to write.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use tokio::sync::mpsc;

use super::read::Said;

/// Says so when stdout is a pipe without a reader.
#[cfg(unix)]
pub(crate) fn watch(stop: &Arc<AtomicBool>, tell: mpsc::WeakSender<Said>) {
    use std::io::IsTerminal;
    use std::sync::atomic::Ordering;

    use rustix::event::{PollFd, PollFlags, poll};

    if std::io::stdout().is_terminal() {
        return;
    }
    let stop = Arc::clone(stop);
    std::thread::spawn(move || {
        let out = std::io::stdout();
        let mut fds = [PollFd::new(&out, PollFlags::empty())];
        while let Err(rustix::io::Errno::INTR) = poll(&mut fds, None) {}
        if fds[0].revents().intersects(PollFlags::ERR | PollFlags::HUP) {
            stop.store(true, Ordering::Relaxed);
            if let Some(tell) = tell.upgrade() {
                let _ = tell.blocking_send(Said::Enough);
            }
        }
    });
}

/// There the next write finds out.
#[cfg(not(unix))]
pub(crate) fn watch(_: &Arc<AtomicBool>, _: mpsc::WeakSender<Said>) {}
