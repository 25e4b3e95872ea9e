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

/// Well, unless the hub is stopping, a disk failed and a hub takes no more events, or events are damaged.
pub(crate) async fn health(State(web): State<Web>) -> (StatusCode, Json<Health>) {
    let read_only = || web.server.broker().list().iter().any(|hub| hub.log().is_read_only());
    let damaged = damaged(&web);
    let message = match damaged.first() {
        _ if web.stopping.is_set() || read_only() => {
            "Service not available. Please try after some time.".into()
        }
        Some(Damaged { hub, partition, lost }) => format!(
            "Service not available. Events {} to {} of partition {partition} of hub '{hub}' are damaged{}: run 'partita hub \
             check {hub}'.",
            lost.first,
            lost.last,
            if damaged.len() > 1 { ", and others" } else { "" }
        ),
        None => {
            let message = "Service is healthy.".into();
            return (StatusCode::OK, Json(Health { status: "healthy", message, damaged }));
        }
    };
    (StatusCode::SERVICE_UNAVAILABLE, Json(Health { status: "unhealthy", message, damaged }))
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
