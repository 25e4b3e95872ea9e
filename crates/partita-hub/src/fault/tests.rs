//! Which links a fault strikes, and when it ends.

use super::*;

fn spot(hub: &str, partition: Option<u32>, sends: bool, moment: Moment) -> Spot<'_> {
    Spot { hub, partition, sends, moment }
}

fn strikes(faults: &Faults, spot: &Spot<'_>) -> bool {
    faults.strike(spot, Instant::now()).is_some()
}

#[test]
fn a_target_is_met_by_hub_partition_and_role() {
    let faults = Faults::default();
    let busy = Fault::new(FaultKind::Busy);
    faults.add(Fault { hub: Some("EH1".into()), partition: Some(2), role: FaultRole::Sender, ..busy });
    assert!(strikes(&faults, &spot("eh1", Some(2), true, Moment::Sent)));
    assert!(!strikes(&faults, &spot("eh2", Some(2), true, Moment::Sent)));
    assert!(!strikes(&faults, &spot("eh1", Some(3), true, Moment::Sent)));
    assert!(!strikes(&faults, &spot("eh1", None, true, Moment::Sent)));
    assert!(!strikes(&faults, &spot("eh1", Some(2), false, Moment::Attach)));
}

#[test]
fn each_kind_strikes_at_its_moments_only() {
    let detach = FaultKind::Detach { condition: "amqp:link:detach-forced".into(), description: "go".into() };
    let delay = FaultKind::Delay(Duration::from_millis(5));
    for (kind, moments) in [
        (detach, vec![Moment::Attach, Moment::Attached]),
        (delay, vec![Moment::Answer]),
        (FaultKind::Busy, vec![Moment::Attach, Moment::Sent]),
        (FaultKind::Drop, vec![Moment::Attach, Moment::Attached, Moment::Sent]),
    ] {
        let faults = Faults::default();
        faults.add(Fault::new(kind.clone()));
        for moment in [Moment::Attach, Moment::Attached, Moment::Sent, Moment::Answer] {
            let struck = strikes(&faults, &spot("h", None, true, moment));
            assert_eq!(struck, moments.contains(&moment), "{kind:?} at {moment:?}");
        }
    }
}

#[test]
fn limits_end_a_fault_by_count_and_by_time() {
    let faults = Faults::default();
    faults.add(Fault { count: Some(2), ..Fault::new(FaultKind::Busy) });
    let here = spot("h", None, true, Moment::Sent);
    assert_eq!([(); 4].map(|()| strikes(&faults, &here)), [true, true, false, false]);
    assert!(faults.list().is_empty());
    faults.add(Fault { lasts: Some(Duration::from_secs(60)), ..Fault::new(FaultKind::Drop) });
    let now = Instant::now();
    assert_eq!(faults.strike(&here, now), Some(Strike::Cut));
    assert_eq!(faults.strike(&here, now + Duration::from_secs(61)), None);
}

#[test]
fn faults_are_listed_with_their_hits_and_can_be_taken_back() {
    let faults = Faults::default();
    let mut changes = faults.changes();
    let first = faults.add(Fault::new(FaultKind::Busy));
    let second = faults.add(Fault::new(FaultKind::Drop));
    assert!(changes.has_changed().expect("there") && *changes.borrow_and_update() == 2);
    let here = spot("h", None, true, Moment::Sent);
    assert!(
        matches!(faults.strike(&here, Instant::now()), Some(Strike::Refuse(r)) if r.condition == SERVER_BUSY)
    );
    let listed: Vec<_> = faults.list().into_iter().map(|(id, _, hits)| (id, hits)).collect();
    assert_eq!(listed, [(first, 1), (second, 0)]);
    assert!(faults.remove(first) && !faults.remove(first));
    assert_eq!(faults.strike(&here, Instant::now()), Some(Strike::Cut));
    faults.clear();
    assert!(!strikes(&faults, &here) && faults.list().is_empty());
}

#[test]
fn there_are_so_many_and_the_oldest_goes() {
    let faults = Faults::default();
    let first = faults.add(Fault::new(FaultKind::Busy));
    (0..FAULTS_MAX).for_each(|_| {
        faults.add(Fault::new(FaultKind::Drop));
    });
    assert!(faults.list().len() == FAULTS_MAX && !faults.remove(first));
}
