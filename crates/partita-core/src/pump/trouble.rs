//! What is told of a partition that cannot get on: in the instance's record, so that other processes can show it.

use std::sync::Arc;
use std::time::Duration;

use super::deliver::Factory;
use super::failure::pause_after;
use super::task::Pump;
use crate::coordination::PumpEvent;
use crate::model::{BoxError, SequenceNumber, Timestamp};
use crate::store::{FAILING_ERROR_CHARS_MAX, FailingPartition};

/// What is tried again and again.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Trouble {
    Handling,
    Reading,
}

impl<F: Factory> Pump<F> {
    /// Tells of a failure that is followed by another attempt. Best effort: the next failure tells again.
    pub(super) fn failing(
        &mut self,
        trouble: Trouble,
        attempts: u32,
        pause: Duration,
        sequence: Option<SequenceNumber>,
        error: &BoxError,
    ) {
        let now = self.config.runtime.wall();
        let since = match self.trouble {
            Some((held, since)) if held == trouble => since,
            _ => now,
        };
        self.trouble = Some((trouble, since));
        let pause_ms = i64::try_from(pause.as_millis()).unwrap_or(i64::MAX);
        self.shared.try_report(PumpEvent::Failing(Some(FailingPartition {
            partition: self.shared.partition.clone(),
            since,
            attempts,
            retry_at: Timestamp(now.0.saturating_add(pause_ms)),
            sequence,
            error: told(&error.to_string()),
        })));
    }

    /// What failed works again.
    pub(super) fn recovered(&mut self, trouble: Trouble) {
        if self.trouble.is_some_and(|(held, _)| held == trouble)
            // Where there is no room to tell, it is told after the next call.
            && self.shared.try_report(PumpEvent::Failing(None))
        {
            self.trouble = None;
        }
    }

    /// How long to wait before reading is tried again.
    pub(super) fn reading_pause(&self) -> Duration {
        pause_after(self.failed_reads)
    }
}

/// What comes after one of these is nobody's business. In lower case.
const SECRETS: [&str; 10] = [
    "sharedaccesskey=",
    "sharedaccesssignature=",
    "accountkey=",
    "password=",
    "passwd=",
    "pwd=",
    "secret=",
    "token=",
    "sig=",
    "bearer ",
];

/// An error as it is kept where others read it: one line, short, without what looks like a secret.
fn told(error: &str) -> Arc<str> {
    // Enough to find secrets in, whatever the length of the text.
    let line: String = error
        .chars()
        .take(8 * FAILING_ERROR_CHARS_MAX)
        .map(|c| if c.is_control() { ' ' } else { c })
        .collect();
    let clean = without_secrets(&line);
    let mut chars = clean.chars();
    let mut told: String = chars.by_ref().take(FAILING_ERROR_CHARS_MAX).collect();
    if chars.next().is_some() {
        told.pop();
        told.push('…');
    }
    Arc::from(told)
}

fn without_secrets(line: &str) -> String {
    // Of the same length in bytes, so that places in one are places in the other.
    let lower = line.to_ascii_lowercase();
    let mut clean = String::with_capacity(line.len());
    let mut at = 0;
    while at < line.len() {
        let found =
            SECRETS.iter().filter_map(|name| lower[at..].find(name).map(|place| place + name.len())).min();
        let Some(value) = found.map(|value| at + value) else { break };
        clean.push_str(&line[at..value]);
        clean.push_str("***");
        let ends = |c: char| c.is_whitespace() || matches!(c, ';' | '&' | ',' | '"' | '\'' | ')');
        at = line[value..].find(ends).map_or(line.len(), |end| value + end);
    }
    clean.push_str(&line[at..]);
    without_user_info(&clean)
}

/// Takes user and password out of addresses such as `amqp://user:password@host`.
fn without_user_info(line: &str) -> String {
    let mut clean = String::with_capacity(line.len());
    let mut rest = line;
    while let Some(place) = rest.find("://") {
        let (before, after) = rest.split_at(place + 3);
        clean.push_str(before);
        let authority = after.find(|c: char| c.is_whitespace() || c == '/').unwrap_or(after.len());
        rest = match after[..authority].rfind('@') {
            Some(at) => {
                clean.push_str("***");
                &after[at..]
            }
            None => after,
        };
    }
    clean.push_str(rest);
    clean
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_told_of_an_error_is_one_short_line() {
        assert_eq!(&*told("no room\nat all"), "no room at all");
        let long = told(&"é".repeat(1_000));
        assert_eq!(long.chars().count(), FAILING_ERROR_CHARS_MAX);
        assert!(long.ends_with('…'));
    }

    #[test]
    fn what_is_told_of_an_error_holds_no_secret() {
        for (error, expected) in [
            (
                "Endpoint=sb://h/;SharedAccessKey=abc=;EntityPath=x",
                "Endpoint=sb://h/;SharedAccessKey=***;EntityPath=x",
            ),
            ("GET https://h/p?sig=abc&x=1 failed", "GET https://h/p?sig=***&x=1 failed"),
            ("PASSWORD=hunter2, user=me", "PASSWORD=***, user=me"),
            ("Authorization: Bearer abc.def", "Authorization: Bearer ***"),
            ("redis://me:hunter2@host:1/0 is down", "redis://***@host:1/0 is down"),
            ("nothing to hide: a@b, c://d", "nothing to hide: a@b, c://d"),
        ] {
            assert_eq!(&*told(error), expected);
        }
    }
}
