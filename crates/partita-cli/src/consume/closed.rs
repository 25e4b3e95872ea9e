//! Notices that nobody reads the output any more, even while there is nothing to write.

use tokio::sync::mpsc;

use super::read::Said;

/// Says so when stdout is a pipe without a reader.
#[cfg(unix)]
pub(crate) fn watch(tell: mpsc::WeakSender<Said>) {
    use std::io::IsTerminal;

    use rustix::event::{PollFd, PollFlags, poll};

    if std::io::stdout().is_terminal() {
        return;
    }
    std::thread::spawn(move || {
        let out = std::io::stdout();
        let mut fds = [PollFd::new(&out, PollFlags::empty())];
        while let Err(rustix::io::Errno::INTR) = poll(&mut fds, None) {}
        let is_closed = fds[0].revents().intersects(PollFlags::ERR | PollFlags::HUP);
        if let Some(tell) = tell.upgrade().filter(|_| is_closed) {
            let _ = tell.blocking_send(Said::Closed);
        }
    });
}

/// There the next write finds out.
#[cfg(not(unix))]
pub(crate) fn watch(_: mpsc::WeakSender<Said>) {}
