//! A terminal that is drawn over and over, and is as it was afterwards.

use std::io::{self, Write};

use crate::output::has_colour;

const ENTER: &str = "\x1b[?1049h\x1b[?25l\x1b[2J";
const LEAVE: &str = "\x1b[?25h\x1b[?1049l";

/// The other screen of a terminal, until it is dropped.
pub(super) struct Screen(());

impl Screen {
    pub(super) fn new() -> Self {
        put(ENTER);
        Self(())
    }

    /// How many rows there are now.
    pub(super) fn rows(&self) -> usize {
        size().1
    }

    /// Shows lines from the top, and one below; all cut to fit.
    pub(super) fn draw(&mut self, lines: &[String], below: &str) -> io::Result<()> {
        let (columns, rows) = size();
        let colour = has_colour(true);
        let mut frame = String::from("\x1b[H");
        for (at, line) in lines.iter().take(rows.saturating_sub(2)).enumerate() {
            let line: String = line.chars().take(columns).collect();
            let line = if at == 0 && colour { format!("\x1b[1m{line}\x1b[0m") } else { line };
            frame.push_str(&line);
            frame.push_str("\x1b[K\r\n");
        }
        let below: String = below.chars().take(columns).collect();
        let below = if colour { format!("\x1b[2m{below}\x1b[0m") } else { below };
        frame.push_str(&format!("\x1b[K\r\n{below}\x1b[K\x1b[J"));
        let mut out = io::stdout().lock();
        out.write_all(frame.as_bytes())?;
        out.flush()
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        put(LEAVE);
    }
}

/// A terminal that is gone needs nothing.
fn put(text: &str) {
    let mut out = io::stdout().lock();
    let _ = out.write_all(text.as_bytes());
    let _ = out.flush();
}

/// Columns and rows.
fn size() -> (usize, usize) {
    #[cfg(unix)]
    if let Ok(size) = rustix::termios::tcgetwinsize(io::stdout())
        && size.ws_col > 0
        && size.ws_row > 0
    {
        return (size.ws_col.into(), size.ws_row.into());
    }
    (80, 24)
}
