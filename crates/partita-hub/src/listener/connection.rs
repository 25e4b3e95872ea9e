//! The task of one connection: moves bytes, waits for whatever comes first, and lets the logic decide.

use std::future::{Future, poll_fn};
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::{Duration, Instant};

use partita_amqp::driver::wire::{READ_BYTES_MAX, Wire};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::watch;
use tokio::time::Sleep;

use super::habits::Lag;
use super::logic::{ConnectionLogic, End};
use crate::server::{Course, Peer, Seat};

/// How much is read at once of a client without a token.
const STRANGERS_READ_BYTES_MAX: usize = 8 << 10;

/// How long the last bytes may take.
const FLUSH_TIME_MAX: Duration = Duration::from_secs(5);

/// How long a client is listened to after the end.
const LINGER_TIME_MAX: Duration = Duration::from_secs(1);

/// Serves a connection until it ends.
pub(crate) async fn run<S>(stream: S, seat: Seat, peer: &Peer)
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    tracing::info!(%peer, connection = seat.id, "connection began");
    let mut course = seat.shared.course();
    // It may have changed before.
    course.mark_changed();
    let mut faults = seat.shared.faults.changes();
    let mut task = Task::new(stream, seat);
    let end = loop {
        let change = tokio::select! {
            // Rare things are asked for last: each turn of the connection polls all that come before.
            biased;
            end = poll_fn(|cx| task.poll(cx)) => break end,
            _ = course.changed() => Change::Course,
            _ = faults.changed() => Change::Faults,
        };
        match change {
            Change::Course => {
                let now = *course.borrow_and_update();
                match now {
                    Course::Running => {}
                    Course::Ending(until) => task.logic.shut_down(until.into_std()),
                    Course::Over => break End::Cut,
                }
            }
            Change::Faults => task.logic.look_at_faults(Instant::now()),
        }
    };
    if matches!(end, End::Closed) {
        task.finish(&mut course).await;
    }
    let client = task.logic.client();
    tracing::info!(%peer, connection = task.logic.id(), client, end = %end, "connection ended");
}

enum Change {
    Course,
    Faults,
}

struct Task<S> {
    wire: Wire<S>,
    logic: ConnectionLogic,
    lag: Lag,
    timer: Pin<Box<Sleep>>,
    /// What the timer is set to.
    timer_at: Option<Instant>,
}

impl<S: AsyncRead + AsyncWrite + Unpin> Task<S> {
    fn new(stream: S, seat: Seat) -> Self {
        Self {
            wire: Wire::new(stream),
            logic: ConnectionLogic::new(seat, Instant::now()),
            lag: Lag::default(),
            timer: Box::pin(tokio::time::sleep(Duration::ZERO)),
            timer_at: None,
        }
    }

    /// Does all that can be done now.
    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<End> {
        self.logic.register(cx);
        loop {
            let now = Instant::now();
            self.logic.on_time(now);
            let read = match self.poll_read(cx) {
                Ok(read) => read,
                Err(end) => return Poll::Ready(end),
            };
            let worked = self.logic.work(now);
            self.logic.look_at_stranger(self.wire.input.len(), now);
            self.lag.set(self.logic.distance);
            let written = match self.poll_write(cx, now) {
                Poll::Ready(Ok(written)) => written,
                Poll::Ready(Err(error)) => return Poll::Ready(End::Lost(error)),
                Poll::Pending => false,
            };
            if let Some(end) = self.logic.end() {
                return Poll::Ready(end);
            }
            if !(read || worked || written) && self.poll_timer(cx, now) {
                return Poll::Pending;
            }
        }
    }

    /// Hands to the logic what there is; true if there was anything.
    fn poll_read(&mut self, cx: &mut Context<'_>) -> Result<bool, End> {
        // What is there already comes first; if it cannot be taken, no more will be either.
        if !self.wire.input.is_empty() && self.logic.receive(&mut self.wire.input) {
            return Ok(false);
        }
        if !self.logic.listens() {
            return Ok(false);
        }
        let room = if self.logic.is_stranger() { STRANGERS_READ_BYTES_MAX } else { READ_BYTES_MAX };
        match self.wire.poll_read(cx, room) {
            Poll::Pending => {
                self.wire.rest();
                return Ok(false);
            }
            Poll::Ready(Ok(0)) => return Err(End::Gone),
            Poll::Ready(Ok(_)) => {}
            Poll::Ready(Err(error)) => return Err(End::Lost(error)),
        }
        self.logic.receive(&mut self.wire.input);
        Ok(true)
    }

    /// Writes what the stream takes and the lag allows. Ready when that is all there is now: true if it was not nothing.
    fn poll_write(&mut self, cx: &mut Context<'_>, now: Instant) -> Poll<io::Result<bool>> {
        let mut written = false;
        loop {
            let outbox = self.logic.outbox();
            let allowed = self.lag.allow(outbox.len(), now);
            if allowed == 0 {
                break;
            }
            let count = ready!(self.wire.poll_write(cx, outbox, allowed))?;
            self.lag.wrote(count);
            written = true;
        }
        // What the stream holds back it writes by itself when it can: a flush that has to wait is asked for again.
        if let Poll::Ready(flushed) = self.wire.poll_flush(cx) {
            flushed?;
        }
        Poll::Ready(Ok(written))
    }

    /// Sets the timer to what comes next; false if that is now.
    fn poll_timer(&mut self, cx: &mut Context<'_>, now: Instant) -> bool {
        let deadlines = [self.logic.deadline(), self.lag.deadline(now)];
        let Some(at) = deadlines.into_iter().flatten().min() else { return true };
        if self.timer_at != Some(at) {
            self.timer_at = Some(at);
            self.timer.as_mut().reset(at.into());
        }
        let due = self.timer.as_mut().poll(cx).is_ready();
        if due {
            self.timer_at = None;
        }
        !due
    }

    /// Writes what is left and ends the stream.
    async fn finish(&mut self, course: &mut watch::Receiver<Course>) {
        let Self { wire, logic, .. } = self;
        let flush_and_listen = async {
            let flush = async {
                poll_fn(|cx| wire.poll_write_all(cx, logic.outbox())).await?;
                wire.shut_down().await
            };
            if matches!(tokio::time::timeout(FLUSH_TIME_MAX, flush).await, Ok(Ok(()))) {
                let _ = tokio::time::timeout(LINGER_TIME_MAX, wire.linger()).await;
            }
        };
        tokio::select! {
            () = flush_and_listen => {}
            _ = course.wait_for(|course| *course == Course::Over) => {}
        }
    }
}
