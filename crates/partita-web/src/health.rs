//! `GET /health`, in the official emulator's words, which scripts compare.

use std::sync::atomic::{AtomicBool, Ordering};

use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use serde::Serialize;

use crate::Web;
use crate::check::LostView;

/// Whether the hub takes clients at all.
#[derive(Debug, Default)]
pub(crate) struct Stopping(AtomicBool);

impl Stopping {
    pub(crate) fn set(&self) {
        self.0.store(true, Ordering::Release);
    }

    fn is_set(&self) -> bool {
        self.0.load(Ordering::Acquire)
    }
}

/// How many damaged ranges are named.
const NAMED_MAX: usize = 20;

#[derive(Serialize)]
pub(crate) struct Health {
    status: &'static str,
    message: String,
    /// Events that cannot be read, and whose loss nobody accepted; the first of them.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    damaged: Vec<Damaged>,
}

#[derive(Serialize)]
struct Damaged {
    hub: String,
    partition: String,
    #[serde(flatten)]
    lost: LostView,
}

/// Well, unless the hub is stopping, a hub takes no more events because its disk failed or its files are gone, or events are
/// damaged.
pub(crate) async fn health(State(web): State<Web>) -> (StatusCode, Json<Health>) {
    let damaged = damaged(&web);
    match trouble(&web, &damaged) {
        Some(what) => {
            let message = format!("Service not available. {what}.");
            (StatusCode::SERVICE_UNAVAILABLE, Json(Health { status: "unhealthy", message, damaged }))
        }
        None => {
            let message = "Service is healthy.".into();
            (StatusCode::OK, Json(Health { status: "healthy", message, damaged }))
        }
    }
}

/// What is wrong, and what to do about it; the worst first.
fn trouble(web: &Web, damaged: &[Damaged]) -> Option<String> {
    if web.stopping.is_set() {
        return Some("Please try after some time".into());
    }
    let hubs = web.server.broker().list();
    if let Some(reason) = hubs.iter().find_map(|hub| hub.log().displaced()) {
        return Some(format!(
            "No events are taken since {reason}: put the data directory back and restart the hub"
        ));
    }
    if let Some(hub) = hubs.iter().find(|hub| hub.log().is_read_only()) {
        let hub = hub.name();
        return Some(format!(
            "Hub '{hub}' takes no events since a write failed: check the disk and restart the hub"
        ));
    }
    let Damaged { hub, partition, lost } = damaged.first()?;
    let (events, are) = match lost.first == lost.last {
        true => (format!("Event {}", lost.first), "is"),
        false => (format!("Events {} to {}", lost.first, lost.last), "are"),
    };
    let others = if damaged.len() > 1 { ", and others" } else { "" };
    Some(format!(
        "{events} of partition {partition} of hub '{hub}' {are} damaged{others}: run 'partita hub check {hub}'"
    ))
}

fn damaged(web: &Web) -> Vec<Damaged> {
    let mut out = Vec::new();
    for hub in web.server.broker().list() {
        let lost = hub.log().lost().into_iter().filter(|range| !range.accepted);
        out.extend(lost.take(NAMED_MAX - out.len()).map(|range| Damaged {
            hub: hub.name().to_string(),
            partition: range.partition.to_string(),
            lost: LostView::new(&range),
        }));
    }
    out
}
