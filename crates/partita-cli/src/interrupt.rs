//! Ctrl-C: the first one asks for an end, the second one does not wait for it.

use std::time::Duration;

use tokio::sync::oneshot;

use crate::signals::Signals;

/// How long an end may take that was asked for: somebody may hold our output, or a hub its answers.
const END_TIME_MAX: Duration = Duration::from_secs(5);

/// The exit code of a command that did not end in good order when it was interrupted.
pub(crate) const CODE: u8 = 130;

/// Completes when the user interrupts. From then on a second interrupt, or an end that takes too long, ends the process.
/// Interrupts are heard from now on, whether or not the future is looked at.
pub(crate) fn first() -> impl Future<Output = ()> {
    let (first, last) = both();
    tokio::spawn(async {
        last.await;
        std::process::exit(CODE.into());
    });
    first
}

/// Within a runtime. The first interrupt; and then the second one, or the time at which the end has taken too long.
pub(crate) fn both() -> (impl Future<Output = ()>, impl Future<Output = ()>) {
    let (tell_first, first) = oneshot::channel();
    let (tell_last, last) = oneshot::channel();
    // Here and not in the task, which may run late: until then an interrupt would end the process, or be lost.
    let signals = Signals::new();
    tokio::spawn(async move {
        let Ok(mut signals) = signals else { return std::future::pending().await };
        signals.next().await;
        let _ = tell_first.send(());
        tokio::select! {
            () = signals.next() => {}
            () = tokio::time::sleep(END_TIME_MAX) => {}
        }
        let _ = tell_last.send(());
    });
    (told(first), told(last))
}

async fn told(tell: oneshot::Receiver<()>) {
    if tell.await.is_err() {
        std::future::pending().await
    }
}
