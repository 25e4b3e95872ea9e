//! The body of an event as JSON.

use std::fmt;

use serde::de::DeserializeOwned;

use super::{Event, SequenceNumber};

impl Event {
    /// The body as a type of yours, read as JSON. The bytes are those of [`Event::bytes`].
    ///
    /// The error names the event. An event that is not what it should be will not be on the next attempt, so do not
    /// return this error from a handler unless the partition may wait there: record it and go on.
    pub fn json<T: DeserializeOwned>(&self) -> Result<T, JsonError> {
        let failed = |cause| JsonError { event: self.sequence_number(), cause };
        let bytes = self.bytes().ok_or_else(|| failed(None))?;
        serde_json::from_slice(&bytes).map_err(|error| failed(Some(error)))
    }
}

/// Why the body of an event is not the JSON that was asked for. It does not repeat the body.
#[derive(Debug)]
pub struct JsonError {
    event: SequenceNumber,
    /// None: the body has no bytes.
    cause: Option<serde_json::Error>,
}

impl JsonError {
    /// The event.
    pub fn event(&self) -> SequenceNumber {
        self.event
    }
}

impl fmt::Display for JsonError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let event = self.event;
        match &self.cause {
            Some(cause) => write!(f, "event {event} is not the expected JSON: {cause}"),
            None => {
                write!(f, "event {event} has no bytes to read JSON from: use `Event::body` for AMQP values")
            }
        }
    }
}

impl std::error::Error for JsonError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        self.cause.as_ref().map(|cause| cause as _)
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Body, Offset, Timestamp, Value};
    use super::*;

    #[derive(serde::Deserialize, PartialEq, Debug)]
    struct Reading {
        degrees: f64,
    }

    fn event(body: impl Into<Body>) -> Event {
        Event::builder(body).at(SequenceNumber(7), Offset::number(70), Timestamp(1))
    }

    #[test]
    fn a_json_body_is_read_from_any_kind_of_bytes() {
        let sections = Body::DataSections(vec!["{\"degrees\":".into(), "21.5}".into()]);
        for body in [Body::from("{\"degrees\": 21.5}"), sections, Value::from("{\"degrees\": 21.5}").into()] {
            assert_eq!(event(body).json::<Reading>().expect("a reading"), Reading { degrees: 21.5 });
        }
    }

    #[test]
    fn what_is_wrong_with_a_body_names_the_event_and_not_the_body() {
        let error = event("{\"secret\": 1}").json::<Reading>().expect_err("no degrees");
        assert_eq!(error.event(), SequenceNumber(7));
        let expected = "event 7 is not the expected JSON: missing field `degrees` at line 1 column 13";
        assert_eq!(error.to_string(), expected);
        let error = event(Value::from(5_i32)).json::<Reading>().expect_err("no bytes");
        let expected = "event 7 has no bytes to read JSON from: use `Event::body` for AMQP values";
        assert_eq!(error.to_string(), expected);
    }
}
