//! What a fleet does once faults have stopped: becomes whole, keeps still, and catches up.

use std::collections::BTreeSet;
use std::sync::PoisonError;
use std::time::Duration;

use partita_core::model::{InstanceId, PartitionId};
use tokio::time::{Instant, sleep};

use super::{DISCOVERY, Deed, Fleet};

/// How long a healed group is watched: it must keep still.
const STILL: Duration = Duration::from_secs(10);

impl Fleet<'_> {
    /// Ends all faults and waits until the group is whole again.
    pub(super) async fn heal(&mut self) -> Option<Duration> {
        let calm = Instant::now();
        self.end_faults(calm);
        let bound = self.bound();
        // What was under way when the faults stopped may still cause moves: healed is what is healed in the end.
        let (mut healed, mut settled) = (None, None);
        loop {
            self.do_what_is_due(Instant::now());
            self.count_arrivals(calm, &mut settled);
            let alive: BTreeSet<InstanceId> = self.members.keys().cloned().collect();
            let leaving = self.members.iter().find(|(_, member)| member.stop.is_none());
            let unhealed = match leaving {
                Some((name, _)) => Some(format!("{name} is still leaving")),
                None => self.oracle.lock().unhealed(self.hub.partitions(), &alive),
            };
            match &unhealed {
                Some(_) => healed = None,
                None => {
                    healed.get_or_insert(calm.elapsed());
                }
            }
            if calm.elapsed() >= bound || !self.is_sound() {
                let mut oracle = self.oracle.lock();
                match unhealed {
                    Some(unhealed) => {
                        oracle
                            .violate(format!("8: not healed {bound:?} after the faults stopped: {unhealed}"));
                    }
                    None => oracle.check_arrivals(),
                }
                return healed;
            }
            sleep(Duration::from_millis(20)).await;
        }
    }

    fn end_faults(&mut self, calm: Instant) {
        self.weather().clear();
        self.source_weather.clear();
        self.thieves.clear();
        for member in self.members.values_mut() {
            *member.cut_until.lock().unwrap_or_else(PoisonError::into_inner) = calm;
        }
        self.agenda.retain(|(_, deed)| !matches!(deed, Deed::Cut(..)));
        for (at, deed) in &mut self.agenda {
            *at = calm;
            if let Deed::Thaw(_, then_cut) = deed {
                *then_cut = None;
            }
        }
        if self.hub.needs_restart() {
            self.hub_ends(Duration::ZERO);
        }
        self.source_weather.clear();
        self.do_what_is_due(calm);
        self.oracle.lock().set_calm();
        if self.members.values().all(|member| member.stop.is_none()) {
            self.join();
        }
    }

    /// How long healing may take: a ttl and three cycles, and what those need who are still busy with what was before.
    fn bound(&self) -> Duration {
        let (timing, setup) = (self.timing, &self.world.plan.setup);
        let drain = setup.drain_time;
        let mut bound = timing.ttl() + 3 * timing.cycle() + DISCOVERY + self.set_back;
        if self.members.values().any(|member| member.stop.is_none()) {
            // They may take their drain time, twice, and if they cannot leave in good order they are declared dead.
            bound += 2 * drain + 2 * timing.ttl();
        }
        // Calls that began before may take it, too.
        bound += setup.slow_call.map_or(Duration::ZERO, |(_, slow)| slow.min(drain));
        if let Some((_, blocking)) = setup.blocking_call {
            bound += blocking + drain + timing.cycle();
        }
        if setup.failing_calls > 0 {
            // The pause after a handler that could not be opened.
            bound += Duration::from_secs(4);
        }
        let counts = self.oracle.lock().counts;
        if counts.reader_errors > 0 || counts.blocking_calls > 0 || counts.steals > 0 {
            // What was given up, or could not be handed over, is left alone for a while.
            bound += setup.cool_down + timing.cycle();
        }
        if let Some(pace) = setup.pace {
            bound += timing.cycle() / 2 * self.hub.partitions().div_ceil(pace as u32);
        }
        bound
    }

    /// Counts moves once the membership is what it will be and everybody has seen it.
    fn count_arrivals(&mut self, calm: Instant, settled: &mut Option<(Instant, usize)>) {
        let mut oracle = self.oracle.lock();
        let members = oracle.members(calm).cloned().unwrap_or_default();
        let known: BTreeSet<&InstanceId> = members.iter().map(|member| member.id()).collect();
        let right = known.len() == members.len()
            && known.into_iter().eq(self.members.keys())
            && self.members.values().all(|member| member.stop.is_some());
        if !right {
            *settled = None;
            return;
        }
        let (since, counted) = settled.get_or_insert((Instant::now(), 0));
        if *counted == 0 && since.elapsed() >= self.timing.cycle() / 2 {
            *counted = 1;
            oracle.count_arrivals(self.hub.partitions());
        }
    }

    pub(super) async fn keep_still(&mut self) -> u64 {
        let healed = Instant::now();
        let mut moves = 0;
        let mut last = self.oracle.lock().last_move();
        while healed.elapsed() < STILL && self.is_sound() {
            self.produce();
            sleep(Duration::from_millis(100)).await;
            let latest = self.oracle.lock().last_move();
            moves += u64::from(latest > last.max(healed));
            last = latest;
        }
        moves
    }

    /// Waits until everything that was produced was handled; tells how much was not.
    pub(super) async fn catch_up(&mut self) -> u64 {
        let deadline = Instant::now() + Duration::from_secs(60);
        loop {
            let unhandled: u64 = (0..self.hub.partitions())
                .map(|number| {
                    let first = self.oracle.lock().first_unhandled(&PartitionId::from(number));
                    self.hub.end(number).saturating_sub(first.unsigned_abs())
                })
                .sum();
            if unhandled == 0 || Instant::now() > deadline || !self.is_sound() {
                return unhandled;
            }
            self.do_what_is_due(Instant::now());
            sleep(Duration::from_millis(50)).await;
        }
    }

    /// Where events are kept for a time only: nothing happens until all are past it, and then the hub still works.
    pub(super) async fn outlive_retention(&mut self) -> u64 {
        let Some(age) = self.hub.retention() else { return 0 };
        let quiet = Instant::now() + age + Duration::from_secs(3);
        while Instant::now() < quiet {
            sleep(Duration::from_secs(1)).await;
            self.do_what_is_due(Instant::now());
        }
        for _ in 0..20 {
            if self.is_sound() {
                self.produce();
            }
        }
        self.catch_up().await
    }
}
