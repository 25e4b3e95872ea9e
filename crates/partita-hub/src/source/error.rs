//! What an error of the hub means to a processor.

use partita_core::model::{HubName, PartitionId};
use partita_core::source::{SourceError, SourceErrorKind};
use tokio::task::JoinError;

use crate::broker::{AttachError, HubReadError, Refused};
use crate::log::ReadError;

pub(super) fn of_attach(error: AttachError) -> SourceError {
    let kind = match &error {
        AttachError::NoGroup { .. } | AttachError::NoHub { .. } => SourceErrorKind::Fatal,
        // It may be enabled again.
        AttachError::Disabled { .. } => SourceErrorKind::Retriable,
        // A place of another hub: it is not in this one.
        AttachError::BadPosition { .. } => SourceErrorKind::PositionGone,
        // One of the others may leave.
        AttachError::Refused(Refused::TooMany { .. }) => SourceErrorKind::Retriable,
        AttachError::Refused(_) => SourceErrorKind::OwnershipLost,
        AttachError::Position(error) => kind(error),
    };
    SourceError::new(kind, error)
}

pub(super) fn of_read(error: HubReadError) -> SourceError {
    let kind = match &error {
        HubReadError::Evicted { .. } => SourceErrorKind::OwnershipLost,
        HubReadError::Deleted { .. } => SourceErrorKind::Fatal,
        HubReadError::Disabled { .. } => SourceErrorKind::Retriable,
        HubReadError::Log(error) => kind(error),
    };
    SourceError::new(kind, error)
}

fn kind(error: &ReadError) -> SourceErrorKind {
    match error {
        ReadError::Gone { .. } | ReadError::OffsetGone { .. } | ReadError::Ahead { .. } => {
            SourceErrorKind::PositionGone
        }
        // Trying again does not help, and starting elsewhere would pass over events.
        ReadError::Corrupt { .. } | ReadError::Lost { .. } | ReadError::NoPartition { .. } => {
            SourceErrorKind::Fatal
        }
        // The hub is going down, or the disk failed this once.
        ReadError::Closed | ReadError::Io { .. } => SourceErrorKind::Retriable,
    }
}

pub(super) fn no_partition(partition: &PartitionId, hub: &HubName) -> SourceError {
    SourceError::new(SourceErrorKind::Fatal, format!("hub '{hub}' has no partition {partition:?}"))
}

/// The bytes of an event are no AMQP message: whoever appended it did not use the producer.
pub(super) fn not_a_message(seq: u64, error: partita_amqp::message::MessageError) -> SourceError {
    let why =
        format!("event {seq} is not an AMQP message ({error}): seek to {} to continue after it", seq + 1);
    SourceError::new(SourceErrorKind::Fatal, why)
}

pub(super) fn interrupted(error: JoinError) -> SourceError {
    SourceError::new(SourceErrorKind::Retriable, format!("reading the hub was interrupted: {error}"))
}
