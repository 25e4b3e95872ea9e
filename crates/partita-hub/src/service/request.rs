//! Requests and replies, as `$cbs` and `$management` exchange them.

use partita_amqp::message::Message;
use partita_core::model::Value;

use super::condition::{self, Refusal};

const MESSAGE_ID: usize = 0;
const REPLY_TO: usize = 4;
const CORRELATION_ID: usize = 5;

/// Said when all went well.
pub(crate) const OK: i32 = 200;
/// Said of a token that was taken.
pub(crate) const ACCEPTED: i32 = 202;
pub(crate) const BAD_REQUEST: i32 = 400;
pub(crate) const UNAUTHORIZED: i32 = 401;
pub(crate) const FORBIDDEN: i32 = 403;
pub(crate) const NOT_FOUND: i32 = 404;
pub(crate) const NOT_IMPLEMENTED: i32 = 501;

/// Why a request was not done: the code of the reply, and the refusal that clients act on.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Failure {
    pub(crate) code: i32,
    pub(crate) refusal: Refusal,
}

impl Failure {
    /// With the condition that goes with the code.
    pub(crate) fn new(code: i32, description: impl Into<String>) -> Self {
        let condition = match code {
            UNAUTHORIZED => condition::AUTH_FAILED,
            FORBIDDEN => condition::LIMIT_EXCEEDED,
            NOT_FOUND => condition::NOT_FOUND,
            NOT_IMPLEMENTED => condition::NOT_IMPLEMENTED,
            _ => condition::ARGUMENT_ERROR,
        };
        Self { code, refusal: Refusal::new(condition, description) }
    }
}

/// An application property of a request, if it is text.
pub(crate) fn property<'a>(request: &'a Message, name: &str) -> Option<&'a str> {
    let pairs = request.application_properties.as_deref().unwrap_or_default();
    pairs.iter().find(|(key, _)| key.as_str() == Some(name))?.1.as_str()
}

/// The same, or a failure that says what is missing.
pub(crate) fn required<'a>(request: &'a Message, name: &str) -> Result<&'a str, Failure> {
    property(request, name)
        .ok_or_else(|| Failure::new(BAD_REQUEST, format!("The request has no property '{name}'.")))
}

/// Where the client wants the reply, if it says so.
pub(crate) fn reply_to(request: &Message) -> Option<&str> {
    request.properties.as_deref()?.get(REPLY_TO)?.as_str()
}

/// A reply with these application properties. It carries the request's message-id as it came: clients compare type and
/// value.
pub(crate) fn reply(request: &Message, pairs: Vec<(&str, Value)>, body: Value) -> Message {
    let field = |at: usize| request.properties.as_ref().and_then(|fields| fields.get(at)).cloned();
    let mut properties = vec![Value::Null; CORRELATION_ID + 1];
    properties[2] = field(REPLY_TO).unwrap_or(Value::Null);
    properties[CORRELATION_ID] = field(MESSAGE_ID).unwrap_or(Value::Null);
    Message {
        properties: Some(properties),
        application_properties: Some(
            pairs.into_iter().map(|(name, value)| (Value::from(name), value)).collect(),
        ),
        ..Message::new(body)
    }
}

/// A reply that says why nothing was done.
pub(crate) fn failed(request: &Message, failure: &Failure) -> Message {
    let Refusal { condition, description } = &failure.refusal;
    let pairs = vec![
        ("status-code", Value::Int(failure.code)),
        ("status-description", Value::from(description.as_str())),
        ("error-condition", Value::Symbol(condition.as_ref().into())),
    ];
    reply(request, pairs, Value::Null)
}

/// Why a reply says that nothing was done: condition and description; none if something was.
pub(crate) fn failure(reply: &Message) -> Option<(&str, &str)> {
    Some((property(reply, "error-condition")?, property(reply, "status-description").unwrap_or_default()))
}

/// Adds code and description under the names that Python's client looks for where a question failed.
pub(crate) fn spell_both_ways(reply: &mut Message) {
    let Some(pairs) = &mut reply.application_properties else { return };
    let names = [("status-code", "statusCode"), ("status-description", "statusDescription")];
    for (name, other) in names {
        if let Some((_, value)) = pairs.iter().find(|(key, _)| key.as_str() == Some(name)) {
            pairs.push((Value::from(other), value.clone()));
        }
    }
}
