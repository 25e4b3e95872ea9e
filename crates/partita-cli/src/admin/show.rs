//! Answers of the admin API, for people.

use serde_json::Value;

use super::Form;
use crate::Failure;
use crate::output::{Out, grouped};

/// Prints an answer as it came, if that is wanted; true then.
pub(crate) fn json(out: &mut Out, form: Form, answer: &Value) -> Result<bool, Failure> {
    if form != Form::Json {
        return Ok(false);
    }
    let text = serde_json::to_string_pretty(answer).map_err(|error| Failure::Run(error.to_string()))?;
    out.line(&text)?;
    Ok(true)
}

/// A field's text; a dash if there is none.
pub(crate) fn text(value: &Value, field: &str) -> String {
    match &value[field] {
        Value::String(text) => text.clone(),
        Value::Null => "-".to_owned(),
        other => other.to_string(),
    }
}

/// A field's number, with its thousands set apart; a dash if there is none.
pub(crate) fn number(value: &Value, field: &str) -> String {
    value[field].as_u64().map_or_else(|| "-".to_owned(), grouped)
}

/// The texts of a list.
pub(crate) fn texts(value: &Value, field: &str) -> Vec<String> {
    let items = value[field].as_array().map(Vec::as_slice).unwrap_or_default();
    items.iter().filter_map(|item| item.as_str().map(str::to_owned)).collect()
}

/// The objects of a list.
pub(crate) fn items<'a>(value: &'a Value, field: &str) -> &'a [Value] {
    value[field].as_array().map(Vec::as_slice).unwrap_or_default()
}
