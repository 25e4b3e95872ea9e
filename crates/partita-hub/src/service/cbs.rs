//! `$cbs`: where a client puts the tokens that its links need.

use partita_amqp::message::Message;
use partita_core::model::{Body, Timestamp, Value};
use partita_dialect::names::token::{JWT, SAS};

use super::address::ResourceUri;
use super::auth::{Rules, Tokens};
use super::condition::Refusal;
use super::request::{self, BAD_REQUEST, FORBIDDEN, Failure, NOT_FOUND, NOT_IMPLEMENTED, UNAUTHORIZED};
use crate::broker::listed;

/// What a shared access signature begins with.
const SIGNATURE: &str = "SharedAccessSignature ";

/// Does what a request asks for and says what came of it. `hub` is asked for each hub by its name; of one that is not there it
/// says which are. The reply is to be sent
/// without its body: the service's have none.
pub fn handle(
    request: &Message,
    rules: &Rules,
    tokens: &mut Tokens,
    hub: impl Fn(&str) -> Result<(), Vec<String>>,
    now: Timestamp,
) -> Message {
    match put_token(request, rules, tokens, hub, now) {
        Ok(()) => {
            let code = ("status-code", Value::Int(request::ACCEPTED));
            request::reply(request, vec![code, ("status-description", Value::from("Accepted"))], Value::Null)
        }
        Err(failure) => request::failed(request, &failure),
    }
}

fn put_token(
    request: &Message,
    rules: &Rules,
    tokens: &mut Tokens,
    hub: impl Fn(&str) -> Result<(), Vec<String>>,
    now: Timestamp,
) -> Result<(), Failure> {
    let operation = request::required(request, "operation")?;
    if operation != "put-token" {
        let text = format!("The operation '{operation}' is not known here, only 'put-token' is.");
        return Err(Failure::new(NOT_IMPLEMENTED, text));
    }
    let kind = request::required(request, "type")?;
    let audience = request::required(request, "name")?;
    let token = token(&request.body);
    // A client that knows only credentials of Entra ID can be given a signature as one (SDKs without connection strings). It is
    // verified like any other.
    let is_jwt = kind.eq_ignore_ascii_case(JWT);
    let is_signature = is_jwt && token.as_ref().is_some_and(|token| token.starts_with(SIGNATURE));
    if !rules.is_open() && !kind.eq_ignore_ascii_case(SAS) && !is_signature {
        let text = match is_jwt {
            true => {
                "This hub has no Microsoft Entra ID behind it: use a connection string with a shared access key.".to_owned()
            }
            false => format!("Tokens of type '{kind}' are not known here, only '{SAS}' is."),
        };
        return Err(Failure::new(UNAUTHORIZED, text));
    }
    let token = token.ok_or_else(|| Failure::new(BAD_REQUEST, "The body of the request is not a token."))?;
    let grant = rules.verify(&token, audience, now);
    let grant = grant.map_err(|error| Failure::new(UNAUTHORIZED, error.to_string()))?;
    // After the signature: whether a hub is there is nobody's business without one.
    find(audience, hub)?;
    tokens.put(grant, now).map_err(|refusal| Failure::new(FORBIDDEN, refusal.description))
}

/// Fails if the audience names a hub that is not there. One that names none is the whole namespace. Whoever signed for a hub
/// that is not there has a rule of the whole namespace, and may know its hubs.
fn find(audience: &str, hub: impl Fn(&str) -> Result<(), Vec<String>>) -> Result<(), Failure> {
    let place = ResourceUri::parse(audience);
    let Some(name) = place.segments.first().filter(|name| !name.starts_with('$')) else { return Ok(()) };
    let Err(known) = hub(name) else { return Ok(()) };
    let entity = format!("sb://{}/{name}", place.host.as_deref().unwrap_or("localhost"));
    let missing = Refusal::not_found(entity).description;
    let known = match known.as_slice() {
        [] => "There is no hub here.".to_owned(),
        known => format!("The hubs here are: {}.", listed(known)),
    };
    let text = format!("{missing} {known} To know more visit https://aka.ms/sbResourceMgrExceptions.");
    Err(Failure::new(NOT_FOUND, text))
}

fn token(body: &Body) -> Option<String> {
    match body {
        Body::Value(Value::String(text) | Value::Symbol(text)) => Some(text.to_string()),
        Body::Value(Value::Binary(bytes)) | Body::Data(bytes) => String::from_utf8(bytes.to_vec()).ok(),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::super::auth::{Key, Right, WELL_KNOWN_KEY, WELL_KNOWN_NAME, sign};
    use super::*;

    const NOW: Timestamp = Timestamp(1_700_000_000_000);

    fn request(id: Value, properties: &[(&str, &str)], body: Value) -> Message {
        let pairs = properties.iter().map(|(key, value)| (Value::from(*key), Value::from(*value)));
        Message {
            properties: Some(vec![id, Value::Null, Value::Null, Value::Null, Value::from("me")]),
            application_properties: Some(pairs.collect()),
            ..Message::new(body)
        }
    }

    fn put(kind: &str, token: &str) -> Message {
        let properties =
            [("operation", "put-token"), ("type", kind), ("name", "sb://localhost/eh1/$management")];
        request(Value::Ulong(0), &properties, Value::from(token))
    }

    fn hub(name: &str) -> Result<(), Vec<String>> {
        name.eq_ignore_ascii_case("eh1").then_some(()).ok_or_else(|| vec!["eh1".to_owned()])
    }

    fn condition(reply: &Message) -> Option<&Value> {
        let pairs = reply.application_properties.as_deref().expect("there");
        pairs.iter().find(|(name, _)| name.as_str() == Some("error-condition")).map(|(_, value)| value)
    }

    fn status(reply: &Message) -> (&Value, &str) {
        let pairs = reply.application_properties.as_deref().expect("there");
        (&pairs[0].1, pairs[1].1.as_str().expect("text"))
    }

    fn valid() -> String {
        let end = Timestamp(NOW.0 + 60_000);
        sign("sb://localhost/eh1", WELL_KNOWN_NAME, &Key::new(WELL_KNOWN_KEY), end)
    }

    #[test]
    fn a_valid_token_is_taken_and_allows_links() {
        let mut tokens = Tokens::default();
        let reply = handle(&put(SAS, &valid()), &Rules::default(), &mut tokens, hub, NOW);
        assert_eq!(status(&reply), (&Value::Int(202), "Accepted"));
        let properties = reply.properties.expect("there");
        assert_eq!((&properties[5], &properties[2]), (&Value::Ulong(0), &Value::from("me")));
        assert!(tokens.allow("eh1/$management", Right::Listen, NOW).is_ok());
        assert!(tokens.allow("eh1", Right::Listen, NOW).is_err(), "only the audience and below");
    }

    #[test]
    fn the_id_comes_back_in_its_own_type() {
        for id in [Value::Uuid(7), Value::from("7"), Value::Ulong(7), Value::Binary("7".into()), Value::Null]
        {
            let reply = handle(
                &request(id.clone(), &[], Value::Null),
                &Rules::default(),
                &mut Tokens::default(),
                hub,
                NOW,
            );
            assert_eq!(reply.properties.expect("there")[5], id);
        }
    }

    #[test]
    fn what_is_refused_says_why_and_grants_nothing() {
        let mut tokens = Tokens::default();
        let forged =
            sign("sb://localhost/eh1", WELL_KNOWN_NAME, &Key::new("guess"), Timestamp(NOW.0 + 1_000));
        let cases = [
            (put(SAS, &forged), 401, "invalid signature"),
            (put("jwt", "e30.e30."), 401, "Entra"),
            (put("jwt", &forged), 401, "invalid signature"),
            (put("amqp:swt", &valid()), 401, "amqp:swt"),
            (put("amqp:swt", "x"), 401, "amqp:swt"),
            (put(SAS, "x"), 401, "not a shared access signature"),
            (request(Value::Null, &[("operation", "delete-token")], Value::Null), 501, "delete-token"),
            (request(Value::Null, &[("operation", "put-token")], Value::Null), 400, "'type'"),
            (request(Value::Null, &[], Value::Null), 400, "'operation'"),
            (
                request(
                    Value::Null,
                    &[("operation", "put-token"), ("type", SAS), ("name", "a")],
                    Value::Null,
                ),
                400,
                "not a token",
            ),
        ];
        for (message, code, word) in cases {
            let reply = handle(&message, &Rules::default(), &mut tokens, hub, NOW);
            let expected = match code {
                401 => "com.microsoft:auth-failed",
                501 => "amqp:not-implemented",
                _ => "com.microsoft:argument-error",
            };
            assert_eq!(condition(&reply), Some(&Value::Symbol(expected.into())));
            let (status, description) = status(&reply);
            assert!(*status == Value::Int(code) && description.contains(word), "{status:?} {description}");
        }
        assert!(!tokens.any(NOW));
    }

    #[test]
    fn a_signature_in_the_place_of_a_jwt_is_taken() {
        let mut tokens = Tokens::default();
        let reply = handle(&put("jwt", &valid()), &Rules::default(), &mut tokens, hub, NOW);
        assert_eq!(status(&reply).0, &Value::Int(202));
        assert!(tokens.allow("eh1/$management", Right::Listen, NOW).is_ok());
    }

    #[test]
    fn a_token_for_a_hub_that_is_not_there_is_not_found_in_the_service_s_words() {
        let everything =
            sign("sb://localhost/", WELL_KNOWN_NAME, &Key::new(WELL_KNOWN_KEY), Timestamp(NOW.0 + 60_000));
        let put = |audience: &str, token: &str| {
            let properties = [("operation", "put-token"), ("type", SAS), ("name", audience)];
            let mut tokens = Tokens::default();
            let request = request(Value::Ulong(0), &properties, Value::from(token));
            (handle(&request, &Rules::default(), &mut tokens, hub, NOW), tokens.any(NOW))
        };
        let (reply, granted) = put("amqps://localhost/EH2/Partitions/0", &everything);
        let words = "The messaging entity 'sb://localhost/EH2' could not be found. The hubs here are: eh1. To know more visit https://aka.ms/sbResourceMgrExceptions.";
        assert_eq!(status(&reply), (&Value::Int(404), words));
        assert_eq!(condition(&reply), Some(&Value::Symbol("amqp:not-found".into())));
        assert!(!granted);
        // Who has no valid token does not learn what is there.
        assert_eq!(status(&put("sb://localhost/eh2", "x").0).0, &Value::Int(401));
        for audience in ["sb://localhost/", "sb://localhost/$management", "sb://localhost/EH1"] {
            let (reply, granted) = put(audience, &everything);
            assert!(granted && condition(&reply).is_none(), "{audience}");
        }
    }

    #[test]
    fn a_rule_that_is_not_there_is_answered_as_a_wrong_signature_is() {
        let end = Timestamp(NOW.0 + 60_000);
        for resource in ["sb://localhost/eh1", "sb://elsewhere/eh1", "sb://localhost/eh2"] {
            let [unknown, wrong] = ["nobody", WELL_KNOWN_NAME].map(|rule| {
                let token = sign(resource, rule, &Key::new("guess"), end);
                handle(&put(SAS, &token), &Rules::default(), &mut Tokens::default(), hub, NOW)
            });
            assert_eq!(unknown, wrong);
        }
    }

    #[test]
    fn an_open_hub_takes_any_token() {
        let mut tokens = Tokens::default();
        let reply = handle(&put("jwt", "e30.e30."), &Rules::open(), &mut tokens, hub, NOW);
        assert_eq!(status(&reply).0, &Value::Int(202));
    }
}
