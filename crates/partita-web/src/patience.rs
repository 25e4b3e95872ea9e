//! A connection whose client must read what it asked for: one that does not is cut.

use std::future::Future;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::Sleep;

/// How long a client may take to read an answer, from when it first held up the writing.
const READS_IN_TIME_MAX: Duration = Duration::from_secs(20);

/// A stream whose writes fail when the other end does not read them in time.
#[derive(Debug)]
pub(crate) struct Patient<S> {
    stream: S,
    /// Runs from the first write that had to wait until all that was written has left. A byte now and then does not stop it.
    patience: Option<Pin<Box<Sleep>>>,
}

impl<S> Patient<S> {
    pub(crate) fn new(stream: S) -> Self {
        Self { stream, patience: None }
    }

    /// Bounds how long a write may wait.
    fn within<T>(&mut self, cx: &mut Context<'_>, written: Poll<io::Result<T>>) -> Poll<io::Result<T>> {
        if written.is_pending() {
            let patience =
                self.patience.get_or_insert_with(|| Box::pin(tokio::time::sleep(READS_IN_TIME_MAX)));
            if patience.as_mut().poll(cx).is_ready() {
                return Poll::Ready(Err(io::ErrorKind::TimedOut.into()));
            }
        }
        written
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Patient<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(cx, buf)
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Patient<S> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write(cx, buf);
        self.within(cx, written)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write_vectored(cx, bufs);
        self.within(cx, written)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    /// Asked for when all was written.
    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let flushed = Pin::new(&mut self.stream).poll_flush(cx);
        if flushed.is_ready() {
            self.patience = None;
        }
        self.within(cx, flushed)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let shut = Pin::new(&mut self.stream).poll_shutdown(cx);
        self.within(cx, shut)
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::time::Instant;

    use super::*;

    /// Time is simulated: it passes when nobody has anything to do.
    #[tokio::test(start_paused = true)]
    async fn a_client_that_reads_nothing_or_little_is_cut_at_the_same_time() {
        for reads in [false, true] {
            let (theirs, ours) = tokio::io::duplex(64);
            let reading = tokio::spawn(async move {
                let mut theirs = theirs;
                loop {
                    tokio::time::sleep(Duration::from_secs(1)).await;
                    if reads && theirs.read_u8().await.is_err() {
                        break;
                    }
                }
            });
            let (mut stream, began) = (Patient::new(ours), Instant::now());
            let failed = stream.write_all(&[0; 10_000]).await.unwrap_err();
            assert_eq!(failed.kind(), io::ErrorKind::TimedOut);
            assert!(began.elapsed() <= READS_IN_TIME_MAX + Duration::from_secs(2), "{:?}", began.elapsed());
            reading.abort();
        }
    }

    #[tokio::test(start_paused = true)]
    async fn an_answer_that_is_read_leaves_all_the_time_for_the_next() {
        let (mut theirs, ours) = tokio::io::duplex(64);
        let mut stream = Patient::new(ours);
        for _ in 0..5 {
            let write = async {
                stream.write_all(&[7; 100]).await.unwrap();
                stream.flush().await.unwrap();
            };
            let read = async {
                tokio::time::sleep(READS_IN_TIME_MAX / 2).await;
                theirs.read_exact(&mut [0; 100]).await.unwrap();
            };
            tokio::join!(write, read);
        }
    }
}
