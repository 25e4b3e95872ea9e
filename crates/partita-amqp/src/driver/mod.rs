//! A connection on a stream of tokio's: TCP, TLS, WebSocket, a pipe. Only this module knows a runtime and a clock.

#[cfg(feature = "websocket")]
pub mod websocket;
pub mod wire;

use std::future::{Future, poll_fn};
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite};
use tokio::time::{Instant, Sleep};

use crate::connection::{Connection, Event};
use wire::{READ_BYTES_MAX, Wire};

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
    wire: Wire<S>,
    connection: Connection,
    /// Whether there are frames in the wire's input for which the connection had no room.
    paused: bool,
    hung_up: bool,
    sleep: Pin<Box<Sleep>>,
}

impl<S: AsyncRead + AsyncWrite + Unpin> Driver<S> {
    /// Puts a connection, made with the present [`now`], on a stream.
    pub fn new(stream: S, connection: Connection) -> Self {
        Self {
            wire: Wire::new(stream),
            connection,
            paused: false,
            hung_up: false,
            sleep: Box::pin(tokio::time::sleep(Duration::ZERO)),
        }
    }

    /// The connection, for its events and verbs.
    pub fn connection(&mut self) -> &mut Connection {
        &mut self.connection
    }

    /// The stream.
    pub fn stream(&self) -> &S {
        self.wire.stream()
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

    /// Writes what is left and hangs up. Waits a little for the peer to do so, too.
    pub async fn finish(mut self, patience: Duration) -> io::Result<()> {
        let all = async {
            poll_fn(|cx| self.poll_write(cx)).await?;
            self.wire.shut_down().await?;
            if !self.hung_up {
                self.wire.linger().await?;
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
                self.wire.rest();
                return Poll::Ready(Ok(Progress::Time));
            }
        }
        Poll::Pending
    }

    /// Ready when all is written and flushed.
    fn poll_write(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.wire.poll_write_all(cx, self.connection.outbox())
    }

    /// Ready when something was read, or the peer hung up.
    fn poll_read(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        if self.paused {
            return Poll::Pending;
        }
        let count = ready!(self.wire.poll_read(cx, READ_BYTES_MAX))?;
        self.hung_up = count == 0;
        self.take_frames();
        Poll::Ready(Ok(()))
    }

    /// Hands what was read to the connection; whether that took any of it.
    fn take_frames(&mut self) -> bool {
        let input = &mut self.wire.input;
        let before = input.len();
        self.paused = self.connection.receive(input);
        input.len() < before
    }
}

/// The present, as this driver sees it: for [`Connection::accept`] and [`Connection::connect`].
pub fn now() -> std::time::Instant {
    Instant::now().into_std()
}
