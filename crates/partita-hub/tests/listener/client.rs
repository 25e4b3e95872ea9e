//! A client on partita-amqp's own machine, and a server to talk to.

use std::collections::{HashMap, VecDeque};
use std::future::Future;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use partita_amqp::connection::{Connection, Delivery, Event, LinkId, Options, Outgoing, SessionId};
use partita_amqp::driver::{Driver, now};
use partita_amqp::message::{self, Message};
use partita_amqp::performative::{Attach, DeliveryState, Error};
use partita_amqp::sasl;
use partita_core::model::{Body, ConsumerGroup, HubName, Timestamp, Value};
use partita_hub::broker::{Broker, HubOptions};
use partita_hub::listener::transport::Transport;
use partita_hub::server::{Server, ServerOptions};
use partita_hub::service::auth::{Key, WELL_KNOWN_KEY, WELL_KNOWN_NAME, sign};
use partita_hub::service::ingest::FORMAT_BATCH;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream};

/// Whatever is waited for comes sooner, or never.
const PATIENCE: Duration = Duration::from_secs(30);

pub(crate) async fn soon<T>(what: &str, wait: impl Future<Output = T>) -> T {
    tokio::time::timeout(PATIENCE, wait).await.unwrap_or_else(|_| panic!("no {what} came"))
}

/// A server on a port of its own, with a hub `eh1` of four partitions and a group `cg1`.
pub(crate) struct Hosted {
    pub(crate) server: Server,
    pub(crate) address: SocketAddr,
}

impl Hosted {
    pub(crate) async fn new() -> Self {
        Self::with(ServerOptions::default()).await
    }

    pub(crate) async fn with(options: ServerOptions) -> Self {
        let broker = Broker::in_memory(256 << 20).expect("opens");
        let hub = broker.create_hub(&HubName::new("eh1"), HubOptions::default()).expect("made");
        hub.create_group(&ConsumerGroup::new("cg1")).expect("made");
        Self::on(Arc::new(broker), options).await
    }

    pub(crate) async fn on(broker: Arc<Broker>, options: ServerOptions) -> Self {
        let server = Server::new(broker, options);
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let address = listener.local_addr().expect("bound");
        let listening = server.clone();
        tokio::spawn(async move { listening.listen(listener, Transport::Plain).await });
        Self { server, address }
    }

    /// A client that has put a token for the hub.
    pub(crate) async fn client(&self) -> Client {
        let mut client = self.stranger().await;
        let (code, text) = client.put_token("sb://localhost/eh1", &token("sb://localhost/eh1", 600)).await;
        assert_eq!(code, 202, "{text}");
        client
    }

    /// A client that has put nothing.
    pub(crate) async fn stranger(&self) -> Client {
        Client::connect(self.address, sasl::Client::Anonymous).await
    }
}

/// A token of the well-known key.
pub(crate) fn token(resource: &str, seconds: i64) -> String {
    let end = Timestamp(Timestamp::now().millis() + seconds * 1_000);
    sign(resource, WELL_KNOWN_NAME, &Key::new(WELL_KNOWN_KEY), end)
}

pub(crate) fn reader_of(partition: u32) -> String {
    format!("eh1/ConsumerGroups/$Default/Partitions/{partition}")
}

pub(crate) fn encoded(message: &Message) -> Bytes {
    let mut bytes = Vec::new();
    message::encode(message, &mut bytes).expect("encodes");
    bytes.into()
}

pub(crate) fn text(body: impl Into<String>) -> Bytes {
    encoded(&Message::new(Body::from(body.into())))
}

pub(crate) fn batch(events: impl IntoIterator<Item = Bytes>) -> Bytes {
    encoded(&Message::new(Body::DataSections(events.into_iter().collect())))
}

/// The source's filter for an expression.
pub(crate) fn filter(expression: &str) -> Value {
    let name = || Value::Symbol("apache.org:selector-filter:string".into());
    Value::Map(vec![(name(), Value::Described(name().into(), Value::from(expression).into()))])
}

pub(crate) fn receiver(name: &str, address: &str, from: &str) -> Attach {
    let mut attach = Attach::receiver(name, address);
    attach.source.as_mut().expect("there").filter = filter(from);
    attach
}

pub(crate) const EARLIEST: &str = "amqp.annotation.x-opt-offset > '-1'";
pub(crate) const LATEST: &str = "amqp.annotation.x-opt-offset > '@latest'";

pub(crate) fn property(name: &str, value: impl Into<Value>) -> (Value, Value) {
    (Value::Symbol(name.into()), value.into())
}

/// Any stream of bytes.
pub(crate) trait Stream: AsyncRead + AsyncWrite + Unpin + Send {}

impl<S: AsyncRead + AsyncWrite + Unpin + Send> Stream for S {}

pub(crate) struct Client {
    pub(crate) wire: Driver<Box<dyn Stream>>,
    pub(crate) session: SessionId,
    /// Events that somebody else waits for.
    stash: VecDeque<Event>,
    /// What became of deliveries that nobody asked for yet.
    outcomes: HashMap<u32, DeliveryState>,
    tag: u64,
    cbs: Option<(LinkId, LinkId)>,
}

impl Client {
    pub(crate) async fn connect(address: SocketAddr, sasl: sasl::Client) -> Self {
        Self::connect_as(address, sasl, Vec::new()).await
    }

    /// The same, with properties that say who it is.
    pub(crate) async fn connect_as(
        address: SocketAddr,
        sasl: sasl::Client,
        properties: Vec<(Value, Value)>,
    ) -> Self {
        let stream = TcpStream::connect(address).await.expect("connects");
        Self::over(stream, sasl, properties)
    }

    /// Over a stream that is connected already.
    pub(crate) fn over(
        stream: impl Stream + 'static,
        sasl: sasl::Client,
        properties: Vec<(Value, Value)>,
    ) -> Self {
        let mut options = Options { properties, ..Options::new("test") };
        // The hub adds to the largest message.
        options.limits.message_bytes_max = 2 << 20;
        let connection = Connection::connect(options, sasl, now());
        let mut wire = Driver::new(Box::new(stream) as Box<dyn Stream>, connection);
        let session = wire.connection().begin().expect("a session");
        Self { wire, session, stash: VecDeque::new(), outcomes: HashMap::new(), tag: 0, cbs: None }
    }

    /// The next event that `wanted` makes something of; others wait.
    pub(crate) async fn until<T>(&mut self, what: &str, mut wanted: impl FnMut(&Event) -> Option<T>) -> T {
        if let Some(at) = self.stash.iter().position(|event| wanted(event).is_some()) {
            let event = self.stash.remove(at).expect("there");
            return wanted(&event).expect("found");
        }
        let next = async {
            loop {
                let event = self.wire.event().await.expect("a connection");
                let event = event.unwrap_or_else(|| panic!("the connection ended before {what}"));
                if let Some(found) = wanted(&event) {
                    return found;
                }
                self.stash.push_back(event);
            }
        };
        soon(what, next).await
    }

    /// Attaches a link; the answer, or why it was detached.
    pub(crate) async fn attach(&mut self, attach: Attach) -> Result<(LinkId, Attach), Error> {
        let link = self.wire.connection().attach(self.session, attach).expect("a handle");
        let answer = self
            .until("answer to an attach", |event| match event {
                Event::Attached { link: at, attach } if *at == link => Some(attach.clone()),
                _ => None,
            })
            .await;
        // A refusal follows at once; a flow for a sender, or the answer to a ping, shows that there is none.
        let refused = self.is_refused(link).await;
        match refused {
            Some(error) => Err(error),
            None => {
                assert!(
                    answer.source.is_some() && answer.target.is_some(),
                    "a terminus is missing: {answer:?}"
                );
                Ok((link, *answer))
            }
        }
    }

    /// Asks on another link whether the one before it was detached: frames come in order.
    async fn is_refused(&mut self, link: LinkId) -> Option<Error> {
        let ping = self
            .wire
            .connection()
            .attach(self.session, Attach::sender(format!("ping-{}", self.tag), "$management"));
        let ping = ping.expect("a handle");
        self.tag += 1;
        self.until("ping", |event| {
            matches!(event, Event::Attached { link, .. } if *link == ping).then_some(())
        })
        .await;
        self.wire.connection().detach(ping, None);
        let at = self
            .stash
            .iter()
            .position(|event| matches!(event, Event::Detached { link: at, .. } if *at == link))?;
        match self.stash.remove(at) {
            Some(Event::Detached { error, .. }) => error,
            _ => None,
        }
    }

    pub(crate) async fn sender(&mut self, address: &str) -> LinkId {
        let name = format!("sender-{}", self.next_tag());
        self.attach(Attach::sender(name, address)).await.expect("attached").0
    }

    /// A reader with credit.
    pub(crate) async fn reader(&mut self, partition: u32, from: &str, credit: u32) -> LinkId {
        let name = format!("reader-{}", self.next_tag());
        let attach = receiver(&name, &reader_of(partition), from);
        let (link, _) = self.attach(attach).await.expect("attached");
        self.wire.connection().set_credit(link, credit, false);
        link
    }

    fn next_tag(&mut self) -> u64 {
        self.tag += 1;
        self.tag
    }

    /// Sends without waiting.
    pub(crate) async fn send_only(&mut self, link: LinkId, format: u32, payload: Bytes) -> u32 {
        while self.wire.connection().sendable(link) == 0 {
            self.until("credit", |event| {
                matches!(event, Event::Credit { link: at, .. } if *at == link).then_some(())
            })
            .await;
        }
        let message = Outgoing { tag: self.next_tag().into(), format, settled: false };
        self.wire.connection().send(link, message, payload).expect("sent")
    }

    /// What became of a delivery.
    pub(crate) async fn outcome(&mut self, id: u32) -> DeliveryState {
        loop {
            if let Some(state) = self.outcomes.remove(&id) {
                return state;
            }
            let (ids, state) = self
                .until("outcome", |event| match event {
                    Event::Outcome { ids, state, settled, .. } => {
                        assert!(*settled, "an outcome that is not final");
                        Some((*ids, state.clone().expect("a state")))
                    }
                    _ => None,
                })
                .await;
            self.outcomes.extend(ids.iter().map(|id| (id, state.clone())));
        }
    }

    pub(crate) async fn send(&mut self, link: LinkId, payload: Bytes) -> DeliveryState {
        let id = self.send_only(link, 0, payload).await;
        self.outcome(id).await
    }

    pub(crate) async fn send_batch(
        &mut self,
        link: LinkId,
        events: impl IntoIterator<Item = Bytes>,
    ) -> DeliveryState {
        let id = self.send_only(link, FORMAT_BATCH, batch(events)).await;
        self.outcome(id).await
    }

    pub(crate) async fn delivery(&mut self, link: LinkId) -> Delivery {
        self.until("delivery", |event| match event {
            Event::Delivery(delivery) if delivery.link == link => Some(delivery.clone()),
            _ => None,
        })
        .await
    }

    pub(crate) async fn receive(&mut self, link: LinkId, count: usize) -> Vec<Message> {
        let mut messages = Vec::new();
        for _ in 0..count {
            let delivery = self.delivery(link).await;
            messages.push(Message::decode(&delivery.payload).expect("a message"));
        }
        messages
    }

    pub(crate) async fn texts(&mut self, link: LinkId, count: usize) -> Vec<String> {
        self.receive(link, count).await.iter().map(body).collect()
    }

    /// Why the server detached a link.
    pub(crate) async fn detached(&mut self, link: LinkId) -> Error {
        self.until("detach", |event| match event {
            Event::Detached { link: at, error, .. } if *at == link => Some(error.clone()),
            _ => None,
        })
        .await
        .expect("a reason")
    }

    /// Events that came and nobody took.
    pub(crate) fn stashed(&self) -> impl Iterator<Item = &Event> {
        self.stash.iter()
    }

    /// A request to a node and its reply, on links of their own; those for tokens are kept.
    pub(crate) async fn request(&mut self, node: &str, request: Message) -> Message {
        let name = format!("{node}-{}", self.next_tag());
        let (requests, replies) = match self.cbs.filter(|_| node == "$cbs") {
            Some(links) => links,
            None => {
                let (requests, _) = self.attach(Attach::sender(&*name, node)).await.expect("attached");
                let mut attach = Attach::receiver(&*name, node);
                attach.target = Some(partita_amqp::performative::Target::to(&name));
                let (replies, _) = self.attach(attach).await.expect("attached");
                (requests, replies)
            }
        };
        self.wire.connection().set_credit(replies, 10, false);
        let mut fields = vec![Value::Null; 5];
        (fields[0], fields[4]) = (Value::from(&*name), Value::from(&*name));
        let request = Message { properties: Some(fields), ..request };
        assert_eq!(self.send(requests, encoded(&request)).await, DeliveryState::Accepted);
        let reply = self.delivery(replies).await.payload;
        let reply = Message::decode_with_any_body(&reply).expect("a message");
        assert_eq!(reply.properties.as_ref().expect("there")[5], Value::from(&*name), "the correlation id");
        if node == "$cbs" {
            self.cbs = Some((requests, replies));
        } else {
            self.wire.connection().detach(requests, None);
            self.wire.connection().detach(replies, None);
        }
        reply
    }

    pub(crate) async fn put_token(&mut self, audience: &str, token: &str) -> (i32, String) {
        let pairs =
            [("operation", "put-token"), ("type", "servicebus.windows.net:sastoken"), ("name", audience)];
        let request = Message {
            application_properties: Some(
                pairs.map(|(key, value)| (Value::from(key), Value::from(value))).to_vec(),
            ),
            ..Message::new(Value::from(token))
        };
        let reply = self.request("$cbs", request).await;
        status(&reply)
    }
}

pub(crate) fn status(reply: &Message) -> (i32, String) {
    let Some(Value::Int(code)) = said(reply, "status-code") else { panic!("no code") };
    let description = said(reply, "status-description");
    (code, description.and_then(|text| text.as_str().map(str::to_owned)).unwrap_or_default())
}

/// An application property of a reply.
pub(crate) fn said(reply: &Message, name: &str) -> Option<Value> {
    let pairs = reply.application_properties.as_deref().expect("there");
    pairs.iter().find(|(key, _)| key.as_str() == Some(name)).map(|(_, value)| value.clone())
}

pub(crate) fn body(message: &Message) -> String {
    match &message.body {
        Body::Data(bytes) => String::from_utf8_lossy(bytes).into_owned(),
        other => panic!("{other:?}"),
    }
}

pub(crate) fn annotation(message: &Message, name: &str) -> Value {
    let pairs = message.message_annotations.as_deref().unwrap_or_default();
    pairs
        .iter()
        .find(|(key, _)| *key == Value::Symbol(name.into()))
        .map_or(Value::Null, |(_, value)| value.clone())
}
