//! What the API says when it does not do what was asked: a status, a word for programs and a sentence for people.

use std::time::Duration;

use axum::Json;
use axum::extract::rejection::JsonRejection;
use axum::extract::{FromRequest, Request};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use partita_hub::broker::BrokerError;
use partita_hub::log::{AcceptError, OpenError};
use serde::Serialize;
use serde::de::DeserializeOwned;

/// How long a request's body may take to arrive.
const BODY_TIME_MAX: Duration = Duration::from_secs(10);

/// An answer that is not what was asked for.
#[derive(Debug)]
pub(crate) struct ApiError {
    status: StatusCode,
    code: &'static str,
    message: String,
}

impl ApiError {
    pub(crate) fn new(status: StatusCode, code: &'static str, message: impl Into<String>) -> Self {
        Self { status, code, message: message.into() }
    }

    pub(crate) fn bad_request(message: impl Into<String>) -> Self {
        Self::new(StatusCode::BAD_REQUEST, "bad-request", message)
    }

    pub(crate) fn not_found(code: &'static str, message: impl Into<String>) -> Self {
        Self::new(StatusCode::NOT_FOUND, code, message)
    }
}

#[derive(Serialize)]
struct Body {
    error: Said,
}

#[derive(Serialize)]
struct Said {
    code: &'static str,
    message: String,
}

impl IntoResponse for ApiError {
    fn into_response(self) -> Response {
        let body = Body { error: Said { code: self.code, message: self.message } };
        (self.status, Json(body)).into_response()
    }
}

impl From<BrokerError> for ApiError {
    fn from(error: BrokerError) -> Self {
        let (status, code) = match &error {
            BrokerError::HubExists(_) => (StatusCode::CONFLICT, "hub-exists"),
            BrokerError::NoHub(_) => (StatusCode::NOT_FOUND, "no-hub"),
            BrokerError::NoGroup { .. } => (StatusCode::NOT_FOUND, "no-group"),
            BrokerError::DefaultGroup => (StatusCode::BAD_REQUEST, "default-group"),
            BrokerError::BadName(_) => (StatusCode::BAD_REQUEST, "bad-name"),
            BrokerError::Loss(AcceptError::NoPartition { .. }) => (StatusCode::NOT_FOUND, "no-partition"),
            BrokerError::Loss(AcceptError::Empty { .. }) => (StatusCode::BAD_REQUEST, "bad-request"),
            BrokerError::Loss(AcceptError::Readable { .. }) => (StatusCode::CONFLICT, "not-lost"),
            BrokerError::FewerPartitions { .. } => (StatusCode::CONFLICT, "fewer-partitions"),
            BrokerError::Retention(_) => (StatusCode::BAD_REQUEST, "bad-request"),
            BrokerError::Log(OpenError::Settings(_)) => (StatusCode::BAD_REQUEST, "bad-request"),
            BrokerError::Log(OpenError::Full { .. }) => (StatusCode::INSUFFICIENT_STORAGE, "no-space"),
            _ => (StatusCode::INTERNAL_SERVER_ERROR, "storage"),
        };
        Self::new(status, code, error.to_string())
    }
}

/// A request's body, read as JSON.
pub(crate) struct Asked<T>(pub(crate) T);

impl<T: DeserializeOwned, S: Send + Sync> FromRequest<S> for Asked<T> {
    type Rejection = ApiError;

    async fn from_request(request: Request, state: &S) -> Result<Self, ApiError> {
        // Others may wait for the place of a client whose request does not arrive.
        let Ok(read) = tokio::time::timeout(BODY_TIME_MAX, Json::from_request(request, state)).await else {
            let text = "the request's body did not arrive in time";
            return Err(ApiError::new(StatusCode::REQUEST_TIMEOUT, "timeout", text));
        };
        match read {
            Ok(Json(asked)) => Ok(Self(asked)),
            Err(JsonRejection::JsonDataError(error)) => Err(ApiError::bad_request(cause(&error))),
            Err(JsonRejection::JsonSyntaxError(error)) => Err(ApiError::bad_request(cause(&error))),
            Err(rejection) => Err(ApiError::new(rejection.status(), "bad-request", rejection.body_text())),
        }
    }
}

/// What is wrong, without the words around it.
fn cause(error: &dyn std::error::Error) -> String {
    let mut inner = error;
    while let Some(source) = inner.source() {
        inner = source;
    }
    format!("cannot read the request: {inner}")
}
