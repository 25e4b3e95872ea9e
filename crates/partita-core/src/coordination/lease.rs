//! The instance's right to its ownerships, judged by its own clock alone.

use crate::model::Tick;
use crate::timing::Timing;

/// Counted from the sending of the last acknowledged heartbeat, never from its answer: the store's record starts to
/// age no later than that.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Lease {
    timing: Timing,
    /// When the last acknowledged heartbeat was sent.
    sent: Option<Tick>,
    /// Since when the lease has been valid without a break and every heartbeat was acknowledged.
    undisturbed_since: Tick,
    /// Whether a heartbeat has failed since the last acknowledged one.
    disturbed: bool,
    /// When the first acknowledgement after a break arrived: only views sent later may confirm an ownership.
    restored: Tick,
}

impl Lease {
    pub(crate) fn new(timing: Timing) -> Self {
        Self { timing, sent: None, undisturbed_since: Tick(0), disturbed: false, restored: Tick(0) }
    }

    /// Takes the acknowledgement of a heartbeat that was sent at `sent`. Tells whether the lease had not been valid
    /// until now.
    pub(crate) fn acknowledge(&mut self, now: Tick, sent: Tick) -> bool {
        let sent = if planted!(LeaseFromAnswer) { now } else { sent };
        let broken = !self.is_valid(now);
        self.sent = Some(self.sent.map_or(sent, |last| last.max(sent)));
        if broken || std::mem::take(&mut self.disturbed) {
            self.undisturbed_since = sent;
        }
        if broken {
            self.restored = now;
        }
        broken
    }

    /// A heartbeat was not acknowledged: perhaps the store is down, for everybody.
    pub(crate) fn disturb(&mut self) {
        self.disturbed = true;
    }

    pub(crate) fn is_valid(&self, now: Tick) -> bool {
        now < self.valid_until()
    }

    /// The first moment at which no call may be started.
    pub(crate) fn valid_until(&self) -> Tick {
        self.sent.map_or(Tick(0), |sent| sent + self.timing.lease())
    }

    /// When running calls are cancelled.
    pub(crate) fn hard_stop(&self) -> Tick {
        self.sent.map_or(Tick(0), |sent| sent + self.timing.hard_stop())
    }

    /// The quiet rule: after an outage everybody renews before anybody buries. A lease that outlives the outage does not
    /// make it undone: the others may not have got through in between.
    pub(crate) fn may_bury(&self, now: Tick) -> bool {
        let quiet = !self.disturbed && now.since(self.undisturbed_since) >= 2 * self.timing.cycle();
        self.is_valid(now) && (quiet || planted!(NoQuietRule))
    }

    /// Whether a view sent at `sent` may confirm ownerships.
    pub(crate) fn confirms(&self, sent: Tick) -> bool {
        sent >= self.restored
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    const S: Duration = Duration::from_secs(1);

    #[test]
    fn validity_counts_from_the_send_not_from_the_answer() {
        let mut lease = Lease::new(Timing::FAST);
        assert!(!lease.is_valid(Tick(0)));
        let start = Tick(0) + 10 * S;
        assert!(lease.acknowledge(start + S / 2, start));
        assert_eq!(lease.valid_until(), start + S * 7 / 2);
        assert!(lease.is_valid(start + S * 3) && !lease.is_valid(start + S * 7 / 2));
    }

    #[test]
    fn after_a_heartbeat_that_failed_nobody_is_buried_for_two_cycles_although_the_lease_goes_on() {
        let mut lease = Lease::new(Timing::FAST);
        let start = Tick(0) + 10 * S;
        lease.acknowledge(start, start);
        lease.acknowledge(start + 2 * S, start + 2 * S);
        assert!(lease.may_bury(start + 2 * S));
        lease.disturb();
        assert!(!lease.may_bury(start + 3 * S) && lease.is_valid(start + 3 * S));
        let back = start + 5 * S;
        assert!(!lease.acknowledge(back, back), "the lease was never broken");
        assert!(!lease.may_bury(back + S) && lease.may_bury(back + 2 * S));
    }

    #[test]
    fn after_a_break_nobody_is_buried_for_two_cycles_and_old_views_confirm_nothing() {
        let mut lease = Lease::new(Timing::FAST);
        let start = Tick(0) + 10 * S;
        lease.acknowledge(start, start);
        lease.acknowledge(start + 3 * S, start + 3 * S);
        assert!(lease.may_bury(start + 3 * S));
        let back = start + 60 * S;
        assert!(!lease.may_bury(back));
        assert!(lease.acknowledge(back + S / 10, back));
        assert!(!lease.may_bury(back + S));
        assert!(!lease.confirms(back) && lease.confirms(back + S / 10));
        lease.acknowledge(back + 2 * S, back + 2 * S);
        assert!(lease.may_bury(back + 2 * S));
    }
}
