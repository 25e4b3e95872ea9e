//! `$cbs`: where a client puts the tokens that its links need.

use partita_amqp::message::Message;
use partita_core::model::{Body, Timestamp, Value};

use super::auth::{Rules, Tokens};
use super::request::{self, BAD_REQUEST, FORBIDDEN, Failure, NOT_IMPLEMENTED, UNAUTHORIZED};

const SAS: &str = "servicebus.windows.net:sastoken";
const JWT: &str = "jwt";
/// What a shared access signature begins with.
const SIGNATURE: &str = "SharedAccessSignature ";

/// Does what a request asks for and says what came of it.
pub fn handle(request: &Message, rules: &Rules, tokens: &mut Tokens, now: Timestamp) -> Message {
    match put_token(request, rules, tokens, now) {
        Ok(()) => request::reply(request, request::ACCEPTED, "Accepted", Value::Null),
        Err(failure) => request::failed(request, &failure),
    }
}

fn put_token(request: &Message, rules: &Rules, tokens: &mut Tokens, now: Timestamp) -> Result<(), Failure> {
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
    let token = token.ok_or_else(|| Failure::new(BAD_REQUEST, "The body of the request is no token."))?;
    let grant = rules.verify(&token, audience, now);
    let grant = grant.map_err(|error| Failure::new(UNAUTHORIZED, error.to_string()))?;
    tokens.put(grant, now).map_err(|refusal| Failure::new(FORBIDDEN, refusal.description))
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
        let reply = handle(&put(SAS, &valid()), &Rules::default(), &mut tokens, NOW);
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
            (put(SAS, "x"), 401, "no shared access signature"),
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
                "no token",
            ),
        ];
        for (message, code, word) in cases {
            let reply = handle(&message, &Rules::default(), &mut tokens, NOW);
            let (status, description) = status(&reply);
            assert!(*status == Value::Int(code) && description.contains(word), "{status:?} {description}");
        }
        assert!(!tokens.any(NOW));
    }

    #[test]
    fn a_signature_in_the_place_of_a_jwt_is_taken() {
        let mut tokens = Tokens::default();
        let reply = handle(&put("jwt", &valid()), &Rules::default(), &mut tokens, NOW);
        assert_eq!(status(&reply).0, &Value::Int(202));
        assert!(tokens.allow("eh1/$management", Right::Listen, NOW).is_ok());
    }

    #[test]
    fn an_open_hub_takes_any_token() {
        let mut tokens = Tokens::default();
        let reply = handle(&put("jwt", "e30.e30."), &Rules::open(), &mut tokens, NOW);
        assert_eq!(status(&reply).0, &Value::Int(202));
    }
}
