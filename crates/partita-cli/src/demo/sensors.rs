//! The stream: homes with sensors that report to one hub, and what a processor does with a report.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use futures_util::future::join_all;
use partita::handler::HandlerResult;
use partita::model::EventBuilder;
use partita::{Event, Timestamp};
use partita_hub::broker::{self, Hub, Route};
use partita_hub::producer::HubProducer as Sender;
use serde::{Deserialize, Serialize};

const HOMES: usize = 10_000;

/// One event in so many is a pane of glass that breaks.
const EVENTS_PER_BREAK: u32 = 1_000;

/// How long the alarm centre takes to answer.
const ALARM_CALL: Duration = Duration::from_millis(2);

/// How often the producer sends what is due, and how many events at once at most.
const SEND_EVERY: Duration = Duration::from_millis(1);
const SEND_EVENTS_MAX: u64 = 4_096;

/// How long to wait when the hub takes nothing.
const SEND_AGAIN: Duration = Duration::from_millis(200);

#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum Sensor {
    Motion,
    Door,
    Window,
    GlassBreak,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum State {
    Detected,
    Opened,
    Closed,
    Broken,
}

/// The body of an event.
#[derive(Debug, Serialize, Deserialize)]
struct Reading<'a> {
    home: &'a str,
    sensor: Sensor,
    state: State,
    battery_percent: u8,
    measured_ms: i64,
}

struct Home {
    id: String,
    partition: usize,
    door_open: bool,
    window_open: bool,
    battery_percent: u8,
}

/// Homes that report by turns, the same for the same seed.
struct Homes {
    homes: Vec<Home>,
    rng: fastrand::Rng,
}

impl Homes {
    fn new(partitions: usize, seed: u64) -> Self {
        let mut rng = fastrand::Rng::with_seed(seed);
        let homes = (0..HOMES)
            .map(|number| {
                let id = format!("house-{number:05}");
                Home {
                    partition: partition_of(&id, partitions),
                    id,
                    door_open: false,
                    window_open: rng.bool(),
                    battery_percent: rng.u8(5..=100),
                }
            })
            .collect();
        Self { homes, rng }
    }

    /// The next report and the partition that it belongs to.
    fn report(&mut self, now: Timestamp) -> (usize, EventBuilder) {
        let home = &mut self.homes[self.rng.usize(..HOMES)];
        let toggle = |open: &mut bool| {
            *open = !*open;
            if *open { State::Opened } else { State::Closed }
        };
        let (sensor, state) = match self.rng.u32(..EVENTS_PER_BREAK) {
            0 => (Sensor::GlassBreak, State::Broken),
            n if n % 10 < 7 => (Sensor::Motion, State::Detected),
            n if n % 10 < 9 => (Sensor::Door, toggle(&mut home.door_open)),
            _ => (Sensor::Window, toggle(&mut home.window_open)),
        };
        let reading = Reading {
            home: &home.id,
            sensor,
            state,
            battery_percent: home.battery_percent,
            measured_ms: now.millis(),
        };
        let body = serde_json::to_vec(&reading).expect("a reading is plain data");
        (home.partition, Event::builder(body).partition_key(&home.id))
    }
}

/// The partition of a key, as the service would choose it: all reports of a home stay in order.
fn partition_of(key: &str, partitions: usize) -> usize {
    broker::partition_of(key, partitions as u32) as usize
}

/// What a processor does with an event: reads it and, if glass broke, calls the alarm centre.
pub(crate) async fn handle(event: &Event) -> HandlerResult {
    let bytes = event.bytes().ok_or("a sensor's report has bytes")?;
    let reading: Reading<'_> = serde_json::from_slice(&bytes)?;
    if reading.sensor == Sensor::GlassBreak {
        tokio::time::sleep(ALARM_CALL).await;
    }
    Ok(())
}

/// Sends reports to a hub, on a thread of its own, until it is stopped.
pub(crate) struct Producer {
    shared: Arc<Shared>,
    thread: JoinHandle<()>,
}

impl Producer {
    pub(crate) fn start(hub: &Arc<Hub>, events_per_second: u32, seed: u64) -> std::io::Result<Self> {
        let shared = Arc::new(Shared::default());
        let (sender, partitions) = (Sender::new(Arc::clone(hub)), hub.partitions() as usize);
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build()?;
        let thread = std::thread::Builder::new().name("producer".to_owned()).spawn({
            let shared = Arc::clone(&shared);
            move || runtime.block_on(produce(&sender, partitions, events_per_second, seed, &shared))
        })?;
        Ok(Self { shared, thread })
    }

    /// Ends the stream and tells what became of it.
    pub(crate) fn stop(self) -> Result<Sent, String> {
        self.shared.stop.store(true, Ordering::Release);
        self.thread.join().map_err(|_| "the producer of the demo's events panicked".to_owned())?;
        let Shared { acknowledged, unknown, .. } = &*self.shared;
        Ok(Sent {
            acknowledged: acknowledged.load(Ordering::Acquire),
            unknown: unknown.load(Ordering::Acquire),
        })
    }

    /// Why the hub took nothing just now, if it did not; asked once, it is told once.
    pub(crate) fn trouble(&self) -> Option<String> {
        self.shared.trouble.lock().unwrap_or_else(PoisonError::into_inner).take()
    }
}

/// What became of the events.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Sent {
    /// The hub has them.
    pub(crate) acknowledged: u64,
    /// Refused by the hub, but it may have them all the same.
    pub(crate) unknown: u64,
}

#[derive(Debug, Default)]
struct Shared {
    stop: AtomicBool,
    acknowledged: AtomicU64,
    unknown: AtomicU64,
    trouble: Mutex<Option<String>>,
}

async fn produce(sender: &Sender, partitions: usize, events_per_second: u32, seed: u64, shared: &Shared) {
    let mut homes = Homes::new(partitions, seed);
    let begun = Instant::now();
    let mut total = 0;
    while !shared.stop.load(Ordering::Acquire) {
        let due = (begun.elapsed().as_secs_f64() * f64::from(events_per_second)) as u64;
        let count = due.saturating_sub(total).min(SEND_EVENTS_MAX);
        let now = Timestamp::now();
        let mut due_to: Vec<Vec<EventBuilder>> = vec![Vec::new(); partitions];
        for _ in 0..count {
            let (partition, event) = homes.report(now);
            due_to[partition].push(event);
        }
        let sends = due_to.into_iter().enumerate().filter(|(_, events)| !events.is_empty());
        // What waits while a write is under way goes with the next one.
        join_all(sends.map(|(partition, events)| send(sender, partition, events, shared))).await;
        total += count;
        if total >= due {
            tokio::time::sleep(SEND_EVERY).await;
        }
    }
}

/// Sends until the hub takes the events, or the stream ends.
async fn send(sender: &Sender, partition: usize, events: Vec<EventBuilder>, shared: &Shared) {
    let count = events.len() as u64;
    let route = Route::Partition(partition as u32);
    while let Err(error) = sender.send_batch(route, events.clone()).await {
        *shared.trouble.lock().unwrap_or_else(PoisonError::into_inner) = Some(error.to_string());
        if error.may_have_happened() {
            shared.unknown.fetch_add(count, Ordering::AcqRel);
        }
        if !error.is_retriable() || shared.stop.load(Ordering::Acquire) {
            return;
        }
        tokio::time::sleep(SEND_AGAIN).await;
    }
    shared.acknowledged.fetch_add(count, Ordering::AcqRel);
}

#[cfg(test)]
mod tests {
    use partita::{Offset, SequenceNumber};

    use super::*;

    fn reports(seed: u64) -> Vec<(usize, Event)> {
        let mut homes = Homes::new(16, seed);
        (0..2_000)
            .map(|n| {
                let (partition, event) = homes.report(Timestamp(0));
                (partition, event.at(SequenceNumber(n), Offset::number(0), Timestamp(0)))
            })
            .collect()
    }

    #[test]
    fn the_same_seed_gives_the_same_stream() {
        assert_eq!(reports(7), reports(7));
        assert_ne!(reports(7), reports(8));
    }

    #[test]
    fn a_report_is_json_keyed_by_its_home_in_the_partition_of_that_home() {
        for (partition, event) in reports(1) {
            let bytes = event.bytes().unwrap();
            let reading: Reading<'_> = serde_json::from_slice(&bytes).unwrap();
            assert_eq!(event.partition_key(), Some(reading.home));
            assert_eq!(partition, partition_of(reading.home, 16));
        }
    }

    #[test]
    fn homes_spread_over_all_partitions() {
        let mut homes_of = [0; 16];
        Homes::new(16, 1).homes.iter().for_each(|home| homes_of[home.partition] += 1);
        assert!(homes_of.iter().all(|&homes| homes > HOMES / 32), "{homes_of:?}");
    }

    #[tokio::test]
    async fn every_report_can_be_handled_and_nothing_else() {
        for (_, event) in reports(1) {
            handle(&event).await.unwrap();
        }
        let other = Event::builder("no json").at(SequenceNumber(0), Offset::number(0), Timestamp(0));
        assert!(handle(&other).await.is_err());
    }
}
