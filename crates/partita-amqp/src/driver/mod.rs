//! A connection on a stream of tokio's: TCP, TLS, WebSocket, a pipe. Only this module knows a runtime and a clock.

#[cfg(feature = "websocket")]
pub mod websocket;

use std::future::{Future, poll_fn};
use std::io::{self, IoSlice};
use std::pin::{Pin, pin};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::BytesMut;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::time::{Instant, Sleep};

use crate::connection::{Connection, Event};

/// Room for a read, at first and on a quiet connection, and at most.
const READ_BYTES: std::ops::RangeInclusive<usize> = 4 * 1024..=256 * 1024;

/// Pieces of one vectored write.
const SLICES_MAX: usize = 64;

/// What a peer may still say after the end, before its bytes are no longer taken off.
const LINGER_BYTES_MAX: usize = 1024 * 1024;

/// What a [`turn`](Driver::turn) did.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Progress {
    /// Bytes came: there may be events.
    Read,
    /// Bytes went: there may be room for more.
    Written,
    /// A time came: there may be events.
    Time,
    /// Nothing will follow: the connection is closed and all is written, or the peer hung up.
    End,
}

/// A connection on a stream.
///
/// One task owns it and does this in turns: take events, call verbs, wait for [`turn`](Self::turn) or for whatever else it
/// waits for. Who produces looks at the length of the outbox first: nothing else holds a fast producer back from a slow
/// peer.
#[derive(Debug)]
pub struct Driver<S> {
    stream: S,
    connection: Connection,
    input: BytesMut,
    /// How much room the next read shall have.
    read_bytes: usize,
    /// Whether there are frames in `input` for which the connection had no room.
    paused: bool,
    hung_up: bool,
    /// Whether something was written since the stream was last flushed.
    unflushed: bool,
    sleep: Pin<Box<Sleep>>,
}

impl<S: AsyncRead + AsyncWrite + Unpin> Driver<S> {
    /// Puts a connection, made with the present [`now`], on a stream.
    pub fn new(stream: S, connection: Connection) -> Self {
        Self {
            stream,
            connection,
            input: BytesMut::new(),
            read_bytes: *READ_BYTES.start(),
            paused: false,
            hung_up: false,
            unflushed: false,
            sleep: Box::pin(tokio::time::sleep(Duration::ZERO)),
        }
    }

    /// The connection, for its events and verbs.
    pub fn connection(&mut self) -> &mut Connection {
        &mut self.connection
    }

    /// The stream.
    pub fn stream(&self) -> &S {
        &self.stream
    }

    /// Waits until something was read or written or a time came. May be dropped at any moment without loss.
    pub async fn turn(&mut self) -> io::Result<Progress> {
        poll_fn(|cx| self.poll_turn(cx)).await
    }

    /// The next event, with as many turns as it takes; `None` after the end. May be dropped at any moment without loss.
    pub async fn event(&mut self) -> io::Result<Option<Event>> {
        loop {
            if let Some(event) = self.connection.poll() {
                return Ok(Some(event));
            }
            if self.turn().await? == Progress::End {
                return Ok(self.connection.poll());
            }
        }
    }

    /// Writes what is left and hangs up. Waits a little for the peer to do so, too: a stream that is dropped with unread
    /// bytes may take back what was just written.
    pub async fn finish(mut self, patience: Duration) -> io::Result<()> {
        let all = async {
            poll_fn(|cx| self.poll_write(cx)).await?;
            self.stream.shutdown().await?;
            let mut left = LINGER_BYTES_MAX;
            while !self.hung_up && left > 0 {
                self.input.clear();
                self.input.reserve(*READ_BYTES.start());
                match self.stream.read_buf(&mut self.input).await? {
                    0 => break,
                    count => left = left.saturating_sub(count),
                }
            }
            Ok(())
        };
        tokio::time::timeout(patience, all).await.unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into()))
    }

    // ---- within -----------------------------------------------------------------------------------------------

    fn poll_turn(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<Progress>> {
        if self.paused && self.take_frames() {
            return Poll::Ready(Ok(Progress::Read));
        }
        let before = self.connection.outbox().len();
        let write = self.poll_write(cx)?;
        let wrote = self.connection.outbox().len() < before;
        if write.is_ready() && self.connection.is_closed() || self.hung_up {
            return Poll::Ready(Ok(Progress::End));
        }
        if self.poll_read(cx)?.is_ready() {
            return Poll::Ready(Ok(if self.hung_up { Progress::End } else { Progress::Read }));
        }
        if wrote {
            return Poll::Ready(Ok(Progress::Written));
        }
        if let Some(deadline) = self.connection.deadline() {
            let deadline = Instant::from_std(deadline);
            if self.sleep.deadline() != deadline {
                self.sleep.as_mut().reset(deadline);
            }
            if self.sleep.as_mut().poll(cx).is_ready() {
                self.connection.on_time(now());
                self.shrink();
                return Poll::Ready(Ok(Progress::Time));
            }
        }
        Poll::Pending
    }

    /// Ready when all is written and flushed.
    fn poll_write(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let outbox = self.connection.outbox();
        while !outbox.is_empty() {
            let mut slices = [IoSlice::new(&[]); SLICES_MAX];
            let filled = outbox.io_slices(&mut slices);
            let write = Pin::new(&mut self.stream).poll_write_vectored(cx, &slices[..filled]);
            match ready!(write)? {
                0 => return Poll::Ready(Err(io::ErrorKind::WriteZero.into())),
                count => outbox.advance(count),
            }
            self.unflushed = true;
        }
        if self.unflushed {
            ready!(Pin::new(&mut self.stream).poll_flush(cx))?;
            self.unflushed = false;
        }
        Poll::Ready(Ok(()))
    }

    /// Ready when something was read, or the peer hung up.
    fn poll_read(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        if self.paused {
            return Poll::Pending;
        }
        self.input.reserve(self.read_bytes);
        let room = self.input.capacity() - self.input.len();
        // The future holds nothing: dropped and made again it goes on.
        let count = ready!(pin!(self.stream.read_buf(&mut self.input)).poll(cx))?;
        self.hung_up = count == 0;
        let wanted = match count {
            _ if count == room => self.read_bytes * 2,
            _ if count < self.read_bytes / 8 => self.read_bytes / 2,
            _ => self.read_bytes,
        };
        self.read_bytes = wanted.clamp(*READ_BYTES.start(), *READ_BYTES.end());
        self.take_frames();
        Poll::Ready(Ok(()))
    }

    /// Hands what was read to the connection; whether that took any of it.
    fn take_frames(&mut self) -> bool {
        let before = self.input.len();
        self.paused = self.connection.receive(&mut self.input);
        self.input.len() < before
    }

    /// Gives back memory that a quiet connection does not need.
    fn shrink(&mut self) {
        if self.input.is_empty() {
            self.input = BytesMut::new();
            self.read_bytes = *READ_BYTES.start();
        }
    }
}

/// The present, as this driver sees it: for [`Connection::accept`] and [`Connection::connect`].
pub fn now() -> std::time::Instant {
    Instant::now().into_std()
}
