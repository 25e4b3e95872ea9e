//! What only real threads show: the handler's calls, other tasks of the user and the coordination side by side.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, OnceLock};
use std::time::{Duration, Instant};

use partita_core::handler::{Context, Handler, HandlerResult, RevokedContext};
use partita_core::model::{Epoch, Event, Incarnation, InstanceId, PartitionId, Position};
use partita_core::processor::FailurePolicy;
use partita_core::processor::RevokeReason;
use partita_core::processor::{Checkpoint, Processor};
use partita_core::store::{CheckpointStore, MoveReason, Op, OwnershipWrite};
use tokio::sync::watch;

use crate::support::{World, ms, soon};

/// How long a race is run, by the clock on the wall.
const RACE: Duration = Duration::from_millis(1_500);

/// One way through a partition, from the first event to the seek back to it.
#[derive(Default)]
struct Round {
    has_failed: bool,
    handled: Vec<i64>,
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_seek_beside_a_checkpoint_from_another_task_passes_over_nothing() {
    const LAST: i64 = 3;
    let world = World::new(1);
    world.fill(20);
    let stale: Arc<OnceLock<(Event, Context)>> = Arc::default();
    let over = Arc::new(AtomicBool::new(false));
    let rounds: Arc<Mutex<Vec<Vec<i64>>>> = Arc::default();
    let (round, stash, ended) =
        (Arc::new(Mutex::new(Round::default())), Arc::clone(&stale), Arc::clone(&rounds));
    // The first event fails once in every round; it may not be passed over. The last one begins the next round.
    let handle_event = move |event: Event, cx: Context| {
        let mut round = round.lock().unwrap();
        let number = event.sequence_number().0;
        let fails = number == 0 && !round.has_failed;
        if fails {
            round.has_failed = true;
        } else {
            round.handled.push(number);
        }
        if number == LAST {
            ended.lock().unwrap().push(std::mem::take(&mut *round).handled);
            cx.seek(Position::Earliest);
            stash.get_or_init(|| (event, cx));
        }
        async move {
            // Before the seek the others get into a checkpoint, and before the failure counts they get out of it.
            if fails || number == LAST {
                tokio::time::sleep(ms(1)).await;
            }
            if fails { Err("the first try".into()) } else { Ok(()) }
        }
    };
    let processor = Processor::builder(world.hub.source(), world.store.clone())
        .checkpoint(Checkpoint::Manual)
        .batch_size(1)
        .on_failure(FailurePolicy::Retry { first: Duration::ZERO, longest: Duration::ZERO })
        .on_event(handle_event)
        .build()
        .unwrap();
    let handle = processor.start().await.unwrap();
    let declaring: Vec<_> = (0..2)
        .map(|_| {
            let (stale, over) = (Arc::clone(&stale), Arc::clone(&over));
            tokio::task::spawn_blocking(move || {
                while !over.load(Ordering::Acquire) {
                    match stale.get() {
                        Some((event, cx)) => drop(cx.checkpoint(event)),
                        None => std::thread::yield_now(),
                    }
                }
            })
        })
        .collect();
    tokio::time::sleep(RACE).await;
    over.store(true, Ordering::Release);
    for task in declaring {
        task.await.unwrap();
    }
    soon("the shutdown", handle.shutdown()).await.unwrap();
    let rounds = rounds.lock().unwrap();
    let whole: Vec<i64> = (0..=LAST).collect();
    let passed_over: Vec<_> = rounds.iter().filter(|handled| **handled != whole).collect();
    assert!(rounds.len() > 1, "only {} rounds", rounds.len());
    assert!(passed_over.is_empty(), "{} of {} rounds: {passed_over:?}", passed_over.len(), rounds.len());
}

/// How the handlers of one fleet fared.
#[derive(Clone, Copy, Default, Debug)]
struct Fates {
    opened: usize,
    revoked: usize,
    cut_off: usize,
}

struct Fated(Arc<watch::Sender<Fates>>);

/// Tells at its end whether the call that holds it has come to its own.
struct Call<'a> {
    fates: &'a watch::Sender<Fates>,
    is_complete: bool,
}

impl Drop for Call<'_> {
    fn drop(&mut self) {
        self.fates.send_modify(|fates| {
            if self.is_complete {
                fates.revoked += 1;
            } else {
                fates.cut_off += 1;
            }
        });
    }
}

impl Handler for Fated {
    async fn open(&mut self, _: &Context) -> HandlerResult {
        self.0.send_modify(|fates| fates.opened += 1);
        Ok(())
    }

    async fn events(&mut self, _: &[Event], _: &Context) -> HandlerResult {
        Ok(())
    }

    async fn revoked(&mut self, _: RevokeReason, _: &RevokedContext) {
        let mut call = Call { fates: &self.0, is_complete: false };
        for _ in 0..3 {
            tokio::task::yield_now().await;
        }
        tokio::time::sleep(ms(1)).await;
        call.is_complete = true;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn revoked_runs_to_its_end() {
    const PARTITIONS: u32 = 500;
    let begun = Instant::now();
    let (mut revoked, mut cut_off) = (0, 0);
    while begun.elapsed() < RACE {
        let world = World::new(PARTITIONS);
        let all = world.hub.description().partitions.len();
        let fates = Arc::new(watch::Sender::new(Fates::default()));
        let given = Arc::clone(&fates);
        let processor = Processor::builder(world.hub.source(), world.store.clone())
            .handler(move |_: &PartitionId| Fated(Arc::clone(&given)))
            .build()
            .unwrap();
        let handle = processor.start().await.unwrap();
        let mut seen = fates.subscribe();
        soon("all are open", seen.wait_for(|fates| fates.opened == all)).await.unwrap();
        steal_everything(&world).await;
        let ended = soon("all were revoked", seen.wait_for(|fates| fates.revoked + fates.cut_off >= all));
        let ended = *ended.await.unwrap();
        revoked += ended.revoked;
        cut_off += ended.cut_off;
        drop(handle);
    }
    assert_eq!(cut_off, 0, "calls were cut off by their own revocation; {revoked} were not");
}

/// Another instance writes itself as the owner of every partition.
async fn steal_everything(world: &World) {
    let (scope, thief) = (world.scope(), Incarnation::new(InstanceId::new("thief"), 1));
    for owned in world.store.view(&scope).await.unwrap().ownerships {
        let write = OwnershipWrite {
            partition: owned.partition,
            expect: Some(owned.version),
            owner: Some(thief.clone()),
            epoch: Epoch(owned.epoch.0 + 1),
            next: None,
            reason: MoveReason::Claimed,
            op: Op { by: thief.clone(), number: 1 },
            checkpoint: None,
        };
        world.store.write_ownership(&scope, write).await.unwrap();
    }
}
