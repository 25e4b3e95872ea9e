//! What clients are told when something is refused: a condition that they act on, and words that some of them look for.

use std::borrow::Cow;
use std::fmt;

pub use partita_dialect::condition::{
    ARGUMENT_ERROR, AUTH_FAILED, ENTITY_DISABLED, OUT_OF_ORDER, OUT_OF_RANGE, PRODUCER_STOLEN, SERVER_BUSY,
    TIMEOUT,
};

use crate::broker::{AttachError, HubReadError, Refused};
use crate::log::{AppendError, ReadError};

/// There is no such hub, group or partition.
pub const NOT_FOUND: &str = "amqp:not-found";
/// No valid token for this.
pub const UNAUTHORIZED: &str = "amqp:unauthorized-access";
/// Another reader has the partition.
pub const STOLEN: &str = "amqp:link:stolen";
/// As many as there may be.
pub const LIMIT_EXCEEDED: &str = "amqp:resource-limit-exceeded";
/// A message is too large.
pub const SIZE_EXCEEDED: &str = "amqp:link:message-size-exceeded";
/// The bytes are no message.
pub const DECODE_ERROR: &str = "amqp:decode-error";
/// What is asked for does not exist here.
pub const NOT_IMPLEMENTED: &str = "amqp:not-implemented";
/// It does not fit the state of things.
pub const NOT_ALLOWED: &str = "amqp:not-allowed";
/// Something failed here; clients try again.
pub const INTERNAL_ERROR: &str = "amqp:internal-error";
/// The link ends for reasons of the hub; clients make it again.
pub const DETACH_FORCED: &str = "amqp:link:detach-forced";
/// The connection ends for reasons of the hub; clients make it again.
pub const CONNECTION_FORCED: &str = "amqp:connection:forced";

/// A refusal as a client hears of it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Refusal {
    /// What clients act on: one of the constants here, or what a user made up.
    pub condition: Cow<'static, str>,
    /// What people read, and some clients.
    pub description: String,
}

impl Refusal {
    /// A refusal with one of the conditions above.
    pub fn new(condition: &'static str, description: impl Into<String>) -> Self {
        Self { condition: Cow::Borrowed(condition), description: description.into() }
    }

    /// There is no such entity. Java and .NET look for these words.
    pub fn not_found(entity: impl fmt::Display) -> Self {
        Self::new(NOT_FOUND, format!("The messaging entity '{entity}' could not be found."))
    }

    /// The hub has no such partition.
    pub fn no_partition(partitions: u32) -> Self {
        let last = partitions.saturating_sub(1);
        Self::new(
            OUT_OF_RANGE,
            format!(
                "The specified partition is invalid for an EventHub partition sender or receiver. \
                 It should be between 0 and {last}."
            ),
        )
    }

    /// A number of an idempotent producer is negative, or larger than its type.
    pub fn producer_out_of_range() -> Self {
        Self::new(
            OUT_OF_RANGE,
            "Invalid range for idempotent producer state. Producer Id, Epoch, and Sequence Number must be zero or positive.",
        )
    }

    /// A later incarnation of an idempotent producer took over. `received` is the epoch that it has itself, where that is known.
    pub fn producer_stolen(id: i64, received: Option<i16>, current: i16) -> Self {
        let received = received.map_or_else(String::new, |epoch| format!("Received:{epoch} "));
        let text = format!(
            "A producer with a higher epoch took over. {received}Current:{current}. Producer id:{id}."
        );
        Self::new(PRODUCER_STOLEN, text)
    }

    /// A message names another producer than its link does. It would be judged by the numbers of that other one.
    pub fn other_producer(found: i64, id: i64) -> Self {
        let text = format!(
            "The message has the producer id {found} and its link {id}: send with the id that the attach was answered with."
        );
        Self::new(ARGUMENT_ERROR, text)
    }

    /// A message is larger than the link takes.
    pub fn too_large(bytes: u64, bytes_max: u64) -> Self {
        Self::new(
            SIZE_EXCEEDED,
            format!(
                "The received message ({bytes} bytes) exceeds the limit ({bytes_max} bytes) currently allowed on the link."
            ),
        )
    }

    /// The same, of a delivery on a link.
    pub fn delivery_too_large(id: u32, bytes: u64, bytes_max: u64) -> Self {
        Self::new(
            SIZE_EXCEEDED,
            format!(
                "The received message (delivery-id:{id}, size:{bytes} bytes) exceeds the limit ({bytes_max} bytes) \
                 currently allowed on the link."
            ),
        )
    }

    /// The hub is disabled: it is there, and nothing can be sent to it or read from it.
    pub fn disabled(hub: impl fmt::Display) -> Self {
        let text = format!(
            "Messaging entity '{hub}' is currently disabled: enable it with 'partita hub enable {hub}'."
        );
        Self::new(ENTITY_DISABLED, text)
    }

    /// A reader asked for a sequence number or offset that is not there yet. `what` is one of the two words.
    pub fn beyond_the_end(what: &str, asked: impl fmt::Display, last: impl fmt::Display) -> Self {
        Self::new(
            ARGUMENT_ERROR,
            format!("The supplied {what} '{asked}' is invalid. The last {what} in the system is '{last}'"),
        )
    }
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.condition, self.description)
    }
}

impl From<AppendError> for Refusal {
    fn from(error: AppendError) -> Self {
        match error {
            AppendError::TooLarge { bytes, max } => Self::too_large(bytes as u64, max as u64),
            AppendError::NoPartition { partitions, .. } => Self::no_partition(partitions),
            AppendError::Deleted => {
                Self::new(NOT_FOUND, "The messaging entity could not be found: the hub was deleted.")
            }
            AppendError::OutOfOrder { id, expected, found } => {
                // Numbers go round, so that half of them are before any one.
                let is_old =
                    expected.wrapping_sub(found).cast_unsigned() & i32::MAX.cast_unsigned() < 1 << 30;
                let what =
                    if is_old { "an old sequence number" } else { "a sequence number that is not the next" };
                let text = format!(
                    "The producer sent {what}. Received:{found} Expected:{expected}. Producer id:{id}."
                );
                Self::new(OUT_OF_ORDER, text)
            }
            AppendError::ProducerStolen { id, epoch } => Self::producer_stolen(id, None, epoch),
            // Busy is what every client tries again after.
            other if other.is_retriable() => Self::new(SERVER_BUSY, other.to_string()),
            other => Self::new(INTERNAL_ERROR, other.to_string()),
        }
    }
}

impl From<AttachError> for Refusal {
    fn from(error: AttachError) -> Self {
        match error {
            AttachError::NoHub { hub } => Self::not_found(hub),
            AttachError::NoGroup { .. } => Self::new(NOT_FOUND, format!("{error}.")),
            AttachError::Disabled { hub } => Self::disabled(hub),
            AttachError::BadPosition { .. } => Self::new(ARGUMENT_ERROR, error.to_string()),
            AttachError::Refused(Refused::TooMany { .. }) => Self::new(LIMIT_EXCEEDED, error.to_string()),
            AttachError::Refused(_) => Self::new(STOLEN, error.to_string()),
            AttachError::Position(error) => error.into(),
        }
    }
}

impl From<ReadError> for Refusal {
    fn from(error: ReadError) -> Self {
        match error {
            ReadError::NoPartition { partitions, .. } => Self::no_partition(partitions),
            ReadError::Ahead { .. } | ReadError::Gone { .. } | ReadError::OffsetGone { .. } => {
                Self::new(ARGUMENT_ERROR, error.to_string())
            }
            // Damage does not pass, and this condition is not one to try again after.
            ReadError::Corrupt { .. } => Self::new(NOT_ALLOWED, error.to_string()),
            other => Self::new(INTERNAL_ERROR, other.to_string()),
        }
    }
}

impl From<HubReadError> for Refusal {
    fn from(error: HubReadError) -> Self {
        match error {
            HubReadError::Evicted { reason } => Self::new(STOLEN, reason),
            HubReadError::Deleted { entity } => Self::not_found(entity),
            HubReadError::Disabled { entity } => Self::disabled(entity),
            HubReadError::Log(error) => error.into(),
        }
    }
}

#[cfg(test)]
mod tests {
    use partita_core::model::Epoch;

    use super::*;

    #[test]
    fn words_and_conditions_are_those_that_clients_look_for() {
        let refusal = Refusal::not_found("telemetry");
        assert_eq!(refusal.condition, "amqp:not-found");
        assert!(refusal.description.contains("The messaging entity 'telemetry' could not be found"));
        let refusal = Refusal::beyond_the_end("sequence number", 488, 482);
        assert_eq!(
            refusal.description,
            "The supplied sequence number '488' is invalid. The last sequence number in the system is '482'"
        );
        let many = AttachError::Refused(Refused::TooMany { readers: "a, b".into() });
        assert_eq!(Refusal::from(many).condition, "amqp:resource-limit-exceeded");
        let lower = AttachError::Refused(Refused::LowerEpoch {
            name: "x".into(),
            epoch: Epoch(1),
            refused: "y".into(),
            asked: Epoch(0),
        });
        let words = "amqp:link:stolen: Receiver 'x' with a higher epoch '1' already exists. Receiver 'y' with epoch 0";
        assert!(Refusal::from(lower).to_string().starts_with(words));
    }

    #[test]
    fn damage_is_told_with_its_range_and_a_condition_that_no_client_tries_again_after() {
        let damaged = ReadError::Corrupt {
            hub: "eh1".into(),
            partition: 3,
            segment: 1,
            from: 5,
            resume: 10,
            certain: true,
        };
        let refusal = Refusal::from(HubReadError::Log(damaged));
        assert_eq!(refusal.condition, NOT_ALLOWED);
        assert_eq!(
            refusal.description,
            "events 5 to 9 of partition 3 of hub 'eh1' are damaged: restore its data from a copy, or give these events up \
             with 'partita hub accept-loss eh1 --partition 3 --from 5 --to 9'"
        );
    }

    #[test]
    fn what_may_succeed_later_is_busy_and_what_never_will_is_not() {
        let full = AppendError::NoSpace { reason: "no space left".into() };
        assert_eq!(Refusal::from(full).condition, SERVER_BUSY);
        assert_eq!(Refusal::from(AppendError::QueueFull).condition, SERVER_BUSY);
        let large = AppendError::TooLarge { bytes: 9, max: 8 };
        assert_eq!(Refusal::from(large).condition, SIZE_EXCEEDED);
        let nowhere = AppendError::NoPartition { partition: 4, partitions: 4 };
        assert_eq!(Refusal::from(nowhere).condition, OUT_OF_RANGE);
    }
}
