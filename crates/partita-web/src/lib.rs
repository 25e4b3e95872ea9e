//! HTTP for a hub that is served: the health check, in the official emulator's words, and an API to look at hubs, change
//! them, and let them misbehave. `docs/serving.md` lists it.
//!
//! The API is for this machine. Where others can connect, every call needs the key of a rule that manages the namespace;
//! a web page of another site is refused everywhere.

mod check;
mod connections;
mod error;
mod faults;
mod guard;
mod guests;
mod health;
mod hubs;
mod partition;
mod patience;
mod serve;

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use axum::extract::{DefaultBodyLimit, Request, State};
use axum::http::StatusCode;
use axum::middleware::{Next, from_fn, from_fn_with_state};
use axum::response::{IntoResponse, Response};
use axum::routing::{delete, get};
use axum::{Json, Router};
use partita_hub::listener::throttle::Throttle;
use partita_hub::log::Retention;
use partita_hub::server::Server;
use partita_hub::service::auth::Rules;
use serde::Serialize;
use tokio::net::TcpListener;

pub use crate::check::{BytesView, CheckView, FoundView, LostView, PartitionCheckView, UnreadableView};
use crate::error::ApiError;
use crate::guests::Guests;
use crate::health::Stopping;

/// The largest request.
const REQUEST_BYTES_MAX: usize = 64 << 10;
/// How long a request may take, from its headers to its answer; deleting a large hub takes seconds.
const REQUEST_TIME_MAX: Duration = Duration::from_secs(60);

/// What the API has to know of the server.
#[derive(Clone, Debug)]
pub struct WebOptions {
    /// The server's rules: where a key is needed, it is that of one that manages the namespace.
    pub rules: Rules,
    /// Whether the server is bound to loopback addresses only: then no call needs a key.
    pub local: bool,
    /// What a new hub keeps if nothing else is asked for.
    pub retention: Retention,
    /// How many clients are served at once, at most 256. Further ones take the places of others.
    pub connections_max: usize,
}

/// HTTP for one server. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Web {
    server: Server,
    options: Arc<WebOptions>,
    stopping: Arc<Stopping>,
    guests: Arc<Guests>,
    refusals: Arc<Throttle>,
}

impl Web {
    /// For this server.
    pub fn new(server: Server, options: WebOptions) -> Self {
        let guests = Guests::new(options.connections_max.min(guests::CONNECTIONS_MAX));
        Self {
            server,
            options: Arc::new(options),
            stopping: Arc::default(),
            guests: Arc::new(guests),
            refusals: Arc::default(),
        }
    }

    /// From now on the health check says that the service is not available.
    pub fn stop(&self) {
        self.stopping.set();
    }

    /// Warns of a call that was refused, now and then.
    fn warn_refused(&self, reason: &str) {
        if let Some(unsaid) = self.refusals.pass(std::time::Instant::now()) {
            tracing::warn!(unsaid, "a call of the HTTP API was refused: {reason}");
        }
    }

    /// All that is answered.
    pub fn router(&self) -> Router {
        let api = Router::new()
            .route("/", get(about))
            .route("/hubs", get(hubs::list).post(hubs::create))
            .route("/hubs/{hub}", get(hubs::describe).patch(hubs::change).delete(hubs::delete))
            .route("/hubs/{hub}/check", get(check::state).post(check::start))
            .route("/hubs/{hub}/losses", axum::routing::post(check::accept_loss))
            .route("/hubs/{hub}/groups", axum::routing::post(hubs::create_group))
            .route("/hubs/{hub}/groups/{group}", delete(hubs::delete_group))
            .route("/faults", get(faults::list).post(faults::add).delete(faults::clear))
            .route("/faults/{id}", delete(faults::remove))
            .route("/connections", get(connections::list))
            .fallback(nothing)
            .method_not_allowed_fallback(not_so)
            .layer(from_fn_with_state(self.clone(), guard::guard));
        Router::new()
            .route("/health", get(health::health))
            .nest("/api/v1", api)
            .fallback(nothing)
            .layer(DefaultBodyLimit::max(REQUEST_BYTES_MAX))
            .layer(from_fn(in_time))
            .with_state(self.clone())
    }

    /// Answers on a listener until the future is dropped.
    pub async fn serve(self, listener: TcpListener) -> Infallible {
        serve::serve(self.router(), listener, self.guests.clone()).await
    }
}

/// The program, and the life of its data.
#[derive(Serialize)]
struct About {
    version: &'static str,
    store_id: String,
}

async fn about(State(web): State<Web>) -> Json<About> {
    let store_id = web.server.broker().store_id().to_string();
    Json(About { version: env!("CARGO_PKG_VERSION"), store_id })
}

/// Gives up on a client whose request does not arrive.
async fn in_time(request: Request, next: Next) -> Response {
    match tokio::time::timeout(REQUEST_TIME_MAX, next.run(request)).await {
        Ok(response) => response,
        Err(_) => {
            let text = "the request did not arrive in time, or takes longer than it should";
            ApiError::new(StatusCode::REQUEST_TIMEOUT, "timeout", text).into_response()
        }
    }
}

async fn nothing() -> ApiError {
    ApiError::not_found(
        "not-found",
        "there is nothing here: the API is under /api/v1, the health check at /health",
    )
}

async fn not_so() -> ApiError {
    ApiError::new(StatusCode::METHOD_NOT_ALLOWED, "method-not-allowed", "this cannot be done here")
}
