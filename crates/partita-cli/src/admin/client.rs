//! The admin API's client.

use std::time::Duration;

use partita_core::model::Timestamp;
use partita_hub::service::auth::{Key, WELL_KNOWN_KEY, sign};
use serde_json::Value;
use ureq::http::{Request, StatusCode, Uri};

use super::Common;
use crate::Failure;
use crate::serve::KeyPlace;

/// How long an answer may take; deleting a hub waits for a disk.
const ANSWER_TIME_MAX: Duration = Duration::from_secs(30);
const CONNECT_TIME_MAX: Duration = Duration::from_secs(5);
/// How long a token is good. Clocks differ.
const TOKEN_MS: i64 = 10 * 60 * 1_000;

/// Asks a hub.
pub(crate) struct Client {
    agent: ureq::Agent,
    base: String,
    rule: String,
    key: Key,
}

impl Client {
    pub(crate) fn new(common: &Common) -> Result<Self, Failure> {
        let base = common.http.trim_end_matches('/').to_owned();
        let how = "write http://HOST:PORT, such as http://127.0.0.1:5300";
        // Not repeated: there may be a password in it.
        if base.contains('@') {
            return Err(Failure::Usage(format!(
                "--http takes no user: {how}, with --key-name and --key-file"
            )));
        }
        let plain =
            base.parse::<Uri>().is_ok_and(|uri| uri.scheme_str() == Some("http") && uri.host().is_some());
        if !plain {
            return Err(Failure::Usage(format!("--http {base} is no address of a hub: {how}")));
        }
        let key = match &common.key_file {
            Some(path) => KeyPlace::File(path.clone()).read().map_err(Failure::Usage)?,
            None => WELL_KNOWN_KEY.to_owned(),
        };
        let config = ureq::Agent::config_builder()
            .timeout_connect(Some(CONNECT_TIME_MAX))
            .timeout_global(Some(ANSWER_TIME_MAX))
            // What the hub says about a refusal is in the body.
            .http_status_as_error(false)
            .build();
        Ok(Self { agent: config.into(), base, rule: common.key_name.clone(), key: Key::new(key) })
    }

    pub(crate) fn get(&self, path: &str) -> Result<Value, Failure> {
        self.ask("GET", path, None)
    }

    pub(crate) fn post(&self, path: &str, body: &Value) -> Result<Value, Failure> {
        self.ask("POST", path, Some(body))
    }

    pub(crate) fn patch(&self, path: &str, body: &Value) -> Result<Value, Failure> {
        self.ask("PATCH", path, Some(body))
    }

    pub(crate) fn delete(&self, path: &str) -> Result<Value, Failure> {
        self.ask("DELETE", path, None)
    }

    fn ask(&self, method: &str, path: &str, body: Option<&Value>) -> Result<Value, Failure> {
        // A token instead of the key: the key itself never travels.
        let expires = Timestamp(Timestamp::now().0.saturating_add(TOKEN_MS));
        let token = sign("sb://hub/", &self.rule, &self.key, expires);
        let request = Request::builder()
            .method(method)
            .uri(format!("{}/api/v1{path}", self.base))
            .header("authorization", token)
            .header("content-type", "application/json");
        let text = body.map(Value::to_string).unwrap_or_default();
        let request = request
            .body(text)
            .map_err(|error| Failure::Usage(format!("{path} cannot be asked for: {error}")))?;
        let mut response = self.agent.run(request).map_err(|error| self.unreachable(&error))?;
        let text = response.body_mut().read_to_string().map_err(|error| self.unreachable(&error))?;
        let status = response.status();
        if status.is_success() && text.is_empty() {
            return Ok(Value::Null);
        }
        let answer: Value = serde_json::from_str(&text).map_err(|_| self.not_a_hub(status))?;
        if status.is_success() {
            return Ok(answer);
        }
        match answer["error"]["message"].as_str() {
            Some(message) if [StatusCode::UNAUTHORIZED, StatusCode::FORBIDDEN].contains(&status) => {
                Err(Failure::Refused(format!(
                    "{} does not let you: {message} (--key-name, --key-file)",
                    self.base
                )))
            }
            Some(message) if status == StatusCode::NOT_FOUND => Err(Failure::Missing(message.to_owned())),
            Some(message) if status == StatusCode::BAD_REQUEST => Err(Failure::Usage(message.to_owned())),
            Some(message) => Err(Failure::Run(message.to_owned())),
            None => Err(self.not_a_hub(status)),
        }
    }

    fn unreachable(&self, error: &ureq::Error) -> Failure {
        let why = match error {
            ureq::Error::Io(error) if error.kind() == std::io::ErrorKind::ConnectionRefused => {
                "nothing listens there".to_owned()
            }
            ureq::Error::Timeout(_) => "it did not answer in time".to_owned(),
            ureq::Error::HostNotFound => "there is no such host".to_owned(),
            error => error.to_string(),
        };
        Failure::Unreachable(format!(
            "no hub answers at {}: {why}. Start one with 'partita serve', or say where it is with --http",
            self.base
        ))
    }

    fn not_a_hub(&self, status: StatusCode) -> Failure {
        Failure::Unreachable(format!(
            "what answers at {} is no Partita hub (status {status}): say where the hub is with --http",
            self.base
        ))
    }
}

/// A name as part of a path.
pub(crate) fn segment(name: &str) -> String {
    let mut text = String::with_capacity(name.len());
    for byte in name.bytes() {
        if byte.is_ascii_alphanumeric() || b"-._~$".contains(&byte) {
            text.push(char::from(byte));
        } else {
            text.push_str(&format!("%{byte:02X}"));
        }
    }
    text
}

#[cfg(test)]
mod tests {
    #[test]
    fn names_are_escaped_in_paths() {
        assert_eq!(super::segment("eh-1.x"), "eh-1.x");
        assert_eq!(super::segment("a/b c?é"), "a%2Fb%20c%3F%C3%A9");
    }
}
