//! Who handled which event when: written by the handlers, read by the recount. Consecutive events of one owner are
//! one span, so a long run costs no more memory than a short one.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use super::journal::{Former, Journal};
use partita::{Context, Epoch, Event, InstanceId, PartitionId, SequenceNumber, Timestamp};

/// A call that handled one event.
#[derive(Clone, Debug)]
pub(crate) struct Call {
    pub(crate) sequence: i64,
    pub(crate) epoch: Epoch,
    pub(crate) enqueued: Timestamp,
    /// Times count from the beginning of the run.
    pub(crate) begun: Duration,
    pub(crate) ended: Duration,
}

/// Consecutive events handled by one instance at one epoch.
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct Span {
    /// Which run of the demo on this directory, from 1.
    pub(crate) run: u32,
    /// Its place in the journal, as long as it may grow.
    pub(crate) slot: Option<u64>,
    pub(crate) first: i64,
    pub(crate) last: i64,
    pub(crate) instance: InstanceId,
    pub(crate) epoch: Epoch,
    /// When the first event came to the hub.
    pub(crate) enqueued: Timestamp,
    /// When the first call began.
    pub(crate) begun: Duration,
    /// When the last call ended.
    pub(crate) ended: Duration,
}

/// The spans of one partition, in the order of handling.
#[derive(Debug, Default)]
pub(crate) struct Page {
    spans: Vec<Span>,
    /// Events before this one were handled before anything was written down.
    since: i64,
}

impl Page {
    /// Adds a call; the span that it made or extended.
    pub(crate) fn add(&mut self, run: u32, instance: &InstanceId, call: &Call) -> (&mut Span, bool) {
        let extends = self.spans.last().is_some_and(|span| {
            (span.run, span.epoch, span.last + 1) == (run, call.epoch, call.sequence)
                && span.instance == *instance
        });
        if !extends {
            self.spans.push(Span {
                run,
                slot: None,
                first: call.sequence,
                last: call.sequence,
                instance: instance.clone(),
                epoch: call.epoch,
                enqueued: call.enqueued,
                begun: call.begun,
                ended: call.ended,
            });
        }
        let span = self.spans.last_mut().expect("one was pushed if there was none");
        span.last = call.sequence;
        span.ended = call.ended;
        (span, !extends)
    }

    pub(crate) fn spans(&self) -> &[Span] {
        &self.spans
    }

    /// The sequence number after the highest one handled.
    fn end(&self) -> u64 {
        let end = self.spans.iter().map(|span| span.last + 1).max().unwrap_or(0);
        u64::try_from(end.max(self.since)).unwrap_or(0)
    }
}

/// All partitions' spans, shared by all handlers.
#[derive(Debug)]
pub(crate) struct Ledger {
    start: Instant,
    run: u32,
    journal: Option<Arc<Journal>>,
    pages: Vec<Mutex<Page>>,
    calls: AtomicU64,
}

impl Ledger {
    /// Goes on where former runs ended.
    pub(crate) fn new(start: Instant, former: &Former, journal: Option<Arc<Journal>>) -> Self {
        let spans = former.spans.iter().cloned().chain(std::iter::repeat_with(Vec::new));
        let page = |(since, spans): (&i64, Vec<Span>)| Mutex::new(Page { spans, since: *since });
        let pages = former.since.iter().zip(spans).map(page).collect();
        Self { start, run: former.runs + 1, journal, pages, calls: AtomicU64::new(0) }
    }

    /// Which run this is, from 1.
    pub(crate) fn run(&self) -> u32 {
        self.run
    }

    /// Time since the beginning of the run.
    pub(crate) fn now(&self) -> Duration {
        self.start.elapsed()
    }

    /// Writes down that an event was handled by a call that began at `begun` and ends now.
    pub(crate) fn handled(&self, event: &Event, cx: &Context, begun: Duration) {
        let SequenceNumber(sequence) = event.sequence_number();
        let call =
            Call { sequence, epoch: cx.epoch(), enqueued: event.enqueued_time(), begun, ended: self.now() };
        let partition = number_of(cx.partition());
        let mut page = self.page(partition);
        let (span, is_new) = page.add(self.run, cx.instance(), &call);
        // Before the call ends, so that nothing is checkpointed that is not written down.
        match (&self.journal, span.slot) {
            (Some(journal), Some(slot)) if !is_new => journal.extend(slot, span.last),
            (Some(journal), _) => span.slot = Some(journal.span(partition, span)),
            (None, _) => {}
        }
        drop(page);
        self.calls.fetch_add(1, Ordering::Relaxed);
    }

    /// How many calls have ended.
    pub(crate) fn calls(&self) -> u64 {
        self.calls.load(Ordering::Relaxed)
    }

    /// How many events are behind, given how many each partition holds.
    pub(crate) fn lag(&self, held: impl IntoIterator<Item = u64>) -> u64 {
        held.into_iter().enumerate().map(|(at, held)| held.saturating_sub(self.page(at).end())).sum()
    }

    /// What was written down, partition by partition.
    pub(crate) fn spans(&self) -> Vec<Vec<Span>> {
        (0..self.pages.len()).map(|at| self.page(at).spans().to_vec()).collect()
    }

    fn page(&self, at: usize) -> std::sync::MutexGuard<'_, Page> {
        self.pages[at].lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The demo's partitions are numbered.
pub(crate) fn number_of(partition: &PartitionId) -> usize {
    partition.as_str().parse().expect("the demo's hubs number their partitions")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn call(sequence: i64, epoch: u64, at_ms: u64) -> Call {
        let begun = Duration::from_millis(at_ms);
        Call {
            sequence,
            epoch: Epoch(epoch),
            enqueued: Timestamp(0),
            begun,
            ended: begun + Duration::from_millis(1),
        }
    }

    #[test]
    fn consecutive_calls_of_one_owner_are_one_span() {
        let mut page = Page::default();
        let (a, b) = (InstanceId::new("a"), InstanceId::new("b"));
        for n in 0..100 {
            page.add(1, &a, &call(n, 1, n as u64));
        }
        page.add(1, &b, &call(100, 2, 200));
        let [first, second] = page.spans() else { panic!("{page:?}") };
        assert_eq!(
            (first.first, first.last, first.begun.as_millis(), first.ended.as_millis()),
            (0, 99, 0, 100)
        );
        assert_eq!((second.first, second.instance.as_str()), (100, "b"));
        assert_eq!(page.end(), 101);
    }

    #[test]
    fn a_step_back_and_a_step_over_begin_a_new_span() {
        let mut page = Page::default();
        let a = InstanceId::new("a");
        for n in [0, 1, 1, 2, 5] {
            page.add(1, &a, &call(n, 1, 0));
        }
        let ranges: Vec<(i64, i64)> = page.spans().iter().map(|span| (span.first, span.last)).collect();
        assert_eq!(ranges, [(0, 1), (1, 2), (5, 5)]);
    }

    #[test]
    fn lag_is_what_lies_behind_the_furthest_event_handled() {
        let former = Former { since: vec![0, 1], ..Former::default() };
        let ledger = Ledger::new(Instant::now(), &former, None);
        ledger.page(0).add(1, &InstanceId::new("a"), &call(6, 1, 0));
        assert_eq!(ledger.lag([10, 4]), 3 + 3);
    }
}
