//! When something must be said or heard. The caller has the clock.
//!
//! Between two calls only the fact is kept that something was heard or said, not when: the hot path needs no clock. So
//! checks come several times per period of the standard's.

use std::time::{Duration, Instant};

use super::Connection;
use super::handshake::{Phase, Side};
use crate::frame;
use crate::performative::{Error, condition};

/// Heartbeats come at most so often: a peer that waits for less gives up, and does not keep us busy.
const BEAT_MIN: Duration = Duration::from_millis(10);

/// A moment some time from when it was first looked at: what starts it knows no time.
#[derive(Clone, Copy, Debug)]
struct Timer {
    after: Duration,
    at: Option<Instant>,
}

impl Timer {
    fn new(after: Duration) -> Self {
        Self { after, at: None }
    }

    /// Whether its time has come. Sets it if it was not.
    fn is_due(&mut self, now: Instant) -> bool {
        now >= *self.at.get_or_insert_with(|| later(now, self.after))
    }

    fn again(&mut self, now: Instant) {
        self.at = Some(later(now, self.after));
    }
}

/// A time that no calendar has is as good as never.
fn later(now: Instant, after: Duration) -> Instant {
    now.checked_add(after).unwrap_or_else(|| now + Duration::from_secs(1 << 30))
}

/// The times of a connection.
#[derive(Debug)]
pub(super) struct Clock {
    /// The latest time that was passed in.
    now: Instant,
    /// Until the peer must be open, or must have closed.
    patience: Option<Timer>,
    /// A part of our idle timeout.
    listen: Option<Timer>,
    heard: bool,
    /// How many checks in a row heard nothing, and how many are too many.
    quiet: u32,
    quiet_max: u32,
    /// A quarter of the peer's idle timeout.
    beat: Option<Timer>,
}

impl Clock {
    pub(super) fn new(handshake: Duration, now: Instant) -> Self {
        let mut patience = Timer::new(handshake);
        patience.again(now);
        Self { now, patience: Some(patience), listen: None, heard: false, quiet: 0, quiet_max: 0, beat: None }
    }

    #[inline]
    pub(super) fn heard(&mut self) {
        self.heard = true;
    }

    /// `checks` of our idle timeout are made, and after `quiet_max` that heard nothing the peer is silent.
    pub(super) fn opened(&mut self, ours: Duration, (checks, quiet_max): (u32, u32), peers_ms: Option<u32>) {
        self.patience = None;
        self.listen = (!ours.is_zero()).then(|| Timer::new(ours / checks));
        self.quiet_max = quiet_max;
        let peers = peers_ms.filter(|ms| *ms > 0).map(|ms| Duration::from_millis(ms.into()));
        self.beat = peers.map(|peers| Timer::new((peers / 4).max(BEAT_MIN)));
    }

    pub(super) fn closing(&mut self, timeout: Duration) {
        self.patience = Some(Timer::new(timeout));
        self.listen = None;
        self.beat = None;
    }

    pub(super) fn closed(&mut self) {
        self.patience = None;
        self.listen = None;
        self.beat = None;
    }
}

impl Connection {
    /// When [`on_time`](Self::on_time) is to be called next, if ever.
    pub fn deadline(&self) -> Option<Instant> {
        let Clock { now, patience, listen, beat, .. } = &self.clock;
        let timers = [patience, listen, beat].into_iter().flatten();
        timers.map(|timer| timer.at.unwrap_or(*now)).min()
    }

    /// Tells the time: at the [`deadline`](Self::deadline), and whenever it is at hand. Writes heartbeats, and ends a peer
    /// that is silent for too long.
    pub fn on_time(&mut self, now: Instant) {
        let clock = &mut self.clock;
        clock.now = clock.now.max(now);
        if let Some(patience) = &mut clock.patience
            && patience.is_due(now)
        {
            let text = match self.phase {
                Phase::Closing => "the peer did not answer our close in time",
                _ => "the peer did not open the connection in time",
            };
            return self.fail(Error::new(condition::CONNECTION_FORCED, text));
        }
        if let Some(listen) = &mut clock.listen
            && listen.is_due(now)
        {
            listen.again(now);
            if self.events.is_empty() {
                self.events.shrink_to(0);
            }
            clock.quiet = if std::mem::take(&mut clock.heard) { 0 } else { clock.quiet + 1 };
            if clock.quiet >= clock.quiet_max {
                return self.end_silent();
            }
        }
        if let Some(beat) = &mut clock.beat
            && beat.is_due(now)
        {
            beat.again(now);
            // What is not written yet will be heard as well.
            if !self.outbox.take_added() && self.outbox.is_empty() {
                self.outbox.shrink();
                frame::heartbeat(self.outbox.small());
                self.outbox.take_added();
            }
        }
    }

    /// Ends a connection whose peer says nothing. A server does it as the service does: every link, every session, and
    /// then the connection, with a condition after which clients connect again.
    fn end_silent(&mut self) {
        let text = match self.side {
            Side::Client(_) => format!("the peer was silent for {:?}", self.options.idle_timeout),
            Side::Server(_) => format!(
                "The connection was inactive for more than the allowed {} milliseconds and is closed by container '{}'.",
                (self.options.idle_timeout * 2).as_millis(),
                self.options.container_id
            ),
        };
        let error = Error::new(condition::CONNECTION_FORCED, text);
        if let Side::Server(_) = self.side {
            let sessions: Vec<_> = self.by_local_channel.iter().collect();
            for session in sessions {
                let links = self.sessions.get(session).map(|session| session.by_local_handle.iter());
                let links: Vec<_> = links.into_iter().flatten().collect();
                for link in links {
                    self.detach(link, Some(error.clone()));
                }
                self.end(session, Some(error.clone()));
            }
        }
        self.fail(error);
    }
}
