//! Who handled which event when: written by the handlers, read by the recount. Consecutive events of one owner are
//! one span, so a long run costs no more memory than a short one.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

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
pub(crate) struct Page(Vec<Span>);

impl Page {
    pub(crate) fn add(&mut self, instance: &InstanceId, call: &Call) {
        match self.0.last_mut() {
            Some(span)
                if span.epoch == call.epoch
                    && call.sequence == span.last + 1
                    && span.instance == *instance =>
            {
                span.last = call.sequence;
                span.ended = call.ended;
            }
            _ => self.0.push(Span {
                first: call.sequence,
                last: call.sequence,
                instance: instance.clone(),
                epoch: call.epoch,
                enqueued: call.enqueued,
                begun: call.begun,
                ended: call.ended,
            }),
        }
    }

    pub(crate) fn spans(&self) -> &[Span] {
        &self.0
    }

    /// The sequence number after the highest one handled.
    fn end(&self) -> u64 {
        self.0.iter().map(|span| u64::try_from(span.last + 1).unwrap_or(0)).max().unwrap_or(0)
    }
}

/// All partitions' spans, shared by all handlers.
#[derive(Debug)]
pub(crate) struct Ledger {
    start: Instant,
    pages: Vec<Mutex<Page>>,
    calls: AtomicU64,
}

impl Ledger {
    pub(crate) fn new(start: Instant, partitions: usize) -> Self {
        Self { start, pages: (0..partitions).map(|_| Mutex::default()).collect(), calls: AtomicU64::new(0) }
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
        self.page(number_of(cx.partition())).add(cx.instance(), &call);
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
    partition.as_str().parse().expect("a hub in memory numbers its partitions")
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
        (0..100).for_each(|n| page.add(&a, &call(n, 1, n as u64)));
        page.add(&b, &call(100, 2, 200));
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
        [0, 1, 1, 2, 5].into_iter().for_each(|n| page.add(&a, &call(n, 1, 0)));
        let ranges: Vec<(i64, i64)> = page.spans().iter().map(|span| (span.first, span.last)).collect();
        assert_eq!(ranges, [(0, 1), (1, 2), (5, 5)]);
    }

    #[test]
    fn lag_is_what_lies_behind_the_furthest_event_handled() {
        let ledger = Ledger::new(Instant::now(), 2);
        ledger.page(0).add(&InstanceId::new("a"), &call(6, 1, 0));
        assert_eq!(ledger.lag([10, 4]), 3 + 4);
    }
}
