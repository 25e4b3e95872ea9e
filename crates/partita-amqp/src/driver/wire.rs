//! Bytes between a stream and the buffers of a connection. Both ends use it, the hub's and a client's.

use std::future::Future;
use std::io::{self, IoSlice};
use std::pin::{Pin, pin};
use std::task::{Context, Poll, ready};

use bytes::BytesMut;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};

use crate::connection::Outbox;

/// Room for a read, at first and on a quiet connection.
pub const READ_BYTES_MIN: usize = 4 << 10;

/// Room for a read, at most.
pub const READ_BYTES_MAX: usize = 256 << 10;

/// Pieces of one vectored write.
const SLICES_MAX: usize = 64;

/// What a peer may still say after the end, before its bytes are no longer taken off.
const LINGER_BYTES_MAX: usize = 1 << 20;

/// A stream with what was read from it and not taken yet. Reads grow while they are filled and shrink when little comes.
#[derive(Debug)]
pub struct Wire<S> {
    stream: S,
    /// What was read. Whoever owns the connection takes frames off its front.
    pub input: BytesMut,
    /// How much room the next read shall have.
    read_bytes: usize,
    /// Whether something was written since the stream was last flushed.
    unflushed: bool,
}

impl<S: AsyncRead + AsyncWrite + Unpin> Wire<S> {
    /// Nothing was read or written yet.
    pub fn new(stream: S) -> Self {
        Self { stream, input: BytesMut::new(), read_bytes: READ_BYTES_MIN, unflushed: false }
    }

    /// The stream.
    pub fn stream(&self) -> &S {
        &self.stream
    }

    /// Reads once, with at most so much room, and says how many bytes came; 0 when the peer has hung up.
    pub fn poll_read(&mut self, cx: &mut Context<'_>, room_max: usize) -> Poll<io::Result<usize>> {
        self.input.reserve(self.read_bytes);
        // The future holds nothing: dropped and made again it goes on.
        let count = ready!(pin!(self.stream.read_buf(&mut self.input)).poll(cx))?;
        self.read_bytes = match count {
            _ if count >= self.read_bytes => (self.read_bytes * 2).min(room_max),
            _ if count < self.read_bytes / 8 => (self.read_bytes / 2).max(READ_BYTES_MIN),
            _ => self.read_bytes,
        };
        Poll::Ready(Ok(count))
    }

    /// Gives back memory that a quiet connection does not need.
    pub fn rest(&mut self) {
        if self.input.is_empty() && self.read_bytes > READ_BYTES_MIN {
            self.input = BytesMut::new();
            self.read_bytes = READ_BYTES_MIN;
        }
    }

    /// Writes once, at most so many bytes of what is to be written, and says how many.
    pub fn poll_write(
        &mut self,
        cx: &mut Context<'_>,
        outbox: &mut Outbox,
        bytes_max: usize,
    ) -> Poll<io::Result<usize>> {
        let stream = Pin::new(&mut self.stream);
        let written = if bytes_max < outbox.len() {
            let chunk = outbox.chunk();
            stream.poll_write(cx, &chunk[..chunk.len().min(bytes_max)])
        } else if stream.is_write_vectored() {
            let mut slices = [IoSlice::new(&[]); SLICES_MAX];
            let filled = outbox.io_slices(&mut slices);
            stream.poll_write_vectored(cx, &slices[..filled])
        } else {
            stream.poll_write(cx, outbox.chunk())
        };
        let count = ready!(written)?;
        if count == 0 {
            return Poll::Ready(Err(io::ErrorKind::WriteZero.into()));
        }
        outbox.advance(count);
        self.unflushed = true;
        Poll::Ready(Ok(count))
    }

    /// Ready when nothing that was written is held back by the stream.
    pub fn poll_flush(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        if self.unflushed {
            ready!(Pin::new(&mut self.stream).poll_flush(cx))?;
            self.unflushed = false;
        }
        Poll::Ready(Ok(()))
    }

    /// Ready when all is written and flushed.
    pub fn poll_write_all(&mut self, cx: &mut Context<'_>, outbox: &mut Outbox) -> Poll<io::Result<()>> {
        while !outbox.is_empty() {
            ready!(self.poll_write(cx, outbox, usize::MAX))?;
        }
        self.poll_flush(cx)
    }

    /// Hangs up.
    pub async fn shut_down(&mut self) -> io::Result<()> {
        self.stream.shutdown().await
    }

    /// Reads and forgets what the peer still says until it hangs up, too, or has said too much: a stream that is dropped
    /// with unread bytes may take back what was just written.
    pub async fn linger(&mut self) -> io::Result<()> {
        let mut left = LINGER_BYTES_MAX;
        while left > 0 {
            self.input.clear();
            self.input.reserve(READ_BYTES_MIN);
            match self.stream.read_buf(&mut self.input).await? {
                0 => break,
                count => left = left.saturating_sub(count),
            }
        }
        Ok(())
    }
}
