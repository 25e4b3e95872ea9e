//! Memory that clients needed who have gone goes back to the system.
//!
//! glibc keeps what was freed for what is allocated next. After many clients at once that is much, and it may lie there unused
//! as long as the hub runs. Other allocators give it back by themselves.

use std::convert::Infallible;
use std::time::Duration;

use partita_hub::server::Server;

/// How often it is looked whether anybody has gone.
const EVERY: Duration = Duration::from_secs(5);

/// Gives memory back while connections end, until it is dropped.
pub(crate) async fn give_back(server: Server) -> Infallible {
    let (mut ended, mut every) = (server.ended(), tokio::time::interval(EVERY));
    loop {
        every.tick().await;
        let now = server.ended();
        if std::mem::replace(&mut ended, now) != now {
            // It takes milliseconds where much was freed.
            let _ = tokio::task::spawn_blocking(trim).await;
        }
    }
}

#[cfg(all(target_os = "linux", target_env = "gnu"))]
#[expect(unsafe_code, reason = "the C library has it, and no crate wraps it")]
fn trim() {
    // SAFETY: it takes no pointer and may be called by any thread at any time; memory that is in use stays where it is.
    unsafe { libc::malloc_trim(0) };
}

#[cfg(not(all(target_os = "linux", target_env = "gnu")))]
fn trim() {}
