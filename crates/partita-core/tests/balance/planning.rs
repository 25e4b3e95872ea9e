//! Properties of `plan`: who acts, on what, and how much at a time.

use std::num::NonZeroUsize;

use partita_core::balance::{Action, OwnerState, Pace, Plan, Policy, Snapshot, assign, plan};
use partita_core::model::PartitionId;
use proptest::prelude::*;

use crate::group::*;

fn plan_of(group: &Snapshot, number: usize) -> Plan {
    plan(group, &instance(number), Policy::Count, Pace::Greedy, true)
}

fn pace(limit: usize) -> Pace {
    Pace::Balanced(NonZeroUsize::new(limit).unwrap())
}

fn about(action: &Action) -> &PartitionId {
    match action {
        Action::Claim(partition) | Action::BuryAndClaim(partition, _) | Action::Request(partition) => {
            partition
        }
    }
}

fn rank(action: &Action) -> usize {
    match action {
        Action::Claim(_) => 0,
        Action::BuryAndClaim(..) => 1,
        Action::Request(_) => 2,
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 1_000, ..ProptestConfig::default() })]

    #[test]
    fn the_plans_of_all_do_the_assignment_once(group in any_declining_group(6, 24)) {
        let target = assign(&group, Policy::Count);
        let plans: Vec<_> = (0..group.members.len()).map(|number| plan_of(&group, number)).collect();
        for holding in &group.holdings {
            let mut acting = Vec::new();
            for (number, plan) in plans.iter().enumerate() {
                prop_assert_eq!(&plan.target, &target);
                let actions = plan.actions.iter().filter(|action| *about(action) == holding.partition);
                acting.extend(actions.map(|action| (instance(number), action.clone())));
            }
            let id = holding.partition.clone();
            let expected = target.get(&id).and_then(|to| match &holding.owner {
                None | Some((_, OwnerState::Dead)) => Some((to.clone(), Action::Claim(id))),
                Some((from, OwnerState::Expired)) => Some((to.clone(), Action::BuryAndClaim(id, from.clone()))),
                Some((from, OwnerState::Live)) if from == to || holding.next.is_some() => None,
                Some((_, OwnerState::Live)) => Some((to.clone(), Action::Request(id))),
            });
            prop_assert_eq!(acting, Vec::from_iter(expected));
        }
    }

    #[test]
    fn withdrawals_are_the_requests_that_the_assignment_gives_to_others(group in any_declining_group(6, 24)) {
        let target = assign(&group, Policy::Count);
        for number in (0..group.members.len()).chain([STRANGERS]) {
            let mine = Some(instance(number));
            let lost = group.holdings.iter().filter(|h| h.next == mine && target.get(&h.partition) != mine.as_ref());
            let lost: Vec<_> = lost.map(|h| h.partition.clone()).collect();
            prop_assert_eq!(plan_of(&group, number).withdrawals, lost);
        }
    }

    #[test]
    fn a_pace_takes_the_most_urgent_and_counts_what_is_under_way(
        group in any_group(4, 32), limit in 1..6_usize
    ) {
        for number in 0..group.members.len() {
            let me = instance(number);
            let all = plan_of(&group, number);
            let some = plan(&group, &me, Policy::Count, pace(limit), true);
            prop_assert!(all.actions.is_sorted_by_key(|action| (rank(action), about(action).clone())));
            prop_assert!(all.actions.starts_with(&some.actions));
            prop_assert_eq!(&some.withdrawals, &all.withdrawals);

            let under_way = group.holdings.iter().filter(|h| {
                let live = h.owner.as_ref().is_some_and(|(owner, state)| *owner != me && *state == OwnerState::Live);
                live && h.next.as_ref() == Some(&me) && all.target[&h.partition] == me
            });
            let under_way = under_way.count();
            let takes = all.actions.iter().filter(|action| rank(action) < 2).count().min(limit);
            let asks = all.actions.iter().filter(|action| rank(action) == 2).count();
            let room = limit.saturating_sub(takes + under_way);
            prop_assert_eq!(some.actions.len(), takes + asks.min(room));
        }
    }

    #[test]
    fn nobody_is_asked_while_the_membership_changes(group in any_group(6, 24)) {
        for number in 0..group.members.len() {
            let settled = plan_of(&group, number);
            let unsettled = plan(&group, &instance(number), Policy::Count, Pace::Greedy, false);
            let takes = settled.actions.iter().filter(|action| rank(action) < 2).cloned().collect::<Vec<_>>();
            prop_assert_eq!(unsettled.actions, takes);
            prop_assert_eq!(unsettled.withdrawals, settled.withdrawals);
        }
    }

    #[test]
    fn whoever_is_not_a_member_does_nothing_but_withdraw(group in any_group(6, 24)) {
        let plan = plan_of(&group, STRANGERS);
        prop_assert_eq!(plan.actions, []);
        let asked = group.holdings.iter().filter(|h| h.next == Some(instance(STRANGERS)));
        prop_assert_eq!(plan.withdrawals.len(), asked.count());
    }
}

#[test]
fn an_owner_is_not_asked_twice() {
    let mut group = snapshot(2, [Some(0), Some(0)]);
    assert_eq!(plan_of(&group, 1).actions, [Action::Request(partition(1))]);
    group.holdings[1].next = Some(instance(1));
    assert_eq!(plan_of(&group, 1), Plan { target: plan_of(&group, 0).target, ..Plan::default() });
}

#[test]
fn a_request_of_another_is_waited_out() {
    // 0 is stopping and 2 has gone while it waited: 0 clears that, then 1 asks.
    let mut group = snapshot(0, [Some(0)]);
    group.members = vec![member(1)];
    group.holdings[0].next = Some(instance(2));
    assert_eq!(plan_of(&group, 1).actions, []);
    group.holdings[0].next = None;
    assert_eq!(plan_of(&group, 1).actions, [Action::Request(partition(0))]);
}

#[test]
fn a_newcomer_makes_another_drop_its_request_and_then_asks_itself() {
    let mut group = snapshot(3, [0, 0, 0].map(Some));
    group.holdings[1].next = Some(instance(1));
    group.holdings[2].next = Some(instance(1));
    assert_eq!(plan_of(&group, 1).withdrawals, [partition(2)]);
    assert_eq!(plan_of(&group, 2).actions, []);
    group.holdings[2].next = None;
    assert_eq!(plan_of(&group, 2).actions, [Action::Request(partition(2))]);
}

#[test]
fn what_nobody_reads_is_not_held_up_by_a_slow_hand_off() {
    let mut group = snapshot(2, [Some(0), Some(0), Some(0), Some(0), None, None]);
    group.holdings[0].next = Some(instance(1));
    let slow = plan(&group, &instance(1), Policy::Count, pace(1), true);
    assert_eq!(slow.actions, [Action::Claim(partition(4))]);
    group.holdings.truncate(4);
    let waiting = plan(&group, &instance(1), Policy::Count, pace(1), true);
    assert_eq!(waiting.target.values().filter(|owner| **owner == instance(1)).count(), 2);
    assert_eq!(waiting.actions, []);
}
