//! Handlers that are slow, fail, or block.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use partita_core::handler::{Context, Handler, HandlerResult};
use partita_core::model::{Event, PartitionId};
use partita_core::processor::Operation;
use partita_core::processor::StopReason;

use crate::support::{Behaviour, Step, What, World, ms, partition, secs, taking};

#[tokio::test(start_paused = true)]
async fn a_handler_that_fails_for_ever_holds_its_own_partition_only() {
    let world = World::new(4);
    world.fill(100);
    let poisoned: Behaviour = Arc::new(|step, cx| {
        let fails = matches!(step, Step::Events(_)) && *cx.partition() == partition(2);
        Box::pin(async move { if fails { Err("poison".into()) } else { Ok(()) } })
    });
    let a = world.join_with("a", |b| b, poisoned).await;
    for healthy in [0, 1, 3] {
        world
            .journal
            .until("the others", |e| {
                e.iter().any(|e| e.partition == partition(healthy) && e.handled().contains(&99))
            })
            .await;
    }
    tokio::time::sleep(secs(120)).await;
    assert_eq!(world.journal.handled(&partition(2)), Vec::<i64>::new());
    assert_eq!(world.checkpoint(&partition(2)).await, None);
    let tries: Vec<_> =
        world.journal.of(&partition(2)).into_iter().filter(|e| matches!(e.what, What::Failed(_))).collect();
    assert!((8..20).contains(&tries.len()), "{} tries in two minutes", tries.len());
    assert!(tries.iter().all(|e| e.what == What::Failed((0..10).collect())), "always from the first event");
    let pauses: Vec<_> = tries.windows(2).map(|pair| pair[1].at - pair[0].at).collect();
    assert!(pauses.windows(2).all(|pair| pair[1] >= pair[0]), "{pauses:?}");
    a.shutdown().await;
}

#[tokio::test(start_paused = true)]
async fn on_error_is_told_instance_partition_and_operation() {
    let world = World::new(2);
    world.fill(1);
    let opens = Arc::new(AtomicUsize::new(0));
    let behave: Behaviour = Arc::new(move |step, cx| {
        let opening = matches!(step, Step::Open) && opens.fetch_add(1, Ordering::Relaxed) == 0;
        Box::pin(async move {
            match step {
                Step::Open if opening => Err("cannot open yet".into()),
                Step::Events(_) if *cx.partition() == partition(1) && !cx.is_stopping() => Err("no".into()),
                Step::Stopping(_) => Err("cannot stop".into()),
                _ => Ok(()),
            }
        })
    });
    let a = world.join_with("a", |b| b, behave).await;
    world.journal.sees(&partition(0), What::Handled(vec![0])).await;
    world.journal.sees(&partition(1), What::Failed(vec![0])).await;
    a.shutdown().await;
    let errors = world.errors.all();
    assert!(errors.iter().all(|error| error.instance.as_str() == "a" && error.partition.is_some()));
    assert_eq!(world.errors.of(Operation::HandlerOpen).len(), 1);
    assert_eq!(world.errors.of(Operation::HandlerStopping).len(), 2);
    let failed = world.errors.of(Operation::HandlerEvents);
    assert!(failed.iter().all(|error| error.partition == Some(partition(1))) && !failed.is_empty());
    assert_eq!(failed[0].to_string(), "a, partition 1, event 0, attempt 1: handling events: no");
}

/// Panics before it returns a future, where that is easy to overlook.
struct Rash {
    opens: Arc<AtomicUsize>,
}

impl Handler for Rash {
    fn open(&mut self, _: &Context) -> impl Future<Output = HandlerResult> + Send {
        assert!(self.opens.fetch_add(1, Ordering::Relaxed) > 0, "rash in open");
        async { Ok(()) }
    }

    async fn events(&mut self, _: &[Event], _: &Context) -> HandlerResult {
        Ok(())
    }

    fn stopping(&mut self, _: StopReason, cx: &Context) -> impl Future<Output = HandlerResult> + Send {
        assert!(*cx.partition() != partition(0), "rash in stopping");
        async { Ok(()) }
    }
}

#[tokio::test(start_paused = true)]
async fn a_panic_outside_the_future_is_reported_like_one_inside() {
    let world = World::new(1);
    world.fill(5);
    let (builder, ready) = world.prepare("a");
    let opens = Arc::new(AtomicUsize::new(0));
    let processor =
        builder.handler(move |_: &PartitionId| Rash { opens: Arc::clone(&opens) }).build().unwrap();
    let a = ready.started(processor.start().await.unwrap());
    world.checkpointed(4).await;
    a.shutdown().await;
    let text = |operation| world.errors.of(operation).iter().map(|e| e.error.to_string()).collect::<Vec<_>>();
    assert_eq!(text(Operation::HandlerOpen), ["the handler panicked: rash in open"]);
    assert_eq!(text(Operation::HandlerStopping), ["the handler panicked: rash in stopping"]);
}

#[tokio::test(start_paused = true)]
async fn a_slow_handler_has_no_more_waiting_than_the_prefetch_events() {
    let world = World::new(1);
    world.fill(5_000);
    let a = world.join_with("a", |b| b.prefetch_events(40), taking(secs(1))).await;
    for _ in 0..50 {
        tokio::time::sleep(ms(700)).await;
        let handled = world.journal.handled(&partition(0)).len();
        let ahead = a.source.events_read() - handled;
        assert!(ahead <= 40, "{ahead} events wait");
    }
    assert!(world.journal.handled(&partition(0)).len() > 300);
}

#[tokio::test(start_paused = true)]
async fn a_slow_handler_has_no_more_waiting_than_the_prefetch_bytes() {
    let world = World::new(1);
    let large = || Event::builder(vec![0_u8; 64 * 1024]);
    world.hub.append_all(&partition(0), (0..500).map(|_| large()));
    let (bytes_max, size) = (1024 * 1024, 64 * 1024);
    let a = world.join_with("a", |b| b.prefetch_bytes(bytes_max), taking(secs(1))).await;
    for _ in 0..50 {
        tokio::time::sleep(ms(700)).await;
        let handled = world.journal.handled(&partition(0)).len();
        let ahead = (a.source.events_read() - handled) * size;
        assert!(ahead <= bytes_max, "{ahead} bytes wait");
    }
    let handled = world.journal.handled(&partition(0)).len();
    assert!(handled > 300, "{handled}");
}

#[tokio::test(start_paused = true)]
async fn an_unreachable_hub_is_tried_again_and_nothing_is_lost() {
    let world = World::new(4);
    let a = world.join("a").await;
    a.owns(4).await;
    world.fill(25);
    world.handled().await;
    world.hub.set_reachable(false);
    world.fill(25);
    tokio::time::sleep(secs(60)).await;
    assert_eq!(a.status().owned().count(), 4, "a hub that is away moves nothing");
    let reports = world.errors.of(Operation::OpenReader).len();
    assert!((4 * 5..4 * 20).contains(&reports), "{reports} reports");
    world.hub.set_reachable(true);
    world.handled().await;
    world.assert_once_each();
    assert_eq!(world.moves().await.len(), 4);
}
