//! The one place that writes to the terminal.

use std::io::Write;

/// Writes a line to the standard output. A reader that went away is no reason to stop measuring.
pub(crate) fn line(text: impl AsRef<str>) {
    let _ = writeln!(std::io::stdout().lock(), "{}", text.as_ref());
}

/// Writes a line to the standard error: progress and mistakes.
pub(crate) fn note(text: impl AsRef<str>) {
    let _ = writeln!(std::io::stderr().lock(), "{}", text.as_ref());
}
