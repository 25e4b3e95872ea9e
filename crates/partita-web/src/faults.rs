//! What the hub is asked to do wrong.

use std::time::Duration;

use axum::Json;
use axum::extract::{Path, State};
use axum::http::StatusCode;
use axum::response::IntoResponse;
use partita_hub::fault::{Fault, FaultId, FaultKind, FaultRole};
use serde::{Deserialize, Serialize};

use crate::Web;
use crate::error::{ApiError, Asked};
use crate::partition::PartitionNumber;

/// How a link is detached if nothing else is asked for: the service's own words when it moves a hub.
const DELAY_MS_MAX: u64 = 60 * 60 * 1_000;
const CONDITION: &str = "amqp:link:detach-forced";
const DESCRIPTION: &str = "The link was detached by fault control.";

/// A fault, as the API takes and shows it.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct FaultView {
    kind: Kind,
    /// All hubs if none is named.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    hub: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    partition: Option<PartitionNumber>,
    #[serde(default)]
    role: Role,
    /// How often; for ever if neither this nor a time is given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    count: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    for_ms: Option<u64>,
    /// Of a delay.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    delay_ms: Option<u64>,
    /// Of a detach.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    condition: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    description: Option<String>,
}

#[derive(Serialize, Deserialize, Clone, Copy, PartialEq, Eq, Debug)]
#[serde(rename_all = "lowercase")]
enum Kind {
    Detach,
    Delay,
    Busy,
    Drop,
}

/// The client's part in the links concerned.
#[derive(Serialize, Deserialize, Clone, Copy, PartialEq, Eq, Debug, Default)]
#[serde(rename_all = "lowercase")]
enum Role {
    #[default]
    Any,
    Sender,
    Receiver,
}

/// A fault that is there.
#[derive(Serialize)]
struct Standing {
    id: u64,
    #[serde(flatten)]
    fault: FaultView,
    /// How often it has struck.
    hits: u64,
}

#[derive(Serialize)]
pub(crate) struct FaultList {
    faults: Vec<Standing>,
}

impl FaultView {
    /// The fault that is asked for, or what is wrong with it.
    fn fault(self) -> Result<Fault, ApiError> {
        let only = |given: bool, name: &str, kind: Kind| {
            if given && self.kind != kind {
                let text =
                    format!("{name} belongs to a fault of kind {}", format!("{kind:?}").to_lowercase());
                return Err(ApiError::bad_request(text));
            }
            Ok(())
        };
        only(self.delay_ms.is_some(), "delay_ms", Kind::Delay)?;
        only(self.condition.is_some(), "condition", Kind::Detach)?;
        only(self.description.is_some(), "description", Kind::Detach)?;
        if self
            .condition
            .as_ref()
            .is_some_and(|text| text.is_empty() || !text.bytes().all(|b| b.is_ascii_graphic()))
        {
            return Err(ApiError::bad_request(
                "a condition is a word such as amqp:link:detach-forced, in ASCII",
            ));
        }
        if self.count == Some(0) {
            return Err(ApiError::bad_request("a fault that happens 0 times does nothing: count it from 1"));
        }
        if self.delay_ms.is_some_and(|ms| ms > DELAY_MS_MAX) {
            return Err(ApiError::bad_request("a delay is an hour at most"));
        }
        let kind = match self.kind {
            Kind::Detach => FaultKind::Detach {
                condition: self.condition.unwrap_or_else(|| CONDITION.to_owned()),
                description: self.description.unwrap_or_else(|| DESCRIPTION.to_owned()),
            },
            Kind::Delay => {
                let ms = self.delay_ms.ok_or_else(|| ApiError::bad_request("a delay needs delay_ms"))?;
                FaultKind::Delay(Duration::from_millis(ms))
            }
            Kind::Busy => FaultKind::Busy,
            Kind::Drop => FaultKind::Drop,
        };
        let role = match self.role {
            Role::Any => FaultRole::Any,
            Role::Sender => FaultRole::Sender,
            Role::Receiver => FaultRole::Receiver,
        };
        let lasts = self.for_ms.map(Duration::from_millis);
        Ok(Fault {
            kind,
            hub: self.hub,
            partition: self.partition.map(|id| id.0),
            role,
            count: self.count,
            lasts,
        })
    }

    fn of(fault: Fault) -> Self {
        let mut view = Self {
            kind: Kind::Busy,
            hub: fault.hub,
            partition: fault.partition.map(PartitionNumber),
            role: match fault.role {
                FaultRole::Any => Role::Any,
                FaultRole::Sender => Role::Sender,
                FaultRole::Receiver => Role::Receiver,
            },
            count: fault.count,
            for_ms: fault.lasts.map(|lasts| u64::try_from(lasts.as_millis()).unwrap_or(u64::MAX)),
            delay_ms: None,
            condition: None,
            description: None,
        };
        match fault.kind {
            FaultKind::Detach { condition, description } => {
                (view.kind, view.condition, view.description) =
                    (Kind::Detach, Some(condition), Some(description));
            }
            FaultKind::Delay(time) => {
                view.kind = Kind::Delay;
                view.delay_ms = Some(u64::try_from(time.as_millis()).unwrap_or(u64::MAX));
            }
            FaultKind::Busy => {}
            FaultKind::Drop => view.kind = Kind::Drop,
        }
        view
    }
}

pub(crate) async fn list(State(web): State<Web>) -> Json<FaultList> {
    let standing =
        |(id, fault, hits): (FaultId, Fault, u64)| Standing { id: id.0, fault: FaultView::of(fault), hits };
    Json(FaultList { faults: web.server.faults().list().into_iter().map(standing).collect() })
}

pub(crate) async fn add(
    State(web): State<Web>,
    Asked(asked): Asked<FaultView>,
) -> Result<impl IntoResponse, ApiError> {
    // A fault that can never strike is a test that tests nothing.
    if let Some(name) = &asked.hub {
        let hub = web.server.broker().hub(name);
        let hub = hub.ok_or_else(|| ApiError::not_found("no-hub", format!("there is no hub '{name}'")))?;
        let partition = asked.partition.map(|id| id.0);
        if let Some(partition) = partition.filter(|partition| *partition >= hub.partitions()) {
            let text = format!("hub '{name}' has no partition {partition}, it has {}", hub.partitions());
            return Err(ApiError::not_found("no-partition", text));
        }
    }
    let fault = asked.fault()?;
    let id = web.server.faults().add(fault.clone());
    Ok((StatusCode::CREATED, Json(Standing { id: id.0, fault: FaultView::of(fault), hits: 0 })))
}

pub(crate) async fn remove(State(web): State<Web>, Path(id): Path<u64>) -> Result<StatusCode, ApiError> {
    if web.server.faults().remove(FaultId(id)) {
        Ok(StatusCode::NO_CONTENT)
    } else {
        Err(ApiError::not_found("no-fault", format!("there is no fault {id}: it may have run out")))
    }
}

pub(crate) async fn clear(State(web): State<Web>) -> StatusCode {
    web.server.faults().clear();
    StatusCode::NO_CONTENT
}
