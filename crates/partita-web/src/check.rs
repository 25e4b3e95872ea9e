//! Damage: what is known of it, looking for it, and giving up what is lost.

use axum::Json;
use axum::extract::{Path, State};
use axum::http::StatusCode;
use axum::response::IntoResponse;
use partita_hub::broker::{CheckState, Hub};
use partita_hub::log::{LogCheck, LostRange};
use serde::{Deserialize, Serialize};

use crate::Web;
use crate::error::{ApiError, Asked};
use crate::hubs::{HubDetails, found, on_disk};
use crate::partition::PartitionNumber;

/// Events of a partition that cannot be read.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
#[non_exhaustive]
pub struct LostView {
    /// The first of them.
    pub first: u64,
    /// The last of them.
    pub last: u64,
    /// Whether all these numbers were given to events; if not, there were at most as many.
    pub certain: bool,
    /// Whether the loss was accepted, so that readers pass over it.
    pub accepted: bool,
}

impl LostView {
    /// A lost range.
    pub fn new(range: &LostRange) -> Self {
        let LostRange { first, certain, accepted, .. } = *range;
        Self { first, last: range.last(), certain, accepted }
    }
}

/// A check of a hub: how far it is, and what it found.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
#[non_exhaustive]
pub struct CheckView {
    /// The hub.
    pub hub: String,
    /// `running`, `ended` (the hub was closed meanwhile) or `done`.
    pub state: &'static str,
    /// Bytes that were read.
    pub bytes_done: u64,
    /// Bytes that there are.
    pub bytes_total: u64,
    /// What was found, when it is done.
    #[serde(flatten)]
    pub found: Option<FoundView>,
}

/// What a check found.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
#[non_exhaustive]
pub struct FoundView {
    /// Whether nothing is damaged but what was accepted.
    pub clean: bool,
    /// How many segments were read.
    pub segments: usize,
    /// Segments that should be there and are not.
    pub missing_segments: Vec<String>,
    /// Segments that the system failed to read.
    pub unreadable_segments: Vec<UnreadableView>,
    /// Bytes that are not what was written.
    pub damaged_bytes: Vec<BytesView>,
    /// Why nothing here is safe, although it may still be read: the files are no longer where the hub writes.
    pub displaced: Option<String>,
    /// Each partition.
    pub partitions: Vec<PartitionCheckView>,
}

/// A segment that the system failed to read.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
#[non_exhaustive]
pub struct UnreadableView {
    /// Its file's name, without `.seg`.
    pub segment: String,
    /// What the system said.
    pub error: String,
}

/// Bytes of a segment's file.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
#[non_exhaustive]
pub struct BytesView {
    /// The file's name, without `.seg`.
    pub segment: String,
    /// The first byte.
    pub from: u64,
    /// The byte after the last one.
    pub to: u64,
    /// Whether they are not there: the file ends before them.
    pub cut_off: bool,
}

/// A partition, as a check found it.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
#[non_exhaustive]
pub struct PartitionCheckView {
    /// The partition.
    pub id: String,
    /// The oldest event there is.
    pub beginning_sequence_number: u64,
    /// The newest one; none if there never was one.
    pub last_enqueued_sequence_number: Option<u64>,
    /// How many events can be read.
    pub safe_events: u64,
    /// How many could not be looked at, because the system failed to read their segments.
    pub unread_events: u64,
    /// Those that cannot.
    pub lost: Vec<LostView>,
    /// Those that are damaged on disk, and that only the memory of the hub still has: a restart loses them.
    pub memory_only: Vec<MemoryOnlyView>,
}

/// Events that only memory has.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
#[non_exhaustive]
pub struct MemoryOnlyView {
    /// The first of them.
    pub first: u64,
    /// The last.
    pub last: u64,
}

impl CheckView {
    /// A check that is done.
    pub fn done(hub: &str, check: &LogCheck) -> Self {
        let name = |segment: u64| format!("{segment:016x}");
        let partitions = check.partitions.iter().map(|partition| PartitionCheckView {
            id: partition.partition.to_string(),
            beginning_sequence_number: partition.first_seq,
            last_enqueued_sequence_number: partition.next_seq.checked_sub(1),
            safe_events: partition.safe_events(),
            unread_events: partition.unread_events,
            lost: partition.lost.iter().map(LostView::new).collect(),
            memory_only: (partition.memory_only.iter())
                .map(|events| MemoryOnlyView { first: events.start, last: events.end - 1 })
                .collect(),
        });
        let unreadable = check.unreadable.iter();
        let damaged = check.damage.iter();
        let found = FoundView {
            clean: check.is_clean(),
            segments: check.segments,
            missing_segments: check.missing.iter().flat_map(Clone::clone).map(name).collect(),
            unreadable_segments: unreadable
                .map(|(segment, error)| UnreadableView { segment: name(*segment), error: error.clone() })
                .collect(),
            damaged_bytes: damaged
                .map(|damage| BytesView {
                    segment: name(damage.segment),
                    from: damage.bytes.start,
                    to: damage.bytes.end,
                    cut_off: damage.cut_off,
                })
                .collect(),
            displaced: check.displaced.clone(),
            partitions: partitions.collect(),
        };
        let hub = hub.to_owned();
        Self { hub, state: "done", bytes_done: check.bytes, bytes_total: check.bytes, found: Some(found) }
    }

    fn of(hub: &Hub) -> Option<Self> {
        let name = hub.name().as_str();
        let unfinished = |state, bytes_done, bytes_total| Self {
            hub: name.to_owned(),
            state,
            bytes_done,
            bytes_total,
            found: None,
        };
        Some(match hub.check_state()? {
            CheckState::Running { done, total } => unfinished("running", done, total),
            CheckState::Ended => unfinished("ended", 0, 0),
            CheckState::Done(check) => Self::done(name, &check),
        })
    }
}

pub(crate) async fn start(
    State(web): State<Web>,
    Path(name): Path<String>,
) -> Result<impl IntoResponse, ApiError> {
    let hub = found(web.server.broker(), &name)?;
    let failed = |error: std::io::Error| {
        ApiError::new(
            StatusCode::INTERNAL_SERVER_ERROR,
            "storage",
            format!("the check did not start: {error}"),
        )
    };
    hub.start_check().map_err(failed)?;
    Ok((StatusCode::ACCEPTED, Json(CheckView::of(&hub))))
}

pub(crate) async fn state(
    State(web): State<Web>,
    Path(name): Path<String>,
) -> Result<impl IntoResponse, ApiError> {
    let hub = found(web.server.broker(), &name)?;
    let none =
        || ApiError::not_found("no-check", format!("hub '{name}' was not checked since it was opened"));
    Ok(Json(CheckView::of(&hub).ok_or_else(none)?))
}

/// Events that are to be given up.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct AcceptedLoss {
    partition: PartitionNumber,
    first: u64,
    last: u64,
}

pub(crate) async fn accept_loss(
    State(web): State<Web>,
    Path(name): Path<String>,
    Asked(asked): Asked<AcceptedLoss>,
) -> Result<impl IntoResponse, ApiError> {
    let hub = found(web.server.broker(), &name)?;
    let hub = on_disk(&web, move |_| {
        hub.log().accept_loss(asked.partition.0, asked.first, asked.last)?;
        Ok(hub)
    });
    Ok(Json(HubDetails::new(&*hub.await?)))
}
