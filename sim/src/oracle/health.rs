//! What is left to do once faults have stopped, and what it may cost.

use std::collections::{BTreeMap, BTreeSet};

use partita_core::model::{Incarnation, InstanceId, PartitionId};
use tokio::time::Instant;

use super::Oracle;

impl Oracle {
    /// Faults have stopped.
    pub(crate) fn set_calm(&mut self) {
        self.calm = true;
        self.note(format_args!("calm"));
    }

    /// What keeps the group from being healed: every partition has a live owner with an open handler, nobody waits
    /// for a hand-off, and the numbers differ by one at most.
    pub(crate) fn unhealed(&self, partitions: u32, alive: &BTreeSet<InstanceId>) -> Option<String> {
        let mut counts: BTreeMap<&InstanceId, u32> = alive.iter().map(|instance| (instance, 0)).collect();
        for number in 0..partitions {
            let partition = PartitionId::from(number);
            let Some(ownership) = self.ownerships.get(&partition) else {
                return Some(format!("partition {partition} was never owned"));
            };
            let Some(owner) = &ownership.owner else {
                return Some(format!("partition {partition} has no owner"));
            };
            if self.dead.contains(owner) || !alive.contains(owner.id()) {
                return Some(format!("the owner {owner} of partition {partition} is gone"));
            }
            if let Some(next) = &ownership.next {
                return Some(format!("{next} waits for partition {partition}"));
            }
            let open = self.open.get(&(owner.id().clone(), partition.clone())).map(|open| open.epoch);
            if open != Some(ownership.epoch) {
                return Some(format!(
                    "{owner} has not opened partition {partition} at epoch {}",
                    ownership.epoch
                ));
            }
            *counts.entry(owner.id()).or_default() += 1;
        }
        let (least, most) = (counts.values().min()?, counts.values().max()?);
        (most - least > 1).then(|| format!("not balanced: {counts:?}"))
    }

    /// An instance says what it could not read. That goes to others, and balance may take that it gets something for it. What
    /// failed before the faults stopped may be known only after a slow call; no reader fails afterwards, so whoever declines a
    /// partition then without such a reader, or twice, moves it needlessly.
    pub(super) fn declined(&mut self, who: &Incarnation, partitions: BTreeSet<PartitionId>) {
        let before = self.declines.insert(who.clone(), partitions.clone()).unwrap_or_default();
        for partition in partitions.difference(&before) {
            if let Some((needed, _)) = &mut self.arrivals
                && self.doomed.remove(partition)
            {
                *needed += 2;
            }
        }
    }

    /// The reader of a partition was made to fail for good, or was taken from its owner.
    pub(crate) fn reader_doomed(&mut self, partition: &PartitionId) {
        self.doomed.insert(partition.clone());
    }

    /// Counts arrivals from now on, against the least number that balance takes: partitions that nobody of the members
    /// holds, those that were asked for, and what anybody has beyond its share. Who declines a partition may have to pass it on,
    /// and may take another one, now or when it declines it no more.
    pub(crate) fn count_arrivals(&mut self, partitions: u32) {
        let members: BTreeSet<&Incarnation> = self.live.iter().collect();
        if members.is_empty() {
            return;
        }
        let (mut held, mut needed): (BTreeMap<&Incarnation, usize>, usize) = (BTreeMap::new(), 0);
        for number in 0..partitions {
            let ownership = self.ownerships.get(&PartitionId::from(number));
            let owner =
                ownership.and_then(|known| known.owner.as_ref()).filter(|owner| members.contains(owner));
            let next = ownership.and_then(|known| known.next.as_ref()).filter(|next| members.contains(next));
            needed += usize::from(next.is_some() || owner.is_none());
            let decline = |who: &&&Incarnation| {
                self.declines.get(**who).is_some_and(|declines| declines.contains(&PartitionId::from(number)))
            };
            needed += members
                .iter()
                .filter(decline)
                .map(|who| if owner == Some(*who) { 2 } else { 1 })
                .sum::<usize>();
            if let Some(holder) = next.or(owner) {
                *held.entry(holder).or_default() += 1;
            }
        }
        // The shares that cost least: the larger ones go to those who hold the most.
        let (share, extra) = (partitions as usize / members.len(), partitions as usize % members.len());
        let mut counts: Vec<usize> = members.iter().map(|who| held.get(who).copied().unwrap_or(0)).collect();
        counts.sort_unstable_by(|a, b| b.cmp(a));
        for (index, count) in counts.into_iter().enumerate() {
            needed += count.saturating_sub(share + usize::from(index < extra));
        }
        self.note(format_args!("balance takes {needed} arrivals"));
        self.arrivals = Some((needed, 0));
    }

    /// Who takes part, as the store has it, if all of them have been heard of since.
    pub(crate) fn members(&self, since: Instant) -> Option<&BTreeSet<Incarnation>> {
        let heard = |who: &Incarnation| self.acknowledged.get(who).is_some_and(|sent| *sent >= since);
        self.live.iter().all(heard).then_some(&self.live)
    }

    /// Whether arrivals are counted: only where the membership was settled.
    pub(crate) fn counts_arrivals(&self) -> bool {
        self.arrivals.is_some()
    }

    /// Whether there were more arrivals than balance took.
    pub(crate) fn check_arrivals(&mut self) {
        if let Some((needed, arrived)) = self.arrivals {
            self.require(arrived <= needed, || {
                format!("8: {arrived} partitions changed hands where {needed} would have done")
            });
        }
    }
}
