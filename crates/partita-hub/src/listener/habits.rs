//! What one client needs and others do not. Each has its reason, and goes when the client no longer needs it.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use partita_amqp::performative::Open;

/// The Rust SDK, as its opens name it.
const RUST: &str = "azure_messaging_eventhubs";

/// How far away the hub seems to be to the Rust SDK. The AMQP library in it (fe2o3-amqp, up to 0.16) is not ready for answers that
/// come at once: it hands a message over before it notes that it waits for an outcome, and a link before the session that is
/// dropped with it. What comes in between is lost, and the send never ends; or it ends the connection.
pub const RUST_DISTANCE: Duration = Duration::from_millis(10);

/// The Python SDK, as its opens name it.
const PYTHON: &str = "azsdk-python-eventhubs";

/// How much later than at once the client is told anything.
pub(super) fn distance(open: &Open) -> Duration {
    match product(open) {
        Some(RUST) => RUST_DISTANCE,
        _ => Duration::ZERO,
    }
}

/// Whether an attach that is refused is answered with the termini that the client named. The AMQP library in the Python SDK (up to
/// 5.15) detaches a link by itself whose attach is answered without them, and never hears why it was refused.
pub(super) fn wants_termini(open: &Open) -> bool {
    product(open) == Some(PYTHON)
}

fn product(open: &Open) -> Option<&str> {
    open.properties.iter().find(|(key, _)| key.as_str() == Some("product"))?.1.as_str()
}

/// Holds bytes back for as long as the client is away. It counts; the bytes stay where they are.
#[derive(Debug, Default)]
pub(super) struct Lag {
    distance: Duration,
    written: u64,
    /// From when on how many bytes, counted from the first, may have been written.
    marks: VecDeque<(Instant, u64)>,
}

impl Lag {
    /// Sets how long. `ZERO` lets everything go.
    pub(super) fn set(&mut self, distance: Duration) {
        self.distance = distance;
        if distance.is_zero() {
            self.marks.clear();
        }
    }

    /// How many of the bytes that wait may be written now.
    pub(super) fn allow(&mut self, waiting: usize, now: Instant) -> usize {
        if self.distance.is_zero() {
            return waiting;
        }
        let end = self.written + waiting as u64;
        if self.marks.back().map_or(self.written, |(_, known)| *known) < end {
            self.marks.push_back((now + self.distance, end));
        }
        let due = self.marks.iter().take_while(|(at, _)| *at <= now).last();
        due.map_or(0, |(_, end)| usize::try_from(end - self.written).unwrap_or(usize::MAX))
    }

    /// So many bytes were written.
    pub(super) fn wrote(&mut self, count: usize) {
        if !self.distance.is_zero() {
            self.written += count as u64;
            while self.marks.front().is_some_and(|(_, end)| *end <= self.written) {
                self.marks.pop_front();
            }
        }
    }

    /// When more may be written than now. What may be written and is not waits for the stream.
    pub(super) fn deadline(&self, now: Instant) -> Option<Instant> {
        self.marks.front().map(|(at, _)| *at).filter(|at| *at > now)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_go_out_in_order_each_after_its_time() {
        let begun = Instant::now();
        let at = |ms: u64| begun + Duration::from_millis(ms);
        let mut lag = Lag::default();
        assert_eq!(lag.allow(7, at(0)), 7, "nobody is far away");
        lag.set(Duration::from_millis(10));
        assert_eq!(lag.allow(5, at(0)), 0);
        assert_eq!(lag.allow(5, at(4)), 0);
        assert_eq!(lag.allow(8, at(6)), 0);
        assert_eq!(lag.deadline(at(6)), Some(at(10)));
        assert_eq!((lag.allow(8, at(10)), lag.deadline(at(10))), (5, None));
        lag.wrote(2);
        assert_eq!(lag.allow(6, at(11)), 3, "what did not fit before goes first");
        lag.wrote(3);
        assert_eq!((lag.allow(3, at(12)), lag.deadline(at(12))), (0, Some(at(16))));
        assert_eq!(lag.allow(3, at(16)), 3);
        lag.wrote(3);
        assert_eq!((lag.allow(0, at(17)), lag.deadline(at(17))), (0, None));
    }

    #[test]
    fn only_the_client_that_needs_it_is_far_away() {
        let product = |name: &str| {
            let mut open = Open::new("x");
            open.properties.push(("product".into(), name.into()));
            distance(&open)
        };
        assert_eq!(product("azure_messaging_eventhubs"), RUST_DISTANCE);
        assert_eq!(product("azsdk-js-azureeventhubs"), Duration::ZERO);
        assert_eq!(distance(&Open::new("x")), Duration::ZERO);
    }

    #[test]
    fn only_python_is_refused_with_termini() {
        let mut open = Open::new("x");
        assert!(!wants_termini(&open));
        open.properties.push((partita_core::model::Value::Symbol("product".into()), PYTHON.into()));
        assert!(wants_termini(&open));
    }
}
