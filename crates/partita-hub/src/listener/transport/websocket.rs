//! AMQP in a WebSocket, as the service has it: a stream of bytes in binary messages, whose bounds mean nothing.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::{Buf, Bytes, BytesMut};
use futures_util::{Sink, Stream};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, ReadBuf};
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::handshake::machine::TryParse;
use tokio_tungstenite::tungstenite::handshake::server::{Request, create_response, write_response};
use tokio_tungstenite::tungstenite::http::HeaderValue;
use tokio_tungstenite::tungstenite::http::header::SEC_WEBSOCKET_PROTOCOL;
use tokio_tungstenite::tungstenite::protocol::{Role, WebSocketConfig};
use tokio_tungstenite::tungstenite::{self, Message};

use super::AcceptError;

/// Where the WebSocket is.
pub const PATH: &str = "/$servicebus/websocket";
/// What is spoken in it, as Event Hubs calls it.
pub const SUBPROTOCOL: &str = "AMQPWSB10";
/// The name in AMQP's own binding, which the SDKs for Go and Rust ask for.
const SUBPROTOCOL_OF_AMQP: &str = "amqp";

/// The longest request for an upgrade.
const REQUEST_BYTES_MAX: usize = 8 << 10;
/// The longest message of a client; some write all they have as one.
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

/// Answers a client's request for a WebSocket, of which `read` was already read.
pub(super) async fn upgrade<S: AsyncRead + AsyncWrite + Unpin>(
    mut stream: S,
    mut read: Vec<u8>,
) -> Result<Box<WebSocket<S>>, AcceptError> {
    let answer = loop {
        match Request::try_parse(&read) {
            Ok(Some((length, request))) => break answer(&request).map(|response| (length, response)),
            Ok(None) if read.len() >= REQUEST_BYTES_MAX => break Err("its headers are too long"),
            Ok(None) => {
                let room = (REQUEST_BYTES_MAX - read.len()) as u64;
                if (&mut stream).take(room).read_buf(&mut read).await? == 0 {
                    return Err(io::Error::from(io::ErrorKind::UnexpectedEof).into());
                }
            }
            Err(_) => break Err("it is not HTTP/1.1, or has too many headers"),
        }
    };
    match answer {
        Ok((length, response)) => {
            stream.write_all(&response).await?;
            stream.flush().await?;
            let rest = read.split_off(length);
            let socket =
                WebSocketStream::from_partially_read(stream, rest, Role::Server, Some(config())).await;
            Ok(Box::new(WebSocket { socket, received: Bytes::new(), unflushed: false }))
        }
        Err(reason) => {
            stream.write_all(refusal(reason).as_bytes()).await?;
            stream.shutdown().await?;
            Err(AcceptError::NotAWebSocket(reason))
        }
    }
}

/// The answer to a request for an AMQP WebSocket; or why it is none, pure.
fn answer(request: &Request) -> Result<Vec<u8>, &'static str> {
    let path = request.uri().path().replace("%24", "$");
    if path.trim_end_matches('/') != PATH {
        return Err("there is only /$servicebus/websocket");
    }
    let offered = request.headers().get_all(SEC_WEBSOCKET_PROTOCOL);
    let mut offered =
        offered.iter().filter_map(|value| value.to_str().ok()).flat_map(|value| value.split(','));
    let known = |name: &str| {
        let same = |known: &&str| name.trim().eq_ignore_ascii_case(known);
        [SUBPROTOCOL, SUBPROTOCOL_OF_AMQP].into_iter().find(same)
    };
    let Some(subprotocol) = offered.find_map(known) else {
        return Err("the subprotocol must be AMQPWSB10 or amqp");
    };
    let mut response = create_response(request).map_err(|_| "it is no WebSocket upgrade of version 13")?;
    response.headers_mut().insert(SEC_WEBSOCKET_PROTOCOL, HeaderValue::from_static(subprotocol));
    let mut bytes = Vec::new();
    write_response(&mut bytes, &response).map_err(|_| "it cannot be answered")?;
    Ok(bytes)
}

fn refusal(reason: &str) -> String {
    let text =
        format!("This is the hub's AMQP port, and this request is not for an AMQP WebSocket: {reason}.\n");
    let length = text.len();
    format!(
        "HTTP/1.1 400 Bad Request\r\nContent-Type: text/plain; charset=utf-8\r\nContent-Length: {length}\r\n\
         Connection: close\r\n\r\n{text}"
    )
}

/// The bytes in a WebSocket's binary messages, as a stream. Pings are answered while it is read.
#[derive(Debug)]
pub struct WebSocket<S> {
    socket: WebSocketStream<S>,
    /// What of the last message was not yet taken.
    received: Bytes,
    /// Something written may still be in the socket's buffer.
    unflushed: bool,
}

impl<S: AsyncRead + AsyncWrite + Unpin> WebSocket<S> {
    pub(super) fn get_ref(&self) -> &S {
        self.socket.get_ref()
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
                Some(Ok(Message::Binary(bytes))) => this.received = bytes,
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

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use futures_util::StreamExt;
    use tokio_tungstenite::client_async;
    use tokio_tungstenite::tungstenite::client::IntoClientRequest;

    use super::*;

    /// A writer that waits for the answer and does not flush must not wait for bytes that never left.
    #[tokio::test]
    async fn what_did_not_fit_the_wire_leaves_while_it_is_read() {
        let (theirs, ours) = tokio::io::duplex(1_024);
        let mut request = format!("ws://localhost{PATH}").into_client_request().unwrap();
        request.headers_mut().insert(SEC_WEBSOCKET_PROTOCOL, HeaderValue::from_static(SUBPROTOCOL));
        let (client, server) = tokio::join!(client_async(request, theirs), upgrade(ours, Vec::new()));
        let ((mut client, _), mut server) = (client.unwrap(), server.unwrap());
        assert_eq!(server.write(&[7; 10_000]).await.unwrap(), 10_000);
        let answer = async {
            let message = client.next().await.unwrap().unwrap();
            assert_eq!(message.into_data(), vec![7; 10_000]);
            drop(client);
        };
        let ended = async { server.read_u8().await.unwrap_err() };
        tokio::time::timeout(Duration::from_secs(60), async { tokio::join!(answer, ended) })
            .await
            .expect("it leaves");
    }
}
