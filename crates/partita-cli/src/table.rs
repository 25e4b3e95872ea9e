//! Tables for people.

use comfy_table::presets::NOTHING;
use comfy_table::{Cell, CellAlignment, Table};

use crate::Failure;
use crate::output::{Out, tame};

/// A table's column: its title, and whether it holds numbers.
pub(crate) type Column = (&'static str, bool);

/// The lines of a table: rows under titles, with nothing but blanks at the left.
pub(crate) fn lines(columns: &[Column], rows: Vec<Vec<String>>) -> Vec<String> {
    let mut table = Table::new();
    table.load_style(NOTHING);
    table.set_header(columns.iter().map(|(title, is_number)| cell(title, *is_number)));
    for row in rows {
        table.add_row(row.iter().zip(columns).map(|(text, (_, is_number))| cell(text, *is_number)));
    }
    let bare = |line: String| line.strip_prefix(' ').unwrap_or(&line).trim_end().to_owned();
    table.lines().map(bare).collect()
}

/// Prints rows under titles.
pub(crate) fn print(out: &mut Out, columns: &[Column], rows: Vec<Vec<String>>) -> Result<(), Failure> {
    for line in lines(columns, rows) {
        out.line(&line)?;
    }
    Ok(())
}

fn cell(text: &str, is_number: bool) -> Cell {
    Cell::new(tame(text)).set_alignment(if is_number { CellAlignment::Right } else { CellAlignment::Left })
}
