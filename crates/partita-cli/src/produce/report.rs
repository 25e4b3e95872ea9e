//! Where the events went.

use std::time::Duration;

use futures_util::future::join_all;
use partita_core::model::LastEnqueued;
use partita_sources::eventhubs::EventHubs;
use serde_json::{Value, json};

use super::sending::{Sending, Sent};
use crate::Failure;
use crate::output::{Out, counted, grouped};
use crate::table;
use crate::units::Size;

/// What a partition's events are numbered.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Numbers {
    /// From the first to the last.
    These(i64, i64),
    /// Within these: others sent to the partition, too.
    Within(i64, i64),
    Unknown,
}

/// The numbers of events that were sent between two looks at a partition's end.
fn numbers(before: Option<&LastEnqueued>, after: Option<&LastEnqueued>, sent: u64) -> Numbers {
    let last = |end: &LastEnqueued| end.position.as_ref().map_or(-1, |position| position.sequence.0);
    let (Some(before), Some(after)) = (before.map(last), after.map(last)) else { return Numbers::Unknown };
    match u64::try_from(after - before) {
        Ok(new) if new == sent => Numbers::These(before + 1, after),
        Ok(new) if new > sent => Numbers::Within(before + 1, after),
        _ => Numbers::Unknown,
    }
}

/// How long the hub may take to say where its partitions end now. Without it the numbers are not shown.
const ASK_TIME_MAX: Duration = Duration::from_secs(5);

/// Where the partitions that got events end now, if the hub says so.
async fn ends(client: Option<&EventHubs>, sent: &[Sent]) -> Vec<Option<LastEnqueued>> {
    let ask = async |client: &EventHubs| {
        join_all(sent.iter().map(async |part| Some(client.partition(&part.partition).await.ok()?.end))).await
    };
    let asked = match client {
        Some(client) => tokio::time::timeout(ASK_TIME_MAX, ask(client)).await.ok(),
        None => None,
    };
    asked.unwrap_or_else(|| vec![None; sent.len()])
}

/// What was sent, and where it is.
pub(crate) struct Report {
    hub: String,
    rows: Vec<(Sent, Numbers)>,
    took: Duration,
}

impl Report {
    /// Asks where the events are, if there is a client to ask.
    pub(crate) async fn of(client: Option<&EventHubs>, hub: &str, sending: &Sending, took: Duration) -> Self {
        let sent = sending.sent();
        let ends = ends(client, &sent).await;
        let rows = sent.into_iter().zip(ends).map(|(part, after)| {
            let numbers = numbers(part.before.as_ref(), after.as_ref(), part.events);
            (part, numbers)
        });
        Self { hub: hub.to_owned(), rows: rows.collect(), took }
    }

    fn sent(&self) -> (u64, u64) {
        self.rows.iter().fold((0, 0), |(events, bytes), (part, _)| (events + part.events, bytes + part.bytes))
    }

    /// For programs.
    pub(crate) fn json(&self) -> Value {
        let (events, bytes) = self.sent();
        let row = |(part, numbers): &(Sent, Numbers)| {
            let (first, last, exact) = match *numbers {
                Numbers::These(first, last) => (json!(first), json!(last), true),
                Numbers::Within(first, last) => (json!(first), json!(last), false),
                Numbers::Unknown => (Value::Null, Value::Null, false),
            };
            json!({
                "id": part.partition.as_str(),
                "events": part.events,
                "first_sequence": first,
                "last_sequence": last,
                // Else others sent there, too, and the numbers are within these.
                "exact": exact,
            })
        };
        json!({
            "hub": self.hub,
            "events": events,
            "bytes": bytes,
            "seconds": self.took.as_secs_f64(),
            "partitions": self.rows.iter().map(row).collect::<Vec<_>>(),
        })
    }

    /// For people.
    pub(crate) fn print(&self, out: &mut Out) -> Result<(), Failure> {
        let (hub, (sent, bytes)) = (&self.hub, self.sent());
        let size = Size(bytes);
        let rate = (sent as f64 / self.took.as_secs_f64().max(0.001)) as u64;
        let speed = match sent {
            0..=99 => String::new(),
            _ => format!(" in {:.1} s ({}/s, {size})", self.took.as_secs_f64(), grouped(rate)),
        };
        match self.rows.as_slice() {
            [] => out.line(&format!("Sent no events to {hub}."))?,
            [(part, numbers)] => {
                let events = counted(sent, "event");
                out.line(&format!(
                    "Sent {events} to partition {} of {hub}{speed}{}.",
                    part.partition,
                    said(*numbers)
                ))?;
            }
            rows => {
                out.line(&format!("Sent {} to {hub}{speed}:", counted(sent, "event")))?;
                table::print(
                    out,
                    &COLUMNS,
                    rows.iter().map(|(part, numbers)| row(part, *numbers)).collect(),
                )?;
                if rows.iter().any(|(_, numbers)| matches!(numbers, Numbers::Within(..))) {
                    out.line("Where it says ~, the numbers are within these: others sent, too, or events were sent again after a lost answer.")?;
                }
            }
        }
        Ok(())
    }
}

const COLUMNS: [table::Column; 4] = [("PARTITION", true), ("EVENTS", true), ("FIRST", true), ("LAST", true)];

fn row(part: &Sent, numbers: Numbers) -> Vec<String> {
    let (first, last) = match numbers {
        Numbers::These(first, last) => (first.to_string(), last.to_string()),
        Numbers::Within(first, last) => (format!("~{first}"), format!("~{last}")),
        Numbers::Unknown => ("-".to_owned(), "-".to_owned()),
    };
    vec![part.partition.to_string(), grouped(part.events), first, last]
}

fn said(numbers: Numbers) -> String {
    match numbers {
        Numbers::These(first, last) if first == last => format!(", number {first}"),
        Numbers::These(first, last) => format!(", numbers {first} to {last}"),
        Numbers::Within(first, last) => format!(
            ", numbers within {first} to {last}: others sent, too, or events were sent again after a lost answer"
        ),
        Numbers::Unknown => String::new(),
    }
}

#[cfg(test)]
mod tests {
    use partita_core::model::{Offset, SequenceNumber, StreamPosition, Timestamp};

    use super::*;

    #[test]
    fn numbers_are_known_if_nobody_else_sent() {
        let end = |last: i64| LastEnqueued {
            position: (last >= 0).then(|| StreamPosition::new(SequenceNumber(last), Offset::number(0))),
            enqueued_time: None,
            retrieved: Timestamp(0),
        };
        assert_eq!(numbers(Some(&end(-1)), Some(&end(2)), 3), Numbers::These(0, 2));
        assert_eq!(numbers(Some(&end(4)), Some(&end(9)), 3), Numbers::Within(5, 9));
        assert_eq!(numbers(None, Some(&end(9)), 3), Numbers::Unknown);
        // The hub was reset meanwhile.
        assert_eq!(numbers(Some(&end(9)), Some(&end(2)), 3), Numbers::Unknown);
    }
}
