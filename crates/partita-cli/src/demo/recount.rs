//! The independent reader: reads the whole stream from the source again and compares it with what was handled.

use std::sync::Arc;
use std::time::Duration;

use partita::source::ReadRequest;
use partita::{ConsumerGroup, EventSource, PartitionId, Position};

use super::ledger::{Span, number_of};

/// The consumer group of the independent reader.
pub(crate) const GROUP: &str = "recount";

/// How long the source may keep the reader waiting for an event that it says it has.
const READ_MAX: Duration = Duration::from_secs(10);

const READ_EVENTS: usize = 1_000;

/// What the source holds against what was handled.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Recount {
    /// Events in the source.
    pub(crate) produced: u64,
    /// Of these, handled at least once.
    pub(crate) processed: u64,
    /// Never handled: of these, or of those that retention took meanwhile.
    pub(crate) lost: u64,
    /// Handled, but not in the source.
    pub(crate) made_up: u64,
}

/// Reads every partition from its earliest event to its end, in a consumer group of its own. `taken` is how many events each
/// partition ever took. Events before `since` do not count: nothing is known of them.
pub(crate) async fn recount(
    source: &dyn EventSource,
    taken: &[u64],
    spans: &[Vec<Span>],
    since: &[i64],
) -> Result<Recount, String> {
    let hub = source.describe().await.map_err(|error| error.to_string())?;
    let mut total = Recount::default();
    for partition in &hub.partitions {
        let spans = spans.get(number_of(partition)).map_or(&[][..], Vec::as_slice);
        let taken = taken.get(number_of(partition)).copied().unwrap_or(0);
        let sequences = read_all(source, partition, taken)
            .await
            .map_err(|why| format!("partition {partition}: {why}"))?;
        let since = since.get(number_of(partition)).copied().unwrap_or(0);
        let counted = compare(&sequences, spans, since);
        total.produced += counted.produced;
        total.processed += counted.processed;
        total.lost += counted.lost;
        total.made_up += counted.made_up;
    }
    Ok(total)
}

/// The sequence numbers of a partition's events, as the source gives them.
async fn read_all(source: &dyn EventSource, partition: &PartitionId, taken: u64) -> Result<Vec<i64>, String> {
    let request = ReadRequest {
        group: ConsumerGroup::new(GROUP),
        partition: partition.clone(),
        from: Position::Earliest,
        owner_level: None,
        name: Arc::from(GROUP),
        prefetch_events: READ_EVENTS,
        prefetch_bytes: 4 * 1_024 * 1_024,
    };
    let mut reader = source.open(request).await.map_err(|error| error.to_string())?;
    let end = taken.checked_sub(1).map(u64::cast_signed);
    let mut sequences: Vec<i64> = Vec::new();
    let mut events = Vec::new();
    while sequences.last().copied() < end {
        let read = tokio::time::timeout(READ_MAX, reader.read(READ_EVENTS, &mut events)).await;
        read.map_err(|_| format!("the source gave nothing for {READ_MAX:?} before its end"))?
            .map_err(|error| error.to_string())?;
        sequences.extend(events.drain(..).map(|event| event.sequence_number().0));
    }
    Ok(sequences)
}

/// Compares one partition's events, in order, with what was handled of it.
fn compare(sequences: &[i64], spans: &[Span], since: i64) -> Recount {
    let sequences = &sequences[sequences.partition_point(|sequence| *sequence < since)..];
    let handled = merged(spans);
    // What retention took can only be asked of the ledger: numbers have no holes.
    let first = sequences.first().copied().unwrap_or(since);
    let gone = first.abs_diff(since) - within(&handled, since, first);
    let mut ranges = handled.iter().peekable();
    let mut processed = 0;
    for sequence in sequences {
        while ranges.next_if(|(_, last)| last < sequence).is_some() {}
        processed += u64::from(ranges.peek().is_some_and(|(first, _)| first <= sequence));
    }
    let distinct = within(&handled, first, i64::MAX);
    let produced = sequences.len() as u64;
    Recount { produced, processed, lost: produced - processed + gone, made_up: distinct - processed }
}

/// How many numbers of the ranges lie from `first` on and before `end`.
fn within(ranges: &[(i64, i64)], first: i64, end: i64) -> u64 {
    let part = |(from, to): &(i64, i64)| {
        let (from, to) = ((*from).max(first), to.saturating_add(1).min(end));
        if from < to { to.abs_diff(from) } else { 0 }
    };
    ranges.iter().map(part).sum()
}

/// The sequence numbers handled, as ranges that do not touch.
fn merged(spans: &[Span]) -> Vec<(i64, i64)> {
    let mut ranges: Vec<(i64, i64)> = spans.iter().map(|span| (span.first, span.last)).collect();
    ranges.sort_unstable();
    let mut merged: Vec<(i64, i64)> = Vec::new();
    for (first, last) in ranges {
        match merged.last_mut() {
            Some(before) if first <= before.1 + 1 => before.1 = before.1.max(last),
            _ => merged.push((first, last)),
        }
    }
    merged
}

#[cfg(test)]
mod tests {
    use partita::{Event, MemoryHub};

    use super::super::testing::span;
    use super::*;

    async fn count(handled: &[Vec<Span>]) -> Recount {
        let hub = MemoryHub::new("homes", 2);
        for _ in 0..10 {
            hub.append(&"0".into(), Event::builder("x"));
        }
        let taken: Vec<u64> = hub.description().partitions.iter().map(|id| hub.len(id)).collect();
        recount(&hub.source(), &taken, handled, &[0, 0]).await.unwrap()
    }

    #[tokio::test]
    async fn all_handled_is_nothing_lost() {
        let handled = [vec![span("a", 1, 0..=5), span("b", 2, 6..=9)], vec![]];
        assert_eq!(count(&handled).await, Recount { produced: 10, processed: 10, lost: 0, made_up: 0 });
    }

    #[tokio::test]
    async fn planted_losses_are_found_in_the_middle_and_at_both_ends() {
        let handled = [vec![span("a", 1, 1..=3), span("b", 2, 5..=8)], vec![]];
        assert_eq!(count(&handled).await, Recount { produced: 10, processed: 7, lost: 3, made_up: 0 });
        assert_eq!(count(&[vec![], vec![]]).await.lost, 10);
    }

    #[test]
    fn what_retention_took_still_counts_and_what_was_before_the_ledger_does_not() {
        let sequences: Vec<i64> = (10..20).collect();
        let handled = [span("a", 1, 3..=7), span("b", 2, 10..=18)];
        let counted = compare(&sequences, &handled, 3);
        assert_eq!(counted, Recount { produced: 10, processed: 9, lost: 2 + 1, made_up: 0 });
        let later = compare(&sequences, &handled, 15);
        assert_eq!(later, Recount { produced: 5, processed: 4, lost: 1, made_up: 0 });
    }

    #[tokio::test]
    async fn an_event_handled_twice_is_processed_once() {
        let handled = [vec![span("a", 1, 0..=7), span("b", 2, 4..=9), span("b", 2, 2..=3)], vec![]];
        assert_eq!(count(&handled).await, Recount { produced: 10, processed: 10, lost: 0, made_up: 0 });
    }

    #[tokio::test]
    async fn what_the_source_does_not_have_is_not_processed() {
        let handled = [vec![span("a", 1, 0..=9)], vec![span("a", 1, 0..=2)]];
        assert_eq!(count(&handled).await, Recount { produced: 10, processed: 10, lost: 0, made_up: 3 });
    }
}
