//! The protocol fed by hand: every answer comes, fails or stays away as the test wants.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt;

use super::{Config, Native};
use crate::balance::{Pace, Policy};
use crate::coordination::{CallId, Coordination, Effect, Input, PumpEvent, StoreAnswer, StoreCall, Target};
use crate::model::{
    ConsumerGroup, DrainReason, Epoch, HubName, Incarnation, InstanceId, Namespace, Offset, PartitionId,
    Position, Scope, SequenceNumber, StreamPosition, Tick, Timestamp,
};
use crate::report::{ErrorReport, Operation};
use crate::source::HubDescription;
use crate::store::{
    CheckpointStore, CheckpointWrite, InstanceRecord, InstanceSeen, InstanceState, InstanceWrite,
    MemoryStore, MoveReason, Op, OwnershipOutcome, OwnershipWrite, Resume, StoreError,
};
use crate::timing::Timing;

const MS: Duration = Duration::from_millis(1);

/// An instance whose store calls wait until the test answers them.
struct Bench {
    core: Native,
    now: Tick,
    store: MemoryStore,
    scope: Scope,
    calls: VecDeque<(CallId, StoreCall)>,
    effects: Vec<Effect>,
    reports: Vec<ErrorReport>,
}

impl Bench {
    fn new() -> Self {
        Self::with_partitions(1)
    }

    fn with_partitions(partitions: u32) -> Self {
        let core = Native::new(Config {
            id: InstanceId::new("me"),
            host: Arc::from("here"),
            started: Timestamp(0),
            timing: Timing::FAST,
            atomic: true,
            notifies: true,
            stamp_step: Duration::ZERO,
            policy: Policy::Count,
            pace: Pace::Greedy,
            drain_time: Duration::from_secs(10),
            cool_down: Duration::from_secs(10),
            initial_position: Position::Earliest,
            seed: 7,
        });
        let scope =
            Scope { namespace: Namespace::new("n"), hub: HubName::new("h"), group: ConsumerGroup::default() };
        let mut bench = Self {
            core,
            now: Tick(1_000_000_000_000),
            store: MemoryStore::new(),
            scope,
            calls: VecDeque::new(),
            effects: Vec::new(),
            reports: Vec::new(),
        };
        bench.apply(Input::Hub(HubDescription {
            namespace: Namespace::new("n"),
            hub: HubName::new("h"),
            stream: None,
            partitions: (0..partitions).map(PartitionId::from).collect(),
        }));
        bench
    }

    fn apply(&mut self, input: Input) {
        let mut out = Vec::new();
        self.core.apply(self.now, input, &mut out);
        for effect in out {
            match effect {
                Effect::Call(id, call) => self.calls.push_back((id, call)),
                Effect::Report(report) => self.reports.push(report),
                other => self.effects.push(other),
            }
        }
    }

    fn pass(&mut self, time: Duration) {
        self.now = self.now + time;
        self.apply(Input::Time);
    }

    fn in_store(&self, call: StoreCall) -> StoreAnswer {
        let answer = async {
            Ok::<_, StoreError>(match call {
                StoreCall::Instance(write) => {
                    StoreAnswer::Instance(self.store.write_instance(&self.scope, write).await?)
                }
                StoreCall::Ownership(write) => {
                    StoreAnswer::Ownership(self.store.write_ownership(&self.scope, write).await?)
                }
                StoreCall::Checkpoint(write) => {
                    StoreAnswer::Checkpoint(self.store.write_checkpoint(&self.scope, write).await?)
                }
                StoreCall::View => StoreAnswer::View(self.store.view(&self.scope).await?),
            })
        };
        answer.now_or_never().expect("the memory store never waits").expect("the memory store never fails")
    }

    /// Answers all calls until there are none.
    fn answer_all(&mut self) {
        while let Some((id, call)) = self.calls.pop_front() {
            let answer = self.in_store(call);
            self.now = self.now + MS;
            self.apply(Input::Answer(id, Ok(answer)));
        }
    }

    /// Answers all but the next ownership write, which is given back.
    fn until_ownership_write(&mut self) -> (CallId, OwnershipWrite) {
        for _ in 0..200 {
            match self.calls.pop_front() {
                Some((id, StoreCall::Ownership(write))) => return (id, write),
                Some((id, call)) => {
                    let answer = self.in_store(call);
                    self.now = self.now + MS;
                    self.apply(Input::Answer(id, Ok(answer)));
                }
                None => self.pass(20 * MS),
            }
        }
        panic!("no ownership write came");
    }

    fn lose(&mut self, id: CallId) {
        self.now = self.now + 400 * MS;
        self.apply(Input::Answer(id, Err(StoreError::unknown("write_ownership", "no answer"))));
    }

    fn opened(&mut self) -> Option<Epoch> {
        let open = self.effects.iter().position(|effect| matches!(effect, Effect::Open { .. }))?;
        match self.effects.remove(open) {
            Effect::Open { epoch, .. } => Some(epoch),
            _ => None,
        }
    }

    /// The record of this instance, as the store has it.
    fn me(&self) -> InstanceSeen {
        let StoreAnswer::View(view) = self.in_store(StoreCall::View) else { unreachable!() };
        let me = self.core.view().me;
        view.instances.into_iter().find(|seen| seen.record.incarnation == *me).expect("registered")
    }

    /// The others declare this instance dead, and it hears of it.
    fn bury_me(&mut self) {
        let me = self.me();
        self.in_store(StoreCall::Instance(InstanceWrite::Bury {
            victim: me.record.incarnation,
            expect: me.version,
            age_min: Duration::ZERO,
        }));
        self.pass(2_000 * MS);
        self.answer_all();
    }

    fn saw(&self, wanted: impl Fn(&Effect) -> bool) -> bool {
        self.effects.iter().any(wanted)
    }

    /// Another instance, which only writes what the test says.
    fn other(&self) -> Incarnation {
        self.join(Incarnation::new(InstanceId::new("other"), 1))
    }

    /// One that has been heard of since it registered.
    fn join(&self, other: Incarnation) -> Incarnation {
        self.in_store(StoreCall::Instance(InstanceWrite::Register(InstanceRecord {
            incarnation: other.clone(),
            host: Arc::from("there"),
            started: Timestamp(0),
            stopping: false,
            ttl: Timing::FAST.ttl(),
            declines: Vec::new(),
            state: InstanceState::Live,
            beat: 1,
            details: Default::default(),
        })));
        other
    }

    /// The other asks for the partition.
    fn request(&mut self, other: &Incarnation) {
        let StoreAnswer::View(view) = self.in_store(StoreCall::View) else { unreachable!() };
        let held = &view.ownerships[0];
        self.in_store(StoreCall::Ownership(OwnershipWrite {
            partition: held.partition.clone(),
            expect: Some(held.version.clone()),
            owner: held.owner.clone(),
            epoch: held.epoch,
            next: Some(other.clone()),
            reason: MoveReason::HandedOff,
            op: Op { by: other.clone(), number: 1 },
            checkpoint: None,
        }));
        self.pass(30 * MS);
        self.apply(Input::Changed);
    }
}

/// A partition that nobody ever owned becomes somebody's.
fn taken(partition: u32, owner: &Incarnation) -> StoreCall {
    StoreCall::Ownership(OwnershipWrite {
        partition: partition.into(),
        expect: None,
        owner: Some(owner.clone()),
        epoch: Epoch(1),
        next: None,
        reason: MoveReason::Claimed,
        op: Op { by: owner.clone(), number: u64::from(partition) + 1 },
        checkpoint: None,
    })
}

fn at(sequence: i64) -> StreamPosition {
    StreamPosition::new(SequenceNumber(sequence), Offset::number(sequence as u64 * 10))
}

fn advance(sequence: i64) -> Target {
    Target { resume: Resume::After(at(sequence)), seek: false, seeks: 0 }
}

fn p0() -> PartitionId {
    PartitionId::from(0)
}

fn drained(last: i64) -> PumpEvent {
    PumpEvent::Drained { last: Some(advance(last)), cancelled: false, give_up: false }
}

#[test]
fn joins_then_claims_then_opens() {
    let mut bench = Bench::new();
    assert!(matches!(bench.calls[0].1, StoreCall::Instance(InstanceWrite::Register(_))));
    bench.answer_all();
    assert!(bench.saw(|effect| matches!(effect, Effect::Registered)));
    assert_eq!(bench.opened(), Some(Epoch(1)));
}

#[test]
fn requests_that_are_not_answered_yet_count_so_that_no_more_is_asked_for() {
    // Which partitions the plan chooses depends on the names.
    for nonce in 0..20 {
        let mut bench = Bench::with_partitions(6);
        let other = bench.other();
        bench.join(Incarnation::new(InstanceId::new("third"), nonce));
        for partition in 0..6 {
            bench.in_store(taken(partition, &other));
        }
        // Two of six are its share of three. They are answered one after the other, with time between.
        let (first, write) = bench.until_ownership_write();
        let (second, delayed) = bench.until_ownership_write();
        let answer = bench.in_store(StoreCall::Ownership(write));
        bench.apply(Input::Answer(first, Ok(answer)));
        for _ in 0..5 {
            bench.pass(30 * MS);
            bench.apply(Input::Changed);
            while let Some((id, call)) = bench.calls.pop_front() {
                assert!(!matches!(call, StoreCall::Ownership(_)), "asked for a third one (nonce {nonce})");
                let answer = bench.in_store(call);
                bench.apply(Input::Answer(id, Ok(answer)));
            }
        }
        let answer = bench.in_store(StoreCall::Ownership(delayed));
        bench.apply(Input::Answer(second, Ok(answer)));
    }
}

#[test]
fn a_claim_whose_answer_is_lost_is_opened_once_the_record_shows_it() {
    let mut bench = Bench::new();
    let (id, claim) = bench.until_ownership_write();
    bench.in_store(StoreCall::Ownership(claim));
    bench.lose(id);
    assert_eq!(bench.opened(), None, "opened on a guess");
    for _ in 0..20 {
        bench.answer_all();
        bench.pass(100 * MS);
    }
    assert_eq!(bench.opened(), Some(Epoch(1)));
}

#[test]
fn a_transfer_whose_answer_is_lost_is_repeated_and_never_resumed_from() {
    let mut bench = Bench::new();
    bench.answer_all();
    bench.opened();
    let other = bench.other();
    bench.request(&other);
    bench.answer_all();
    assert!(bench.saw(|effect| matches!(effect, Effect::Drain { reason: DrainReason::HandOff, .. })));
    bench.apply(Input::Pump(p0(), Epoch(1), drained(41)));
    let (id, transfer) = bench.until_ownership_write();
    assert_eq!(transfer.owner.as_ref(), Some(&other));
    assert_eq!(
        transfer.checkpoint.as_ref().and_then(|part| part.last.clone()).map(|last| last.1),
        Some(at(41))
    );
    bench.lose(id);
    // The delayed request lands only now, after the owner has given up on its answer.
    let (id, again) = bench.until_ownership_write();
    assert_eq!(bench.opened(), None, "delivered while the transfer could still land");
    bench.in_store(StoreCall::Ownership(transfer));
    let refused = bench.in_store(StoreCall::Ownership(again));
    assert!(matches!(refused, StoreAnswer::Ownership(OwnershipOutcome::Refused(Some(_)))));
    bench.apply(Input::Answer(id, Ok(refused)));
    bench.answer_all();
    assert_eq!(bench.opened(), None);
    assert!(bench.saw(|effect| matches!(effect, Effect::Closed { .. })));
}

#[test]
fn a_partition_whose_taker_is_gone_after_the_drain_is_taken_again_at_a_higher_epoch() {
    let mut bench = Bench::new();
    bench.answer_all();
    bench.opened();
    let other = bench.other();
    bench.request(&other);
    bench.answer_all();
    let StoreAnswer::View(view) = bench.in_store(StoreCall::View) else { unreachable!() };
    let seen = view.instances.iter().find(|seen| seen.record.incarnation == other).expect("registered");
    bench.in_store(StoreCall::Instance(InstanceWrite::Leave {
        incarnation: other.clone(),
        expect: seen.version.clone(),
    }));
    bench.pass(30 * MS);
    bench.apply(Input::Changed);
    bench.answer_all();
    bench.apply(Input::Pump(p0(), Epoch(1), drained(5)));
    bench.answer_all();
    assert_eq!(bench.opened(), Some(Epoch(2)));
}

#[test]
fn a_call_that_cannot_be_cut_off_keeps_the_partition_and_refuses_the_taker() {
    let mut bench = Bench::new();
    bench.answer_all();
    bench.opened();
    let other = bench.other();
    bench.request(&other);
    bench.answer_all();
    let mut refused = None;
    for _ in 0..120 {
        bench.pass(100 * MS);
        while let Some((id, call)) = bench.calls.pop_front() {
            if let StoreCall::Ownership(write) = &call {
                refused.get_or_insert(write.clone());
            }
            let answer = bench.in_store(call);
            bench.apply(Input::Answer(id, Ok(answer)));
        }
    }
    assert!(bench.saw(|effect| matches!(effect, Effect::Cancel { .. })));
    assert!(bench.saw(|effect| matches!(effect, Effect::Undrain { .. })));
    let refused = refused.expect("the request was never answered");
    assert_eq!((refused.next, refused.epoch), (None, Epoch(1)));
}

#[test]
fn after_a_lapse_nothing_is_delivered_before_a_later_view_confirms_it() {
    let mut bench = Bench::new();
    bench.answer_all();
    bench.opened();
    // No answer for longer than the lease.
    for _ in 0..40 {
        bench.pass(100 * MS);
        while let Some((id, _)) = bench.calls.pop_front() {
            bench.apply(Input::Answer(id, Err(StoreError::no_effect("any", "store down"))));
        }
    }
    bench.effects.clear();
    let lease = |bench: &Bench| bench.saw(|effect| matches!(effect, Effect::Lease { .. }));
    for _ in 0..40 {
        bench.pass(100 * MS);
        let Some((id, call)) = bench.calls.pop_front() else { continue };
        let is_view = matches!(call, StoreCall::View);
        assert!(!lease(&bench), "the lease came back before a view");
        let answer = bench.in_store(call);
        bench.apply(Input::Answer(id, Ok(answer)));
        if is_view {
            assert!(lease(&bench), "the view did not confirm the ownership");
            return;
        }
    }
    panic!("no view was read after the lapse");
}

#[test]
fn checkpoints_are_coalesced_to_the_newest_position() {
    let mut bench = Bench::new();
    bench.answer_all();
    bench.opened();
    for sequence in 1..=9 {
        bench.apply(Input::Pump(p0(), Epoch(1), PumpEvent::Checkpoint(advance(sequence))));
    }
    let mut written = Vec::new();
    while let Some((id, call)) = bench.calls.pop_front() {
        if let StoreCall::Checkpoint(CheckpointWrite::Advance { last, .. }) = &call {
            written.push(last.sequence.0);
        }
        let answer = bench.in_store(call);
        bench.apply(Input::Answer(id, Ok(answer)));
    }
    assert_eq!(written, [1, 9]);
}

#[test]
fn a_buried_instance_joins_again_at_once_without_the_partition_whose_call_goes_on() {
    let mut bench = Bench::with_partitions(2);
    bench.answer_all();
    assert_eq!((bench.opened(), bench.opened()), (Some(Epoch(1)), Some(Epoch(1))));
    let former = bench.core.view().me.clone();
    bench.effects.clear();
    bench.bury_me();
    assert_ne!(*bench.core.view().me, former);
    assert!(bench.saw(|effect| matches!(effect, Effect::Registered)), "it waits for its calls");
    // One call ends when it is cut off, the other does not.
    bench.apply(Input::Pump(1.into(), Epoch(1), PumpEvent::Ended));
    for _ in 0..5 {
        bench.pass(100 * MS);
        bench.answer_all();
    }
    assert_eq!(bench.me().record.declines, [p0()]);
    let stuck: Vec<_> = bench.reports.iter().filter(|report| report.operation == Operation::Drain).collect();
    assert_eq!(stuck.iter().map(|report| report.partition.clone()).collect::<Vec<_>>(), [Some(p0())]);
    assert!(stuck[0].error.to_string().contains("goes on"), "{}", stuck[0].error);
    assert!(bench.opened().is_some() && bench.opened().is_none(), "the other partition, and nothing else");
    // Once the call has ended, the partition is wanted again.
    bench.apply(Input::Pump(p0(), Epoch(1), PumpEvent::Ended));
    bench.answer_all();
    assert_eq!(bench.me().record.declines, []);
    for _ in 0..5 {
        bench.pass(100 * MS);
        bench.answer_all();
    }
    assert!(bench.opened().is_some());
}

#[test]
fn a_decline_that_crosses_a_heartbeat_is_told_by_the_next_one_at_once() {
    let mut bench = Bench::with_partitions(2);
    bench.answer_all();
    bench.pass(500 * MS);
    let (id, beat) = bench.calls.pop_front().expect("the heartbeat");
    assert!(matches!(beat, StoreCall::Instance(InstanceWrite::Beat { .. })));
    let give_up = PumpEvent::Drained { last: None, cancelled: false, give_up: true };
    bench.apply(Input::Pump(p0(), Epoch(1), give_up));
    let answer = bench.in_store(beat);
    bench.apply(Input::Answer(id, Ok(answer)));
    bench.answer_all();
    assert_eq!(bench.me().record.declines, [p0()]);
}
