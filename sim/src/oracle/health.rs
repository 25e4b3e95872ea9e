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

    /// The owner of a partition cannot read it, and leaves it alone for a while. It goes to another one, and balance may take
    /// that the former owner gets one for it. What failed before the faults stopped may be known only now, after a slow call.
    pub(crate) fn gives_up(&mut self, partition: &PartitionId) {
        self.given_up.insert(partition.clone());
        if let Some((needed, _)) = &mut self.arrivals {
            *needed += 2;
        }
    }

    /// Counts arrivals from now on, against the least number that balance takes: partitions that nobody of the members
    /// holds, those that were asked for or are being given up, and what anybody has beyond its share.
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
            if self.given_up.contains(&PartitionId::from(number)) {
                needed += if next.is_none() && owner.is_some() { 2 } else { 1 };
            }
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

    /// Whether there were more arrivals than balance took.
    pub(crate) fn check_arrivals(&mut self) {
        if let Some((needed, arrived)) = self.arrivals {
            self.require(arrived <= needed, || {
                format!("8: {arrived} partitions changed hands where {needed} would have done")
            });
        }
    }
}
