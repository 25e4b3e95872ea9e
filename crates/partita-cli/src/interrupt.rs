//! Ctrl-C: the first one asks for an end, the second one does not wait for it.

use std::time::Duration;

/// How long an end may take that was asked for: somebody may hold our output.
const END_TIME_MAX: Duration = Duration::from_secs(5);

/// Completes when the user interrupts. From then on a second interrupt, or an end that takes too long, ends the process.
/// Interrupts are heard from now on, whether or not the future is looked at.
pub(crate) fn first() -> impl Future<Output = ()> {
    let (tell, told) = tokio::sync::oneshot::channel();
    tokio::spawn(async {
        signal().await;
        let _ = tell.send(());
        tokio::select! {
            () = signal() => {}
            () = tokio::time::sleep(END_TIME_MAX) => {}
        }
        std::process::exit(130);
    });
    async {
        if told.await.is_err() {
            std::future::pending().await
        }
    }
}

/// SIGINT or SIGTERM, or never where there are no signals.
#[cfg(unix)]
async fn signal() {
    use tokio::signal::unix::{SignalKind, signal};
    let (Ok(mut interrupt), Ok(mut terminate)) =
        (signal(SignalKind::interrupt()), signal(SignalKind::terminate()))
    else {
        return std::future::pending().await;
    };
    tokio::select! {
        _ = interrupt.recv() => {}
        _ = terminate.recv() => {}
    }
}

#[cfg(not(unix))]
async fn signal() {
    if tokio::signal::ctrl_c().await.is_err() {
        std::future::pending().await
    }
}
