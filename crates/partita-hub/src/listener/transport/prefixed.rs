//! A stream of which some bytes were already read.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// Gives the bytes that were read once more, then the rest of the stream.
#[derive(Debug)]
pub struct Prefixed<S> {
    stream: S,
    prefix: Vec<u8>,
    given: usize,
}

impl<S> Prefixed<S> {
    pub(super) fn new(stream: S, prefix: Vec<u8>) -> Self {
        Self { stream, prefix, given: 0 }
    }

    pub(super) fn get_ref(&self) -> &S {
        &self.stream
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Prefixed<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let this = &mut *self;
        if this.given == this.prefix.len() {
            return Pin::new(&mut this.stream).poll_read(cx, buf);
        }
        let rest = &this.prefix[this.given..];
        let count = rest.len().min(buf.remaining());
        buf.put_slice(&rest[..count]);
        this.given += count;
        if this.given == this.prefix.len() {
            this.prefix = Vec::new();
            this.given = 0;
        }
        Poll::Ready(Ok(()))
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Prefixed<S> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(cx, buf)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write_vectored(cx, bufs)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}
