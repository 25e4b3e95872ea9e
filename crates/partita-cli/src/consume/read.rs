//! Reads a partition and hands its events over; begins again where it was after the hub was away.

use std::error::Error;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use partita_core::model::{ConsumerGroup, Event, PartitionId, Position};
use partita_core::source::{EventSource, Gap, PartitionReader, ReadRequest, SourceError, SourceErrorKind};
use partita_sources::eventhubs::{EventHubsError, EventHubsSource};
use tokio::sync::mpsc;
use tokio::time::Instant;

use crate::Failure;

const READ_EVENTS_MAX: usize = 1_024;
const PREFETCH_EVENTS: usize = 4_096;
const PREFETCH_BYTES: usize = 1 << 20;
/// How long a hub may be away, and how often it is tried meanwhile.
const AWAY_TIME_MAX: Duration = Duration::from_secs(60);
const AWAY_PAUSE: Duration = Duration::from_millis(500);
/// A reader that was open for so long had found the hub well.
const STEADY_AFTER: Duration = Duration::from_secs(5);
/// How often in a row the hub may say that it failed itself, without an event in between. It will not read better.
const FAULTS_MAX: u32 = 3;
const INTERNAL_ERROR: &str = "amqp:internal-error";

/// What the printer is told.
pub(crate) enum Said {
    /// Events of a reader, by its place among them.
    Events(usize, Vec<Event>),
    /// Something to know.
    Note(String),
    /// Events of a partition were gone before they were read.
    Missed(PartitionId, Gap),
    /// Nothing came for some time.
    Silence(String),
    /// It cannot go on.
    Failed(Failure),
    /// The user wants no more.
    Enough,
    /// Nobody reads the output any more.
    Closed,
}

/// A partition that is read.
pub(crate) struct Follow {
    source: EventHubsSource,
    request: ReadRequest,
    reader: Box<dyn PartitionReader>,
    /// The last event to read, if it is not for ever.
    last: Option<i64>,
    /// Events after that one that are lost.
    lost: Option<Gap>,
    outage: Outage,
}

/// How long nothing could be read, and how often the hub said that the fault is its own.
#[derive(Debug)]
struct Outage {
    opened: Instant,
    since: Option<Instant>,
    faults: u32,
}

impl Outage {
    fn new(now: Instant) -> Self {
        Self { opened: now, since: None, faults: 0 }
    }

    /// Notes a failure; whether to try again.
    fn goes_on(&mut self, now: Instant, is_fault: bool) -> bool {
        if now - self.opened >= STEADY_AFTER {
            *self = Self::new(now);
        }
        self.faults = if is_fault { self.faults + 1 } else { 0 };
        let since = *self.since.get_or_insert(now);
        self.faults < FAULTS_MAX && now - since < AWAY_TIME_MAX
    }
}

impl Follow {
    pub(crate) async fn open(
        source: EventHubsSource,
        group: ConsumerGroup,
        partition: PartitionId,
        from: Position,
        last: Option<i64>,
    ) -> Result<Self, SourceError> {
        let request = ReadRequest {
            group,
            partition,
            from,
            owner_level: None,
            name: "partita-consume".into(),
            prefetch_events: PREFETCH_EVENTS,
            prefetch_bytes: PREFETCH_BYTES,
        };
        let give_up = Instant::now() + AWAY_TIME_MAX;
        loop {
            match source.open(request.clone()).await {
                Ok(reader) => {
                    let outage = Outage::new(Instant::now());
                    return Ok(Self { source, request, reader, last, lost: None, outage });
                }
                Err(error) if is_busy(&error) && Instant::now() < give_up => {
                    tokio::time::sleep(AWAY_PAUSE).await;
                }
                Err(error) => return Err(error),
            }
        }
    }

    pub(crate) fn partition(&self) -> &PartitionId {
        &self.request.partition
    }

    /// Tells of these events when all before them was read.
    pub(crate) fn lost_after(&mut self, lost: Option<Gap>) {
        self.lost = lost;
    }

    /// Tells what the reader passed over; whether that was the last there is to read.
    async fn tell_gaps(&mut self, tell: &mpsc::Sender<Said>) -> bool {
        let mut ended = false;
        while let Some(gap) = self.reader.take_gap() {
            ended |= self.last.is_some_and(|last| gap.next.0 > last);
            self.lost = self.lost.take().filter(|lost| lost.next > gap.next);
            let _ = tell.send(Said::Missed(self.partition().clone(), gap)).await;
        }
        ended
    }

    /// Reads until it is done, fails, or nobody listens.
    pub(crate) async fn run(mut self, at: usize, away: Arc<AtomicBool>, tell: mpsc::Sender<Said>) {
        if let Err(failure) = self.follow(at, &away, &tell).await {
            let _ = tell.send(Said::Failed(failure)).await;
        }
    }

    async fn follow(
        &mut self,
        at: usize,
        away: &AtomicBool,
        tell: &mpsc::Sender<Said>,
    ) -> Result<(), Failure> {
        loop {
            // A hub that has lost what a reader was to start with says so before any event comes.
            if self.tell_gaps(tell).await {
                return Ok(());
            }
            let mut events = Vec::new();
            let read = self.reader.read(READ_EVENTS_MAX, &mut events).await;
            self.tell_gaps(tell).await;
            let number = |event: &Event| event.sequence_number().0;
            let ended =
                events.last().is_some_and(|event| self.last.is_some_and(|last| number(event) >= last));
            if let Some(last) = self.last {
                events.truncate(events.partition_point(|event| number(event) <= last));
            }
            if let Some(event) = events.last() {
                self.request.from = event.next_position();
                self.outage = Outage::new(Instant::now());
                if tell.send(Said::Events(at, events)).await.is_err() {
                    return Ok(());
                }
            }
            match read {
                Ok(()) if ended => {
                    if let (Some(_), Some(lost)) = (self.last, self.lost.take()) {
                        let _ = tell.send(Said::Missed(self.partition().clone(), lost)).await;
                    }
                    return Ok(());
                }
                Ok(()) => away.store(false, Ordering::Relaxed),
                Err(error) if error.kind() == SourceErrorKind::Retriable => {
                    let is_fault = is_fault(&error);
                    let goes_on = self.outage.goes_on(Instant::now(), is_fault);
                    if !goes_on {
                        return Err(error.into());
                    }
                    // All readers find out; one tells.
                    if !away.swap(true, Ordering::Relaxed) {
                        let failure = Failure::from(error);
                        let text = format!("{}; trying again", failure.text());
                        let _ = tell.send(Said::Note(text)).await;
                    }
                    // A hub that takes readers and fails them at once is not asked again and again without a pause.
                    if is_fault {
                        tokio::time::sleep(AWAY_PAUSE).await;
                    }
                    self.reopen().await?;
                }
                Err(error) => return Err(error.into()),
            }
        }
    }

    async fn reopen(&mut self) -> Result<(), Failure> {
        let give_up = Instant::now() + AWAY_TIME_MAX;
        loop {
            match self.source.open(self.request.clone()).await {
                Ok(reader) => {
                    self.reader = reader;
                    self.outage.opened = Instant::now();
                    return Ok(());
                }
                Err(error) if error.kind() == SourceErrorKind::Retriable && Instant::now() < give_up => {
                    tokio::time::sleep(AWAY_PAUSE).await;
                }
                Err(error) => return Err(error.into()),
            }
        }
    }
}

/// Whether the hub says that it failed itself.
fn is_fault(error: &SourceError) -> bool {
    let inner = error.source().and_then(|inner| inner.downcast_ref::<EventHubsError>());
    inner.and_then(EventHubsError::condition) == Some(INTERNAL_ERROR)
}

/// Whether the hub asks to come back later. One that does not answer at all is told at once.
fn is_busy(error: &SourceError) -> bool {
    let inner = error.source().and_then(|inner| inner.downcast_ref::<EventHubsError>());
    inner.is_some_and(EventHubsError::is_busy)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_outage_ends_with_an_event_or_a_steady_reader_and_not_with_a_reader_that_fails_at_once() {
        let start = Instant::now();
        let at = |seconds: u64| start + Duration::from_secs(seconds);
        let mut outage = Outage::new(start);
        for second in 0..60 {
            assert!(outage.goes_on(at(second), false), "{second}");
            outage.opened = at(second);
        }
        assert!(!outage.goes_on(at(60), false), "a minute without an event");
        // The hub was well for a while, and goes away once more.
        assert!(outage.goes_on(at(90), false));
    }

    #[test]
    fn a_hub_that_fails_itself_again_and_again_is_not_asked_for_a_minute() {
        let start = Instant::now();
        let mut outage = Outage::new(start);
        assert!(outage.goes_on(start, true) && outage.goes_on(start, true) && !outage.goes_on(start, true));
    }
}
