//! What happens to a fleet.

use std::sync::Arc;
use std::time::Duration;

use partita_core::model::{ConsumerGroup, Epoch, InstanceId, PartitionId, Position};
use partita_core::source::{ReadRequest, SourceErrorKind};
use tokio::time::Instant;

use super::{Deed, Fleet};
use crate::faults::{Fault, ReaderFault};
use crate::store::Order;

/// More than this are not started: they would only be slow.
const INSTANCES_MAX: usize = 7;
/// More than this are not made.
const PARTITIONS_MAX: u32 = 16;

impl Fleet<'_> {
    /// Does what ambushes have ordered.
    pub(super) fn carry_out(&mut self) {
        let orders = std::mem::take(&mut self.weather().orders);
        for order in orders {
            match order {
                Order::Crash(name) => self.crash(&name, Some(Duration::from_millis(1_500))),
                Order::Freeze(name, time, then_cut) => self.freeze(&name, time, then_cut),
            }
        }
    }

    fn pick(&self, index: usize) -> Option<InstanceId> {
        // By age, so that the oldest comes first.
        let mut names: Vec<&InstanceId> = self.members.keys().collect();
        names.sort_by_key(|name| (name.as_str().len(), name.as_str()));
        (!names.is_empty()).then(|| names[index % names.len()].clone())
    }

    pub(super) fn crash(&mut self, name: &InstanceId, restart: Option<Duration>) {
        if let Some(member) = self.members.remove(name) {
            let mut oracle = self.oracle.lock();
            oracle.counts.crashes += 1;
            oracle.ended(name);
            drop(oracle);
            member.process.kill();
            self.agenda.extend(restart.map(|after| (Instant::now() + after, Deed::Restart)));
        }
    }

    fn freeze(&mut self, name: &InstanceId, time: Duration, then_cut: Option<Duration>) {
        if let Some(member) = self.members.get_mut(name)
            && !member.frozen
        {
            member.frozen = true;
            member.process.freeze();
            self.oracle.lock().frozen(name);
            self.agenda.push((Instant::now() + time, Deed::Thaw(name.clone(), then_cut)));
        }
    }

    /// The hub is gone, for a while.
    pub(super) fn hub_ends(&mut self, down: Duration) {
        let power_cut = self.hub.is_off();
        let mut oracle = self.oracle.lock();
        oracle.note(format_args!("hub down, power cut {power_cut}"));
        match power_cut {
            true => oracle.counts.power_cuts += 1,
            false => oracle.counts.hub_kills += 1,
        }
        drop(oracle);
        self.hub.kill();
        self.thieves.clear();
        self.source_weather.down(Instant::now() + down);
        self.agenda.push((Instant::now() + down, Deed::StartHub));
    }

    pub(super) async fn inflict(&mut self, fault: &Fault) {
        let now = Instant::now();
        self.oracle.lock().note(format_args!("fault: {fault}"));
        match *fault {
            Fault::Crash { instance, restart } => {
                if let Some(name) = self.pick(instance) {
                    self.crash(&name, restart);
                }
            }
            Fault::Freeze { instance, time } => {
                if let Some(name) = self.pick(instance) {
                    self.freeze(&name, time, None);
                }
            }
            Fault::FreezeBusy { time } => {
                let frozen = |name: &InstanceId| self.members.get(name).is_none_or(|member| member.frozen);
                let busy = self.oracle.lock().in_call(|name| !frozen(name));
                if let Some(name) = busy {
                    self.freeze(&name, time, None);
                }
            }
            Fault::Flicker { lives } if self.members.len() < INSTANCES_MAX => {
                self.oracle.lock().counts.flickers += 1;
                let name = self.join();
                self.agenda.push((now + lives, Deed::Crash(name)));
            }
            Fault::Flicker { .. } => {}
            Fault::Join if self.members.len() < INSTANCES_MAX => drop(self.join()),
            Fault::Join => {}
            Fault::Leave { instance } => {
                let Some(name) = self.pick(instance) else { return };
                if let Some(stop) = self.members.get_mut(&name).and_then(|member| member.stop.take()) {
                    let mut oracle = self.oracle.lock();
                    oracle.counts.leaves += 1;
                    oracle.note(format_args!("leaves: {name}"));
                    let _ = stop.send(());
                }
            }
            Fault::Loss { percent, time } => self.weather().loss = (percent, now + time),
            Fault::Errors { percent, time } => self.weather().errors = (percent, now + time),
            Fault::Latency { most, time } => {
                self.oracle.lock().counts.slow_times += 1;
                self.weather().slow = (most, now + time);
            }
            Fault::Outage { refuses, time } => {
                self.oracle.lock().counts.outages += 1;
                let mut weather = self.weather();
                weather.outage = (refuses, weather.outage.1.max(now + time));
            }
            Fault::CutOff { instance, time } => {
                if let Some(name) = self.pick(instance) {
                    self.cut_off(&name, time);
                }
            }
            Fault::CutOffBusy { time } => {
                let busy = self.oracle.lock().busy();
                if let Some(name) = busy {
                    self.cut_off(&name, time);
                }
            }
            Fault::Ambush { at, blow, hits } => {
                let mut weather = self.weather();
                weather.ambushes.retain(|(other, _, _)| *other != at);
                weather.ambushes.push((at, blow, hits));
            }
            Fault::StoreClock { forward, by } => {
                self.oracle.lock().clock_jumped();
                let ms = by.as_millis() as i64;
                self.weather().jump(if forward { ms } else { -ms });
                if !forward {
                    self.set_back += by;
                }
            }
            Fault::WallClock { instance, forward, by } => {
                let Some(name) = self.pick(instance) else { return };
                self.oracle.lock().counts.clock_jumps += 1;
                let ms = by.as_millis() as i64;
                if let Some(member) = self.members.get(&name) {
                    member.process.jump(if forward { ms } else { -ms });
                }
            }
            Fault::ReaderFails { partition, kind } => {
                self.oracle.lock().counts.reader_errors += 1;
                let kind = match kind {
                    ReaderFault::Retriable => SourceErrorKind::Retriable,
                    ReaderFault::OwnershipLost => SourceErrorKind::OwnershipLost,
                    ReaderFault::Fatal => SourceErrorKind::Fatal,
                };
                let partition = self.partition(partition);
                if kind != SourceErrorKind::Retriable {
                    self.oracle.lock().reader_doomed(&partition);
                }
                self.source_weather.end_readers(&partition, kind);
            }
            Fault::Theft { partition, time } => self.steal_reader(partition, now + time).await,
            Fault::SourceDown { time } => {
                self.oracle.lock().counts.source_outages += 1;
                self.source_weather.down(now + time);
            }
            Fault::SourceCutOff { instance, time } => {
                let Some(name) = self.pick(instance) else { return };
                self.oracle.lock().counts.source_cut_offs += 1;
                self.source_weather.cut_off(&name, now + time);
            }
            Fault::Grow { count } if self.hub.partitions() + count <= PARTITIONS_MAX => {
                self.oracle.lock().counts.partitions_added += u64::from(count);
                self.hub.add_partitions(count);
            }
            Fault::Grow { .. } => {}
            Fault::HubKill { down } => self.hub_ends(down),
            Fault::PowerCut { down, .. } if self.world.plan.setup.extras.relaxed => self.hub_ends(down),
            Fault::PowerCut { calls, down } => {
                self.power_off_for = down;
                self.hub.hurt_disk(calls, true);
            }
            Fault::DiskError { calls } => {
                self.oracle.lock().counts.disk_errors += 1;
                self.hub.hurt_disk(calls, false);
            }
        }
    }

    fn partition(&self, index: usize) -> PartitionId {
        PartitionId::from(index as u32 % self.hub.partitions())
    }

    /// Lets a stranger read a partition at the highest level there is.
    async fn steal_reader(&mut self, partition: usize, until: Instant) {
        let Some(source) = (self.hub.source())() else { return };
        let stolen = self.partition(partition);
        let request = ReadRequest {
            group: ConsumerGroup::default(),
            partition: stolen.clone(),
            from: Position::Latest,
            owner_level: Some(Epoch(i64::MAX as u64)),
            name: Arc::from("stranger"),
            prefetch_events: 1,
            prefetch_bytes: 1,
        };
        if let Ok(reader) = source.open(request).await {
            let mut oracle = self.oracle.lock();
            oracle.counts.thefts += 1;
            oracle.reader_doomed(&stolen);
            drop(oracle);
            self.thieves.push((until, reader));
        }
    }
}
