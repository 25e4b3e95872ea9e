//! Where a processor's tasks run and which clock it reads. Tests and the simulation bring their own.

use futures_util::future::BoxFuture;

use crate::model::{Tick, Timestamp};

/// The world as a processor sees it.
pub trait Runtime: Send + Sync + 'static {
    /// The instance's own clock, which leases are judged by: never goes back, and goes on while the machine sleeps. See
    /// [`TokioRuntime`] for systems that have no such clock.
    fn now(&self) -> Tick;

    /// The wall clock, for people: nothing is decided by it.
    fn wall(&self) -> Timestamp {
        Timestamp::now()
    }

    /// A seed for jitter and for incarnations.
    fn seed(&self) -> u64;

    /// Runs handlers and what feeds them.
    fn spawn(&self, task: BoxFuture<'static, ()>);

    /// Runs the coordination, which must not wait for a handler that blocks.
    fn spawn_coordination(&self, task: BoxFuture<'static, ()>) -> std::io::Result<()>;
}

/// Handlers on the Tokio runtime that `start` was called on, coordination on a thread of its own.
///
/// Its clock counts the time that the machine sleeps on Linux, Android, Apple's systems and Windows. On other systems it may
/// stand still meanwhile: an instance that wakes there trusts its lease until its next heartbeat is refused, at most a
/// cycle later. Its checkpoints are refused all the same, so events may be handled twice, and none is lost.
#[derive(Clone, Debug)]
pub struct TokioRuntime {
    handle: tokio::runtime::Handle,
}

impl TokioRuntime {
    /// On the runtime of the caller; panics outside of one.
    pub fn current() -> Self {
        Self { handle: tokio::runtime::Handle::current() }
    }
}

impl Runtime for TokioRuntime {
    fn now(&self) -> Tick {
        now()
    }

    fn seed(&self) -> u64 {
        fastrand::u64(..)
    }

    fn spawn(&self, task: BoxFuture<'static, ()>) {
        self.handle.spawn(task);
    }

    fn spawn_coordination(&self, task: BoxFuture<'static, ()>) -> std::io::Result<()> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        std::thread::Builder::new()
            .name("partita-coordination".to_owned())
            .spawn(move || runtime.block_on(task))
            .map(drop)
    }
}

#[cfg(any(target_os = "linux", target_os = "android", target_vendor = "apple"))]
fn now() -> Tick {
    use rustix::time::{ClockId, clock_gettime};
    // `Instant` stands still while the machine sleeps; a lease must not.
    #[cfg(not(target_vendor = "apple"))]
    let clock = ClockId::Boottime;
    // This one counts sleep there, unlike Linux's clock of that name and unlike `Instant`.
    #[cfg(target_vendor = "apple")]
    let clock = ClockId::Monotonic;
    let time = clock_gettime(clock);
    Tick((time.tv_sec as u64).saturating_mul(1_000_000_000).saturating_add(time.tv_nsec as u64))
}

/// Windows counts sleep in `Instant`. Other systems may not; what that means is said at [`TokioRuntime`].
#[cfg(not(any(target_os = "linux", target_os = "android", target_vendor = "apple")))]
fn now() -> Tick {
    use std::sync::OnceLock;
    use std::time::Instant;
    static START: OnceLock<Instant> = OnceLock::new();
    // An hour ahead, so that subtracting a ttl never saturates.
    Tick(3_600_000_000_000) + START.get_or_init(Instant::now).elapsed()
}
