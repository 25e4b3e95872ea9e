//! Properties of `assign`.

use partita_core::balance::{Assignment, Member, OwnerState, Policy, Snapshot, assign};
use partita_core::model::{Incarnation, InstanceId};
use proptest::prelude::*;
use proptest::test_runner::TestRunner;

use crate::group::*;

fn target(snapshot: &Snapshot) -> Assignment {
    assign(snapshot, Policy::Count)
}

/// The partitions that `number` should have, by number.
fn share(target: &Assignment, number: usize) -> Vec<usize> {
    let mine = target.iter().filter(|(_, owner)| **owner == instance(number));
    mine.map(|(partition, _)| partition.as_str().parse().unwrap()).collect()
}

/// All lists of `length` numbers below `base`.
fn all_lists(base: usize, length: usize) -> impl Iterator<Item = Vec<usize>> {
    let digit = move |list: usize, place: usize| list / base.pow(u32::try_from(place).unwrap()) % base;
    let lists = base.pow(u32::try_from(length).unwrap());
    (0..lists).map(move |list| (0..length).map(|place| digit(list, place)).collect())
}

/// All ways to share `partitions` among `members` so that the counts differ by at most one.
fn all_balanced(members: usize, partitions: usize) -> Vec<Vec<usize>> {
    let (share, extra) = (partitions / members, partitions % members);
    let mut lists = vec![Vec::new()];
    for _ in 0..partitions {
        let longer = lists.iter().flat_map(|list| (0..members).map(move |m| [&list[..], &[m]].concat()));
        let fits = |list: &Vec<usize>| {
            let counts = (0..members).map(|m| list.iter().filter(|&&owner| owner == m).count());
            let above: Vec<usize> = counts.filter(|&count| count > share).collect();
            above.len() <= extra && above.iter().all(|&count| count == share + 1)
        };
        lists = longer.filter(fits).collect();
    }
    lists
}

/// Whether any balanced assignment moves fewer partitions than `moves`.
fn could_move_fewer(moves: usize, holders: &[Option<usize>], all_balanced: &[Vec<usize>]) -> bool {
    let moves_fewer = |candidate: &Vec<usize>| {
        let mut left = moves;
        for partition in 0..holders.len() {
            if left > 0 && holders[partition].is_some_and(|holder| holder != candidate[partition]) {
                left -= 1;
            }
        }
        left > 0
    };
    moves > 0 && all_balanced.iter().any(moves_fewer)
}

#[test]
fn moves_are_the_minimum_in_every_small_group() {
    let mut cases = 0;
    for members in 1..=4 {
        for partitions in 0..=6 {
            let candidates = all_balanced(members, partitions);
            for owners in all_lists(members + 1, partitions) {
                // The number after the last member stands for nobody.
                let owners: Vec<_> = owners.into_iter().map(|o| Some(o).filter(|&o| o < members)).collect();
                let group = snapshot(members, owners.iter().copied());
                let target = target(&group);
                assert_eq!(target.len(), partitions, "{group:?}");
                assert!(spread(&counts(&group, &target)) <= 1, "{group:?}: {target:?}");
                let moves = moves(&group, &target);
                assert!(!could_move_fewer(moves, &owners, &candidates), "{group:?}: {target:?}");
                cases += 1;
            }
        }
    }
    assert_eq!(cases, 26_212);
}

/// Every pair of owner and waiting member, be it among the members, stopping or dead.
#[test]
fn moves_are_the_minimum_in_every_small_group_with_requests_under_way() {
    let (members, partitions) = (3, 3);
    let owners =
        [None, Some((STRANGERS, OwnerState::Live)), Some((STRANGERS + 1, OwnerState::Dead))].into_iter();
    let owners: Vec<_> = owners.chain((0..members).map(|m| Some((m, OwnerState::Live)))).collect();
    let nexts: Vec<_> = [None, Some(STRANGERS)].into_iter().chain((0..members).map(Some)).collect();
    let candidates = all_balanced(members, partitions);
    for rows in all_lists(owners.len() * nexts.len(), partitions) {
        let rows: Vec<_> =
            rows.into_iter().map(|r| (owners[r % owners.len()], nexts[r / owners.len()])).collect();
        let group = Snapshot {
            members: (0..members).map(member).collect(),
            holdings: rows.iter().enumerate().map(|(p, &(owner, next))| holding(p, owner, next)).collect(),
        };
        let among = |number: Option<usize>| number.filter(|&n| n < members);
        let holders: Vec<_> =
            rows.iter().map(|&(owner, next)| among(next).or(among(owner.map(|(o, _)| o)))).collect();
        let target = target(&group);
        assert!(spread(&counts(&group, &target)) <= 1, "{group:?}: {target:?}");
        let moves = moves(&group, &target);
        assert!(!could_move_fewer(moves, &holders, &candidates), "{group:?}: {target:?}");
    }
}

#[test]
fn brute_force_agrees_with_the_formula() {
    for (members, partitions) in [(1, 4), (2, 5), (3, 5), (4, 4)] {
        let candidates = all_balanced(members, partitions);
        for owners in all_lists(members + 1, partitions) {
            let owners: Vec<_> = owners.into_iter().map(|o| Some(o).filter(|&o| o < members)).collect();
            let fewest = fewest_moves(&snapshot(members, owners.iter().copied()));
            assert!(!could_move_fewer(fewest, &owners, &candidates), "{owners:?}");
            assert!(could_move_fewer(fewest + 1, &owners, &candidates), "{owners:?}");
        }
    }
}

#[test]
fn moves_are_the_minimum_at_five_members_and_eight_partitions() {
    let candidates = all_balanced(5, 8);
    assert_eq!(candidates.len(), 50_400);
    let owners = prop::collection::vec(prop::option::weighted(0.9, 0..5_usize), 8);
    let mut runner =
        TestRunner::new(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(100) });
    let checked = runner.run(&owners, |owners| {
        let group = snapshot(5, owners.iter().copied());
        let moves = moves(&group, &target(&group));
        prop_assert!(!could_move_fewer(moves, &owners, &candidates));
        Ok(())
    });
    checked.unwrap();
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 1_000, ..ProptestConfig::default() })]

    #[test]
    fn always_balanced(group in any_group(12, 64)) {
        let target = target(&group);
        prop_assert_eq!(target.len(), group.holdings.len());
        prop_assert!(spread(&counts(&group, &target)) <= 1);
    }

    #[test]
    fn moves_are_the_minimum(group in any_group(12, 64)) {
        prop_assert_eq!(moves(&group, &target(&group)), fewest_moves(&group));
    }

    #[test]
    fn independent_of_input_order(
        (group, shuffled) in any_declining_group(6, 20).prop_flat_map(|group| {
            let members = Just(group.members.clone()).prop_shuffle();
            let holdings = Just(group.holdings.clone()).prop_shuffle();
            (Just(group), (members, holdings).prop_map(|(members, holdings)| Snapshot { members, holdings }))
        })
    ) {
        prop_assert_eq!(target(&group), target(&shuffled));
    }

    #[test]
    fn still_once_balanced(group in any_declining_group(8, 32)) {
        let first = target(&group);
        let after = carried_out(&group, &first);
        prop_assert_eq!(target(&after), first);
    }

    #[test]
    fn a_requested_move_counts_as_done(group in any_group(8, 32)) {
        let mut done = group.clone();
        for holding in &mut done.holdings {
            if let Some(next) = holding.next.clone().filter(|next| is_member(&group, next)) {
                holding.owner = Some((next, OwnerState::Live));
                holding.next = None;
            }
        }
        prop_assert_eq!(moves(&done, &target(&group)), fewest_moves(&done));
        prop_assert_eq!(counts(&group, &target(&group)), counts(&done, &target(&done)));
    }

    #[test]
    fn whoever_is_not_a_member_gets_nothing(group in any_declining_group(8, 32)) {
        for owner in target(&group).values() {
            prop_assert!(is_member(&group, owner));
        }
    }

    #[test]
    fn declines_are_honoured_and_what_anyone_wants_has_a_target(group in any_declining_group(5, 16)) {
        let target = target(&group);
        for holding in &group.holdings {
            let wanting = |m: &Member| !m.declines.contains(&holding.partition);
            match target.get(&holding.partition) {
                Some(owner) => prop_assert!(!declines(&group, owner, &holding.partition)),
                None => prop_assert!(!group.members.iter().any(wanting)),
            }
        }
    }

    #[test]
    fn with_declines_no_single_move_would_even_it_out(group in any_declining_group(5, 16)) {
        let target = target(&group);
        let counts = counts(&group, &target);
        for (partition, owner) in &target {
            for (other, &count) in &counts {
                prop_assert!(count + 2 > counts[owner] || declines(&group, other, partition));
            }
        }
    }

    #[test]
    fn duplicates_do_not_depend_on_their_order(
        (once, twice) in (any_declining_group(4, 8), any_declining_group(4, 8)).prop_flat_map(|(a, b)| {
            let members: Vec<_> = a.members.iter().chain(&b.members).cloned().collect();
            let holdings: Vec<_> = a.holdings.iter().chain(&b.holdings).cloned().collect();
            let shuffled = (Just(members.clone()).prop_shuffle(), Just(holdings.clone()).prop_shuffle());
            let shuffled = shuffled.prop_map(|(members, holdings)| Snapshot { members, holdings });
            (Just(Snapshot { members, holdings }), shuffled)
        })
    ) {
        let target = target(&once);
        prop_assert_eq!(&target, &assign(&twice, Policy::Count));
        for (partition, owner) in &target {
            prop_assert!(!declines(&once, owner, partition), "a member declines what either of its entries says");
        }
    }

    #[test]
    fn standbys_own_nothing_and_one_takes_over(partitions in 1..12_usize, standbys in 1..12_usize, lost in 0..12_usize) {
        let members = partitions + standbys;
        let group = balanced(members, partitions);
        let before = counts(&group, &target(&group));
        prop_assert_eq!(before.values().filter(|&&count| count == 1).count(), partitions);
        prop_assert_eq!(before.values().filter(|&&count| count == 0).count(), standbys);

        let victim = group.holdings[lost % partitions].owner.clone().unwrap().0;
        let mut after = group.clone();
        after.members.retain(|member| member.incarnation != victim);
        let target = target(&after);
        prop_assert_eq!(moves(&after, &target), 0);
        let newly = counts(&after, &target).into_iter().filter(|(member, count)| *count > before[member]).count();
        prop_assert_eq!(newly, 1);
    }

    #[test]
    fn added_partitions_are_spread_and_move_nothing_else(
        members in 1..10_usize, partitions in 0..40_usize, added in 0..40_usize
    ) {
        let mut group = balanced(members, partitions);
        group.holdings.extend((partitions..partitions + added).map(|p| held(p, None)));
        let target = target(&group);
        prop_assert_eq!(target.len(), partitions + added);
        prop_assert_eq!(moves(&group, &target), 0);
        prop_assert!(spread(&counts(&group, &target)) <= 1);
    }
}

#[test]
fn an_empty_group_assigns_nothing() {
    assert!(target(&snapshot(0, [Some(1), None])).is_empty());
    assert!(target(&snapshot(3, [])).is_empty());
}

#[test]
fn two_owners_then_one_then_three() {
    let two = balanced(2, 4);
    assert_eq!(counts(&two, &target(&two)).into_values().collect::<Vec<_>>(), [2, 2]);

    let mut one = two.clone();
    one.members.remove(1);
    let alone = target(&one);
    assert_eq!((share(&alone, 0).len(), moves(&one, &alone)), (4, 0));

    let mut three = carried_out(&one, &alone);
    three.members.extend([member(1), member(2)]);
    let shared = target(&three);
    assert_eq!(counts(&three, &shared).into_values().collect::<Vec<_>>(), [2, 1, 1]);
    assert_eq!(moves(&three, &shared), 2);
    assert_eq!(share(&shared, 0), [0, 1], "the end of the list is what goes");
}

#[test]
fn one_join_at_1024_partitions_and_100_members_is_10_moves() {
    let mut group = balanced(100, 1_024);
    assert_eq!(moves(&group, &target(&group)), 0);
    group.members.push(member(100));
    let target = target(&group);
    // Eleven each for 14 members and ten each for 87: the newcomer takes one of each of ten that had eleven.
    assert_eq!(fewest_moves(&group), 10);
    assert_eq!(moves(&group, &target), 10);
    assert_eq!(share(&target, 100).len(), 10);
}

#[test]
fn one_loss_at_1024_partitions_and_100_members_moves_only_what_it_had() {
    // The first 24 have eleven, the others ten.
    for (lost, orphans) in [(0, 11), (23, 11), (24, 10), (99, 10)] {
        let before = balanced(100, 1_024);
        let mut group = before.clone();
        group.members.remove(lost);
        let after = target(&group);
        let changed = before.holdings.iter().filter(|h| {
            let (owner, _) = h.owner.as_ref().unwrap();
            after[&h.partition] != *owner
        });
        assert_eq!(changed.count(), orphans);
        assert_eq!(moves(&group, &after), 0);
        assert!(spread(&counts(&group, &after)) <= 1);
    }
}

#[test]
fn the_one_that_waits_takes_over_when_the_owner_dies() {
    let mut group = snapshot(2, [Some(0), Some(1), None]);
    group.holdings[2] = holding(2, Some((STRANGERS, OwnerState::Dead)), Some(1));
    assert_eq!(share(&target(&group), 1), [1, 2]);
}

#[test]
fn a_request_of_a_dead_or_stopping_instance_is_as_none() {
    let mut group = snapshot(2, [Some(0), Some(1)]);
    group.holdings[0].next = Some(instance(STRANGERS));
    assert_eq!(share(&target(&group), 0), [0]);
}

#[test]
fn a_stopping_owner_loses_all_to_the_others() {
    let group = snapshot(2, [Some(STRANGERS), Some(STRANGERS), Some(0), Some(STRANGERS)]);
    let target = target(&group);
    assert_eq!(counts(&group, &target).into_values().collect::<Vec<_>>(), [2, 2]);
    assert!(share(&target, 0).contains(&2));
}

#[test]
fn what_is_only_asked_for_is_given_up_before_what_is_owned() {
    // 1 owns 0, 5 and 6 and waits for 1; 2 has joined.
    let owners = [1, 0, 0, 0, 0, 1, 1].map(Some);
    let mut group = snapshot(3, owners);
    group.holdings[1].next = Some(instance(1));
    let target = target(&group);
    assert_eq!(share(&target, 1), [0, 5], "waiting for 1 is dropped first, then 6");
    assert_eq!(moves(&group, &target), fewest_moves(&group));
}

#[test]
fn what_its_owner_declines_goes_to_another() {
    let mut group = snapshot(2, [Some(0), Some(1)]);
    group.members[0] = declining(0, [0]);
    assert_eq!(share(&target(&group), 1), [0], "and 0 takes the other one in exchange");
    assert_eq!(share(&target(&group), 0), [1]);
}

#[test]
fn what_all_decline_has_no_target_and_does_not_count() {
    let mut group = snapshot(0, [Some(0), Some(0), Some(0)]);
    group.members = vec![declining(0, [2]), declining(1, [2])];
    let target = target(&group);
    assert_eq!((share(&target, 0), share(&target, 1)), (vec![0], vec![1]));
}

#[test]
fn what_a_taker_declines_does_not_keep_it_from_the_rest() {
    // The end of the list is declined by the only one with room.
    let mut group = snapshot(0, [Some(0), Some(0), Some(0), Some(0)]);
    group.members = vec![member(0), declining(1, [2, 3])];
    let target = target(&group);
    assert_eq!((share(&target, 0), share(&target, 1)), (vec![2, 3], vec![0, 1]));
}

#[test]
fn two_lives_of_one_id_are_two_members() {
    let life = |nonce| Incarnation::new(InstanceId::new("same"), nonce);
    let mut group = snapshot(0, [None; 4]);
    group.members = [2, 1].map(|nonce| Member { incarnation: life(nonce), declines: Vec::new() }).into();
    group.holdings[0].owner = Some((life(1), OwnerState::Live));
    group.holdings[1].owner = Some((life(3), OwnerState::Dead));
    let target = target(&group);
    assert_eq!(target[&partition(0)], life(1));
    assert_eq!(counts(&group, &target).into_iter().collect::<Vec<_>>(), [(life(1), 2), (life(2), 2)]);
}
