//! Views of the group: when to read one, and what it tells about the others.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use super::membership::Membership;
use super::retry::Retry;
use super::{Life, Native, Purpose, Timer, is_live};
use crate::balance::OwnerState;
use crate::coordination::{Effect, StoreCall};
use crate::model::{Incarnation, PartitionId, Tick};
use crate::report::Operation;
use crate::store::{GroupView, InstanceSeen, StoreError, Version, reads_another};

/// The least and the most time between views that notifications ask for.
const NOTIFIED_VIEW_PAUSE: (Duration, Duration) = (Duration::from_millis(1), Duration::from_millis(20));

/// How often to look while waiting for something on a store that does not notify.
const WAITING_VIEW_PAUSE: Duration = Duration::from_millis(500);

/// For how many cycles an instance may seem to read another hub before that is told: a hub that was reset is noticed by one
/// after the other.
const OTHER_HUB_CYCLES: u32 = 3;

/// A view and when it was asked for.
pub(super) struct Seen {
    pub(super) sent: Tick,
    pub(super) view: GroupView,
}

/// What our own clock says about an instance.
struct Watch {
    version: Version,
    /// Since when its record has had that version.
    since: Tick,
    /// When it was first seen.
    first: Tick,
}

#[derive(Default)]
pub(super) struct Group {
    busy: bool,
    /// Whether something happened since the view under way was sent.
    again: bool,
    due: Option<Tick>,
    last_sent: Tick,
    /// How long the last view took.
    last_took: Duration,
    retry: Retry,
    pub(super) latest: Option<Seen>,
    watches: BTreeMap<Incarnation, Watch>,
    pub(super) membership: Membership,
    /// Whom we are declaring dead, and whether a call is under way or has failed.
    pub(super) burials: BTreeMap<Incarnation, (bool, Retry)>,
    /// Whether the lease is known to have run out.
    pub(super) lapsed: bool,
    /// Instances with another ttl that were already warned about.
    other_ttls: BTreeSet<Incarnation>,
    /// Since when a live instance has read another hub than we do, and whether that was told.
    other_hubs: BTreeMap<Incarnation, (Tick, bool)>,
    /// Other incarnations of our own id that were already warned about.
    namesakes: BTreeSet<Incarnation>,
}

impl Group {
    /// Drops what belongs to an incarnation that is no more.
    pub(super) fn forget(&mut self) {
        *self = Self { last_sent: self.last_sent, ..Self::default() };
    }

    /// When a notification may ask for the next view: soon in a small group, where a hand-off waits for it; later the
    /// longer views take, so that a large group that shifts many partitions does not drown in them.
    fn notified_view_at(&self) -> Tick {
        let (least, most) = NOTIFIED_VIEW_PAUSE;
        self.last_sent + (10 * self.last_took).clamp(least, most)
    }

    pub(super) fn is_looking(&self) -> bool {
        self.busy || self.due.is_some()
    }

    pub(super) fn instance(&self, incarnation: &Incarnation) -> Option<&InstanceSeen> {
        let instances = &self.latest.as_ref()?.view.instances;
        let index = instances.binary_search_by(|seen| seen.record.incarnation.cmp(incarnation)).ok()?;
        instances.get(index)
    }

    /// Whether a hand-off to this instance makes sense.
    pub(super) fn can_take(&self, next: &Incarnation, partition: &PartitionId) -> bool {
        self.instance(next).is_some_and(|seen| {
            let record = &seen.record;
            is_live(record.state) && !record.stopping && !record.declines.contains(partition)
        })
    }

    /// Takes a dead instance's record into the latest view, so that the plan goes on without reading another.
    pub(super) fn learn_dead(&mut self, dead: InstanceSeen) {
        let Some(latest) = &mut self.latest else { return };
        let instances = &mut latest.view.instances;
        match instances.binary_search_by(|seen| seen.record.incarnation.cmp(&dead.record.incarnation)) {
            Ok(index) => instances[index] = dead,
            Err(index) => instances.insert(index, dead),
        }
    }

    /// Whether a view sent at or after `since` shows no partition that names `me`.
    pub(super) fn nothing_names(&self, me: &Incarnation, since: Tick) -> bool {
        self.latest.as_ref().is_some_and(|seen| {
            let names = |named: &Option<Incarnation>| named.as_ref() == Some(me);
            seen.sent >= since && !seen.view.ownerships.iter().any(|o| names(&o.owner) || names(&o.next))
        })
    }

    /// When, by our own clock, an instance was first seen.
    pub(super) fn first_seen(&self, incarnation: &Incarnation) -> Option<Tick> {
        self.watches.get(incarnation).map(|watch| watch.first)
    }
}

impl Native {
    /// Reads a view now, or right after the one that is under way.
    pub(super) fn look(&mut self, now: Tick, out: &mut Vec<Effect>) {
        self.look_at(now);
        self.look_if_due(now, out);
    }

    pub(super) fn look_at(&mut self, at: Tick) {
        if self.group.busy {
            self.group.again = true;
        } else if self.group.due.is_none_or(|due| at < due) {
            self.group.due = Some(at);
            self.timer(at, Timer::View);
        }
    }

    pub(super) fn look_if_due(&mut self, now: Tick, out: &mut Vec<Effect>) {
        let registered = matches!(self.life, Life::Running | Life::Stopping { .. });
        if self.group.busy || !registered || self.group.due.is_none_or(|due| now < due) {
            return;
        }
        self.group.due = None;
        self.group.busy = true;
        self.group.again = false;
        self.group.last_sent = now;
        self.call(now, Purpose::View, StoreCall::View, out);
    }

    pub(super) fn on_changed(&mut self, now: Tick, out: &mut Vec<Effect>) {
        self.look_at(now.max(self.group.notified_view_at()));
        self.look_if_due(now, out);
    }

    pub(super) fn on_view_failed(&mut self, now: Tick, error: StoreError, out: &mut Vec<Effect>) {
        self.group.busy = false;
        let at = self.group.retry.failed(now, self.config.timing.cycle(), &mut self.rng);
        self.look_at(at);
        Self::report(None, Operation::View, error, out);
    }

    pub(super) fn on_view(&mut self, now: Tick, sent: Tick, mut view: GroupView, out: &mut Vec<Effect>) {
        self.group.busy = false;
        self.group.retry.succeeded();
        self.group.last_took = now.since(sent);
        let again = std::mem::take(&mut self.group.again);
        let me = view.instances.iter().find(|seen| seen.record.incarnation == self.me.incarnation);
        if self.life == Life::Running && me.is_some_and(|seen| !is_live(seen.record.state)) {
            // Nothing else in it matters to this incarnation.
            self.buried(now, out);
            return;
        }
        if planted!(RemoteTimestamp) {
            for seen in &mut view.instances {
                seen.age = now.since(Tick(seen.record.started.millis() as u64 * 1_000_000));
            }
        }
        self.watch(now, &view, out);
        self.watch_hubs(now, &view, out);
        self.group.latest = Some(Seen { sent, view });
        self.reconcile_all(now, sent, out);
        self.count_members(now);
        self.act(now, out);
        self.schedule_look(now, sent);
        if again {
            self.look_at(now.max(self.group.notified_view_at()));
        }
    }

    /// Notices instances that read another hub under the name of ours, or this one before it was reset. In the latter
    /// case everybody agrees as soon as the hub was asked again.
    fn watch_hubs(&mut self, now: Tick, view: &GroupView, out: &mut Vec<Effect>) {
        let before = std::mem::take(&mut self.group.other_hubs);
        let lease = self.config.timing.lease();
        for seen in view.instances.iter().filter(|seen| seen.age < lease) {
            if !reads_another(seen, self.stream.as_ref()) {
                continue;
            }
            let incarnation = &seen.record.incarnation;
            let (since, mut told) = before.get(incarnation).copied().unwrap_or_else(|| {
                out.push(Effect::AskHub);
                (now, false)
            });
            if !told && now.since(since) >= OTHER_HUB_CYCLES * self.config.timing.cycle() {
                told = true;
                let error = format!(
                    "{} reads another hub under the same name, and both share one group: stop one of them, and give each \
                     hub a store or a consumer group of its own",
                    incarnation.id().short()
                );
                Self::report(None, Operation::View, error, out);
            }
            self.group.other_hubs.insert(incarnation.clone(), (since, told));
        }
    }

    fn watch(&mut self, now: Tick, view: &GroupView, out: &mut Vec<Effect>) {
        let before = std::mem::take(&mut self.group.watches);
        for seen in &view.instances {
            let incarnation = &seen.record.incarnation;
            let (since, first) = match before.get(incarnation) {
                Some(watch) if watch.version == seen.version => (watch.since, watch.first),
                Some(watch) => (now, watch.first),
                None => (now, now),
            };
            let watch = Watch { version: seen.version.clone(), since, first };
            self.group.watches.insert(incarnation.clone(), watch);
            let me = &self.me.incarnation;
            let namesake = incarnation.id() == me.id() && incarnation != me && is_live(seen.record.state);
            if namesake
                && seen.age < self.config.timing.lease()
                && self.group.namesakes.insert(incarnation.clone())
            {
                let error = format!(
                    "another live instance calls itself {}; both work, but give them names of their own",
                    me.id()
                );
                Self::report(None, Operation::View, error, out);
            }
            let ttl = self.config.timing.ttl();
            let differs = is_live(seen.record.state) && seen.record.ttl != ttl;
            if differs && self.group.other_ttls.insert(incarnation.clone()) {
                let error = format!(
                    "{incarnation} has a ttl of {:?}, this instance of {ttl:?}; the longer one counts, but give all \
                     of a group the same timing",
                    seen.record.ttl
                );
                Self::report(None, Operation::View, error, out);
            }
        }
        let watches = &self.group.watches;
        self.group.burials.retain(|victim, (busy, _)| *busy || watches.contains_key(victim));
    }

    /// The age from which an instance may be declared dead. All of a group should have the same ttl; while one is
    /// changed, the longer one counts, or a live owner would be taken for dead.
    pub(super) fn ttl_of(&self, seen: &InstanceSeen) -> Duration {
        self.config.timing.ttl().max(seen.record.ttl).saturating_add(self.config.stamp_step)
    }

    /// How long its record must have stood still by our own clock, too.
    fn watch_of(&self, seen: &InstanceSeen) -> Duration {
        self.config.timing.ttl().max(seen.record.ttl) - self.config.timing.margin()
    }

    /// Whether the rules allow to declare this instance dead.
    pub(super) fn may_bury(&self, now: Tick, seen: &InstanceSeen) -> bool {
        let watched = self.group.watches.get(&seen.record.incarnation);
        let watched = watched.is_some_and(|watch| now.since(watch.since) >= self.watch_of(seen));
        is_live(seen.record.state)
            && seen.record.incarnation != self.me.incarnation
            && seen.age >= self.ttl_of(seen)
            && (watched || planted!(StoreClockTrusted))
            && self.lease.may_bury(now)
    }

    /// Whether an instance has missed a heartbeat.
    pub(super) fn is_silent(&self, seen: &InstanceSeen) -> bool {
        let timing = &self.config.timing;
        let longest = timing.cycle_max() + timing.call_deadline() + self.config.stamp_step;
        seen.record.incarnation != self.me.incarnation && seen.age > longest
    }

    /// How an owner stands. One that is old but may not yet be buried counts as live: after an outage of the store
    /// everybody looks old, and nobody must be taken for dead before it had the time to renew.
    pub(super) fn owner_state(&self, now: Tick, owner: &Incarnation) -> OwnerState {
        match self.group.instance(owner) {
            Some(seen) if !is_live(seen.record.state) => OwnerState::Dead,
            Some(seen) if planted!(NoBurial) && self.may_bury(now, seen) => OwnerState::Dead,
            Some(seen) if self.may_bury(now, seen) => OwnerState::Expired,
            Some(_) => OwnerState::Live,
            None if self.lease.may_bury(now) => OwnerState::Expired,
            None => OwnerState::Live,
        }
    }

    /// Those that may be declared dead.
    pub(super) fn expired(&self, now: Tick) -> Vec<Incarnation> {
        let Some(latest) = &self.group.latest else { return Vec::new() };
        let expired = latest.view.instances.iter().filter(|seen| self.may_bury(now, seen));
        expired.map(|seen| seen.record.incarnation.clone()).collect()
    }

    /// Plans the next look: when the first silent instance may be buried, or soon if we wait for something on a
    /// store that does not notify. The heartbeat's own cycle comes on top.
    fn schedule_look(&mut self, now: Tick, sent: Tick) {
        let timing = self.config.timing;
        let Some(latest) = &self.group.latest else { return };
        let expiry = latest
            .view
            .instances
            .iter()
            .filter(|seen| is_live(seen.record.state) && seen.record.incarnation != self.me.incarnation)
            .filter_map(|seen| {
                let watch = self.group.watches.get(&seen.record.incarnation)?;
                // A millisecond more, because ages are compared by another clock.
                let expires = sent + self.ttl_of(seen).saturating_sub(seen.age);
                let at = expires.max(watch.since + self.watch_of(seen));
                Some(at + Duration::from_millis(1))
            })
            .filter(|at| *at > now)
            .min();
        if let Some(at) = expiry {
            self.look_at(at);
        }
        if !self.config.notifies && self.is_waiting() {
            self.look_at(now + WAITING_VIEW_PAUSE.min(timing.cycle() / 2));
        }
    }

    /// Whether somebody else has to do something for us.
    fn is_waiting(&self) -> bool {
        let me = &self.me.incarnation;
        self.slots.values().any(|slot| slot.known.as_ref().is_some_and(|o| o.next.as_ref() == Some(me)))
    }
}
