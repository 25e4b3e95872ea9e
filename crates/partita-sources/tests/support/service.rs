//! A server that plays the parts of Azure that Partita's hub does not have: it takes any token and tells of it, describes a hub,
//! and turns readers of an IoT hub away to another place.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};

use bytes::Bytes;
use partita_amqp::connection::{Connection, Event, LinkId, Options, Outgoing};
use partita_amqp::driver::{Driver, now};
use partita_amqp::message::{self, Message};
use partita_amqp::performative::{Attach, Error, Role, condition};
use partita_amqp::sasl;
use partita_core::model::{Body, Value};
use tokio::net::TcpListener;
use tokio::sync::mpsc;

/// What a client put as a token.
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct PutToken {
    pub(crate) kind: String,
    pub(crate) audience: String,
    pub(crate) token: String,
}

type Login = Arc<dyn Fn(&str, &str) -> bool + Send + Sync>;
type Stream = Box<dyn FullStream>;

pub(crate) trait FullStream: tokio::io::AsyncRead + tokio::io::AsyncWrite + Unpin + Send {}
impl<S: tokio::io::AsyncRead + tokio::io::AsyncWrite + Unpin + Send> FullStream for S {}

/// How it behaves.
#[derive(Clone, Default)]
pub(crate) struct Part {
    /// The host and address to which readers are sent.
    pub(crate) redirect: Option<(String, String)>,
    /// Whom PLAIN lets in.
    pub(crate) login: Option<Login>,
    pub(crate) tls: Option<Arc<tokio_rustls::rustls::ServerConfig>>,
}

pub(crate) struct Service {
    pub(crate) address: SocketAddr,
    tokens: Mutex<mpsc::Receiver<PutToken>>,
}

impl Service {
    pub(crate) async fn new(part: Part) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
        let address = listener.local_addr().expect("bound");
        let (sender, tokens) = mpsc::channel(64);
        tokio::spawn(async move {
            while let Ok((tcp, _)) = listener.accept().await {
                let (part, sender) = (part.clone(), sender.clone());
                tokio::spawn(async move {
                    let stream: Stream = match &part.tls {
                        Some(config) => {
                            let acceptor = tokio_rustls::TlsAcceptor::from(config.clone());
                            Box::new(acceptor.accept(tcp).await.expect("TLS"))
                        }
                        None => Box::new(tcp),
                    };
                    serve(stream, part, sender).await
                });
            }
        });
        Self { address, tokens: Mutex::new(tokens) }
    }

    /// The next token that a client puts.
    pub(crate) async fn token(&mut self) -> PutToken {
        let tokens = self.tokens.get_mut().expect("not poisoned");
        let token = tokio::time::timeout(super::PATIENCE, tokens.recv()).await;
        token.expect("in time").expect("a token")
    }
}

async fn serve(stream: Stream, part: Part, tokens: mpsc::Sender<PutToken>) {
    let mut sasl = sasl::Server::default();
    if let Some(login) = part.login.clone() {
        sasl =
            sasl.mechanisms([sasl::PLAIN]).required().check_plain(move |who| login(who.user, who.password));
    }
    let mut driver = Driver::new(stream, Connection::accept(Options::new("service"), sasl, now()));
    // The links on which each node answers, and those on which it is asked.
    let (mut replies, mut requests) = (HashMap::<String, LinkId>::new(), HashMap::<LinkId, String>::new());
    while let Ok(Some(event)) = driver.event().await {
        let connection = driver.connection();
        match event {
            Event::Attaching { link, attach } => {
                attached(link, &attach, &part, connection, &mut replies, &mut requests);
            }
            Event::Delivery(delivery) => {
                let Some(node) = requests.get(&delivery.link) else { continue };
                connection.top_up(delivery.link, 10);
                let message = Message::decode(&delivery.payload).expect("a message");
                if let Some(put) = put_token(&message) {
                    tokens.send(put).await.expect("the test takes tokens");
                }
                let reply = answer(&message);
                let link = replies[node];
                connection.send(link, Outgoing::settled(0), reply).expect("credit");
            }
            Event::Closed { .. } => break,
            _ => {}
        }
    }
    let _ = driver.finish(super::PATIENCE).await;
}

fn attached(
    link: LinkId,
    attach: &Attach,
    part: &Part,
    connection: &mut Connection,
    replies: &mut HashMap<String, LinkId>,
    requests: &mut HashMap<LinkId, String>,
) {
    let address = attach.address().unwrap_or_default().to_owned();
    connection.answer_attach(link, attach.answer());
    if let Some((host, to)) =
        part.redirect.as_ref().filter(|_| address.ends_with("/messages/events/$management"))
    {
        let error = Error::new(condition::LINK_REDIRECT, "The events are elsewhere.");
        let info = [("hostname", host), ("address", to)];
        let info = info.map(|(key, value)| (Value::Symbol(key.into()), Value::from(value.as_str())));
        connection.detach(link, Some(Error { info: info.to_vec(), ..error }));
        return;
    }
    match attach.role {
        Role::Sender => {
            connection.set_credit(link, 10, false);
            requests.insert(link, address);
        }
        Role::Receiver => {
            replies.insert(address, link);
        }
    }
}

fn property<'a>(message: &'a Message, name: &str) -> Option<&'a str> {
    let mut pairs = message.application_properties.iter().flatten();
    pairs.find(|(key, _)| key.as_str() == Some(name)).and_then(|(_, value)| value.as_str())
}

fn put_token(message: &Message) -> Option<PutToken> {
    (property(message, "operation") == Some("put-token")).then(|| {
        let Body::Value(Value::String(token)) = &message.body else { panic!("a token is a text") };
        PutToken {
            kind: property(message, "type").expect("a type").to_owned(),
            audience: property(message, "name").expect("an audience").to_owned(),
            token: token.to_string(),
        }
    })
}

/// Well, and a hub of two partitions to whoever asks for one.
fn answer(request: &Message) -> Bytes {
    let text = |text: &str| Value::from(text);
    let body = match property(request, "operation") {
        Some("READ") => Value::Map(vec![
            (text("name"), text(property(request, "name").expect("a hub"))),
            (text("partition_ids"), Value::Array(vec![text("0"), text("1")])),
        ]),
        _ => Value::Null,
    };
    let mut properties = vec![Value::Null; 6];
    properties[5] = request.properties.as_ref().expect("properties")[0].clone();
    let reply = Message {
        properties: Some(properties),
        application_properties: Some(vec![(text("status-code"), Value::Int(200))]),
        ..Message::new(body)
    };
    let mut out = Vec::new();
    message::encode(&reply, &mut out).expect("encodes");
    out.into()
}
