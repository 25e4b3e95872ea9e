//! `GET /health`, in the official emulator's words, which scripts compare.

use std::sync::atomic::{AtomicBool, Ordering};

use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use serde::Serialize;

use crate::Web;

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

#[derive(Serialize)]
pub(crate) struct Health {
    status: &'static str,
    message: &'static str,
}

/// Well, unless the hub is stopping, or a disk failed and a hub takes no more events.
pub(crate) async fn health(State(web): State<Web>) -> (StatusCode, Json<Health>) {
    let read_only = || web.server.broker().list().iter().any(|hub| hub.log().is_read_only());
    if web.stopping.is_set() || read_only() {
        let message = "Service not available. Please try after some time.";
        return (StatusCode::SERVICE_UNAVAILABLE, Json(Health { status: "unhealthy", message }));
    }
    (StatusCode::OK, Json(Health { status: "healthy", message: "Service is healthy." }))
}
