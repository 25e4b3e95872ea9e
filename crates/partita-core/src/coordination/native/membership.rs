//! Who takes part in the plan, and when the plan may disturb a live owner.

use std::collections::BTreeSet;
use std::time::Duration;

use super::{Native, is_live};
use crate::model::{Incarnation, Tick};
use crate::store::InstanceSeen;

/// The members as the latest views show them, and since when.
#[derive(Default)]
pub(super) struct Membership {
    members: BTreeSet<Incarnation>,
    /// How many views in a row have shown them.
    views: u32,
    /// When they have been the same for long enough.
    settles: Tick,
    /// Until when a newcomer that does not count yet is waited for.
    awaits: Tick,
    /// Since when they have not been settled.
    restless: Option<Tick>,
}

impl Membership {
    /// Takes the members of a view. `first_seen` is when, by our own clock, each was first seen; `newcomer` is that of the
    /// youngest instance that does not count yet.
    fn update(
        &mut self,
        now: Tick,
        cycle: Duration,
        members: BTreeSet<Incarnation>,
        first_seen: impl Fn(&Incarnation) -> Tick,
        newcomer: Option<Tick>,
    ) {
        if members == self.members {
            self.views += 1;
        } else {
            let left = self.members.difference(&members).next().is_some();
            let joined = members.difference(&self.members).map(first_seen).max();
            let since = if left { now } else { joined.unwrap_or(now) };
            self.settles = self.settles.max(since + cycle / 2);
            self.members = members;
            self.views = 1;
        }
        // As long as its second heartbeat may take. Then it has failed, and is no longer waited for.
        self.awaits = newcomer.map_or(Tick(0), |seen| seen + cycle * 3 / 4);
        if self.is_quiet(now) {
            self.restless = None;
        } else {
            self.restless.get_or_insert(now);
        }
    }

    fn is_quiet(&self, now: Tick) -> bool {
        self.views >= 2 && now >= self.settles.max(self.awaits)
    }

    /// Whether live owners may be asked: the members were the same for two views and half a cycle, and no newcomer is about
    /// to join them. A group that does not come to rest is not waited for longer than two cycles: one instance that ends
    /// and starts again and again would keep all others from what is theirs.
    pub(super) fn is_settled(&self, now: Tick, cycle: Duration) -> bool {
        let patience = |since: Tick| now >= since + 2 * cycle;
        self.is_quiet(now) || self.restless.is_some_and(patience)
    }

    /// When that may be so, if nothing changes.
    pub(super) fn settles_at(&self, cycle: Duration) -> Tick {
        let quiet = self.settles.max(self.awaits);
        self.restless.map_or(quiet, |since| quiet.min(since + 2 * cycle))
    }
}

impl Native {
    /// Those that could take part: live, and not about to leave or to be buried.
    fn candidates(&self, now: Tick) -> impl Iterator<Item = &InstanceSeen> {
        let latest = self.group.latest.as_ref();
        let instances = latest.map(|seen| seen.view.instances.as_slice()).unwrap_or_default();
        instances.iter().filter(move |seen| {
            is_live(seen.record.state) && !seen.record.stopping && !self.may_bury(now, seen)
        })
    }

    /// Whether an instance has shown that it stays: it has renewed its record, and not missed a heartbeat since.
    fn is_heard(&self, seen: &InstanceSeen) -> bool {
        seen.record.beat > 0 && !self.is_silent(seen)
    }

    /// Those that take part in the plan: whoever was heard since it joined, and whoever holds something, which is its own
    /// until it hands it over or is buried. A newcomer that has only just registered may be gone already. In a group where
    /// nobody was heard yet, all count: somebody has to begin.
    pub(super) fn members(&self, now: Tick) -> Vec<&InstanceSeen> {
        let candidates: Vec<&InstanceSeen> = self.candidates(now).collect();
        if !candidates.iter().any(|seen| self.is_heard(seen)) {
            return candidates;
        }
        let known = self.slots.values().filter_map(|slot| slot.known.as_ref());
        let holders: BTreeSet<&Incarnation> =
            known.flat_map(|known| known.owner.iter().chain(&known.next)).collect();
        let counts = |seen: &&InstanceSeen| self.is_heard(seen) || holders.contains(&seen.record.incarnation);
        candidates.into_iter().filter(counts).collect()
    }

    pub(super) fn count_members(&mut self, now: Tick) {
        let cycle = self.config.timing.cycle();
        let members: BTreeSet<Incarnation> =
            self.members(now).into_iter().map(|seen| seen.record.incarnation.clone()).collect();
        let newcomer = self
            .candidates(now)
            .filter(|seen| seen.record.beat == 0 && !members.contains(&seen.record.incarnation))
            .map(|seen| self.group.first_seen(&seen.record.incarnation).unwrap_or(now))
            .max();
        let mut membership = std::mem::take(&mut self.group.membership);
        let first_seen = |who: &Incarnation| self.group.first_seen(who).unwrap_or(now);
        membership.update(now, cycle, members, first_seen, newcomer);
        self.group.membership = membership;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::InstanceId;

    const S: Duration = Duration::from_secs(1);

    fn at(ms: u64) -> Tick {
        Tick(0) + Duration::from_millis(100_000 + ms)
    }

    fn members(names: &[&str]) -> BTreeSet<Incarnation> {
        names.iter().map(|name| Incarnation::new(InstanceId::new(*name), 1)).collect()
    }

    #[test]
    fn members_settle_after_two_views_and_half_a_cycle() {
        let mut group = Membership::default();
        group.update(at(0), S, members(&["a", "b"]), |_| at(0), None);
        assert!(!group.is_settled(at(600), S), "one view");
        group.update(at(10), S, members(&["a", "b"]), |_| at(0), None);
        assert!(!group.is_settled(at(499), S) && group.is_settled(at(500), S));
    }

    #[test]
    fn a_newcomer_that_was_seen_for_half_a_cycle_when_it_begins_to_count_needs_two_views_only() {
        let mut group = Membership::default();
        group.update(at(0), S, members(&["a"]), |_| at(0), None);
        group.update(at(1_000), S, members(&["a"]), |_| at(0), None);
        for now in [1_600, 1_610] {
            let first_seen = |who: &Incarnation| at(if who.id().as_str() == "b" { 1_100 } else { 0 });
            group.update(at(now), S, members(&["a", "b"]), first_seen, None);
        }
        assert!(group.is_settled(at(1_610), S));
    }

    #[test]
    fn whoever_leaves_starts_the_half_cycle_again() {
        let mut group = Membership::default();
        for now in [0, 1_000] {
            group.update(at(now), S, members(&["a", "b"]), |_| at(0), None);
        }
        for now in [2_000, 2_010] {
            group.update(at(now), S, members(&["a"]), |_| at(0), None);
        }
        assert!(!group.is_settled(at(2_499), S) && group.is_settled(at(2_500), S));
    }

    #[test]
    fn newcomers_that_never_count_hold_the_others_up_for_two_cycles_at_most() {
        let mut group = Membership::default();
        let mut settled = None;
        for now in (0..5_000).step_by(100) {
            // Another one every 300 ms.
            let newcomer = at(now - now % 300);
            group.update(at(now), S, members(&["a", "b"]), |_| at(0), Some(newcomer));
            if group.is_settled(at(now), S) {
                settled.get_or_insert(now);
            }
        }
        assert_eq!(settled, Some(2_000));
    }

    #[test]
    fn members_that_come_and_go_without_end_hold_nobody_up_for_longer_than_two_cycles() {
        let mut group = Membership::default();
        let mut settled = None;
        for now in (0..5_000).step_by(100) {
            let names = if now % 200 == 0 { ["a", "b"] } else { ["a", "c"] };
            group.update(at(now), S, members(&names), |_| at(now), None);
            if group.is_settled(at(now), S) {
                settled.get_or_insert(now);
            }
        }
        assert_eq!(settled, Some(2_000));
    }
}
