//! A way through an HTTP proxy: it is asked for a connection to the hub, and then stays out of it (RFC 9110, CONNECT).

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};

use super::Endpoint;
use crate::eventhubs::{EventHubsError, Secret};

/// The longest head of a proxy's answer.
const ANSWER_BYTES_MAX: usize = 8 * 1024;

/// A proxy, and as whom it is asked.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Proxy {
    pub(crate) host: String,
    pub(crate) port: u16,
    login: Option<Secret>,
}

impl Proxy {
    /// Reads `http://[user:password@]host[:port]`.
    pub(crate) fn parse(text: &str) -> Option<Self> {
        let rest = text.strip_prefix("http://")?.trim_end_matches('/');
        let (login, place) = match rest.rsplit_once('@') {
            Some((login, place)) => (Some(Secret::from(login)), place),
            None => (None, rest),
        };
        let (host, port) = match place.rsplit_once(':') {
            Some((host, port)) if !port.ends_with(']') => (host, port.parse().ok()?),
            _ => (place, 80),
        };
        let host = host.trim_start_matches('[').trim_end_matches(']');
        let good = !host.is_empty() && !host.contains(['/', '?', '#', ' ']);
        good.then(|| Self { host: host.to_owned(), port, login })
    }

    /// Asks for a connection to `to`, over a stream to the proxy.
    pub(crate) async fn pass<S>(&self, stream: &mut S, to: &Endpoint) -> Result<(), EventHubsError>
    where
        S: AsyncRead + AsyncWrite + Unpin,
    {
        let mut request = format!("CONNECT {to} HTTP/1.1\r\nHost: {to}\r\n");
        if let Some(login) = &self.login {
            let login = STANDARD.encode(login.expose());
            request.push_str(&format!("Proxy-Authorization: Basic {login}\r\n"));
        }
        request.push_str("\r\n");
        let failed = |error: std::io::Error| {
            EventHubsError::of_io(&format!("the proxy {} did not answer", self.host), &error)
        };
        stream.write_all(request.as_bytes()).await.map_err(failed)?;
        stream.flush().await.map_err(failed)?;
        let mut answer = Vec::new();
        // Byte by byte: what comes after the head is no longer the proxy's.
        while !answer.ends_with(b"\r\n\r\n") {
            if answer.len() == ANSWER_BYTES_MAX {
                let text = format!("the proxy {} answers with something else than HTTP", self.host);
                return Err(EventHubsError::fatal(text));
            }
            answer.push(stream.read_u8().await.map_err(failed)?);
        }
        let line = String::from_utf8_lossy(&answer);
        let line = line.lines().next().unwrap_or_default();
        match status(line) {
            Some(200..=299) => Ok(()),
            Some(407) => {
                let text = format!("the proxy {} wants a user and a password, or other ones", self.host);
                Err(EventHubsError::fatal(text))
            }
            _ => Err(EventHubsError::retriable(format!(
                "the proxy {} does not connect to {to}: {line}",
                self.host
            ))),
        }
    }
}

fn status(line: &str) -> Option<u16> {
    let mut words = line.split_whitespace();
    words.next().filter(|version| version.starts_with("HTTP/1."))?;
    words.next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn proxies_are_read_or_refused_and_their_login_is_not_shown() {
        let proxy = Proxy::parse("http://user:geheim@proxy.example:3128/").expect("a proxy");
        assert_eq!((&*proxy.host, proxy.port), ("proxy.example", 3128));
        assert!(!format!("{proxy:?}").contains("geheim"));
        assert_eq!(
            Proxy::parse("http://[::1]").map(|proxy| (proxy.host, proxy.port)),
            Some(("::1".into(), 80))
        );
        for text in ["proxy:3128", "https://proxy", "http://", "http://a:b", "http://a/b"] {
            assert_eq!(Proxy::parse(text), None, "{text}");
        }
    }

    #[tokio::test]
    async fn a_proxy_is_asked_and_its_answer_is_heeded_to_the_byte() {
        let to = Endpoint { host: "ns.example".into(), port: 5671, tls: true, websocket: false };
        let proxy = Proxy::parse("http://u:p@proxy:1").expect("a proxy");
        for (answer, good) in [
            ("HTTP/1.1 200 Connection established\r\nX: y\r\n\r\nAMQP", true),
            ("HTTP/1.1 407 Proxy Authentication Required\r\n\r\n", false),
            ("HTTP/1.1 502 Bad Gateway\r\n\r\n", false),
            ("SSH-2.0\r\n\r\n", false),
        ] {
            let (mut ours, mut theirs) = tokio::io::duplex(4096);
            theirs.write_all(answer.as_bytes()).await.expect("room");
            assert_eq!(proxy.pass(&mut ours, &to).await.is_ok(), good, "{answer}");
            let mut asked = vec![0; 4096];
            let count = theirs.read(&mut asked).await.expect("asked");
            let asked = String::from_utf8_lossy(&asked[..count]).into_owned();
            assert!(asked.starts_with("CONNECT ns.example:5671 HTTP/1.1\r\n"), "{asked}");
            assert!(asked.contains("Proxy-Authorization: Basic dTpw\r\n"), "{asked}");
            if good {
                let mut next = [0; 4];
                ours.read_exact(&mut next).await.expect("the hub's bytes");
                assert_eq!(&next, b"AMQP");
            }
        }
    }
}
