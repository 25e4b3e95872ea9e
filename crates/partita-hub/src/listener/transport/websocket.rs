//! A client's request for a WebSocket with AMQP in it, and the answer.

use std::io;

pub use partita_amqp::driver::websocket::{PATH, SUBPROTOCOL, WebSocket};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio_tungstenite::tungstenite::handshake::machine::TryParse;
use tokio_tungstenite::tungstenite::handshake::server::{Request, create_response, write_response};
use tokio_tungstenite::tungstenite::http::HeaderValue;
use tokio_tungstenite::tungstenite::http::header::{HOST, ORIGIN, SEC_WEBSOCKET_PROTOCOL};

use super::origin::{Asked, why_refused};
use super::{AcceptError, Door};

/// The name in AMQP's own binding, which the SDKs for Go and Rust ask for.
const SUBPROTOCOL_OF_AMQP: &str = "amqp";

/// The longest request for an upgrade.
const REQUEST_BYTES_MAX: usize = 8 << 10;

/// How much of an origin that is refused is repeated.
const ORIGIN_CHARS_MAX: usize = 100;

/// Answers a client's request for a WebSocket, of which `read` was already read.
pub(super) async fn upgrade<S: AsyncRead + AsyncWrite + Unpin>(
    mut stream: S,
    mut read: Vec<u8>,
    door: Door<'_>,
) -> Result<Box<WebSocket<S>>, AcceptError> {
    let answer = loop {
        match Request::try_parse(&read) {
            Ok(Some((length, request))) => break answer(&request, door).map(|response| (length, response)),
            Ok(None) if read.len() >= REQUEST_BYTES_MAX => {
                break Err(Refused::Not("its headers are too long"));
            }
            Ok(None) => {
                let room = (REQUEST_BYTES_MAX - read.len()) as u64;
                if (&mut stream).take(room).read_buf(&mut read).await? == 0 {
                    return Err(io::Error::from(io::ErrorKind::UnexpectedEof).into());
                }
            }
            Err(_) => break Err(Refused::Not("it is not HTTP/1.1, or has too many headers")),
        }
    };
    match answer {
        Ok((length, response)) => {
            stream.write_all(&response).await?;
            stream.flush().await?;
            let rest = read.split_off(length);
            Ok(Box::new(WebSocket::server(stream, rest).await))
        }
        Err(refused) => {
            stream.write_all(refused.answer().as_bytes()).await?;
            stream.shutdown().await?;
            Err(match refused {
                Refused::Not(reason) => AcceptError::NotAWebSocket(reason),
                Refused::Origin(origin) => AcceptError::Origin(origin),
            })
        }
    }
}

/// Why a request is refused.
#[derive(Debug)]
enum Refused {
    /// It does not ask for an AMQP WebSocket.
    Not(&'static str),
    /// It is a web page's, of this origin, which may not.
    Origin(String),
}

impl From<&'static str> for Refused {
    fn from(reason: &'static str) -> Self {
        Self::Not(reason)
    }
}

/// The answer to a request for an AMQP WebSocket; or why it is refused, pure.
fn answer(request: &Request, door: Door<'_>) -> Result<Vec<u8>, Refused> {
    check_origin(request, door)?;
    Ok(upgraded(request)?)
}

/// A browser always says which page asks, and pages cannot change what it says.
fn check_origin(request: &Request, door: Door<'_>) -> Result<(), Refused> {
    let text = |value: &HeaderValue| value.to_str().unwrap_or("?").to_owned();
    let host = request.headers().get(HOST).map(text);
    let asked = Asked { peer: door.peer, host: host.as_deref(), secure: door.secure };
    for origin in request.headers().get_all(ORIGIN).iter().map(text) {
        if !door.origins.allow(&origin, asked) {
            let shown: String = origin.chars().take(ORIGIN_CHARS_MAX).collect();
            return Err(Refused::Origin(shown.escape_debug().to_string()));
        }
    }
    Ok(())
}

fn upgraded(request: &Request) -> Result<Vec<u8>, &'static str> {
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
    let mut response = create_response(request).map_err(|_| "it is not a WebSocket upgrade of version 13")?;
    response.headers_mut().insert(SEC_WEBSOCKET_PROTOCOL, HeaderValue::from_static(subprotocol));
    let mut bytes = Vec::new();
    write_response(&mut bytes, &response).map_err(|_| "it cannot be answered")?;
    Ok(bytes)
}

impl Refused {
    /// The whole answer.
    fn answer(&self) -> String {
        let (status, text) = match self {
            Self::Not(reason) => (
                "400 Bad Request",
                format!(
                    "This is the hub's AMQP port, and this request is not for an AMQP WebSocket: {reason}.\n"
                ),
            ),
            Self::Origin(origin) => {
                ("403 Forbidden", format!("This WebSocket is refused: {}.\n", why_refused(origin)))
            }
        };
        let length = text.len();
        format!(
            "HTTP/1.1 {status}\r\nContent-Type: text/plain; charset=utf-8\r\nContent-Length: {length}\r\n\
             Connection: close\r\n\r\n{text}"
        )
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
        let origins = super::super::Origins::default();
        let door = Door { origins: &origins, peer: [127, 0, 0, 1].into(), secure: false };
        let (client, server) = tokio::join!(client_async(request, theirs), upgrade(ours, Vec::new(), door));
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
