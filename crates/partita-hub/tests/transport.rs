//! Transports against real client libraries, on real sockets.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use futures_util::{SinkExt, StreamExt};
use partita_hub::listener::transport::{
    AcceptError, ClientStream, HANDSHAKE_TIME_MAX, Origins, PATH, SUBPROTOCOL, Transport, tls,
};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::TlsConnector;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use tokio_rustls::rustls::{ClientConfig, RootCertStore, ServerConfig, crypto};
use tokio_tungstenite::tungstenite::client::IntoClientRequest;
use tokio_tungstenite::tungstenite::{self, Message};
use tokio_tungstenite::{WebSocketStream, client_async};

/// What a client of AMQP sends first.
const HEADER: &[u8] = b"AMQP\x03\x01\x00\x00";

/// A certificate for localhost that signs itself, and a client that trusts it.
fn certificate() -> (Arc<ServerConfig>, TlsConnector) {
    let made = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
    let chain: Vec<CertificateDer<'static>> = vec![made.cert.der().clone()];
    let key = PrivateKeyDer::try_from(made.signing_key.serialize_der()).unwrap();
    let server = tls::server_config(chain.clone(), key).unwrap();
    let mut roots = RootCertStore::empty();
    roots.add(chain[0].clone()).unwrap();
    (server, connector(roots))
}

fn connector(roots: RootCertStore) -> TlsConnector {
    let client = ClientConfig::builder_with_provider(Arc::new(crypto::ring::default_provider()))
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(roots)
        .with_no_client_auth();
    TlsConnector::from(Arc::new(client))
}

/// What is lost on the way is waited for in vain, but not for ever.
async fn in_time<F: Future>(work: F) -> F::Output {
    tokio::time::timeout(Duration::from_secs(60), work).await.expect("it does not come any more")
}

/// Both ends of a connection: a client's, and what the transport makes of the other.
async fn meet<F: Future>(
    transport: Transport,
    client: impl FnOnce(TcpStream) -> F,
) -> (F::Output, Result<ClientStream, AcceptError>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let tcp = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
    let (accepted, _) = listener.accept().await.unwrap();
    let origins = Origins::default();
    in_time(async { tokio::join!(client(tcp), transport.accept(accepted, &origins)) }).await
}

async fn websocket<S: AsyncRead + AsyncWrite + Unpin>(
    stream: S,
    path: &str,
    subprotocol: Option<&str>,
) -> tungstenite::Result<WebSocketStream<S>> {
    let mut request = format!("ws://localhost{path}").into_client_request()?;
    if let Some(subprotocol) = subprotocol {
        request.headers_mut().insert("Sec-WebSocket-Protocol", subprotocol.parse().unwrap());
    }
    let (socket, response) = client_async(request, stream).await?;
    assert_eq!(response.headers()["Sec-WebSocket-Protocol"], subprotocol.unwrap_or_default());
    Ok(socket)
}

async fn secure(tls: TlsConnector, tcp: TcpStream) -> tokio_rustls::client::TlsStream<TcpStream> {
    tls.connect(ServerName::try_from("localhost").unwrap(), tcp).await.unwrap()
}

async fn read<const N: usize>(stream: &mut ClientStream) -> [u8; N] {
    let mut bytes = [0; N];
    in_time(stream.read_exact(&mut bytes)).await.unwrap();
    bytes
}

#[tokio::test]
async fn a_plain_client_is_handed_on_with_all_its_bytes() {
    let client = |mut tcp: TcpStream| async {
        tcp.write_all(HEADER).await.unwrap();
        tcp
    };
    let (mut client, server) = meet(Transport::Plain, client).await;
    let mut server = server.unwrap();
    assert_eq!(server.scheme(), "amqp");
    assert_eq!(read::<8>(&mut server).await, HEADER);
    server.write_all(b"hello").await.unwrap();
    drop(server);
    let mut answer = Vec::new();
    client.read_to_end(&mut answer).await.unwrap();
    assert_eq!(answer, b"hello");
}

#[tokio::test]
async fn tls_works_on_its_own_port_and_on_the_plain_one() {
    let (config, tls) = certificate();
    for transport in [Transport::Tls(config.clone()), Transport::PlainOrTls(config)] {
        let tls = tls.clone();
        let client = |tcp: TcpStream| async {
            let mut stream = secure(tls, tcp).await;
            stream.write_all(HEADER).await.unwrap();
            stream.flush().await.unwrap();
            stream
        };
        let (mut client, server) = meet(transport, client).await;
        let mut server = server.unwrap();
        assert_eq!(server.scheme(), "amqps");
        assert!(server.peer_addr().unwrap().ip().is_loopback());
        assert_eq!(read::<8>(&mut server).await, HEADER, "what was read to find out is not lost");
        server.write_all(b"hello").await.unwrap();
        server.shutdown().await.unwrap();
        let mut answer = Vec::new();
        client.read_to_end(&mut answer).await.unwrap();
        assert_eq!(answer, b"hello");
    }
}

#[tokio::test]
async fn a_tls_client_on_a_port_without_a_certificate_is_told_apart() {
    let (_, tls) = certificate();
    let client =
        |tcp| async move { tls.connect(ServerName::try_from("localhost").unwrap(), tcp).await.is_err() };
    let (refused, server) = meet(Transport::Plain, client).await;
    assert!(refused);
    assert!(matches!(server, Err(AcceptError::TlsNotServed)), "{server:?}");
}

#[tokio::test]
async fn a_client_that_does_not_trust_the_certificate_ends_in_the_handshake() {
    let (config, _) = certificate();
    let tls = connector(RootCertStore::empty());
    let client =
        |tcp| async move { tls.connect(ServerName::try_from("localhost").unwrap(), tcp).await.is_err() };
    let (refused, server) = meet(Transport::Tls(config), client).await;
    assert!(refused);
    assert!(matches!(server, Err(AcceptError::Tls(_))), "{server:?}");
}

/// Bytes both ways, whatever the messages are, then the close handshake.
async fn exercise<S: AsyncRead + AsyncWrite + Unpin>(client: WebSocketStream<S>, mut server: ClientStream) {
    let (mut to_server, mut from_server) = client.split();
    // Message bounds mean nothing: a header in two messages, an empty one between.
    for part in [&HEADER[..3], &[], &HEADER[3..]] {
        to_server.send(Message::binary(part.to_vec())).await.unwrap();
    }
    assert_eq!(read::<8>(&mut server).await, HEADER);

    // More than fits into any buffer, in both directions at once.
    let much: Vec<u8> = (0..3_000_000u32).map(|n| n as u8).collect();
    let (mut reading, mut writing) = tokio::io::split(server);
    // Reads on past what is expected, so that the ping is seen, and ends with the client's close.
    let serve_read = async {
        let mut bytes = Vec::new();
        reading.read_to_end(&mut bytes).await.unwrap();
        bytes
    };
    let serve_write = async {
        writing.write_all(&much).await.unwrap();
        writing.flush().await.unwrap();
    };
    let client = async {
        let send = async {
            to_server.send(Message::binary(much.clone())).await.unwrap();
            to_server.send(Message::Ping(b"there?".to_vec().into())).await.unwrap();
        };
        let receive = async {
            let (mut bytes, mut pong) = (Vec::new(), false);
            while bytes.len() < much.len() || !pong {
                match from_server.next().await.unwrap().unwrap() {
                    Message::Binary(part) => bytes.extend_from_slice(&part),
                    Message::Pong(text) => pong = text.as_ref() == b"there?",
                    other => panic!("{other:?}"),
                }
            }
            bytes
        };
        let ((), received) = tokio::join!(send, receive);
        to_server.send(Message::Close(None)).await.unwrap();
        let closed = from_server.next().await.unwrap().unwrap();
        assert!(matches!(closed, Message::Close(_)), "{closed:?}");
        received
    };
    let ((), received, served) = in_time(async { tokio::join!(serve_write, client, serve_read) }).await;
    assert!(received == much && served == much);
}

#[tokio::test]
async fn a_websocket_carries_bytes_answers_pings_and_closes() {
    let client = |tcp| async { websocket(tcp, PATH, Some(SUBPROTOCOL)).await.unwrap() };
    let (client, server) = meet(Transport::Plain, client).await;
    let server = server.unwrap();
    assert_eq!(server.scheme(), "ws");
    exercise(client, server).await;
}

#[tokio::test]
async fn a_websocket_may_be_asked_for_as_the_sdks_for_go_and_rust_do() {
    // The client checks that the answer names the subprotocol that it asked for.
    let client = |tcp| async { websocket(tcp, &format!("{PATH}/"), Some("amqp")).await.unwrap() };
    let (_, server) = meet(Transport::Plain, client).await;
    assert_eq!(server.unwrap().scheme(), "ws");
}

#[tokio::test]
async fn a_websocket_in_tls_does_the_same() {
    let (config, tls) = certificate();
    let client = |tcp| async { websocket(secure(tls, tcp).await, PATH, Some(SUBPROTOCOL)).await.unwrap() };
    let (client, server) = meet(Transport::Tls(config), client).await;
    let server = server.unwrap();
    assert_eq!(server.scheme(), "wss");
    exercise(client, server).await;
}

#[tokio::test]
async fn many_small_buffers_become_one_message() {
    let client = |tcp| async { websocket(tcp, PATH, Some(SUBPROTOCOL)).await.unwrap() };
    let (mut client, server) = meet(Transport::Plain, client).await;
    let mut server = server.unwrap();
    assert!(server.is_write_vectored());
    let parts = [b"one ".as_slice(), b"", b"two ", b"three"].map(io::IoSlice::new);
    assert_eq!(server.write_vectored(&parts).await.unwrap(), 13);
    // Not flushed: reading does it, or a peer that waits for the answer and we for its next frame would wait for ever.
    let (message, _) = tokio::join!(in_time(client.next()), async {
        let nothing = tokio::time::timeout(Duration::from_millis(50), server.read_u8()).await;
        assert!(nothing.is_err());
    });
    assert_eq!(message.unwrap().unwrap(), Message::binary(b"one two three".to_vec()));
    server.shutdown().await.unwrap();
    assert!(matches!(client.next().await.unwrap().unwrap(), Message::Close(_)));
}

/// What a page with this origin gets, if it asks for a WebSocket as a browser does.
async fn page<S: AsyncRead + AsyncWrite + Unpin>(stream: S, origin: &str) -> u16 {
    let mut request = format!("ws://localhost{PATH}").into_client_request().unwrap();
    request.headers_mut().insert("Sec-WebSocket-Protocol", SUBPROTOCOL.parse().unwrap());
    request.headers_mut().insert("Origin", origin.parse().unwrap());
    match client_async(request, stream).await {
        Ok((_, response)) => response.status().as_u16(),
        Err(tungstenite::Error::Http(response)) => {
            let said = String::from_utf8(response.body().clone().unwrap_or_default()).unwrap();
            let what_to_do = if origin == "null" { "serve the page over HTTP" } else { "--allow-origin" };
            assert!(said.contains(what_to_do), "{said}");
            response.status().as_u16()
        }
        Err(error) => panic!("{error}"),
    }
}

#[tokio::test]
async fn pages_of_other_sites_open_no_websocket_plain_or_tls() {
    let (config, tls) = certificate();
    for (origin, status) in [
        ("https://evil.example", 403),
        ("null", 403),
        ("http://localhost.evil.example", 403),
        ("http://localhost:3000", 101),
        ("http://127.0.0.1:5300", 101),
    ] {
        let plain = |tcp| page(tcp, origin);
        let (found, server) = meet(Transport::Plain, plain).await;
        assert_eq!(found, status, "{origin}");
        assert_eq!(matches!(server, Err(AcceptError::Origin(_))), status == 403, "{server:?}");
        let tls = tls.clone();
        let secured = |tcp| async move { page(secure(tls, tcp).await, origin).await };
        let (found, server) = meet(Transport::Tls(config.clone()), secured).await;
        assert_eq!(found, status, "{origin} over TLS");
        assert_eq!(matches!(server, Err(AcceptError::Origin(_))), status == 403, "{server:?}");
    }
}

#[tokio::test]
async fn other_requests_are_answered_with_the_reason() {
    for (path, subprotocol, reason) in [
        ("/", Some(SUBPROTOCOL), "there is only /$servicebus/websocket"),
        (PATH, None, "the subprotocol must be AMQPWSB10 or amqp"),
        (PATH, Some("mqtt"), "the subprotocol must be AMQPWSB10 or amqp"),
    ] {
        let client = |tcp| async move { websocket(tcp, path, subprotocol).await.unwrap_err() };
        let (refused, server) = meet(Transport::Plain, client).await;
        assert!(matches!(server, Err(AcceptError::NotAWebSocket(found)) if found == reason), "{server:?}");
        let tungstenite::Error::Http(response) = refused else { panic!("{refused:?}") };
        assert_eq!(response.status(), 400);
    }
    // A browser that was given the wrong port.
    let client = |mut tcp: TcpStream| async move {
        tcp.write_all(b"GET / HTTP/1.1\r\nHost: localhost:5672\r\n\r\n").await.unwrap();
        let mut answer = String::new();
        tcp.read_to_string(&mut answer).await.unwrap();
        answer
    };
    let (answer, server) = meet(Transport::Plain, client).await;
    assert!(server.is_err());
    assert!(
        answer.starts_with("HTTP/1.1 400 ") && answer.contains("This is the hub's AMQP port"),
        "{answer}"
    );
}

#[tokio::test]
async fn a_request_without_end_is_cut_off() {
    let client = |mut tcp: TcpStream| async move {
        let mut request = b"GET / HTTP/1.1\r\n".to_vec();
        request.extend(b"X: ");
        request.extend(b"y".repeat(20_000));
        tcp.write_all(&request).await.unwrap();
        tcp
    };
    let (_client, server) = meet(Transport::Plain, client).await;
    assert!(matches!(server, Err(AcceptError::NotAWebSocket("its headers are too long"))), "{server:?}");
}

#[tokio::test]
async fn text_and_endless_messages_end_the_connection() {
    for message in [Message::text("AMQP"), Message::binary(vec![0; 5 << 20])] {
        let client = |tcp| async { websocket(tcp, PATH, Some(SUBPROTOCOL)).await.unwrap() };
        let (mut client, server) = meet(Transport::Plain, client).await;
        let mut server = server.unwrap();
        let (_, failed) = tokio::join!(client.send(message), async {
            let failed = server.read_u8().await.unwrap_err();
            drop(server);
            failed
        });
        assert_eq!(failed.kind(), io::ErrorKind::InvalidData, "{failed}");
    }
}

#[tokio::test(start_paused = true)]
async fn who_says_nothing_is_sent_away() {
    let (config, _) = certificate();
    for (transport, said) in [
        (Transport::Plain, b"".as_slice()),
        (Transport::Plain, b"GET /$servicebus/websocket HTTP/1.1\r\n"),
        (Transport::Tls(config), b"\x16\x03\x01"),
    ] {
        let client = |mut tcp: TcpStream| async move {
            tcp.write_all(said).await.unwrap();
            tcp
        };
        let (_client, server) = meet(transport, client).await;
        assert!(matches!(server, Err(AcceptError::TimedOut)), "{server:?}");
    }
}

/// A byte now and then is no reason to wait longer than for nothing.
#[tokio::test(start_paused = true)]
async fn who_says_little_is_sent_away_at_the_same_time() {
    let (config, _) = certificate();
    let request = b"GET /$servicebus/websocket HTTP/1.1\r\nHost: localhost\r\nX-Slow: ".as_slice();
    for (transport, said) in [
        (Transport::Plain, request),
        // A TLS record of a client's hello that has more bytes than will ever come.
        (Transport::Tls(config), b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\x00\x00\x00\x00\x00"),
    ] {
        let begun = tokio::time::Instant::now();
        let client = |mut tcp: TcpStream| async move {
            for byte in said.iter().cycle() {
                // Until nobody listens any more.
                if tcp.write_all(std::slice::from_ref(byte)).await.is_err()
                    || begun.elapsed() > 2 * HANDSHAKE_TIME_MAX
                {
                    break;
                }
                tokio::time::sleep(Duration::from_secs(1)).await;
            }
        };
        let (waited, server) = meet(transport, client).await;
        let () = waited;
        assert!(matches!(server, Err(AcceptError::TimedOut)), "{server:?}");
    }
}

#[test]
fn certificates_that_cannot_be_used_are_named() {
    let dir = tempfile::tempdir().unwrap();
    let (chain, key) = (dir.path().join("chain.pem"), dir.path().join("key.pem"));
    let refused = || tls::server_config_from_files(&chain, &key).unwrap_err().to_string();
    assert!(
        refused().contains("cannot read a certificate from") && refused().contains("chain.pem"),
        "{}",
        refused()
    );
    std::fs::write(&chain, "nothing").unwrap();
    assert!(refused().ends_with("chain.pem holds no certificate in PEM form"), "{}", refused());
    let made = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
    std::fs::write(&chain, made.cert.pem()).unwrap();
    assert!(refused().contains("cannot read a private key from"), "{}", refused());
    std::fs::write(&key, made.cert.pem()).unwrap();
    assert!(refused().ends_with("key.pem holds no private key in PEM form"), "{}", refused());
    let other = rcgen::KeyPair::generate().unwrap();
    std::fs::write(&key, other.serialize_pem()).unwrap();
    assert!(refused().starts_with("the certificate and its key cannot be used"), "{}", refused());
    std::fs::write(&key, made.signing_key.serialize_pem()).unwrap();
    tls::server_config_from_files(&chain, &key).unwrap();
}
