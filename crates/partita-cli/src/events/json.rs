//! An event as one line of JSON: what `consume -o jsonl` prints and `produce --jsonl` takes.

use std::collections::BTreeMap;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use partita_core::model::{
    Body, Event, EventBuilder, MessageProperties, PartitionId, Properties, Timestamp, Value,
};
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use serde_json::{Map, Value as Json, json};

use super::value::Typed;

/// An event with all that it has, in the order in which it is shown.
#[derive(Serialize, Debug)]
pub(crate) struct Shown<'a> {
    partition: &'a str,
    sequence: i64,
    offset: String,
    enqueued: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    key: Option<&'a str>,
    #[serde(skip_serializing_if = "Map::is_empty")]
    properties: Map<String, Json>,
    #[serde(skip_serializing_if = "Map::is_empty")]
    property_types: Map<String, Json>,
    #[serde(skip_serializing_if = "Map::is_empty")]
    annotations: Map<String, Json>,
    #[serde(skip_serializing_if = "Map::is_empty")]
    annotation_types: Map<String, Json>,
    #[serde(skip_serializing_if = "Map::is_empty")]
    message: Map<String, Json>,
    #[serde(flatten)]
    body: ShownBody<'a>,
}

/// Each kind of body has a name of its own.
#[derive(Serialize, Debug)]
pub(crate) enum ShownBody<'a> {
    #[serde(rename = "body")]
    Text(&'a str),
    #[serde(rename = "body_base64")]
    Binary(String),
    #[serde(rename = "body_sections_base64")]
    Sections(Vec<String>),
    #[serde(rename = "body_value")]
    Value(Json),
    #[serde(rename = "body_sequence")]
    Sequence(Vec<Vec<Json>>),
}

impl<'a> Shown<'a> {
    pub(crate) fn of(partition: &'a PartitionId, event: &'a Event) -> Self {
        let (properties, property_types) = split(event.properties());
        let (annotations, annotation_types) = split(event.annotations());
        Self {
            partition: partition.as_str(),
            sequence: event.sequence_number().0,
            offset: event.offset().to_string(),
            enqueued: event.enqueued_time().to_string(),
            key: event.partition_key(),
            properties,
            property_types,
            annotations,
            annotation_types,
            message: event.message_properties().map(message_to_json).unwrap_or_default(),
            body: ShownBody::of(event.body()),
        }
    }
}

/// Values, and the types of those whose JSON does not say it.
fn split(properties: &Properties) -> (Map<String, Json>, Map<String, Json>) {
    let (mut values, mut kinds) = (Map::new(), Map::new());
    for (name, value) in properties.iter() {
        let Typed { json, kind } = Typed::of(value);
        values.insert(name.to_owned(), json);
        if let Some(kind) = kind {
            kinds.insert(name.to_owned(), json!(kind));
        }
    }
    (values, kinds)
}

fn typed(value: &Value) -> Json {
    let Typed { json, kind } = Typed::of(value);
    kind.map_or(json.clone(), |kind| json!({"type": kind, "value": json}))
}

impl<'a> ShownBody<'a> {
    pub(crate) fn of(body: &'a Body) -> Self {
        match body {
            Body::Data(bytes) => match std::str::from_utf8(bytes) {
                Ok(text) => Self::Text(text),
                Err(_) => Self::Binary(STANDARD.encode(bytes)),
            },
            Body::DataSections(sections) => {
                Self::Sections(sections.iter().map(|bytes| STANDARD.encode(bytes)).collect())
            }
            // Null would read as no body.
            Body::Value(Value::Null) => Self::Value(json!({"type": "null", "value": null})),
            Body::Value(value) => Self::Value(typed(value)),
            Body::Sequence(sections) => {
                Self::Sequence(sections.iter().map(|values| values.iter().map(typed).collect()).collect())
            }
            // A kind of body that is not known yet.
            other => Self::Value(json!(format!("{other:?}"))),
        }
    }

    /// A body without bytes as JSON.
    pub(crate) fn json(&self) -> Json {
        match self {
            Self::Text(text) => json!(text),
            Self::Binary(text) => json!(text),
            Self::Sections(sections) => json!(sections),
            Self::Value(json) => json.clone(),
            Self::Sequence(sections) => json!(sections),
        }
    }
}

/// The names of the standard properties of a message, each with its value, where it has one.
pub(crate) fn message_to_json(message: &MessageProperties) -> Map<String, Json> {
    let text = |text: &Option<std::sync::Arc<str>>| text.as_deref().map(|text| json!(text));
    let time = |time: &Option<Timestamp>| time.map(|time| json!(time.to_string()));
    let fields = [
        ("message_id", message.message_id.as_ref().map(typed)),
        ("user_id_base64", message.user_id.as_ref().map(|bytes| json!(STANDARD.encode(bytes)))),
        ("to", text(&message.to)),
        ("subject", text(&message.subject)),
        ("reply_to", text(&message.reply_to)),
        ("correlation_id", message.correlation_id.as_ref().map(typed)),
        ("content_type", text(&message.content_type)),
        ("content_encoding", text(&message.content_encoding)),
        ("absolute_expiry_time", time(&message.absolute_expiry_time)),
        ("creation_time", time(&message.creation_time)),
        ("group_id", text(&message.group_id)),
        ("group_sequence", message.group_sequence.map(|number| json!(number))),
        ("reply_to_group_id", text(&message.reply_to_group_id)),
    ];
    fields.into_iter().filter_map(|(name, value)| Some((name.to_owned(), value?))).collect()
}

/// A line as it is read. The hub's own fields are there so that what was consumed can be produced; they say nothing.
#[derive(Deserialize, Debug)]
#[serde(deny_unknown_fields)]
pub(crate) struct Line<'a> {
    #[serde(borrow, default)]
    body: Option<&'a RawValue>,
    body_base64: Option<String>,
    body_sections_base64: Option<Vec<String>>,
    body_value: Option<Json>,
    body_sequence: Option<Vec<Vec<Json>>>,
    key: Option<String>,
    partition: Option<Json>,
    #[serde(default)]
    properties: Map<String, Json>,
    #[serde(default)]
    property_types: BTreeMap<String, String>,
    #[serde(default)]
    annotations: Map<String, Json>,
    #[serde(default)]
    annotation_types: BTreeMap<String, String>,
    #[serde(default)]
    message: Map<String, Json>,
    #[serde(default, rename = "sequence")]
    _sequence: Json,
    #[serde(default, rename = "offset")]
    _offset: Json,
    #[serde(default, rename = "enqueued")]
    _enqueued: Json,
}

/// An event to send, and where.
#[derive(Debug)]
pub(crate) struct Record {
    pub(crate) event: EventBuilder,
    pub(crate) key: Option<String>,
    pub(crate) partition: Option<String>,
}

impl Line<'_> {
    /// Reads a line.
    pub(crate) fn parse(text: &str) -> Result<Record, String> {
        if text.trim_start().starts_with('[') {
            return Err("it is not a JSON object: an event is {\"body\":\"text\"}".to_owned());
        }
        let line: Line<'_> = serde_json::from_str(text).map_err(|error| explain(&error))?;
        let key = line.key.clone();
        let partition = match &line.partition {
            None | Some(Json::Null) => None,
            Some(Json::String(id)) => Some(id.clone()),
            Some(Json::Number(id)) => Some(id.to_string()),
            Some(other) => return Err(format!("partition is {other}: write \"0\"")),
        };
        let mut event = Event::builder(line.body()?);
        for (name, json) in &line.properties {
            let kind = line.property_types.get(name).map(String::as_str);
            let value = Typed::parse(json, kind).map_err(|said| format!("property {name}: {said}"))?;
            event = event.property(name, value);
        }
        for (name, json) in &line.annotations {
            let kind = line.annotation_types.get(name).map(String::as_str);
            let value = Typed::parse(json, kind).map_err(|said| format!("annotation {name}: {said}"))?;
            event = event.annotation(name, value);
        }
        if !line.message.is_empty() {
            event = event.message_properties(message_of_json(&line.message)?);
        }
        Ok(Record { event, key, partition })
    }

    fn body(&self) -> Result<Body, String> {
        let mut bodies = Vec::new();
        if let Some(raw) = self.body {
            // A string is meant as it reads; all else as the JSON that it is.
            bodies.push(match serde_json::from_str::<Option<String>>(raw.get()) {
                Ok(text) => Body::from(text.unwrap_or_default()),
                Err(error) if raw.get().starts_with('"') => {
                    return Err(format!(
                        "the body is no text ({}): send it as body_base64",
                        place_left_out(&error)
                    ));
                }
                Err(_) => Body::from(raw.get().to_owned()),
            });
        }
        if let Some(text) = &self.body_base64 {
            bodies.push(Body::from(decoded(text)?));
        }
        if let Some(sections) = &self.body_sections_base64 {
            let sections: Result<Vec<_>, String> =
                sections.iter().map(|text| decoded(text).map(Into::into)).collect();
            bodies.push(Body::DataSections(sections?));
        }
        if let Some(value) = &self.body_value {
            bodies.push(Body::Value(Typed::parse(value, None)?));
        }
        if let Some(sections) = &self.body_sequence {
            let values = |values: &Vec<Json>| values.iter().map(|value| Typed::parse(value, None)).collect();
            let sections: Result<Vec<Vec<Value>>, String> = sections.iter().map(values).collect();
            bodies.push(Body::Sequence(sections?));
        }
        match bodies.len() {
            0 => Err("there is no body: an event is {\"body\":\"text\"}".to_owned()),
            1 => Ok(bodies.remove(0)),
            _ => Err("there is more than one body".to_owned()),
        }
    }
}

fn decoded(text: &str) -> Result<Vec<u8>, String> {
    STANDARD.decode(text).map_err(|error| format!("the body is no base64: {error}"))
}

fn place_left_out(error: &serde_json::Error) -> String {
    let text = error.to_string();
    text.split(" at line ").next().unwrap_or(&text).to_owned()
}

/// What is wrong with a line, without the place within it that serde counts.
fn explain(error: &serde_json::Error) -> String {
    let said = place_left_out(error);
    match error.classify() {
        serde_json::error::Category::Data => said,
        _ => format!("it is not a JSON object ({said}): an event is {{\"body\":\"text\"}}"),
    }
}

fn message_of_json(fields: &Map<String, Json>) -> Result<MessageProperties, String> {
    let mut message = MessageProperties::default();
    for (name, json) in fields {
        let bad = || format!("message.{name} is {json}, which it cannot be");
        let text = || json.as_str().map(Into::into).ok_or_else(bad);
        let time = || json.as_str().and_then(Timestamp::parse_rfc3339).ok_or_else(bad);
        let value = || Typed::parse(json, None).map_err(|said| format!("message.{name}: {said}"));
        match name.as_str() {
            "message_id" => message.message_id = Some(value()?),
            "user_id_base64" => {
                let bytes = json.as_str().and_then(|text| STANDARD.decode(text).ok()).ok_or_else(bad)?;
                message.user_id = Some(bytes.into());
            }
            "to" => message.to = Some(text()?),
            "subject" => message.subject = Some(text()?),
            "reply_to" => message.reply_to = Some(text()?),
            "correlation_id" => message.correlation_id = Some(value()?),
            "content_type" => message.content_type = Some(text()?),
            "content_encoding" => message.content_encoding = Some(text()?),
            "absolute_expiry_time" => message.absolute_expiry_time = Some(time()?),
            "creation_time" => message.creation_time = Some(time()?),
            "group_id" => message.group_id = Some(text()?),
            "group_sequence" => {
                let number = json.as_u64().and_then(|number| number.try_into().ok()).ok_or_else(bad)?;
                message.group_sequence = Some(number);
            }
            "reply_to_group_id" => message.reply_to_group_id = Some(text()?),
            _ => return Err(format!("there is no message.{name}")),
        }
    }
    Ok(message)
}

#[cfg(test)]
mod tests {
    use partita_core::model::{Offset, SequenceNumber};

    use super::*;

    fn at(event: EventBuilder) -> Event {
        event.at(SequenceNumber(7), Offset::number(70), Timestamp(1_000))
    }

    fn line(event: &Event) -> String {
        serde_json::to_string(&Shown::of(&"3".into(), event)).unwrap()
    }

    #[test]
    fn what_is_printed_is_read_back_whole() {
        let mut message = MessageProperties::default();
        message.message_id = Some(Value::Ulong(7));
        message.user_id = Some(vec![1, 255].into());
        message.correlation_id = Some(Value::from("c"));
        message.creation_time = Some(Timestamp(5));
        message.group_sequence = Some(9);
        for body in [
            Body::from("text \u{0} \"quoted\"\n"),
            Body::from(vec![0xff, 0]),
            Body::DataSections(vec![vec![1].into(), vec![255].into()]),
            Body::Value(Value::Int(5)),
            Body::Value(Value::Null),
            Body::Sequence(vec![vec![Value::from("a"), Value::Uint(1)], vec![]]),
        ] {
            let event = Event::builder(body)
                .partition_key("k")
                .property("n", 5_i32)
                .property("a", "text")
                .property("big", 1_i64 << 60)
                .annotation("x-opt-custom", Value::Symbol("s".into()))
                .message_properties(message.clone());
            let event = at(event);
            let text = line(&event);
            let record = Line::parse(&text).unwrap_or_else(|error| panic!("{error}: {text}"));
            assert_eq!((record.key.as_deref(), record.partition.as_deref()), (Some("k"), Some("3")));
            // Properties are a set; JSON objects here are sorted.
            assert_eq!(line(&at(record.event.partition_key("k"))), text);
        }
    }

    #[test]
    fn a_body_that_is_json_is_sent_as_it_is_written() {
        let body = |text: &str| at(Line::parse(text).unwrap().event).text().map(String::from);
        assert_eq!(body(r#"{"body": {"a": 1,  "b":[]}}"#).as_deref(), Some(r#"{"a": 1,  "b":[]}"#));
        assert_eq!(body(r#"{"body": "a\nb"}"#).as_deref(), Some("a\nb"));
        assert_eq!(body(r#"{"body": 5, "partition": 2}"#).as_deref(), Some("5"));
    }

    #[test]
    fn what_is_wrong_with_a_line_is_said() {
        for (text, part) in [
            ("hello", "it is not a JSON object"),
            ("{\"body\":\"x\"", "it is not a JSON object"),
            ("{}", "there is no body"),
            ("{\"boddy\":\"x\"}", "unknown field `boddy`"),
            ("{\"body\":\"x\",\"body_base64\":\"\"}", "more than one body"),
            ("{\"body_base64\":\"*\"}", "is no base64"),
            ("{\"body\":\"x\",\"partition\":true}", "partition is true"),
            ("{\"body\":\"x\",\"properties\":{\"n\":[1]}}", "property n: "),
            ("{\"body\":\"x\",\"properties\":{\"n\":1},\"property_types\":{\"n\":\"uuid\"}}", "1 is no uuid"),
            ("{\"body\":\"x\",\"message\":{\"colour\":1}}", "there is no message.colour"),
        ] {
            let said = Line::parse(text).expect_err(text);
            assert!(said.contains(part) && !said.contains('\n'), "{text}: {said}");
        }
    }
}
