//! Clients that mean no good: their connection ends, and nobody else's.

mod limits;
mod order;

use std::time::Duration;

use partita_amqp::performative::DeliveryState;
use partita_hub::server::ServerOptions;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::client::{Hosted, soon, text};
use crate::raw::{AMQP, Raw, SASL};

/// Another client is served.
async fn still_served(hosted: &Hosted) {
    let mut client = hosted.stranger().await;
    let token = crate::client::token("sb://localhost/eh1", 600);
    client.put_token("sb://localhost/eh1", &token).await;
    let sender = client.sender("eh1").await;
    assert_eq!(client.send(sender, text("still here")).await, DeliveryState::Accepted);
}

/// All connections are.
async fn until_gone(hosted: &Hosted) {
    soon("end of all connections", async {
        while !hosted.server.connections().is_empty() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    })
    .await;
}

/// Says something and reads until the server hangs up.
async fn say(hosted: &Hosted, bytes: &[u8]) -> Vec<u8> {
    let mut stream = TcpStream::connect(hosted.address).await.expect("connects");
    // The server may hang up before it has read all.
    let _ = stream.write_all(bytes).await;
    let mut answer = Vec::new();
    let _ = soon("end of the connection", stream.read_to_end(&mut answer)).await;
    answer
}

fn contains(bytes: &[u8], text: &str) -> bool {
    text.is_empty() || bytes.windows(text.len()).any(|window| window == text.as_bytes())
}

#[tokio::test]
async fn noise_ends_the_connection_and_the_server_goes_on() {
    let options = ServerOptions { handshake_timeout: Duration::from_secs(1), ..ServerOptions::default() };
    let hosted = Hosted::with(options).await;
    let open = {
        // An open of a container "x", as bytes.
        let body = [&[0x00, 0x53, 0x10, 0xc0, 4, 1, 0xa1, 1, b'x'][..]].concat();
        let size = (8 + body.len() as u32).to_be_bytes();
        [&size[..], &[2, 0, 0, 0], &body].concat()
    };
    let frame = |body: &[u8]| [&(8 + body.len() as u32).to_be_bytes()[..], &[2, 0, 0, 0], body].concat();
    let cases: Vec<(Vec<u8>, &str)> = vec![
        (b"HTTP/1.1 nonsense that is long enough".to_vec(), "AMQP"),
        (vec![0xff; 64], "AMQP"),
        ([AMQP, &[0xff; 8]].concat(), "amqp:connection:framing-error"),
        ([AMQP, &[0, 0, 0, 4, 2, 0, 0, 0]].concat(), "amqp:connection:framing-error"),
        ([AMQP, &[0x7f, 0xff, 0xff, 0xff, 2, 0, 0, 0]].concat(), "amqp:connection:framing-error"),
        ([AMQP, &frame(&[0x00, 0x53, 0x10])].concat(), "amqp:decode-error"),
        ([AMQP, &frame(&[0x00, 0x53, 0x99, 0x45])].concat(), "amqp:decode-error"),
        ([AMQP, &frame(&[0x00, 0x53, 0x18, 0x45])].concat(), "amqp:illegal-state"),
        ([AMQP, &open, &open].concat(), "amqp:illegal-state"),
        ([AMQP, &open, &frame(&[0x00, 0x53, 0x14, 0xc0, 2, 1, 0x43])].concat(), "amqp:not-allowed"),
        // Deep, and long without content.
        ([AMQP, &frame(&[&[0x00, 0x53, 0x10][..], &[0x00; 500]].concat())].concat(), "amqp:decode-error"),
        (
            [AMQP, &frame(&[0x00, 0x53, 0x10, 0xf0, 0, 0, 0, 5, 0xff, 0xff, 0xff, 0xff, 0x40])].concat(),
            "amqp:",
        ),
        // Never gets to the point.
        (SASL.to_vec(), "PLAIN"),
        (b"AM".to_vec(), ""),
        (AMQP.to_vec(), "amqp:connection:forced"),
    ];
    for (bytes, words) in cases {
        let answer = say(&hosted, &bytes).await;
        let shown = answer.escape_ascii().to_string();
        assert!(contains(&answer, words), "{}: {shown}", bytes.escape_ascii());
    }
    let mut client = hosted.client().await;
    let sender = client.sender("eh1").await;
    assert_eq!(client.send(sender, text("still here")).await, DeliveryState::Accepted);
}

#[tokio::test]
async fn connections_beyond_the_limit_are_closed_and_room_is_given_back() {
    let hosted = Hosted::with(ServerOptions { connections_max: 3, ..ServerOptions::default() }).await;
    let mut held = Vec::new();
    for _ in 0..3 {
        held.push(hosted.client().await);
    }
    assert_eq!(hosted.server.connections().len(), 3);
    assert!(say(&hosted, SASL).await.is_empty(), "the fourth was let in");
    held.pop();
    soon("room", async {
        while hosted.server.connections().len() == 3 {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    })
    .await;
    let client = hosted.client().await;
    assert_eq!(hosted.server.connections().len(), 3);
    drop((held, client));
}

#[tokio::test]
async fn half_open_connections_end_by_themselves() {
    let options = ServerOptions { handshake_timeout: Duration::from_millis(500), ..ServerOptions::default() };
    let hosted = Hosted::with(options).await;
    let mut half = Vec::new();
    for _ in 0..200 {
        let mut stream = TcpStream::connect(hosted.address).await.expect("connects");
        stream.write_all(SASL).await.expect("written");
        half.push(stream);
    }
    let mut client = hosted.client().await;
    let sender = client.sender("eh1").await;
    assert_eq!(client.send(sender, text("served beside them")).await, DeliveryState::Accepted);
    soon("ends", async {
        for stream in &mut half {
            let mut rest = Vec::new();
            let _ = stream.read_to_end(&mut rest).await;
        }
    })
    .await;
    assert_eq!(client.send(sender, text("and after them")).await, DeliveryState::Accepted);
}

#[tokio::test]
async fn connections_and_their_links_are_listed() {
    let hosted = Hosted::new().await;
    let mut client = hosted.client().await;
    client.sender("eh1/Partitions/3").await;
    let listed = hosted.server.connections();
    assert_eq!((listed.len(), &*listed[0].container_id), (1, "test"));
    assert!(listed[0].peer.starts_with("127.0.0.1:"));
    let links: Vec<_> =
        listed[0].links.iter().map(|link| format!("{} {}", link.address, link.role)).collect();
    assert!(links.contains(&"eh1/Partitions/3 sender".to_owned()), "{links:?}");
}

#[tokio::test]
async fn who_puts_no_token_in_time_is_sent_away() {
    let options = ServerOptions { token_timeout: Duration::from_secs(2), ..ServerOptions::default() };
    let hosted = Hosted::with(options).await;
    let mut client = hosted.client().await;
    let sender = client.sender("eh1").await;
    let mut raw = Raw::begun(&hosted).await;
    let error = raw.closed().await.expect("a reason");
    assert_eq!(&*error.condition, "amqp:unauthorized-access", "{error}");
    assert_eq!(client.send(sender, text("one with a token stays")).await, DeliveryState::Accepted);
}
