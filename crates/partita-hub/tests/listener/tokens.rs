//! Who may do what, and for how long.

use partita_amqp::message::Message;
use partita_amqp::performative::{Attach, DeliveryState};
use partita_amqp::sasl;
use partita_core::model::{Timestamp, Value};
use partita_hub::server::ServerOptions;
use partita_hub::service::auth::{
    Key, Rights, Rule, RuleScope, Rules, WELL_KNOWN_KEY, WELL_KNOWN_NAME, sign,
};

use crate::client::{Client, EARLIEST, Hosted, reader_of, receiver, status, text, token};

#[tokio::test]
async fn links_without_a_token_are_refused() {
    let hosted = Hosted::new().await;
    let mut client = hosted.stranger().await;
    for attach in [
        Attach::sender("s", "eh1"),
        Attach::sender("p", "eh1/Partitions/0"),
        receiver("r", &reader_of(0), EARLIEST),
    ] {
        let error = client.attach(attach).await.expect_err("nobody knows this client");
        assert_eq!(&*error.condition, "amqp:unauthorized-access");
    }
    // Whether a hub is there is nobody's business.
    let error = client.attach(Attach::sender("n", "nowhere")).await.expect_err("unknown");
    assert_eq!(&*error.condition, "amqp:unauthorized-access");
}

#[tokio::test]
async fn tokens_that_are_wrong_are_refused_with_the_reason() {
    let hosted = Hosted::new().await;
    let mut client = hosted.stranger().await;
    let audience = "sb://localhost/eh1";
    let end = Timestamp(Timestamp::now().millis() + 60_000);
    let forged = sign(audience, WELL_KNOWN_NAME, &Key::new("guess"), end);
    let (code, words) = client.put_token(audience, &forged).await;
    assert!(code == 401 && words.contains("invalid signature"), "{words}");
    let (code, words) = client.put_token(audience, &token(audience, -1)).await;
    assert!(code == 401 && words.contains("ExpiredToken"), "{words}");
    let (code, _) = client.put_token("sb://localhost/eh2", &token(audience, 60)).await;
    assert_eq!(code, 401);
    client.attach(Attach::sender("s", "eh1")).await.expect_err("still unknown");
    assert_eq!(client.put_token(audience, &token(audience, 60)).await.0, 202);
    client.attach(Attach::sender("t", "eh1")).await.expect("known now");
}

#[tokio::test]
async fn a_rule_allows_what_it_says_where_it_says() {
    let listen = Rights { listen: true, ..Rights::default() };
    let rule = |name: &str, rights, scope| Rule { name: name.into(), key: Key::new("secret"), rights, scope };
    let auth = Rules::new([
        rule("listener", listen, RuleScope::Hub("eh1".into())),
        rule("sender", Rights { send: true, ..Rights::default() }, RuleScope::Namespace),
    ]);
    let hosted = Hosted::with(ServerOptions { auth, ..ServerOptions::default() }).await;
    let end = Timestamp(Timestamp::now().millis() + 60_000);
    let audience = "sb://localhost/eh1";
    let mut reads = hosted.stranger().await;
    assert_eq!(reads.put_token(audience, &sign(audience, "listener", &Key::new("secret"), end)).await.0, 202);
    let (_, _) = reads.attach(receiver("r", &reader_of(0), EARLIEST)).await.expect("may listen");
    let error = reads.attach(Attach::sender("s", "eh1")).await.expect_err("may not send");
    assert!(error.to_string().contains("'Send' claim"), "{error}");
    let mut sends = hosted.stranger().await;
    assert_eq!(sends.put_token(audience, &sign(audience, "sender", &Key::new("secret"), end)).await.0, 202);
    sends.attach(Attach::sender("s", "eh1")).await.expect("may send");
    let error = sends.attach(receiver("r", &reader_of(0), EARLIEST)).await.expect_err("may not listen");
    assert!(error.to_string().contains("'Listen' claim"), "{error}");
}

#[tokio::test]
async fn links_are_detached_when_their_token_is_over_unless_it_was_renewed() {
    let hosted = Hosted::new().await;
    let audience = "sb://localhost/eh1";
    let mut client = hosted.stranger().await;
    let mut renewed = hosted.stranger().await;
    assert_eq!(client.put_token(audience, &token(audience, 2)).await.0, 202);
    assert_eq!(renewed.put_token(audience, &token(audience, 2)).await.0, 202);
    let sender = client.sender("eh1").await;
    let reader = client.reader(0, EARLIEST, 10).await;
    let stays = renewed.sender("eh1").await;
    assert_eq!(renewed.put_token(audience, &token(audience, 600)).await.0, 202);
    for link in [sender, reader] {
        let error = client.detached(link).await;
        assert_eq!(&*error.condition, "amqp:unauthorized-access");
        assert!(error.to_string().contains("expired"), "{error}");
    }
    assert_eq!(renewed.send(stays, text("still here")).await, DeliveryState::Accepted);
    // The connection stays, and a new token lets it go on.
    assert_eq!(client.put_token(audience, &token(audience, 600)).await.0, 202);
    let sender = client.sender("eh1").await;
    assert_eq!(client.send(sender, text("back")).await, DeliveryState::Accepted);
}

#[tokio::test]
async fn a_name_and_key_by_sasl_do_as_well() {
    let hosted = Hosted::new().await;
    let login = sasl::Client::plain(WELL_KNOWN_NAME, WELL_KNOWN_KEY);
    let mut client = Client::connect(hosted.address, login).await;
    let sender = client.sender("eh1").await;
    assert_eq!(client.send(sender, text("x")).await, DeliveryState::Accepted);
    let mut wrong = Client::connect(hosted.address, sasl::Client::plain(WELL_KNOWN_NAME, "guess")).await;
    let error = wrong.attach(Attach::sender("s", "eh1")).await.expect_err("a wrong key");
    assert_eq!(&*error.condition, "amqp:unauthorized-access");
}

#[tokio::test]
async fn an_open_server_asks_for_nothing() {
    let hosted = Hosted::with(ServerOptions { auth: Rules::open(), ..ServerOptions::default() }).await;
    let mut client = hosted.stranger().await;
    let sender = client.sender("eh1").await;
    assert_eq!(client.send(sender, text("x")).await, DeliveryState::Accepted);
}

#[tokio::test]
async fn questions_are_answered_to_who_may_ask() {
    let hosted = Hosted::new().await;
    let mut client = hosted.client().await;
    let ask = |name: &str| {
        let pairs = [("operation", "READ"), ("type", "com.microsoft:eventhub"), ("name", name)];
        let pairs = pairs.map(|(key, value)| (Value::from(key), Value::from(value))).to_vec();
        Message { application_properties: Some(pairs), ..Message::new(Value::Null) }
    };
    assert_eq!(status(&client.request("$management", ask("eh1")).await).0, 200);
    assert_eq!(status(&client.request("$management", ask("nowhere")).await).0, 401);
    let everything = token("sb://localhost/", 600);
    assert_eq!(client.put_token("sb://localhost/nowhere", &everything).await.0, 404);
    assert_eq!(client.put_token("sb://localhost/", &everything).await.0, 202);
    let (code, words) = status(&client.request("$management", ask("nowhere")).await);
    assert!(code == 404 && words.contains("The messaging entity 'nowhere' could not be found"), "{words}");
}
