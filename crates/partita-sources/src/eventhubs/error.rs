//! What can go wrong between here and a hub, sorted by what to do about it.

use std::fmt;
use std::io;
use std::sync::Arc;

use partita_amqp::performative::{self, condition};
use partita_core::source::{SourceError, SourceErrorKind};
use partita_dialect::condition::{
    ARGUMENT_ERROR, ENTITY_DISABLED, OUT_OF_ORDER, OUT_OF_RANGE, PRODUCER_STOLEN, SERVER_BUSY,
};

/// Never leaves this crate.
const NO_ROOM: &str = "partita:no-room";

/// A call on a hub that failed: one sentence, and what it means. Cloning it is cheap: one lost connection fails many.
#[derive(Clone, Debug)]
pub struct EventHubsError {
    kind: SourceErrorKind,
    condition: Option<Arc<str>>,
    text: Arc<str>,
    uncertain: bool,
}

impl EventHubsError {
    pub(crate) fn new(kind: SourceErrorKind, text: impl Into<Arc<str>>) -> Self {
        Self { kind, condition: None, text: text.into(), uncertain: false }
    }

    /// What trying again may help against.
    pub(crate) fn retriable(text: impl Into<Arc<str>>) -> Self {
        Self::new(SourceErrorKind::Retriable, text)
    }

    /// What it will not help against.
    pub(crate) fn fatal(text: impl Into<Arc<str>>) -> Self {
        Self::new(SourceErrorKind::Fatal, text)
    }

    /// What the hub said of a link, session or connection.
    pub(crate) fn of_peer(what: &str, error: Option<&performative::Error>) -> Self {
        let Some(error) = error else {
            return Self::retriable(format!("{what} was ended by the hub, which did not say why"));
        };
        let description = error.description.as_deref().unwrap_or_default();
        let text = match description {
            "" => format!("{what} was ended by the hub: {}", &*error.condition),
            description => format!("{what} was ended by the hub: {description} ({})", &*error.condition),
        };
        let kind = classify(&error.condition, description);
        Self { kind, condition: Some(Arc::from(&*error.condition)), text: text.into(), uncertain: false }
    }

    /// What the status of a reply means.
    pub(crate) fn of_status(what: &str, code: i64, description: &str) -> Self {
        let kind = match code {
            400 | 401 | 403 | 404 | 405 | 501 => SourceErrorKind::Fatal,
            _ => SourceErrorKind::Retriable,
        };
        let condition = match code {
            401 => Some(condition::UNAUTHORIZED_ACCESS),
            404 => Some(condition::NOT_FOUND),
            _ => None,
        };
        let text = format!("{what}: {description} (status {code})");
        Self { kind, condition: condition.map(Arc::from), text: text.into(), uncertain: false }
    }

    /// A connection that takes no more links: there may be others.
    pub(crate) fn no_room() -> Self {
        let condition = Some(Arc::from(NO_ROOM));
        Self { condition, ..Self::retriable("the connection takes no more links") }
    }

    pub(crate) fn is_no_room(&self) -> bool {
        self.condition() == Some(NO_ROOM)
    }

    /// What the network said.
    pub(crate) fn of_io(what: &str, error: &io::Error) -> Self {
        Self::retriable(format!("{what}: {error}"))
    }

    /// The same, of another kind.
    pub(crate) fn with_kind(self, kind: SourceErrorKind) -> Self {
        Self { kind, ..self }
    }

    /// The same, of something that may have happened.
    pub(crate) fn uncertain(self) -> Self {
        Self { uncertain: true, ..self }
    }

    /// The same, of something that was not even tried.
    pub(crate) fn certain(self) -> Self {
        Self { uncertain: false, ..self }
    }

    /// What it means for whoever called.
    pub fn kind(&self) -> SourceErrorKind {
        self.kind
    }

    /// Whether trying again, later, may help.
    pub fn is_retriable(&self) -> bool {
        self.kind == SourceErrorKind::Retriable
    }

    /// Whether what was asked for may have happened all the same: the hub had it, and no answer came.
    pub fn may_have_happened(&self) -> bool {
        self.uncertain
    }

    /// Whether the hub asks to come back in some seconds.
    pub fn is_busy(&self) -> bool {
        self.condition() == Some(SERVER_BUSY)
    }

    /// The hub's own word for it, such as `amqp:not-found`, if it was the hub that said no.
    pub fn condition(&self) -> Option<&str> {
        self.condition.as_deref()
    }
}

/// What a condition means.
fn classify(name: &str, description: &str) -> SourceErrorKind {
    match name {
        condition::STOLEN => SourceErrorKind::OwnershipLost,
        condition::NOT_FOUND
        | condition::UNAUTHORIZED_ACCESS
        | condition::NOT_IMPLEMENTED
        | condition::NOT_ALLOWED
        | condition::INVALID_FIELD
        | condition::RESOURCE_DELETED
        | condition::MESSAGE_SIZE_EXCEEDED
        | OUT_OF_RANGE
        | ENTITY_DISABLED
        | PRODUCER_STOLEN
        | OUT_OF_ORDER => SourceErrorKind::Fatal,
        ARGUMENT_ERROR if names_a_position(description) => SourceErrorKind::PositionGone,
        ARGUMENT_ERROR => SourceErrorKind::Fatal,
        // Busy, forced, timed out, too many readers, and whatever is not known: it may pass.
        _ => SourceErrorKind::Retriable,
    }
}

/// The service has no condition of its own for a position that is not there, only these words.
fn names_a_position(description: &str) -> bool {
    ["The supplied sequence number", "The supplied offset"].iter().any(|words| description.contains(words))
}

impl fmt::Display for EventHubsError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl std::error::Error for EventHubsError {}

impl From<EventHubsError> for SourceError {
    fn from(error: EventHubsError) -> Self {
        Self::new(error.kind, error)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kind(condition: &str, description: &str) -> SourceErrorKind {
        let error = performative::Error::new(condition, description);
        EventHubsError::of_peer("the receiver", Some(&error)).kind()
    }

    #[test]
    fn conditions_are_sorted_by_what_to_do() {
        use SourceErrorKind::{Fatal, OwnershipLost, PositionGone, Retriable};
        let ahead =
            "The supplied sequence number '9' is invalid. The last sequence number in the system is '2'";
        for (condition, description, expected) in [
            ("amqp:link:stolen", "", OwnershipLost),
            ("amqp:not-found", "", Fatal),
            ("amqp:unauthorized-access", "", Fatal),
            ("com.microsoft:argument-out-of-range", "", Fatal),
            ("com.microsoft:argument-error", "The filter expression is invalid.", Fatal),
            ("com.microsoft:argument-error", ahead, PositionGone),
            ("com.microsoft:server-busy", "", Retriable),
            ("com.microsoft:timeout", "", Retriable),
            ("amqp:link:detach-forced", "", Retriable),
            ("amqp:connection:forced", "", Retriable),
            ("amqp:resource-limit-exceeded", "", Retriable),
            ("amqp:internal-error", "", Retriable),
            ("something:new", "", Retriable),
        ] {
            assert_eq!(kind(condition, description), expected, "{condition}");
        }
        assert!(EventHubsError::of_peer("the connection", None).is_retriable());
    }

    #[test]
    fn statuses_are_sorted_by_what_to_do() {
        for (code, retriable) in
            [(401, false), (404, false), (400, false), (408, true), (500, true), (503, true)]
        {
            assert_eq!(
                EventHubsError::of_status("reading", code, "words").is_retriable(),
                retriable,
                "{code}"
            );
        }
    }
}
