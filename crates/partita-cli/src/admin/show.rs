//! Tables for people.

use comfy_table::presets::NOTHING;
use comfy_table::{Cell, CellAlignment, Table};
use serde_json::Value;

use super::Form;
use crate::Failure;
use crate::output::{Out, grouped};

/// A table's column: its title, and whether it holds numbers.
pub(crate) type Column = (&'static str, bool);

/// Prints rows under titles.
pub(crate) fn table(out: &mut Out, columns: &[Column], rows: Vec<Vec<String>>) -> Result<(), Failure> {
    let mut table = Table::new();
    table.load_style(NOTHING);
    table.set_header(columns.iter().map(|(title, is_number)| cell(title, *is_number)));
    for row in rows {
        table.add_row(row.iter().zip(columns).map(|(text, (_, is_number))| cell(text, *is_number)));
    }
    // Nothing but blanks at the left.
    for line in table.lines() {
        out.line(line.strip_prefix(' ').unwrap_or(&line))?;
    }
    Ok(())
}

fn cell(text: &str, is_number: bool) -> Cell {
    Cell::new(text).set_alignment(if is_number { CellAlignment::Right } else { CellAlignment::Left })
}

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
