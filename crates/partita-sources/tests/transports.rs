//! The same hub in TLS, in WebSockets, and through a proxy.

mod support;

use partita_core::model::{Event, Position};
use partita_core::source::{EventSource, SourceErrorKind};
use partita_hub::listener::transport::Transport;
use partita_sources::eventhubs::{EventHubs, Route};
use support::{Served, open, take, tls};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

/// A hub with and without TLS on one port, and the certificate to trust.
async fn served() -> (Served, String) {
    let (config, pem) = tls::localhost();
    (Served::over(2, Transport::PlainOrTls(config)).await, pem)
}

async fn works(client: &EventHubs) {
    let event = Event::builder("through");
    client.producer().send_event(Route::partition(0), event).await.expect("sent");
    let events = take(&mut open(&client.source(), 0, Position::Earliest).await, 1).await;
    assert_eq!(events[0].text().as_deref(), Some("through"));
}

#[tokio::test]
async fn every_way_of_connecting_leads_to_the_hub() {
    let (served, pem) = served().await;
    let port = served.address.port();
    for scheme in ["amqp", "amqps", "ws", "wss"] {
        let builder = served.builder().endpoint(format!("{scheme}://localhost:{port}")).roots(pem.clone());
        works(&builder.build().expect("a client")).await;
    }
    works(&served.builder().websocket().build().expect("a client")).await;
}

#[tokio::test]
async fn a_certificate_that_nobody_vouches_for_is_refused_for_good() {
    let (served, _) = served().await;
    let port = served.address.port();
    let other = rcgen::generate_simple_self_signed(["localhost".to_owned()]).expect("made").cert.pem();
    for builder in [
        served.builder().endpoint(format!("amqps://localhost:{port}")).roots(other),
        served.builder().endpoint(format!("amqps://localhost:{port}")),
    ] {
        let source = builder.build().expect("a client").source();
        let error = source.describe().await.expect_err("not trusted");
        assert_eq!(error.kind(), SourceErrorKind::Fatal, "{error}");
        assert!(error.to_string().contains("the certificate of 'localhost' is not trusted"), "{error}");
    }
}

#[tokio::test]
async fn a_proxy_is_gone_through() {
    let (served, pem) = served().await;
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
    let proxy = listener.local_addr().expect("bound");
    tokio::spawn(async move {
        while let Ok((mut client, _)) = listener.accept().await {
            let mut head = Vec::new();
            while !head.ends_with(b"\r\n\r\n") {
                head.push(client.read_u8().await.expect("a request"));
            }
            let head = String::from_utf8(head).expect("text");
            let to = head.split_whitespace().nth(1).expect("a place").to_owned();
            assert!(head.starts_with("CONNECT "), "{head}");
            let mut hub = TcpStream::connect(to).await.expect("the hub");
            client.write_all(b"HTTP/1.1 200 OK\r\n\r\n").await.expect("answered");
            tokio::spawn(async move { tokio::io::copy_bidirectional(&mut client, &mut hub).await });
        }
    });
    let endpoint = format!("amqps://localhost:{}", served.address.port());
    let builder = served.builder().endpoint(endpoint).roots(pem).proxy(format!("http://{proxy}"));
    works(&builder.build().expect("a client")).await;
}
