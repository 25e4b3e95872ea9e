//! A client's connection, whatever is underneath.

use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::task::{Context, Poll};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
#[cfg(feature = "tls")]
use tokio_rustls::server::TlsStream;

#[cfg(feature = "websocket")]
use super::super::strangers::EACH_BYTES_MAX;
#[cfg(feature = "tls")]
use super::prefixed::Prefixed;
#[cfg(feature = "websocket")]
use super::websocket::WebSocket;

/// Bytes of AMQP to and from one client.
#[derive(Debug)]
#[non_exhaustive]
pub enum ClientStream {
    /// As they are.
    Tcp(TcpStream),
    /// In TLS.
    #[cfg(feature = "tls")]
    Tls(Box<Prefixed<TlsStream<TcpStream>>>),
    /// In a WebSocket.
    #[cfg(feature = "websocket")]
    WebSocket(Box<WebSocket<TcpStream>>),
    /// In a WebSocket in TLS.
    #[cfg(all(feature = "tls", feature = "websocket"))]
    WebSocketTls(Box<WebSocket<TlsStream<TcpStream>>>),
}

impl ClientStream {
    /// Takes no more than a little of a client at once until `trusted` is set: a WebSocket's messages may be large, and nothing
    /// of one is seen before all of it is there.
    #[cfg_attr(not(feature = "websocket"), allow(unused_variables))]
    pub(crate) fn limited_until(self, trusted: Arc<AtomicBool>) -> Self {
        match self {
            #[cfg(feature = "websocket")]
            Self::WebSocket(socket) => {
                Self::WebSocket(Box::new(socket.limited_until(EACH_BYTES_MAX, trusted)))
            }
            #[cfg(all(feature = "tls", feature = "websocket"))]
            Self::WebSocketTls(socket) => {
                Self::WebSocketTls(Box::new(socket.limited_until(EACH_BYTES_MAX, trusted)))
            }
            other => other,
        }
    }

    /// How the bytes travel: `amqp`, `amqps`, `ws` or `wss`.
    pub fn scheme(&self) -> &'static str {
        match self {
            Self::Tcp(_) => "amqp",
            #[cfg(feature = "tls")]
            Self::Tls(_) => "amqps",
            #[cfg(feature = "websocket")]
            Self::WebSocket(_) => "ws",
            #[cfg(all(feature = "tls", feature = "websocket"))]
            Self::WebSocketTls(_) => "wss",
        }
    }

    /// Where the client is.
    pub fn peer_addr(&self) -> io::Result<SocketAddr> {
        match self {
            Self::Tcp(tcp) => tcp.peer_addr(),
            #[cfg(feature = "tls")]
            Self::Tls(tls) => tls.get_ref().get_ref().0.peer_addr(),
            #[cfg(feature = "websocket")]
            Self::WebSocket(socket) => socket.get_ref().peer_addr(),
            #[cfg(all(feature = "tls", feature = "websocket"))]
            Self::WebSocketTls(socket) => socket.get_ref().get_ref().0.peer_addr(),
        }
    }
}

/// Calls a method of whichever stream it is.
macro_rules! each {
    ($self:ident, $stream:ident => $call:expr) => {
        match $self {
            ClientStream::Tcp($stream) => $call,
            #[cfg(feature = "tls")]
            ClientStream::Tls($stream) => $call,
            #[cfg(feature = "websocket")]
            ClientStream::WebSocket($stream) => $call,
            #[cfg(all(feature = "tls", feature = "websocket"))]
            ClientStream::WebSocketTls($stream) => $call,
        }
    };
}

impl AsyncRead for ClientStream {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        each!(this, stream => Pin::new(stream).poll_read(cx, buf))
    }
}

impl AsyncWrite for ClientStream {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        each!(this, stream => Pin::new(stream).poll_write(cx, buf))
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        each!(this, stream => Pin::new(stream).poll_write_vectored(cx, bufs))
    }

    fn is_write_vectored(&self) -> bool {
        each!(self, stream => stream.is_write_vectored())
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        each!(this, stream => Pin::new(stream).poll_flush(cx))
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        each!(this, stream => Pin::new(stream).poll_shutdown(cx))
    }
}
