//! The hub of a world: one in memory, or the real log on a simulated disk.

use std::sync::Arc;

use partita_core::model::{Event, PartitionId};
use partita_core::source::{EventSource, MemoryHub};

use crate::source::CurrentSource;

/// A hub that events are produced to.
pub(crate) trait SimHub {
    /// What instances read from, as it is at the time.
    fn source(&self) -> CurrentSource;

    /// How many partitions it has.
    fn partitions(&self) -> u32;

    /// Adds partitions; may fail.
    fn add_partitions(&mut self, count: u32);

    /// Appends an event; tells its number, or nothing if it was not acknowledged.
    fn append(&mut self, partition: u32, body: String) -> Option<u64>;

    /// How many events a partition has had.
    fn end(&self, partition: u32) -> u64;

    /// Does what is due once in a while; tells what is wrong, and how many segments retention has removed.
    fn keep_house(&mut self) -> Result<u64, String> {
        Ok(0)
    }

    /// What is wrong with it, if anything was found.
    fn complaint(&mut self) -> Option<String> {
        None
    }

    /// Ends its process, where it has one of its own.
    fn kill(&mut self) {}

    /// Lets the `calls`th call of its disk from now fail, or its power go off during it.
    fn hurt_disk(&mut self, calls: u64, power_cut: bool) {
        let _ = (calls, power_cut);
    }

    /// Whether its power went off.
    fn is_off(&self) -> bool {
        false
    }

    /// Whether it takes no more events until it is started again.
    fn needs_restart(&self) -> bool {
        false
    }

    /// Starts it again; tells if something acknowledged is missing.
    fn start(&mut self) -> Result<(), String> {
        Ok(())
    }

    /// Stays quiet until everything that it had is past its time, and tells how long that takes.
    fn retention(&self) -> Option<std::time::Duration> {
        None
    }
}

impl SimHub for MemoryHub {
    fn source(&self) -> CurrentSource {
        let source: Arc<dyn EventSource> = Arc::new(MemoryHub::source(self));
        Arc::new(move || Some(Arc::clone(&source)))
    }

    fn partitions(&self) -> u32 {
        self.description().partitions.len() as u32
    }

    fn add_partitions(&mut self, count: u32) {
        MemoryHub::add_partitions(self, count);
    }

    fn append(&mut self, partition: u32, body: String) -> Option<u64> {
        let partition = PartitionId::from(partition);
        MemoryHub::append(self, &partition, Event::builder(body));
        Some(self.len(&partition) - 1)
    }

    fn end(&self, partition: u32) -> u64 {
        self.len(&PartitionId::from(partition))
    }
}

#[cfg(feature = "log")]
pub(crate) use log::LogHub;

#[cfg(feature = "log")]
mod log {
    use std::collections::BTreeMap;
    use std::sync::{Arc, Mutex, PoisonError};
    use std::time::Duration;

    use partita_core::model::{Event, HubName, Offset, SequenceNumber, Timestamp};
    use partita_core::source::EventSource;
    use partita_hub::broker::{Broker, Hub, HubOptions, Route};
    use partita_hub::log::{BatchBuilder, Clock, Durability, Fault, Retention, Settings, SimDisk, When};
    use partita_hub::source::HubSource;
    use tokio::time::Instant;

    use super::SimHub;
    use crate::source::CurrentSource;

    /// How long events are kept.
    const AGE: Duration = Duration::from_secs(60);

    /// The real log on a disk that fails and loses power, in one thread.
    pub(crate) struct LogHub {
        disk: SimDisk,
        start: Instant,
        /// None while it is down.
        hub: Arc<Mutex<Option<Arc<Hub>>>>,
        broker: Option<Broker>,
        partitions: u32,
        /// Whether it acknowledges what the system has, rather than what is durable.
        relaxed: bool,
        /// Per partition: when each acknowledged event was enqueued.
        acknowledged: BTreeMap<u32, Vec<i64>>,
        wrong: Option<String>,
    }

    impl LogHub {
        pub(crate) fn new(partitions: u32, seed: u64, relaxed: bool) -> Self {
            let disk = SimDisk::new(seed);
            // Half of the worlds write through the page cache.
            disk.set_direct(seed & 1 == 0);
            let mut hub = Self {
                disk,
                start: Instant::now(),
                hub: Arc::default(),
                broker: None,
                partitions,
                relaxed,
                acknowledged: BTreeMap::new(),
                wrong: None,
            };
            hub.start().expect("an empty disk has lost nothing");
            hub
        }

        fn settings(&self) -> Settings {
            let start = self.start;
            let mut settings = Settings::new(1);
            settings.single_threaded = true;
            if self.relaxed {
                settings.durability = Durability::Never;
            }
            // Few, so that segments can be small.
            settings.producers_max = 16;
            settings.segment_bytes_first = 16 << 10;
            settings.segment_bytes_max = 32 << 10;
            settings.batch_bytes_max = 4 << 10;
            settings.group_bytes_max = 8 << 10;
            // Little, so that readers meet the disk, too.
            settings.tail_bytes_max = 8 << 10;
            settings.clock = Clock::new(move || 1_790_000_000_000 + start.elapsed().as_millis() as i64);
            settings
        }

        fn now_ms(&self) -> i64 {
            1_790_000_000_000 + self.start.elapsed().as_millis() as i64
        }

        fn current(&self) -> Option<Arc<Hub>> {
            self.hub.lock().unwrap_or_else(PoisonError::into_inner).clone()
        }

        fn set_current(&mut self, hub: Option<Arc<Hub>>) {
            *self.hub.lock().unwrap_or_else(PoisonError::into_inner) = hub;
        }

        /// Every acknowledged event that is not past its time is there.
        fn check(&mut self, hub: &Hub) -> Result<(), String> {
            let now = self.now_ms();
            for (partition, times) in &self.acknowledged {
                let Some(info) = hub.partition(*partition) else {
                    return Err(format!("L: the hub has lost partition {partition}"));
                };
                if info.next_seq < times.len() as u64 {
                    return Err(format!(
                        "L: partition {partition} ends at {}, but {} events were acknowledged",
                        info.next_seq,
                        times.len()
                    ));
                }
                let kept_from = times.partition_point(|time| now - time > AGE.as_millis() as i64);
                if info.first_seq > kept_from as u64 {
                    return Err(format!(
                        "L: partition {partition} begins at {}, but {kept_from} is not past its time",
                        info.first_seq
                    ));
                }
            }
            Ok(())
        }
    }

    impl SimHub for LogHub {
        fn source(&self) -> CurrentSource {
            let hub = Arc::clone(&self.hub);
            Arc::new(move || {
                let hub = hub.lock().unwrap_or_else(PoisonError::into_inner).clone()?;
                Some(Arc::new(HubSource::new(hub)) as Arc<dyn EventSource>)
            })
        }

        fn partitions(&self) -> u32 {
            self.partitions
        }

        fn add_partitions(&mut self, count: u32) {
            let Some(hub) = self.current() else { return };
            if hub.add_partitions(self.partitions + count).is_ok() {
                self.partitions += count;
            }
        }

        fn append(&mut self, partition: u32, body: String) -> Option<u64> {
            let hub = self.current()?;
            let event = Event::builder(body).at(SequenceNumber(0), Offset::number(0), Timestamp(0));
            let (mut bytes, mut batch) = (Vec::new(), BatchBuilder::default());
            partita_dialect::event::encode(&event, &mut bytes).expect("a text can be encoded");
            batch.push(&bytes);
            let batch = batch.finish().expect("one event is a batch");
            let placed = hub.send_and_wait(Route::Partition(partition), batch).ok()?;
            let times = self.acknowledged.entry(partition).or_default();
            // What was refused may have come to light after a restart: it was enqueued before.
            times.resize(placed.first_seq as usize, placed.time_ms);
            times.push(placed.time_ms);
            let first = hub.partition(partition).map(|info| info.first_seq);
            if first.is_none_or(|first| first > placed.first_seq) || hub.log().size().0 == 0 {
                let seq = placed.first_seq;
                self.wrong = Some(format!(
                    "L: event {seq} of partition {partition} was acknowledged and is not there"
                ));
            }
            Some(placed.first_seq)
        }

        fn complaint(&mut self) -> Option<String> {
            self.wrong.take()
        }

        fn end(&self, partition: u32) -> u64 {
            self.acknowledged.get(&partition).map_or(0, |times| times.len() as u64)
        }

        fn keep_house(&mut self) -> Result<u64, String> {
            let Some(hub) = self.current() else { return Ok(0) };
            if self.disk.is_off() {
                return Ok(0);
            }
            let before = hub.log().size().0;
            hub.log().keep_house();
            let removed = before.saturating_sub(hub.log().size().0) as u64;
            self.check(&hub)?;
            Ok(removed)
        }

        fn kill(&mut self) {
            self.set_current(None);
            self.broker = None;
        }

        fn hurt_disk(&mut self, calls: u64, power_cut: bool) {
            let at = When::Call(self.disk.calls() + calls);
            self.disk.plan(at, if power_cut { Fault::PowerOff } else { Fault::Eio });
        }

        fn is_off(&self) -> bool {
            self.disk.is_off()
        }

        fn needs_restart(&self) -> bool {
            self.current().is_some_and(|hub| self.disk.is_off() || hub.log().is_read_only())
        }

        fn start(&mut self) -> Result<(), String> {
            if self.disk.is_off() {
                self.disk.reboot();
            } else {
                self.disk.kill();
            }
            let opened = Broker::open_with(Arc::new(self.disk.clone()), "/data", self.settings());
            let (broker, _) = opened.map_err(|error| format!("L: the hub does not start again: {error}"))?;
            let name = HubName::new("simulated");
            let hub = match broker.hub(name.as_str()) {
                Some(hub) => hub,
                None if !self.acknowledged.is_empty() => return Err("L: the hub is gone".to_owned()),
                None => {
                    let retention = Retention { age: AGE, bytes_max: None };
                    let options = HubOptions { partitions: self.partitions, retention };
                    broker.create_hub(&name, options).map_err(|error| format!("L: {error}"))?
                }
            };
            // What was added and not confirmed may be there.
            self.partitions = self.partitions.max(hub.partitions());
            self.check(&hub)?;
            for partition in 0..self.partitions {
                if let Some(info) = hub.partition(partition) {
                    // What was not acknowledged and is there all the same counts as old as the last before it.
                    let times = self.acknowledged.entry(partition).or_default();
                    let last = times.last().copied().unwrap_or_default();
                    times.resize(info.next_seq as usize, last);
                }
            }
            self.broker = Some(broker);
            self.set_current(Some(hub));
            Ok(())
        }

        fn retention(&self) -> Option<Duration> {
            Some(AGE)
        }
    }
}
