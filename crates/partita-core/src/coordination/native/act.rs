//! This instance's part of the plan: bury, claim, request, withdraw.

use super::slot::WriteKind;
use super::{Life, Native, Purpose, is_live};
use crate::balance::{Action, Holding, Member, OwnerState, Plan, Snapshot, plan};
use crate::coordination::{Effect, StoreAnswer, StoreCall};
use crate::model::{Incarnation, Tick};
use crate::report::Operation;
use crate::store::{InstanceOutcome, InstanceWrite, StoreError};

impl Native {
    /// Computes the plan from the latest view and starts what it asks of us.
    pub(super) fn act(&mut self, now: Tick, out: &mut Vec<Effect>) {
        let cycle = self.config.timing.cycle();
        let settled = self.group.membership.is_settled(now, cycle);
        let Some(plan) = self.plan(now, settled) else { return };
        for partition in &plan.withdrawals {
            self.write_if_idle(now, partition, WriteKind::Withdraw, out);
        }
        for action in &plan.actions {
            match action {
                Action::Claim(partition) => self.write_if_idle(now, partition, WriteKind::Claim, out),
                Action::BuryAndClaim(_, owner) => self.bury(now, owner, out),
                Action::Request(partition) => self.write_if_idle(now, partition, WriteKind::Request, out),
            }
        }
        self.bury_idle(now, out);
        if !settled {
            self.look_at(self.group.membership.settles_at(cycle).max(now + cycle / 20));
        }
    }

    fn plan(&self, now: Tick, settled: bool) -> Option<Plan> {
        let latest = self.group.latest.as_ref()?;
        let fresh = self.is_fresh(now, latest.sent);
        let joined = self.group.instance(&self.me.incarnation).is_some_and(|seen| is_live(seen.record.state));
        if self.life != Life::Running || !self.lease.is_valid(now) || !fresh || !joined {
            return None;
        }
        let holdings: Vec<Holding> = self
            .slots
            .iter()
            // What the hub does not have is nobody's: in the plan it would take the place of something real.
            .filter(|(partition, _)| self.partitions.contains(*partition))
            .map(|(partition, slot)| {
                let known = slot.known.as_ref();
                let me = || Some(self.me.incarnation.clone());
                // What is on its way counts as done: a plan without it would ask for something else in its place.
                let (owner, next) = match slot.write {
                    Some((WriteKind::Claim, _)) => (me(), None),
                    Some((WriteKind::Request, _)) => (known.and_then(|known| known.owner.clone()), me()),
                    _ => known.map(|known| (known.owner.clone(), known.next.clone())).unwrap_or_default(),
                };
                Holding {
                    partition: partition.clone(),
                    owner: owner.map(|owner| {
                        let state = self.owner_state(now, &owner);
                        (owner, state)
                    }),
                    next,
                }
            })
            .collect();
        let members = self.members(now).into_iter().map(|seen| {
            let mut declines = seen.record.declines.clone();
            if self.is_silent(seen) {
                // It keeps what it has until it is buried, but what nobody reads must not wait for it.
                let unread = holdings.iter().filter(|holding| match &holding.owner {
                    Some((_, state)) => *state != OwnerState::Live,
                    None => true,
                });
                declines.extend(unread.map(|holding| holding.partition.clone()));
            }
            Member { incarnation: seen.record.incarnation.clone(), declines }
        });
        let mut members: Vec<Member> = members.collect();
        if planted!(PlanByInputOrder) {
            members.sort_by_key(|member| member.incarnation != self.me.incarnation);
        }
        let snapshot = Snapshot { members, holdings };
        Some(plan(&snapshot, &self.me.incarnation, self.config.policy, self.config.pace, settled))
    }

    /// Whether a view sent then is still good enough to plan from.
    fn is_fresh(&self, now: Tick, sent: Tick) -> bool {
        now.since(sent) <= self.config.timing.cycle() / 2
    }

    /// Buries those who fell silent without owning anything. Until that is done a newcomer, who has not watched them
    /// for long enough, counts them in. One instance sees to it: the first.
    fn bury_idle(&mut self, now: Tick, out: &mut Vec<Effect>) {
        let first = self.members(now).into_iter().map(|seen| &seen.record.incarnation).min();
        if first != Some(&self.me.incarnation) {
            return;
        }
        for victim in self.expired(now) {
            self.bury(now, &victim, out);
        }
    }

    fn bury(&mut self, now: Tick, victim: &Incarnation, out: &mut Vec<Effect>) {
        let (busy, retry) = self.group.burials.entry(victim.clone()).or_default();
        if *busy || !retry.is_due(now) {
            return;
        }
        *busy = true;
        let write = match self.group.instance(victim) {
            Some(seen) => InstanceWrite::Bury {
                victim: victim.clone(),
                expect: seen.version.clone(),
                age_min: self.ttl_of(seen),
            },
            None => InstanceWrite::BuryAbsent { victim: victim.clone() },
        };
        self.call(now, Purpose::Bury(victim.clone()), StoreCall::Instance(write), out);
    }

    pub(super) fn on_buried(
        &mut self,
        now: Tick,
        victim: &Incarnation,
        answer: Result<StoreAnswer, StoreError>,
        out: &mut Vec<Effect>,
    ) {
        let (_, mut retry) = self.group.burials.remove(victim).unwrap_or_default();
        let (cycle, rng) = (self.config.timing.cycle(), &mut self.rng);
        match answer {
            Ok(StoreAnswer::Instance(
                InstanceOutcome::Applied(seen) | InstanceOutcome::Refused(Some(seen)),
            )) if !is_live(seen.record.state) => {
                self.group.learn_dead(seen);
                match &self.group.latest {
                    Some(latest) if self.is_fresh(now, latest.sent) => self.act(now, out),
                    _ => self.look(now, out),
                }
            }
            // It lives, or something else is wrong with what we know.
            Ok(_) => {
                let at = retry.failed(now, cycle, rng);
                self.group.burials.insert(victim.clone(), (false, retry));
                self.look_at(at);
            }
            Err(error) => {
                let at = retry.failed(now, cycle, rng);
                self.group.burials.insert(victim.clone(), (false, retry));
                self.look_at(at);
                Self::report(None, Operation::Bury, error, out);
            }
        }
    }
}
