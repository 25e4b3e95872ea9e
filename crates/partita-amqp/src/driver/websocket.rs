//! AMQP in a WebSocket, as Event Hubs has it: a stream of bytes in binary messages, whose bounds mean nothing. Servers and
//! clients shake hands in their own ways; what comes after that is the same.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, ready};

use bytes::{Buf, Bytes, BytesMut};
use futures_util::{Sink, Stream};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::client::IntoClientRequest;
use tokio_tungstenite::tungstenite::http::HeaderValue;
use tokio_tungstenite::tungstenite::http::header::SEC_WEBSOCKET_PROTOCOL;
use tokio_tungstenite::tungstenite::protocol::{Role, WebSocketConfig};
use tokio_tungstenite::tungstenite::{self, Message};

/// Where the WebSocket is.
pub const PATH: &str = "/$servicebus/websocket";
/// What is spoken in it.
pub const SUBPROTOCOL: &str = "AMQPWSB10";

/// The longest message of the peer; some write all they have as one.
const MESSAGE_BYTES_MAX: usize = 4 << 20;
/// The longest message of ours.
const SENT_BYTES_MAX: usize = 64 << 10;
/// Read at once. Each connection has a buffer of this size, idle or not.
const READ_BYTES: usize = 16 << 10;

fn config() -> WebSocketConfig {
    WebSocketConfig::default()
        .read_buffer_size(READ_BYTES)
        // Nothing is held back: the writer batches by itself.
        .write_buffer_size(0)
        .max_write_buffer_size(4 * SENT_BYTES_MAX)
        .max_message_size(Some(MESSAGE_BYTES_MAX))
        .max_frame_size(Some(MESSAGE_BYTES_MAX))
}

/// A stream that counts what was read of it since it was last asked to begin anew, and may limit that.
#[derive(Debug)]
struct Metered<S> {
    stream: S,
    read: usize,
    limit: Option<Limit>,
}

/// How much may be read of one message, until somebody says otherwise.
#[derive(Debug)]
struct Limit {
    bytes_max: usize,
    lifted: Arc<AtomicBool>,
}

impl<S> Metered<S> {
    fn new(stream: S) -> Self {
        Self { stream, read: 0, limit: None }
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Metered<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let this = &mut *self;
        if let Some(limit) = &this.limit {
            if limit.lifted.load(Ordering::Acquire) {
                this.limit = None;
            } else if this.read > limit.bytes_max {
                let text = "a WebSocket message is too large for a client that nobody knows yet";
                return Poll::Ready(Err(io::Error::new(io::ErrorKind::InvalidData, text)));
            }
        }
        let before = buf.filled().len();
        ready!(Pin::new(&mut this.stream).poll_read(cx, buf))?;
        this.read = this.read.saturating_add(buf.filled().len() - before);
        Poll::Ready(Ok(()))
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Metered<S> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(cx, buf)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}

/// The bytes in a WebSocket's binary messages, as a stream. Pings are answered while it is read.
#[derive(Debug)]
pub struct WebSocket<S> {
    socket: WebSocketStream<Metered<S>>,
    /// What of the last message was not yet taken.
    received: Bytes,
    /// Something written may still be in the socket's buffer.
    unflushed: bool,
}

impl<S: AsyncRead + AsyncWrite + Unpin> WebSocket<S> {
    /// The server's end, after its handshake, of which `rest` was already read.
    pub async fn server(stream: S, rest: Vec<u8>) -> Self {
        let stream = Metered::new(stream);
        Self::new(WebSocketStream::from_partially_read(stream, rest, Role::Server, Some(config())).await)
    }

    /// The client's end: shakes hands with the host of this name, over `stream`.
    pub async fn client(stream: S, host: &str, secure: bool) -> io::Result<Self> {
        let scheme = if secure { "wss" } else { "ws" };
        let mut request = format!("{scheme}://{host}{PATH}").into_client_request().map_err(into_io)?;
        request.headers_mut().insert(SEC_WEBSOCKET_PROTOCOL, HeaderValue::from_static(SUBPROTOCOL));
        let stream = Metered::new(stream);
        let connected = tokio_tungstenite::client_async_with_config(request, stream, Some(config())).await;
        Ok(Self::new(connected.map_err(into_io)?.0))
    }

    fn new(socket: WebSocketStream<Metered<S>>) -> Self {
        Self { socket, received: Bytes::new(), unflushed: false }
    }

    /// The stream that it is in.
    pub fn get_ref(&self) -> &S {
        &self.socket.get_ref().stream
    }

    /// Fails when more than about `bytes_max` were read of one message, control frames between its parts included, until
    /// `lifted` is set.
    pub fn limited_until(mut self, bytes_max: usize, lifted: Arc<AtomicBool>) -> Self {
        // What is read ahead may be of the message before.
        self.socket.get_mut().limit = Some(Limit { bytes_max: bytes_max + READ_BYTES, lifted });
        self
    }

    /// Writes one message. It is at most one of them that the buffer holds: the next waits until it has gone.
    fn poll_send(
        &mut self,
        cx: &mut Context<'_>,
        message: impl FnOnce() -> Bytes,
    ) -> Poll<io::Result<usize>> {
        ready!(Pin::new(&mut self.socket).poll_ready(cx)).map_err(into_io)?;
        let bytes = message();
        let length = bytes.len();
        Pin::new(&mut self.socket).start_send(Message::Binary(bytes)).map_err(into_io)?;
        self.unflushed = true;
        Poll::Ready(Ok(length))
    }

    fn try_flush(&mut self, cx: &mut Context<'_>) -> io::Result<Poll<()>> {
        match Pin::new(&mut self.socket).poll_flush(cx) {
            Poll::Ready(done) => done.map(Poll::Ready).map_err(into_io),
            Poll::Pending => Ok(Poll::Pending),
        }
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> AsyncRead for WebSocket<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let this = &mut *self;
        // A writer that waits for an answer without flushing would wait for ever.
        if this.unflushed && this.try_flush(cx)?.is_ready() {
            this.unflushed = false;
        }
        while this.received.is_empty() {
            match ready!(Pin::new(&mut this.socket).poll_next(cx)) {
                Some(Ok(Message::Binary(bytes))) => {
                    this.socket.get_mut().read = 0;
                    this.received = bytes;
                }
                Some(Ok(Message::Text(_))) => {
                    let text = "a text message came, AMQP is in binary ones";
                    return Poll::Ready(Err(io::Error::new(io::ErrorKind::InvalidData, text)));
                }
                // Answered by the library while it is polled on; after a close nothing more comes.
                Some(Ok(_)) => {}
                Some(Err(error)) => return Poll::Ready(Err(into_io(error))),
                None => return Poll::Ready(Ok(())),
            }
        }
        let count = this.received.len().min(buf.remaining());
        buf.put_slice(&this.received[..count]);
        this.received.advance(count);
        Poll::Ready(Ok(()))
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> AsyncWrite for WebSocket<S> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        if buf.is_empty() {
            return Poll::Ready(Ok(0));
        }
        self.poll_send(cx, || Bytes::copy_from_slice(&buf[..buf.len().min(SENT_BYTES_MAX)]))
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        if bufs.iter().all(|buf| buf.is_empty()) {
            return Poll::Ready(Ok(0));
        }
        self.poll_send(cx, || {
            let length = bufs.iter().map(|buf| buf.len()).sum::<usize>().min(SENT_BYTES_MAX);
            let mut bytes = BytesMut::with_capacity(length);
            for buf in bufs {
                bytes.extend_from_slice(&buf[..buf.len().min(length - bytes.len())]);
            }
            bytes.freeze()
        })
    }

    /// One message for many small buffers.
    fn is_write_vectored(&self) -> bool {
        true
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        ready!(Pin::new(&mut self.socket).poll_flush(cx)).map_err(into_io)?;
        self.unflushed = false;
        Poll::Ready(Ok(()))
    }

    /// Says goodbye as WebSockets do; the client's answer is seen by whoever reads on.
    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.socket).poll_close(cx).map_err(into_io)
    }
}

fn into_io(error: tungstenite::Error) -> io::Error {
    match error {
        tungstenite::Error::Io(error) => error,
        tungstenite::Error::ConnectionClosed | tungstenite::Error::AlreadyClosed => {
            io::ErrorKind::NotConnected.into()
        }
        other => io::Error::new(io::ErrorKind::InvalidData, other),
    }
}
