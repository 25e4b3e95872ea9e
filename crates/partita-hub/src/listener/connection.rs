//! The task of one connection: moves bytes, waits for whatever comes first, and lets the core decide.

use std::future::Future;
use std::io::{self, IoSlice};
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use bytes::BytesMut;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite};
use tokio::sync::watch;
use tokio::time::Sleep;

use super::core::{Core, End};
use super::habits::Lag;
use crate::server::{Course, Peer, Seat};

/// How much is read at once, at first and at most. It doubles when it was filled.
const READ_BYTES_MIN: usize = 4 << 10;
const READ_BYTES_MAX: usize = 256 << 10;

/// The same, of a client without a token.
const STRANGERS_READ_BYTES_MAX: usize = 8 << 10;

/// Pieces of a vectored write.
const SLICES_MAX: usize = 32;

/// How long the last bytes may take.
const FLUSH_TIME_MAX: Duration = Duration::from_secs(5);

/// How long, and for how much, a client is listened to after the end.
const LINGER_TIME_MAX: Duration = Duration::from_secs(1);
const LINGER_BYTES_MAX: usize = 1 << 20;

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
            end = std::future::poll_fn(|cx| task.poll(cx)) => break end,
            _ = course.changed() => Change::Course,
            _ = faults.changed() => Change::Faults,
        };
        match change {
            Change::Course => {
                let now = *course.borrow_and_update();
                match now {
                    Course::Running => {}
                    Course::Ending(until) => task.core.shut_down(until.into_std()),
                    Course::Over => break End::Cut,
                }
            }
            Change::Faults => task.core.look_at_faults(Instant::now()),
        }
    };
    if matches!(end, End::Closed) {
        task.finish(&mut course).await;
    }
    let client = task.core.client();
    tracing::info!(%peer, connection = task.core.id(), client, end = %end, "connection ended");
}

enum Change {
    Course,
    Faults,
}

struct Task<S> {
    stream: S,
    core: Core,
    input: BytesMut,
    read_bytes: usize,
    /// Whether bytes are on their way that the stream may hold back.
    unflushed: bool,
    lag: Lag,
    timer: Pin<Box<Sleep>>,
    /// What the timer is set to.
    timer_at: Option<Instant>,
}

impl<S: AsyncRead + AsyncWrite + Unpin> Task<S> {
    fn new(stream: S, seat: Seat) -> Self {
        Self {
            stream,
            core: Core::new(seat, Instant::now()),
            input: BytesMut::new(),
            read_bytes: READ_BYTES_MIN,
            unflushed: false,
            lag: Lag::default(),
            timer: Box::pin(tokio::time::sleep(Duration::ZERO)),
            timer_at: None,
        }
    }

    /// Does all that can be done now.
    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<End> {
        self.core.register(cx);
        loop {
            let now = Instant::now();
            self.core.on_time(now);
            let read = match self.poll_read(cx) {
                Ok(read) => read,
                Err(end) => return Poll::Ready(end),
            };
            let worked = self.core.work(now);
            self.core.look_at_stranger(self.input.len(), now);
            self.lag.set(self.core.distance);
            let written = match self.poll_write(cx, now) {
                Ok(written) => written,
                Err(error) => return Poll::Ready(End::Lost(error)),
            };
            if let Some(end) = self.core.end() {
                return Poll::Ready(end);
            }
            if !(read || worked || written) && self.poll_timer(cx, now) {
                return Poll::Pending;
            }
        }
    }

    /// Hands to the core what there is; true if there was anything.
    fn poll_read(&mut self, cx: &mut Context<'_>) -> Result<bool, End> {
        // What is there already comes first; if the core cannot take it, it will not take more either.
        if !self.input.is_empty() && self.core.receive(&mut self.input) {
            return Ok(false);
        }
        if !self.core.listens() {
            return Ok(false);
        }
        self.input.reserve(self.read_bytes);
        let read = std::pin::pin!(self.stream.read_buf(&mut self.input)).poll(cx);
        let count = match read {
            Poll::Pending => {
                // An idle connection keeps little.
                if self.input.is_empty() && self.read_bytes > READ_BYTES_MIN {
                    self.read_bytes = READ_BYTES_MIN;
                    self.input = BytesMut::new();
                }
                return Ok(false);
            }
            Poll::Ready(Ok(0)) => return Err(End::Gone),
            Poll::Ready(Ok(count)) => count,
            Poll::Ready(Err(error)) => return Err(End::Lost(error)),
        };
        if count >= self.read_bytes {
            let max = if self.core.is_stranger() { STRANGERS_READ_BYTES_MAX } else { READ_BYTES_MAX };
            self.read_bytes = (self.read_bytes * 2).min(max);
        }
        self.core.receive(&mut self.input);
        Ok(true)
    }

    /// Writes what the stream takes; true if it was all there was, and not nothing.
    fn poll_write(&mut self, cx: &mut Context<'_>, now: Instant) -> io::Result<bool> {
        let mut written = false;
        loop {
            let outbox = self.core.outbox();
            let allowed = self.lag.allow(outbox.len(), now);
            if allowed == 0 {
                break;
            }
            let result = if allowed < outbox.len() {
                let chunk = outbox.chunk();
                Pin::new(&mut self.stream).poll_write(cx, &chunk[..chunk.len().min(allowed)])
            } else if self.stream.is_write_vectored() {
                let mut slices = [IoSlice::new(&[]); SLICES_MAX];
                let filled = outbox.io_slices(&mut slices);
                Pin::new(&mut self.stream).poll_write_vectored(cx, &slices[..filled])
            } else {
                Pin::new(&mut self.stream).poll_write(cx, outbox.chunk())
            };
            match result {
                Poll::Pending => return Ok(false),
                Poll::Ready(Ok(0)) => return Err(io::ErrorKind::WriteZero.into()),
                Poll::Ready(Ok(count)) => {
                    outbox.advance(count);
                    self.lag.wrote(count);
                }
                Poll::Ready(Err(error)) => return Err(error),
            }
            self.unflushed = true;
            written = true;
        }
        if self.unflushed
            && let Poll::Ready(flushed) = Pin::new(&mut self.stream).poll_flush(cx)
        {
            flushed?;
            self.unflushed = false;
        }
        Ok(written)
    }

    /// Sets the timer to what comes next; false if that is now.
    fn poll_timer(&mut self, cx: &mut Context<'_>, now: Instant) -> bool {
        let deadlines = [self.core.deadline(), self.lag.deadline(now)];
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

    /// Writes what is left and ends the stream. What the client still says is read and forgotten: a stream that is dropped
    /// with unread bytes may take back what was just written.
    async fn finish(&mut self, course: &mut watch::Receiver<Course>) {
        let flush_and_listen = async {
            if tokio::time::timeout(FLUSH_TIME_MAX, self.flush()).await.is_ok() {
                let _ = tokio::time::timeout(LINGER_TIME_MAX, self.linger()).await;
            }
        };
        tokio::select! {
            () = flush_and_listen => {}
            _ = course.wait_for(|course| *course == Course::Over) => {}
        }
    }

    async fn flush(&mut self) {
        self.lag.set(Duration::ZERO);
        let written = std::future::poll_fn(|cx| {
            loop {
                match self.poll_write(cx, Instant::now()) {
                    Err(_) => return Poll::Ready(()),
                    Ok(_) if self.core.outbox().is_empty() && !self.unflushed => {
                        return Pin::new(&mut self.stream).poll_shutdown(cx).map(|_| ());
                    }
                    Ok(true) => {}
                    Ok(false) => return Poll::Pending,
                }
            }
        });
        written.await;
    }

    async fn linger(&mut self) {
        let mut left = LINGER_BYTES_MAX;
        while left > 0 {
            self.input.clear();
            self.input.reserve(READ_BYTES_MIN);
            match self.stream.read_buf(&mut self.input).await {
                Ok(0) | Err(_) => break,
                Ok(count) => left = left.saturating_sub(count),
            }
        }
    }
}
