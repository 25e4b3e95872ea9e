//! Whether the hub's past is the one that was handled. A reader starts at the last event handled rather than after it; that
//! event is compared with the checkpoint and dropped. It costs one event per reader, and finds a hub whose data were replaced:
//! by an older copy, or by another hub's.

use std::fmt;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt;

use super::call::call;
use super::deliver::{Deliver, Factory};
use super::task::Pump;
use super::trouble::Trouble;
use crate::coordination::PumpEvent;
use crate::model::{BoxError, Event, Position, SequenceNumber, StreamId, StreamPosition};
use crate::options::ChangedPast;
use crate::report::Operation;
use crate::source::{Gap, SourceError, SourceErrorKind};

/// How long the hub may take to say which one it is.
const DESCRIBE_DEADLINE: Duration = Duration::from_secs(30);

/// How the hub differs from what was handled.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum OtherPast {
    /// Another event is at the place of the last one handled.
    Differs,
    /// The partition ends before it.
    EndsBefore,
}

/// What the first event of a reader says about the hub.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum First {
    /// It is the one that was handled last.
    Same,
    /// That one is gone, so nothing can be said.
    Later,
    /// It is another one.
    Differs,
}

/// Compares the first event read with the one handled last. The time decides where it is known: an offset is only a place, and
/// another event can have it.
fn compare(last: &StreamPosition, first: &Event) -> First {
    if first.sequence_number() > last.sequence {
        return First::Later;
    }
    let same = match last.enqueued_time {
        Some(time) => first.enqueued_time() == time,
        None => *first.offset() == last.offset,
    };
    if same && first.sequence_number() == last.sequence { First::Same } else { First::Differs }
}

/// The events that are missing after the last one handled; the reader counted from that one on.
fn gap_after(last: &StreamPosition, gap: Gap) -> Option<Gap> {
    if gap.range().is_some_and(|range| range.start > last.sequence.0) {
        return Some(gap);
    }
    let follows = SequenceNumber(last.sequence.0.saturating_add(1));
    (gap.next > follows).then(|| Gap { from: Position::after_sequence(last.sequence), ..gap })
}

/// Why nothing more of a partition is handled.
#[derive(Debug)]
struct PastError {
    past: OtherPast,
    last: SequenceNumber,
    chosen: ChangedPast,
}

impl fmt::Display for PastError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let last = self.last;
        match self.past {
            OtherPast::Differs => {
                write!(
                    f,
                    "event {last}, the last one handled, is another event now: the hub's data were replaced"
                )?;
            }
            OtherPast::EndsBefore => {
                write!(f, "the hub has less than was handled: the partition ends before event {last}")?;
            }
        }
        f.write_str(match self.chosen {
            ChangedPast::Refuse => {
                "; nothing of this partition is handled until the hub has its data back, or the processor is started with \
                 changed_past(StartOver) or changed_past(GoOn)"
            }
            ChangedPast::StartOver => "; starting over at the earliest event, as was asked for",
            ChangedPast::GoOn => "; continuing anyway, as configured",
        })
    }
}

impl std::error::Error for PastError {}

impl<F: Factory> Pump<F> {
    /// Where a reader starts, and what is remembered to compare its first event with.
    pub(super) fn start_of_reader(&mut self) -> Position {
        self.expected = self.progress.reached().filter(|_| !self.past_accepted).cloned();
        match &self.expected {
            Some(last) => Position::at_sequence(last.sequence),
            None => self.progress.resume().clone(),
        }
    }

    /// A reader was attached: where it knows the end of the partition, that may lie before what was handled.
    pub(super) async fn check_end(&mut self, handler: &mut F::Handler) {
        let Some(expected) = &self.expected else { return };
        let end = self.prefetch.last_enqueued().and_then(|end| end.position);
        if end.is_some_and(|end| end.sequence < expected.sequence) {
            self.on_other_past(handler, OtherPast::EndsBefore).await;
        }
    }

    /// Compares the first event of a reader with the one handled last, and drops it if it is that one.
    pub(super) async fn check_first(&mut self, handler: &mut F::Handler) {
        let Some(expected) = &self.expected else { return };
        let Some(first) = self.prefetch.batch(1).0.first().map(|first| compare(expected, first)) else {
            return;
        };
        match first {
            First::Same | First::Later => {
                self.expected = None;
                self.recovered(Trouble::Reading);
                if first == First::Same {
                    self.prefetch.consume(1);
                }
            }
            First::Differs => self.on_other_past(handler, OtherPast::Differs).await,
        }
    }

    /// What of a gap is missing as the handler sees it.
    pub(super) fn missing(&self, gap: Gap) -> Option<Gap> {
        match &self.expected {
            Some(last) => gap_after(last, gap),
            None => Some(gap),
        }
    }

    /// The hub is not what it was. One that was reset says so; otherwise it is for the user to say what that means.
    pub(super) async fn on_other_past(&mut self, handler: &mut F::Handler, past: OtherPast) {
        let Some(last) = self.progress.reached().map(|last| last.sequence) else { return };
        let stream = match self.ask_stream().await {
            None => return,
            Some(Ok(stream)) => stream,
            Some(Err(error)) => {
                self.prefetch.detach();
                self.failed_reads += 1;
                self.report(Operation::Describe, error.into());
                let pause = self.reading_pause();
                return self.pause(pause).await;
            }
        };
        if self.shared.has_seek() {
            // The coordination knows already.
            return;
        }
        let known = self.shared.stream();
        let was_reset = known.is_some() && stream.is_some() && known != stream;
        // A hub that never says which one it is and has nothing at that place was reset, as far as anybody can tell.
        let seems_reset = past == OtherPast::EndsBefore && (known.is_none() || stream.is_none());
        if was_reset {
            // Whoever coordinates must know before anything of the new life is checkpointed. It lets everybody start over.
            self.prefetch.detach();
            self.failed_reads += 1;
            self.shared.report(PumpEvent::AskHub).await;
            let pause = self.reading_pause();
            return self.pause(pause).await;
        }
        if seems_reset {
            return self.seek(Position::Earliest).await;
        }
        let chosen = self.config.options.changed_past;
        let error: BoxError = PastError { past, last, chosen }.into();
        let _ = call(self.as_leased(), handler.error(Operation::Read, &error, &self.cx)).await;
        match (chosen, past) {
            (ChangedPast::Refuse, _) => {
                self.prefetch.detach();
                self.failed_reads += 1;
                let (attempts, pause) = (self.failed_reads, self.reading_pause());
                self.failing(Trouble::Reading, attempts, pause, Some(last), &error);
                self.report(Operation::Read, error);
                self.pause(pause).await;
            }
            (ChangedPast::StartOver, _) => {
                self.report(Operation::Read, error);
                self.seek(Position::Earliest).await;
            }
            (ChangedPast::GoOn, OtherPast::EndsBefore) => {
                self.report(Operation::Read, error);
                self.seek(Position::Latest).await;
            }
            (ChangedPast::GoOn, OtherPast::Differs) => {
                self.report(Operation::Read, error);
                self.expected = None;
                self.past_accepted = true;
                let (first, _) = self.prefetch.batch(1);
                if first.first().is_some_and(|first| first.sequence_number() <= last) {
                    self.prefetch.consume(1);
                }
            }
        }
    }

    /// Which life of its data the hub has, by its own word. None if the pump has to end first.
    async fn ask_stream(&mut self) -> Option<Result<Option<StreamId>, SourceError>> {
        let source = Arc::clone(&self.config.source);
        let asked = AssertUnwindSafe(async { source.describe().await }).catch_unwind();
        let asked = tokio::time::timeout(DESCRIBE_DEADLINE, asked);
        let failed = |what: &str| Err(SourceError::new(SourceErrorKind::Retriable, what));
        Some(match self.unless_stopped(asked).await? {
            Ok(Ok(described)) => described.map(|hub| hub.stream),
            Ok(Err(_)) => failed("the source panicked when it was asked to describe the hub"),
            Err(_) => failed("the hub was not described in time"),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::{Offset, Timestamp};
    use crate::source::GapCause;

    fn event(sequence: i64, offset: u64, time: i64) -> Event {
        Event::builder("").at(SequenceNumber(sequence), Offset::number(offset), Timestamp(time))
    }

    #[test]
    fn an_event_is_known_by_its_number_and_time_or_by_its_offset_where_the_time_is_not_known() {
        let last = event(7, 70, 700).position();
        assert_eq!(compare(&last, &event(7, 70, 700)), First::Same);
        assert_eq!(compare(&last, &event(7, 71, 700)), First::Same, "a hub that was copied");
        assert_eq!(compare(&last, &event(7, 70, 701)), First::Differs, "events of one size");
        assert_eq!(compare(&last, &event(8, 80, 800)), First::Later);
        assert_eq!(compare(&last, &event(6, 70, 700)), First::Differs);
        let untimed = StreamPosition { enqueued_time: None, ..last };
        assert_eq!(compare(&untimed, &event(7, 70, 701)), First::Same);
        assert_eq!(compare(&untimed, &event(7, 71, 700)), First::Differs);
    }

    #[test]
    fn the_event_that_was_handled_is_not_missing() {
        let last = event(7, 70, 700).position();
        let gap = |from, next| Gap {
            from: Position::at_sequence(SequenceNumber(from)),
            next: SequenceNumber(next),
            cause: GapCause::Retention,
        };
        assert_eq!(gap_after(&last, gap(7, 8)), None);
        let missing = gap_after(&last, gap(7, 10)).expect("8 and 9 are missing");
        assert_eq!(missing.range(), Some(8..10));
        assert_eq!(gap_after(&last, gap(12, 14)), Some(gap(12, 14)), "a further gap stays as it is");
    }
}
