//! Text for people: where it goes, and in which colours.

use std::io::{self, BufRead, IsTerminal, Write};

use crate::Failure;

/// What a piece of text is, as far as colour can tell.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Tone {
    Good,
    Bad,
    /// Something was done.
    Act,
    /// Of less weight.
    Faint,
    Strong,
}

impl Tone {
    fn code(self) -> &'static str {
        match self {
            Self::Good => "32",
            Self::Bad => "31",
            Self::Act => "33",
            Self::Faint => "2",
            Self::Strong => "1",
        }
    }
}

/// Takes lines, or nothing.
pub(crate) struct Out {
    sink: Option<Box<dyn Write + Send>>,
    colour: bool,
}

impl Out {
    pub(crate) fn stdout() -> Self {
        Self { sink: Some(Box::new(io::stdout())), colour: has_colour(io::stdout().is_terminal()) }
    }

    pub(crate) fn stderr() -> Self {
        Self { sink: Some(Box::new(io::stderr())), colour: has_colour(io::stderr().is_terminal()) }
    }

    pub(crate) fn nowhere() -> Self {
        Self { sink: None, colour: false }
    }

    pub(crate) fn line(&mut self, text: &str) -> io::Result<()> {
        let Some(sink) = &mut self.sink else { return Ok(()) };
        writeln!(sink, "{}", text.trim_end())?;
        sink.flush()
    }

    /// Writes a piece of a line.
    pub(crate) fn part(&mut self, text: &str) -> io::Result<()> {
        let Some(sink) = &mut self.sink else { return Ok(()) };
        sink.write_all(text.as_bytes())?;
        sink.flush()
    }

    pub(crate) fn paint(&self, tone: Tone, text: &str) -> String {
        if self.colour { format!("\x1b[{}m{text}\x1b[0m", tone.code()) } else { text.to_owned() }
    }
}

/// Asks on the terminal whether to go on; without one, or without an answer, it does not. `refusal` says what to do instead.
pub(crate) fn confirm(out: &mut Out, question: &str, refusal: &str) -> Result<bool, Failure> {
    if !io::stdin().is_terminal() || !io::stderr().is_terminal() {
        return Err(Failure::Usage(refusal.to_owned()));
    }
    out.part(question)?;
    let mut answer = String::new();
    io::stdin().lock().read_line(&mut answer)?;
    Ok(matches!(answer.trim().to_ascii_lowercase().as_str(), "y" | "yes"))
}

/// Whether to colour: on a terminal that can, unless the user said no (<https://no-color.org>).
pub(crate) fn has_colour(is_terminal: bool) -> bool {
    let set = |name| std::env::var_os(name).filter(|value| !value.is_empty());
    is_terminal && set("NO_COLOR").is_none() && set("TERM").is_none_or(|term| term != "dumb")
}

/// Whether a letter would move a terminal's cursor, change its colours or turn its text around.
pub(crate) fn steers(letter: char) -> bool {
    letter.is_control()
        || matches!(letter, '\u{200e}' | '\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}

/// Text of others, such as a hub or a store, as one line that does nothing to a terminal.
pub(crate) fn tame(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for letter in text.chars() {
        if steers(letter) { out.extend(letter.escape_default()) } else { out.push(letter) }
    }
    out
}

/// A number with its thousands set apart.
pub(crate) fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::with_capacity(digits.len() + digits.len() / 3);
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// "1 event", "2 events".
pub(crate) fn counted(number: u64, noun: &str) -> String {
    format!("{} {noun}{}", grouped(number), if number == 1 { "" } else { "s" })
}

/// "event 5", "events 5 to 9".
pub(crate) fn numbered(first: u64, last: u64) -> String {
    if first == last { format!("event {first}") } else { format!("events {first} to {last}") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_others_wrote_cannot_steer_a_terminal() {
        assert_eq!(
            tame("a\u{1b}[2Jb\nerror: c\u{9b}d\u{202e}é"),
            "a\\u{1b}[2Jb\\nerror: c\\u{9b}d\\u{202e}é"
        );
    }

    #[test]
    fn thousands_are_set_apart() {
        assert_eq!([0, 999, 1_000, 1_234_567].map(grouped), ["0", "999", "1,000", "1,234,567"]);
        assert_eq!([1, 2].map(|n| counted(n, "event")), ["1 event", "2 events"]);
    }
}
