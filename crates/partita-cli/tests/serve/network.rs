//! Keys, TLS and WebSockets of the served hub, with real clients.

use std::path::Path;
use std::sync::Arc;

use partita_hub::listener::transport::{PATH, SUBPROTOCOL};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;
use tokio_rustls::rustls::pki_types::pem::PemObject;
use tokio_rustls::rustls::pki_types::{CertificateDer, ServerName};
use tokio_rustls::rustls::{ClientConfig, RootCertStore, crypto};
use tokio_tungstenite::tungstenite::client::IntoClientRequest;
use tokio_tungstenite::tungstenite::{self, Message};

use crate::support::{Hub, text};

/// A client's first bytes; the hub answers with the same.
const SASL_HEADER: [u8; 8] = *b"AMQP\x03\x01\x00\x00";

async fn tls(authority: &Path, host: &str, port: u16) -> std::io::Result<TlsStream<TcpStream>> {
    let mut roots = RootCertStore::empty();
    roots.add(CertificateDer::from_pem_file(authority).unwrap()).unwrap();
    let config = ClientConfig::builder_with_provider(Arc::new(crypto::ring::default_provider()))
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(roots)
        .with_no_client_auth();
    let tcp = TcpStream::connect(("127.0.0.1", port)).await?;
    TlsConnector::from(Arc::new(config)).connect(ServerName::try_from(host.to_owned()).unwrap(), tcp).await
}

async fn speaks_amqp(mut stream: impl AsyncRead + AsyncWrite + Unpin) {
    stream.write_all(&SASL_HEADER).await.unwrap();
    stream.flush().await.unwrap();
    let mut answer = [0; 8];
    stream.read_exact(&mut answer).await.unwrap();
    assert_eq!(answer, SASL_HEADER);
}

async fn speaks_amqp_in_a_websocket(stream: impl AsyncRead + AsyncWrite + Unpin) {
    use futures_util::{SinkExt, StreamExt};
    let mut request = format!("ws://localhost{PATH}").into_client_request().unwrap();
    request.headers_mut().insert("Sec-WebSocket-Protocol", SUBPROTOCOL.parse().unwrap());
    let (mut socket, response) = tokio_tungstenite::client_async(request, stream).await.unwrap();
    assert_eq!(response.status(), 101);
    socket.send(Message::binary(SASL_HEADER.to_vec())).await.unwrap();
    let answer = socket.next().await.unwrap().unwrap().into_data();
    assert!(answer.starts_with(&SASL_HEADER), "{answer:?}");
}

#[tokio::test]
async fn amqp_and_websockets_are_on_one_port() {
    let hub = Hub::start(&["--memory"]);
    let port = hub.port("amqp_port");
    speaks_amqp(TcpStream::connect(("127.0.0.1", port)).await.unwrap()).await;
    speaks_amqp_in_a_websocket(TcpStream::connect(("127.0.0.1", port)).await.unwrap()).await;
    if let Ok(tcp) = TcpStream::connect(("::1", port)).await {
        speaks_amqp(tcp).await;
    }
}

#[tokio::test]
async fn only_pages_that_are_allowed_open_a_websocket() {
    let hub = Hub::start(&["--memory", "--allow-origin", "https://app.example"]);
    for (origin, status) in [("https://app.example", 101), ("https://evil.example", 403), ("null", 403)] {
        let mut request = format!("ws://localhost{PATH}").into_client_request().unwrap();
        request.headers_mut().insert("Sec-WebSocket-Protocol", SUBPROTOCOL.parse().unwrap());
        request.headers_mut().insert("Origin", origin.parse().unwrap());
        let tcp = TcpStream::connect(("127.0.0.1", hub.port("amqp_port"))).await.unwrap();
        let found = match tokio_tungstenite::client_async(request, tcp).await {
            Ok((_, response)) => response.status(),
            Err(tungstenite::Error::Http(response)) => response.status(),
            Err(error) => panic!("{error}"),
        };
        assert_eq!(found, status, "{origin}");
    }
    let (_, said) = hub.stop();
    assert_eq!(said.matches("was refused").count(), 1, "warned of once in a while: {said}");
    assert!(said.contains("--allow-origin"), "{said}");
}

#[tokio::test]
async fn clients_trust_the_hubs_own_authority_also_after_a_restart() {
    let hub = Hub::start(&["--tls-self-signed", "--tls-name", "hub.test"]);
    let authority = hub.ready["tls_ca_file"].as_str().unwrap().to_owned();
    let port = hub.port("tls_port");
    assert!(
        hub.ready["tls_connection_string"]
            .as_str()
            .unwrap()
            .starts_with(&format!("Endpoint=sb://localhost:{port};"))
    );
    for host in ["localhost", "127.0.0.1", "::1", "hub.test"] {
        speaks_amqp(tls(Path::new(&authority), host, port).await.unwrap()).await;
    }
    assert!(tls(Path::new(&authority), "elsewhere.test", port).await.is_err(), "a name it was not made for");
    speaks_amqp_in_a_websocket(tls(Path::new(&authority), "localhost", port).await.unwrap()).await;
    // The AMQP port takes all of them.
    let plain = hub.port("amqp_port");
    speaks_amqp(TcpStream::connect(("127.0.0.1", plain)).await.unwrap()).await;
    speaks_amqp(tls(Path::new(&authority), "localhost", plain).await.unwrap()).await;
    let trusted = std::fs::read(&authority).unwrap();
    let (dir, _) = hub.stop();

    let kept = dir.path().join("data/tls/ca-key.pem");
    use std::os::unix::fs::PermissionsExt;
    assert_eq!(std::fs::metadata(kept).unwrap().permissions().mode() & 0o077, 0, "nobody else reads the key");
    let hub = Hub::start_in(dir, &["--tls-self-signed", "--reset", "--yes"]);
    assert_eq!(std::fs::read(&authority).unwrap(), trusted, "a reset is about events");
    speaks_amqp(tls(Path::new(&authority), "localhost", hub.port("tls_port")).await.unwrap()).await;
}

#[test]
fn a_hub_for_other_machines_with_the_key_everybody_knows_says_so_loudly() {
    let hub = Hub::start(&["--memory", "--listen", "0.0.0.0", "--quiet"]);
    // The default key is asked for, and known.
    hub.says(&["hub", "list"]);
    let refused =
        ureq::get(format!("{}/api/v1/hubs", hub.http())).config().http_status_as_error(false).build().call();
    assert_eq!(refused.unwrap().status(), 401);
    assert_eq!(hub.get("/health").0, 200);
    let (_, said) = hub.stop();
    assert!(
        said.starts_with("WARNING: everybody who can reach 0.0.0.0 can read, write and delete all hubs"),
        "{said}"
    );
}

#[test]
fn a_key_of_ones_own_is_needed_and_never_shown() {
    let dir = tempfile::tempdir().unwrap();
    let key = dir.path().join("root.key");
    std::fs::write(&key, "v3ry-s3cret\n").unwrap();
    let key = key.to_str().unwrap().to_owned();
    let hub = Hub::start_in(dir, &["--memory", "--listen", "0.0.0.0", "--key-file", &key, "-vv"]);
    let refused = hub.command(&["hub", "list"]);
    let said = text(&refused.stderr);
    assert_eq!(refused.status.code(), Some(6), "{said}");
    assert!(said.contains("does not let you") && said.contains("--key-file"), "{said}");
    hub.says(&["hub", "list", "--key-file", &key]);
    assert!(hub.ready["connection_string"].as_str().unwrap().contains("SharedAccessKey=v3ry-s3cret;"));
    use std::os::unix::fs::PermissionsExt;
    let mode = std::fs::metadata(hub.path("ready.json")).unwrap().permissions().mode();
    assert_eq!(mode & 0o077, 0, "the ready file is for its user alone");
    let (_, said) = hub.stop();
    assert!(!said.contains("s3cret") && !said.contains("WARNING"), "{said}");
}

#[test]
fn another_sites_page_cannot_command_the_hub() {
    let hub = Hub::start(&["--memory"]);
    let url = format!("{}/api/v1/hubs/eh1", hub.http());
    let refused = ureq::delete(&url)
        .header("Origin", "https://evil.example")
        .config()
        .http_status_as_error(false)
        .build()
        .call();
    assert_eq!(refused.unwrap().status(), 403);
    hub.says(&["hub", "describe", "eh1"]);
}
