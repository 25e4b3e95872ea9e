//! Whole groups that act on their plans, round by round.

use std::collections::BTreeSet;
use std::num::NonZeroUsize;

use partita_core::balance::{Action, Holding, OwnerState, Pace, Plan, Policy, Snapshot, plan};
use partita_core::model::{Incarnation, PartitionId};
use proptest::prelude::*;

use crate::group::*;

/// The shared records, and what has been done to them.
struct World {
    group: Snapshot,
    /// Owners that are gone, be they buried or not.
    gone: BTreeSet<Incarnation>,
    /// Every change of owner.
    changes: Vec<(PartitionId, Incarnation)>,
    /// What was written since the members last looked: a store refuses a second write from the same view.
    written: BTreeSet<PartitionId>,
    refused: usize,
}

impl World {
    fn new(group: Snapshot) -> Self {
        let owners = group.holdings.iter().filter_map(|h| h.owner.as_ref());
        let gone =
            owners.filter(|(_, state)| *state != OwnerState::Live).map(|(owner, _)| owner.clone()).collect();
        Self { group, gone, changes: Vec::new(), written: BTreeSet::new(), refused: 0 }
    }

    fn members(&self) -> Vec<Incarnation> {
        self.group.members.iter().map(|member| member.incarnation.clone()).collect()
    }

    fn lose(&mut self, lost: &Incarnation) {
        self.group.members.retain(|member| member.incarnation != *lost);
        self.gone.insert(lost.clone());
        for (owner, state) in self.group.holdings.iter_mut().filter_map(|h| h.owner.as_mut()) {
            if owner == lost {
                *state = OwnerState::Expired;
            }
        }
    }

    /// The records as an instance sees them that knows only `members` so far: a newcomer has no record yet, and one
    /// that is lost still seems to live.
    fn seen_with(&self, members: &Snapshot) -> Snapshot {
        let mut seen = Snapshot { members: members.members.clone(), holdings: self.group.holdings.clone() };
        for (owner, state) in seen.holdings.iter_mut().filter_map(|h| h.owner.as_mut()) {
            if is_member(members, owner) {
                *state = OwnerState::Live;
            } else if is_member(&self.group, owner) {
                *state = OwnerState::Expired;
            }
        }
        seen
    }

    /// Writes what the store would accept.
    fn perform(&mut self, me: &Incarnation, plan: &Plan) {
        for id in &plan.withdrawals {
            if self.write(id) {
                self.holding(id).next = None;
            }
        }
        for action in &plan.actions {
            let (Action::Claim(id) | Action::BuryAndClaim(id, _) | Action::Request(id)) = action;
            let owner = self.holding(id).owner.clone();
            let may = match (action, owner) {
                (Action::Request(_), owner) => owner.is_some(),
                (Action::BuryAndClaim(_, seen), Some((owner, _))) => {
                    owner == *seen && self.gone.contains(seen)
                }
                (_, owner) => owner.is_none_or(|(_, state)| state == OwnerState::Dead),
            };
            if !may {
                self.refused += 1;
            } else if self.write(id) {
                let holding = self.holding(id);
                if matches!(action, Action::Request(_)) {
                    holding.next = Some(me.clone());
                } else {
                    holding.owner = Some((me.clone(), OwnerState::Live));
                    holding.next = None;
                    self.changes.push((id.clone(), me.clone()));
                }
            }
        }
    }

    fn holding(&mut self, id: &PartitionId) -> &mut Holding {
        self.group.holdings.iter_mut().find(|h| h.partition == *id).unwrap()
    }

    fn write(&mut self, id: &PartitionId) -> bool {
        let first = self.written.insert(id.clone());
        self.refused += usize::from(!first);
        first
    }

    /// Live owners hand over what `ready` allows, and clear requests of those that are not members.
    fn hand_over(&mut self, mut ready: impl FnMut(usize) -> bool) {
        self.written.clear();
        let members = self.members();
        for (number, holding) in self.group.holdings.iter_mut().enumerate() {
            let live = holding.owner.as_ref().is_some_and(|(owner, _)| !self.gone.contains(owner));
            let Some(next) = holding.next.clone().filter(|_| live) else { continue };
            if !members.contains(&next) {
                holding.next = None;
            } else if ready(number) {
                self.changes.push((holding.partition.clone(), next.clone()));
                holding.owner = Some((next, OwnerState::Live));
                holding.next = None;
            }
        }
    }

    /// Everyone plans from the same records, then everyone acts. Answers the most that one of them did.
    fn round(&mut self, pace: Pace, settled: bool) -> usize {
        let seen = self.group.clone();
        let plans: Vec<_> = self
            .members()
            .into_iter()
            .map(|me| (plan(&seen, &me, Policy::Count, pace, settled), me))
            .collect();
        for (plan, me) in &plans {
            self.perform(me, plan);
        }
        plans.iter().map(|(plan, _)| plan.actions.len()).max().unwrap_or(0)
    }

    fn under_way(&self, me: &Incarnation) -> usize {
        self.group.holdings.iter().filter(|h| h.next.as_ref() == Some(me)).count()
    }

    /// Every partition has a member as owner, no request is left, and the shares are even.
    fn is_balanced(&self) -> bool {
        let owners = self.group.holdings.iter().map(|h| h.owner.as_ref().map(|(owner, _)| owner.clone()));
        let owned_by_members = owners.clone().all(|o| o.is_some_and(|o| is_member(&self.group, &o)));
        let target = self.group.holdings.iter().map(|h| h.partition.clone()).zip(owners.flatten()).collect();
        owned_by_members
            && self.group.holdings.iter().all(|h| h.next.is_none())
            && spread(&counts(&self.group, &target)) <= 1
    }

    fn changes_per_partition_max(&self) -> usize {
        let times = |id: &PartitionId| self.changes.iter().filter(|(changed, _)| changed == id).count();
        self.group.holdings.iter().map(|h| times(&h.partition)).max().unwrap_or(0)
    }
}

/// Partitions that no member holds: each must change hands once.
fn free(group: &Snapshot) -> usize {
    group.holdings.iter().filter(|h| holder(group, h).is_none()).count()
}

fn without_requests(mut group: Snapshot) -> Snapshot {
    for holding in &mut group.holdings {
        holding.next = None;
    }
    group
}

/// The records of a balanced group, and the same group after `joined` came and the first `lost` were lost.
fn any_change() -> impl Strategy<Value = (Snapshot, usize, usize)> {
    (1..6_usize, 0..40_usize, 0..4_usize, 0..3_usize)
        .prop_filter("someone is left", |&(members, _, joined, lost)| {
            lost < members + joined && lost <= members
        })
        .prop_map(|(members, partitions, joined, lost)| (balanced(members, partitions), joined, lost))
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 500, ..ProptestConfig::default() })]

    #[test]
    fn a_greedy_group_is_balanced_in_three_rounds_with_the_fewest_moves(group in any_group(8, 48)) {
        let mut world = World::new(without_requests(group));
        let needed = free(&world.group) + fewest_moves(&world.group);
        for round in 0..3 {
            world.round(Pace::Greedy, round > 0);
            world.hand_over(|_| true);
        }
        prop_assert!(world.is_balanced(), "{:?}", world.group);
        prop_assert_eq!(world.changes.len(), needed);
        prop_assert_eq!((world.changes_per_partition_max() > 1, world.refused), (false, 0));

        world.round(Pace::Greedy, true);
        world.hand_over(|_| true);
        prop_assert_eq!(world.changes.len(), needed, "nothing moves once balanced");
    }

    #[test]
    fn a_group_with_requests_under_way_is_balanced_soon(group in any_group(8, 48)) {
        let mut world = World::new(group);
        for round in 0..4 {
            world.round(Pace::Greedy, round > 0);
            world.hand_over(|_| true);
        }
        prop_assert!(world.is_balanced(), "{:?}", world.group);
    }

    #[test]
    fn a_paced_group_stays_within_its_pace_and_moves_no_more(
        group in any_group(6, 40), limit in 1..5_usize, slowness in prop::collection::vec(0..4_usize, 1..64)
    ) {
        let pace = Pace::Balanced(NonZeroUsize::new(limit).unwrap());
        let mut world = World::new(without_requests(group));
        let needed = free(&world.group) + fewest_moves(&world.group);
        let mut rounds = 0;
        while !world.is_balanced() {
            prop_assert!(world.round(pace, true) <= limit);
            for me in world.members() {
                prop_assert!(world.under_way(&me) <= limit);
            }
            world.hand_over(|number| (number + rounds) % (1 + slowness[number % slowness.len()]) == 0);
            rounds += 1;
            prop_assert!(rounds <= 4 * (needed + 1), "no end in sight: {:?}", world.group);
        }
        prop_assert_eq!(world.changes.len(), needed);
        prop_assert_eq!((world.changes_per_partition_max() > 1, world.refused), (false, 0));
    }

    /// Each instance learns of the change at its own time, and of nothing else late. Until then it still counts on
    /// the lost ones and takes newcomers for strangers.
    #[test]
    fn views_that_differ_never_make_a_partition_go_back_and_forth(
        (before, joined, lost) in any_change(),
        lags in prop::collection::vec(0..5_usize, 12),
        limit in 1..20_usize,
    ) {
        let pace = Pace::Balanced(NonZeroUsize::new(limit).unwrap());
        let mut world = World::new(before.clone());
        for number in 0..joined {
            world.group.members.push(member(before.members.len() + number));
        }
        for number in 0..lost {
            world.lose(&instance(number));
        }
        let needed = free(&world.group) + fewest_moves(&world.group);
        let mut balanced_for = 0;
        for round in 0..60 {
            balanced_for = if world.is_balanced() { balanced_for + 1 } else { 0 };
            if round > 5 && balanced_for > 3 {
                break;
            }
            let plans: Vec<_> = world.members().into_iter().enumerate().map(|(number, me)| {
                let newcomer = !is_member(&before, &me);
                let knows_since = if newcomer { 0 } else { lags[number] };
                let known = if round >= knows_since { world.group.clone() } else { before.clone() };
                let plan = plan(&world.seen_with(&known), &me, Policy::Count, pace, round != knows_since);
                (plan, me)
            }).collect();
            for (plan, me) in &plans {
                world.perform(me, plan);
            }
            world.hand_over(|_| true);
        }
        prop_assert!(world.is_balanced(), "{:?}", world.group);
        prop_assert!(world.changes_per_partition_max() <= 1, "{:?}", world.changes);
        prop_assert_eq!(world.changes.len(), needed);
    }
}

#[test]
fn a_newcomer_that_one_owner_has_not_seen_gets_its_share_once() {
    let before = balanced(2, 6);
    let mut world = World::new(before.clone());
    world.group.members.push(member(2));
    for _ in 0..10 {
        // 0 never learns of the newcomer; 1 and the newcomer know.
        let (blind, knowing) = (world.seen_with(&before), world.group.clone());
        let plans = [(&blind, 0), (&knowing, 1), (&knowing, 2)]
            .map(|(seen, number)| (plan(seen, &instance(number), Policy::Count, Pace::Greedy, true), number));
        for (plan, number) in &plans {
            world.perform(&instance(*number), plan);
        }
        world.hand_over(|_| true);
    }
    assert!(world.is_balanced());
    assert_eq!(world.changes.len(), 2);
}
